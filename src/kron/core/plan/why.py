"""Why: the chain of facts that led to a period's outcome, from stored records alone."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kron.core.cron.preview import clock_text
from kron.core.cron.timeline import NEXT
from kron.core.job.decision import decide_at
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_of
from kron.core.plan.record import (
    AttemptRecord,
    ClockEnding,
    ClockEvent,
    ClockRecord,
    EpochRecord,
    JobRecord,
    RangeRecord,
    ReopenedRecord,
    Result,
    RunRecord,
    RunStatus,
)
from kron.core.plan.registration import is_period
from kron.core.time.instant import DAY, EpochSeconds, rfc3339, seconds_of
from kron.core.time.zone import Transition, Zone

FORGOTTEN = "no record is left: history was pruned, or the job was deleted or finished at that time"
# Reasons that a run gets after its start; before that its reason says why it started.
AFTER_START = frozenset({Reason.RETRY_PREEMPTED, Reason.REPLACED, Reason.BY_HAND})
JUDGED_LATER = "the period is judged on resume"
DEFINITION_GONE = "neither a record nor the definition of that time is left: history was pruned"
# How an execution ended, for people.
RESULTS = {
    Result.SUCCESS: "succeeded",
    Result.FAILED: "failed",
    Result.LAUNCH_FAILED: "launch failed",
    Result.LOST: "lost",
    Result.ORPHANED: "orphaned",
    Result.REPLACED: "replaced",
    Result.CANCELLED: "cancelled",
}


class Fact(NamedTuple):
    """One link of the chain: a stable code, a sentence for people, and its instant, if it has one."""

    code: str
    sentence: str
    at: int | None = None

    @property
    def at_text(self) -> str | None:
        """Return the instant in UTC with milliseconds."""
        return None if self.at is None else f"{rfc3339(self.at // 1000)[:-1]}.{self.at % 1000:03}Z"

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        return {"code": str(self.code), "sentence": self.sentence, "at": self.at_text}


class PeriodHistory(NamedTuple):
    """The stored records of one job around one period.

    `epochs` are its earlier definitions, `run` is the period's record, `dropped` a record shared by several.
    """

    job: JobRecord
    epochs: Sequence[EpochRecord] = ()
    run: RunRecord | None = None
    attempts: Sequence[AttemptRecord] = ()
    dropped: RangeRecord | None = None
    # Its records that were withdrawn because the clock had been ahead, and the excursions of the clock.
    reopened: Sequence[ReopenedRecord] = ()
    excursions: Sequence[ClockRecord] = ()


class Explanation(NamedTuple):
    """The chain and its outcome, None while the period is open or if it is not a period.

    Without a nominal time, the requested wall time does not exist.
    """

    identity: str
    nominal_time: EpochSeconds | None
    outcome: Outcome | None
    facts: list[Fact]

    @property
    def code(self) -> str:
        """Return the code of the last link, the current state of the period."""
        return self.facts[-1].code

    @property
    def sentences(self) -> list[str]:
        """Return the sentences of the chain."""
        return [fact.sentence for fact in self.facts]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object, with instants in UTC."""
        return {
            "identity": self.identity,
            "period_id": None if self.nominal_time is None else rfc3339(self.nominal_time),
            "outcome": None if self.outcome is None else self.outcome.value,
            "code": self.code,
            "facts": [fact.to_dict() for fact in self.facts],
        }


def why(history: PeriodHistory, nominal_time: EpochSeconds, *, now: int) -> Explanation:
    """Return why a period has its outcome, or its current state."""
    followed = definition_at(history, nominal_time)
    identity = history.job.identity
    if followed is None:
        return Explanation(identity, nominal_time, None, [Fact("forgotten", DEFINITION_GONE)])
    compiled = compiled_job(followed.definition, identity)
    facts = [schedule_of(history, followed)]
    if history.run is None and not is_period(compiled, nominal_time):
        return Explanation(identity, nominal_time, None, [*facts, _no_period(compiled, nominal_time)])
    facts += _decided(history.job, compiled, nominal_time)
    facts += _clock_facts(history, nominal_time)
    outcome = None
    if history.run is not None:
        outcome = history.run.outcome
        facts += _recorded(history.run, history.attempts)
        if outcome is None and history.job.is_stopped:
            facts.append(_stopped(history.job))
    elif history.dropped is not None:
        outcome, further = _shared(history.dropped, compiled, identity, nominal_time)
        facts += further
    else:
        facts.append(_unrecorded(history.job, compiled, nominal_time, now))
    return Explanation(identity, nominal_time, outcome, facts)


