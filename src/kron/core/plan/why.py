"""Why: the chain of facts that led to a period's outcome, from stored records alone."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from kron.core.cron.dialect import REBOOT
from kron.core.job.decision import decide_at
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_of
from kron.core.plan.fact import Fact, Link, period_link
from kron.core.plan.incident import block_of, covers, moment, sentence_of
from kron.core.plan.notice import notice_fact
from kron.core.plan.record import (
    AttemptRecord,
    ClockEnding,
    ClockEvent,
    ClockRecord,
    EpochRecord,
    IncidentKind,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
    present_definition,
)
from kron.core.plan.registration import cursor_before, is_period
from kron.core.plan.wall_time import clock_change_facts, neighbour_links, neighbours
from kron.core.shard import shard_of
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339

OVERDUE = "due, and not processed by a worker yet"
FORGOTTEN = "no record is left: history was pruned, or the job was deleted or finished at that time"
# Reasons that a run gets after its start; before that its reason says why it started.
AFTER_START = frozenset({Reason.RETRY_PREEMPTED, Reason.REPLACED, Reason.BY_HAND})
# Reasons that a waiting run gets some time after its record.
AFTER_RECORD = frozenset({Reason.EDITED, Reason.COALESCED, Reason.QUEUE_FULL, Reason.DEADLINE})
JUDGED_LATER = "the period is judged on resume"
# What keeps a period from being judged, and the facts that are causes.
DELAYING = frozenset(
    {
        IncidentKind.PAUSED,
        IncidentKind.SUSPENDED,
        IncidentKind.TAKE_OVER,
        IncidentKind.CLOCK_JUMP,
        IncidentKind.CLOCK_BEHIND,
        IncidentKind.CLOCK_AHEAD,
    }
)
# Incidents that a worker finds when they end, and so before it judges a period.
FOUND_AT_ITS_END = frozenset({IncidentKind.TAKE_OVER, IncidentKind.CLOCK_JUMP})
# The clock of the worker that would plan a period is wrong now.
CLOCK_WRONG = "clock_wrong"
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
CAUGHT_UP = frozenset({Reason.CAUGHT_UP, Reason.SPREAD})
REMEDY_OF_ORPHANS = 'on_orphan "restart" starts such a run again'
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


NO_RUNS: Mapping[str, RunRecord] = {}


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
    # The incidents around it, the runs that blocked it, by key, and the runs requested for it or after it.
    incidents: Sequence[IncidentRecord] = ()
    blockers: Mapping[str, RunRecord] = NO_RUNS
    requested: Sequence[RunRecord] = ()
    # The notifications about it.
    notices: Sequence[NoticeRecord] = ()
    # The present outage: no worker owns the job; and the worker that owns it, None without a worker.
    absence: IncidentRecord | None = None
    owner: str | None = None
    # How far the clock may go back before it counts as wrong, as its workers are configured.
    lookahead_ms: int = LOOKAHEAD_MS


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
    facts += _clock_facts(history, nominal_time)
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
    causes = _delays(history, compiled, nominal_time, now)
    clock = _wrong_clock(history, now) or _created_ahead(history, now)
    run = history.run
    if run is not None:
        return run.outcome, [*causes, *_of_run(history, run, clock, now)]
    if history.dropped is not None:
        outcome, further = _shared(history.dropped, compiled, history.job.identity, nominal_time)
        last = [*_blocks(history, nominal_time, history.dropped.reason), further[-1]]
        return outcome, [*causes, *further[:-1], *_dropped_ahead(clock, history.dropped), *last]
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
        facts.append(_stopped(history))
    elif history.absence is not None and run.in_flight:
        facts.insert(-1, Fact("outage", sentence_of(history.absence), history.absence.from_at or None))
    elif history.absence is not None and is_due:
        facts.append(_absent(history.absence))
    elif clock is not None and is_due and not run.in_flight:
        facts.append(clock)
    elif clock is not None and run.is_open:
        facts.insert(-1, clock)
    else:
        facts[-1:-1] = _dropped_ahead(clock, run)
    return facts


# --- the clock -------------------------------------------------------------------------------------------


def _wrong_clock(history: PeriodHistory, now: int) -> Fact | None:
    """Return the present fault of the clock of the worker that owns the job, for which the job waits."""
    if history.owner is None:
        return None
    for record in history.excursions:
        if record.event is ClockEvent.BEHIND and record.ended_at is None and record.owner == history.owner:
            return Fact(CLOCK_WRONG, clock_sentence(record), record.found_at)
    for incident in history.incidents:
        if _is_clock_ahead_now(history, incident, now):
            return Fact(CLOCK_WRONG, sentence_of(incident), incident.from_at)
    return None


def _created_ahead(history: PeriodHistory, now: int) -> Fact | None:
    """Return that a job was created later than now by the clock of that time."""
    job = history.job
    by_ms = job.born_at - now
    if by_ms <= history.lookahead_ms:
        return None
    sentence = (
        f"the job was created while the host's clock was ahead: it showed {moment(job.born_at)}, which is "
        f"{timedelta(seconds=by_ms // 1000)} after the present, and no worker has corrected that yet"
    )
    return Fact(CLOCK_WRONG, sentence, now)


def _is_clock_ahead_now(history: PeriodHistory, incident: IncidentRecord, now: int) -> bool:
    """Say whether the worker that owns the job waits now because its clock is ahead of the store's."""
    is_of_owner = incident.actor is not None and incident.actor == history.owner
    is_ahead = incident.kind is IncidentKind.CLOCK_AHEAD and incident.until_at is not None
    return is_ahead and is_of_owner and incident.from_at <= now < (incident.until_at or 0)


