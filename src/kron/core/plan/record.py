"""Records: what is remembered of a job and of its periods, in the order of the store's columns.

They are plain tuples of texts and integers, because a busy minute makes a hundred thousand of them.
Times that end in `_at` and `fire_time` are milliseconds since 1970; nominal times are seconds.
"""

from hashlib import sha256
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.job.outcome import Outcome, Reason
from kron.core.time.instant import EpochSeconds


class RunStatus(Choice):
    """Where a run is (DESIGN 7)."""

    PENDING = "PENDING"
    ENQUEUED = "ENQUEUED"
    STARTED = "STARTED"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    CANCELLED = "CANCELLED"


class Result(Choice):
    """How an execution ended."""

    SUCCESS = "success"
    FAILED = "failed"
    LAUNCH_FAILED = "launch_failed"
    LOST = "lost"
    ORPHANED = "orphaned"
    REPLACED = "replaced"
    CANCELLED = "cancelled"


class RunKind(Choice):
    """What a run was made for: a period, a person's wish, or what a new expression owes at once."""

    PERIOD = "period"
    MANUAL = "manual"
    BACKFILL = "backfill"
    OVERRIDE = "override"


IN_FLIGHT = frozenset({RunStatus.ENQUEUED, RunStatus.STARTED})
EXECUTED = IN_FLIGHT | {RunStatus.SUCCESS, RunStatus.FAILED}
OUTCOME_OF = dict.fromkeys(EXECUTED, Outcome.EXECUTED) | {
    RunStatus.SKIPPED: Outcome.SKIPPED,
    RunStatus.MISSED: Outcome.MISSED,
    RunStatus.UNSCHEDULABLE: Outcome.UNSCHEDULABLE,
}


class JobRecord(NamedTuple):
    """What is remembered of one job. All periods up to `cursor` have a record of their own or share one.

    `plan_at` is when the next period has to be looked at; None while there is nothing to plan. A
    replay of missed periods goes on until `replay_until`. `past` names earlier definitions whose last
    periods are not planned yet.
    """

    identity: str
    definition: str
    launcher: str
    launcher_kind: str
    epoch: int
    edited_at: int
    born_at: int
    revision: int
    cursor: EpochSeconds
    next_time: EpochSeconds | None
    plan_at: int | None
    past: str | None = None
    replay_until: EpochSeconds | None = None
    replay_at: int | None = None
    replay_count: int = 0
    paused: int = 0
    paused_because: str | None = None
    resumed_at: int | None = None
    deleted_at: int | None = None
    remaining: int | None = None
    failures: int = 0
    last_start_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    # The store's own name for the job; 0 where it has none.
    number: int = 0


class RunRecord(NamedTuple):
    """One period of a job, or one run asked for, with its latest attempt.

    `due_at` is when it must be looked at again by itself; `is_open` says that something is still to
    come: its start, its end, or a retry.
    """

    key: str
    identity: str
    nominal_time: EpochSeconds
    fire_time: int
    status: RunStatus
    reason: Reason
    created_at: int
    epoch: int
    due_at: int | None = None
    is_open: int = 0
    kind: RunKind = RunKind.PERIOD
    attempt: int = 0
    token: int = 0
    started_at: int | None = None
    ended_at: int | None = None
    result: Result | None = None
    error: str | None = None
    run_id: str | None = None
    acked: int = 0

    @property
    def in_flight(self) -> bool:
        """Say whether an execution may be under way."""
        return self.is_open == 1 and self.status in IN_FLIGHT

    @property
    def outcome(self) -> Outcome | None:
        """Return how the period ended, or None while that is open."""
        if self.status is RunStatus.CANCELLED:
            return Outcome.SKIPPED if self.started_at is None else Outcome.EXECUTED
        return OUTCOME_OF.get(self.status)


class RangeRecord(NamedTuple):
    """Periods of one definition that were dropped together for one reason: first, last, and how many."""

    identity: str
    first: EpochSeconds
    last: EpochSeconds
    periods: int
    outcome: Outcome
    reason: Reason
    epoch: int
    created_at: int


class EpochRecord(NamedTuple):
    """An earlier definition of a job, and when it began to hold."""

    identity: str
    epoch: int
    edited_at: int
    definition: str


class AttemptRecord(NamedTuple):
    """An earlier attempt of a run that was started again."""

    key: str
    attempt: int
    token: int
    started_at: int | None
    ended_at: int | None
    result: Result | None
    error: str | None
    run_id: str | None


def slot_of(run: RunRecord) -> int:
    """Return what tells runs of one nominal time apart: 0 is the period's own, any other was asked for."""
    return 0 if run.kind is RunKind.PERIOD else 1 + int(run.key[:15], 16)


def key_of(identity: str, nominal_time: EpochSeconds) -> str:
    """Return a period's idempotency key (SPEC 3: 7)."""
    return sha256(f"{identity}:{nominal_time}".encode()).hexdigest()


def request_key_of(identity: str, kind: RunKind, request: str) -> str:
    """Return the idempotency key of a run somebody asked for."""
    return sha256(f"{identity}:{kind}:{request}".encode()).hexdigest()


class AuditRecord(NamedTuple):
    """A change that somebody made: when, who, by which request, what they did, to what, and whose that is.

    `before` and `after` are JSON texts without secrets, or None where there was nothing, or is nothing left.
    """

    at: int
    who: str
    request_id: str | None
    action: str
    identity: str
    user_id: str | None
    before: str | None
    after: str | None
