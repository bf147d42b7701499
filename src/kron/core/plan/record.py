"""Records: the stored state of a job, of its runs and of its history.

They are plain tuples of texts and integers, because a busy minute makes a hundred thousand of them. Stores
derive columns, statements and converters from the names and types of their fields. Fields that end in `_at`,
and `fire_time`, are milliseconds since 1970; nominal times are seconds.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from operator import itemgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from kron.core.choice import Choice
from kron.core.job.outcome import Outcome, Reason
from kron.core.time.instant import EpochSeconds

# A text written by people or by other programs. Stores replace the characters that no database holds.
ExternalText: TypeAlias = Annotated[str, "external"]


class RunStatus(Choice):
    """The state of a run."""

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
    """The origin of a run: a period, a manual start, a backfill, an edit that makes it due, or a boot."""

    PERIOD = "period"
    MANUAL = "manual"
    BACKFILL = "backfill"
    OVERRIDE = "override"
    BOOT = "boot"


IN_FLIGHT = frozenset({RunStatus.ENQUEUED, RunStatus.STARTED})
EXECUTED = IN_FLIGHT | {RunStatus.SUCCESS, RunStatus.FAILED}
OUTCOME_OF = dict.fromkeys(EXECUTED, Outcome.EXECUTED) | {
    RunStatus.SKIPPED: Outcome.SKIPPED,
    RunStatus.MISSED: Outcome.MISSED,
    RunStatus.UNSCHEDULABLE: Outcome.UNSCHEDULABLE,
}


class JobRecord(NamedTuple):
    """The state of one job. Every period up to `cursor` is covered by a run or a range record.

    `plan_at` is when the next period is planned, or a pause ends; None if there is neither. Missed periods
    are replayed up to `replay_until`. `past` lists earlier definitions whose last periods are not planned
    yet. `suspended` is the definition's `policy.suspend`; a person pauses and resumes, until `paused_until`
    if that is set. `handled` are intervals of nominal times after the cursor that were handled while the
    clock was ahead. `profile` is the part of the definition that changes no decision; `applied_set` names the
    set of definitions that was applied with this one. `notify` is the definition's field of that
    name, as JSON; without it the default of the front holds. `kept_until` is the last period after the latest
    edit that still follows an earlier definition; None if there is none.
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
    suspended: int = 0
    paused: int = 0
    paused_because: ExternalText | None = None
    paused_until: int | None = None
    resumed_at: int | None = None
    deleted_at: int | None = None
    remaining: int | None = None
    failures: int = 0
    last_start_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    handled: str | None = None
    profile: str | None = None
    applied_set: str | None = None
    notify: str | None = None
    kept_until: EpochSeconds | None = None
    # The store's internal id of the job; 0 where it has none.
    number: int = 0

    @property
    def is_stopped(self) -> bool:
        """Say whether no period is triggered: the definition suspends the job, or a person paused it."""
        return bool(self.suspended or self.paused)

    @property
    def pause_ends_at(self) -> int | None:
        """Return when the pause of a job ends without a person; None if it does not."""
        return self.paused_until if self.paused and self.deleted_at is None else None

    @property
    def text_size(self) -> int:
        """Return how many characters its definitions have: nearly all the memory that a large job takes."""
        size = len(self.definition) + len(self.launcher)
        if self.profile or self.past or self.notify or self.handled:
            size += sum(len(text or "") for text in (self.profile, self.past, self.notify, self.handled))
        return size


class RunRecord(NamedTuple):
    """One period of a job, or one manual run, with its latest attempt.

    `due_at` is when the engine handles it next without a report; `is_open` is 1 until its last attempt ends.
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
    error: ExternalText | None = None
    run_id: ExternalText | None = None
    acked: int = 0

    @property
    def in_flight(self) -> bool:
        """Return whether an execution may be running."""
        return self.is_open == 1 and self.status in IN_FLIGHT

    @property
    def waits_for_retry(self) -> bool:
        """Return whether the last attempt failed and another one follows."""
        return self.is_open == 1 and self.status is RunStatus.FAILED

    @property
    def is_manual(self) -> bool:
        """Return whether a person requested this start: neither a pause nor a suspend holds it."""
        return self.kind is RunKind.MANUAL and self.status is RunStatus.PENDING

    @property
    def outcome(self) -> Outcome | None:
        """Return the period's outcome, or None while it is open."""
        if self.status is RunStatus.CANCELLED:
            return Outcome.SKIPPED if self.started_at is None else Outcome.EXECUTED
        return OUTCOME_OF.get(self.status)


