"""Why: the chain of facts that led to a period's outcome, from what is remembered and nothing else."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kron.core.job.decision import decide_at
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.record import AttemptRecord, EpochRecord, JobRecord, RangeRecord, RunRecord, RunStatus
from kron.core.plan.registration import is_period
from kron.core.time.instant import EpochSeconds, rfc3339

FORGOTTEN = "no record of it is left: old history was removed, or the job was deleted or finished at its time"
# Reasons a run gets after its start; before that its reason says why it was started.
AFTER_START = frozenset({Reason.RETRY_PREEMPTED, Reason.REPLACED, Reason.BY_HAND})
DEFINITION_GONE = "neither a record of it nor the definition of that time is left: old history was removed"


class Fact(NamedTuple):
    """One link of the chain: a stable code, a sentence for people, and when it became so, if it did."""

    code: str
    sentence: str
    at: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the link for programs, its instant in UTC with milliseconds."""
        at = None if self.at is None else f"{rfc3339(self.at // 1000)[:-1]}.{self.at % 1000:03}Z"
        return {"code": str(self.code), "sentence": self.sentence, "at": at}


class PeriodHistory(NamedTuple):
    """What is remembered of one job around one period.

    `epochs` are its earlier definitions, `run` is the period's own record, `dropped` one it shares.
    """

    job: JobRecord
    epochs: Sequence[EpochRecord] = ()
    run: RunRecord | None = None
    attempts: Sequence[AttemptRecord] = ()
    dropped: RangeRecord | None = None


class Explanation(NamedTuple):
    """The chain, and what it comes to: an outcome, or None while the period is open or is none.

    Without a nominal time, the wall time asked for does not exist.
    """

    identity: str
    nominal_time: EpochSeconds | None
    outcome: Outcome | None
    facts: list[Fact]

    @property
    def code(self) -> str:
        """Return the code of the last link, which says where the period stands."""
        return self.facts[-1].code

    @property
    def sentences(self) -> list[str]:
        """Return the chain for people, one sentence for each link."""
        return [fact.sentence for fact in self.facts]

    def to_dict(self) -> dict[str, object]:
        """Return the answer for programs, instants in UTC."""
        return {
            "identity": self.identity,
            "period_id": None if self.nominal_time is None else rfc3339(self.nominal_time),
            "outcome": None if self.outcome is None else self.outcome.value,
            "code": self.code,
            "facts": [fact.to_dict() for fact in self.facts],
        }


def why(memory: PeriodHistory, nominal_time: EpochSeconds, *, now: int) -> Explanation:
    """Return why a period ended as it did, or where it stands."""
    followed = definition_at(memory, nominal_time)
    identity = memory.job.identity
    if followed is None:
        return Explanation(identity, nominal_time, None, [Fact("forgotten", DEFINITION_GONE)])
    terms = compiled_job(followed.definition, identity)
    facts = [schedule_of(memory, followed)]
    if memory.run is None and not is_period(terms, nominal_time):
        return Explanation(identity, nominal_time, None, [*facts, _no_period(terms, nominal_time)])
    facts += _decided(memory.job, terms, nominal_time)
    outcome = None
    if memory.run is not None:
        outcome = memory.run.outcome
        facts += _recorded(memory.run, memory.attempts)
    elif memory.dropped is not None:
        outcome, further = _shared(memory.dropped, terms, identity, nominal_time)
        facts += further
    else:
        facts.append(_unrecorded(memory.job, terms, nominal_time, now))
    return Explanation(identity, nominal_time, outcome, facts)


def definition_at(memory: PeriodHistory, nominal_time: EpochSeconds) -> EpochRecord | None:
    """Return the definition a period follows: an edit leaves those up to its instant to the old one.

    None, if it was removed with old history.
    """
    definitions = [*memory.epochs, present_definition(memory.job)]
    oldest = definitions[0]
    if memory.run is not None:
        return next((known for known in reversed(definitions) if known.epoch <= memory.run.epoch), None)
    if oldest.epoch > 1 and 1000 * nominal_time <= oldest.edited_at:
        return None
    later = [known for known in definitions[1:] if 1000 * nominal_time > known.edited_at]
    return later[-1] if later else oldest


def present_definition(job: JobRecord) -> EpochRecord:
    """Return a job's own definition, and since when it holds."""
    return EpochRecord(job.identity, job.epoch, job.edited_at, job.definition)


def schedule_of(memory: PeriodHistory, followed: EpochRecord) -> Fact:
    """Say which schedule a period follows."""
    schedule = compiled_job(followed.definition, memory.job.identity).job.schedule
    changed = "" if followed.epoch == memory.job.epoch else f", as defined before edit {followed.epoch}"
    return Fact("schedule", f'the schedule is "{schedule.text}" in {schedule.timezone}{changed}')


