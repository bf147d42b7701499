"""Sample records and helpers that all parts of the contract share."""

import json
from collections.abc import Awaitable, Sequence

from kron.core.errors import OwnedError
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.plan import plan
from kron.core.plan.record import AuditRecord, JobRecord, RangeRecord, Result, RunRecord, RunStatus, key_of
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import Change, JobState, Ownership, Snapshot, WriteResult
from kron.ports import Store

# An instant in milliseconds, and the same in seconds.
NOW, NOON = 1_800_000_000_000, 1_800_000_000
MINUTE = 60_000
SPACE, ELSEWHERE = "embed:main", "embed:other"
DEFINITION = '{"schedule":"* * * * *","timezone":"UTC"}'
CLEAN = WriteResult(frozenset(), frozenset())


def a_job(identity: str = "backup", *, plan_at: int | None = NOW, **fields: object) -> JobRecord:
    """Return a job that is new and due."""
    job = JobRecord(
        identity, DEFINITION, "{}", "callback", 1, NOW - MINUTE, NOW - MINUTE, 1, NOON - 60, NOON, plan_at
    )
    return job._replace(**fields)  # type: ignore[arg-type]


def a_run(identity: str = "backup", nominal_time: int = NOON, **fields: object) -> RunRecord:
    """Return a period whose run is executing."""
    run = RunRecord(
        key_of(identity, nominal_time),
        identity,
        nominal_time,
        1000 * nominal_time,
        RunStatus.STARTED,
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
    """Return the run after its success."""
    return run._replace(
        status=RunStatus.SUCCESS, ended_at=NOW + 5, result=Result.SUCCESS, is_open=0, due_at=None, acked=1
    )


def a_range(identity: str, first: int, last: int) -> RangeRecord:
    """Return an aggregated record of missed periods."""
    return RangeRecord(identity, first, last, 7, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW)


def an_entry(identity: str = "backup", **changes: object) -> AuditRecord:
    """Return the audit record of a change."""
    after = json.dumps({"paused": True})
    record = AuditRecord(NOW, "ann", "request-1", "pause", identity, "ann", None, after)
    return AuditRecord(**{**record._asdict(), **changes})


def a_change(job: JobRecord, **fields: object) -> Change:
    """Return a change that raises a job's revision by one."""
    return Change(job._replace(revision=job.revision + 1, **fields), job.revision)  # type: ignore[arg-type]


def cohort_of(jobs: Sequence[JobRecord]) -> list[Change]:
    """Return the starts of jobs that are due together, each with another fencing token."""
    states = [JobState(job, token=token) for token, job in enumerate(jobs, start=1)]
    changes, _ = plan(Snapshot(states, NOW, 1, {}), NOW)
    assert all(change.cohort is changes[0].cohort is not None for change in changes)
    return changes


def ends_of(started: Sequence[Change], error: str | None = None, run_id: str | None = None) -> list[Change]:
    """Return the successes of runs that just started."""
    states = []
    for change in started:
        (run,) = change.starts
        report = RunReport(run.identity, run.key, run.attempt, RunEvent.SUCCESS, NOW + 5, error, run_id)
        states.append(JobState(change.job, [run], [report]))
    return plan(Snapshot(states, NOW, 1, {}), NOW)[0]


def plain(job: JobRecord) -> JobRecord:
    """Return a job without the store's internal number."""
    return job._replace(number=0)


async def stored(store: Store, *jobs: JobRecord, namespace: str = SPACE) -> list[JobRecord]:
    """Write new jobs and return them as stored, in the same order."""
    assert await store.put(namespace, created=jobs, changed=[], now=NOW) == CLEAN
    found = {state.job.identity: state.job for state in await store.cases(namespace)}
    return [found[job.identity] for job in jobs]


async def written(
    store: Store, ownership: Ownership, *runs: RunRecord, attempts: Sequence[RunRecord] = (), now: int = NOW
) -> None:
    """Insert runs of stored jobs."""
    jobs = {state.job.identity: state.job for state in await store.cases(ownership.namespace)}
    for run in runs:
        change = a_change(jobs[run.identity])
        change.inserts.append(run)
        change.attempts += [attempt for attempt in attempts if attempt.key == run.key]
        assert await store.settle(ownership, [change], now=now) == CLEAN
        jobs[run.identity] = change.job


async def refused(call: Awaitable[object]) -> None:
    """Check that a call raises OwnedError."""
    try:
        await call
    except OwnedError:
        return
    raise AssertionError("another owner has the lease, and the call went through")


async def names_due(store: Store, ownership: Ownership, *, until: int = NOW, limit: int = 100) -> list[str]:
    """Return the names of the due jobs."""
    loaded = await store.load(ownership, until=until, limit=limit)
    return [state.job.identity for state in loaded.cases]


async def keys_of(store: Store, identity: str, namespace: str = SPACE) -> set[str]:
    """Return the keys of all runs of a job."""
    return {run.key for run in await store.runs(namespace, identity, limit=10_000)}
