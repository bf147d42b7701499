"""Launches, their data intervals and their reports: the values that the engine and its launchers exchange."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.plan.compiled import compiled_job, last_at
from kron.core.plan.record import EpochRecord, JobRecord, RunKind, RunRecord, present_definition
from kron.core.time.instant import EpochSeconds, rfc3339

# How many earlier definitions a data interval looks into, the newest, and the most text that they may have.
MAX_EARLIER, MAX_EARLIER_TEXT = 20, 64 << 10


class DataInterval(NamedTuple):
    """The interval `[start, end)`, in seconds."""

    start: EpochSeconds
    end: EpochSeconds

    def to_dict(self) -> dict[str, str]:
        """Return both ends in UTC, by the names that executions know them by."""
        return {"data_interval_start": rfc3339(self.start), "data_interval_end": rfc3339(self.end)}


def data_interval(job: JobRecord, run: RunRecord, earlier: Sequence[EpochRecord] = ()) -> DataInterval:
    """Return the interval of a run; `earlier` are the job's earlier definitions, oldest first.

    It ends with the run's period and starts with the period before it, which may follow an earlier
    definition, so that the intervals of consecutive periods meet. A manual run has that of the latest period
    at its request. A schedule without an earlier period has an empty interval. Of many definitions without
    a period the newest count, and the oldest of these stands for those before it.
    """
    earlier = newest_of(earlier)
    end: EpochSeconds | None = run.nominal_time
    if run.kind is RunKind.MANUAL:
        end = _last_period(job, earlier, run.nominal_time)
    if end is None:
        return DataInterval(run.nominal_time, run.nominal_time)
    start = _last_period(job, earlier, end - 1)
    return DataInterval(end if start is None else start, end)


def newest_of(earlier: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    """Return the newest of a job's earlier definitions, as many as an interval looks into, at least one."""
    room, kept = MAX_EARLIER_TEXT, 0
    for known in earlier[: -MAX_EARLIER - 1 : -1]:
        room -= len(known.definition)
        if kept and room < 0:
            break
        kept += 1
    return earlier[len(earlier) - kept :]


def needs_earlier(job: JobRecord, run: RunRecord) -> bool:
    """Say whether the interval of a run reaches back to an edit, so that earlier definitions matter."""
    return job.epoch > 1 and data_interval(job, run).start <= present_definition(job).since


def _last_period(
    job: JobRecord, earlier: Sequence[EpochRecord], instant: EpochSeconds
) -> EpochSeconds | None:
    """Return the last period at or before an instant, each by the definition it follows.

    The oldest definition is continued to times before its creation.
    """
    if not earlier:
        # Nearly every start.
        compiled = compiled_job(job.definition, job.identity)
        end_at = compiled.policy.end_at
        return last_at(compiled.plan, instant if end_at is None else min(instant, end_at))
    definitions = [*earlier, present_definition(job)]
    for number, known in reversed(list(enumerate(definitions))):
        compiled = compiled_job(known.definition, job.identity)
        policy, since = compiled.policy, known.since
        time = last_at(compiled.plan, instant if policy.end_at is None else min(instant, policy.end_at))
        if number == 0 or (time is not None and time > since and time >= (policy.start_at or time)):
            return time
        instant = min(instant, since)
    raise AssertionError("a job has a definition")


class RunEvent(Choice):
    """An event of one attempt."""

    ACCEPTED = "accepted"
    STARTED = "started"
    SUCCESS = "success"
    FAILED = "failed"
    LAUNCH_FAILED = "launch_failed"
    CANCELLED = "cancelled"
    ORPHANED = "orphaned"


class RunReport(NamedTuple):
    """An event of one attempt of a run, with its time in milliseconds."""

    identity: str
    key: str
    attempt: int
    happened: RunEvent
    at: int
    error: str | None = None
    run_id: str | None = None


# Makes a report of all its fields without counting them, several times as fast.
full_report: Callable[[tuple[str, str, int, RunEvent, int, str | None, str | None]], RunReport] = partial(
    tuple.__new__, RunReport
)


class LeaseStatus(Enum):
    """Whether an owner may start the runs it has recorded.

    HELD: yes. LAPSED: not now, because its lease may have expired; it can still be renewed. LOST: never,
    because another owner has taken over.
    """

    HELD = auto()
    LAPSED = auto()
    LOST = auto()


class Traits(NamedTuple):
    """The traits of a launcher kind that the engine depends on.

    `reports`: the end of an execution is reported. `idempotent`: the same key may be launched again
    without a second effect. `enqueues`: accepted work starts later, in the executor's queue. `remote`:
    only the executor knows whether an execution has ended, and it may never report it.
    """

    reports: bool = True
    idempotent: bool = False
    enqueues: bool = False
    remote: bool = False


class Payload(NamedTuple):
    """The input of a run beside its launcher settings: a JSON document as text, and named values."""

    document: str
    facts: Mapping[str, str]


class Launch(NamedTuple):
    """One execution to start: a job with its launcher settings, a run with its key, attempt and token.

    A launcher that starts it later checks `lease_status` first; None means that the lease cannot be lost.
    `request_id` is the HTTP request that created the run, where known. `earlier` are the job's earlier
    definitions if the run's data interval reaches back to an edit; `interval` is given if the job has no
    schedule.
    """

    job: JobRecord
    run: RunRecord
    payload: Payload | None = None
    lease_status: Callable[[], LeaseStatus] | None = None
    request_id: str | None = None
    earlier: Sequence[EpochRecord] = ()
    interval: DataInterval | None = None

    @property
    def data_interval(self) -> DataInterval:
        """Return the stretch of time the execution is responsible for; computed only where it is used."""
        return self.interval or data_interval(self.job, self.run, self.earlier)


def launch_of(
    job: JobRecord,
    run: RunRecord,
    lease_status: Callable[[], LeaseStatus] | None,
    earlier: Sequence[EpochRecord],
) -> Launch:
    """Return the launch of a job's run; made without counting its fields, because every start needs one."""
    return tuple.__new__(Launch, (job, run, None, lease_status, None, earlier, None))