def _dropped_ahead(clock: Fact | None, dropped: RunRecord | RangeRecord) -> list[Fact]:
    """Return the wrong clock if it had been ahead when a period was dropped: it is corrected later."""
    is_ahead = clock is not None and clock.at is not None and dropped.created_at > clock.at
    is_dropped = dropped.outcome is not None and dropped.outcome is not Outcome.EXECUTED
    return [clock] if clock is not None and is_ahead and is_dropped else []


# --- causes ----------------------------------------------------------------------------------------------


def _delays(
    history: PeriodHistory, compiled: CompiledJob, nominal_time: EpochSeconds, now: int
) -> list[Fact]:
    """Return what kept a period from being judged at its fire time: pauses, outages and clock jumps."""
    identity, judged_at = history.job.identity, _judged_at(history, now)
    fire_time = compiled.fire_time(identity, nominal_time)
    due_at = 1000 * nominal_time if fire_time is None else fire_time
    delays: list[Fact] = []
    waited_until = due_at
    for incident in sorted(history.incidents, key=lambda incident: incident.from_at):
        if not _stops(incident, history, now) or not incident.from_at <= waited_until < judged_at:
            continue
        if incident.kind in FOUND_AT_ITS_END and (incident.until_at or 0) > judged_at:
            # A clock that was ahead wrote it: a worker was there when the period was judged.
            continue
        ends_at = judged_at if incident.until_at is None else incident.until_at
        is_known = any(fact.code == incident.kind and fact.at == incident.from_at for fact in delays)
        if ends_at > due_at and not is_known:
            delays.append(Fact(incident.kind, sentence_of(incident), incident.from_at))
            waited_until = max(waited_until, ends_at)
    return delays


def _stops(incident: IncidentRecord, history: PeriodHistory, now: int) -> bool:
    """Say whether an incident keeps a job's periods from being judged."""
    if incident.kind not in DELAYING or _is_present_stop(history, incident, now):
        return False
    return covers(incident, shard_of(history.job.identity))


def _is_present_stop(history: PeriodHistory, incident: IncidentRecord, now: int) -> bool:
    """Say whether an incident is what stops an unjudged period now: the last fact says that."""
    is_judged = history.dropped is not None or (history.run is not None and history.run.outcome is not None)
    is_present = incident.until_at is None or _is_clock_ahead_now(history, incident, now)
    return is_present and not is_judged


def _judged_at(history: PeriodHistory, now: int) -> int:
    """Return when a period was decided: its first start, its record as dropped, or not yet."""
    if history.attempts and history.attempts[0].started_at is not None:
        return history.attempts[0].started_at
    run = history.run
    if run is None:
        return now if history.dropped is None else history.dropped.created_at
    if run.started_at is not None:
        return run.started_at
    return now if run.is_open else max(run.created_at, run.fire_time)


