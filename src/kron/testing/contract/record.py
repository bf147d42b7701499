# ruff: noqa: D102 - the name of a test is its sentence
"""What goes in comes out."""

from kron.core.job.outcome import Reason
from kron.core.plan.query import PruneBounds, PrunedBatch
from kron.core.plan.record import AttemptRecord, JobRecord, Result, RunKind, RunRecord, RunStatus, key_of
from kron.core.plan.step import Change
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    names_due,
    plain,
    stored,
    written,
)

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
        assert await store.cases(SPACE, ["nobody"]) == []
        assert await store.runs(SPACE, "nobody") == []
        assert await store.ranges(SPACE, "nobody") == []
        assert await store.epochs(SPACE, "nobody") == []
        assert await store.attempts(SPACE, "no key") == []
        assert await store.in_flight(ownership) == []
        assert await store.prune(SPACE, PruneBounds(before=NOW), limit=10) == PrunedBatch()
        await store.forget(SPACE, ["nobody"])

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

    async def test_what_is_absent_stays_absent(self, store: Store) -> None:
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

    async def test_errors_may_hold_what_no_text_should(self, store: Store) -> None:
        """A failing program says what it likes; that it failed must be written all the same."""
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await written(store, ownership, a_run(error="zero \0 and half \ud800 a sign", run_id="\0\udfff"))
        (found,) = await store.runs(SPACE, "backup")
        assert found.error is not None
        assert found.error.startswith("zero ")
        assert found.error.endswith(" a sign")

    async def test_the_reason_of_a_pause_may_hold_what_no_text_should(self, store: Store) -> None:
        (found,) = await stored(store, a_job(paused=1, paused_because="zero \0 and half \ud800 a sign"))
        assert found.paused_because == "zero \ufffd and half ? a sign"
