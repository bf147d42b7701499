"""Marks: how an outcome looks, and what is said to those who cannot see it."""

from typing import NamedTuple

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import JobRecord, RunKind, RunRecord, RunStatus
from kron.core.plan.why import Explanation
from kron.core.time.instant import EpochSeconds
from kron.fronts.service.documents import Document, run_view
from kron.fronts.service.web.time_text import PageTime

# Each status as a class of the style sheet, and as a word.
LOOKS = {
    RunStatus.PENDING: ("wait", "waiting"),
    RunStatus.ENQUEUED: ("sent", "sent"),
    RunStatus.STARTED: ("run", "running"),
    RunStatus.SUCCESS: ("ok", "success"),
    RunStatus.FAILED: ("bad", "failed"),
    RunStatus.SKIPPED: ("skip", "skipped"),
    RunStatus.MISSED: ("miss", "missed"),
    RunStatus.UNSCHEDULABLE: ("none", "unschedulable"),
    RunStatus.CANCELLED: ("stop", "cancelled"),
}
OUTCOMES = {
    Outcome.EXECUTED: ("ok", "executed"),
    Outcome.SKIPPED: LOOKS[RunStatus.SKIPPED],
    Outcome.MISSED: LOOKS[RunStatus.MISSED],
    Outcome.UNSCHEDULABLE: LOOKS[RunStatus.UNSCHEDULABLE],
}
OPEN = ("wait", "to come")
NO_PERIOD = ("none", "no period")
# What the last link of a chain says where there is no outcome to show.
CODES = {"to_come": OPEN, "paused": ("wait", "paused"), "overdue": ("wait", "overdue")}


class OutcomeMark(NamedTuple):
    """An outcome: its look, its word, why, and the period it belongs to, if it is one's."""

    look: str
    word: str
    reason: str
    title: str
    period_id: str | None


class Badge(NamedTuple):
    """What state a schedule is in."""

    look: str
    word: str
    title: str


def mark_of(run: RunRecord, nominal: PageTime) -> OutcomeMark:
    """Return the mark of a run."""
    return mark_of_document(run_view(run), nominal)


def mark_of_document(run: Document, nominal: PageTime) -> OutcomeMark:
    """Return the mark of a run, or of periods that were dropped together."""
    look, word = LOOKS[RunStatus(str(run["status"]))]
    reason = _reason(run)
    is_period = run.get("kind") == RunKind.PERIOD.value
    title = f"{nominal.local}: {word}, {reason}"
    return OutcomeMark(look, word, reason, title, str(run["run_at"]) if is_period else None)


def _reason(run: Document) -> str:
    """Say why a run is where it is: one that failed by its error, one that was tried again in hindsight."""
    if run["status"] == RunStatus.FAILED and run.get("error"):
        return str(run["error"])
    if run["status"] == RunStatus.SUCCESS and run["reason"] == Reason.RETRY:
        return "an earlier attempt failed, and it was tried again"
    return str(run["sentence"])


def mark_of_answer(answer: Explanation) -> OutcomeMark:
    """Return the mark of a period without a record of its own."""
    look, word = CODES.get(answer.code, NO_PERIOD) if answer.outcome is None else OUTCOMES[answer.outcome]
    sentence = answer.facts[-1].sentence
    return OutcomeMark(look, word, sentence, f"{word}: {sentence}", None)


def badges_of(job: JobRecord, waiting: list[RunRecord], following: EpochSeconds | None) -> list[Badge]:
    """Return what state a schedule is in; one that is simply well says so."""
    if job.deleted_at is not None:
        return [Badge("stop", "deleted", "it was deleted; what is on record of it stays")]
    badges = []
    if job.paused:
        badges.append(Badge("wait", "paused", f"paused: {job.paused_because or 'by hand'}"))
    if under_way := sum(run.in_flight for run in waiting):
        badges.append(Badge("run", "running" if under_way == 1 else f"{under_way} running", "under way now"))
    if queued := sum(run.status is RunStatus.PENDING for run in waiting):
        badges.append(Badge("wait", f"{queued} waiting", "recorded, and still to start"))
    if job.failures:
        badges.append(Badge("bad", "failing", f"failures in a row: {job.failures}"))
    if following is None and not job.paused:
        badges.append(Badge("stop", "finished", "nothing is to come"))
    return badges or [Badge("ok", "active", "it runs at its times")]
