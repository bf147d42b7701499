"""Notices: from the outcomes of a planning step to the notifications that are sent about them.

Pure, as all planning. A notice is written in the transaction of its outcome; a sender reads it afterwards.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from hashlib import sha256
from json import loads
from typing import NamedTuple

from kron.core.job.notify import (
    NO_NOTIFY,
    Notify,
    NotifyEvent,
    NotifyRules,
    parse_notify,
    rules_in_force,
    shown_target,
)
from kron.core.job.outcome import Outcome
from kron.core.plan.compiled import cached_by_text
from kron.core.plan.fact import Fact
from kron.core.plan.record import (
    JobRecord,
    NoticeEvent,
    NoticeRecord,
    NoticeState,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
)
from kron.core.plan.step import Change
from kron.core.time.duration import format_duration
from kron.core.wording import counted

# How many different rules are cached; many jobs share few.
MAX_RULES = 10_000
# How an execution failed, for a headline.
HOW_FAILED = {
    Result.FAILED: "",
    Result.LAUNCH_FAILED: "launch failed",
    Result.LOST: "lost",
    Result.ORPHANED: "its worker died",
}
NOTIFIED = "notified"
# The codes of facts about notifications: they are effects of an outcome, not causes.
NOTICE_CODES = frozenset({NOTIFIED, "notification_failed", "notification_pending"})
PINGS = frozenset({NoticeEvent.PING_START, NoticeEvent.PING_SUCCESS, NoticeEvent.PING_FAIL})


class _Event(NamedTuple):
    """An event of a step: of which run or period, of how many periods, and the detail for people."""

    event: NoticeEvent
    key: str
    nominal_time: int
    periods: int = 1
    detail: str | None = None


@cached_by_text(MAX_RULES)
def rules_of(notify: str | None, default: Notify | None) -> NotifyRules | None:
    """Return the rules of a job by the text in its record; None if nothing is ever sent."""
    if notify is None and default is None:
        return None
    own = NO_NOTIFY if notify is None else parse_notify(loads(notify))
    return rules_in_force(own, default or NO_NOTIFY)


def needs_full_step(job: JobRecord, rules: NotifyRules, now: int) -> bool:
    """Say whether an ordinary start or success may have a notice, which the fast path never writes."""
    if rules.heartbeat is not None or _is_failing(job):
        return True
    late = NotifyEvent.LATE in rules.on and job.next_time is not None
    return late and now - 1000 * (job.next_time or 0) > rules.late_ms


def _is_failing(job: JobRecord) -> bool:
    """Say whether the last end of a job's runs was a failure; a resume resets only how many they were."""
    if job.failures or job.last_failure_at is None:
        return job.failures > 0
    return job.last_success_at is None or job.last_success_at < job.last_failure_at


def notices_of(change: Change, before: JobRecord, rules: NotifyRules, now: int) -> list[NoticeRecord]:
    """Return the notices of one job's step, oldest event first."""
    notices = []
    for event in _events(change, before, rules):
        if NotifyEvent(event.event) in rules.on:
            notices += [_notice(before.identity, event, target, now) for target in rules.to]
    if rules.heartbeat is not None:
        notices += [_notice(before.identity, ping, rules.heartbeat, now) for ping in _pings(change)]
    return notices


def _events(change: Change, before: JobRecord, rules: NotifyRules) -> Iterator[_Event]:
    yield from _missed(change)
    yield from _late(change, rules)
    failures, is_failing = before.failures, _is_failing(before)
    last: RunRecord | None = None
    for run in change.ended:
        if run.status is RunStatus.FAILED:
            failures, is_failing, last = failures + 1, True, run
            yield _Event(NoticeEvent.FAILED, run.key, run.nominal_time, detail=_failure_of(run))
        elif run.status is RunStatus.SUCCESS:
            if is_failing:
                detail = f"after {counted(failures, 'failure')} in a row" if failures else "after a resume"
                yield _Event(NoticeEvent.RECOVERED, run.key, run.nominal_time, detail=detail)
            failures, is_failing = 0, False
    if change.job.paused and not before.paused and change.fault is None and last is not None:
        because = change.job.paused_because
        yield _Event(NoticeEvent.PAUSED_AFTER_FAILURES, last.key, last.nominal_time, detail=because)