class RangeRecord(NamedTuple):
    """Consecutive periods of one definition with one outcome and reason: first, last, and their number."""

    identity: str
    first: EpochSeconds
    last: EpochSeconds
    periods: int
    outcome: Outcome
    reason: Reason
    epoch: int
    created_at: int


class ReopenedRecord(NamedTuple):
    """Periods that were dropped while the clock was ahead, and are open again since `reopened_at`.

    The other fields are those of the record that was withdrawn.
    """

    identity: str
    first: EpochSeconds
    last: EpochSeconds
    periods: int
    outcome: Outcome
    reason: Reason
    epoch: int
    created_at: int
    reopened_at: int


class ClockEvent(Choice):
    """What a clock did: it fell behind the latest recorded instant, or was set forward by more than a day."""

    BEHIND = "behind"
    FORWARD = "forward"


class ClockEnding(Choice):
    """How an excursion ended: the records were corrected, or the clock moved again before it was steady."""

    CORRECTED = "corrected"
    MOVED = "moved"


class ClockRecord(NamedTuple):
    """One excursion of the host's clock, as one worker found it.

    `found_at` is the wall clock when it was noticed, `reference` the instant it is compared with: the latest
    recorded one, or, for a step forward, the time it would have shown. `reopened` counts the periods that
    its correction opened again.
    """

    event: ClockEvent
    found_at: int
    owner: str
    reference: int
    ended_at: int | None = None
    ending: ClockEnding | None = None
    reopened: int = 0

    @property
    def by_ms(self) -> int:
        """Return how far the clock was from the instant it is compared with."""
        return abs(self.reference - self.found_at)


class IncidentKind(Choice):
    """What explains periods beside their own records."""

    PAUSED = "paused"
    SUSPENDED = "suspended"
    EDITED = "edited"
    REQUESTED = "requested"
    BLOCKED = "blocked"
    TAKE_OVER = "take_over"
    CLOCK_JUMP = "clock_jump"
    CLOCK_BEHIND = "clock_behind"
    CLOCK_AHEAD = "clock_ahead"


class IncidentRecord(NamedTuple):
    """An incident of one job, or, without an identity, of a whole namespace.

    It lasts from `from_at` to `until_at`, None while it lasts. `actor` caused it, `ended_by` ended it: a
    caller or a worker, None if neither is known by name. `subject` is what it concerns, and `detail` a small
    JSON object, both as its kind defines them (see `incident`).
    """

    kind: IncidentKind
    identity: str | None
    from_at: int
    until_at: int | None = None
    actor: ExternalText | None = None
    ended_by: ExternalText | None = None
    subject: ExternalText | None = None
    detail: ExternalText | None = None


class EpochRecord(NamedTuple):
    """A definition of a job, and when it took effect; periods up to `kept_until` follow an earlier one."""

    identity: str
    epoch: int
    edited_at: int
    definition: str
    kept_until: EpochSeconds | None = None

    @property
    def since(self) -> EpochSeconds:
        """Return the instant after which periods follow this definition."""
        edited = self.edited_at // 1000
        return edited if self.kept_until is None else max(edited, self.kept_until)


def present_definition(job: JobRecord) -> EpochRecord:
    """Return a job's current definition, with the time of its edit."""
    return EpochRecord(job.identity, job.epoch, job.edited_at, job.definition, job.kept_until)


class AttemptRecord(NamedTuple):
    """An earlier attempt of a retried run."""

    key: str
    attempt: int
    token: int
    started_at: int | None
    ended_at: int | None
    result: Result | None
    error: ExternalText | None
    run_id: ExternalText | None


class NoticeEvent(Choice):
    """An event that is sent to a target: one that people are notified of, or a ping of a heartbeat."""

    FAILED = "failed"
    MISSED = "missed"
    RECOVERED = "recovered"
    LATE = "late"
    PAUSED_AFTER_FAILURES = "paused_after_failures"
    PING_START = "ping_start"
    PING_SUCCESS = "ping_success"
    PING_FAIL = "ping_fail"


