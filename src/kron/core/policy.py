"""A policy: what becomes of a period when its time comes."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from kron.core.duration import format_duration


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

    def to_dict(self) -> dict[str, object]:
        """Return the policy in SPEC 4's words."""
        return {
            "concurrency": CONCURRENCY_OF[self.overlap],
            "deadline": None if self.deadline is None else format_duration(self.deadline),
            "suspend": self.suspend,
        }
