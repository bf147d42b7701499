# ruff: noqa: D102 - the name of a test is its sentence
"""The registry port: registrations, edits and removals of jobs, and every field of a record."""

import asyncio

from kron.core.job.outcome import Reason
from kron.core.plan.query import PruneBounds, PrunedBatch
from kron.core.plan.record import (
    AttemptRecord,
    JobRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
    request_key_of,
)
from kron.core.plan.step import Change
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
    names_due,
    plain,
    stored,
    written,
)


class RegistrationContract:
    """A registration is committed completely or not at all, and reports what made it stale."""

    async def test_a_store_with_a_clock_of_its_own_shows_its_time(self, store: Store) -> None:
        first = await store.read_clock()
        second = await store.read_clock()
        if first is None or second is None:
            assert first == second, "a store has a clock, or has none"
        else:
            # Years apart from these is no epoch time in milliseconds.
            assert 1_600_000_000_000 < first < 4_000_000_000_000
            assert second - first < 3_600_000

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
            edit = a_change(
                job,
                definition=f'{{"epoch":{epoch}}}',
                epoch=epoch,
                edited_at=NOW + epoch,
                kept_until=NOON + epoch,
            )
            assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
            job = edit.job
        pause = a_change(job, paused=1)
        assert await store.put(SPACE, created=[], changed=[pause], now=NOW) == CLEAN
        assert [tuple(epoch) for epoch in await store.epochs(SPACE, "backup")] == [
            ("backup", 1, NOW - MINUTE, DEFINITION, None),
            ("backup", 2, NOW + 2, '{"epoch":2}', NOON + 2),
        ]
        for newest, kept in ((1, [2]), (2, [1, 2]), (3, [1, 2])):
            assert [known.epoch for known in await store.epochs(SPACE, "backup", newest=newest)] == kept

    async def test_the_earlier_definitions_of_several_jobs_are_one_read(self, store: Store) -> None:
        for job in await stored(store, a_job("a"), a_job("b"), a_job("c")):
            edit = a_change(job, definition='{"epoch":2}', epoch=2, edited_at=NOW + 2)
            assert await store.put(SPACE, created=[], changed=[edit], now=NOW) == CLEAN
        names = [record.identity for record in await store.epochs(SPACE, "c", "a", "unknown")]
        assert (names, await store.epochs(SPACE)) == (["a", "c"], [])

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
# Records that differ from every default.
FULL_JOB = JobRecord(
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
    suspended=1,
    paused=1,
    paused_because="8 failures in a row",
    paused_until=NOW + 16,
    resumed_at=NOW - 9,
    deleted_at=NOW - 10,
    remaining=11,
    failures=12,
    last_start_at=NOW - 13,
    last_success_at=NOW - 14,
    last_failure_at=NOW - 15,
    handled="[[1800000060,1800000120]]",
    profile='{"tags":["nightly"]}',
    applied_set="billing",
    notify='{"to": ["ops"]}',
    kept_until=NOON + 17,
)
FULL_RUN = RunRecord(
    key=key_of("backup", NOON),
    identity="backup",
    nominal_time=NOON,
    fire_time=NOW + 1,
    status=RunStatus.FAILED,
    reason=Reason.RETRY,
    created_at=NOW + 2,
    epoch=3,
    due_at=NOW + 4,
    is_open=1,
    kind=RunKind.BACKFILL,
    attempt=5,
    token=6,
    started_at=NOW + 7,
    ended_at=NOW + 8,
    result=Result.LAUNCH_FAILED,
    error='no "such" \\ thing: 100% für alle {NULL}',
    run_id="run 9",
    acked=1,
)


