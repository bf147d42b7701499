"""A policy: what becomes of a period when its time comes."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kron.core.duration import format_duration
from kron.core.errors import InvalidOptionError


class Overlap(StrEnum):
    """What happens while an earlier execution of the job is still active."""

    ALLOW = "allow"
    SKIP = "skip"
    REPLACE = "replace"


# SPEC 4 says `forbid` for what SPEC 3 calls `skip`; each is accepted, and SPEC 4's word is given back.
OVERLAP_NAMES = {overlap.value: overlap for overlap in Overlap} | {"forbid": Overlap.SKIP}
CONCURRENCY_OF = {Overlap.ALLOW: "allow", Overlap.SKIP: "forbid", Overlap.REPLACE: "replace"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How lateness, overlap and suspension are judged; the defaults are those of SPEC 4.

    `deadline` None means that no period is ever too late.
    """

    overlap: Overlap = Overlap.SKIP
    deadline: timedelta | None = timedelta(0)
    suspend: bool = False

    def __post_init__(self) -> None:
        """Check every value; a name for an overlap is taken for what it names."""
        given: tuple[object, ...] = (self.overlap, self.deadline, self.suspend)
        overlap, deadline, suspend = given
        if not isinstance(overlap, str) or overlap not in OVERLAP_NAMES:
            raise InvalidOptionError(
                option="overlap", value=overlap, reason=f"use {', '.join(OVERLAP_NAMES)}"
            )
        object.__setattr__(self, "overlap", OVERLAP_NAMES[overlap])
        if deadline is not None and not (isinstance(deadline, timedelta) and deadline >= timedelta(0)):
            reason = "must be None or a timedelta that is not negative"
            raise InvalidOptionError(option="deadline", value=deadline, reason=reason)
        if not isinstance(suspend, bool):
            raise InvalidOptionError(option="suspend", value=suspend, reason="must be True or False")

    def to_dict(self) -> dict[str, object]:
        """Return the policy in SPEC 4's words."""
        return {
            "concurrency": CONCURRENCY_OF[self.overlap],
            "deadline": None if self.deadline is None else format_duration(self.deadline),
            "suspend": self.suspend,
        }
