# ruff: noqa: D102 - the name of a test is its sentence
"""Registrations, edits and removals of jobs."""

import asyncio

from kron.core.job.outcome import Reason
from kron.core.plan.record import RunKind, RunStatus, key_of, request_key_of
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    ELSEWHERE,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    stored,
    written,
)


class RegistrationContract:
    """A registration is committed completely or not at all, and reports what made it stale."""

    async def test_creating_an_existing_job_writes_nothing(self, store: Store) -> None:
        (before,) = await stored(store, a_job("one"))
        again = a_job("one", definition='{"schedule":"0 0 * * *"}')
        settled = await store.put(SPACE, created=[a_job("two"), again], changed=[], now=NOW)
        assert settled.stale_jobs == {"one"}
        assert [state.job for state in await store.cases(SPACE)] == [before]

    async def test_a_stale_edit_writes_nothing(self, store: Store) -> None:
        one, two = await stored(store, a_job("one"), a_job("two"))
        assert await store.put(SPACE, created=[], changed=[a_change(two, failures=1)], now=NOW) == CLEAN
        edits = [a_change(one, failures=9), a_change(two, failures=9)]
        settled = await store.put(SPACE, created=[a_job("three")], changed=edits, now=NOW)
        assert settled.stale_jobs == {"two"}
        assert {state.job.identity: state.job.failures for state in await store.cases(SPACE)} == {
            "one": 0,
            "two": 1,
        }

    async def test_a_manual_run_that_exists_is_refused(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        manual = a_run(kind=RunKind.MANUAL, key=request_key_of("backup", RunKind.MANUAL, "r1"))
        await written(store, ownership, manual)
        (state,) = await store.cases(SPACE)
        again = a_change(state.job)
        again.inserts.append(manual._replace(nominal_time=NOON + 60))
        settled = await store.put(SPACE, created=[], changed=[again], now=NOW)
        assert settled.existing_runs == {manual.key}
        assert [after.job for after in await store.cases(SPACE)] == [state.job]
        assert await store.runs(SPACE, "backup") == [manual]

    async def test_an_edit_changes_a_job_and_its_runs_together(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        waiting = a_run(status=RunStatus.PENDING, reason=Reason.PLANNED, due_at=NOW + 1)
        await written(store, ownership, waiting)
        (state,) = await store.cases(SPACE)
        edit = a_change(
            state.job, definition='{"schedule":"0 0 * * *"}', epoch=2, edited_at=NOW, launcher='{"a":1}'
        )
        cancelled = waiting._replace(status=RunStatus.CANCELLED, reason=Reason.EDITED, due_at=None, is_open=0)
        edit.updates.append(cancelled)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        (after,) = await store.cases(SPACE)
        assert after.job == edit.job
        assert list(after.runs) == []
        assert await store.runs(SPACE, "backup") == [cancelled]

    async def test_each_edit_keeps_the_earlier_definition(self, store: Store) -> None:
        (job,) = await stored(store, a_job())
        for epoch in (2, 3):
            edit = a_change(job, definition=f'{{"epoch":{epoch}}}', epoch=epoch, edited_at=NOW + epoch)
            assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
            job = edit.job
        pause = a_change(job, paused=1)
        assert await store.put(SPACE, created=[], changed=[pause], now=NOW) == CLEAN
        assert [tuple(epoch) for epoch in await store.epochs(SPACE, "backup")] == [
            ("backup", 1, NOW - MINUTE, DEFINITION),
            ("backup", 2, NOW + 2, '{"epoch":2}'),
        ]

    async def test_a_refused_edit_keeps_no_definition(self, store: Store) -> None:
        (job,) = await stored(store, a_job())
        assert await store.put(SPACE, created=[], changed=[a_change(job)], now=NOW) == CLEAN
        late = a_change(job, definition="{}", epoch=2)
        assert (await store.put(SPACE, created=[], changed=[late], now=NOW)).stale_jobs == {"backup"}
        assert await store.epochs(SPACE, "backup") == []

    async def test_one_of_many_racing_registrations_wins(self, store: Store) -> None:
        puts = [store.put(SPACE, created=[a_job(failures=n)], changed=[], now=NOW) for n in range(8)]
        settled = await asyncio.gather(*puts)
        assert settled.count(CLEAN) == 1
        (state,) = await store.cases(SPACE)
        assert state.job.failures == settled.index(CLEAN)

    async def test_a_job_is_removed_with_its_whole_history(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        gone, kept = await stored(store, a_job("gone"), a_job("kept"))
        for job in (gone, kept):
            change = a_change(job)
            run = a_run(job.identity)
            change.inserts.append(run)
            change.attempts.append(run)
            change.ranges.append(a_range(job.identity, 1, 9))
            assert await store.settle(ownership, [change], now=NOW) == CLEAN
            edit = a_change(change.job, epoch=2)
            assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        await store.forget(SPACE, ["gone", "unknown"])
        for name, left in (("gone", 0), ("kept", 1)):
            assert len(await store.cases(SPACE, [name])) == left
            assert len(await store.runs(SPACE, name)) == left
            assert len(await store.ranges(SPACE, name)) == left
            assert len(await store.epochs(SPACE, name)) == left
            assert len(await store.attempts(SPACE, key_of(name, NOON))) == left
        await stored(store, a_job("gone"))
        await written(store, ownership, a_run("gone"))
        assert await store.attempts(SPACE, key_of("gone", NOON)) == []

    async def test_jobs_are_removed_created_and_changed_in_one_transaction(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *map(a_job, ("gone", "anew", "kept")))
        await written(store, ownership, a_run("gone"), a_run("anew"))
        (kept,) = [state.job for state in await store.cases(SPACE, ["kept"])]
        edit = a_change(kept, failures=3)
        settled = await store.put(
            SPACE,
            created=[a_job("anew", failures=7), a_job("new")],
            changed=[edit],
            forgotten=["gone", "anew", "unknown"],
            now=NOW,
        )
        assert settled == CLEAN
        failures = {state.job.identity: state.job.failures for state in await store.cases(SPACE)}
        assert failures == {"anew": 7, "new": 0, "kept": 3}
        assert await store.runs(SPACE, "anew") == []
        await written(store, ownership, a_run("anew"))

    async def test_a_refused_registration_removes_nothing(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        _, two = await stored(store, a_job("one"), a_job("two"))
        await written(store, ownership, a_run("one"))
        assert await store.put(SPACE, created=[], changed=[a_change(two)], now=NOW) == CLEAN
        late = a_change(two, failures=9)
        settled = await store.put(
            SPACE, created=[a_job("new")], changed=[late], forgotten=["one"], now=NOW + MINUTE
        )
        assert settled.stale_jobs == {"two"}
        assert {state.job.identity for state in await store.cases(SPACE)} == {"one", "two"}
        assert await store.runs(SPACE, "one") == [a_run("one")]
        existing = await store.put(SPACE, created=[a_job("two")], changed=[], forgotten=["one"], now=NOW)
        assert existing.stale_jobs == {"two"}
        assert len(await store.runs(SPACE, "one")) == 1

    async def test_the_latest_instant_outlives_the_jobs_written_at_it(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert ownership.high == 0
        await store.release(ownership)
        await stored(store, a_job())
        await store.put(SPACE, created=[], changed=[], forgotten=["backup"], now=NOW + 5)
        await store.put(SPACE, created=[], changed=[], now=NOW)
        await store.put(ELSEWHERE, created=[], changed=[], now=NOW + 99)
        ownership = await store.acquire(SPACE, "b")
        assert ownership.high == NOW + 5
        await stored(store, a_job())
        await written(store, ownership, a_run(), now=NOW + 7)
        await store.release(ownership)
        ownership = await store.acquire(SPACE, "c")
        assert ownership.high == NOW + 7
        assert await store.settle(ownership, [], now=NOW + 9) == CLEAN
        await store.release(ownership)
        assert (await store.acquire(SPACE, "d")).high == NOW + 9

    async def test_jobs_are_looked_up_by_name_or_all(self, store: Store) -> None:
        await stored(store, *map(a_job, "abc"))
        assert {state.job.identity for state in await store.cases(SPACE)} == set("abc")
        assert {state.job.identity for state in await store.cases(SPACE, ["c", "a", "x", "a"])} == {"a", "c"}
        assert await store.cases(SPACE, []) == []
