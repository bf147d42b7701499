"""The backlog: periods that may be due. Each gets a record, or a share in a record of many."""

from kron.core.errors import StoreError
from kron.core.job.outcome import Reason
from kron.core.job.policy import Catchup, Overlap
from kron.core.job.verdict import SETTLED, Stage, stage_of
from kron.core.plan.compiled import Segment
from kron.core.plan.record import OUTCOME_OF, RangeRecord, RunRecord, RunStatus
from kron.core.plan.step import JobStep
from kron.core.time.instant import EpochSeconds

# How many periods of one job a wake plans one by one; as many windows may be open at once.
MAX_PLANNED_PER_WAKE = 1_000
# From this number on, periods that a newer one replaces are counted together instead of planned one by one.
MANY = 50
# The status of periods dropped for a reason, MISSED where it is not listed.
_STATUS_OF = {Reason.COALESCED: RunStatus.SKIPPED}


def plan_backlog(step: JobStep) -> None:
    """Plan every period whose window is near; a job without remaining periods has none."""
    missed = [run for run in step.runs.values() if _was_missed(step, run)]
    if step.job.remaining == 0:
        _judge_missed(step, missed, 0)
        return
    newer = _drop_missed(step) if step.job.replay_until is None else 0
    replay = step.job.replay_until
    compiled = step.segment.compiled
    last = replay if replay is not None else (step.now + compiled.jitter_ms) // 1000 - compiled.early
    _drop_late(step, last)
    _drop_coalesced(step, last)
    limit = MAX_PLANNED_PER_WAKE if replay is None else step.limits.replayed_per_wake
    cursor = step.job.cursor
    for number, nominal_time in enumerate(step.segment.times_until(last)):
        if number == limit:
            step.more = True
            step.newer = replay is None
            break
        _plan_period(step, nominal_time, missed)
        cursor = nominal_time
    step.job = step.job._replace(cursor=cursor)
    _judge_missed(step, missed, newer)
    if replay is not None and not step.more:
        # Periods after the replay's range are planned in a wake that follows at once.
        step.job = step.job._replace(replay_until=None, replay_at=None, replay_count=0)
        step.more = True


