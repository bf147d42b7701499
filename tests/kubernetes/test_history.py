"""The history of a cluster: a copy of every outcome in a database, which no start ever waits for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kron.cli.main import GOOD, run
from kron.core.plan.record import RunRecord
from kron.core.time.instant import milliseconds_of
from kron.fronts.operator.history import HistoryWriter
from kron.fronts.operator.probes import metrics_of
from kron.fronts.operator.store import NAMESPACE
from kron.fronts.service.auth.middleware import READ_ONLY
from kron.ports import Store
from kron.stores.url import open_store
from kron.testing.contract.sample import a_job, a_run, an_end, written
from kron.testing.faulty_store import Chance, Fault, FaultyStore
from tests.kubernetes.cluster import POD, START, Cluster, kronjob, minute, running_cluster
from tests.service.server import serving

PATIENT = {"concurrency": "allow", "deadline": "never"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
async def cluster(url: str) -> AsyncIterator[Cluster]:
    async with running_cluster() as running:
        running.history = lambda: open_store(url)
        yield running


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def copied(cluster: Cluster, url: str, identity: str = "default/a") -> list[RunRecord]:
    """Return the runs of the history, oldest first, once nothing waits."""
    history = cluster.operator.history
    assert history is not None
    await cluster.eventually(lambda: history.waiting == 0 and history.written)
    async with opened(url) as store:
        return (await store.runs(NAMESPACE, identity))[::-1]


async def test_every_outcome_is_copied(cluster: Cluster, url: str) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"deadline": "never", "retryDelay": "5s"}))
    await cluster.advance(minute(2, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    cluster.server.complete(cluster.job_of("12:01")["metadata"]["name"], failed=True)
    await cluster.eventually(lambda: len(cluster.jobs()) == 2)
    retried = cluster.server.objects("jobs")[-1]["metadata"]["name"]
    cluster.server.complete(retried)
    await cluster.eventually(lambda: not cluster.operator.store.books["default/a"].runs)
    first, second = await copied(cluster, url)
    assert (first.status, first.result, first.attempt) == ("SUCCESS", "success", 2)
    assert (second.status, second.reason) == ("SKIPPED", "active")
    book = cluster.operator.store.books["default/a"]
    assert [first, second] == sorted(book.closed, key=lambda run: run.nominal_time)
    async with opened(url) as store:
        assert [each.result for each in await store.attempts(NAMESPACE, first.key)] == ["failed"]


async def test_a_night_without_the_cluster_is_one_counted_record(cluster: Cluster, url: str) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"catchup": "none"}))
    await cluster.stop()
    await cluster.advance(minute(30, 10))
    await cluster.start()
    await cluster.eventually(lambda: cluster.operator.store.books["default/a"].ranges)
    await copied(cluster, url)
    async with opened(url) as store:
        (night,) = await store.ranges(NAMESPACE, "default/a")
    assert (night.periods, night.outcome) == (29, "missed")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_history_that_fails_delays_no_start_and_is_complete_later(url: str) -> None:
    async with running_cluster() as cluster:
        faulty = FaultyStore(
            open_store(url),
            cluster.clock,
            chance=Chance(seed=1, odds=1, faults=[Fault.BEFORE], calls=("cases", "put")),
        )
        cluster.history = lambda: faulty
        await cluster.start()
        await cluster.add(kronjob(policy=PATIENT))
        await cluster.advance(minute(12, 10))
        assert len(cluster.jobs()) == 12
        for job in cluster.server.objects("jobs"):
            cluster.server.complete(job["metadata"]["name"])
        await cluster.eventually(lambda: not cluster.operator.store.books["default/a"].runs)
        history = cluster.operator.history
        assert history is not None
        assert (history.waiting, history.written, history.dropped) == (1, 0, 0)
        assert history.failures > 0
        faulty.heal()
        runs = await copied(cluster, url)
        # The record of the cluster keeps ten of them.
        assert len(runs) == 12
        assert {run.status for run in runs} == {"SUCCESS"}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_what_does_not_fit_into_memory_is_dropped_and_counted(url: str) -> None:
    async with running_cluster() as cluster:
        store = open_store(url)
        cluster.history = lambda: store
        operator = await cluster.start()
        operator.history.kill()  # type: ignore[union-attr]
        small = HistoryWriter(store, cluster.clock, namespace=NAMESPACE, max_waiting=5)
        operator.history = operator.store.history = small
        await cluster.add(kronjob(policy=PATIENT))
        await cluster.advance(minute(12, 10))
        for job in cluster.server.objects("jobs"):
            cluster.server.complete(job["metadata"]["name"])
        await cluster.eventually(lambda: not operator.store.books["default/a"].runs)
        assert small.dropped > 0
        assert f"kron_operator_history_dropped_total {small.dropped}" in list(metrics_of(operator))
        assert "kron_operator_history_waiting 1" in list(metrics_of(operator))
        small.start()
        runs = await copied(cluster, url)
        # The newest ten are in the record of the cluster all the same.
        assert len(runs) >= 10
        assert [run.status for run in runs[-10:]] == ["SUCCESS"] * 10


async def test_the_next_operator_copies_what_a_killed_one_had_not(cluster: Cluster, url: str) -> None:
    first = await cluster.start()
    first.history.kill()  # type: ignore[union-attr]
    await cluster.add(kronjob(policy=PATIENT))
    await cluster.advance(minute(3, 10))
    await cluster.eventually(lambda: len(cluster.jobs()) == 3)
    await cluster.kill()
    for _ in range(2):
        await cluster.start()
        assert len(await copied(cluster, url)) == 3
        await cluster.stop()


async def test_old_records_of_the_history_are_pruned_except_the_last_runs(cluster: Cluster, url: str) -> None:
    long_ago = milliseconds_of(START) - 200 * 86_400_000
    async with opened(url) as store:
        await store.put(NAMESPACE, created=[a_job("default/old")], changed=[], now=long_ago)
        ownership = await store.acquire(NAMESPACE, "an earlier operator")
        runs = [an_end(a_run("default/old", nominal_time=long_ago // 1000 + number)) for number in range(107)]
        await written(store, ownership, *runs, now=long_ago)
        await store.release(ownership)
    await cluster.start()
    await cluster.advance(minute(3))
    pruned = cluster.operator.journal.pruned
    await cluster.eventually(lambda: pruned["runs"])
    async with opened(url) as store:
        left = await store.runs(NAMESPACE, "default/old", limit=1_000)
    assert (pruned["runs"], len(left)) == (7, 100)
    assert 'kron_operator_history_pruned_total{kind="runs"} 7' in list(metrics_of(cluster.operator))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_lost_answer_of_the_database_copies_nothing_twice(url: str) -> None:
    async with running_cluster() as cluster:
        faulty = FaultyStore(open_store(url), cluster.clock)
        cluster.history = lambda: faulty
        await cluster.start()
        await cluster.add(kronjob(policy=PATIENT))
        for number in range(1, 5):
            faulty.then("put", Fault.AFTER)
            await cluster.advance(minute(number, 10))
            await cluster.eventually(lambda: not faulty.waiting)
        assert len(await copied(cluster, url)) == 4


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_edits_deletions_and_a_new_kronjob_of_the_same_name_keep_the_history(
    cluster: Cluster, url: str
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=PATIENT))
    await cluster.advance(minute(1, 10))
    await cluster.edit("a", {"spec": {"schedule": "*/2 * * * *"}})
    await cluster.advance(minute(2, 10))
    assert [run.epoch for run in await copied(cluster, url)] == [1, 2]
    cluster.server.remove("kronjobs", "a")
    await cluster.eventually(lambda: not cluster.operator.store.books)
    await copied(cluster, url)
    async with opened(url) as store:
        (state,) = await store.cases(NAMESPACE, ["default/a"])
        assert state.job.deleted_at is not None
    await cluster.add(kronjob(schedule="*/3 * * * *", policy=PATIENT))
    await cluster.advance(minute(3, 10))
    runs = await copied(cluster, url)
    assert [(run.nominal_time % 3600 // 60, run.epoch) for run in runs] == [(1, 1), (2, 2), (3, 3)]
    async with opened(url) as store:
        (state,) = await store.cases(NAMESPACE, ["default/a"])
        assert state.job.deleted_at is None
        earlier = await store.epochs(NAMESPACE, "default/a")
    schedules = [json.loads(each.definition)["schedule"] for each in earlier]
    assert schedules == ["* * * * *", "*/2 * * * *"]


async def test_a_kronjob_that_was_deleted_while_no_operator_ran_is_marked(cluster: Cluster, url: str) -> None:
    """Only within the namespace of an operator: another one may run the rest."""
    await cluster.start()
    for namespace in ("default", "team"):
        for name in ("kept", "gone"):
            await cluster.add(kronjob(name), namespace)
    await cluster.stop()
    for namespace in ("default", "team"):
        cluster.server.remove("kronjobs", "gone", namespace)
    cluster.server.add("kronjobs", kronjob("new"), "team")
    cluster.options = replace(cluster.options, namespace="team")
    await cluster.start()
    await cluster.observed("new", "team")
    await copied(cluster, url)
    async with opened(url) as store:
        states = await store.cases(NAMESPACE)
    there = {state.job.identity for state in states if state.job.deleted_at is None}
    assert there == {"default/kept", "default/gone", "team/kept", "team/new"}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_clock_that_was_ahead_is_corrected_in_the_history_too(cluster: Cluster, url: str) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy={"deadline": "10s"}))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    cluster.clock.jump_to(minute(5, 40))
    await cluster.advance(minute(5, 45))
    await cluster.eventually(lambda: cluster.operator.store.books["default/a"].job.cursor % 3600 == 300)
    await copied(cluster, url)
    cluster.clock.jump_to(minute(2, 30))
    await cluster.advance(minute(4, 10))
    await cluster.eventually(lambda: "12:04" in cluster.jobs() or len(cluster.periods()) >= 4)
    runs = await copied(cluster, url)
    book = cluster.operator.store.books["default/a"]
    assert {run.key: run for run in runs} == {run.key: run for run in (*book.runs, *book.closed)}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_no_secret_of_a_template_reaches_the_history(cluster: Cluster, url: str) -> None:
    container = {
        "name": "main",
        "image": "busybox",
        "env": [{"name": "PASSWORD", "value": "hunter2-hunter2"}],
    }
    template = {"spec": {"template": {"spec": {**POD, "containers": [container]}}}}
    await cluster.start()
    await cluster.add(kronjob(jobTemplate=template))
    await copied(cluster, url)
    await cluster.stop()
    content = await asyncio.to_thread(Path(url.removeprefix("sqlite:///")).read_bytes)
    assert b"PASSWORD" in content
    assert b"hunter2" not in content


@pytest.fixture
def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Live through two periods of a cluster, and return the options that name its history."""
    monkeypatch.chdir(tmp_path)

    async def live() -> None:
        async with running_cluster() as cluster:
            cluster.history = lambda: open_store("sqlite:///kron.db")
            await cluster.start()
            await cluster.add(kronjob(policy={"deadline": "never"}))
            await cluster.advance(minute(2, 10))
            await cluster.eventually(lambda: len(cluster.periods()) == 2)
            await copied(cluster, "sqlite:///kron.db")
            await cluster.stop()

    asyncio.run(live())
    return ["--store", "sqlite:///kron.db", "--namespace", "operator"]


