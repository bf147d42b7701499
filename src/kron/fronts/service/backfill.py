"""Backfills: past periods of a schedule run again, or for the first time."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from kron.core.cron.schedule import seconds_between
from kron.core.errors import InvalidOptionError
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import JobRecord, RangeRecord, RunKind, RunRecord, RunStatus, request_key_of
from kron.core.plan.registration import backfill, is_period
from kron.core.plan.step import Change
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import BusyError
from kron.fronts.service.registrar import MAX_TRIES, NAMESPACE, Registrar, new_name
from kron.fronts.service.schedule_spec import check_request

# How many periods one backfill covers; all that it asks for start at once.
MAX_PERIODS = 1_000
# How many runs are read at once.
PAGE = 1_000

UNDER_WAY = frozenset({RunStatus.PENDING, RunStatus.ENQUEUED, RunStatus.STARTED})


class Only(StrEnum):
    """Which periods of a range are run: those that never ran, those whose last run failed, or all."""

    MISSING = "missing"
    FAILED = "failed"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Nominal times in `[start, end)`, and which of them are meant."""

    start: EpochSeconds
    end: EpochSeconds
    only: Only = Only.MISSING

    def __post_init__(self) -> None:
        """Check that it has a direction."""
        if self.start >= self.end:
            raise InvalidOptionError(option="to", value=rfc3339(self.end), reason="must be later than from")


class _Past(NamedTuple):
    """What is on record of a schedule in a range."""

    runs: dict[EpochSeconds, list[RunRecord]]
    ranges: list[RangeRecord]

    def own(self, nominal_time: EpochSeconds) -> RunRecord | None:
        """Return the period's own run."""
        return next((run for run in self.runs.get(nominal_time, ()) if run.kind is RunKind.PERIOD), None)

    def dropped(self, nominal_time: EpochSeconds) -> RangeRecord | None:
        """Return the counted record that covers a period."""
        return next((each for each in self.ranges if each.first <= nominal_time <= each.last), None)

    def is_meant(self, nominal_time: EpochSeconds, only: Only) -> bool:
        """Say whether a period is among those that are to run."""
        statuses = {run.status for run in self.runs.get(nominal_time, ())}
        if only is Only.ALL:
            return True
        if statuses & UNDER_WAY or RunStatus.SUCCESS in statuses:
            return False
        return (RunStatus.FAILED in statuses) == (only is Only.FAILED)


async def backfill_schedule(
    registrar: Registrar,
    schedule_id: str,
    wanted: Range,
    *,
    request_id: str | None = None,
    dry_run: bool = False,
) -> Document:
    """Run past periods of a schedule; the same request is never run twice. Return which, and how many."""
    check_request(request_id)
    request = request_id or new_name()
    for _ in range(MAX_TRIES):
        job = (await registrar.case_of(schedule_id)).job
        _check_size(job, wanted)
        past = await _recall(registrar, schedule_id, wanted)
        meant = [time for time in _periods(job, past, wanted) if past.is_meant(time, wanted.only)]
        ready = [time for time in meant if time <= job.cursor]
        now = registrar.now()
        asked = [_asked(job, time, past, request, now) for time in ready]
        known = await _known(registrar, schedule_id, request, ready)
        new = [change for change in asked if change.inserts[0].key not in known]
        answer = _answer(request, wanted, [change.inserts[0] for change in new], dry_run=dry_run)
        answer |= {"already_asked": len(asked) - len(new), "still_to_be_judged": len(meant) - len(ready)}
        if dry_run or not new:
            return answer
        whole = Change(new[0].job, job.revision, inserts=[change.inserts[0] for change in new])
        settled = await registrar.store.put(NAMESPACE, created=[], changed=[whole], now=now)
        if not settled.stale_jobs and not settled.existing_runs:
            registrar.call()
            return answer
    raise BusyError(schedule_ids=[schedule_id])


def _asked(job: JobRecord, time: EpochSeconds, past: _Past, request: str, now: int) -> Change:
    name = f"{request}:{rfc3339(time)}"
    return backfill(job, time, run=past.own(time), dropped=past.dropped(time), request=name, now=now)


async def _known(
    registrar: Registrar, schedule_id: str, request: str, times: Iterable[EpochSeconds]
) -> set[str]:
    """Return the keys of what the same request has asked for before."""
    names = [f"{request}:{rfc3339(time)}" for time in times]
    keys = [request_key_of(schedule_id, RunKind.BACKFILL, name) for name in names]
    return {run.key for run in await registrar.store.find_runs(NAMESPACE, keys)} if keys else set()


def _answer(request: str, wanted: Range, runs: list[RunRecord], *, dry_run: bool) -> Document:
    return {
        "request_id": request,
        "dry_run": dry_run,
        "only": wanted.only.value,
        "count": len(runs),
        "runs": [{"run_at": rfc3339(run.nominal_time), "idempotency_key": run.key} for run in runs],
    }


def _check_size(job: JobRecord, wanted: Range) -> None:
    """Refuse a range of too many periods before anything of it is read; it may be as long as the calendar."""
    plan = compiled_job(job.definition, job.identity).plan
    first = islice(seconds_between(plan, wanted.start, wanted.end), MAX_PERIODS, None)
    if next(first, None) is not None:
        reason = f"the range has more than {MAX_PERIODS} periods, which is how many are run at once"
        raise InvalidOptionError(option="to", value=rfc3339(wanted.end), reason=reason)


def _periods(job: JobRecord, past: _Past, wanted: Range) -> list[EpochSeconds]:
    """Return the periods of a range: those the schedule has now, and those on record."""
    terms = compiled_job(job.definition, job.identity)
    times = {time for time in seconds_between(terms.plan, wanted.start, wanted.end) if is_period(terms, time)}
    return sorted(times | {time for time in past.runs if past.own(time) is not None})


async def _recall(registrar: Registrar, schedule_id: str, wanted: Range) -> _Past:
    """Read what is on record of a range, a page at a time; runs by hand belong to no period."""
    runs: dict[EpochSeconds, list[RunRecord]] = {}
    before, limit = wanted.end, PAGE
    while before > wanted.start:
        page = await registrar.store.runs(NAMESPACE, schedule_id, before=before, limit=limit)
        oldest = page[-1].nominal_time if len(page) == limit else wanted.start
        if page and oldest == page[0].nominal_time and len(page) == limit:
            # All of one instant: only a longer page gets beyond it.
            limit *= 2
            continue
        whole = [run for run in page if run.nominal_time > oldest or len(page) < limit]
        for run in whole:
            if run.kind is not RunKind.MANUAL and run.nominal_time >= wanted.start:
                runs.setdefault(run.nominal_time, []).append(run)
        before = oldest + 1 if len(page) == limit else wanted.start
    return _Past(runs, await registrar.store.ranges(NAMESPACE, schedule_id))