def _no_period(terms: CompiledJob, nominal_time: EpochSeconds) -> Fact:
    """Say that a definition has no period with this nominal time, and which are the nearest."""
    text, policy = rfc3339(nominal_time), terms.policy
    if policy.start_at is not None and nominal_time < policy.start_at:
        return Fact("no_period", f"{text} lies before the job's start_at, {rfc3339(policy.start_at)}")
    if policy.end_at is not None and nominal_time > policy.end_at:
        return Fact("no_period", f"{text} lies after the job's end_at, {rfc3339(policy.end_at)}")
    return Fact("no_period", f"{text} is no nominal time; {neighbours(terms, nominal_time)}")


def neighbours(terms: CompiledJob, instant: EpochSeconds) -> str:
    """Name the nominal times before and after an instant."""
    near = (terms.plan.prev_at_or_before(instant), terms.plan.next_after(instant))
    return f"the nearest are {' and '.join(rfc3339(time) for time in near if time is not None)}"


def _decided(job: JobRecord, terms: CompiledJob, nominal_time: EpochSeconds) -> Iterator[Fact]:
    yield Fact("nominal_time", f"its nominal time is {rfc3339(nominal_time)}", 1000 * nominal_time)
    if terms.plain:
        return
    decision = decide_at(terms.for_job(job.identity), nominal_time)
    if decision.chosen_time is None:
        yield Fact("unschedulable", f"{Reason.NO_CANDIDATE.sentence} ({decision.attempts} tried)")
        return
    fire_time = terms.fire_time(job.identity, nominal_time)
    assert fire_time is not None
    start, end = map(rfc3339, decision.bounds)
    chosen = f"{rfc3339(decision.chosen_time)} was chosen from {start} to {end}"
    yield Fact("chosen_time", chosen, 1000 * decision.chosen_time)
    if fire_time != 1000 * decision.chosen_time:
        by = fire_time - 1000 * decision.chosen_time
        yield Fact("jitter", f"jitter moved it by {by:+} ms", fire_time)


def _recorded(run: RunRecord, attempts: Sequence[AttemptRecord]) -> Iterator[Fact]:
    yield Fact("recorded", "it was given a record", run.created_at)
    for attempt in attempts:
        ended = f"ended {attempt.result}" + (f": {attempt.error}" if attempt.error else "")
        yield Fact("attempt", f"attempt {attempt.attempt} {ended}", attempt.ended_at)
    since_then = run.reason in AFTER_START or (run.status is RunStatus.FAILED and run.is_open == 1)
    if run.started_at is not None:
        because = "" if since_then else f": {run.reason.sentence}"
        yield Fact("started", f"attempt {run.attempt} was started{because}", run.started_at)
    if run.ended_at is not None:
        ended = f"it ended {run.result}" + (f": {run.error}" if run.error else "")
        yield Fact("ended", ended, run.ended_at)
    if run.started_at is None or since_then:
        yield Fact(run.reason, run.reason.sentence, run.due_at)


def _shared(
    dropped: RangeRecord, terms: CompiledJob, identity: str, nominal_time: EpochSeconds
) -> tuple[Outcome, list[Fact]]:
    """Return the share of a period in a record of many; one that had no time to choose is unschedulable."""
    first, last = rfc3339(dropped.first), rfc3339(dropped.last)
    together = f"it is one of {dropped.periods} periods from {first} to {last} with one record"
    facts = [Fact("recorded_together", together, dropped.created_at)]
    if terms.fire_time(identity, nominal_time) is None:
        return Outcome.UNSCHEDULABLE, facts
    return dropped.outcome, [*facts, Fact(dropped.reason, dropped.reason.sentence)]


def _unrecorded(job: JobRecord, terms: CompiledJob, nominal_time: EpochSeconds, now: int) -> Fact:
    """Say why a period has no record."""
    fire_time = terms.fire_time(job.identity, nominal_time)
    if (1000 * nominal_time if fire_time is None else fire_time) < job.born_at:
        return Fact("before_creation", "its time had passed when the job was created", job.born_at)
    if job.deleted_at is not None and nominal_time > job.cursor:
        return Fact("deleted", Reason.DELETED.sentence, job.deleted_at)
    if nominal_time <= job.cursor:
        return Fact("forgotten", FORGOTTEN)
    if job.paused:
        because = f": {job.paused_because}" if job.paused_because else ""
        return Fact("paused", f"the job is paused{because}; it is judged when the job resumes")
    if job.remaining == 0:
        return Fact("finished", Reason.FINISHED.sentence)
    if fire_time is not None and fire_time > now:
        return Fact("to_come", Reason.PLANNED.sentence, fire_time)
    return Fact("overdue", "its time has come, and nobody has looked at it yet", fire_time)