def _blocks(history: PeriodHistory, nominal_time: EpochSeconds, reason: Reason) -> Iterator[Fact]:
    """Yield the runs that kept a period from starting, with the reason it got."""
    for incident in history.incidents:
        if incident.kind is IncidentKind.BLOCKED:
            block = block_of(incident)
            if block.first <= nominal_time <= block.last and block.how == reason:
                yield _blocked_fact(history, incident)


def _blocked_fact(history: PeriodHistory, incident: IncidentRecord) -> Fact:
    block, blocker = block_of(incident), history.blockers.get(incident.subject or "")
    link = period_link(block.blocker)
    if block.kind is not RunKind.PERIOD:
        link = Link("run", incident.subject or "")
    waits = history.run is not None and history.run.status is RunStatus.PENDING
    return Fact("blocked", sentence_of(incident, blocker, waits=waits), incident.from_at, (link,))


def _lost_with(history: PeriodHistory, ended_at: int | None) -> Iterator[Fact]:
    """Yield the take-over that found an execution orphaned."""
    shard = shard_of(history.job.identity)
    found = [
        incident
        for incident in history.incidents
        if incident.kind is IncidentKind.TAKE_OVER
        and incident.until_at == ended_at
        and covers(incident, shard)
    ]
    for incident in found[-1:]:
        yield Fact(incident.kind, sentence_of(incident), incident.from_at)


def _edits(history: PeriodHistory, run: RunRecord) -> Iterator[Fact]:
    """Yield the edit that removed a planned period, or decided it anew."""
    epochs = (run.epoch + 1, run.epoch) if run.reason is Reason.EDITED else (run.epoch,)
    for epoch in epochs:
        for incident in history.incidents:
            is_edit = incident.kind is IncidentKind.EDITED and incident.subject == str(epoch)
            if is_edit and run.created_at <= incident.from_at:
                yield Fact("edit", sentence_of(incident), incident.from_at)
                return


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
        return (waits[0].sentence, None) if waits else _executed(run, facts, causes)
    reason = run.reason if run is not None else history.dropped.reason if history.dropped else None
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


def _executed(run: RunRecord, facts: Sequence[Fact], causes: Sequence[Fact]) -> tuple[str, str | None]:
    late = next((fact.sentence for fact in facts if fact.code == "started" and " late" in fact.sentence), "")
    how = late.split(": ", 1)[-1] if late else "caught up" if run.reason in CAUGHT_UP else ""
    delay = f", {how}: {causes[0].sentence}" if how and causes else f", {how}" if how else ""
    if run.result is Result.ORPHANED:
        taken = [fact.sentence for fact in facts if fact.code == IncidentKind.TAKE_OVER]
        return f"lost while it ran: {(taken or ['its worker ended'])[-1]}", REMEDY_OF_ORPHANS
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


def _clock_facts(history: PeriodHistory, nominal_time: EpochSeconds) -> Iterator[Fact]:
    """Yield what a wrong clock did to a period: dropped and opened again, run early, or jumped over."""
    for each in history.reopened:
        at, back = moment(each.created_at), moment(each.reopened_at)
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
    shown, reference = moment(record.found_at), moment(record.reference)
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


def definition_at(history: PeriodHistory, nominal_time: EpochSeconds) -> EpochRecord | None:
    """Return the definition a period follows: periods up to an edit follow the old one.

    None if it was pruned.
    """
    definitions = [*history.epochs, present_definition(history.job)]
    oldest = definitions[0]
    if history.run is not None:
        return next((known for known in reversed(definitions) if known.epoch <= history.run.epoch), None)
    if oldest.epoch > 1 and nominal_time <= oldest.since:
        return None
    later = [known for known in definitions[1:] if nominal_time > known.since]
    return later[-1] if later else oldest


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
    yield from _edits(history, run)
    yield from _blocks(history, run.nominal_time, Reason.QUEUED)
    for attempt in history.attempts:
        if attempt.result is Result.ORPHANED:
            yield from _lost_with(history, attempt.ended_at)
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
        yield from _lost_with(history, run.ended_at)
    if run.ended_at is not None:
        yield Fact("ended", _ended(run.result, run.error), run.ended_at)
    if waits_to_retry:
        yield _retry_fact(history, run)
    elif run.started_at is None or since_then:
        if run.reason is not Reason.QUEUED:
            yield from _blocks(history, run.nominal_time, run.reason)
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
        return Outcome.UNSCHEDULABLE, facts
    return dropped.outcome, [*facts, Fact(dropped.reason, dropped.reason.sentence)]


