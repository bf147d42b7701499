"""Schedules of a real service that create Jobs in a cluster, here the double over HTTP."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from kron.clocks.system import SystemClock
from kron.fronts.service.launchers import NO_CLUSTER
from kron.launchers.delivery import MAX_REQUESTS
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from kron.launchers.kubernetes.launcher import KubernetesLauncher
from tests.kubernetes.api_server import ApiServer, Fault
from tests.kubernetes.test_operator_process import kubeconfig
from tests.launchers.ear import Ear, a_launch
from tests.service.server import process, serving
from tests.waiting import PATIENCE_S, until

TEAM = "team"
# More than the worker sends for one tenant at a time.
HANGING = 110
POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "busybox", "env": [{"name": "A", "value": "hunter2222"}]}],
}
LAUNCHER: dict[str, Any] = {
    "kind": "kubernetes",
    "namespace": TEAM,
    "name": "report",
    "template": {"spec": {"template": {"spec": POD}}},
}
YEARLY: dict[str, Any] = {
    "schedule_id": "report",
    "schedule": "0 0 1 1 *",
    "timezone": "UTC",
    "launcher": LAUNCHER,
}


class Service:
    """A service whose Jobs are those of the double."""

    def __init__(self, client: httpx.Client, server: Any) -> None:
        self.client = client
        self.server = server

    async def post(self, path: str, document: object = None) -> httpx.Response:
        return await asyncio.to_thread(self.client.post, path, json=document)

    async def get(self, path: str) -> dict[str, Any]:
        response = await asyncio.to_thread(self.client.get, path)
        found: dict[str, Any] = response.json()
        return found

    async def runs(self, name: str = "report") -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await self.get(f"/schedules/{name}/runs"))["runs"]
        return runs

    async def run_with(self, status: str, name: str = "report") -> dict[str, Any]:
        """Wait until a run has a status, and return it."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for run in await self.runs(name):
                    if run["status"] == status:
                        return run
                await asyncio.sleep(0.02)


@asynccontextmanager
async def service(folder: Path, cluster: ApiServer, **variables: str) -> AsyncIterator[Service]:
    settings = {
        "KRON_KUBERNETES": str(kubeconfig(folder, cluster.url)),
        "KRON_ALLOWED_NAMESPACES": TEAM,
        "KRON_DRAIN_MS": "200",
        **variables,
    }
    running = serving(folder, **settings)
    client, server = await asyncio.to_thread(running.__enter__)
    try:
        yield Service(client, server)
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


@pytest.fixture
async def cluster() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


def job_names(cluster: ApiServer) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.objects("jobs")]


def creations(cluster: ApiServer) -> int:
    return sum((each.verb, each.resource) == ("create", "jobs") for each in cluster.requests)


async def test_a_schedule_creates_jobs_and_their_ends_are_those_of_its_runs(
    tmp_path: Path, cluster: ApiServer
) -> None:
    async with service(tmp_path, cluster) as kron:
        assert (await kron.post("/schedules/upsert", YEARLY)).status_code == 200
        shown = (await kron.get("/schedules/report"))["launcher"]["template"]["spec"]["template"]["spec"]
        assert shown["containers"][0]["env"] == [{"name": "A", "value": "***"}]
        changed = {**LAUNCHER, "name": "x", "template": {"spec": {"template": {"spec": shown}}}}
        edited = {"identity": "report", "schedule": "@yearly", "launcher": changed}
        refused = await kron.post("/definitions", {"jobs": [edited]})
        assert 'is hidden (\\"***\\")' in refused.text

        key = (await kron.post("/schedules/report/run")).json()["idempotency_key"]
        await until(lambda: cluster.objects("jobs"))
        (job,) = cluster.objects("jobs")
        assert job["metadata"]["namespace"] == TEAM
        assert job["metadata"]["annotations"]["kron.io/idempotency-key"] == key
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: each["value"] for each in container["env"]}
        assert (variables["A"], variables["KRON_IDENTITY"]) == ("hunter2222", "report")
        assert (await kron.run_with("STARTED"))["idempotency_key"] == key
        cluster.complete(job["metadata"]["name"], TEAM)
        await kron.run_with("SUCCESS")

        await kron.post("/schedules/report/run")
        await until(lambda: len(job_names(cluster)) == 2)
        cluster.complete(job_names(cluster)[1], TEAM, failed=True)
        assert (await kron.run_with("FAILED"))["error"] == "the Job failed"
    watched = {each.namespace for each in cluster.requests if each.resource == "jobs"}
    assert watched == {TEAM}, "no rights on other namespaces are needed"


