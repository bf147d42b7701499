# ruff: noqa: D102 - the name of a test is its sentence
"""The contract every store keeps.

A store of your own is tested by a subclass that supplies `store`::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...
"""

import asyncio
from collections.abc import Awaitable, Sequence
from itertools import pairwise

from kron.core.errors import OwnedError
from kron.core.outcome import Outcome, Reason
from kron.core.record import JobRecord, Kind, RangeRecord, Result, RunRecord, Status, key_of, request_key_of
from kron.core.shard import SHARDS
from kron.core.turn import Change, Scope
from kron.ports import Ownership, Settled, Store

# An instant in milliseconds, and the same in seconds.
NOW, NOON = 1_800_000_000_000, 1_800_000_000
MINUTE = 60_000
SPACE, ELSEWHERE = "embed:main", "embed:other"
DEFINITION = '{"schedule":"* * * * *","timezone":"UTC"}'
CLEAN = Settled(frozenset(), frozenset())
STRANGE = (
    "prod/db-backup",
    "Sicherung für Öl",
    "毎日のバックアップ",
    "👩‍🚀 launch",
    'say "hello"',
    "it's",
    "back\\slash\\",
    "{a,b}",
    "NULL",
    "100%",
    "%(name)s",
    "a;b--c",
    " edges ",
    "e\u0301 and \u00e9",
    "x" * 1_000,
)


def a_job(identity: str = "backup", *, plan_at: int | None = NOW, **fields: object) -> JobRecord:
    """Return a job that is new and due."""
    job = JobRecord(
        identity, DEFINITION, "{}", "callback", 1, NOW - MINUTE, NOW - MINUTE, 1, NOON - 60, NOON, plan_at
    )
    return job._replace(**fields)  # type: ignore[arg-type]


def a_run(identity: str = "backup", nominal_time: int = NOON, **fields: object) -> RunRecord:
    """Return a period that is under way."""
    run = RunRecord(
        key_of(identity, nominal_time),
        identity,
        nominal_time,
        1000 * nominal_time,
        Status.STARTED,
        Reason.DUE,
        NOW,
        1,
        is_open=1,
        attempt=1,
        token=1,
        started_at=NOW,
    )
    return run._replace(**fields)  # type: ignore[arg-type]


def an_end(run: RunRecord) -> RunRecord:
    """Return a run that has ended well."""
    return run._replace(
        status=Status.SUCCESS, ended_at=NOW + 5, result=Result.SUCCESS, is_open=0, due_at=None, acked=1
    )


def a_range(identity: str, first: int, last: int) -> RangeRecord:
    """Return periods that were dropped together."""
    return RangeRecord(identity, first, last, 7, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW)


def a_change(job: JobRecord, **fields: object) -> Change:
    """Return a change that moves a job on by one revision."""
    return Change(job._replace(revision=job.revision + 1, **fields), job.revision)  # type: ignore[arg-type]


def plain(job: JobRecord) -> JobRecord:
    """Return a job without the name the store has for it."""
    return job._replace(number=0)


async def stored(store: Store, *jobs: JobRecord, namespace: str = SPACE) -> list[JobRecord]:
    """Write new jobs and return them as the store has them, in the same order."""
    assert await store.put(namespace, created=jobs, changed=[], now=NOW) == CLEAN
    found = {case.job.identity: case.job for case in await store.cases(namespace)}
    return [found[job.identity] for job in jobs]


async def written(
    store: Store, ownership: Ownership, *runs: RunRecord, attempts: Sequence[RunRecord] = (), now: int = NOW
) -> None:
    """Insert runs of stored jobs."""
    jobs = {case.job.identity: case.job for case in await store.cases(ownership.namespace)}
    for run in runs:
        change = a_change(jobs[run.identity])
        change.inserts.append(run)
        change.attempts += [attempt for attempt in attempts if attempt.key == run.key]
        assert await store.settle(ownership, [change], now=now) == CLEAN
        jobs[run.identity] = change.job


async def refused(call: Awaitable[object]) -> None:
    """Check that a call is refused because somebody else looks after the jobs."""
    try:
        await call
    except OwnedError:
        return
    raise AssertionError("somebody else looks after the jobs, and the call went through")