def _missed(change: Change) -> Iterator[_Event]:
    for dropped in change.ranges:
        if dropped.outcome is Outcome.MISSED:
            key, because = key_of(dropped.identity, dropped.last), dropped.reason.sentence
            yield _Event(NoticeEvent.MISSED, key, dropped.last, dropped.periods, because)
    for run in (*change.inserts, *change.updates):
        if run.status is RunStatus.MISSED:
            yield _Event(NoticeEvent.MISSED, run.key, run.nominal_time, detail=run.reason.sentence)


def _late(change: Change, rules: NotifyRules) -> Iterator[_Event]:
    for run in change.starts:
        late_ms = (run.started_at or 0) - run.fire_time
        if run.attempt == 1 and run.kind is RunKind.PERIOD and late_ms > rules.late_ms:
            late = format_duration(timedelta(seconds=late_ms // 1000))
            yield _Event(
                NoticeEvent.LATE, run.key, run.nominal_time, detail=f"{late} late: {run.reason.sentence}"
            )


def _failure_of(run: RunRecord) -> str | None:
    how = "" if run.result is None else HOW_FAILED.get(run.result, run.result.value)
    return ": ".join(filter(None, (how, run.error))) or None


def _pings(change: Change) -> Iterator[_Event]:
    """Yield the pings of a heartbeat, one for each start and end of an attempt."""
    started = ((NoticeEvent.PING_START, run) for run in change.starts)
    ends = {RunStatus.SUCCESS: NoticeEvent.PING_SUCCESS, RunStatus.FAILED: NoticeEvent.PING_FAIL}
    ended = ((ends[run.status], run) for run in change.ended if run.status in ends)
    # An end that frees the next start comes first.
    for event, run in (*ended, *started):
        yield _Event(event, f"{run.key}:{run.attempt}", run.nominal_time)


def _notice(identity: str, event: _Event, target: str, now: int) -> NoticeRecord:
    """Return a notice; a repeated event of the same run, such as a failed retry, has the same id."""
    name = sha256("\n".join((identity, event.event, event.key, target)).encode()).hexdigest()[:32]
    key = event.key.partition(":")[0]
    return NoticeRecord(
        name,
        identity,
        event.event,
        target,
        event.nominal_time,
        key,
        now,
        event.periods,
        event.detail,
        due_at=now,
    )


def headline(notice: NoticeRecord) -> str:
    """Return a notice as one sentence for people."""
    name, detail = f'"{notice.identity}"', f": {notice.detail}" if notice.detail else ""
    match notice.event:
        case NoticeEvent.FAILED:
            return f"{name} failed{detail}"
        case NoticeEvent.MISSED:
            return f"{name} missed {counted(notice.periods, 'period')}{detail}"
        case NoticeEvent.RECOVERED:
            return f"{name} succeeded again {notice.detail}"
        case NoticeEvent.LATE:
            return f"{name} started {notice.detail}"
        case NoticeEvent.PAUSED_AFTER_FAILURES:
            return f"{name} was paused{detail}"
        case ping:
            return f"{name} {ping.value.removeprefix('ping_')} ping"


def notice_fact(notice: NoticeRecord) -> Fact:
    """Return how far a notice is, for the chain of facts about its period."""
    event = notice.event.value.replace("_", " ")
    to = f'the notification "{event}" to {shown_target(notice.target)}'
    if notice.event in PINGS:
        to = f"the heartbeat {event} to {shown_target(notice.target)}"
    if notice.state is NoticeState.SENT:
        how = "" if notice.sent_as is None else f": {notice.sent_as}"
        return Fact(NOTIFIED, f"{to} was sent{how}", notice.ended_at)
    if notice.state is NoticeState.FAILED:
        return Fact("notification_failed", f"{to} could not be sent: {notice.error}", notice.ended_at)
    if notice.error is None:
        return Fact("notification_pending", f"{to} is still to be sent", notice.due_at)
    return Fact("notification_pending", f"{to} is sent again: {notice.error}", notice.due_at)


def summary(notices: Iterable[NoticeRecord]) -> str:
    """Return the headline of one notice, or how many events of how many jobs a group has."""
    group = list(notices)
    if len(group) == 1:
        return headline(group[0])
    counts: dict[NoticeEvent, int] = {}
    for notice in group:
        counts[notice.event] = counts.get(notice.event, 0) + notice.periods
    texts = [f"{count} {event.value.replace('_', ' ')}" for event, count in counts.items()]
    jobs = {notice.identity for notice in group}
    where = f'"{group[0].identity}"' if len(jobs) == 1 else f"{len(jobs)} schedules"
    return f"{', '.join(texts)} in {where}"
