"""Outcomes: how a period ended, and why."""

from kron.core.choice import Choice


class Outcome(Choice):
    """The four ways in which a period can end (SPEC 4: Handling and Outcomes)."""

    EXECUTED = "executed"
    SKIPPED = "skipped"
    MISSED = "missed"
    UNSCHEDULABLE = "unschedulable"


class Reason(Choice):
    """Why a period is where it is; the value is a stable code."""

    # It ran, or is to run.
    PLANNED = "planned"
    DUE = "due"
    CAUGHT_UP = "caught_up"
    SPREAD = "spread"
    QUEUED = "queued"
    REPLACING = "replacing"
    RETRY = "retry"
    RETRY_PREEMPTED = "retry_preempted"
    RESTARTED = "restarted"
    REPLACED = "replaced"
    ASKED = "asked"
    # It did not run.
    NO_CANDIDATE = "no_candidate"
    DEADLINE = "deadline"
    CATCHUP_NONE = "catchup_none"
    SUPERSEDED = "superseded"
    CATCHUP_LIMIT = "catchup_limit"
    ACTIVE = "active"
    COALESCED = "coalesced"
    QUEUE_FULL = "queue_full"
    FINISHED = "finished"
    EDITED = "edited"
    DELETED = "deleted"
    BY_HAND = "by_hand"

    @property
    def sentence(self) -> str:
        """Return the reason as a person would say it."""
        return SENTENCES[self]


SENTENCES = {
    Reason.PLANNED: "it waits for its time",
    Reason.DUE: "its time had come",
    Reason.CAUGHT_UP: "it was missed while nothing looked after it, and the catch-up policy runs it late",
    Reason.SPREAD: "it was missed, and the catch-up policy spreads missed periods over the next minute",
    Reason.QUEUED: "it waits for an earlier execution of the job to end",
    Reason.REPLACING: "it waits for the execution it replaces to end",
    Reason.RETRY: "the last attempt failed, and it is tried again after the retry delay",
    Reason.RETRY_PREEMPTED: "its retry was waiting when the next period came",
    Reason.RESTARTED: "its owner died while it ran, and the orphan policy restarts it",
    Reason.REPLACED: "a later period replaced it",
    Reason.ASKED: "somebody asked for it",
    Reason.NO_CANDIDATE: "no time in the window satisfies the constraints",
    Reason.DEADLINE: "its time had passed by more than the deadline",
    Reason.CATCHUP_NONE: "it was missed while nothing looked after it, and the catch-up policy is none",
    Reason.SUPERSEDED: "it was missed, and the catch-up policy runs only the newest missed period",
    Reason.CATCHUP_LIMIT: "it was missed, and more periods were missed than are caught up with",
    Reason.ACTIVE: "an earlier execution of the job was still active",
    Reason.COALESCED: "a newer period came before it could start, and only the newest runs",
    Reason.QUEUE_FULL: "as many periods were waiting as the queue holds",
    Reason.FINISHED: "the job had run as often as it was to run",
    Reason.EDITED: "the job was changed, and the new definition does not have it or has it in the past",
    Reason.DELETED: "the job was deleted",
    Reason.BY_HAND: "somebody ended it",
}
