"""Runs in the words of SPEC 3: requested, backfilled, reported by their executors, and listed."""

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kron.app.backfill import PeriodRange
from kron.app.output import RunOutputs
from kron.app.query import PageStart
from kron.core.errors import InvalidOptionError, UnknownRunError, check_choice
from kron.core.fields import parse_instant
from kron.core.plan.counterfactual import Counterfactual, what_if
from kron.core.plan.query import RunCursor
from kron.core.plan.record import Result, RunRecord, RunStatus
from kron.core.plan.report import RunEvent
from kron.core.plan.why import Explanation
from kron.core.redaction import hide_run_tokens
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.service.documents import attempt_view, range_view, run_view
from kron.fronts.service.registrar import Registrar, new_name, stopped_words, unknown_as_schedule
from kron.fronts.service.responses import (
    BackfillReceipt,
    CounterfactualView,
    FactView,
    PeriodRuns,
    RangeView,
    RequestedRun,
    RunOutput,
    RunView,
    RunWithAttempts,
    WhyView,
)
from kron.fronts.service.schedule_spec import check_request, check_text

# The statuses an executor may report, and their events.
EVENTS = {"STARTED": RunEvent.STARTED, "SUCCESS": RunEvent.SUCCESS, "FAILED": RunEvent.FAILED}
MAX_RUN_ID, MAX_ERROR, MAX_ATTEMPT = 200, 10_000, 1_000_000_000
KEY = re.compile("[0-9a-f]{64}")
# How many of a schedule's latest runs are searched for one that has started.
MAX_LOOKED = 100
# Of an attempt whose process left no files here.
NO_OUTPUT = (
    "no output is kept here: it wrote none, was not a process, is too old, or ran on another host, where "
    "kron logs has it"
)


@dataclass(frozen=True, slots=True)
class Feedback:
    """An executor's report of a run; without an `attempt` it concerns the latest one."""

    status: str
    run_id: str | None = None
    error: str | None = None
    attempt: int | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        check_choice("status", self.status, tuple(EVENTS))
        if self.run_id is not None:
            check_text("run_id", self.run_id, most=MAX_RUN_ID)
        if self.error is not None:
            check_text("error", self.error, most=MAX_ERROR)
        if self.attempt is not None and not 1 <= self.attempt <= MAX_ATTEMPT:
            raise InvalidOptionError(option="attempt", value=self.attempt, reason=f"use 1 to {MAX_ATTEMPT}")


class Page(NamedTuple):
    """Runs of a schedule, the periods dropped among them, and the start of the next page."""

    runs: list[RunView]
    dropped: list[RangeView]
    following: PageStart | None


class OutputRequest(NamedTuple):
    """A part of an output: of the run of a period, by its key if it has several, or of the latest run.

    Without an `attempt` it is the last one. `offset` is the number of bytes that the caller has.
    """

    period: str | None = None
    key: str | None = None
    attempt: int | None = None
    offset: int = 0


async def read_output(
    registrar: Registrar, outputs: RunOutputs, schedule_id: str, wanted: OutputRequest
) -> RunOutput:
    """Return a part of the output of a run."""
    run = await _started_run(registrar, schedule_id, wanted)
    number = run.attempt if wanted.attempt is None else wanted.attempt
    output = await asyncio.to_thread(outputs.read, run, number, wanted.offset)
    document: RunOutput = {
        "schedule_id": run.identity,
        "period_id": rfc3339(run.nominal_time),
        "idempotency_key": run.key,
        "attempt": number,
        "attempts": run.attempt,
        "status": run.status.value,
        "ended": not run.in_flight or number < run.attempt,
        "output": "",
        "offset": wanted.offset,
        "note": _missing_output(run, number) if output is None else None,
        "pid": None,
        "code": None,
        "cpu_s": None,
        "max_rss_kb": None,
        "output_lost": None,
        "bytes": None,
    }
    if output is None:
        return document
    names = {"pid", "code", "cpu_s", "max_rss_kb", "output_lost"}
    # The words of a supervisor's record.
    recorded = {name: value for name, value in output.record.items() if name in names}
    kept = {"output": b64encode(output.text).decode(), "offset": output.offset, "ended": output.ended}
    return {**document, **recorded, "bytes": output.record.get("output"), **kept}  # type: ignore[typeddict-item]


async def _started_run(registrar: Registrar, schedule_id: str, wanted: OutputRequest) -> RunRecord:
    query = registrar.catalog.query
    with unknown_as_schedule():
        if wanted.period is not None:
            runs = [run for run, _ in await query.period(schedule_id, parse_instant(wanted.period))]
        else:
            runs = list((await query.run_page(schedule_id, limit=MAX_LOOKED)).runs)
    started = [run for run in runs if run.attempt and wanted.key in (None, run.key)]
    if not started:
        reason = "no run of it has started" if runs else "it has no run"
        raise InvalidOptionError(option="schedule", value=schedule_id, reason=reason)
    return latest_start(started)


def latest_start(started: Sequence[RunRecord]) -> RunRecord:
    """Return the run that started last; of those that one wake started, the one that was requested last."""
    return max(started, key=lambda run: (run.started_at or 0, run.created_at, run.key))


def _missing_output(run: RunRecord, attempt: int) -> str:
    """Return why an attempt has no output."""
    if attempt == run.attempt and run.result is Result.LAUNCH_FAILED:
        return f"it did not start: {run.error}"
    return NO_OUTPUT