class NoticeState(Choice):
    """How far a notice is: still to be sent, sent, or given up."""

    PENDING = "pending"
    SENT = "sent"
    FAILED = "failed"


class NoticeRecord(NamedTuple):
    """One event of a job for one target, written with the outcome that caused it and sent afterwards.

    `id` is the same at every attempt to send it. `nominal_time` and `key` are those of its run or period; of
    `periods` that were missed together, the last one's. `detail` completes the headline. The notices of one
    message share its `batch`. `due_at` is when it is sent next; `sent_as` says how it was sent, for people.
    """

    id: str
    identity: str
    event: NoticeEvent
    target: ExternalText
    nominal_time: EpochSeconds
    key: str
    created_at: int
    periods: int = 1
    detail: ExternalText | None = None
    state: NoticeState = NoticeState.PENDING
    due_at: int | None = None
    tries: int = 0
    batch: str | None = None
    ended_at: int | None = None
    sent_as: ExternalText | None = None
    error: ExternalText | None = None
    # The store's number of the notice, which grows with every write; 0 before it is stored.
    number: int = 0


def slot_of(run: RunRecord) -> int:
    """Return a number that distinguishes runs of one nominal time: 0 is the period's, others are manual."""
    return 0 if run.kind is RunKind.PERIOD else 1 + int(run.key[:15], 16)


def key_of(identity: str, nominal_time: EpochSeconds) -> str:
    """Return a period's idempotency key (SPEC 3: 7)."""
    return sha256(f"{identity}:{nominal_time}".encode()).hexdigest()


def request_key_of(identity: str, kind: RunKind, request: str) -> str:
    """Return the idempotency key of a requested run, which no period and no other request has.

    The hashed text must be unambiguous: a colon in the identity would move the kind, and a
    number at the end would look like a period of another job. Neither identities nor requests have a NUL.
    """
    end = "\0" if _PERIOD_END.fullmatch(request) else ""
    return sha256(f"{identity.replace(':', chr(0))}:{kind}:{request}{end}".encode()).hexdigest()


# How the hashed text of a period ends.
_PERIOD_END = re.compile(r"(.*:)?-?[0-9]+", re.DOTALL)


class AuditRecord(NamedTuple):
    """A change made by a caller: when, who, in which request, the action, the job, and the job's owner.

    `before` and `after` are JSON texts without secrets; None if the job did not exist, or no longer does.
    """

    at: int
    who: ExternalText
    request_id: ExternalText | None
    action: str
    identity: str
    user_id: ExternalText | None
    before: ExternalText | None
    after: ExternalText | None


class FieldType(NamedTuple):
    """What a field of a record holds: texts or integers, perhaps None, of people, or of some choices."""

    is_text: bool
    is_optional: bool
    is_external: bool
    choices: type[Choice] | None


@cache
def field_types(record: type[tuple[Any, ...]]) -> dict[str, FieldType]:
    """Return the types of a record's fields by name, in their order."""
    hints = get_type_hints(record, include_extras=True)
    return {field: _field_type(field, hint) for field, hint in hints.items()}


def _field_type(field: str, hint: Any) -> FieldType:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (option for option in options if option is not NoneType)
    is_external = get_origin(kind) is Annotated
    if is_external:
        kind = get_args(kind)[0]
    assert issubclass(kind, str | int), f"{field}: records hold texts and integers"
    choices = kind if issubclass(kind, Choice) else None
    return FieldType(issubclass(kind, str), NoneType in options, is_external, choices)


def positions(fields: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the positions of some fields in a record.

    For code that copies a record's fields into a list and changes some: three times as fast as `_replace`.
    """
    return tuple(fields.index(name) for name in names)


def getter(fields: Sequence[str], names: Sequence[str]) -> Callable[[Sequence[object]], tuple[object, ...]]:
    """Return a function that takes some fields, at least two, out of a record."""
    assert len(names) > 1, "of a single field itemgetter returns no tuple"
    return itemgetter(*positions(fields, names))
