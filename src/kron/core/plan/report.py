"""Run reports from launchers, lease status, and launcher traits."""

from enum import Enum, auto
from typing import NamedTuple

from kron.core.choice import Choice


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
