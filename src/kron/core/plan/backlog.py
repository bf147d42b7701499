"""The backlog: periods whose time may have come. Each gets a record of its own, or a share in one."""

from kron.core.errors import StoreError
from kron.core.job.outcome import Reason
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.record import OUTCOME_OF, RangeRecord, RunRecord, RunStatus
from kron.core.plan.step import JobStep
from kron.core.time.instant import EpochSeconds

# Periods of one job that one wake decides one by one; as many windows may be open at once (DESIGN 7).
MAX_PLANNED_PER_WAKE = 1_000
# More than so many that give way to a newer one are counted, not gone through.
MANY = 50
# What is written off was missed, unless something else stood in its way.
_STATUS_OF = {Reason.COALESCED: RunStatus.SKIPPED}


def plan_backlog(turn: JobStep) -> None:
    """Give every period whose window is near a record; a job that has run often enough has no more."""
    missed = [run for run in turn.runs.values() if _was_missed(turn, run)]
    if turn.job.remaining == 0:
        _judge_missed(turn, missed, 0)
        return
    newer = _drop_missed(turn) if turn.job.replay_until is None else 0
    replay = turn.job.replay_until
    terms = turn.segment.terms
    last = replay if replay is not None else (turn.now + terms.jitter_ms) // 1000 - terms.early
    _drop_late(turn, last)
    _drop_coalesced(turn, last)
    limit = MAX_PLANNED_PER_WAKE if replay is None else turn.limits.catchup_per_wake
    for number, nominal_time in enumerate(turn.segment.times_until(last)):
        if number == limit:
            turn.more = True
            turn.newer = replay is None
            break
        _plan_period(turn, nominal_time, missed)
        turn.job = turn.job._replace(cursor=nominal_time)
    _judge_missed(turn, missed, newer)
    if replay is not None and not turn.more:
        # What came after the replay's range gets its own wake, at once.
        turn.job = turn.job._replace(replay_until=None, replay_at=None, replay_count=0)
        turn.more = True