async def names_due(store: Store, ownership: Ownership, *, until: int = NOW, limit: int = 100) -> list[str]:
    """Return the names of the jobs that have something to do."""
    loaded = await store.load(ownership, until=until, limit=limit)
    return [case.job.identity for case in loaded.cases]


async def keys_of(store: Store, identity: str, namespace: str = SPACE) -> set[str]:
    """Return the keys of all runs of a job."""
    return {run.key for run in await store.runs(namespace, identity, limit=10_000)}


class StoreContract:
    """What the engine relies on; `store` is the one thing a subclass supplies."""

    # --- what goes in comes out ------------------------------------------------------------------

    async def test_a_new_store_is_empty(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert (list(loaded.cases), loaded.next_at) == ([], None)
        assert await store.cases(SPACE) == []
        assert await store.cases(SPACE, ["nobody"]) == []
        assert await store.runs(SPACE, "nobody") == []
        assert await store.ranges(SPACE, "nobody") == []
        assert await store.epochs(SPACE, "nobody") == []
        assert await store.attempts(SPACE, "no key") == []
        assert await store.in_flight(ownership) == []
        assert await store.prune(SPACE, before=NOW, limit=10) == 0
        await store.forget(SPACE, ["nobody"])

    async def test_every_field_of_a_job_is_kept(self, store: Store) -> None:
        job = JobRecord(
            identity="backup",
            definition=DEFINITION,
            launcher='{"workflow_id":"w","version":3,"user_id":"u"}',
            launcher_kind="http",
            epoch=4,
            edited_at=NOW - 1,
            born_at=NOW - 2,
            revision=5,
            cursor=NOON - 3,
            next_time=NOON,
            plan_at=NOW - 4,
            past='[[3,1,2,"{}"]]',
            replay_until=NOON - 5,
            replay_at=NOW - 6,
            replay_count=7,
            paused=1,
            paused_because="8 failures in a row",
            resumed_at=NOW - 9,
            deleted_at=NOW - 10,
            remaining=11,
            failures=12,
            last_start_at=NOW - 13,
            last_success_at=NOW - 14,
            last_failure_at=NOW - 15,
        )
        (found,) = await stored(store, job)
        assert plain(found) == job

    async def test_what_is_absent_stays_absent(self, store: Store) -> None:
        job = a_job(plan_at=None, next_time=None)
        (found,) = await stored(store, job)
        assert plain(found) == job

    async def test_identities_may_have_any_signs(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        jobs = await stored(store, *map(a_job, STRANGE))
        assert [job.identity for job in jobs] == list(STRANGE)
        await written(store, ownership, *map(a_run, STRANGE))
        for name in STRANGE:
            assert [run.identity for run in await store.runs(SPACE, name)] == [name]
            (case,) = await store.cases(SPACE, [name])
            assert [run.identity for run in case.runs] == [name]
        assert set(await names_due(store, ownership)) == set(STRANGE)

    async def test_a_definition_may_be_long(self, store: Store) -> None:
        definition = '{"schedule":"* * * * *","note":"' + "ä\\u0000'" * 20_000 + '"}'
        assert len(definition) > 100_000
        (found,) = await stored(store, a_job(definition=definition, launcher=definition))
        assert found.definition == definition
        assert found.launcher == definition

    async def test_instants_may_be_anywhere_in_the_calendar(self, store: Store) -> None:
        far, early = 253_402_300_799, -62_135_596_800
        job = a_job(cursor=early, next_time=far, plan_at=1000 * far, born_at=1000 * early)
        (found,) = await stored(store, job)
        assert plain(found) == job

    async def test_every_field_of_a_run_is_kept(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        run = RunRecord(
            key=key_of("backup", NOON),
            identity="backup",
            nominal_time=NOON,
            fire_time=NOW + 1,
            status=Status.FAILED,
            reason=Reason.RETRY,
            created_at=NOW + 2,
            epoch=3,
            due_at=NOW + 4,
            is_open=1,
            kind=Kind.BACKFILL,
            attempt=5,
            token=6,
            started_at=NOW + 7,
            ended_at=NOW + 8,
            result=Result.LAUNCH_FAILED,
            error='no "such" \\ thing: 100% für alle {NULL}',
            run_id="run 9",
            acked=1,
        )
        await written(store, ownership, run)
        (found,) = await store.runs(SPACE, "backup")
        assert found == run
        assert isinstance(found.status, Status)
        assert isinstance(found.reason, Reason)
        assert isinstance(found.kind, Kind)
        assert isinstance(found.result, Result)

    async def test_every_status_reason_kind_and_result_is_kept(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        values: list[tuple[str, object]] = [
            *(("status", status) for status in Status),
            *(("reason", reason) for reason in Reason),
            *(("kind", kind) for kind in Kind),
            *(("result", result) for result in Result),
        ]
        runs = [
            a_run(nominal_time=NOON + n)._replace(**{name: value})  # type: ignore[arg-type]
            for n, (name, value) in enumerate(values)
        ]
        await written(store, ownership, *runs)
        assert sorted(await store.runs(SPACE, "backup", limit=1_000)) == sorted(runs)

    async def test_errors_may_hold_what_no_text_should(self, store: Store) -> None:
        """A failing program says what it likes; that it failed must be written all the same."""
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, a_run(error="zero \0 and half \ud800 a sign", run_id="\0\udfff"))
        (found,) = await store.runs(SPACE, "backup")
        assert found.error is not None
        assert found.error.startswith("zero ")
        assert found.error.endswith(" a sign")

    # --- registration ----------------------------------------------------------------------------

    async def test_a_job_that_exists_is_not_created_again_nor_is_anything_else(self, store: Store) -> None:
        (before,) = await stored(store, a_job("one"))
        again = a_job("one", definition='{"schedule":"0 0 * * *"}')
        settled = await store.put(SPACE, created=[a_job("two"), again], changed=[], now=NOW)
        assert settled.changed == {"one"}
        assert [case.job for case in await store.cases(SPACE)] == [before]

    async def test_an_edit_of_what_somebody_else_changed_writes_nothing(self, store: Store) -> None:
        one, two = await stored(store, a_job("one"), a_job("two"))
        assert await store.put(SPACE, created=[], changed=[a_change(two, failures=1)], now=NOW) == CLEAN
        edits = [a_change(one, failures=9), a_change(two, failures=9)]
        settled = await store.put(SPACE, created=[a_job("three")], changed=edits, now=NOW)
        assert settled.changed == {"two"}
        assert {case.job.identity: case.job.failures for case in await store.cases(SPACE)} == {
            "one": 0,
            "two": 1,
        }

    async def test_a_run_that_exists_is_not_asked_for_again(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        asked = a_run(kind=Kind.MANUAL, key=request_key_of("backup", Kind.MANUAL, "r1"))
        await written(store, ownership, asked)
        (case,) = await store.cases(SPACE)
        again = a_change(case.job)
        again.inserts.append(asked._replace(nominal_time=NOON + 60))
        settled = await store.put(SPACE, created=[], changed=[again], now=NOW)
        assert settled.handled == {asked.key}
        assert [after.job for after in await store.cases(SPACE)] == [case.job]
        assert await store.runs(SPACE, "backup") == [asked]

    async def test_an_edit_changes_a_job_and_its_runs_together(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        waiting = a_run(status=Status.PENDING, reason=Reason.PLANNED, due_at=NOW + 1)
        await written(store, ownership, waiting)
        (case,) = await store.cases(SPACE)
        edit = a_change(
            case.job, definition='{"schedule":"0 0 * * *"}', epoch=2, edited_at=NOW, launcher='{"a":1}'
        )
        cancelled = waiting._replace(status=Status.CANCELLED, reason=Reason.EDITED, due_at=None, is_open=0)
        edit.updates.append(cancelled)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        (after,) = await store.cases(SPACE)
        assert after.job == edit.job
        assert list(after.runs) == []
        assert await store.runs(SPACE, "backup") == [cancelled]

    async def test_each_edit_leaves_the_earlier_definition_behind(self, store: Store) -> None:
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

    async def test_a_refused_edit_leaves_no_definition_behind(self, store: Store) -> None:
        (job,) = await stored(store, a_job())
        assert await store.put(SPACE, created=[], changed=[a_change(job)], now=NOW) == CLEAN
        late = a_change(job, definition="{}", epoch=2)
        assert (await store.put(SPACE, created=[], changed=[late], now=NOW)).changed == {"backup"}
        assert await store.epochs(SPACE, "backup") == []

    async def test_of_racing_registrations_one_wins(self, store: Store) -> None:
        puts = [store.put(SPACE, created=[a_job(failures=n)], changed=[], now=NOW) for n in range(8)]
        settled = await asyncio.gather(*puts)
        assert settled.count(CLEAN) == 1
        (case,) = await store.cases(SPACE)
        assert case.job.failures == settled.index(CLEAN)

    async def test_what_is_forgotten_is_gone_with_everything_of_it(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
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
        await store.forget(SPACE, ["gone", "nobody"])
        for name, left in (("gone", 0), ("kept", 1)):
            assert len(await store.cases(SPACE, [name])) == left
            assert len(await store.runs(SPACE, name)) == left
            assert len(await store.ranges(SPACE, name)) == left
            assert len(await store.epochs(SPACE, name)) == left
            assert len(await store.attempts(SPACE, key_of(name, NOON))) == left
        await stored(store, a_job("gone"))
        await written(store, ownership, a_run("gone"))
        assert await store.attempts(SPACE, key_of("gone", NOON)) == []

    async def test_cases_are_those_named_or_all(self, store: Store) -> None:
        await stored(store, *map(a_job, "abc"))
        assert {case.job.identity for case in await store.cases(SPACE)} == set("abc")
        assert {case.job.identity for case in await store.cases(SPACE, ["c", "a", "x", "a"])} == {"a", "c"}
        assert await store.cases(SPACE, []) == []

    # --- loading ---------------------------------------------------------------------------------

    async def test_only_jobs_with_something_to_do_are_loaded_oldest_first(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        due = [a_job(name, plan_at=NOW - at) for name, at in (("c", 1), ("a", 3), ("d", 0), ("b", 2))]
        later = [a_job("later", plan_at=NOW + 1), a_job("never", plan_at=None)]
        await stored(store, *due, *later)
        assert await names_due(store, ownership) == ["a", "b", "c", "d"]

    async def test_a_limit_takes_the_oldest(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, *(a_job(f"job {n}", plan_at=NOW - n) for n in range(20)))
        assert await names_due(store, ownership, limit=3) == ["job 19", "job 18", "job 17"]

    async def test_a_run_that_is_due_brings_its_job(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, *(a_job(name, plan_at=None) for name in ("due", "later", "idle")))
        due, later = a_run("due", due_at=NOW), a_run("later", due_at=NOW + 1)
        await written(store, ownership, due, later, a_run("idle"))
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert [(case.job.identity, list(case.runs)) for case in loaded.cases] == [("due", [due])]
        assert loaded.next_at == NOW + 1

    async def test_one_job_with_much_to_do_does_not_hide_the_others(self, store: Store) -> None:
        """Whoever loads less than the limit, and is told of nothing due, has seen everything that is."""
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("much", plan_at=None), a_job("little", plan_at=None))
        many = [a_run("much", NOON + n, due_at=NOW - 10) for n in range(6)]
        await written(store, ownership, *many, a_run("little", due_at=NOW))
        seen: set[str] = set()
        for _ in range(3):
            loaded = await store.load(ownership, until=NOW, limit=3)
            for case in loaded.cases:
                seen.add(case.job.identity)
                change = a_change(case.job)
                change.updates += [an_end(run) for run in case.runs]
                assert await store.settle(ownership, [change], now=NOW) == CLEAN
            if len(loaded.cases) < 3 and (loaded.next_at is None or loaded.next_at > NOW):
                break
        assert seen == {"much", "little"}

    async def test_those_named_are_loaded_too_once(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("due"), a_job("named", plan_at=None), a_job("other", plan_at=None))
        loaded = await store.load(ownership, until=NOW, limit=10, named=["named", "due", "nobody"])
        assert sorted(case.job.identity for case in loaded.cases) == ["due", "named"]
        loaded = await store.load(ownership, until=-1, limit=10, named=["named"])
        assert [case.job.identity for case in loaded.cases] == ["named"]

    async def test_next_at_is_when_the_first_of_all_others_is_due(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("one", plan_at=NOW + 30), a_job("two", plan_at=NOW + 20), a_job("now"))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 20
        assert (await store.load(ownership, until=NOW + 20, limit=10)).next_at == NOW + 30
        assert (await store.load(ownership, until=NOW + 30, limit=10)).next_at is None
        await written(store, ownership, a_run("one", due_at=NOW + 10))
        assert (await store.load(ownership, until=NOW, limit=10)).next_at == NOW + 10

    async def test_only_open_runs_are_loaded(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(4)]
        await written(store, ownership, *runs[:2], an_end(runs[2]), runs[3])
        (case,) = (await store.load(ownership, until=NOW, limit=10)).cases
        assert {run.key for run in case.runs} == {runs[0].key, runs[1].key, runs[3].key}

    async def test_open_runs_come_with_the_earlier_definitions_they_follow(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("edited"), a_job("not edited"))
        await written(store, ownership, a_run("edited"), a_run("not edited"))
        (case,) = await store.cases(SPACE, ["edited"])
        edit = a_change(case.job, definition="{}", epoch=2, edited_at=NOW)
        assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        cases = {case.job.identity: case for case in (await store.load(ownership, until=NOW, limit=9)).cases}
        assert dict(cases["edited"].definitions) == {1: DEFINITION}
        assert dict(cases["not edited"].definitions) == {}

    async def test_what_may_be_under_way_is_found(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        under_way = [a_run(nominal_time=NOON + 1), a_run(nominal_time=NOON + 2, status=Status.ENQUEUED)]
        others = [
            a_run(nominal_time=NOON + 3, status=Status.PENDING, reason=Reason.PLANNED),
            a_run(nominal_time=NOON + 4, status=Status.FAILED, reason=Reason.RETRY, due_at=NOW + 1),
            a_run(nominal_time=NOON + 5, status=Status.ENQUEUED, is_open=0),
            an_end(a_run(nominal_time=NOON + 6)),
        ]
        await written(store, ownership, *under_way, *others)
        assert sorted(await store.in_flight(ownership)) == sorted(under_way)

    # --- settling --------------------------------------------------------------------------------

    async def test_a_turn_is_written_whole(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
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
            first._replace(status=Status.FAILED, result=Result.FAILED, error="no", ended_at=NOW)
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

    async def test_ordinary_starts_and_ends_are_written_beside_all_others(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        jobs = await stored(store, *(a_job(name, failures=4) for name in ("start", "end", "any")))
        start = a_change(jobs[0], cursor=NOON, next_time=NOON + 60, plan_at=NOW + MINUTE, last_start_at=NOW)
        end = a_change(jobs[1], failures=0, last_success_at=NOW)
        other = a_change(jobs[2], paused=1, paused_because="a person", replay_count=2, remaining=3)
        start.scope, end.scope = Scope.START, Scope.END
        start.inserts.append(a_run("start"))
        assert await store.settle(ownership, [start, end, other], now=NOW) == CLEAN
        found = {case.job.identity: case.job for case in await store.cases(SPACE)}
        assert found == {"start": start.job, "end": end.job, "any": other.job}
        settled = await store.settle(ownership, [start, end, other], now=NOW)
        assert settled.changed == {"start", "end", "any"}

    async def test_nothing_to_settle_is_settled(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        assert await store.settle(ownership, [], now=NOW) == CLEAN

    async def test_a_job_that_somebody_else_changed_is_left_alone_and_the_others_are_written(
        self, store: Store
    ) -> None:
        ownership = await store.own(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abc"))
        assert await store.put(SPACE, created=[], changed=[a_change(jobs[1], paused=1)], now=NOW) == CLEAN
        changes = [a_change(job, failures=5) for job in jobs]
        for change in changes:
            change.inserts.append(a_run(change.job.identity))
            change.ranges.append(a_range(change.job.identity, 1, 2))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == Settled(frozenset("b"), frozenset())
        after = {case.job.identity: case for case in await store.cases(SPACE)}
        assert {name: (case.job.failures, len(case.runs)) for name, case in after.items()} == {
            "a": (5, 1),
            "b": (0, 0),
            "c": (5, 1),
        }
        assert after["b"].job.paused == 1
        assert await store.ranges(SPACE, "b") == []

    async def test_a_job_that_is_gone_counts_as_changed(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        gone, kept = await stored(store, a_job("gone"), a_job("kept"))
        await store.forget(SPACE, ["gone"])
        changes = [a_change(gone), a_change(kept)]
        changes[0].inserts.append(a_run("gone"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == Settled(frozenset({"gone"}), frozenset())
        assert await store.runs(SPACE, "gone") == []
        assert [case.job.revision for case in await store.cases(SPACE)] == [2]

    async def test_a_period_that_has_a_record_keeps_it_and_its_job_moves_on(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("a"), a_job("b"))
        ended = an_end(a_run("a"))
        await written(store, ownership, ended)
        cases = {case.job.identity: case.job for case in await store.cases(SPACE)}
        changes = [a_change(cases[name], cursor=NOON) for name in "ab"]
        changes[0].inserts += [a_run("a"), a_run("a", NOON + 60)]
        changes[1].inserts.append(a_run("b"))
        settled = await store.settle(ownership, changes, now=NOW)
        assert settled == Settled(frozenset(), frozenset({ended.key}))
        assert await store.runs(SPACE, "a") == [a_run("a", NOON + 60), ended]
        assert await store.runs(SPACE, "b") == [a_run("b")]
        assert {case.job.cursor for case in await store.cases(SPACE)} == {NOON}

    async def test_a_run_asked_for_stands_beside_the_period_of_its_time(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        period = a_run()
        asked = [
            a_run(kind=kind, key=request_key_of("backup", kind, request))
            for kind in (Kind.MANUAL, Kind.BACKFILL)
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
        earlier = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.own(SPACE, "b")
        change = a_change(job)
        change.inserts.append(a_run())
        await refused(store.settle(earlier, [change], now=NOW))
        assert [case.job for case in await store.cases(SPACE)] == [job]
        assert await store.runs(SPACE, "backup") == []
        assert await store.settle(later, [change], now=NOW) == CLEAN

    async def test_of_racing_turns_one_wins(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        jobs = await stored(store, *map(a_job, "abcd"))
        turns = []
        for failures in range(8):
            changes = [a_change(job, failures=failures) for job in jobs]
            for change in changes:
                change.inserts.append(a_run(change.job.identity, attempt=failures))
            turns.append(store.settle(ownership, changes, now=NOW))
        settled = await asyncio.gather(*turns)
        for name in "abcd":
            winners = [turn for turn, answer in enumerate(settled) if name not in answer.changed]
            assert len(winners) == 1
            (case,) = await store.cases(SPACE, [name])
            assert case.job.failures == winners[0]
            assert [run.attempt for run in case.runs] == winners

    async def test_earlier_attempts_are_kept_oldest_first(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
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
        ownership = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        ranges = [a_range("backup", first, first + 9) for first in (100, 200, 300)]
        change = a_change(job)
        change.ranges += ranges
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.ranges(SPACE, "backup") == ranges[::-1]
        for at, covering in ((199, []), (200, [1]), (205, [1]), (209, [1]), (210, []), (309, [2])):
            assert await store.ranges(SPACE, "backup", at=at) == [ranges[place] for place in covering]

    async def test_runs_are_read_newest_first_and_page_by_page(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(5)]
        await written(store, ownership, *runs)
        assert await store.runs(SPACE, "backup") == runs[::-1]
        assert await store.runs(SPACE, "backup", limit=2) == [runs[4], runs[3]]
        assert await store.runs(SPACE, "backup", before=NOON + 3, limit=2) == [runs[2], runs[1]]
        assert await store.runs(SPACE, "backup", before=NOON) == []

    async def test_thousands_of_jobs_are_one_call(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
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

    # --- history ---------------------------------------------------------------------------------

    async def test_open_runs_are_never_pruned(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        waiting = a_run(nominal_time=NOON, status=Status.PENDING)
        closed = [an_end(a_run(nominal_time=NOON + n)) for n in (1, 2)]
        await written(store, ownership, waiting, *closed)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 1
        assert await keys_of(store, "backup") == {waiting.key, closed[1].key}

    async def test_the_newest_record_of_a_job_is_never_pruned(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job("often"), a_job("once"))
        often = [an_end(a_run("often", NOON + n)) for n in range(3)]
        once = an_end(a_run("once"))
        await written(store, ownership, *often, once)
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 2
        assert await keys_of(store, "often") == {often[2].key}
        assert await keys_of(store, "once") == {once.key}
        assert await store.prune(SPACE, before=NOW + MINUTE, limit=100) == 0

    async def test_what_is_younger_is_not_pruned(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        runs = [an_end(a_run(nominal_time=NOON + n)) for n in range(4)]
        for n, run in enumerate(runs):
            await written(store, ownership, run, now=NOW + n)
        assert await store.prune(SPACE, before=NOW + 2, limit=100) == 2
        assert await keys_of(store, "backup") == {runs[2].key, runs[3].key}

    async def test_a_counted_record_is_pruned_when_a_newer_run_exists(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", NOON - 20, NOON - 10), a_range("backup", NOON + 10, NOON + 20)]
        change.inserts.append(an_end(a_run()))
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.prune(SPACE, before=NOW, limit=100) == 0
        assert await store.prune(SPACE, before=NOW + 1, limit=100) == 1
        assert await store.ranges(SPACE, "backup") == [change.ranges[1]]

    async def test_pruning_is_bounded_and_comes_to_an_end(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.ranges += [a_range("backup", NOON - 20 * n, NOON - 20 * n + 5) for n in range(1, 6)]
        change.inserts += [an_end(a_run(nominal_time=NOON + n)) for n in range(11)]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        removed = [await store.prune(SPACE, before=NOW + 1, limit=4) for _ in range(5)]
        assert removed == [4, 4, 4, 3, 0]
        assert len(await keys_of(store, "backup")) == 1

    async def test_attempts_go_with_their_run(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        await stored(store, a_job())
        old, new = an_end(a_run(attempt=2)), an_end(a_run(nominal_time=NOON + 1, attempt=2))
        earlier = [run._replace(attempt=1) for run in (old, new)]
        await written(store, ownership, old, new, attempts=earlier)
        assert await store.prune(SPACE, before=NOW + 1, limit=10) == 1
        assert await store.attempts(SPACE, old.key) == []
        assert len(await store.attempts(SPACE, new.key)) == 1

    # --- namespaces and ownership ----------------------------------------------------------------

    async def test_namespaces_know_nothing_of_each_other(self, store: Store) -> None:
        here, there = await store.own(SPACE, "a"), await store.own(ELSEWHERE, "b")
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
        assert await store.prune(SPACE, before=NOW + 1, limit=10) == 1
        await store.forget(SPACE, ["backup"])
        assert await store.cases(SPACE) == []
        assert (await store.load(here, until=NOW, limit=10)).cases == []
        (case,) = (await store.load(there, until=NOW, limit=10)).cases
        assert (case.job.failures, len(case.runs)) == (2, 1)
        assert len(await store.runs(ELSEWHERE, "backup")) == 2
        assert len(await store.attempts(ELSEWHERE, key)) == 1
        assert await store.attempts(SPACE, key) == []

    async def test_a_namespace_has_one_owner(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        assert (ownership.namespace, ownership.owner) == (SPACE, "a")
        assert set(ownership.shards) == set(range(SHARDS))
        await refused(store.own(SPACE, "b"))
        assert set((await store.own(ELSEWHERE, "b")).shards) == set(range(SHARDS))

    async def test_what_is_released_can_be_taken_at_once_with_a_higher_token(self, store: Store) -> None:
        tokens = []
        for owner in "abab":
            ownership = await store.own(SPACE, owner)
            tokens.append((min(ownership.shards.values()), ownership.token))
            await store.release(ownership)
        for (_, earlier), (later, _) in pairwise(tokens):
            assert later > earlier

    async def test_of_racing_owners_one_wins(self, store: Store) -> None:
        calls = [store.own(SPACE, f"owner {n}") for n in range(8)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, Ownership) for answer in answers) == 1
        assert sum(isinstance(answer, OwnedError) for answer in answers) == 7

    async def test_what_is_renewed_is_still_owned(self, store: Store) -> None:
        ownership = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        renewed = await store.renew(ownership)
        assert renewed == ownership
        assert await store.settle(renewed, [a_change(job)], now=NOW) == CLEAN

    async def test_a_release_that_comes_too_late_lets_go_of_nothing(self, store: Store) -> None:
        earlier = await store.own(SPACE, "a")
        (job,) = await stored(store, a_job())
        await store.release(earlier)
        later = await store.own(SPACE, "b")
        await store.release(earlier)
        assert await store.settle(later, [a_change(job)], now=NOW) == CLEAN
        await refused(store.own(SPACE, "c"))

    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        await store.own(SPACE, "a")
        await store.close()
        await store.close()