def _drop_missed(step: JobStep) -> int:
    """Apply the catch-up policy to periods that were certainly missed, by arithmetic for any number.

    Return how many missed periods will run that are newer than all that are planned already.
    """
    compiled = step.segment.compiled
    newest = step.segment.last_until((step.catch_line - 1 - compiled.jitter_ms) // 1000 - compiled.late)
    if newest is None:
        return 0
    match compiled.policy.catchup:
        case Catchup.NONE:
            _drop_until(step, newest, Reason.CATCHUP_NONE)
        case Catchup.ONCE:
            # The newest stays, to be judged together with those that may have been missed.
            possible = step.segment.newest_possible(step.job.identity, newest)
            _drop_until(step, newest if possible is None else possible - 1, Reason.SUPERSEDED)
        case Catchup.ALL | Catchup.SPREAD:
            return _start_replay(step, newest)
    return 0


def _start_replay(step: JobStep, newest: EpochSeconds) -> int:
    """Fix the range of missed periods that run, drop the older ones, and return how many run."""
    later = _count_missed_after(step, newest)
    count = step.segment.count_until(newest)
    kept = min(count, max(0, step.segment.compiled.policy.max_catchup - later))
    if kept < count:
        _drop_until(step, step.segment.nth_last(kept, newest) - 1, Reason.CATCHUP_LIMIT)
    if kept == 0:
        # The periods that may have been missed use up the limit; they are judged in this wake.
        return 0
    step.job = step.job._replace(replay_until=newest, replay_at=step.now, replay_count=kept)
    return kept + later


def _count_missed_after(step: JobStep, newest: EpochSeconds) -> int:
    """Return how many periods with windows still open were missed: at most as many as windows can be open."""
    compiled, since = step.segment.compiled, step.catch_line
    rest = step.segment._replace(after=max(step.segment.after, newest))
    times = rest.times_until((since + compiled.jitter_ms) // 1000 - compiled.early)
    fire_times = (_fire_time(step, nominal_time) for nominal_time in times)
    return sum(1 for fire_time in fire_times if fire_time is not None and fire_time < since)


def _drop_late(step: JobStep, last: EpochSeconds) -> None:
    """Drop periods that are past their deadline wherever in the window they start, by arithmetic."""
    compiled = step.segment.compiled
    replaying = step.job.replay_until is not None
    if compiled.deadline_s is None or (replaying and compiled.policy.catchup is Catchup.SPREAD):
        return
    # Periods that may have been missed, or may be older than the job, are judged one by one.
    earliest = 1000 * (step.segment.after + 1 + compiled.early) - compiled.jitter_ms
    if earliest < step.job.born_at or (earliest < step.catch_line and not replaying):
        return
    on_time = step.now // 1000 - compiled.deadline_s - compiled.late - compiled.jitter_ms // 1000
    newest = step.segment.last_until(min(last, -int(-on_time // 1) - 1))
    if newest is not None:
        _drop_until(step, newest, Reason.DEADLINE)


def _drop_coalesced(step: JobStep, last: EpochSeconds) -> None:
    """Drop all but the newest of many periods where only that one would run, by arithmetic."""
    segment = step.segment
    newest = segment.last_until(last)
    if newest is None or step.job.replay_until is not None:
        return
    if segment.compiled.policy.overlap is not Overlap.BUFFER_ONE or not segment.compiled.plain:
        return
    earliest = 1000 * (segment.after + 1)
    is_one_by_one = earliest < step.job.born_at or (segment.epoch > 1 and earliest <= segment.edited_at)
    if not is_one_by_one and segment.count_until(newest) > MANY:
        _drop_until(step, newest - 1, Reason.COALESCED)


def _drop_until(step: JobStep, last: EpochSeconds, reason: Reason) -> None:
    """Drop all periods up to a nominal time, in as few records as possible."""
    newest = step.segment.last_until(last)
    if newest is None:
        return
    for part in step.segment.parts_until(newest):
        _drop_part(step, part, reason)
    step.advance(newest)


def _drop_part(step: JobStep, part: Segment, reason: Reason) -> None:
    """Drop consecutive periods: one has a run record, several share a range."""
    assert part.until is not None
    first, newest = part.next_after(part.after), part.last_until(part.until)
    assert first is not None
    assert newest is not None
    if first == newest:
        _drop_one(step, first, reason)
        return
    count = part.count_until(newest)
    identity, outcome = step.job.identity, OUTCOME_OF[_STATUS_OF.get(reason, RunStatus.MISSED)]
    dropped = RangeRecord(identity, first, newest, count, outcome, reason, part.epoch, step.now)
    step.change.ranges.append(dropped)


def _drop_one(step: JobStep, nominal_time: EpochSeconds, reason: Reason) -> None:
    """Drop one period; where no time could be chosen, that is the reason."""
    fire_time = _fire_time(step, nominal_time)
    run = step.new_run(nominal_time, fire_time)
    if fire_time is None:
        step.settle(run, SETTLED[Stage.UNSCHEDULABLE])
    else:
        step.drop(run, _STATUS_OF.get(reason, RunStatus.MISSED), reason)


def _plan_period(step: JobStep, nominal_time: EpochSeconds, missed: list[RunRecord]) -> None:
    fire_time = _fire_time(step, nominal_time)
    run = step.new_run(nominal_time, fire_time)
    if run.key in step.runs:
        return
    if fire_time is None:
        step.settle(run, SETTLED[Stage.UNSCHEDULABLE])
    elif fire_time < step.job.born_at:
        return
    elif step.segment.epoch > 1 and fire_time <= step.segment.edited_at:
        step.drop(run, RunStatus.CANCELLED, Reason.EDITED)
    elif step.job.replay_until is not None:
        step.put(_replayed(step, run))
    elif stage_of(fire_time, step.now, catch_line=step.catch_line) is Stage.MISSED:
        missed.append(run)
    else:
        step.put(run)


def _replayed(step: JobStep, run: RunRecord) -> RunRecord:
    """Return a missed period that runs: at once, or at its place in the spread."""
    if step.segment.compiled.policy.catchup is not Catchup.SPREAD:
        return run._replace(reason=Reason.CAUGHT_UP)
    job = step.job
    if job.replay_at is None or job.replay_until is None:
        raise StoreError("a replay without its start")
    rest = step.segment._replace(after=run.nominal_time).count_until(job.replay_until)
    return _spread(step, run, job.replay_at, job.replay_count - rest, job.replay_count)


def _spread(step: JobStep, run: RunRecord, since: int, number: int, count: int) -> RunRecord:
    """Return the n-th of `count` missed periods, at its place in the lookahead."""
    at = since + number * step.limits.lookahead_ms // (count + 1)
    return run._replace(fire_time=at, due_at=at, reason=Reason.SPREAD)


def _was_missed(step: JobStep, run: RunRecord) -> bool:
    """Say whether a planned period was due while no worker was running."""
    planned = run.status is RunStatus.PENDING and run.reason is Reason.PLANNED
    return planned and stage_of(run.fire_time, step.now, catch_line=step.catch_line) is Stage.MISSED


def _judge_missed(step: JobStep, missed: list[RunRecord], newer: int) -> None:
    """Apply the catch-up policy of each definition to its periods that were missed.

    `newer` periods of the current segment run in addition.
    """
    missed.sort(key=lambda run: run.nominal_time)
    for epoch in dict.fromkeys(run.epoch for run in missed):
        own = [run for run in missed if run.epoch == epoch]
        _judge_own(step, own, newer if epoch == step.segment.epoch else 0)


def _judge_own(step: JobStep, missed: list[RunRecord], newer: int) -> None:
    policy = step.compiled_job(missed[0]).policy
    kept = min(len(missed), max(0, policy.max_catchup - newer))
    for number, run in enumerate(missed, 1 + kept - len(missed)):
        match policy.catchup:
            case Catchup.NONE:
                step.drop(run, RunStatus.MISSED, Reason.CATCHUP_NONE)
            case Catchup.ONCE if run is not missed[-1]:
                step.drop(run, RunStatus.MISSED, Reason.SUPERSEDED)
            case Catchup.ALL | Catchup.SPREAD if number < 1:
                step.drop(run, RunStatus.MISSED, Reason.CATCHUP_LIMIT)
            case Catchup.ONCE | Catchup.ALL:
                step.put(run._replace(reason=Reason.CAUGHT_UP))
            case Catchup.SPREAD:
                step.put(_spread(step, run, step.now, number, kept))


def _fire_time(step: JobStep, nominal_time: EpochSeconds) -> int | None:
    return step.segment.compiled.fire_time(step.job.identity, nominal_time)
