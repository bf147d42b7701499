"""`kron operator` as a process: probes, metrics, a clean stop, and real kills."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM

import pytest
import yaml

from kron.launchers.http.client import HttpClient, request_of, target_of
from tests.kubernetes.cluster import PERIOD_ID, Cluster, kronjob, running_cluster
from tests.waiting import until

EVERY_SECOND = "* * * * * *"


def kubeconfig(folder: Path, server: str) -> Path:
    file = folder / "kubeconfig"
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server}}],
    }
    file.write_text(yaml.safe_dump(config))
    return file


@asynccontextmanager
async def operator(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run an operator; give its process and the URL of its probes."""
    file = kubeconfig(folder, cluster.server.url)
    options = ["--kubeconfig", str(file), "--port", "0", "--lease-seconds", "3"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kron", "operator", *options, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    url = ""
    lines: list[str] = []
    while not url:
        line = (await process.stderr.readline()).decode()
        assert line, "".join(lines)
        lines.append(line)
        url = line.rpartition(" on ")[2].strip() if "probes" in line else ""
    rest = asyncio.create_task(process.stderr.read())
    try:
        yield process, url
    finally:
        if process.returncode is None:
            process.send_signal(SIGKILL)
        await process.wait()
        await rest


async def fetch(url: str) -> tuple[int, str]:
    client, target = HttpClient(), target_of(url)
    response = await client.fetch(request_of("GET", target, {}), target, idle_s=10, max_body=10**6)
    return response.status, bytes(response.body).decode()


async def test_it_serves_probes_and_metrics_and_hands_over_at_sigterm(tmp_path: Path) -> None:
    async with running_cluster() as cluster, operator(cluster, tmp_path) as (process, url):
        cluster.server.add("kronjobs", kronjob(schedule=EVERY_SECOND, policy={"deadline": "never"}))
        await until(lambda: cluster.server.objects("jobs"))
        job = cluster.server.objects("jobs")[0]["metadata"]["name"]
        cluster.server.complete(job)
        await until(lambda: any(row.get("result") == "success" for row in cluster.status()["periods"]))
        assert (await fetch(f"{url}/healthz"))[0] == 200
        assert (await fetch(f"{url}/readyz"))[0] == 200
        assert (await fetch(f"{url}/other"))[0] == 404
        status, text = await fetch(f"{url}/metrics")
        assert status == 200
        assert 'kron_operator_outcomes_total{event="Succeeded",reason="success"} 1' in text
        assert 'kron_operator_api_requests_total{verb="create",resource="jobs"}' in text
        assert "kron_operator_leader 1" in text
        assert 'kron_operator_creation_skew_seconds_bucket{le="+Inf"}' in text
        process.send_signal(SIGTERM)
        assert await process.wait() == 0
        (lease,) = cluster.server.objects("leases")
        assert lease["spec"]["holderIdentity"] == ""


@pytest.mark.slow
async def test_killed_at_random_it_never_creates_a_second_job_for_a_period(tmp_path: Path) -> None:
    chance = Random(7)
    policy = {"concurrency": "allow", "deadline": "never"}
    async with running_cluster() as cluster:
        cluster.server.add("kronjobs", kronjob("a", EVERY_SECOND, policy=policy))
        cluster.server.add("kronjobs", kronjob("b", EVERY_SECOND, policy=policy, window={"duration": "2s"}))
        for _ in range(5):
            before = len(cluster.ever_created())
            async with operator(cluster, tmp_path) as (process, _):
                await until(lambda before=before: len(cluster.ever_created()) > before + 2)  # type: ignore[misc]
                await asyncio.sleep(chance.random())
                process.send_signal(SIGKILL)
            cluster.free_lease()
        async with operator(cluster, tmp_path):
            before = len(cluster.ever_created())
            await until(lambda: len(cluster.ever_created()) > before + 4)
        events = [each for _, kind, each in cluster.server.kind("jobs").events if kind == "ADDED"]
        notes = [each["metadata"]["annotations"] for each in events]
        made = Counter((each["kron.io/identity"], each[PERIOD_ID]) for each in notes)
        assert set(made.values()) == {1}
        for identity in ("default/a", "default/b"):
            # Windows overlap: the time of one of the first may have passed when the KronJob was created,
            # and the newest may still be ahead of theirs.
            periods = sorted(period for name, period in made if name == identity)[2:-4]
            seconds = [int(period[14:16]) * 60 + int(period[17:19]) for period in periods]
            gaps = [later - earlier for earlier, later in pairwise(seconds)]
            assert set(gaps) <= {1, 1 - 3600}, "an outage is caught up, period by period"
