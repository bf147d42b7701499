"""The catalog: one write loop under every verb, against writers that are faster, on every store."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kron.app.backfill import Only, PeriodRange
from kron.app.catalog import (
    MAX_TRIES,
    Catalog,
    JobDefinition,
    NoWrite,
    TooManyRunsError,
    Write,
)
from kron.core.cron.schedule import Schedule
from kron.core.errors import BusyError, ConflictError, InvalidOptionError, UnknownJobError, UnknownRunError
from kron.core.job.job import Job
from kron.core.plan.record import JobRecord, RunKind, RunStatus
from kron.core.plan.registration import request_run
from kron.core.plan.report import RunEvent, Traits
from kron.core.plan.step import MAX_OPEN_RUNS, Change, JobState, WriteResult
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from tests.engine_case import MINUTE, NOON

SPACE = "test"
JOB = Job.from_dict({"identity": "job", "schedule": "* * * * *", "policy": {"deadline": None}})
HOURLY = Job(identity="job", schedule=Schedule("0 * * * *"))
REMOTE = {"remote": Traits(enqueues=True, remote=True), "callback": Traits()}


class Rig:
    """A catalog over a store, its time, and how often it woke an engine."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1000 * NOON + 1
        self.wakes = 0
        self.due_at: int | None = 0
        self.catalog = Catalog(store, SPACE, now=lambda: self.now, wake=self._wake, traits=REMOTE)

    def _wake(self, at: int | None) -> None:
        self.wakes += 1
        self.due_at = at

    async def record(self, identity: str = "job") -> JobRecord:
        (state,) = await self.store.cases(SPACE, [identity])
        return state.job

    async def touch(self) -> None:
        """Change the job as another writer would: its revision rises, and nothing else."""
        job = await self.record()
        change = Change(job._replace(revision=job.revision + 1), job.revision)
        result = await self.store.put(SPACE, created=[], changed=[change], now=self.now)
        assert not result.stale_jobs


@pytest.fixture
async def rig(store: Store) -> Rig:
    return Rig(store)


async def write_against(
    rig: Rig, rival: Callable[[], Awaitable[object]], *, times: int
) -> tuple[JobRecord, int]:
    """Pause the job while a rival writes between the read and the commit, so many times; return the tries."""
    tries = 0

    async def read() -> JobState:
        nonlocal tries
        state = await rig.catalog.query.state("job")
        if tries < times:
            await rival()
        tries += 1
        return state

    def decide(state: JobState, now: int) -> Write[JobRecord]:
        job = state.job._replace(paused=1, revision=state.job.revision + 1)
        return Write(result=job, changed=[Change(job, state.job.revision)])

    return await rig.catalog.write(read, decide), tries


# --- the loop --------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [0, 1, 5])
async def test_a_write_starts_over_when_another_writer_was_faster(rig: Rig, times: int) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    _, tries = await write_against(rig, rig.touch, times=times)
    record = await rig.record()
    assert (tries, record.paused, record.revision) == (times + 1, 1, times + 2)


async def test_a_writer_that_is_always_faster_makes_it_busy(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    with pytest.raises(BusyError, match="Other writers keep changing job: try again") as caught:
        await write_against(rig, rig.touch, times=1_000)
    assert caught.value.details == {"identities": ["job"]}
    record = await rig.record()
    assert (record.paused, record.revision) == (0, 1 + MAX_TRIES)


async def test_an_engine_is_woken_once_after_a_commit_and_not_without(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    await write_against(rig, rig.touch, times=3)
    assert rig.wakes == 2
    assert (
        await rig.catalog.write(lambda: rig.store.cases(SPACE), lambda states, _: NoWrite(len(states))) == 1
    )
    with pytest.raises(BusyError):
        await write_against(rig, rig.touch, times=1_000)
    assert rig.wakes == 2


async def test_an_engine_need_not_wake_before_the_first_new_job_is_due(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB), JobDefinition(replace(HOURLY, identity="hourly"))])
    job, hourly = await rig.record(), await rig.record("hourly")
    assert job.plan_at != hourly.plan_at
    assert rig.due_at == min(job.plan_at or 0, hourly.plan_at or 0) > rig.now
    for change in (rig.catalog.upsert([JobDefinition(HOURLY)]), rig.catalog.run_now("job", "request")):
        rig.due_at = 0
        await change
        # Their runs may be due, and may have to be ended.
        assert rig.due_at is None


