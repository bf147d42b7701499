"""Why: the chain of facts that led to a period's outcome, from stored records alone."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from kron.core.cron.dialect import REBOOT
from kron.core.job.decision import decide_at
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import OnOrphan
from kron.core.plan.cause import (
    CLOCK_WRONG,
    DELAYING,
    OVERDUE,
    absent_fact,
    as_corrected,
    before_creation,
    blocks_of,
    clock_facts,
    created_ahead,
    delays_of,
    dropped_ahead,
    edits_of,
    lost_with,
    stopped_fact,
    wrong_clock,
)
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.fact import Fact, Link
from kron.core.plan.incident import moment, sentence_of
from kron.core.plan.notice import notice_fact
from kron.core.plan.period_history import AFTER_START, PeriodHistory, definition_at
from kron.core.plan.record import (
    EpochRecord,
    IncidentKind,
    IncidentRecord,
    JobRecord,
    RangeRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
)
from kron.core.plan.registration import is_period
from kron.core.plan.step import CATCH_UP
from kron.core.plan.wall_time import clock_change_facts, neighbour_links, neighbours
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339

FORGOTTEN = "no record is left: history was pruned, or the job was deleted or finished at that time"
# The codes of facts that are causes.
CAUSAL = DELAYING | {"blocked", "edit", "clock_moved_forward"}
# What would let such a period run.
REMEDIES = {
    Reason.CATCHUP_NONE: 'catchup "once" or "all" runs periods that a pause or an outage delayed',
    Reason.SUPERSEDED: 'catchup "all" runs every period that a pause or an outage delayed',
    Reason.CATCHUP_LIMIT: "a higher max_catchup runs more of the delayed periods",
    Reason.DEADLINE: "a longer deadline lets a late period start",
    Reason.ACTIVE: 'overlap "queue" runs it later, "allow" runs it beside the active one',
    Reason.COALESCED: 'overlap "queue" runs every period, one after the other',
    Reason.QUEUE_FULL: "a higher queue_max lets more periods wait",
    Reason.OPEN_LIMIT: "runs that end make room: report ends, or set a run_timeout or another overlap",
    Reason.NO_CANDIDATE: "a longer window or fewer constraints leave a time to run",
}
# The policy that dropped a period which something delayed.
POLICIES = {
    Reason.CATCHUP_NONE: "the catch-up policy is none",
    Reason.SUPERSEDED: "the catch-up policy runs the newest period only",
    Reason.CATCHUP_LIMIT: "more periods than max_catchup were delayed",
    Reason.DEADLINE: "the deadline had passed",
}
# What a reason says of its cause when no incident is known.
GUESS = ": due during an outage or a pause"
REMEDY_OF_ORPHANS = 'with on_orphan "restart" such a run starts again'
DEFINITION_GONE = "neither a record nor the definition of that time is left: history was pruned"
# The fact of a run that its launcher has not accepted yet; callbacks are never accepted, processes are.
AWAITED, PROCESS = "awaits_launcher", "process"
# How an execution ended, for people.
RESULTS = {
    Result.SUCCESS: "succeeded",
    Result.FAILED: "failed",
    Result.LAUNCH_FAILED: "launch failed",
    Result.LOST: "lost",
    Result.ORPHANED: "lost: its worker ended while it ran",
    Result.REPLACED: "replaced",
    Result.CANCELLED: "cancelled",
}


class Explanation(NamedTuple):
    """The chain and its outcome, None while the period is open or if it is not a period.

    Without a nominal time, the requested wall time does not exist.
    """

    identity: str
    nominal_time: EpochSeconds | None
    outcome: Outcome | None
    facts: list[Fact]
    # The answer in one sentence, and what would change it.
    headline: str = ""
    remedy: str | None = None

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
            "headline": self.headline,
            "remedy": self.remedy,
            "facts": [fact.to_dict() for fact in self.facts],
        }


def why(history: PeriodHistory, nominal_time: EpochSeconds, *, now: int) -> Explanation:
    """Return why a period has its outcome, or its current state."""
    followed = definition_at(history, nominal_time)
    identity = history.job.identity
    if followed is None:
        fact = Fact("forgotten", DEFINITION_GONE)
        return Explanation(identity, nominal_time, None, [fact], fact.sentence)
    compiled = compiled_job(followed.definition, identity)
    facts = [schedule_of(history, followed)]
    clock_changes = list(clock_change_facts(compiled, nominal_time, now=now))
    if history.run is None and not is_period(compiled, nominal_time):
        return _not_a_period(history, compiled, nominal_time, [*facts, *clock_changes])
    facts += [*_decided(history.job, compiled, nominal_time), *clock_changes]
    facts += clock_facts(history, nominal_time)
    outcome, told = _told(history, compiled, nominal_time, now)
    facts += told
    made_up = [] if _is_good(history.run) else list(_made_up(history))
    facts = _without_guesses(facts)
    explanation = Explanation(identity, nominal_time, outcome, facts)
    headline, remedy = _headline(history, explanation, made_up)
    effects = [*made_up, *map(notice_fact, history.notices)]
    return explanation._replace(facts=[*facts[:-1], *effects, facts[-1]], headline=headline, remedy=remedy)


def why_boot(history: PeriodHistory) -> Explanation:
    """Return the chain of the latest boot of a job that has no times; `history` has its run, if any."""
    identity, run = history.job.identity, history.run
    schedule = Fact("schedule", f'the schedule is "{REBOOT}": one run for each boot of the host, no periods')
    if run is None:
        none = Fact("no_boot", "krond has not been started at a boot since the job was created")
        return Explanation(identity, None, None, [schedule, none], f"no run: {none.sentence}")
    booted = Fact("booted", f"krond started first in this boot at {moment(run.created_at)}", run.created_at)
    recorded = list(_recorded(history, run))
    return Explanation(identity, None, run.outcome, [schedule, booted, *recorded], recorded[-1].sentence)


def _without_guesses(facts: list[Fact]) -> list[Fact]:
    """Return facts whose reasons name the policy alone where other facts name the cause."""
    if not any(fact.code in DELAYING for fact in facts):
        return facts
    told = []
    for fact in facts:
        policy = POLICIES.get(fact.code) if isinstance(fact.code, Reason) else None
        sentence = fact.sentence.replace(GUESS, "") if fact.code == "started" else fact.sentence
        told.append(fact._replace(sentence=sentence if policy is None else f"missed: {policy}"))
    return told


def _not_a_period(
    history: PeriodHistory, compiled: CompiledJob, nominal_time: EpochSeconds, facts: list[Fact]
) -> Explanation:
    """Return that a time is no period, with the clock change or the edit that is the reason."""
    edits = [each for each in history.incidents if each.kind is IncidentKind.EDITED]
    facts = [*facts, *(Fact("edit", sentence_of(edit), edit.from_at) for edit in edits[-1:])]
    none = _no_period(compiled, nominal_time)
    reasons = [fact for fact in facts if fact.code in ("dst_gap", "dst_repeat")]
    headline = f"no period: {(reasons or [none])[0].sentence}"
    return Explanation(history.job.identity, nominal_time, None, [*facts, none], headline)


def _told(
    history: PeriodHistory, compiled: CompiledJob, nominal_time: EpochSeconds, now: int
) -> tuple[Outcome | None, list[Fact]]:
    """Return the outcome of a period, and the facts of its records and of what happened around them."""
    causes = delays_of(history, compiled, nominal_time, now)
    clock = wrong_clock(history, now) or created_ahead(history, now)
    run = history.run
    if run is not None:
        return run.outcome, [*causes, *_of_run(history, run, clock, now)]
    if history.dropped is not None:
        outcome, further = _shared(history.dropped, compiled, history.job.identity, nominal_time)
        last = [*blocks_of(history, nominal_time, history.dropped.reason), further[-1]]
        return outcome, [*causes, *further[:-1], *dropped_ahead(clock, history.dropped), *last]
    state = _unrecorded(history, compiled, nominal_time, now)
    if clock is not None and state.code == "overdue" and history.absence is None:
        state = state._replace(sentence=f"{state.sentence}: {clock.sentence}")
    facts = [clock] if clock is not None and state.code in ("overdue", "to_come") else []
    return None, [*(causes if state.code == "overdue" else ()), *facts, state]


def _of_run(history: PeriodHistory, run: RunRecord, clock: Fact | None, now: int) -> list[Fact]:
    """Return the facts of a period's run, and what stops it or its worker now."""
    facts = list(_recorded(history, run))
    is_due = run.due_at is not None and run.due_at <= now
    if run.outcome is None and history.job.is_stopped:
        facts.append(stopped_fact(history))
    elif history.absence is not None and run.in_flight:
        facts.insert(-1, Fact("outage", sentence_of(history.absence), history.absence.from_at or None))
    elif history.absence is not None and is_due:
        facts.append(absent_fact(history.absence))
    elif clock is not None and is_due and not run.in_flight:
        facts.append(clock)
    elif clock is not None and run.is_open:
        facts.insert(-1, clock)
    else:
        facts[-1:-1] = dropped_ahead(clock, run)
    return facts