def _unrecorded(history: PeriodHistory, compiled: CompiledJob, nominal_time: EpochSeconds, now: int) -> Fact:
    """Return why a period has no record."""
    job = _as_corrected(history, now)
    fire_time = compiled.fire_time(job.identity, nominal_time)
    if (1000 * nominal_time if fire_time is None else fire_time) < job.born_at:
        return _before_creation(history, job.born_at)
    if job.deleted_at is not None and nominal_time > job.cursor:
        return Fact("deleted", Reason.DELETED.sentence, job.deleted_at)
    if nominal_time <= job.cursor:
        return Fact("forgotten", FORGOTTEN)
    if job.is_stopped:
        return _stopped(history)
    if job.remaining == 0:
        return Fact("finished", Reason.FINISHED.sentence)
    if fire_time is not None and fire_time > now:
        return Fact("to_come", Reason.PLANNED.sentence, fire_time)
    return Fact("overdue", OVERDUE, fire_time) if history.absence is None else _absent(history.absence)


def _as_corrected(history: PeriodHistory, now: int) -> JobRecord:
    """Return a job as it will be once the clock, which was ahead when it was created, is steady."""
    job = history.job
    found = [
        record.found_at
        for record in history.excursions
        if record.event is ClockEvent.BEHIND and record.ended_at is None and record.found_at < job.born_at
    ]
    if not found and _created_ahead(history, now) is not None:
        # No worker has found the clock behind yet; the next one finds the present.
        found = [now]
    if not found:
        return job
    cursor = cursor_before(found[0], compiled_job(job.definition, job.identity))
    return job._replace(born_at=found[0], cursor=min(job.cursor, cursor))


def _before_creation(history: PeriodHistory, born_at: int) -> Fact:
    """Return that a period is older than its job; one created by a clock that was ahead says so."""
    for record in history.excursions:
        if record.event is ClockEvent.BEHIND and record.found_at == born_at:
            sentence = (
                "the job was created while the host's clock was ahead, so its periods count from "
                f"{moment(born_at)}, when the clock was found behind {moment(record.reference)}"
            )
            return Fact("before_creation", sentence, born_at)
    ahead = _created_ahead(history, born_at)
    sentence = "its fire time was before the job was created"
    return Fact("before_creation", sentence if ahead is None else f"{sentence}: {ahead.sentence}", born_at)


def _absent(absence: IncidentRecord) -> Fact:
    """Return the outage that a due period waits to end."""
    return Fact("overdue", f"{OVERDUE}: {sentence_of(absence)}", absence.from_at or None)


def _stopped(history: PeriodHistory) -> Fact:
    """Return what keeps a period from being judged: a pause, the definition's suspend, or both."""
    job = history.job
    lasting = {each.kind: each for each in history.incidents if each.until_at is None}
    causes = []
    if job.suspended:
        suspend = lasting.get(IncidentKind.SUSPENDED)
        causes.append(sentence_of(suspend) if suspend else "the definition suspends the job (policy.suspend)")
    if job.paused:
        pause = lasting.get(IncidentKind.PAUSED)
        because = f": {job.paused_because}" if job.paused_because else ""
        causes.append(sentence_of(pause) if pause else f"the job is paused{because}")
    code = "suspended" if job.suspended else "paused"
    return Fact(code, f"{', and '.join(causes)}; {JUDGED_LATER}", job.paused_until)


def span_of(history: PeriodHistory, nominal_time: EpochSeconds, now: int) -> tuple[int, int]:
    """Return the interval of the incidents that can explain a period.

    It lasts from its record, or from the edit that the period follows, to its end.
    """
    run, dropped = history.run, history.dropped
    if run is not None:
        instants = (run.created_at, run.fire_time, run.started_at, run.ended_at)
        is_over = not run.is_open and run.reason not in AFTER_RECORD | AFTER_START
        last = max(at for at in instants if at is not None) if is_over else now
        return min(run.created_at, 1000 * nominal_time), last
    if dropped is not None:
        return 1000 * nominal_time, dropped.created_at
    followed = definition_at(history, nominal_time)
    if followed is not None and not is_period(
        compiled_job(followed.definition, history.job.identity), nominal_time
    ):
        return followed.edited_at, followed.edited_at
    return 1000 * nominal_time, max(now, 1000 * nominal_time)
