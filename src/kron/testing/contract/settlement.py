# ruff: noqa: D102 - the name of a test is its sentence
"""A wake writes what it decided."""

import asyncio

from kron.core.plan.record import Result, RunKind, RunStatus, request_key_of
from kron.core.plan.step import JobState, WriteScope
from kron.ports import Store, WriteResult
from kron.testing.contract.sample import (
    CLEAN,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    cohort_of,
    ends_of,
    refused,
    stored,
    written,
)


class SettlementContract:
    """Changes are written together, except where somebody else was quicker."""

    async def test_a_turn_is_written_whole(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        first = a_run()
        await written(store, ownership, first)
        (case,) = await store.cases(SPACE)
        again = first._replace(attempt=2, token=9, started_at=NOW + 50)
        change = a_change(
            case.job,
            cursor=NOON + 60,
            next_time=NOON + 120,
            plan_at=NOW + 120,
            failures=3,
            last_start_at=NOW + 50,
        )
        change.inserts.append(a_run(nominal_time=NOON + 60))
        change.updates.append(again)
        change.attempts.append(
            first._replace(status=RunStatus.FAILED, result=Result.FAILED, error="no", ended_at=NOW)
        )
        change.ranges.append(a_range("backup", NOON - 600, NOON - 60))
        assert await store.settle(ownership, [change], now=NOW + 50) == CLEAN
        (after,) = await store.cases(SPACE)
        assert after.job == change.job
        assert await store.runs(SPACE, "backup") == [change.inserts[0], again]
        assert [tuple(attempt) for attempt in await store.attempts(SPACE, first.key)] == [
            (first.key, 1, 1, NOW, NOW, Result.FAILED, "no", None)
        ]
        assert await store.ranges(SPACE, "backup") == change.ranges

    async def test_ordinary_starts_ends_and_edits_are_written_beside_all_others(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *(a_job(name, failures=4) for name in ("start", "end", "any", "edit")))
        start = a_change(jobs[0], cursor=NOON, next_time=NOON + 60, plan_at=NOW + MINUTE, last_start_at=NOW)
        end = a_change(jobs[1], failures=0, last_success_at=NOW)
        other = a_change(jobs[2], paused=1, paused_because="a person", replay_count=2, remaining=3)
        edit = a_change(jobs[3], definition='{"other": 1}', epoch=7, edited_at=NOW, born_at=NOW, cursor=NOON)
        start.scope, end.scope, edit.scope = WriteScope.START, WriteScope.END, WriteScope.EDIT
        start.inserts.append(a_run("start"))
        changes = [start, end, other, edit]
        assert await store.settle(ownership, changes, now=NOW) == CLEAN
        found = {case.job.identity: case.job for case in await store.cases(SPACE)}
        assert found == {change.job.identity: change.job for change in changes}
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled.stale_jobs == {"start", "end", "any", "edit"}

    async def test_starts_of_a_cohort_are_written_like_any_others(self, store: Store) -> None:
        """Of one job the period is on record already, one was changed meanwhile; the rest is written."""
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abcd"))
        await written(store, ownership, a_run("c"))
        jobs[2] = (await store.cases(SPACE, ["c"]))[0].job
        assert await store.put(SPACE, created=[], changed=[a_change(jobs[3], paused=1)], now=NOW) == CLEAN
        changes = cohort_of(jobs)
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset("d"), frozenset({changes[2].starts[0].key}))
        found = {case.job.identity: case for case in await store.cases(SPACE)}
        assert [found[name].job for name in "abc"] == [change.job for change in changes[:3]]
        assert [list(found[name].runs) for name in "ab"] == [change.starts for change in changes[:2]]
        assert [list(found[name].runs) for name in "cd"] == [[a_run("c")], []]

    async def test_a_whole_cohort_and_its_ends_are_written(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        started = cohort_of(await stored(store, *(a_job(name, failures=2) for name in "abc")))
        assert await store.settle(ownership, started, now=NOW) == CLEAN
        found = {case.job.identity: list(case.runs) for case in await store.cases(SPACE)}
        assert found == {change.job.identity: change.starts for change in started}
        ended = ends_of(started, error="odd \u2713", run_id="7:8")[:1] + ends_of(started)[1:]
        assert {change.scope for change in ended} == {WriteScope.END}
        assert await store.settle(ownership, ended, now=NOW) == CLEAN
        assert [await store.runs(SPACE, name) for name in "abc"] == [change.updates for change in ended]
        cases = {case.job.identity: case for case in await store.cases(SPACE)}
        assert [cases[name] for name in "abc"] == [JobState(change.job) for change in ended]

    async def test_who_reads_while_much_is_written_sees_all_of_it_or_nothing(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        names = [f"job-{number:04}" for number in range(700)]
        changes = cohort_of(await stored(store, *map(a_job, names)))
        settling = asyncio.create_task(store.settle(ownership, changes, now=NOW))
        seen = []
        while not settling.done():
            seen.append(sum(len(case.runs) for case in await store.cases(SPACE, [names[0], names[-1]])))
            await asyncio.sleep(0)
            await stored(store, a_job(f"more-{len(seen)}"))
        assert await settling == CLEAN
        assert seen
        assert set(seen) <= {0, 2}
        cases = await store.cases(SPACE)
        assert sum(len(case.runs) for case in cases) == len(names)
        assert len(cases) == len(names) + len(seen)

    async def test_nothing_to_settle_is_settled(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert await store.settle(ownership, [], now=NOW) == CLEAN

    async def test_a_job_that_somebody_else_changed_is_left_alone_and_the_others_are_written(
        self, store: Store
    ) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abc"))
        assert await store.put(SPACE, created=[], changed=[a_change(jobs[1], paused=1)], now=NOW) == CLEAN
        changes = [a_change(job, failures=5) for job in jobs]
        for change in changes:
            change.inserts.append(a_run(change.job.identity))
            change.ranges.append(a_range(change.job.identity, 1, 2))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset("b"), frozenset())
        after = {case.job.identity: case for case in await store.cases(SPACE)}
        assert {name: (case.job.failures, len(case.runs)) for name, case in after.items()} == {
            "a": (5, 1),
            "b": (0, 0),
            "c": (5, 1),
        }
        assert after["b"].job.paused == 1
        assert await store.ranges(SPACE, "b") == []

    async def test_a_job_that_is_gone_counts_as_changed(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        gone, kept = await stored(store, a_job("gone"), a_job("kept"))
        await store.forget(SPACE, ["gone"])
        changes = [a_change(gone), a_change(kept)]
        changes[0].inserts.append(a_run("gone"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset({"gone"}), frozenset())
        assert await store.runs(SPACE, "gone") == []
        assert [case.job.revision for case in await store.cases(SPACE)] == [2]

    async def test_a_period_that_has_a_record_keeps_it_and_its_job_moves_on(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("a"), a_job("b"))
        ended = an_end(a_run("a"))
        await written(store, ownership, ended)
        cases = {case.job.identity: case.job for case in await store.cases(SPACE)}
        changes = [a_change(cases[name], cursor=NOON) for name in "ab"]
        changes[0].inserts += [a_run("a"), a_run("a", NOON + 60)]
        changes[1].inserts.append(a_run("b"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset(), frozenset({ended.key}))
        assert await store.runs(SPACE, "a") == [a_run("a", NOON + 60), ended]
        assert await store.runs(SPACE, "b") == [a_run("b")]
        assert {case.job.cursor for case in await store.cases(SPACE)} == {NOON}

    async def test_a_run_asked_for_stands_beside_the_period_of_its_time(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        period = a_run()
        asked = [
            a_run(kind=kind, key=request_key_of("backup", kind, request))
            for kind in (RunKind.MANUAL, RunKind.BACKFILL)
            for request in ("r1", "r2")
        ]
        await written(store, ownership, period, *asked)
        (case,) = await store.cases(SPACE)
        change = a_change(case.job)
        change.updates.append(an_end(asked[0]))
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        found = {run.key: run for run in await store.runs(SPACE, "backup")}
        assert found == {run.key: run for run in (period, an_end(asked[0]), *asked[1:])}

    async def test_whoever_was_taken_over_from_writes_nothing(self, store: Store) -> None:
        earlier = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.acquire(SPACE, "b")
        change = a_change(job)
        change.inserts.append(a_run())
        await refused(store.settle(earlier, [change], now=NOW))
        assert [case.job for case in await store.cases(SPACE)] == [job]
        assert await store.runs(SPACE, "backup") == []
        assert await store.settle(later, [change], now=NOW) == CLEAN

    async def test_of_racing_turns_one_wins(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abcd"))
        turns = []
        for failures in range(8):
            changes = [a_change(job, failures=failures) for job in jobs]
            for change in changes:
                change.inserts.append(a_run(change.job.identity, attempt=failures))
            turns.append(store.settle(ownership, changes, now=NOW))
        settled = await asyncio.gather(*turns)
        for name in "abcd":
            winners = [turn for turn, answer in enumerate(settled) if name not in answer.stale_jobs]
            assert len(winners) == 1
            (case,) = await store.cases(SPACE, [name])
            assert case.job.failures == winners[0]
            assert [run.attempt for run in case.runs] == winners

    async def test_thousands_of_jobs_are_one_call(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        count = 2_000
        await stored(store, *(a_job(f"job {n:04}", plan_at=NOW - count + n) for n in range(count)))
        loaded = await store.load(ownership, until=NOW, limit=count)
        assert [case.job.identity for case in loaded.cases] == [f"job {n:04}" for n in range(count)]
        changes = [a_change(case.job, plan_at=NOW + MINUTE) for case in loaded.cases]
        for change in changes:
            change.inserts.append(a_run(change.job.identity))
        assert await store.settle(ownership, changes, now=NOW) == CLEAN
        assert len(await store.in_flight(ownership)) == count
        cases = await store.cases(SPACE)
        ends = [a_change(case.job) for case in cases]
        for end, case in zip(ends, cases, strict=True):
            end.updates += [an_end(run) for run in case.runs]
        assert await store.settle(ownership, ends, now=NOW) == CLEAN
        assert await store.in_flight(ownership) == []
        assert {case.job.revision for case in await store.cases(SPACE)} == {3}
        await store.forget(SPACE, [case.job.identity for case in cases])
        assert await store.cases(SPACE) == []