def _made_up(history: PeriodHistory) -> Iterator[Fact]:
    """Yield the backfills and manual runs that made up for a period that did not succeed."""
    for run in sorted(history.requested, key=lambda run: run.created_at):
        asked = [
            incident
            for incident in history.incidents
            if incident.kind is IncidentKind.REQUESTED
            and incident.subject == run.kind
            and incident.from_at == run.created_at
        ]
        unsigned = IncidentRecord(IncidentKind.REQUESTED, run.identity, run.created_at, subject=run.kind)
        sentence = f"{sentence_of(asked[0] if asked else unsigned)}; {_end_of(run)}"
        yield Fact(
            "made_up" if _is_good(run) else "requested", sentence, run.created_at, (Link("run", run.key),)
        )


def _end_of(run: RunRecord) -> str:
    """Return how far a requested run came."""
    if run.started_at is None:
        return "it waits to start"
    started = f"it started at {moment(run.started_at)}"
    if run.ended_at is None:
        return f"{started} and is running"
    return f"{started} and {_ended(run.result, run.error)} at {moment(run.ended_at)}"


def _is_good(run: RunRecord | None) -> bool:
    """Say whether a run succeeded, or was accepted by a target that does not report."""
    if run is None:
        return False
    return run.status is RunStatus.SUCCESS or (run.status is RunStatus.ENQUEUED and not run.is_open)


