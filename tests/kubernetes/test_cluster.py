"""The operator in real time against a cluster: the double, or a real one that KRON_TEST_KUBECONFIG names.

Only the API is used, so the same tests hold for both. A real one needs an API server, etcd and the controller
manager, but no node: the Jobs make no pods, and are ended by patching their status.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kron.clocks.system import SystemClock
from kron.fronts.operator.crd import crds
from kron.fronts.operator.operator import Operator, OperatorOptions
from kron.launchers.kubernetes.access import ClusterAccess, from_kubeconfig
from kron.launchers.kubernetes.api import EVENTS, JOBS, KRONCALENDARS, KRONJOBS, ApiClient, ApiError, Resource
from kron.launchers.kubernetes.manifest import SELECTOR
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.cluster import PERIOD_ID, kronjob
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow
CONFIG = os.environ.get("KRON_TEST_KUBECONFIG")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
# No pods: the Job waits until its status is patched.
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
TEMPLATE = {"spec": {"parallelism": 0, "template": {"spec": POD}}}
# A garbage collector reads the kinds of a cluster every 30 seconds, and waits longer after each failure.
COLLECTED_S = 240.0
Doc = dict[str, Any]


class Site:
    """One namespace of a cluster, and the operators that run in it."""

    def __init__(self, access: ClusterAccess, namespace: str) -> None:
        self.access = access
        self.api = ApiClient(access)
        self.namespace = namespace
        self.operators: list[tuple[Operator, asyncio.Task[None]]] = []

    def start(self) -> Operator:
        options = OperatorOptions(
            namespace=self.namespace,
            lease_namespace=self.namespace,
            lease_duration=timedelta(seconds=3),
            tick_ms=200,
        )
        operator = Operator(ApiClient(self.access), SystemClock(), options)
        self.operators.append((operator, asyncio.create_task(operator.run())))
        return operator

    async def stop(self, *, kill: bool = False) -> None:
        operator, task = self.operators.pop(0)
        if kill:
            operator.kill()
            task.cancel()
        else:
            operator.leave()
        await asyncio.wait([task])
        await closed(operator.api)

    async def add(self, name: str, schedule: str, **spec: Any) -> Doc:
        return await self.api.create(
            KRONJOBS, self.namespace, kronjob(name, schedule, jobTemplate=TEMPLATE, **spec)
        )

    async def get(self, name: str) -> Doc:
        return await self.api.get(KRONJOBS, self.namespace, name)

    async def edit(self, name: str, change: Callable[[Doc], None]) -> Doc:
        """Replace a KronJob by a changed one, again after a conflict."""
        while True:
            document = await self.get(name)
            change(document)
            try:
                return await self.api.replace(KRONJOBS, self.namespace, document)
            except ApiError as error:
                if not error.is_conflict:
                    raise

    async def jobs(self) -> list[Doc]:
        return (await self.api.list(JOBS, self.namespace, labels=SELECTOR)).items

    async def periods(self, name: str) -> dict[str, Doc]:
        status = (await self.get(name)).get("status") or {}
        return {row["periodId"]: row for row in status.get("periods") or ()}

    async def end(self, job: Doc, *, failed: bool = False) -> None:
        """End a Job as the controller manager would, which may write its status at the same time."""
        while True:
            current = await self.api.get(JOBS, self.namespace, job["metadata"]["name"])
            version = {"resourceVersion": current["metadata"]["resourceVersion"]}
            change = {"metadata": version, "status": ended_status(current, failed=failed)}
            try:
                await self.api.patch_status(JOBS, self.namespace, job["metadata"]["name"], change)
            except ApiError as error:
                if not error.is_conflict:
                    raise
            else:
                return

    async def until(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        """Wait until a condition holds, and return its value."""
        async with asyncio.timeout(PATIENCE_S):
            while not (value := await condition()):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.1)
        return value

    async def until_collected(self) -> None:
        """Wait until no Job is left; a real garbage collector notices a new kind of owner late."""
        async with asyncio.timeout(COLLECTED_S):
            while await self.jobs():  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.1)


async def closed(api: ApiClient) -> None:
    """Close the connections of a client; over TLS that takes a few turns of the event loop."""
    api.close()
    await asyncio.sleep(0.05)


def ended_status(job: Doc, *, failed: bool) -> Doc:
    """Return the status of a Job that ends now; its start stays, and its end is not before that."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    start = (job.get("status") or {}).get("startTime") or now
    end = max(start, now)
    times = {"lastProbeTime": end, "lastTransitionTime": end}
    kinds = ("FailureTarget", "Failed") if failed else ("SuccessCriteriaMet", "Complete")
    conditions = [{"type": kind, "status": "True", "reason": "Test", **times} for kind in kinds]
    counts = {"failed": 1} if failed else {"completionTime": end, "succeeded": 1}
    return {"startTime": start, "conditions": conditions, **counts}