def _clock_facts(history: PeriodHistory, nominal_time: EpochSeconds) -> Iterator[Fact]:
    """Yield what a wrong clock did to a period: dropped and opened again, run early, or jumped over."""
    for each in history.reopened:
        at, back = _moment(each.created_at), _moment(each.reopened_at)
        sentence = (
            f"it was dropped at {at}, while the host's clock was ahead ({each.reason.sentence}); the clock "
            f"was right again at {back}, and the period is open again in a new epoch"
        )
        yield Fact("reopened", sentence, each.reopened_at)
    if history.run is not None and any(
        first <= nominal_time <= last for first, last in handled_of(history.job.handled)
    ):
        sentence = "it was handled while the host's clock was ahead, and does not run again"
        yield Fact("handled_ahead", sentence, history.run.started_at)
    dropped = history.dropped if history.run is None else history.run
    for record in history.excursions:
        is_inside = record.reference <= 1000 * nominal_time < record.found_at
        if record.event is not ClockEvent.FORWARD or not is_inside or dropped is None:
            continue
        if dropped.outcome is Outcome.MISSED and dropped.created_at >= record.found_at:
            yield Fact("clock_moved_forward", clock_sentence(record), record.found_at)


def clock_sentence(record: ClockRecord) -> str:
    """Return an excursion of the clock in words."""
    shown, reference = _moment(record.found_at), _moment(record.reference)
    by = timedelta(seconds=record.by_ms // 1000)
    if record.event is ClockEvent.FORWARD:
        slept = "it was set, or the machine slept"
        return f"the host's clock moved forward by {by}, from {reference} to {shown}: {slept}"
    behind = f"the host's clock ({shown}) is behind the latest recorded instant ({reference}) by {by}"
    if record.ending is ClockEnding.CORRECTED:
        was = f"the host's clock had been ahead by {by} until {shown}, and is right again"
        return f"{was}; {record.reopened} periods that were dropped are open again"
    if record.ending is ClockEnding.MOVED:
        return f"{behind.replace(' is behind', ' was behind')}, and moved again before it was steady"
    return f"{behind}: nothing new starts until it has been steady for the lookahead"


def _moment(instant: int) -> str:
    return rfc3339(instant // 1000)


def definition_at(history: PeriodHistory, nominal_time: EpochSeconds) -> EpochRecord | None:
    """Return the definition a period follows: periods up to an edit follow the old one.

    None if it was pruned.
    """
    definitions = [*history.epochs, present_definition(history.job)]
    oldest = definitions[0]
    if history.run is not None:
        return next((known for known in reversed(definitions) if known.epoch <= history.run.epoch), None)
    if oldest.epoch > 1 and 1000 * nominal_time <= oldest.edited_at:
        return None
    later = [known for known in definitions[1:] if 1000 * nominal_time > known.edited_at]
    return later[-1] if later else oldest


def present_definition(job: JobRecord) -> EpochRecord:
    """Return a job's current definition, with the time of its edit."""
    return EpochRecord(job.identity, job.epoch, job.edited_at, job.definition)


def schedule_of(history: PeriodHistory, followed: EpochRecord) -> Fact:
    """Return the schedule a period follows."""
    schedule = compiled_job(followed.definition, history.job.identity).job.schedule
    changed = "" if followed.epoch == history.job.epoch else f", as defined before edit {followed.epoch}"
    return Fact("schedule", f'the schedule is "{schedule.text}" in {schedule.timezone}{changed}')


def _no_period(compiled: CompiledJob, nominal_time: EpochSeconds) -> Fact:
    """Return the fact that a time is not a nominal time, and the nearest ones."""
    text, policy = rfc3339(nominal_time), compiled.policy
    if policy.start_at is not None and nominal_time < policy.start_at:
        return Fact("no_period", f"{text} lies before the job's start_at, {rfc3339(policy.start_at)}")
    if policy.end_at is not None and nominal_time > policy.end_at:
        return Fact("no_period", f"{text} lies after the job's end_at, {rfc3339(policy.end_at)}")
    return Fact("no_period", f"{text} is not a nominal time; {neighbours(compiled, nominal_time)}")


def neighbours(compiled: CompiledJob, instant: EpochSeconds) -> str:
    """Return the nominal times before and after an instant, for people."""
    near = (compiled.plan.prev_at_or_before(instant), compiled.plan.next_after(instant))
    return f"the nearest are {' and '.join(rfc3339(time) for time in near if time is not None)}"


def _decided(job: JobRecord, compiled: CompiledJob, nominal_time: EpochSeconds) -> Iterator[Fact]:
    yield Fact("nominal_time", f"its nominal time is {rfc3339(nominal_time)}", 1000 * nominal_time)
    if compiled.plain:
        return
    decision = decide_at(compiled.for_job(job.identity), nominal_time)
    if decision.chosen_time is None:
        yield Fact("unschedulable", f"{Reason.NO_CANDIDATE.sentence} ({decision.attempts} tried)")
        return
    fire_time = compiled.fire_time(job.identity, nominal_time)
    assert fire_time is not None
    start, end = map(rfc3339, decision.bounds)
    chosen = f"{rfc3339(decision.chosen_time)} was chosen from {start} to {end}"
    yield Fact("chosen_time", chosen, 1000 * decision.chosen_time)
    if fire_time != 1000 * decision.chosen_time:
        by = fire_time - 1000 * decision.chosen_time
        yield Fact("jitter", f"jitter moved it by {by:+} ms", fire_time)


def _recorded(run: RunRecord, attempts: Sequence[AttemptRecord]) -> Iterator[Fact]:
    yield Fact("recorded", "recorded", run.created_at)
    for attempt in attempts:
        sentence = f"attempt {attempt.attempt} {_ended(attempt.result, attempt.error)}"
        yield Fact("attempt", sentence, attempt.ended_at)
    since_then = run.reason in AFTER_START or (run.status is RunStatus.FAILED and run.is_open == 1)
    if run.started_at is not None:
        how = " started" if since_then else f": {run.reason.sentence}"
        yield Fact("started", f"attempt {run.attempt}{how}", run.started_at)
    if run.ended_at is not None:
        yield Fact("ended", _ended(run.result, run.error), run.ended_at)
    if run.started_at is None or since_then:
        yield Fact(run.reason, run.reason.sentence, run.due_at)


def _ended(result: Result | None, error: str | None) -> str:
    text = "ended" if result is None else RESULTS[result]
    return f"{text}: {error}" if error else text


def _shared(
    dropped: RangeRecord, compiled: CompiledJob, identity: str, nominal_time: EpochSeconds
) -> tuple[Outcome, list[Fact]]:
    """Return the outcome of a period in a shared record; one without a candidate time is unschedulable."""
    first, last = rfc3339(dropped.first), rfc3339(dropped.last)
    together = f"recorded together: {dropped.periods} periods from {first} to {last}"
    facts = [Fact("recorded_together", together, dropped.created_at)]
    if compiled.fire_time(identity, nominal_time) is None:
        return Outcome.UNSCHEDULABLE, facts
    return dropped.outcome, [*facts, Fact(dropped.reason, dropped.reason.sentence)]


def _unrecorded(job: JobRecord, compiled: CompiledJob, nominal_time: EpochSeconds, now: int) -> Fact:
    """Return why a period has no record."""
    fire_time = compiled.fire_time(job.identity, nominal_time)
    if (1000 * nominal_time if fire_time is None else fire_time) < job.born_at:
        return Fact("before_creation", "its fire time was before the job was created", job.born_at)
    if job.deleted_at is not None and nominal_time > job.cursor:
        return Fact("deleted", Reason.DELETED.sentence, job.deleted_at)
    if nominal_time <= job.cursor:
        return Fact("forgotten", FORGOTTEN)
    if job.is_stopped:
        return _stopped(job)
    if job.remaining == 0:
        return Fact("finished", Reason.FINISHED.sentence)
    if fire_time is not None and fire_time > now:
        return Fact("to_come", Reason.PLANNED.sentence, fire_time)
    return Fact("overdue", "due, and not processed by a worker yet", fire_time)


def _stopped(job: JobRecord) -> Fact:
    """Return what keeps a period from being judged: a pause, the definition's suspend, or both."""
    because = f": {job.paused_because}" if job.paused_because else ""
    if not job.suspended:
        return Fact("paused", f"the job is paused{because}; {JUDGED_LATER}", job.paused_until)
    paused = f", and the job is paused{because}" if job.paused else ""
    return Fact("suspended", f"the definition suspends the job (policy.suspend){paused}; {JUDGED_LATER}")


# --- wall times --------------------------------------------------------------------------------------


class WallTime(NamedTuple):
    """The instant of a wall time, or None if there is none, and the facts about it."""

    instant: EpochSeconds | None
    facts: list[Fact]


def resolve_wall_time(compiled: CompiledJob, wall: datetime) -> WallTime:
    """Resolve a wall time in a job's zone: to no instant, one, or one of two."""
    zone = compiled.plan.zone
    instants = instants_of(zone, wall)
    if not instants:
        return _skipped(compiled, wall, _gap_at(zone, wall))
    if len(instants) == 1:
        return WallTime(instants[0], [])
    periods = [instant for instant in instants if is_period(compiled, instant)] or instants
    which = "first" if periods[0] == instants[0] else "second"
    texts = " and ".join(map(rfc3339, instants))
    twice = f"{_text(wall)} occurs twice in {zone.key}, at {texts}; this is the {which}"
    return WallTime(periods[0], [Fact("dst_repeat", twice)])


def instants_of(zone: Zone, wall: datetime) -> list[EpochSeconds]:
    """Return the instants at which a zone's clocks show a wall time, oldest first: zero, one or two."""
    seconds, instants = seconds_of(wall.replace(tzinfo=UTC)), set()
    for fold in (0, 1):
        offset = wall.replace(tzinfo=zone.tzinfo, fold=fold).utcoffset()
        assert offset is not None
        instant = seconds - (offset.days * DAY + offset.seconds)
        if zone.offset_at(instant) == seconds - instant:
            instants.add(instant)
    return sorted(instants)


def _gap_at(zone: Zone, wall: datetime) -> Transition:
    """Return the transition that skips a wall time."""
    seconds = seconds_of(wall.replace(tzinfo=UTC))
    changes = zone.changes(seconds - 2 * DAY, seconds + 2 * DAY)
    return next(gap for gap in changes if gap.at + gap.before <= seconds < gap.at + gap.after)


def _skipped(compiled: CompiledJob, wall: datetime, gap: Transition) -> WallTime:
    seconds, zone = seconds_of(wall.replace(tzinfo=UTC)), compiled.plan.zone.key
    skipped, near = f"{_text(wall)} does not exist in {zone}", neighbours(compiled, gap.at - 1)
    if compiled.plan.on_walls().prev_at_or_before(seconds) != seconds:
        return WallTime(None, [Fact("no_period", f"{skipped}, and is not a nominal time either; {near}")])
    if compiled.job.schedule.dst_gap == NEXT:
        moved = f"{skipped}, and its period is at the end of the gap, {rfc3339(gap.at)}"
        return WallTime(gap.at, [Fact("dst_gap", moved)])
    return WallTime(None, [Fact("dst_gap", f"{skipped}; {near}")])


def _text(wall: datetime) -> str:
    return f"{wall:%Y-%m-%d} {clock_text(wall)}"
