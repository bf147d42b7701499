"""Runs: asked for, backfilled, reported of by their executors, and looked through."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kron.core.errors import ConflictError, InvalidOptionError, UnknownJobError, check_choice
from kron.core.plan.plan import plan
from kron.core.plan.query import RunCursor
from kron.core.plan.record import RangeRecord, RunKind, RunRecord, RunStatus, request_key_of
from kron.core.plan.registration import request_run
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.step import USUAL_TRAITS, Change, JobState, Snapshot, WriteScope
from kron.core.redaction import hide_run_tokens
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.service.documents import Document, attempt_view, range_view, run_view
from kron.fronts.service.errors import BusyError, UnknownRunError, UnknownScheduleError
from kron.fronts.service.registrar import MAX_TRIES, NAMESPACE, Registrar, check_name, new_name
from kron.fronts.service.schedule_spec import check_request, check_text
from kron.runtime import why as inquiry

# What an executor may say, and what that means inside.
HAPPENED = {"STARTED": RunEvent.STARTED, "SUCCESS": RunEvent.SUCCESS, "FAILED": RunEvent.FAILED}
MAX_RUN_ID, MAX_ERROR, MAX_ATTEMPT = 200, 10_000, 1_000_000_000
KEY = re.compile("[0-9a-f]{64}")
# How many runs of one period are shown: its own, and the newest that somebody asked for.
MAX_OF_PERIOD = 1_000


@dataclass(frozen=True, slots=True)
class Feedback:
    """What an executor says of a run; without an `attempt` it speaks of the latest."""

    status: str
    run_id: str | None = None
    error: str | None = None
    attempt: int | None = None

    def __post_init__(self) -> None:
        """Check what is said."""
        check_choice("status", self.status, tuple(HAPPENED))
        if self.run_id is not None:
            check_text("run_id", self.run_id, most=MAX_RUN_ID)
        if self.error is not None:
            check_text("error", self.error, most=MAX_ERROR)
        if self.attempt is not None and not 1 <= self.attempt <= MAX_ATTEMPT:
            raise InvalidOptionError(option="attempt", value=self.attempt, reason=f"use 1 to {MAX_ATTEMPT}")


class Page(NamedTuple):
    """Some runs of a schedule, and where the next page begins: a time, and how many of it were shown."""

    runs: list[Document]
    dropped: list[Document]
    following: tuple[int, int] | None


async def run_now(registrar: Registrar, schedule_id: str, request_id: str | None = None) -> Document:
    """Run a schedule at once, beside its periods; the same request is never run twice."""
    check_name(schedule_id)
    check_request(request_id)
    request = request_id or new_name()
    key = request_key_of(schedule_id, RunKind.MANUAL, request)
    asked: list[RunRecord] = []

    def decide(case: JobState, now: int) -> Change:
        change = request_run(case.job, request=request, now=now)
        asked[:] = change.inserts
        return change

    known = await registrar.store.find_runs(NAMESPACE, [key])
    if not known:
        try:
            await registrar.change(schedule_id, decide)
        except BusyError:
            # Somebody made the same request meanwhile.
            known = await registrar.store.find_runs(NAMESPACE, [key])
            if not known:
                raise
    return {**run_view(known[0] if known else asked[0]), "request_id": request}


async def take_feedback(registrar: Registrar, key: str, feedback: Feedback) -> Document:
    """Note what an executor says of a run; what is late, repeated or contradictory changes nothing."""
    if not KEY.fullmatch(key):
        raise UnknownRunError(idempotency_key=key)
    run = await _known_run(registrar, key)
    for _ in range(MAX_TRIES):
        cases = await registrar.store.cases(NAMESPACE, [run.identity])
        # It is read after its job: whoever changes it from now on raises the revision that is compared.
        run = await _known_run(registrar, key)
        traits = registrar.traits
        if not cases or not traits.get(cases[0].job.launcher_kind, USUAL_TRAITS).remote:
            raise ConflictError("The end of this run is noticed by its worker", idempotency_key=key)
        now = registrar.now()
        change = _heard(cases[0], run, feedback, now, traits)
        if change is None:
            return run_view(run)
        settled = await registrar.store.put(NAMESPACE, created=[], changed=[change], now=now)
        if not settled.stale_jobs and not settled.existing_runs:
            registrar.call()
            return run_view(change.updates[0] if change.updates else run)
    raise BusyError(schedule_ids=[run.identity])


async def _known_run(registrar: Registrar, key: str) -> RunRecord:
    found = await registrar.store.find_runs(NAMESPACE, [key])
    if not found:
        raise UnknownRunError(idempotency_key=key)
    return found[0]


def _heard(
    case: JobState, run: RunRecord, feedback: Feedback, now: int, traits: Mapping[str, Traits]
) -> Change | None:
    """Return what a report changes; what is to start after it is started by whoever looks after the job."""
    attempt = run.attempt if feedback.attempt is None else feedback.attempt
    happened = HAPPENED[feedback.status]
    error = None if feedback.error is None else hide_run_tokens(feedback.error)
    report = RunReport(run.identity, run.key, attempt, happened, now, error, feedback.run_id)
    others = [other for other in case.runs if other.key != run.key]
    heard = case._replace(runs=[run, *others], reports=[report])
    ((change,), _) = plan(Snapshot([heard], now, run.token, traits, draining=True), now)
    change.updates.sort(key=lambda update: update.key != run.key)
    if not any(update.key == run.key for update in change.updates):
        return None
    job = change.job
    if not job.paused and job.deleted_at is None and others:
        # What waited for this end is looked at now.
        job = job._replace(plan_at=now)
        return replace(change, job=job, scope=WriteScope.ANY, cohort=None)
    return change


async def runs_page(
    registrar: Registrar, schedule_id: str, *, limit: int, place: tuple[int, int] | None = None
) -> Page:
    """Return a schedule's runs, newest first, also of one that was deleted."""
    check_name(schedule_id)
    before, shown = (None, 0) if place is None else (place[0] + 1, place[1])
    found = await registrar.store.runs(NAMESPACE, schedule_id, before=before, limit=shown + limit + 1)
    if not found and place is None and not await registrar.store.cases(NAMESPACE, [schedule_id]):
        raise UnknownScheduleError(schedule_id=schedule_id)
    more, runs = len(found) > shown + limit, found[shown : shown + limit]
    following = None
    if more:
        last = runs[-1].nominal_time
        following = last, sum(run.nominal_time == last for run in found[: shown + limit])
    newest = None if place is None else place[0]
    dropped = await _dropped(registrar, schedule_id, newest, runs[-1].nominal_time if more else None)
    return Page([run_view(run) for run in runs], dropped, following)


