"""Events: what launchers report of executions, and owners of what they took over."""

from enum import Enum, auto
from typing import NamedTuple

from kron.core.choice import Choice


class RunEvent(Choice):
    """What became of one attempt."""

    ACCEPTED = "accepted"
    STARTED = "started"
    SUCCESS = "success"
    FAILED = "failed"
    LAUNCH_FAILED = "launch_failed"
    CANCELLED = "cancelled"
    ORPHANED = "orphaned"


class RunReport(NamedTuple):
    """What happened to one attempt of one run, and when, in milliseconds."""

    identity: str
    key: str
    attempt: int
    happened: RunEvent
    at: int
    error: str | None = None
    run_id: str | None = None


class LeaseStatus(Enum):
    """Whether an owner may still begin what it has on record.

    HELD: yes. LAPSED: not now, for its lease may have ended; it may be renewed yet. LOST: never more, for
    somebody else looks after it, or has done so since.
    """

    HELD = auto()
    LAPSED = auto()
    LOST = auto()


class Traits(NamedTuple):
    """What the engine must know of a kind of launcher.

    `reports`: the end of an execution becomes known. `idempotent`: the same key may be launched
    again without a second effect. `enqueues`: accepted work starts later, by itself. `remote`: only
    who executes it can say that an execution has ended, and may never do so.
    """

    reports: bool = True
    idempotent: bool = False
    enqueues: bool = False
    remote: bool = False