class RecordContract:
    """Every field of every record is kept, whatever it holds."""

    async def test_a_new_store_is_empty(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        loaded = await store.load(ownership, until=NOW, limit=10)
        assert (list(loaded.cases), loaded.next_at) == ([], None)
        assert await store.cases(SPACE) == []
        assert await store.cases(SPACE, ["unknown"]) == []
        assert await store.runs(SPACE, "unknown") == []
        assert await store.ranges(SPACE, "unknown") == []
        assert await store.epochs(SPACE, "unknown") == []
        assert await store.attempts(SPACE, "no key") == []
        assert await store.in_flight(ownership) == []
        assert await store.prune(SPACE, PruneBounds(before=NOW), limit=10) == PrunedBatch()
        await store.forget(SPACE, ["unknown"])

    async def test_every_field_of_a_job_is_kept(self, store: Store) -> None:
        (found,) = await stored(store, FULL_JOB)
        assert plain(found) == FULL_JOB

    async def test_every_field_of_a_job_can_change(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (before,) = await stored(store, a_job())
        change = Change(FULL_JOB._replace(number=before.number), before.revision)
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        ((found, *_),) = await store.cases(SPACE)
        assert plain(found) == FULL_JOB

    async def test_null_fields_stay_null(self, store: Store) -> None:
        job = a_job(plan_at=None, next_time=None)
        (found,) = await stored(store, job)
        assert plain(found) == job

    async def test_identities_may_have_any_characters(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        jobs = await stored(store, *map(a_job, STRANGE))
        assert [job.identity for job in jobs] == list(STRANGE)
        await written(store, ownership, *map(a_run, STRANGE))
        for name in STRANGE:
            assert [run.identity for run in await store.runs(SPACE, name)] == [name]
            (state,) = await store.cases(SPACE, [name])
            assert [run.identity for run in state.runs] == [name]
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
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, FULL_RUN)
        (found,) = await store.runs(SPACE, "backup")
        assert found == FULL_RUN
        assert isinstance(found.status, RunStatus)
        assert isinstance(found.reason, Reason)
        assert isinstance(found.kind, RunKind)
        assert isinstance(found.result, Result)

    async def test_every_field_of_a_run_that_is_not_fixed_can_change(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        run = a_run(kind=FULL_RUN.kind, created_at=FULL_RUN.created_at)
        await written(store, ownership, run)
        change = a_change(job._replace(revision=job.revision + 1))
        change.updates.append(FULL_RUN)
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.runs(SPACE, "backup") == [FULL_RUN]

    async def test_every_field_of_an_earlier_attempt_is_kept(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, a_run(), attempts=[FULL_RUN])
        (found,) = await store.attempts(SPACE, FULL_RUN.key)
        assert found == AttemptRecord(**{name: getattr(FULL_RUN, name) for name in AttemptRecord._fields})

    def test_no_field_of_the_sample_records_is_left_at_its_default(self) -> None:
        """A field that is added to a record is added here, and so shown to be kept."""
        for record in (FULL_JOB._replace(number=1), FULL_RUN):
            given = record._asdict()
            assert not [name for name, default in record._field_defaults.items() if given[name] == default]

    async def test_every_status_reason_kind_and_result_is_kept(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        values: list[tuple[str, object]] = [
            *(("status", status) for status in RunStatus),
            *(("reason", reason) for reason in Reason),
            *(("kind", kind) for kind in RunKind),
            *(("result", result) for result in Result),
        ]
        runs = [
            a_run(nominal_time=NOON + n)._replace(**{name: value})  # type: ignore[arg-type]
            for n, (name, value) in enumerate(values)
        ]
        await written(store, ownership, *runs)
        assert sorted(await store.runs(SPACE, "backup", limit=1_000)) == sorted(runs)

    async def test_errors_may_hold_characters_that_no_database_stores(self, store: Store) -> None:
        """A failing program says what it likes; that it failed must be written all the same."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, a_run(error="zero \0 and half \ud800 a sign", run_id="\0\udfff"))
        (found,) = await store.runs(SPACE, "backup")
        assert found.error is not None
        assert found.error.startswith("zero ")
        assert found.error.endswith(" a sign")

    async def test_the_reason_of_a_pause_may_hold_any_characters(self, store: Store) -> None:
        (found,) = await stored(store, a_job(paused=1, paused_because="zero \0 and half \ud800 a sign"))
        assert found.paused_because == "zero \ufffd and half ? a sign"