def test_the_commands_answer_for_the_cluster(lived: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", "default/a", "--json", *lived]) == GOOD
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(each["run_at"], each["status"]) for each in runs] == [
        ("2026-06-01T12:02:00Z", "SKIPPED"),
        ("2026-06-01T12:01:00Z", "STARTED"),
    ]
    assert run(["why", "default/a", "2026-06-01T12:02:00Z", *lived]) == GOOD
    assert "Did not run: another run of the job was active." in capsys.readouterr().out
    assert run(["status", *lived]) == GOOD
    assert "default/a" in capsys.readouterr().out


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.slow
async def test_the_pages_and_the_api_show_a_history_and_change_nothing(
    cluster: Cluster, url: str, tmp_path: Path
) -> None:
    await cluster.start()
    await cluster.add(kronjob(policy=PATIENT))
    await cluster.advance(minute(1, 10))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    cluster.server.complete(cluster.job_of("12:01")["metadata"]["name"])
    await copied(cluster, url)
    await asyncio.to_thread(_look, tmp_path, url)
    async with opened(url) as store:
        assert not (await store.cases(NAMESPACE))[0].job.paused


def _look(folder: Path, url: str) -> None:
    with serving(folder, "--namespace", NAMESPACE, KRON_STORE=url) as (client, _):
        (shown,) = client.get("/schedules").json()["schedules"]
        assert shown["schedule_id"] == "default/a"
        (run,) = client.get("/schedules/default%2Fa/runs").json()["runs"]
        assert run["status"] == "SUCCESS"
        why = client.get(f"/schedules/default%2Fa/periods/{run['run_at']}/why")
        assert why.json()["outcome"] == "executed"
        page = client.get("/ui/schedule", params={"id": "default/a"})
        assert page.status_code == 200
        assert "default/a" in page.text
        assert "Run now" not in page.text
        assert "Sign out" not in page.text
        for route, body in (
            ("/schedules/pause", {"schedule_id": "default/a", "paused": True}),
            ("/schedules/default%2Fa/run", {"request_id": "1"}),
        ):
            refused = client.post(route, json=body)
            assert refused.status_code == 403
            assert refused.json()["detail"] == READ_ONLY