async def install(api: ApiClient) -> None:
    """Create or replace the custom resources, and wait until they are served."""
    for crd in crds():
        try:
            await api.create(CRDS, None, crd)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            current = await api.get(CRDS, None, crd["metadata"]["name"])
            metadata = {**crd["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
            await api._call(
                "update", CRDS, CRDS.path(None, crd["metadata"]["name"]), body={**crd, "metadata": metadata}
            )
    async with asyncio.timeout(PATIENCE_S):
        while not await _are_served(api):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.1)


async def _are_served(api: ApiClient) -> bool:
    """Say whether the custom resources are established, and answer."""
    for crd in crds():
        status = (await api.get(CRDS, None, crd["metadata"]["name"])).get("status") or {}
        refused = [each for each in status.get("conditions") or () if _is_bad(each)]
        assert not refused, refused
    with suppress(ApiError):
        await api.list(KRONJOBS)
        await api.list(KRONCALENDARS)
        return True
    return False


def _is_bad(condition: Doc) -> bool:
    """Say whether a condition of a CRD refuses its schema or its names."""
    return (condition["type"], condition["status"]) in (
        ("NamesAccepted", "False"),
        ("NonStructuralSchema", "True"),
    )


@asynccontextmanager
async def access_to_cluster() -> AsyncIterator[ClusterAccess]:
    if CONFIG:
        yield from_kubeconfig(Path(CONFIG))
        return
    async with ApiServer().running() as server:
        yield ClusterAccess(server.url)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with access_to_cluster() as access:
        place = Site(access, f"kron-test-{uuid4().hex[:8]}")
        await install(place.api)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.namespace}}
        await place.api.create(NAMESPACES, None, namespace)
        try:
            yield place
        finally:
            while place.operators:
                await place.stop(kill=True)
            await place.api._call("delete", NAMESPACES, NAMESPACES.path(None, place.namespace), body={})
            await closed(place.api)


async def test_periods_become_jobs_and_their_ends_are_recorded(site: Site) -> None:
    site.start()
    await site.add("a", "* * * * * *", policy={"concurrency": "allow", "deadline": "never"})
    first, second = (await site.until(lambda: _at_least(site, 2)))[:2]
    notes = first["metadata"]["annotations"]
    assert notes["kron.io/identity"] == f"{site.namespace}/a"
    assert first["metadata"]["ownerReferences"][0]["kind"] == "KronJob"
    await site.end(first)
    await site.end(second, failed=True)

    async def is_recorded() -> bool:
        rows = await site.periods("a")
        results = {row.get("result") for row in rows.values()}
        return {"success", "failed"} <= results

    await site.until(is_recorded)
    status = (await site.get("a"))["status"]
    assert status["identity"] == f"{site.namespace}/a"
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"

    async def has_events() -> bool:
        events = (await site.api.list(EVENTS, site.namespace)).items
        return {"Started", "Succeeded", "Failed"} <= {each["reason"] for each in events}

    await site.until(has_events)


async def test_forbid_skips_with_its_reason(site: Site) -> None:
    site.start()
    await site.add("a", "* * * * * *", policy={"deadline": "never"})

    async def is_skipped() -> bool:
        rows = (await site.periods("a")).values()
        return any((row.get("outcome"), row["reason"]) == ("skipped", "active") for row in rows)

    await site.until(is_skipped)
    assert len(await site.jobs()) == 1


async def test_replace_deletes_the_active_job(site: Site) -> None:
    site.start()
    await site.add("a", "* * * * * *", policy={"concurrency": "replace", "deadline": "never"})

    async def is_replaced() -> bool:
        return any(row["reason"] == "replaced" for row in (await site.periods("a")).values())

    await site.until(is_replaced)


async def test_a_run_timeout_ends_a_job_and_the_cluster_would_end_it_later(site: Site) -> None:
    site.start()
    await site.add("a", "*/5 * * * * *", policy={"runTimeout": "2s", "concurrency": "allow"})
    (job, *_) = await site.until(lambda: _at_least(site, 1))
    assert job["spec"]["activeDeadlineSeconds"] == 62
    period = job["metadata"]["annotations"][PERIOD_ID]

    async def is_over() -> bool:
        names = [each["metadata"]["name"] for each in await site.jobs()]
        row = (await site.periods("a")).get(period) or {}
        return row.get("result") == "lost" and job["metadata"]["name"] not in names

    await site.until(is_over)