# --- the answer in one sentence --------------------------------------------------------------------------


def _headline(
    history: PeriodHistory, explanation: Explanation, made_up: Sequence[Fact]
) -> tuple[str, str | None]:
    """Return the answer in one sentence, and what would change it."""
    run, facts = history.run, explanation.facts
    causes = [fact for fact in facts if fact.code in CAUSAL]
    if explanation.outcome is None:
        waits = [fact for fact in facts if fact.code == "blocked"]
        return (waits or facts)[-1].sentence, None
    if explanation.outcome is Outcome.EXECUTED and run is not None:
        waits = [fact for fact in facts if fact.code == AWAITED]
        return (waits[0].sentence, None) if waits else _executed(history.job, run, facts, causes)
    reason = run.reason if run is not None else history.dropped.reason if history.dropped else None
    if explanation.code == Reason.NO_CANDIDATE:
        # A shared record has the reason of most of its periods.
        reason = Reason.NO_CANDIDATE
    cause = _cause_of(reason, facts[-1].sentence, causes)
    good = [fact for fact in made_up if fact.code == "made_up"]
    if good:
        return f"did not run on schedule: {cause}; made up: {good[0].sentence}", None
    return f"did not run: {cause}", None if reason is None else REMEDIES.get(reason)


def _cause_of(reason: Reason | None, sentence: str, causes: Sequence[Fact]) -> str:
    """Return why a period did not run: what delayed or blocked it, and the policy that applied then."""
    own = sentence.split(": ", 1)[-1]
    if not causes or reason is Reason.NO_CANDIDATE:
        return own
    policy = None if reason is None else POLICIES.get(reason)
    if policy is not None:
        return f"{causes[-1].sentence}, and {policy}"
    delays = [fact.sentence for fact in causes if fact.code in DELAYING]
    return "; ".join([causes[-1].sentence, *(each for each in delays if each != causes[-1].sentence)])


def _executed(
    job: JobRecord, run: RunRecord, facts: Sequence[Fact], causes: Sequence[Fact]
) -> tuple[str, str | None]:
    late = next((fact.sentence for fact in facts if fact.code == "started" and " late" in fact.sentence), "")
    how = late.split(": ", 1)[-1] if late else "caught up" if run.reason in CATCH_UP else ""
    delay = f", {how}: {causes[0].sentence}" if how and causes else f", {how}" if how else ""
    if run.result is Result.ORPHANED:
        taken = [fact.sentence for fact in facts if fact.code == IncidentKind.TAKE_OVER]
        restarts = compiled_job(job.definition, job.identity).policy.on_orphan is OnOrphan.RESTART
        remedy = None if restarts else REMEDY_OF_ORPHANS
        return f"lost while it ran: {(taken or ['its worker ended'])[-1]}", remedy
    if run.status is RunStatus.FAILED and run.is_open:
        return f"failed, and waits to retry: {facts[-1].sentence}", None
    if run.reason is Reason.RETRY_PREEMPTED and run.status is RunStatus.FAILED:
        return f"failed, and was not retried: {(causes or facts)[-1].sentence}", None
    if run.in_flight:
        assert run.started_at is not None
        word = "sent" if run.status is RunStatus.ENQUEUED else "running"
        outage = next((f"; {fact.sentence}" for fact in facts if fact.code in ("outage", CLOCK_WRONG)), "")
        return f"{word} since {moment(run.started_at)}{delay}{outage}", None
    if run.status is RunStatus.CANCELLED and run.reason is Reason.REPLACED:
        return f"ended before it was done: {(causes or facts)[-1].sentence}", None
    again = f" after {run.attempt} attempts" if run.attempt > 1 else ""
    return f"{_ended(run.result, run.error)}{again}{delay}", None


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
    near = neighbours(compiled, nominal_time)
    links = neighbour_links(compiled, nominal_time)
    return Fact("no_period", f"{text} is not a nominal time; {near}", links=links)


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