def _drop_missed(turn: JobStep) -> int:
    """Let the catch-up policy judge what was certainly missed: by arithmetic, however much it is.

    Return how many missed periods will run that are newer than all that are planned already.
    """
    terms = turn.segment.terms
    newest = turn.segment.last_until((turn.catch_line - 1 - terms.jitter_ms) // 1000 - terms.late)
    if newest is None:
        return 0
    match terms.policy.catchup:
        case Catchup.NONE:
            _drop_until(turn, newest, Reason.CATCHUP_NONE)
        case Catchup.ONCE:
            # The newest stays, to be judged beside those that may have been missed.
            possible = turn.segment.newest_possible(turn.job.identity, newest)
            _drop_until(turn, newest if possible is None else possible - 1, Reason.SUPERSEDED)
        case Catchup.ALL | Catchup.SPREAD:
            return _begin_replay(turn, newest)
    return 0


def _begin_replay(turn: JobStep, newest: EpochSeconds) -> int:
    """Fix which missed periods run, drop the older ones, and return how many run."""
    later = _count_missed_after(turn, newest)
    count = turn.segment.count_until(newest)
    kept = min(count, max(0, turn.segment.terms.policy.max_catchup - later))
    if kept < count:
        _drop_until(turn, turn.segment.nth_last(kept, newest) - 1, Reason.CATCHUP_LIMIT)
    if kept == 0:
        # Those that may have been missed are enough; they are judged in this very wake.
        return 0
    turn.job = turn.job._replace(replay_until=newest, replay_at=turn.now, replay_count=kept)
    return kept + later


def _count_missed_after(turn: JobStep, newest: EpochSeconds) -> int:
    """Return how many were missed of those whose windows were still open: no more than windows can be."""
    terms, since = turn.segment.terms, turn.catch_line
    rest = turn.segment._replace(after=max(turn.segment.after, newest))
    times = rest.times_until((since + terms.jitter_ms) // 1000 - terms.early)
    fire_times = (_fire_time(turn, nominal_time) for nominal_time in times)
    return sum(1 for fire_time in fire_times if fire_time is not None and fire_time < since)


def _drop_late(turn: JobStep, last: EpochSeconds) -> None:
    """Drop what is past its deadline wherever in its window it was to start, again by arithmetic."""
    terms = turn.segment.terms
    replaying = turn.job.replay_until is not None
    if terms.deadline_s is None or (replaying and terms.policy.catchup is Catchup.SPREAD):
        return
    # What may have been missed, or may be older than the job, is judged one by one.
    earliest = 1000 * (turn.segment.after + 1 + terms.early) - terms.jitter_ms
    if earliest < turn.job.born_at or (earliest < turn.catch_line and not replaying):
        return
    on_time = turn.now // 1000 - terms.deadline_s - terms.late - terms.jitter_ms // 1000
    newest = turn.segment.last_until(min(last, -int(-on_time // 1) - 1))
    if newest is not None:
        _drop_until(turn, newest, Reason.DEADLINE)


def _drop_coalesced(turn: JobStep, last: EpochSeconds) -> None:
    """Drop all but the newest of many periods, where only that one would run: by arithmetic again."""
    segment = turn.segment
    newest = segment.last_until(last)
    if newest is None or turn.job.replay_until is not None:
        return
    if segment.terms.policy.overlap is not Overlap.BUFFER_ONE or not segment.terms.plain:
        return
    earliest = 1000 * (segment.after + 1)
    is_one_by_one = earliest < turn.job.born_at or (segment.epoch > 1 and earliest <= segment.edited_at)
    if not is_one_by_one and segment.count_until(newest) > MANY:
        _drop_until(turn, newest - 1, Reason.COALESCED)


def _drop_until(turn: JobStep, last: EpochSeconds, reason: Reason) -> None:
    """Write all periods up to a nominal time off, together."""
    segment = turn.segment
    first, newest = segment.next_after(segment.after), segment.last_until(last)
    if first is None or newest is None:
        return
    if first == newest:
        _drop_one(turn, first, reason)
    else:
        count = segment.count_until(newest)
        identity, outcome = turn.job.identity, OUTCOME_OF[_STATUS_OF.get(reason, RunStatus.MISSED)]
        dropped = RangeRecord(identity, first, newest, count, outcome, reason, segment.epoch, turn.now)
        turn.change.ranges.append(dropped)
    turn.advance(newest)


def _drop_one(turn: JobStep, nominal_time: EpochSeconds, reason: Reason) -> None:
    """Write one period off; where no time could be chosen, that is why it did not run."""
    fire_time = _fire_time(turn, nominal_time)
    run = turn.new_run(nominal_time, fire_time)
    if fire_time is None:
        turn.drop(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    else:
        turn.drop(run, _STATUS_OF.get(reason, RunStatus.MISSED), reason)


def _plan_period(turn: JobStep, nominal_time: EpochSeconds, missed: list[RunRecord]) -> None:
    fire_time = _fire_time(turn, nominal_time)
    run = turn.new_run(nominal_time, fire_time)
    if run.key in turn.runs:
        return
    if fire_time is None:
        turn.drop(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    elif fire_time < turn.job.born_at:
        return
    elif turn.segment.epoch > 1 and fire_time <= turn.segment.edited_at:
        turn.drop(run, RunStatus.CANCELLED, Reason.EDITED)
    elif turn.job.replay_until is not None:
        turn.put(_replayed(turn, run))
    elif fire_time < turn.catch_line:
        missed.append(run)
    else:
        turn.put(run)


def _replayed(turn: JobStep, run: RunRecord) -> RunRecord:
    """Return a missed period that runs: at once, or at its place in the spread."""
    if turn.segment.terms.policy.catchup is not Catchup.SPREAD:
        return run._replace(reason=Reason.CAUGHT_UP)
    job = turn.job
    if job.replay_at is None or job.replay_until is None:
        raise StoreError("a replay is under way and nobody knows since when")
    rest = turn.segment._replace(after=run.nominal_time).count_until(job.replay_until)
    return _spread(turn, run, job.replay_at, job.replay_count - rest, job.replay_count)


def _spread(turn: JobStep, run: RunRecord, since: int, number: int, count: int) -> RunRecord:
    """Return the n-th of so many missed periods, at its place in the lookahead."""
    at = since + number * turn.limits.lookahead_ms // (count + 1)
    return run._replace(fire_time=at, due_at=at, reason=Reason.SPREAD)


def _was_missed(turn: JobStep, run: RunRecord) -> bool:
    """Say whether a planned period's time passed while nothing looked after it."""
    planned = run.status is RunStatus.PENDING and run.reason is Reason.PLANNED
    return planned and run.fire_time < turn.catch_line


def _judge_missed(turn: JobStep, missed: list[RunRecord], newer: int) -> None:
    """Let the catch-up policy judge single periods that were missed: each definition judges its own.

    Of the present segment so many newer ones run besides.
    """
    missed.sort(key=lambda run: run.nominal_time)
    for epoch in dict.fromkeys(run.epoch for run in missed):
        own = [run for run in missed if run.epoch == epoch]
        _judge_own(turn, own, newer if epoch == turn.segment.epoch else 0)


def _judge_own(turn: JobStep, missed: list[RunRecord], newer: int) -> None:
    policy = turn.compiled_job(missed[0]).policy
    kept = min(len(missed), max(0, policy.max_catchup - newer))
    for number, run in enumerate(missed, 1 + kept - len(missed)):
        match policy.catchup:
            case Catchup.NONE:
                turn.drop(run, RunStatus.MISSED, Reason.CATCHUP_NONE)
            case Catchup.ONCE if run is not missed[-1]:
                turn.drop(run, RunStatus.MISSED, Reason.SUPERSEDED)
            case Catchup.ALL | Catchup.SPREAD if number < 1:
                turn.drop(run, RunStatus.MISSED, Reason.CATCHUP_LIMIT)
            case Catchup.ONCE | Catchup.ALL:
                turn.put(run._replace(reason=Reason.CAUGHT_UP))
            case Catchup.SPREAD:
                turn.put(_spread(turn, run, turn.now, number, kept))


def _fire_time(turn: JobStep, nominal_time: EpochSeconds) -> int | None:
    return turn.segment.terms.fire_time(turn.job.identity, nominal_time)