async def test_an_executor_of_workflows_gets_the_dag_in_a_variable(
    tmp_path: Path, cluster: ApiServer
) -> None:
    trigger = {"cron_expr": "* * * * * *", "timezone": "UTC"}
    workflow = {
        "user_id": "ann",
        "nodes": [{"id": "a", "type": "http"}],
        "triggers": [{"id": "often", "type": "schedule_based", "schedule": trigger}],
    }
    async with service(tmp_path, cluster, KRON_EXECUTOR=json.dumps(LAUNCHER)) as kron:
        put = await asyncio.to_thread(kron.client.put, "/workflows/etl/versions/1", json=workflow)
        assert put.status_code in (200, 201), put.text
        await until(lambda: cluster.objects("jobs"))
        (container,) = cluster.objects("jobs")[0]["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert json.loads(variables["KRON_PAYLOAD"])["dag"]["nodes"] == [{"id": "a", "type": "http"}]
    assert (variables["KRON_WORKFLOW_ID"], variables["KRON_USER_ID"]) == ("etl", "ann")


async def test_a_job_of_a_killed_service_is_found_by_its_name(tmp_path: Path, cluster: ApiServer) -> None:
    async with service(tmp_path, cluster) as first:
        await first.post("/schedules/upsert", YEARLY)
        await first.post("/schedules/report/run")
        await first.run_with("STARTED")
        # The start is recorded before its Job is created.
        await until(lambda: job_names(cluster))
        first.server.signal(signal.SIGKILL)
    cluster.complete(job_names(cluster)[0], TEAM)
    async with service(tmp_path, cluster) as second:
        await second.run_with("SUCCESS")
    assert creations(cluster) == 1


async def test_a_cluster_out_of_reach_delays_no_other_schedule(tmp_path: Path, cluster: ApiServer) -> None:
    log = {**YEARLY, "schedule_id": "log", "launcher": {"kind": "log"}}
    async with service(tmp_path, cluster) as first:
        await first.post("/schedules/upsert", YEARLY)
        await first.post("/schedules/upsert", log)
        await first.post("/schedules/report/run")
        # The start is recorded before its Job is created.
        await until(lambda: len(job_names(cluster)) == 1)
    cluster.is_down = True
    async with service(tmp_path, cluster) as second:
        await second.post("/schedules/log/run")
        await second.run_with("SUCCESS", "log")
        cluster.complete(job_names(cluster)[0], TEAM)
        cluster.is_down = False
        await second.run_with("SUCCESS")
    assert len(job_names(cluster)) == 1


@pytest.mark.slow
async def test_a_namespace_that_hangs_takes_nothing_from_other_tenants(
    tmp_path: Path, cluster: ApiServer
) -> None:
    schedules = {
        user: {**YEARLY, "schedule_id": user, "user_id": user, "launcher": {**LAUNCHER, "namespace": user}}
        for user in ("ann", "bob")
    }
    for each in schedules.values():
        each["overlap_policy"] = "allow"
    namespaces = {"KRON_ALLOWED_NAMESPACES": "ann,bob", "KRON_DRAIN_MS": "0"}
    async with service(tmp_path, cluster, **namespaces) as first:
        for each in schedules.values():
            await first.post("/schedules/upsert", each)
        await first.post("/schedules/ann/run", {"request_id": "0"})
        await until(lambda: len(job_names(cluster)) == 1)
        # An admission webhook of the namespace hangs.
        cluster.faults.append(Fault(lambda each: each.namespace == "ann", times=10_000, delay=3_600))
        for number in range(1, HANGING + 1):
            await first.post("/schedules/ann/run", {"request_id": f"{number}"})
        # On a busy machine the first of them time out, and others take their places, while more are sent.
        await until(lambda: creations(cluster) >= 1 + MAX_REQUESTS)
        await first.post("/schedules/bob/run", {"request_id": "0"})
        await until(lambda: len(job_names(cluster)) == 2)
        first.server.signal(signal.SIGKILL)
    async with service(tmp_path, cluster, **namespaces) as second:
        # The runs of the other tenant cannot be adopted: nothing waits for that.
        adopting = len(cluster.requests)
        await second.post("/schedules/bob/run", {"request_id": "1"})
        await until(lambda: len(job_names(cluster)) == 3)
        assert {each.verb for each in cluster.requests[adopting:] if each.namespace == "ann"} <= {"list"}


async def test_a_take_over_does_not_wait_for_a_namespace_that_hangs(cluster: ApiServer) -> None:
    # No request is given up while the test waits.
    api = ApiClient(ClusterAccess(cluster.url), request_s=3_600)
    launcher = KubernetesLauncher(SystemClock(), api, by_namespace=True)
    cluster.faults.append(Fault(lambda each: each.namespace == "ann", times=10_000, delay=3_600))
    ann, bob = (a_launch({**LAUNCHER, "namespace": user}, identity=user) for user in ("ann", "bob"))
    ear = Ear()
    async with asyncio.timeout(PATIENCE_S):
        assert await launcher.adopt([ann, bob], ear) == {ann.run.key, bob.run.key}
    # Of the other namespace it is known that there is no Job.
    await until(lambda: ear.said(bob))
    assert ear.said(ann) == []
    await launcher.close(wait=False)


async def test_replace_deletes_the_job_in_the_foreground_and_waits(
    tmp_path: Path, cluster: ApiServer
) -> None:
    cluster.lingering = True
    often = {**YEARLY, "schedule": "* * * * * *", "overlap_policy": "replace"}
    async with service(tmp_path, cluster) as kron:
        await kron.post("/schedules/upsert", often)

        def leaving() -> list[str]:
            jobs = [each["metadata"] for each in cluster.objects("jobs")]
            return [each["name"] for each in jobs if "deletionTimestamp" in each]

        await until(leaving)
        (name,) = job_names(cluster)
        cluster.finish_deletion(name, TEAM)
        await kron.run_with("CANCELLED")
        await until(lambda: job_names(cluster) and name not in job_names(cluster))


async def test_without_a_cluster_or_a_listed_namespace_a_schedule_is_refused(
    tmp_path: Path, cluster: ApiServer
) -> None:
    async with service(tmp_path, cluster) as kron:
        other = {**YEARLY, "launcher": {**LAUNCHER, "namespace": "kube-system"}}
        refused = await kron.post("/schedules/upsert", other)
        assert "allowed_namespaces" in refused.text
        owned = {**YEARLY, "launcher": {**LAUNCHER, "owner": {"uid": "1"}}}
        assert (await kron.post("/schedules/upsert", owned)).status_code == 400
    (tmp_path / "none").mkdir()
    with serving(tmp_path / "none") as (client, _):
        refused = client.post("/schedules/upsert", json=YEARLY)
        assert refused.json()["problems"][0]["reason"] == NO_CLUSTER
    with process("serve", "--port", "0", folder=tmp_path, KRON_KUBERNETES="/nowhere") as server:
        assert server.ended() == 2
        assert "/nowhere cannot be used" in "".join(server.log)