async def test_the_api_server_validates_defaults_and_prunes(site: Site) -> None:
    made = await site.add("a", "0 0 * * *", policy={}, unknown=1, identity="team/a")
    assert made["spec"]["policy"]["concurrency"] == "forbid"
    assert "unknown" not in made["spec"]
    wrong: list[Doc] = [
        {"policy": {"concurrency": "never"}},
        {"policy": {"deadline": "soon"}},
        {"policy": {"startAt": "2026-02-01T00:00:00Z", "endAt": "2026-01-01T00:00:00Z"}},
        {"window": {"duration": 5}},
        {"distribution": {"name": "skewLate", "shape": 0}},
    ]
    for number, spec in enumerate(wrong):
        with pytest.raises(ApiError) as refused:
            await site.add(f"wrong-{number}", "0 0 * * *", **spec)
        assert refused.value.status == 422
    with pytest.raises(ApiError, match="identity is fixed"):
        await site.edit("a", lambda document: document["spec"].update(identity="other"))


async def test_what_a_schema_cannot_express_is_a_condition(site: Site) -> None:
    site.start()
    await site.add("wrong", "61 * * * *")
    days = {"days": ["2000-01-01..2100-01-01"]}
    calendar = {"apiVersion": KRONCALENDARS.api_version, "kind": KRONCALENDARS.kind, "spec": days}
    await site.api.create(KRONCALENDARS, site.namespace, {**calendar, "metadata": {"name": "always"}})
    await site.add("never", "* * * * * *", constraints={"avoid": {"calendars": ["always"]}})

    async def holds(name: str, kind: str) -> str:
        status = (await site.get(name)).get("status") or {}
        met = [each for each in status.get("conditions") or () if each["status"] == "True"]
        return next((each["message"] for each in met if each["type"] == kind), "")

    assert "61" in await site.until(lambda: holds("wrong", "InvalidSpec"))
    assert await site.until(lambda: holds("never", "Unschedulable"))
    assert await site.jobs() == []


async def test_a_retry_has_a_job_of_its_own_and_jobs_beyond_the_limits_are_deleted(site: Site) -> None:
    site.start()
    await site.add("a", "*/5 * * * * *", policy={"retryDelay": "0s"}, failedJobsHistoryLimit=0)
    ended: dict[str, Doc] = {}

    async def retry() -> Doc | None:
        """Return the Job of a second attempt; the first one of each period fails."""
        for job in await site.jobs():
            notes = job["metadata"]["annotations"]
            if notes["kron.io/attempt"] == "2":
                return job
            if notes["kron.io/idempotency-key"] not in ended:
                ended[notes["kron.io/idempotency-key"]] = job
                await site.end(job, failed=True)
        return None

    second = await site.until(retry)
    first = ended[second["metadata"]["annotations"]["kron.io/idempotency-key"]]

    async def is_deleted() -> bool:
        return first["metadata"]["name"] not in [each["metadata"]["name"] for each in await site.jobs()]

    await site.until(is_deleted)


async def test_an_operator_that_is_killed_is_replaced_and_no_period_has_two_jobs(site: Site) -> None:
    site.start()
    await site.add("a", "* * * * * *", policy={"concurrency": "allow", "deadline": "never"})
    await site.until(lambda: _at_least(site, 2))
    site.start()
    await site.stop(kill=True)
    before = len(await site.jobs())
    jobs = await site.until(lambda: _at_least(site, before + 3))
    made = Counter(each["metadata"]["annotations"][PERIOD_ID] for each in jobs)
    assert set(made.values()) == {1}
    tokens = {int(each["metadata"]["annotations"]["kron.io/fencing-token"]) for each in jobs}
    assert len(tokens) == 2
    await site.stop()


@pytest.mark.timeout(COLLECTED_S + 60)
async def test_jobs_are_deleted_with_their_kronjob(site: Site) -> None:
    site.start()
    await site.add("a", "* * * * * *", policy={"concurrency": "allow"})
    await site.until(lambda: _at_least(site, 1))
    await site.api.delete(KRONJOBS, site.namespace, "a")
    await site.until_collected()


async def test_annotations_run_and_pause(site: Site) -> None:
    site.start()
    await site.add("a", "0 0 1 1 *")
    await site.edit("a", lambda document: document["metadata"].update(annotations={"kron.io/run-now": "1"}))
    (job,) = await site.until(lambda: _at_least(site, 1))
    assert job["metadata"]["labels"]["kron.io/kind"] == "manual"
    await site.edit("a", lambda document: document["metadata"].update(annotations={"kron.io/paused": "why"}))

    async def is_paused() -> bool:
        return bool(((await site.get("a")).get("status") or {}).get("paused") == "why")

    await site.until(is_paused)


async def _at_least(site: Site, count: int) -> list[Doc]:
    jobs = sorted(await site.jobs(), key=lambda each: str(each["metadata"]["annotations"][PERIOD_ID]))
    return jobs if len(jobs) >= count else []