async def _dropped(
    registrar: Registrar, schedule_id: str, newest: int | None, oldest: int | None
) -> list[Document]:
    """Return the counted records among the runs of a page."""

    def belongs(dropped: RangeRecord) -> bool:
        return (newest is None or dropped.last < newest) and (oldest is None or dropped.last >= oldest)

    ranges = await registrar.store.ranges(NAMESPACE, schedule_id)
    return [range_view(dropped) for dropped in ranges if belongs(dropped)]


async def period_runs(registrar: Registrar, schedule_id: str, time: EpochSeconds) -> Document:
    """Return the runs of one period with their earlier attempts, also of a schedule that was deleted."""
    check_name(schedule_id)
    found = await registrar.store.runs(NAMESPACE, schedule_id, before=time + 1, limit=MAX_OF_PERIOD)
    if not found and not await registrar.store.cases(NAMESPACE, [schedule_id]):
        raise UnknownScheduleError(schedule_id=schedule_id)
    runs = [await _with_attempts(registrar, run) for run in found if run.nominal_time == time]
    return {"schedule_id": schedule_id, "period_id": rfc3339(time), "runs": runs}


async def _with_attempts(registrar: Registrar, run: RunRecord) -> Document:
    earlier = await registrar.store.attempts(NAMESPACE, run.key) if run.attempt > 1 else []
    return {**run_view(run), "attempts": [attempt_view(attempt) for attempt in earlier]}


async def latest_page(
    registrar: Registrar, *, limit: int, status: RunStatus | None = None, before: RunCursor | None = None
) -> tuple[list[Document], RunCursor | None]:
    """Return the runs of all schedules, the latest first, and where the next page begins."""
    runs = await registrar.store.latest_runs(NAMESPACE, status=status, before=before, limit=limit + 1)
    last = runs[limit - 1] if len(runs) > limit else None
    place = None if last is None else RunCursor(last.created_at, last.key)
    return [run_view(run) for run in runs[:limit]], place


async def why(registrar: Registrar, schedule_id: str, period_id: str) -> Mapping[str, object]:
    """Return the chain of facts behind one period."""
    check_name(schedule_id)
    try:
        answer = await inquiry.why(registrar.store, NAMESPACE, schedule_id, period_id, now=registrar.now())
    except UnknownJobError as cause:
        raise UnknownScheduleError(schedule_id=schedule_id) from cause
    document = answer.to_dict()
    document["schedule_id"] = document.pop("identity")
    return document
