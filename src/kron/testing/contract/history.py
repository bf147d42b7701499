# ruff: noqa: D102 - the name of a test is its sentence
"""The past is read, and pruned."""

import json

from kron.core.job.outcome import Reason
from kron.core.plan.query import RunCursor
from kron.core.plan.record import RunKind, RunRecord, RunStatus, request_key_of
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    ELSEWHERE,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    keys_of,
    stored,
    written,
)


class HistoryContract:
    """History is read newest first; what is open or newest stays."""

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

    async def test_open_runs_are_never_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        waiting = a_run(nominal_time=NOON, status=RunStatus.PENDING)
        closed = [an_end(a_run(nominal_time=NOON + n)) for n in (1, 2)]
        await written(store, ownership, waiting, *closed)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 1
        assert await keys_of(store, "backup") == {waiting.key, closed[1].key}

    async def test_the_newest_record_of_a_job_is_never_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("often"), a_job("once"))
        often = [an_end(a_run("often", NOON + n)) for n in range(3)]
        once = an_end(a_run("once"))
        await written(store, ownership, *often, once)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 2
        assert await keys_of(store, "often") == {often[2].key}
        assert await keys_of(store, "once") == {once.key}
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 0

    async def test_what_is_younger_is_not_pruned(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [an_end(a_run(nominal_time=NOON + n)) for n in range(4)]
        for n, run in enumerate(runs):
            await written(store, ownership, run, now=NOW + n)
        assert await store.prune(SPACE, before=NOW + 2, limit=100) == 2
        assert await keys_of(store, "backup") == {runs[2].key, runs[3].key}

    async def test_pruning_is_bounded_and_comes_to_an_end(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", NOON - 20 * n, NOON - 20 * n + 5) for n in range(1, 6)]
        change.inserts += [an_end(a_run(nominal_time=NOON + n)) for n in range(11)]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        removed = [await store.prune(SPACE, before=NOW + 1, limit=4) for _ in range(5)]
        assert removed == [4, 4, 4, 3, 0]
        assert len(await keys_of(store, "backup")) == 1

    async def test_a_run_somebody_asked_for_is_no_outcome_of_the_schedule(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        period = an_end(a_run())
        asked = [an_end(_asked(NOON + n, f"wish {n}")) for n in (-1, 0, 1)]
        await written(store, ownership, period, *asked)
        assert await store.prune(SPACE, before=NOW + 1, limit=100) == 3
        assert await keys_of(store, "backup") == {period.key}

    async def test_a_period_that_only_waits_is_no_outcome_yet(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        ended = [an_end(a_run(nominal_time=NOON + n)) for n in (0, 1)]
        planned = a_run(nominal_time=NOON + 2, status=RunStatus.PENDING, reason=Reason.PLANNED)
        await written(store, ownership, *ended, planned)
        assert await store.prune(SPACE, before=NOW + 1, limit=100) == 1
        assert await keys_of(store, "backup") == {ended[1].key, planned.key}

    async def test_of_runs_and_counted_records_only_the_newest_stays(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", NOON - 20, NOON - 10), a_range("backup", NOON + 10, NOON + 20)]
        change.inserts.append(an_end(a_run()))
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.prune(SPACE, before=NOW, limit=100) == 0
        assert await store.prune(SPACE, before=NOW + 1, limit=100) == 2
        assert await keys_of(store, "backup") == set()
        assert await store.ranges(SPACE, "backup") == [change.ranges[1]]
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 0

    async def test_what_is_pruned_of_one_job_or_namespace_leaves_the_others_alone(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        old, new = an_end(a_run("one")), an_end(a_run("one", NOON + 1))
        await written(store, ownership, old, new, an_end(a_run("two")))
        await written(store, elsewhere, old, new)
        assert await store.prune(SPACE, before=NOW + 1, limit=100) == 1
        assert await keys_of(store, "two") == {a_run("two").key}
        assert await keys_of(store, "one", ELSEWHERE) == {old.key, new.key}

    async def test_a_definition_goes_with_the_last_record_that_follows_it(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        for epoch in (2, 3, 4):
            await _edited(store, epoch=epoch, edited_at=NOW + epoch)
        second, third = (an_end(a_run(nominal_time=NOON + n, epoch=n)) for n in (2, 3))
        await written(store, ownership, second, third, now=NOW)
        # The first is older than all that is on record; the second goes with the run that follows it.
        assert await store.prune(SPACE, before=NOW + 3, limit=1) == 1
        assert [record.epoch for record in await store.epochs(SPACE, "backup")] == [1, 2, 3]
        assert await store.prune(SPACE, before=NOW + 3, limit=9) == 1
        assert [record.epoch for record in await store.epochs(SPACE, "backup")] == [2, 3]
        assert await store.prune(SPACE, before=NOW + 4, limit=9) == 1
        # The third is followed by the newest outcome.
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=9) == 0
        assert [record.epoch for record in await store.epochs(SPACE, "backup")] == [3]

    async def test_a_definition_that_was_replaced_lately_stays(self, store: Store) -> None:
        await stored(store, a_job())
        await _edited(store, epoch=2, edited_at=NOW + MINUTE)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=9) == 0
        assert await store.prune(SPACE, before=NOW + MINUTE + 1, limit=9) == 1
        assert await store.epochs(SPACE, "backup") == []

    async def test_definitions_stay_while_periods_that_follow_them_are_to_be_planned(
        self, store: Store
    ) -> None:
        await stored(store, a_job())
        await _edited(store, epoch=2, edited_at=NOW, past=f'[[1, 0, {NOON}, "{{}}"]]')
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=9) == 0
        await _edited(store, epoch=2, past=None)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=9) == 1

    async def test_attempts_go_with_their_run(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        old, new = an_end(a_run(attempt=2)), an_end(a_run(nominal_time=NOON + 1, attempt=2))
        earlier = [run._replace(attempt=1) for run in (old, new)]
        await written(store, ownership, old, new, attempts=earlier)
        assert await store.prune(SPACE, before=NOW + 1, limit=10) == 1
        assert await store.attempts(SPACE, old.key) == []
        assert len(await store.attempts(SPACE, new.key)) == 1


def _asked(nominal_time: int, request: str) -> RunRecord:
    """Return a run that somebody asked for."""
    key = request_key_of("backup", RunKind.MANUAL, request)
    return a_run(nominal_time=nominal_time, kind=RunKind.MANUAL, key=key, reason=Reason.ASKED)


async def _edited(store: Store, **fields: object) -> None:
    """Change the job's definition."""
    (case,) = await store.cases(SPACE, ["backup"])
    assert await store.put(SPACE, created=[], changed=[a_change(case.job, **fields)], now=NOW) == CLEAN
