"""A policy: what becomes of a period when its time comes, and of an execution when it ends."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kron.core.errors import InvalidOptionError
from kron.core.time.duration import format_duration
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, EpochSeconds, rfc3339

# How far ahead due schedules are loaded, how wide `spread` is, and how late a take-over may be unnoticed.
LOOKAHEAD_MS = 60_000
# How long an execution that only others can see may stay silent, where its policy does not say.
REMOTE_TIMEOUT = timedelta(hours=24)


class Overlap(StrEnum):
    """What happens while an earlier execution of the job is still active."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    BUFFER_ONE = "buffer_one"
    REPLACE = "replace"


class Catchup(StrEnum):
    """Which of the periods that were missed while nothing looked after them still run."""

    NONE = "none"
    ONCE = "once"
    ALL = "all"
    SPREAD = "spread"


class OnOrphan(StrEnum):
    """What becomes of an execution whose owner died and that cannot be found again."""

    RESTART = "restart"
    FAIL = "fail"


# SPEC 4 says `forbid` for what SPEC 3 calls `skip`; each is accepted, and SPEC 4's word is given back.
OVERLAP_NAMES = {overlap.value: overlap for overlap in Overlap} | {"forbid": Overlap.SKIP}
CONCURRENCY_OF = {overlap: overlap.value for overlap in Overlap} | {Overlap.SKIP: "forbid"}
ORPHAN_NAMES = {choice.value: choice for choice in OnOrphan}
# SPEC 3's word for `all`.
CATCHUP_NAMES = {catchup.value: catchup for catchup in Catchup} | {"fire_immediately": Catchup.ALL}


# Bounds of a policy's numbers: more would let one job fill the store or the memory.
MAX_QUEUE, MAX_CATCHUP, MAX_COUNT = 10_000, 10_000, 1_000_000_000

# How each value is checked: choices by their names, durations (and whether there may be none), numbers.
_CHOICES: dict[str, dict[str, StrEnum]] = {
    "overlap": {**OVERLAP_NAMES},
    "catchup": {**CATCHUP_NAMES},
    "on_orphan": {**ORPHAN_NAMES},
}
_DURATIONS = {"deadline": True, "retry_delay": True, "run_timeout": True, "replace_grace": False}
BOUNDS = {
    "jitter_ms": (0, LOOKAHEAD_MS),
    "queue_max": (1, MAX_QUEUE),
    "max_catchup": (1, MAX_CATCHUP),
    "remaining": (1, MAX_COUNT),
    "pause_after_failures": (1, MAX_COUNT),
    "start_at": (FIRST_SECOND, LAST_SECOND),
    "end_at": (FIRST_SECOND, LAST_SECOND),
}
_OPTIONAL_NUMBERS = ("remaining", "pause_after_failures", "start_at", "end_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One model for all fronts (DESIGN 7); the defaults are those of a `Job` (SPEC 4).

    Without a `deadline` no period is ever too late; without a `retry_delay` nothing is retried.
    `start_at` and `end_at` bound the nominal times, both included. `remaining` counts executed
    periods and `pause_after_failures` failures in a row.
    """

    overlap: Overlap = Overlap.SKIP
    deadline: timedelta | None = timedelta(0)
    suspend: bool = False
    catchup: Catchup = Catchup.ALL
    on_orphan: OnOrphan = OnOrphan.FAIL
    jitter_ms: int = 0
    retry_delay: timedelta | None = None
    run_timeout: timedelta | None = None
    replace_grace: timedelta = timedelta(seconds=10)
    queue_max: int = 100
    max_catchup: int = 1_000
    start_at: EpochSeconds | None = None
    end_at: EpochSeconds | None = None
    remaining: int | None = None
    pause_after_failures: int | None = None

    def __post_init__(self) -> None:
        """Check every value; the name of a choice is taken for what it names."""
        for name, names in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in names:
                raise InvalidOptionError(option=name, value=value, reason=f"use {', '.join(names)}")
            object.__setattr__(self, name, names[value])
        for name, optional in _DURATIONS.items():
            value = getattr(self, name)
            if not ((value is None and optional) or (isinstance(value, timedelta) and value >= timedelta(0))):
                reason = f"must be {'None or ' if optional else ''}a timedelta that is not negative"
                raise InvalidOptionError(option=name, value=value, reason=reason)
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_NUMBERS:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                reason = f"must be a whole number from {low} to {high}"
                raise InvalidOptionError(option=name, value=value, reason=reason)
        if not isinstance(self.suspend, bool):
            raise InvalidOptionError(option="suspend", value=self.suspend, reason="must be True or False")
        if self.start_at is not None and self.end_at is not None and self.start_at > self.end_at:
            reason = "lies before start_at"
            raise InvalidOptionError(option="end_at", value=rfc3339(self.end_at), reason=reason)

    def to_dict(self) -> dict[str, object]:
        """Return the policy in SPEC 4's words; of the rest, what is not as usual."""
        said: dict[str, object] = {
            "concurrency": CONCURRENCY_OF[self.overlap],
            "deadline": None if self.deadline is None else format_duration(self.deadline),
            "suspend": self.suspend,
        }
        for name in FURTHER:
            value = getattr(self, name)
            if value != getattr(USUAL, name):
                said[name] = _plain(name, value)
        return said


# What SPEC 4 does not know; written out only where it is not as usual.
FURTHER = (
    "catchup", "on_orphan", "jitter_ms", "retry_delay", "run_timeout", "replace_grace", "queue_max",
    "max_catchup", "start_at", "end_at", "remaining", "pause_after_failures",
)  # fmt: skip
USUAL = Policy()
POLICY_FIELDS = ("concurrency", "overlap", "deadline", "suspend", *FURTHER)


def _plain(name: str, value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    if name in ("start_at", "end_at") and isinstance(value, int):
        return rfc3339(value)
    return value.value if isinstance(value, StrEnum) else value
