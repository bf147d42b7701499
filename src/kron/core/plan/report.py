"""Launches and their reports: the values that the engine and its launchers exchange."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.plan.data_interval import DataInterval, data_interval
from kron.core.plan.record import EpochRecord, JobRecord, RunRecord


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
