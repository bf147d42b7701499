"""Outcomes: how a period ended, and the reason."""

from kron.core.choice import Choice


class Outcome(Choice):
    """The four ways in which a period can end (SPEC 4: Handling and Outcomes)."""

    EXECUTED = "executed"
    SKIPPED = "skipped"
    MISSED = "missed"
    UNSCHEDULABLE = "unschedulable"


class Reason(Choice):
    """The reason for a period's status; the value is a stable code."""

    # The period ran, or will run.
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
    BOOT = "boot"
    # The period did not run.
    NO_CANDIDATE = "no_candidate"
    DEADLINE = "deadline"
    CATCHUP_NONE = "catchup_none"
    SUPERSEDED = "superseded"
    CATCHUP_LIMIT = "catchup_limit"
    ACTIVE = "active"
    COALESCED = "coalesced"
    QUEUE_FULL = "queue_full"
    OPEN_LIMIT = "open_limit"
    FINISHED = "finished"
    EDITED = "edited"
    DELETED = "deleted"
    BY_HAND = "by_hand"

    @property
    def sentence(self) -> str:
        """Return the reason in words."""
        return SENTENCES[self]


SENTENCES = {
    Reason.PLANNED: "waiting for its fire time",
    Reason.DUE: "started on schedule",
    Reason.CAUGHT_UP: "caught up: due during an outage or a pause",
    Reason.SPREAD: "caught up, spread over the lookahead: due during an outage or a pause",
    Reason.QUEUED: "queued: an earlier run is still active",
    Reason.REPLACING: "waiting for the run it replaces to end",
    Reason.RETRY: "retry: the previous attempt failed",
    Reason.RETRY_PREEMPTED: "not retried: the next period was due first",
    Reason.RESTARTED: "restarted: the worker died during the previous attempt",
    Reason.REPLACED: "replaced by a later period",
    Reason.ASKED: "started manually",
    Reason.BOOT: "started at the boot of the host",
    Reason.NO_CANDIDATE: "unschedulable: no time in the window satisfies the constraints",
    Reason.DEADLINE: "missed: the deadline had passed",
    Reason.CATCHUP_NONE: "missed: due during an outage or a pause, and the catch-up policy is none",
    Reason.SUPERSEDED: "missed: due during an outage or a pause, and the catch-up policy runs the newest",
    Reason.CATCHUP_LIMIT: "missed: due during an outage or a pause with more periods than max_catchup",
    Reason.ACTIVE: "skipped: another run of the job was active",
    Reason.COALESCED: "skipped: a newer period was due before it could start",
    Reason.QUEUE_FULL: "skipped: the queue was full",
    Reason.OPEN_LIMIT: "skipped: too many runs of its user (max_open_runs) or of the job were open",
    Reason.FINISHED: "skipped: the job had no remaining runs",
    Reason.EDITED: "cancelled: an edit removed the period or moved it into the past",
    Reason.DELETED: "cancelled: the job was deleted",
    Reason.BY_HAND: "cancelled manually",
}
