# ruff: noqa: D102 - the name of a test is its sentence
"""The engine port: leases, due jobs, and writes fenced by the lease and by revisions."""

import asyncio
import json
from itertools import pairwise

from kron.core.errors import OwnedError, StoreError
from kron.core.job.outcome import Reason
from kron.core.plan.query import PruneBounds
from kron.core.plan.record import (
    JobRecord,
    Result,
    RunKind,
    RunStatus,
    key_of,
    request_key_of,
)
from kron.core.plan.step import Change, JobState, Ownership, WriteResult, WriteScope
from kron.core.shard import SHARDS
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
    an_end,
    cohort_of,
    ends_of,
    keys_of,
    names_due,
    refused,
    stored,
    written,
)


class SettlementContract:
    """Changes are committed together, except those of stale jobs and runs that exist already."""

    async def test_a_period_is_written_under_its_own_key_only(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        await written(store, ownership, a_run())
        (state,) = await store.cases(SPACE)
        for key in (key_of("backup", NOON), key_of("other", NOON + 60)):
            change = a_change(state.job)
            change.inserts.append(a_run(nominal_time=NOON + 60, key=key))
            try:
                await store.settle(ownership, [change], now=NOW)
            except StoreError:
                continue
            raise AssertionError("a second period has the key of the first, or of another job")
        assert await keys_of(store, "backup") == {key_of("backup", NOON)}
        assert (await store.cases(SPACE))[0].job.revision == job.revision + 1

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

    async def test_many_ends_are_written_together(self, store: Store) -> None:
        """Of one period, and of different ones."""
        ownership = await store.acquire(SPACE, "a")
        for step in (0, 60):
            jobs = [a_job(f"job-{step}-{number:02}", plan_at=NOW + MINUTE) for number in range(12)]
            await stored(store, *jobs)
            runs = [a_run(job.identity, NOON + step * number) for number, job in enumerate(jobs)]
            await written(store, ownership, *runs)
            states = await store.cases(SPACE, [job.identity for job in jobs])
            started = [Change(state.job, state.job.revision, starts=[*state.runs]) for state in states]
            ended = ends_of(started[:5], error="odd \u2713", run_id="7:8") + ends_of(started[5:])
            assert {change.scope for change in ended} == {WriteScope.END}
            assert await store.settle(ownership, ended, now=NOW) == CLEAN
            found = {state.job.identity: state for state in await store.cases(SPACE)}
            for change in ended:
                assert found[change.job.identity] == JobState(change.job)
                assert await store.runs(SPACE, change.job.identity) == change.updates

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


class OwnershipContract:
    """A namespace has one owner, and its own jobs."""

    async def test_namespaces_know_nothing_of_each_other(self, store: Store) -> None:
        here, there = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "b")
        await stored(store, a_job(failures=1))
        await stored(store, a_job(failures=2), namespace=ELSEWHERE)
        for ownership in (here, there):
            await written(
                store,
                ownership,
                an_end(a_run()),
                a_run(nominal_time=NOON + 1, attempt=2),
                attempts=[a_run(nominal_time=NOON + 1, error=ownership.namespace)],
            )
        key = key_of("backup", NOON + 1)
        assert [found.error for found in await store.attempts(ELSEWHERE, key)] == [ELSEWHERE]
        assert (await store.prune(SPACE, PruneBounds(before=NOW + 2_000), limit=10)).runs == 1
        await store.forget(SPACE, ["backup"])
        assert await store.cases(SPACE) == []
        assert (await store.load(here, until=NOW, limit=10)).cases == []
        (state,) = (await store.load(there, until=NOW, limit=10)).cases
        assert (state.job.failures, len(state.runs)) == (2, 1)
        assert len(await store.runs(ELSEWHERE, "backup")) == 2
        assert len(await store.attempts(ELSEWHERE, key)) == 1
        assert await store.attempts(SPACE, key) == []

    async def test_a_namespace_has_one_owner(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert (ownership.namespace, ownership.owner) == (SPACE, "a")
        assert set(ownership.shards) == set(range(SHARDS))
        await refused(store.acquire(SPACE, "b"))
        assert set((await store.acquire(ELSEWHERE, "b")).shards) == set(range(SHARDS))

    async def test_released_shards_can_be_leased_at_once_with_a_higher_token(self, store: Store) -> None:
        tokens = []
        for owner in "abab":
            ownership = await store.acquire(SPACE, owner)
            tokens.append((min(ownership.shards.values()), ownership.token))
            await store.release(ownership)
        for (_, earlier), (later, _) in pairwise(tokens):
            assert later > earlier

    async def test_of_racing_owners_one_wins(self, store: Store) -> None:
        calls = [store.acquire(SPACE, f"owner {n}") for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, Ownership) for answer in answers) == 1
        assert sum(isinstance(answer, OwnedError) for answer in answers) == 7

    async def test_a_renewed_lease_still_fences_writes(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        renewed = await store.renew(ownership)
        # A store with a clock of its own says when it granted each.
        assert renewed == ownership._replace(granted_at=renewed.granted_at)
        assert await store.settle(renewed, [a_change(job)], now=NOW) == CLEAN

    async def test_a_release_that_comes_too_late_lets_go_of_nothing(self, store: Store) -> None:
        earlier = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.acquire(SPACE, "b")
        await store.release(earlier)
        assert await store.settle(later, [a_change(job)], now=NOW) == CLEAN
        await refused(store.acquire(SPACE, "c"))

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        await store.acquire(SPACE, "a")
        await store.close()
        await store.close()


class WakeContract:
    """Due jobs are loaded oldest first, with their open runs and definitions."""

    async def test_only_due_jobs_are_loaded_oldest_first(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        due = [a_job(name, plan_at=NOW - at) for name, at in (("c", 1), ("a", 3), ("d", 0), ("b", 2))]
        later = [a_job("later", plan_at=NOW + 1), a_job("never", plan_at=None)]
        await stored(store, *due, *later)
        assert await names_due(store, ownership) == ["a", "b", "c", "d"]

    async def test_a_limit_keeps_the_oldest(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - n) for n in range(20)))
        assert await names_due(store, ownership, limit=3) == ["job 19", "job 18", "job 17"]

    async def test_a_due_run_loads_its_job(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(name, plan_at=None) for name in ("due", "later", "idle")))
        due, later = a_run("due", due_at=NOW), a_run("later", due_at=NOW + 1)
        await written(store, ownership, due, later, a_run("idle"))
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert [(state.job.identity, list(state.runs)) for state in loaded.cases] == [("due", [due])]
        assert loaded.next_at == NOW + 1

    async def test_a_job_with_many_due_runs_does_not_hide_the_others(self, store: Store) -> None:
        """A result below the limit without a due `next_at` is complete."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("much", plan_at=None), a_job("little", plan_at=None))
        many = [a_run("much", NOON + n, due_at=NOW - 10) for n in range(6)]
        await written(store, ownership, *many, a_run("little", due_at=NOW))
        seen: set[str] = set()
        for _ in range(3):
            loaded = await store.load(ownership, until=NOW, limit=3)
            for state in loaded.cases:
                seen.add(state.job.identity)
                change = a_change(state.job)
                change.updates += [an_end(run) for run in state.runs]
                assert await store.settle(ownership, [change], now=NOW) == CLEAN
            if len(loaded.cases) < 3 and (loaded.next_at is None or loaded.next_at > NOW):
                break
        assert seen == {"much", "little"}

    async def test_due_jobs_of_other_tenants_are_found(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        users = {"ann 1": "ann", "ann 2": "ann", "bob 1": "bob", "bob 2": "bob", "cem": "cem", "none": None}
        texts = {name: json.dumps({"kind": "log", "user_id": user}) for name, user in users.items()}
        due = {"ann 1": NOW, "bob 1": NOW - 1, "cem": NOW + 1, "bob 2": None, "none": NOW - 2}
        jobs = [a_job(name, plan_at=due.get(name, NOW - 3), launcher=text) for name, text in texts.items()]
        await stored(store, *jobs)
        await written(store, ownership, a_run("bob 2", due_at=NOW), a_run("ann 1", due_at=NOW - 9))
        others = await store.due_besides(ownership, ["ann"], until=NOW, limit=10)
        assert others == ["none", "bob 1", "bob 2"]
        assert await store.due_besides(ownership, ["ann", "bob"], until=NOW + 1, limit=10) == ["none", "cem"]
        assert await store.due_besides(ownership, ["bob"], until=NOW, limit=1) == ["ann 1"]
        assert len(await store.due_besides(ownership, [], until=NOW, limit=10)) == 5
        assert await store.due_besides(ownership, ["", "ann"], until=NOW, limit=10) == ["bob 1", "bob 2"]

    async def test_whether_there_are_jobs_of_several_tenants(self, store: Store) -> None:
        async def others(*tenants: str) -> list[bool]:
            return [await store.serves_others(SPACE, tenant) for tenant in tenants]

        def job_for(name: str, user: str | None) -> JobRecord:
            return a_job(name, launcher=json.dumps({"kind": "log", "user_id": user}))

        assert await others("bob", "") == [False, False]
        await stored(store, job_for("b", "bob"))
        assert await others("bob", "ann", "cem", "") == [False, True, True, True]
        await stored(store, job_for("none", None))
        assert await others("bob", "") == [True, True]
        await store.forget(SPACE, ["b"])
        assert await others("bob", "") == [True, False]
        await stored(store, job_for("c", "cem"), namespace=ELSEWHERE)
        assert await store.serves_others(ELSEWHERE, "cem") is False
        # An edit may take the user away.
        (state,) = await store.cases(ELSEWHERE)
        edit = a_change(state.job, launcher=job_for("c", None).launcher)
        assert await store.put(ELSEWHERE, created=[], changed=[edit], now=NOW) == CLEAN
        assert await store.serves_others(ELSEWHERE, "cem") is True

    async def test_the_open_runs_of_users_are_counted(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        users = {"ann 1": "ann", "ann 2": "ann", "bob": "bob", "none": None}
        texts = {name: json.dumps({"kind": "log", "user_id": user}) for name, user in users.items()}
        await stored(store, *(a_job(name, launcher=text) for name, text in texts.items()))
        ended = an_end(a_run("ann 1", NOON + 9))
        runs = [a_run("ann 1", NOON), a_run("ann 1", NOON + 1), a_run("ann 2"), a_run("none")]
        await written(store, ownership, *runs, ended)
        counts = await store.open_by_user(SPACE, ["ann", "bob", "cem", "x'y\"z"])
        assert counts == {"ann": 3, "bob": 0, "cem": 0, "x'y\"z": 0}
        assert await store.open_by_user(ELSEWHERE, ["ann"]) == {"ann": 0}
        assert await store.open_by_user(SPACE, []) == {}

    async def test_named_jobs_are_loaded_too_once(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("due"), a_job("named", plan_at=None), a_job("other", plan_at=None))
        loaded = await store.load(ownership, until=NOW, limit=10, named=["named", "due", "unknown"])
        assert sorted(state.job.identity for state in loaded.cases) == ["due", "named"]
        loaded = await store.load(ownership, until=-1, limit=10, named=["named"])
        assert [state.job.identity for state in loaded.cases] == ["named"]

    async def test_excluded_jobs_are_left_out_and_do_not_count_for_the_limit(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - 9 + n) for n in range(6)))
        await stored(store, a_job("by run", plan_at=None), a_job("excluded", plan_at=None))
        await written(store, ownership, a_run("by run", due_at=NOW), a_run("excluded", due_at=NOW))
        states = (await store.load(ownership, until=NOW, limit=10)).cases
        excluded = ("job 0", "job 1", "job 3", "excluded")
        without = [state.job for state in states if state.job.identity in excluded]
        loaded = await store.load(ownership, until=NOW, limit=10, without=without)
        assert sorted(state.job.identity for state in loaded.cases) == ["by run", "job 2", "job 4", "job 5"]
        assert loaded.next_at is None
        loaded = await store.load(ownership, until=NOW, limit=2, without=without)
        assert {"job 2", "job 4"} <= {state.job.identity for state in loaded.cases}

    async def test_next_at_is_the_earliest_due_time_of_all_other_jobs(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("one", plan_at=NOW + 30), a_job("two", plan_at=NOW + 20), a_job("now"))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 20
        assert (await store.load(ownership, until=NOW + 20, limit=10)).next_at == NOW + 30
        assert (await store.load(ownership, until=NOW + 30, limit=10)).next_at is None
        await written(store, ownership, a_run("one", due_at=NOW + 10))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 10

    async def test_only_open_runs_are_loaded(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(4)]
        await written(store, ownership, *runs[:2], an_end(runs[2]), runs[3])
        (state,) = (await store.load(ownership, until=NOW, limit=10)).cases
        assert {run.key for run in state.runs} == {runs[0].key, runs[1].key, runs[3].key}

    async def test_open_runs_come_with_the_earlier_definitions_they_follow(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("edited"), a_job("not edited"))
        runs = [a_run(name, status=RunStatus.PENDING) for name in ("edited", "not edited")]
        await written(store, ownership, *runs)
        (state,) = await store.cases(SPACE, ["edited"])
        edit = a_change(state.job, definition="{}", epoch=2, edited_at=NOW)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        states = {
            state.job.identity: state for state in (await store.load(ownership, until=NOW, limit=9)).cases
        }
        assert dict(states["edited"].definitions) == {1: DEFINITION}
        assert dict(states["not edited"].definitions) == {}

    async def test_only_runs_that_have_not_started_need_earlier_definitions(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        for epoch in range(2, 6):
            edit = a_change(job, definition=f'{{"epoch":{epoch}}}', epoch=epoch, edited_at=NOW)
            assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
            job = edit.job
        statuses = {1: RunStatus.STARTED, 2: RunStatus.PENDING, 4: RunStatus.PENDING, 5: RunStatus.PENDING}
        runs = [a_run(nominal_time=NOON + epoch, epoch=epoch, status=of) for epoch, of in statuses.items()]
        await written(store, ownership, *runs)
        (state,) = (await store.load(ownership, until=NOW, limit=9)).cases
        assert len(state.runs) == len(runs)
        assert dict(state.definitions) == {2: '{"epoch":2}', 4: '{"epoch":4}'}

    async def test_runs_that_may_be_executing_are_found(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        executing = [a_run(nominal_time=NOON + 1), a_run(nominal_time=NOON + 2, status=RunStatus.ENQUEUED)]
        others = [
            a_run(nominal_time=NOON + 3, status=RunStatus.PENDING, reason=Reason.PLANNED),
            a_run(nominal_time=NOON + 4, status=RunStatus.FAILED, reason=Reason.RETRY, due_at=NOW + 1),
            a_run(nominal_time=NOON + 5, status=RunStatus.ENQUEUED, is_open=0),
            an_end(a_run(nominal_time=NOON + 6)),
        ]
        await written(store, ownership, *executing, *others)
        assert sorted(await store.in_flight(ownership)) == sorted(executing)
