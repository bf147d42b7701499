# ruff: noqa: D102 - the name of a test is its sentence
"""History is read newest first."""

import json

from kron.core.job.outcome import Reason
from kron.core.plan.query import RunCursor
from kron.core.plan.record import RunKind, RunRecord, RunStatus, request_key_of
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    ELSEWHERE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    stored,
    written,
)


class HistoryContract:
    """Runs, attempts and earlier definitions are read back as they were written."""

    async def test_earlier_attempts_are_kept_oldest_first(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        run = a_run(attempt=4)
        earlier = [run._replace(attempt=attempt, error=f"no {attempt}") for attempt in (2, 3, 1)]
        await written(store, ownership, run, attempts=earlier)
        found = await store.attempts(SPACE, run.key)
        assert [(attempt.attempt, attempt.error) for attempt in found] == [
            (1, "no 1"),
            (2, "no 2"),
            (3, "no 3"),
        ]

    async def test_counted_records_are_found_newest_first_and_by_a_time_they_cover(
        self, store: Store
    ) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        ranges = [a_range("backup", first, first + 9) for first in (100, 200, 300)]
        change = a_change(job)
        change.ranges += ranges
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.ranges(SPACE, "backup") == ranges[::-1]
        for at, covering in ((199, []), (200, [1]), (205, [1]), (209, [1]), (210, []), (309, [2])):
            assert await store.ranges(SPACE, "backup", at=at) == [ranges[place] for place in covering]

    async def test_runs_are_read_newest_first_and_page_by_page(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(5)]
        await written(store, ownership, *runs)
        assert await store.runs(SPACE, "backup") == runs[::-1]
        assert await store.runs(SPACE, "backup", limit=2) == [runs[4], runs[3]]
        assert await store.runs(SPACE, "backup", before=NOON + 3, limit=2) == [runs[2], runs[1]]
        assert await store.runs(SPACE, "backup", before=NOON) == []

    async def test_a_period_comes_before_what_was_asked_for_at_its_time(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        keys = [request_key_of("backup", RunKind.MANUAL, str(number)) for number in range(5)]
        asked = [a_run(key=key, kind=RunKind.MANUAL) for key in keys]
        await written(store, ownership, *asked[:3], a_run(), *asked[3:])
        assert await store.runs(SPACE, "backup", limit=1) == [a_run()]
        assert sorted(await store.runs(SPACE, "backup")) == sorted([a_run(), *asked])

    async def test_what_was_enqueued_is_found_by_its_key_open_or_over(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await stored(store, a_job("other"), namespace=ELSEWHERE)
        runs = [a_run(nominal_time=NOON + number, status=RunStatus.ENQUEUED) for number in range(3)]
        await written(store, ownership, *runs[:2], runs[2]._replace(status=RunStatus.PENDING))
        job = (await store.cases(SPACE))[0].job
        change = a_change(job)
        change.updates += [an_end(runs[1]), runs[2]]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        elsewhere = await store.acquire(ELSEWHERE, "a")
        await written(store, elsewhere, a_run("other", status=RunStatus.ENQUEUED))
        wanted = [run.key for run in (runs[0], runs[1], runs[1], runs[2], a_run("other"))]
        found = await store.find_runs(SPACE, [*wanted, "nobody's"])
        assert sorted(found) == sorted([runs[0], an_end(runs[1]), runs[2]])
        assert await store.find_runs(SPACE, []) == []

    async def test_what_somebody_asked_for_is_found_by_its_key(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        asked = _asked(NOON, "wish")
        await written(store, ownership, a_run(), asked)
        assert await store.find_runs(SPACE, [asked.key]) == [asked]
        assert await store.find_runs(ELSEWHERE, [asked.key]) == []

    async def test_the_runs_of_all_jobs_are_read_latest_first_and_page_by_page(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        made = [a_run(name, NOON + n, created_at=NOW + n) for n in range(3) for name in ("one", "two")]
        await written(store, ownership, *made)
        await written(store, elsewhere, a_run("one"))
        latest = sorted(made, key=lambda run: (run.created_at, run.key), reverse=True)
        assert await store.latest_runs(SPACE) == latest
        found: list[RunRecord] = []
        for _ in range(4):
            place = RunCursor(found[-1].created_at, found[-1].key) if found else None
            found += await store.latest_runs(SPACE, before=place, limit=2)
        assert found == latest

    async def test_the_runs_of_all_jobs_are_read_by_their_status(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        ended, open_one = an_end(a_run()), a_run(nominal_time=NOON + 1)
        await written(store, ownership, ended, open_one)
        assert await store.latest_runs(SPACE, status=RunStatus.SUCCESS) == [ended]
        assert await store.latest_runs(SPACE, status=RunStatus.MISSED) == []

    async def test_the_newest_runs_of_some_jobs_are_read_at_once(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"), a_job("three"), a_job("idle"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        made = [a_run(name, NOON + n) for n in range(4) for name in ("one", "two", "three")]
        asked = _asked(NOON + 3, "wish")._replace(identity="two")
        await written(store, ownership, *made, asked)
        await written(store, elsewhere, a_run("one", NOON + 9))
        wanted = ["two", "one", "idle", "nobody", "two"]
        found = await store.newest_runs(SPACE, wanted, limit=3)
        assert found == {name: await store.runs(SPACE, name, limit=3) for name in ("one", "two")}
        assert [run.kind for run in found["two"]] == [RunKind.PERIOD, RunKind.MANUAL, RunKind.PERIOD]
        assert await store.newest_runs(SPACE, [], limit=3) == {}

    async def test_the_runs_of_some_users_jobs_are_read(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(user, launcher=json.dumps({"user_id": user})) for user in "uvw"), a_job())
        await written(store, ownership, *(run := [a_run(name) for name in ("u", "v", "w")]), a_run())
        theirs = sorted((run[0], run[2]), key=lambda run: (run.created_at, run.key), reverse=True)
        assert await store.latest_runs(SPACE, users=["u", "w", "nobody"]) == theirs
        assert await store.latest_runs(SPACE, users=["u"], status=RunStatus.MISSED) == []
        assert await store.latest_runs(SPACE, users=[]) == []


def _asked(nominal_time: int, request: str) -> RunRecord:
    """Return a run that somebody asked for."""
    key = request_key_of("backup", RunKind.MANUAL, request)
    return a_run(nominal_time=nominal_time, kind=RunKind.MANUAL, key=key, reason=Reason.ASKED)
