"""The next start of a job: the one answer of the pages, the API, the CLI and the embedded fronts."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heappop, heappush, merge
from itertools import islice
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import Segment, cached_by_text, compiled_job, definitions_of, segments_of
from kron.core.plan.lifecycle import Phase, phase_of
from kron.core.plan.record import JobRecord, RunKind, RunRecord, RunStatus
from kron.core.plan.report import Traits
from kron.core.plan.resume_preview import preview_resume
from kron.core.plan.step import JobState
from kron.core.time.instant import DAY, EPOCH, EpochSeconds
from kron.core.time.zone import LAST_PROBE

# Consecutive periods without a candidate that are decided one by one before the search ends.
MAX_BARREN = 50
# The most cached fire times: pages show the same ones again every few seconds.
MAX_FIRE_TIMES = 65_536
# How far ahead the constraints are searched for an instant that they allow.
HORIZON = 9 * 366 * DAY
# Rows that wait for a known time.
AWAITED = frozenset({Reason.PLANNED, Reason.SPREAD})


class PeriodStart(NamedTuple):
    """A period that will start, and when, in milliseconds; `passed_over` earlier periods ahead cannot."""

    fire_time: int
    nominal_time: EpochSeconds
    passed_over: int = 0


class NextStart(NamedTuple):
    """When a job starts next.

    `nominal_time` is the next period, whether it can start or not; `start_at`, in milliseconds, and `period`
    are those of the first that will. `passed_over` periods before it cannot start.
    """

    nominal_time: EpochSeconds | None = None
    start_at: int | None = None
    period: EpochSeconds | None = None
    passed_over: int = 0

    @property
    def next_nominal_at(self) -> datetime | None:
        """Return the nominal time of the next period."""
        return None if self.nominal_time is None else EPOCH + timedelta(seconds=self.nominal_time)

    @property
    def next_start_at(self) -> datetime | None:
        """Return when the next start is due."""
        return None if self.start_at is None else EPOCH + timedelta(milliseconds=self.start_at)


NO_START = NextStart()


def next_start(state: JobState, now: int, traits: Mapping[str, Traits] | None = None) -> NextStart:
    """Return the next period of a job, and the next start that its definition and its pause allow.

    Nothing is assumed of running executions: what overlap and retries do is decided when the period is due.
    """
    nominal_time = next(_nominal_times(state, now), None)
    first = next(starts_ahead(state, now, traits), None)
    if first is None:
        return NextStart(nominal_time)
    passed_over = 0
    if nominal_time is not None and nominal_time < first.nominal_time:
        passed_over = first.passed_over
        if state.job.pause_ends_at is not None:
            plan = segments_of(state.job)[-1].compiled.plan
            passed_over = count_between(plan, nominal_time, first.nominal_time)
    return NextStart(nominal_time, first.fire_time, first.nominal_time, passed_over)


def phase_of_job(state: JobState, now: int, following: NextStart) -> Phase | None:
    """Return the phase of a job's foremost open period, or else of its last; None if it has had none.

    `following` is the job's next start.
    """
    phases = {phase_of(run, now) for run in state.runs}
    if Phase.RUNNING in phases:
        return Phase.RUNNING
    if Phase.ELIGIBLE in phases or _is_due(state.job, now):
        return Phase.ELIGIBLE
    if Phase.PLANNED in phases or following.start_at is not None:
        return Phase.PLANNED
    return None if state.job.last_start_at is None else Phase.COMPLETED


def _is_due(job: JobRecord, now: int) -> bool:
    """Return whether the next period has no record yet although its fire time has come."""
    if job.is_stopped or job.deleted_at is not None or job.next_time is None:
        return False
    fire_time = _fire_time(job.definition, job.identity, job.next_time)
    return fire_time is not None and fire_time <= now


def starts_ahead(
    state: JobState, now: int, traits: Mapping[str, Traits] | None = None
) -> Iterator[PeriodStart]:
    """Yield the starts of a job that are later than now, in order; none while it stays stopped."""
    job = state.job
    pause_ends_at = job.pause_ends_at if job.paused else None
    if job.deleted_at is not None or job.suspended or (job.paused and pause_ends_at is None):
        return iter(())
    state = state._replace(runs=[run for run in state.runs if _is_awaited(run)])
    resumed: list[PeriodStart] = []
    if pause_ends_at is not None and pause_ends_at > now:
        now = pause_ends_at
        resumed = _starts_on_resume(state, now, traits)
    planned = sorted(
        PeriodStart(run.fire_time, run.nominal_time) for run in state.runs if run.fire_time > now
    )
    unplanned = [_starts_of(each, now) for each in _unplanned_of(job)]
    return islice(merge(resumed, planned, *unplanned), job.remaining)


def periods_ahead(job: JobRecord, now: int) -> Iterator[tuple[EpochSeconds, int | None]]:
    """Yield the periods to be planned whose fire times are later than now, in the order of nominal times.

    Each has its fire time, or None if it cannot start; then its nominal time is later than now.
    """
    for each in _unplanned_of(job) if job.deleted_at is None and job.remaining != 0 else ():
        time = each.first_from(now)
        while time is not None:
            fire_time = each.fire_time(time)
            if (1000 * time if fire_time is None else fire_time) > now:
                yield time, fire_time
            time = each.segment.next_after(time)


class _Unplanned(NamedTuple):
    """The unplanned periods of one definition of a job."""

    segment: Segment
    definition: str
    identity: str

    def fire_time(self, nominal_time: EpochSeconds) -> int | None:
        """Return a period's fire time; None if it is unschedulable, or its window leaves the calendar."""
        compiled = self.segment.compiled
        if compiled.plain:
            return 1000 * nominal_time
        if nominal_time + compiled.late > LAST_PROBE:
            return None
        return _fire_time(self.definition, self.identity, nominal_time)

    def first_from(self, now: int) -> EpochSeconds | None:
        """Return the first nominal time whose fire time may be later than now."""
        compiled = self.segment.compiled
        return self.segment.next_after(now // 1000 - compiled.late - compiled.jitter_ms // 1000 - 1)


@cached_by_text(MAX_FIRE_TIMES)
def _fire_time(definition: str, identity: str, nominal_time: EpochSeconds) -> int | None:
    return compiled_job(definition, identity).fire_time(identity, nominal_time)


def _unplanned_of(job: JobRecord) -> list[_Unplanned]:
    definitions = [*definitions_of(job).values(), job.definition]
    return [
        _Unplanned(segment, definition, job.identity)
        for segment, definition in zip(segments_of(job), definitions, strict=True)
    ]


def _nominal_times(state: JobState, now: int) -> Iterator[EpochSeconds]:
    """Yield the next periods; those planned ahead are rows, and neither order nor number matters."""
    first = next(periods_ahead(state.job, now), None)
    times = [run.nominal_time for run in state.runs if _is_planned(run) and run.fire_time > now]
    if first is not None:
        times.append(first[0])
    yield from sorted(times)


def _is_awaited(run: RunRecord) -> bool:
    return run.status is RunStatus.PENDING and run.kind is RunKind.PERIOD and run.reason in AWAITED


def _is_planned(run: RunRecord) -> bool:
    return _is_awaited(run) and run.reason is Reason.PLANNED


def _starts_on_resume(
    state: JobState, resume_at: int, traits: Mapping[str, Traits] | None
) -> list[PeriodStart]:
    """Return the periods of a pause that start at its end or are spread after it, as catch-up judges them."""
    effect = preview_resume(state, now=resume_at, traits=traits)
    known = {run.key for run in state.runs}
    spread = (run for run in effect.waiting if run.reason is Reason.SPREAD and run.key not in known)
    starts = [PeriodStart(resume_at, run.nominal_time) for run in effect.starts]
    return sorted([*starts, *(PeriodStart(run.fire_time, run.nominal_time) for run in spread)])


def _starts_of(unplanned: _Unplanned, now: int) -> Iterator[PeriodStart]:
    """Yield the starts of the unplanned periods of one definition, in the order of fire times.

    Windows overlap, so a period waits until no later one can start before it.
    """
    segment, waiting = unplanned.segment, list[PeriodStart]()
    compiled, barren, passed_over = segment.compiled, 0, 0
    time = unplanned.first_from(now)
    while time is not None and barren < MAX_BARREN:
        while waiting and waiting[0].fire_time <= 1000 * (time + compiled.early) - compiled.jitter_ms:
            yield heappop(waiting)
        fire_time = unplanned.fire_time(time)
        following = segment.next_after(time)
        if fire_time is None:
            # No more windows can be open at once than a definition may have.
            barren += 1000 * time > now
            passed_over += 1000 * time > now
            possible = _first_possible(segment, time)
            if following is not None and (possible is None or possible > following):
                passed_over += 0 if possible is None else count_between(compiled.plan, following, possible)
                following = possible
        else:
            barren = 0
            if fire_time > now:
                heappush(waiting, PeriodStart(fire_time, time, passed_over))
        time = following
    while waiting:
        yield heappop(waiting)


def _first_possible(segment: Segment, after: EpochSeconds) -> EpochSeconds | None:
    """Return the first nominal time after another whose window has an instant that the constraints allow."""
    compiled = segment.compiled
    first = after + compiled.early
    until = min(first + HORIZON, LAST_PROBE)
    allowed = compiled.job.constraints.allowed_from(first, compiled.plan.zone, until)
    return None if allowed is None else segment.next_after(max(after, allowed - compiled.late - 1))
