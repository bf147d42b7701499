"""Outcomes: how a period ended, and why."""

from enum import StrEnum


class Outcome(StrEnum):
    """The four ways in which a period can end (SPEC 4: Handling and Outcomes)."""

    EXECUTED = "executed"
    SKIPPED = "skipped"
    MISSED = "missed"
    UNSCHEDULABLE = "unschedulable"


class Reason(StrEnum):
    """Why a period was not executed; the value is a stable code."""

    NO_CANDIDATE = "no_candidate"
    DEADLINE = "deadline"
    ACTIVE = "active"

    @property
    def sentence(self) -> str:
        """Return the reason as a person would say it."""
        return SENTENCES[self]


SENTENCES = {
    Reason.NO_CANDIDATE: "no time in the window satisfies the constraints",
    Reason.DEADLINE: "its time had passed by more than the deadline",
    Reason.ACTIVE: "an earlier execution of the job was still active",
}
