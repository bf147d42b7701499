"""Causes: what stopped, delayed, blocked or dropped a period, from incidents and excursions of the clock."""

from collections.abc import Iterator
from datetime import timedelta

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_of
from kron.core.plan.fact import Fact, Link, period_link
from kron.core.plan.incident import block_of, covers, moment, sentence_of
from kron.core.plan.period_history import PeriodHistory
from kron.core.plan.record import (
    ClockEnding,
    ClockEvent,
    ClockRecord,
    IncidentKind,
    IncidentRecord,
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
)
from kron.core.plan.registration import cursor_before
from kron.core.shard import shard_of
from kron.core.time.instant import EpochSeconds

OVERDUE = "due, and not processed by a worker yet"
JUDGED_LATER = "the period is judged on resume"
# What keeps a period from being judged.
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


# --- stops and delays ----------------------------------------------------------------------------------


def delays_of(
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
        fact = _stop_fact(incident)
        is_known = any(known.code == fact.code and known.at == fact.at for known in delays)
        if ends_at > due_at and not is_known:
            delays.append(fact)
            waited_until = max(waited_until, ends_at)
    return delays


def _stop_fact(incident: IncidentRecord) -> Fact:
    """Return the fact of a stop; the one before the first worker has no beginning."""
    return Fact(incident.kind, sentence_of(incident), incident.from_at or None)


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


def stopped_fact(history: PeriodHistory) -> Fact:
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


def absent_fact(absence: IncidentRecord) -> Fact:
    """Return the outage that a due period waits to end."""
    return Fact("overdue", f"{OVERDUE}: {sentence_of(absence)}", absence.from_at or None)


# --- other runs, workers and edits ---------------------------------------------------------------------


def blocks_of(history: PeriodHistory, nominal_time: EpochSeconds, reason: Reason) -> Iterator[Fact]:
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


def lost_with(history: PeriodHistory, ended_at: int | None) -> Iterator[Fact]:
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
        yield _stop_fact(incident)


def edits_of(history: PeriodHistory, run: RunRecord) -> Iterator[Fact]:
    """Yield the edit that removed a planned period, or decided it anew."""
    epochs = (run.epoch + 1, run.epoch) if run.reason is Reason.EDITED else (run.epoch,)
    for epoch in epochs:
        for incident in history.incidents:
            is_edit = incident.kind is IncidentKind.EDITED and incident.subject == str(epoch)
            if is_edit and run.created_at <= incident.from_at:
                yield Fact("edit", sentence_of(incident), incident.from_at)
                return


# --- the clock -----------------------------------------------------------------------------------------


def wrong_clock(history: PeriodHistory, now: int) -> Fact | None:
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


def created_ahead(history: PeriodHistory, now: int) -> Fact | None:
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


def dropped_ahead(clock: Fact | None, dropped: RunRecord | RangeRecord) -> list[Fact]:
    """Return the wrong clock if it had been ahead when a period was dropped: it is corrected later."""
    is_ahead = clock is not None and clock.at is not None and dropped.created_at > clock.at
    is_dropped = dropped.outcome is not None and dropped.outcome is not Outcome.EXECUTED
    return [clock] if clock is not None and is_ahead and is_dropped else []


def clock_facts(history: PeriodHistory, nominal_time: EpochSeconds) -> Iterator[Fact]:
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


def as_corrected(history: PeriodHistory, now: int) -> JobRecord:
    """Return a job as it will be once the clock, which was ahead when it was created, is steady."""
    job = history.job
    found = [
        record.found_at
        for record in history.excursions
        if record.event is ClockEvent.BEHIND and record.ended_at is None and record.found_at < job.born_at
    ]
    if not found and created_ahead(history, now) is not None:
        # No worker has found the clock behind yet; the next one finds the present.
        found = [now]
    if not found:
        return job
    cursor = cursor_before(found[0], compiled_job(job.definition, job.identity))
    return job._replace(born_at=found[0], cursor=min(job.cursor, cursor))


def before_creation(history: PeriodHistory, born_at: int) -> Fact:
    """Return that a period is older than its job; one created by a clock that was ahead says so."""
    for record in history.excursions:
        if record.event is ClockEvent.BEHIND and record.found_at == born_at:
            sentence = (
                "the job was created while the host's clock was ahead, so its periods count from "
                f"{moment(born_at)}, when the clock was found behind {moment(record.reference)}"
            )
            return Fact("before_creation", sentence, born_at)
    ahead = created_ahead(history, born_at)
    sentence = "its fire time was before the job was created"
    return Fact("before_creation", sentence if ahead is None else f"{sentence}: {ahead.sentence}", born_at)
