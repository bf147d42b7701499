"""Backfills: which past periods of a job a backfill runs, from the job's records."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from kron.app.budget import CpuBudget
from kron.core.cron.schedule import seconds_between
from kron.core.errors import InvalidOptionError
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import compiled_job
from kron.core.plan.incident import parsed_detail, requested
from kron.core.plan.record import (
    IncidentKind,
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
    request_key_of,
)
from kron.core.plan.registration import backfill, is_period
from kron.core.plan.step import Change
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.ports import ReadStore

# Periods that one backfill covers at most: all of them start at once.
MAX_PERIODS = 1_000
# The longest range, in seconds: a hundred years. Searching the whole calendar takes a second.
MAX_RANGE_S = 100 * 366 * 86_400
# Runs read at once.
PAGE = 1_000
# Earlier requests that a request is compared with, the newest first.
MAX_REQUESTS = 50

ACTIVE = frozenset({RunStatus.PENDING, RunStatus.ENQUEUED, RunStatus.STARTED})


class Only(StrEnum):
    """Which periods of a range are run: those that never ran, those whose last run failed, or all."""

    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodRange:
    """Nominal times in `[start, end)`, and which of them a backfill runs."""

    start: EpochSeconds
    end: EpochSeconds
    only: Only = Only.MISSING

    def __post_init__(self) -> None:
        """Check that the range is not empty."""
        if self.start >= self.end:
            raise InvalidOptionError(option="to", value=rfc3339(self.end), reason="must be later than from")


class BackfillResult(NamedTuple):
    """The runs a backfill adds, how many periods were requested before, and how many are not planned yet.

    `waits` says that the runs start when the job, which is paused or suspended, is resumed.
    """

    runs: list[RunRecord]
    already_requested: int
    undecided: int
    waits: bool


class PastPeriods(NamedTuple):
    """A job's records of a range of periods: runs by nominal time, and aggregated periods."""

    job: JobRecord
    runs: dict[EpochSeconds, list[RunRecord]]
    ranges: list[RangeRecord]

    def own(self, nominal_time: EpochSeconds) -> RunRecord | None:
        """Return the period's own run."""
        return next((run for run in self.runs.get(nominal_time, ()) if run.kind is RunKind.PERIOD), None)

    def selected(self, periods: Sequence[EpochSeconds], only: Only) -> list[EpochSeconds]:
        """Return which of the periods a backfill runs."""
        return [time for time in periods if self._is_selected(time, only)]

    def periods(self, wanted: PeriodRange, budget: CpuBudget) -> list[EpochSeconds]:
        """Return the periods of a range: those the job has now, and those with a record."""
        compiled = compiled_job(self.job.definition, self.job.identity)
        times = seconds_between(compiled.plan, wanted.start, wanted.end)
        periods = {time for time in budget.each(times) if is_period(compiled, time)}
        periods |= {time for time in self.runs if self.own(time) is not None}
        return sorted(periods)

    def requested(self) -> set[EpochSeconds]:
        """Return the periods that a backfill has run before, or has requested."""
        return {time for time, runs in self.runs.items() if any(map(_is_backfill, runs))}

    def _is_selected(self, nominal_time: EpochSeconds, only: Only) -> bool:
        statuses = {run.status for run in self.runs.get(nominal_time, ())}
        if only is Only.ALL:
            return True
        if statuses & ACTIVE or RunStatus.SUCCESS in statuses:
            return False
        return (RunStatus.FAILED in statuses) == (only is Only.FAILED)

    def run_of(self, nominal_time: EpochSeconds, *, request: str, now: int) -> RunRecord:
        """Return the run that a request adds for a period."""
        dropped = next((each for each in self.ranges if each.first <= nominal_time <= each.last), None)
        name = _request_of(request, nominal_time)
        own = self.own(nominal_time)
        return backfill(self.job, nominal_time, run=own, dropped=dropped, request=name, now=now).inserts[0]


def check_size(job: JobRecord, wanted: PeriodRange) -> None:
    """Refuse a range that is too long or has too many periods before reading it."""
    if wanted.end - wanted.start > MAX_RANGE_S:
        reason = "the range is longer than 100 years, the limit of one backfill"
        raise InvalidOptionError(option="to", value=rfc3339(wanted.end), reason=reason)
    plan = compiled_job(job.definition, job.identity).plan
    beyond = islice(seconds_between(plan, wanted.start, wanted.end), MAX_PERIODS, None)
    if next(beyond, None) is not None:
        reason = f"the range has more than {MAX_PERIODS} periods, the limit of one backfill"
        raise InvalidOptionError(option="to", value=rfc3339(wanted.end), reason=reason)


def keys_of(identity: str, request: str, times: Sequence[EpochSeconds]) -> list[str]:
    """Return the idempotency keys of the runs that a request adds beside recorded periods."""
    return [request_key_of(identity, RunKind.BACKFILL, _request_of(request, time)) for time in times]


def change_of(job: JobRecord, runs: list[RunRecord], request: str, now: int) -> Change:
    """Return the change that adds the runs of a backfill."""
    incident = requested(job.identity, RunKind.BACKFILL, now, request)
    return Change(job._replace(revision=job.revision + 1), job.revision, inserts=runs, incidents=(incident,))


async def read_past(store: ReadStore, namespace: str, job: JobRecord, wanted: PeriodRange) -> PastPeriods:
    """Read a job's records of a range, page by page; manual runs belong to no period."""
    runs: dict[EpochSeconds, list[RunRecord]] = {}
    before, limit = wanted.end, PAGE
    while before > wanted.start:
        page = await store.runs(namespace, job.identity, before=before, limit=limit)
        is_last = len(page) < limit
        oldest = wanted.start if is_last else page[-1].nominal_time
        if not is_last and oldest == page[0].nominal_time:
            # All runs of the page have one nominal time: only a longer page reaches beyond it.
            limit *= 2
            continue
        for run in page:
            is_whole = is_last or run.nominal_time > oldest
            if is_whole and run.kind is not RunKind.MANUAL and run.nominal_time >= wanted.start:
                runs.setdefault(run.nominal_time, []).append(run)
        before = wanted.start if is_last else oldest + 1
    return PastPeriods(job, runs, await store.ranges(namespace, job.identity))


async def was_made(store: ReadStore, namespace: str, past: PastPeriods, request: str) -> bool:
    """Say whether a request has added runs of periods from before the job, which have no key of a request."""
    times = {
        run.created_at
        for runs in past.runs.values()
        for run in runs
        if run.kind is RunKind.PERIOD and _is_backfill(run)
    }
    for at in sorted(times, reverse=True)[:MAX_REQUESTS]:
        for incident in await store.incidents(namespace, past.job.identity, since=at, until=at):
            is_backfill = incident.kind is IncidentKind.REQUESTED and incident.subject == RunKind.BACKFILL
            if is_backfill and parsed_detail(incident.detail).get("request") == request:
                return True
    return False


def _is_backfill(run: RunRecord) -> bool:
    """Say whether a backfill requested a run; that of a period from before the job is the period's own."""
    return run.kind is RunKind.BACKFILL or run.reason is Reason.ASKED


def _request_of(request: str, nominal_time: EpochSeconds) -> str:
    return f"{request}:{rfc3339(nominal_time)}"