async def test_racing_writers_all_get_their_runs(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    runs = await asyncio.gather(*(rig.catalog.run_now("job", f"request {n % 4}") for n in range(8)))
    assert len({run.key for run in runs}) == 4
    assert (await rig.record()).revision == 5


async def test_many_writers_of_one_job_at_once_are_all_served(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    count = 3 * MAX_TRIES
    requests = (rig.catalog.run_now("job", f"request {n}") for n in range(count))
    answers = await asyncio.gather(*requests, return_exceptions=True)
    assert [answer for answer in answers if isinstance(answer, BaseException)] == []
    assert (await rig.record()).revision == 1 + count


async def test_a_definition_that_changes_only_the_pause_is_written(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    for paused, expected in ((None, 0), (True, 1), (None, 1), (True, 1), (False, 0)):
        (record,) = await rig.catalog.upsert([JobDefinition(JOB, paused=paused)])
        assert record.paused == (await rig.record()).paused == expected
    # A repeated pause, and none, write nothing.
    assert (await rig.record()).revision == 3


class Hiding(SqliteStore):
    """A store in which one job belongs to another tenant: it exists, and cannot be read."""

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        states = await super().cases(namespace, identities)
        return [state for state in states if state.job.identity != "job"]


async def test_a_name_that_exists_and_cannot_be_seen_is_refused_at_once() -> None:
    rig = Rig(Hiding())
    await rig.catalog.upsert([JobDefinition(JOB)])
    with pytest.raises(ConflictError, match='The name "job" is taken') as caught:
        await rig.catalog.upsert([JobDefinition(HOURLY)])
    assert not isinstance(caught.value, BusyError)


async def test_a_job_created_meanwhile_is_edited() -> None:
    class Late(SqliteStore):
        first = True

        async def put(self, namespace: str, **writes: Any) -> WriteResult:
            if self.first:
                self.first = False
                await Rig(self).catalog.upsert([JobDefinition(HOURLY)])
            return await super().put(namespace, **writes)

    rig = Rig(Late())
    (job,) = await rig.catalog.upsert([JobDefinition(JOB)])
    assert (job.epoch, await rig.record()) == (2, job._replace(number=1))


# --- definitions -----------------------------------------------------------------------------------


async def test_an_upsert_creates_edits_and_deletes_at_once(rig: Rig) -> None:
    other = Job(identity="other", schedule=Schedule("@daily"))
    await rig.catalog.upsert([JobDefinition(JOB), JobDefinition(other)])
    new = Job(identity="new", schedule=Schedule("@daily"))
    jobs = await rig.catalog.upsert([JobDefinition(new), JobDefinition(HOURLY)], deleted=["other", "nothing"])
    assert [(job.identity, job.epoch) for job in jobs] == [("new", 1), ("job", 2)]
    assert (await rig.record("other")).deleted_at == rig.now


async def test_an_upsert_that_changes_nothing_writes_nothing(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    await rig.catalog.pause("job")
    before, wakes = await rig.record(), rig.wakes
    rig.now += MINUTE
    for paused in (None, True):
        (job,) = await rig.catalog.upsert([JobDefinition(JOB, paused=paused)])
        assert job == before
    assert (await rig.record(), rig.wakes) == (before, wakes)


async def test_a_deleted_job_that_is_defined_again_is_new(rig: Rig) -> None:
    """It is not paused, and runs as often as its policy says, however often it ran before."""
    fields = {"schedule": "* * * * *", "policy": {"remaining": 3}}
    definition = JobDefinition(Job.from_dict({"identity": "job", **fields}))
    await rig.catalog.upsert([definition])
    job = await rig.record()
    spent = Change(job._replace(remaining=0, failures=7, revision=job.revision + 1), job.revision)
    await rig.store.put(SPACE, created=[], changed=[spent], now=rig.now)
    await rig.catalog.pause("job")
    await rig.catalog.delete("job")
    rig.now += 10 * MINUTE
    (again,) = await rig.catalog.upsert([definition])
    assert (again.paused, again.remaining, again.failures, again.deleted_at) == (0, 3, 0, None)
    assert again.next_time == NOON + 660


@pytest.mark.parametrize("paused", [True, False])
async def test_an_edit_and_a_pause_are_one_change(rig: Rig, paused: bool) -> None:
    await rig.catalog.upsert([JobDefinition(JOB, paused=not paused)])
    (job,) = await rig.catalog.upsert([JobDefinition(HOURLY, paused=paused)])
    assert (job.paused, job.epoch, job.revision, job.plan_at is None) == (paused, 2, 2, paused)
    assert await rig.record() == job._replace(number=(await rig.record()).number)


async def test_a_paused_job_keeps_the_reason_of_its_pause(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    await rig.catalog.pause("job", because="5 failures in a row")
    assert (await rig.catalog.pause("job", because="by hand")).paused_because == "5 failures in a row"
    resumed = await rig.catalog.resume("job")
    assert (resumed.job.paused, resumed.job.paused_because) == (0, None)
    assert (await rig.catalog.resume("job")).job.revision == resumed.job.revision


async def test_a_precondition_is_checked_against_the_record_that_is_written(rig: Rig) -> None:
    seen: list[int | None] = []

    def expect(job: JobRecord | None) -> None:
        seen.append(None if job is None else job.revision)
        if len(seen) == 2:
            raise InvalidOptionError(option="if_match", value=seen, reason="is another")

    await rig.catalog.upsert([JobDefinition(JOB)], expect=expect)
    for verb in (rig.catalog.delete, rig.catalog.pause, rig.catalog.resume):
        with pytest.raises(InvalidOptionError):
            await verb("job", expect=expect)
        assert seen == [None, 1]
        seen.pop()


async def test_a_precondition_on_a_new_job_holds_again_once_it_is_deleted(rig: Rig) -> None:
    seen: list[JobRecord | None] = []
    await rig.catalog.upsert([JobDefinition(JOB)], expect=seen.append)
    await rig.catalog.delete("job")
    (job,) = await rig.catalog.upsert([JobDefinition(JOB)], expect=seen.append)
    assert seen == [None, None]
    assert (job.epoch, job.deleted_at) == (2, None)


@pytest.mark.parametrize("identity", ["nothing", "", "a\0b", "a\nb", "\ud800", "deleted"])
async def test_no_verb_finds_a_job_that_does_not_exist(rig: Rig, identity: str) -> None:
    await rig.catalog.upsert([JobDefinition(Job(identity="deleted", schedule=Schedule("@daily")))])
    await rig.catalog.delete("deleted")
    wanted = PeriodRange(start=NOON, end=NOON + 60)
    for verb in (
        rig.catalog.pause(identity),
        rig.catalog.resume(identity),
        rig.catalog.delete(identity),
        rig.catalog.run_now(identity, "request"),
        rig.catalog.backfill(identity, wanted, "request"),
    ):
        with pytest.raises(UnknownJobError):
            await verb


# --- runs ------------------------------------------------------------------------------------------


async def test_the_same_request_is_one_run_also_after_the_job_is_deleted(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    run = await rig.catalog.run_now("job", "request")
    assert (run.kind, run.status) == (RunKind.MANUAL, RunStatus.PENDING)
    assert (await rig.catalog.run_now("job", "request")).key == run.key
    await rig.catalog.delete("job")
    assert (await rig.catalog.run_now("job", "request")).key == run.key


async def test_no_run_is_requested_behind_thousands_of_open_ones(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    job = await rig.record()
    open_runs = [
        request_run(job, request=f"r{number}", now=1000 * NOON).inserts[0] for number in range(MAX_OPEN_RUNS)
    ]
    change = Change(job._replace(revision=job.revision + 1), job.revision, inserts=open_runs[1:])
    assert not (await rig.store.put(SPACE, created=[], changed=[change], now=rig.now)).stale_jobs
    with pytest.raises(TooManyRunsError, match="1999 open runs"):
        await rig.catalog.backfill("job", PeriodRange(start=NOON - 300, end=NOON), "more")
    # A request that was carried out before is not refused, and neither is the last one that has room.
    await rig.catalog.run_now("job", "r0")
    await rig.catalog.run_now("job", "r1")
    with pytest.raises(TooManyRunsError, match="2000 open runs"):
        await rig.catalog.run_now("job", "another")


async def test_a_backfill_is_written_once_and_a_dry_run_not_at_all(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB)])
    wanted = PeriodRange(start=NOON - 300, end=NOON + 120, only=Only.ALL)
    dry = await rig.catalog.backfill("job", wanted, "request", dry_run=True)
    done = await rig.catalog.backfill("job", wanted, "request")
    assert [run.key for run in dry.runs] == [run.key for run in done.runs]
    assert (len(done.runs), done.already_requested, done.undecided) == (6, 0, 1)
    assert len(await rig.store.runs(SPACE, "job")) == 6
    later = PeriodRange(start=NOON - 300, end=NOON + 60)
    assert (await rig.catalog.backfill("job", later, "request")).runs == []


async def test_feedback_moves_a_run_once(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB, kind="remote")])
    job = await rig.record()
    change = request_run(job, request="request", now=rig.now)
    key = change.inserts[0].key
    sent = change.inserts[0]._replace(status=RunStatus.ENQUEUED, attempt=1, started_at=rig.now, due_at=None)
    change.inserts = [sent]
    await rig.store.put(SPACE, created=[], changed=[change], now=rig.now)
    rig.now += 5
    assert (await rig.catalog.feedback(key, RunEvent.STARTED, run_id="17")).status is RunStatus.STARTED
    late = await rig.catalog.feedback(key, RunEvent.FAILED, attempt=7)
    assert (late.status, late.run_id) == (RunStatus.STARTED, "17")
    ended = await rig.catalog.feedback(key, RunEvent.SUCCESS)
    assert (ended.status, ended.ended_at) == (RunStatus.SUCCESS, rig.now)
    revision = (await rig.record()).revision
    assert (await rig.catalog.feedback(key, RunEvent.FAILED)).status is RunStatus.SUCCESS
    assert (await rig.record()).revision == revision


async def test_feedback_without_an_attempt_concerns_the_latest_one(rig: Rig) -> None:
    await rig.catalog.upsert([JobDefinition(JOB, kind="remote")])
    change = request_run(await rig.record(), request="request", now=rig.now)
    retried = change.inserts[0]._replace(
        status=RunStatus.ENQUEUED, attempt=2, started_at=rig.now, due_at=None
    )
    change.inserts = [retried]
    await rig.store.put(SPACE, created=[], changed=[change], now=rig.now)
    rig.now += 5
    assert (await rig.catalog.feedback(retried.key, RunEvent.FAILED, attempt=1)).status is RunStatus.ENQUEUED
    assert (await rig.catalog.feedback(retried.key, RunEvent.SUCCESS)).status is RunStatus.SUCCESS


async def test_feedback_is_refused_where_no_executor_reports(rig: Rig) -> None:
    with pytest.raises(UnknownRunError):
        await rig.catalog.feedback("0" * 64, RunEvent.SUCCESS)
    await rig.catalog.upsert([JobDefinition(JOB)])
    run = await rig.catalog.run_now("job", "request")
    with pytest.raises(ConflictError, match="The worker of this run records its end"):
        await rig.catalog.feedback(run.key, RunEvent.SUCCESS)
