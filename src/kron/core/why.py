"""Why: the chain of facts that led to a period's outcome, from what is remembered and nothing else."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kron.core.decision import decide_at
from kron.core.instant import EpochSeconds, rfc3339
from kron.core.outcome import Outcome, Reason
from kron.core.record import AttemptRecord, EpochRecord, JobRecord, RangeRecord, RunRecord, Status
from kron.core.registration import is_period
from kron.core.terms import Terms, terms_of


class Fact(NamedTuple):
    """One link of the chain: a stable code, a sentence for people, and when it became so, if it did."""

    code: str
    sentence: str
    at: int | None = None


class Memory(NamedTuple):
    """What is remembered of one job around one period.

    `epochs` are its earlier definitions, `run` is the period's own record, `dropped` one it shares.
    """

    job: JobRecord
    epochs: Sequence[EpochRecord] = ()
    run: RunRecord | None = None
    attempts: Sequence[AttemptRecord] = ()
    dropped: RangeRecord | None = None


class Answer(NamedTuple):
    """The chain, and what it comes to: an outcome, or None while the period is open or is none."""

    outcome: Outcome | None
    facts: list[Fact]


def why(memory: Memory, nominal_time: EpochSeconds, *, now: int) -> Answer:
    """Return why a period ended as it did, or where it stands."""
    epoch, definition = _definition_at(memory, nominal_time)
    terms = terms_of(definition, memory.job.identity)
    facts = [_followed(memory, epoch, terms)]
    if memory.run is None and not is_period(terms, nominal_time):
        return Answer(None, [*facts, _no_period(terms, nominal_time)])
    facts += _decided(memory.job, terms, nominal_time)
    if memory.run is not None:
        return Answer(memory.run.outcome, [*facts, *_recorded(memory.run, memory.attempts)])
    if memory.dropped is not None:
        return _shared(memory.dropped, terms, memory.job.identity, nominal_time, facts)
    return Answer(None, [*facts, _unrecorded(memory.job, terms, nominal_time, now)])


def _definition_at(memory: Memory, nominal_time: EpochSeconds) -> tuple[int, str]:
    """Return the definition a period follows: an edit leaves those up to its instant to the old one."""
    definitions = [(epoch.epoch, epoch.edited_at, epoch.definition) for epoch in memory.epochs]
    definitions.append((memory.job.epoch, memory.job.edited_at, memory.job.definition))
    if memory.run is not None:
        return next((e, text) for e, _, text in reversed(definitions) if e <= memory.run.epoch)
    found = definitions[0]
    for definition in definitions[1:]:
        if 1000 * nominal_time > definition[1]:
            found = definition
    return found[0], found[2]


def _followed(memory: Memory, epoch: int, terms: Terms) -> Fact:
    schedule = terms.job.schedule
    changed = "" if epoch == memory.job.epoch else f", as defined before edit {epoch}"
    return Fact("schedule", f'the schedule is "{schedule.text}" in {schedule.timezone}{changed}')


def _no_period(terms: Terms, nominal_time: EpochSeconds) -> Fact:
    before = terms.plan.prev_at_or_before(nominal_time)
    after = terms.plan.next_after(nominal_time)
    near = " and ".join(rfc3339(instant) for instant in (before, after) if instant is not None)
    return Fact("no_period", f"{rfc3339(nominal_time)} is no nominal time; the nearest are {near}")


def _decided(job: JobRecord, terms: Terms, nominal_time: EpochSeconds) -> Iterator[Fact]:
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
    if run.started_at is not None:
        yield Fact("started", f"attempt {run.attempt} was started: {run.reason.sentence}", run.started_at)
    if run.ended_at is not None:
        ended = f"it ended {run.result}" + (f": {run.error}" if run.error else "")
        yield Fact("ended", ended, run.ended_at)
    if run.started_at is None or run.status in (Status.FAILED, Status.CANCELLED):
        yield Fact(run.reason, run.reason.sentence, run.due_at)


def _shared(
    dropped: RangeRecord, terms: Terms, identity: str, nominal_time: EpochSeconds, facts: list[Fact]
) -> Answer:
    """Return the share of a period in a record of many; one that had no time to choose is unschedulable."""
    first, last = rfc3339(dropped.first), rfc3339(dropped.last)
    together = f"it is one of {dropped.periods} periods from {first} to {last} with one record"
    facts = [*facts, Fact("recorded_together", together, dropped.created_at)]
    if terms.fire_time(identity, nominal_time) is None:
        return Answer(Outcome.UNSCHEDULABLE, facts)
    return Answer(dropped.outcome, [*facts, Fact(dropped.reason, dropped.reason.sentence)])


def _unrecorded(job: JobRecord, terms: Terms, nominal_time: EpochSeconds, now: int) -> Fact:
    """Say why a period has no record."""
    fire_time = terms.fire_time(job.identity, nominal_time)
    if fire_time is not None and fire_time < job.born_at:
        return Fact("before_creation", "its time had passed when the job was created", job.born_at)
    if job.deleted_at is not None and nominal_time > job.cursor:
        return Fact("deleted", Reason.DELETED.sentence, job.deleted_at)
    if nominal_time <= job.cursor and (job.replay_until is None or nominal_time > job.replay_until):
        return Fact("forgotten", "its record was removed with old history")
    if job.paused:
        because = f": {job.paused_because}" if job.paused_because else ""
        return Fact("paused", f"the job is paused{because}; it is judged when the job resumes")
    if job.remaining == 0:
        return Fact("finished", Reason.FINISHED.sentence)
    if fire_time is not None and fire_time > now:
        return Fact("to_come", Reason.PLANNED.sentence, fire_time)
    return Fact("overdue", "its time has come, and nobody has looked at it yet", fire_time)