async def run_now(registrar: Registrar, schedule_id: str, request_id: str | None = None) -> RequestedRun:
    """Run a schedule at once, beside its periods; the same request runs once."""
    check_request(request_id)
    request = request_id or new_name()
    with unknown_as_schedule():
        run = await registrar.catalog.run_now(schedule_id, request)
        job = (await registrar.catalog.query.find(schedule_id, deleted=True)).job
    words = stopped_words(job)
    note = f"the schedule is {words}; a manual run still starts" if words else None
    return {**run_view(run, registrar.now()), "request_id": request, "note": note}


async def backfill_schedule(
    registrar: Registrar,
    schedule_id: str,
    wanted: PeriodRange,
    *,
    request_id: str | None = None,
    dry_run: bool = False,
) -> BackfillReceipt:
    """Run past periods of a schedule; the same request runs each once. Return which, how many and when."""
    check_request(request_id)
    request = request_id or new_name()
    with unknown_as_schedule():
        result = await registrar.catalog.backfill(schedule_id, wanted, request, dry_run=dry_run)
    return {
        "request_id": request,
        "dry_run": dry_run,
        "only": wanted.only.value,
        "count": len(result.runs),
        "runs": [{"run_at": rfc3339(run.nominal_time), "idempotency_key": run.key} for run in result.runs],
        "starts": "on_resume" if result.waits else "now",
        "already_asked": result.already_requested,
        "still_to_be_judged": result.undecided,
    }


async def take_feedback(registrar: Registrar, key: str, feedback: Feedback) -> RunView:
    """Record an executor's report; a late, repeated or contradictory one changes nothing."""
    if not KEY.fullmatch(key):
        raise UnknownRunError(idempotency_key=key)
    run = await registrar.catalog.feedback(
        key,
        EVENTS[feedback.status],
        attempt=feedback.attempt,
        error=None if feedback.error is None else hide_run_tokens(feedback.error),
        run_id=feedback.run_id,
    )
    return run_view(run, registrar.now())


async def runs_page(
    registrar: Registrar, schedule_id: str, *, limit: int, place: tuple[int, int] | None = None
) -> Page:
    """Return a page of a schedule's runs, newest first; the schedule may be deleted."""
    start = None if place is None else PageStart(*place)
    with unknown_as_schedule():
        page = await registrar.catalog.query.run_page(schedule_id, limit=limit, start=start)
    now = registrar.now()
    views = [run_view(run, now) for run in page.runs]
    return Page(views, list(map(range_view, page.dropped)), page.following)


async def period_runs(registrar: Registrar, schedule_id: str, time: EpochSeconds) -> PeriodRuns:
    """Return the runs of one period with their earlier attempts; the schedule may be deleted."""
    with unknown_as_schedule():
        runs = await registrar.catalog.query.period(schedule_id, time)
    now = registrar.now()
    views: list[RunWithAttempts] = [
        {**run_view(run, now), "attempts": list(map(attempt_view, attempts))} for run, attempts in runs
    ]
    return {"schedule_id": schedule_id, "period_id": rfc3339(time), "runs": views}


async def latest_page(
    registrar: Registrar, *, limit: int, status: RunStatus | None = None, before: RunCursor | None = None
) -> tuple[list[RunView], RunCursor | None]:
    """Return the runs of all schedules, latest record first, and the cursor of the next page."""
    runs, following = await registrar.catalog.query.latest(limit=limit, status=status, before=before)
    now = registrar.now()
    return [run_view(run, now) for run in runs], following


async def why(registrar: Registrar, schedule_id: str, period_id: str, changes: Sequence[str] = ()) -> WhyView:
    """Return the chain of facts behind one period, and what `changes` of its definition would have done."""
    with unknown_as_schedule():
        explanation = await registrar.catalog.query.why(schedule_id, period_id)
    view = why_view(explanation)
    if changes:
        other = await registrar.catalog.query.what_if(explanation, what_if(changes), registrar.traits)
        view["counterfactual"] = counterfactual_view(other)
    return view


def why_view(explanation: Explanation) -> WhyView:
    """Return an explanation as the API shows it."""
    return {
        "schedule_id": explanation.identity,
        "period_id": None if explanation.nominal_time is None else rfc3339(explanation.nominal_time),
        "outcome": None if explanation.outcome is None else explanation.outcome.value,
        "code": explanation.code,
        "headline": explanation.headline,
        "remedy": explanation.remedy,
        "facts": _fact_views(explanation),
        "counterfactual": None,
    }


def counterfactual_view(other: Counterfactual) -> CounterfactualView:
    """Return a counterfactual as the API shows it."""
    explanation = other.explanation
    return {
        "changes": {str(name): value for name, value in other.fields.items()},
        "outcome": None if explanation.outcome is None else explanation.outcome.value,
        "code": explanation.code,
        "headline": explanation.headline,
        "facts": _fact_views(explanation),
        "assumptions": other.assumptions,
    }


def _fact_views(explanation: Explanation) -> list[FactView]:
    return [
        {
            "code": str(fact.code),
            "sentence": fact.sentence,
            "at": fact.at_text,
            "links": [{"kind": link.kind, "id": link.id} for link in fact.links],
        }
        for fact in explanation.facts
    ]