def _recorded(history: PeriodHistory, run: RunRecord) -> Iterator[Fact]:
    """Yield the facts of a period's run: its record, its attempts, and its end."""
    yield Fact("recorded", "recorded", run.created_at)
    yield from edits_of(history, run)
    yield from blocks_of(history, run.nominal_time, Reason.QUEUED)
    for attempt in history.attempts:
        if attempt.result is Result.ORPHANED:
            yield from lost_with(history, attempt.ended_at)
        sentence = f"attempt {attempt.attempt} {_ended(attempt.result, attempt.error)}"
        yield Fact("attempt", sentence, attempt.ended_at)
    waits_to_retry = run.status is RunStatus.FAILED and run.is_open == 1
    since_then = run.reason in AFTER_START or waits_to_retry
    if run.started_at is not None:
        how = " started" if since_then else f": {_start_of(run)}"
        yield Fact("started", f"attempt {run.attempt}{how}", run.started_at)
        if _awaits_launcher(history.job, run):
            sentence = (
                f"handed to the launcher at {moment(run.started_at)}, which has not started it yet: "
                "it waits for one of its user's slots (max_running), or for an answer"
            )
            yield Fact(AWAITED, sentence, run.started_at)
    if run.result is Result.ORPHANED:
        yield from lost_with(history, run.ended_at)
    if run.ended_at is not None:
        yield Fact("ended", _ended(run.result, run.error), run.ended_at)
    if waits_to_retry:
        yield _retry_fact(history, run)
    elif run.started_at is None or since_then:
        if run.reason is not Reason.QUEUED:
            yield from blocks_of(history, run.nominal_time, run.reason)
        yield Fact(run.reason, run.reason.sentence, run.due_at)


def _awaits_launcher(job: JobRecord, run: RunRecord) -> bool:
    """Say whether a launcher that reports the acceptance of a run has not accepted it yet."""
    reports = run.status is RunStatus.ENQUEUED or job.launcher_kind == PROCESS
    return run.in_flight and not run.acked and reports


def _start_of(run: RunRecord) -> str:
    """Return how an attempt started: on schedule, late by some time, or for another reason."""
    assert run.started_at is not None
    late = run.started_at // 1000 - run.fire_time // 1000
    if run.reason is Reason.DUE and run.attempt == 1 and late > 0 and run.kind is RunKind.PERIOD:
        return f"started {format_duration(timedelta(seconds=late))} late"
    return run.reason.sentence


def _retry_fact(history: PeriodHistory, run: RunRecord) -> Fact:
    """Return when a failed run starts again, or what its retry waits for."""
    number = run.attempt + 1
    if run.due_at is None:
        held = "the job is resumed" if history.job.is_stopped else "the active run has ended"
        return Fact(run.reason, f"attempt {number} starts when {held}")
    assert run.ended_at is not None
    after = format_duration(timedelta(milliseconds=run.due_at - run.ended_at))
    delay = "" if run.reason is Reason.RESTARTED else f", {after} after the failure (retry_delay)"
    return Fact(run.reason, f"attempt {number} starts at {moment(run.due_at)}{delay}", run.due_at)


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
        return Outcome.UNSCHEDULABLE, [*facts, Fact(Reason.NO_CANDIDATE, Reason.NO_CANDIDATE.sentence)]
    return dropped.outcome, [*facts, Fact(dropped.reason, dropped.reason.sentence)]


def _unrecorded(history: PeriodHistory, compiled: CompiledJob, nominal_time: EpochSeconds, now: int) -> Fact:
    """Return why a period has no record."""
    job = as_corrected(history, now)
    fire_time = compiled.fire_time(job.identity, nominal_time)
    if (1000 * nominal_time if fire_time is None else fire_time) < job.born_at:
        return before_creation(history, job.born_at)
    if job.deleted_at is not None and nominal_time > job.cursor:
        return Fact("deleted", Reason.DELETED.sentence, job.deleted_at)
    if nominal_time <= job.cursor:
        return Fact("forgotten", FORGOTTEN)
    if job.is_stopped:
        return stopped_fact(history)
    if job.remaining == 0:
        return Fact("finished", Reason.FINISHED.sentence)
    if fire_time is not None and fire_time > now:
        return Fact("to_come", Reason.PLANNED.sentence, fire_time)
    return Fact("overdue", OVERDUE, fire_time) if history.absence is None else absent_fact(history.absence)
