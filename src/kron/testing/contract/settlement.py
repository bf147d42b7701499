# ruff: noqa: D102 - the name of a test is its sentence
"""The engine's writes: one transaction, fenced by the lease and by revisions."""

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
    """Changes are committed together, except those of stale jobs and runs that exist already."""

    async def test_a_change_is_written_with_all_its_parts(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        first = a_run()
        await written(store, ownership, first)
        (state,) = await store.cases(SPACE)
        again = first._replace(attempt=2, token=9, started_at=NOW + 50)
        change = a_change(
            state.job,
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

    async def test_ordinary_starts_ends_and_edits_are_written_with_other_changes(self, store: Store) -> None:
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
        found = {state.job.identity: state.job for state in await store.cases(SPACE)}
        assert found == {change.job.identity: change.job for change in changes}
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled.stale_jobs == {"start", "end", "any", "edit"}

    async def test_starts_of_a_cohort_are_written_like_any_others(self, store: Store) -> None:
        """One job has a run of the period already and one is stale; the others are written."""
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abcd"))
        await written(store, ownership, a_run("c"))
        jobs[2] = (await store.cases(SPACE, ["c"]))[0].job
        assert await store.put(SPACE, created=[], changed=[a_change(jobs[3], paused=1)], now=NOW) == CLEAN
        changes = cohort_of(jobs)
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset("d"), frozenset({changes[2].starts[0].key}))
        found = {state.job.identity: state for state in await store.cases(SPACE)}
        assert [found[name].job for name in "abc"] == [change.job for change in changes[:3]]
        assert [list(found[name].runs) for name in "ab"] == [change.starts for change in changes[:2]]
        assert [list(found[name].runs) for name in "cd"] == [[a_run("c")], []]

    async def test_a_whole_cohort_and_its_ends_are_written(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        started = cohort_of(await stored(store, *(a_job(name, failures=2) for name in "abc")))
        assert await store.settle(ownership, started, now=NOW) == CLEAN
        found = {state.job.identity: list(state.runs) for state in await store.cases(SPACE)}
        assert found == {change.job.identity: change.starts for change in started}
        ended = ends_of(started, error="odd \u2713", run_id="7:8")[:1] + ends_of(started)[1:]
        assert {change.scope for change in ended} == {WriteScope.END}
        assert await store.settle(ownership, ended, now=NOW) == CLEAN
        assert [await store.runs(SPACE, name) for name in "abc"] == [change.updates for change in ended]
        states = {state.job.identity: state for state in await store.cases(SPACE)}
        assert [states[name] for name in "abc"] == [JobState(change.job) for change in ended]

    async def test_a_reader_sees_a_large_write_completely_or_not_at_all(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        names = [f"job-{number:04}" for number in range(700)]
        changes = cohort_of(await stored(store, *map(a_job, names)))
        settling = asyncio.create_task(store.settle(ownership, changes, now=NOW))
        seen = []
        while not settling.done():
            seen.append(sum(len(state.runs) for state in await store.cases(SPACE, [names[0], names[-1]])))
            await asyncio.sleep(0)
            await stored(store, a_job(f"more-{len(seen)}"))
        assert await settling == CLEAN
        assert seen
        assert set(seen) <= {0, 2}
        states = await store.cases(SPACE)
        assert sum(len(state.runs) for state in states) == len(names)
        assert len(states) == len(names) + len(seen)

    async def test_no_changes_are_written_without_an_error(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert await store.settle(ownership, [], now=NOW) == CLEAN

    async def test_a_stale_job_is_refused_and_the_others_are_written(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abc"))
        assert await store.put(SPACE, created=[], changed=[a_change(jobs[1], paused=1)], now=NOW) == CLEAN
        changes = [a_change(job, failures=5) for job in jobs]
        for change in changes:
            change.inserts.append(a_run(change.job.identity))
            change.ranges.append(a_range(change.job.identity, 1, 2))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset("b"), frozenset())
        after = {state.job.identity: state for state in await store.cases(SPACE)}
        assert {name: (state.job.failures, len(state.runs)) for name, state in after.items()} == {
            "a": (5, 1),
            "b": (0, 0),
            "c": (5, 1),
        }
        assert after["b"].job.paused == 1
        assert await store.ranges(SPACE, "b") == []

    async def test_a_removed_job_counts_as_stale(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        gone, kept = await stored(store, a_job("gone"), a_job("kept"))
        await store.forget(SPACE, ["gone"])
        changes = [a_change(gone), a_change(kept)]
        changes[0].inserts.append(a_run("gone"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset({"gone"}), frozenset())
        assert await store.runs(SPACE, "gone") == []
        assert [state.job.revision for state in await store.cases(SPACE)] == [2]

    async def test_an_existing_run_is_kept_and_its_job_advances(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("a"), a_job("b"))
        ended = an_end(a_run("a"))
        await written(store, ownership, ended)
        states = {state.job.identity: state.job for state in await store.cases(SPACE)}
        changes = [a_change(states[name], cursor=NOON) for name in "ab"]
        changes[0].inserts += [a_run("a"), a_run("a", NOON + 60)]
        changes[1].inserts.append(a_run("b"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == WriteResult(frozenset(), frozenset({ended.key}))
        assert await store.runs(SPACE, "a") == [a_run("a", NOON + 60), ended]
        assert await store.runs(SPACE, "b") == [a_run("b")]
        assert {state.job.cursor for state in await store.cases(SPACE)} == {NOON}

    async def test_a_manual_run_coexists_with_the_period_of_its_nominal_time(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        period = a_run()
        manual = [
            a_run(kind=kind, key=request_key_of("backup", kind, request))
            for kind in (RunKind.MANUAL, RunKind.BACKFILL)
            for request in ("r1", "r2")
        ]
        await written(store, ownership, period, *manual)
        (state,) = await store.cases(SPACE)
        change = a_change(state.job)
        change.updates.append(an_end(manual[0]))
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        found = {run.key: run for run in await store.runs(SPACE, "backup")}
        assert found == {run.key: run for run in (period, an_end(manual[0]), *manual[1:])}

    async def test_an_owner_that_lost_its_lease_writes_nothing(self, store: Store) -> None:
        earlier = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.acquire(SPACE, "b")
        change = a_change(job)
        change.inserts.append(a_run())
        await refused(store.settle(earlier, [change], now=NOW))
        assert [state.job for state in await store.cases(SPACE)] == [job]
        assert await store.runs(SPACE, "backup") == []
        assert await store.settle(later, [change], now=NOW) == CLEAN

    async def test_one_of_many_racing_changes_wins(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abcd"))
        calls = []
        for failures in range(8):
            changes = [a_change(job, failures=failures) for job in jobs]
            for change in changes:
                change.inserts.append(a_run(change.job.identity, attempt=failures))
            calls.append(store.settle(ownership, changes, now=NOW))
        settled = await asyncio.gather(*calls)
        for name in "abcd":
            winners = [call for call, result in enumerate(settled) if name not in result.stale_jobs]
            assert len(winners) == 1
            (state,) = await store.cases(SPACE, [name])
            assert state.job.failures == winners[0]
            assert [run.attempt for run in state.runs] == winners

    async def test_thousands_of_jobs_fit_in_one_call(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        count = 2_000
        await stored(store, *(a_job(f"job {n:04}", plan_at=NOW - count + n) for n in range(count)))
        loaded = await store.load(ownership, until=NOW, limit=count)
        assert [state.job.identity for state in loaded.cases] == [f"job {n:04}" for n in range(count)]
        changes = [a_change(state.job, plan_at=NOW + MINUTE) for state in loaded.cases]
        for change in changes:
            change.inserts.append(a_run(change.job.identity))
        assert await store.settle(ownership, changes, now=NOW) == CLEAN
        assert len(await store.in_flight(ownership)) == count
        states = await store.cases(SPACE)
        ends = [a_change(state.job) for state in states]
        for end, state in zip(ends, states, strict=True):
            end.updates += [an_end(run) for run in state.runs]
        assert await store.settle(ownership, ends, now=NOW) == CLEAN
        assert await store.in_flight(ownership) == []
        assert {state.job.revision for state in await store.cases(SPACE)} == {3}
        await store.forget(SPACE, [state.job.identity for state in states])
        assert await store.cases(SPACE) == []
