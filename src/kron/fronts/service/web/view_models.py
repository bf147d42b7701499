"""View models: the values that pages show, and how they are made from records."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.cron.preview import A_YEAR_AHEAD, changes_ahead, preview
from kron.core.fields import parse_instant
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.profile import profile_fields_of
from kron.core.plan.compiled import compiled_job, segments_of
from kron.core.plan.counterfactual import Counterfactual
from kron.core.plan.next_start import NextStart, PeriodStart, starts_ahead
from kron.core.plan.pause import BY_HAND
from kron.core.plan.query import FoundJob
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunKind, RunRecord, RunStatus
from kron.core.plan.report import DataInterval
from kron.core.plan.step import JobState
from kron.core.plan.why import RESULTS, Explanation
from kron.core.time.instant import DAY, EpochSeconds, rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.documents import (
    Document,
    attempt_view,
    default_definition,
    run_view,
    sentence_of,
)
from kron.fronts.service.responses import AttemptView, AuditView, RunView
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of, span

# How many fire times and clock changes are shown.
COMING, NOTES = 20, 6
# Defaults, which are not shown, and fields that have another place on the page.
DEFAULTS: Document = {
    **default_definition(),
    **profile_fields_of(None),
    "jitter_ms": 0,
    "failures": 0,
    "paused": False,
    "suspended": False,
}
IN_HEADING = (
    "schedule_id",
    "sentence",
    "next_run_at",
    "next_nominal_at",
    "next_start_at",
    "passed_over",
    "phase",
    "cron_expr",
    "timezone",
    "updated_at",
)
# Fields of what happened to a schedule, beside its definition; a pause is told at the top of the page.
OF_STATE = ("failures", "last_start_at", "last_success_at", "last_failure_at", "created_at")
OF_PAUSE = ("paused", "paused_because", "paused_until", "suspended")
# The chart of a day has this many columns, each of this many seconds.
PARTS = 96
PART_S = DAY // PARTS
# Starts of a day that are listed one by one; a denser schedule without windows is probed column by column.
MAX_LISTED, MAX_IN_WINDOWS = 2_000, 10_000
# The characters of a value that an entry of the audit log shows.
MAX_SHOWN = 400
# Outcomes with links on the page of a schedule; the least and the greatest height in a sparkline.
MARKS, LOW, HIGH = 16, 5, 20
# Each status as a class of the style sheet, and as a word.
LOOKS = {
    RunStatus.PENDING: ("wait", "pending"),
    RunStatus.ENQUEUED: ("sent", "dispatched"),
    RunStatus.STARTED: ("run", "running"),
    RunStatus.SUCCESS: ("ok", "success"),
    RunStatus.FAILED: ("bad", "failed"),
    RunStatus.SKIPPED: ("skip", "skipped"),
    RunStatus.MISSED: ("miss", "missed"),
    RunStatus.UNSCHEDULABLE: ("none", "unschedulable"),
    RunStatus.CANCELLED: ("stop", "cancelled"),
}
OUTCOMES = {
    Outcome.EXECUTED: ("ok", "executed"),
    Outcome.SKIPPED: LOOKS[RunStatus.SKIPPED],
    Outcome.MISSED: LOOKS[RunStatus.MISSED],
    Outcome.UNSCHEDULABLE: LOOKS[RunStatus.UNSCHEDULABLE],
}
UPCOMING = ("wait", "upcoming")
WAITING = ("wait", "waiting to retry")
NO_PERIOD = ("none", "no period")
# The last fact of a period that has no outcome.
CODES = {
    "to_come": UPCOMING,
    "paused": ("wait", "paused"),
    "suspended": ("wait", "suspended"),
    "overdue": ("wait", "overdue"),
    "forgotten": ("none", "not kept"),
    "deleted": ("stop", "deleted"),
    # Runs that have not ended where a counterfactual does.
    Reason.PLANNED: UPCOMING,
    Reason.QUEUED: ("wait", "queued"),
    Reason.REPLACING: ("wait", "waiting"),
    Reason.RETRY: WAITING,
    "started": LOOKS[RunStatus.STARTED],
}


class OutcomeMark(NamedTuple):
    """An outcome: its look, its word, its reason, and the id of its period, if it belongs to one."""

    look: str
    word: str
    reason: str
    title: str
    period_id: str | None


class SparkBar(NamedTuple):
    """A run in a sparkline: its place from 0 to 29, its height by its duration, and its outcome."""

    x: int
    height: int
    look: str
    title: str


class Badge(NamedTuple):
    """A state of a schedule."""

    look: str
    word: str
    title: str


class Bar(NamedTuple):
    """Adjacent columns of a day's chart with starts in them."""

    x: int
    width: int


class Day(NamedTuple):
    """The next 24 hours of a schedule: bars where runs start, and their number if it is known."""

    bars: list[Bar]
    starts: int | None


class Row(NamedTuple):
    """A schedule in a list."""

    name: str
    sentence: str
    expression: str
    timezone: str
    next_at: PageTime | None
    passed_over: int
    badges: list[Badge]
    strip: list[OutcomeMark]
    spark: list[SparkBar]
    day: Day
    stopped: str
    # Why it is paused, if a reason was given.
    because: str = ""


class Overview(NamedTuple):
    """A page of schedules; `after` is the cursor if more follow; `total` is the number of all.

    The cursor is the last name, or where schedules are sorted, how many were shown. `note` says which are
    sorted if not all.
    """

    rows: list[Row]
    after: str | int | None
    total: int
    note: str | None = None


class Coming(NamedTuple):
    """A start ahead: its nominal time, its fire time, and the effect of a clock change on it."""

    period_id: str
    nominal: PageTime
    fires: PageTime
    note: str | None


class HistoryRow(NamedTuple):
    """A row of a history: a run, or a range of dropped periods."""

    at: str
    mark: OutcomeMark
    nominal: PageTime
    last: PageTime | None = None
    periods: int = 1
    run: RunView | None = None
    started: PageTime | None = None
    took_ms: int | None = None


class Detail(NamedTuple):
    """A schedule's page; `definition` and `state` have the fields that differ from their defaults."""

    row: Row
    definition: Document
    state: Document
    fields: Document
    is_deleted: bool
    coming: list[Coming]
    notes: list[tuple[PageTime, str]]
    open: list[HistoryRow]
    history: list[HistoryRow]
    dropped: int
    ranges: int
    following: tuple[int, int] | None
    paused_by: str | None


class FactRow(NamedTuple):
    """A fact that explains a period."""

    code: str
    sentence: str
    at: PageTime | None
    periods: list[str]


class PeriodPage(NamedTuple):
    """Why a period ended as it did."""

    name: str
    expression: str
    timezone: str
    period_id: str | None
    nominal: PageTime | None
    mark: OutcomeMark
    headline: str
    remedy: str | None
    facts: list[FactRow]
    run: RunView | None
    before: str | None
    after: str | None
    is_period: bool
    offer: "ActionOffer"
    other: "WhatIfOutcome | None" = None


class ActionOffer(NamedTuple):
    """What is done about the schedule of a period or run: whether it is there still, and is paused.

    `backfill` is the range of a backfill that runs the period again; None for one ahead, and for no period.
    """

    is_deleted: bool
    is_paused: bool
    backfill: tuple[str, str] | None


class WhatIfOutcome(NamedTuple):
    """The outcome of a period under changed fields, and what that assumes."""

    word: str
    look: str
    headline: str
    facts: list[FactRow]
    assumptions: list[str]


# --- schedules -----------------------------------------------------------------------------------


def value_text(value: object) -> str:
    """Return the value of a definition's field as people read it."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def zone_of_job(job: JobRecord) -> Zone:
    """Return the time zone of a schedule."""
    return compiled_job(job.definition, job.identity).plan.zone


def row_of(listed: FoundJob, state: JobState, following: NextStart, newest: list[RunRecord], now: int) -> Row:
    """Return a schedule in a list, with its open runs, its next start and its newest runs."""
    job = listed.job
    schedule, zone = compiled_job(job.definition, job.identity).job.schedule, zone_of_job(job)
    start_at = following.start_at
    marks = [mark_of(run, moment_of(1000 * run.nominal_time, zone, now)) for run in reversed(newest)]
    return Row(
        job.identity,
        schedule.sentence,
        schedule.text,
        schedule.timezone,
        None if start_at is None else moment_of(start_at, zone, now),
        following.passed_over,
        badges_of(job, list(state.runs), following),
        marks[-MARKS:],
        spark_of(newest, marks),
        day_of(state, now),
        stopped_by(job),
        reason_of_pause(job),
    )


def spark_of(newest: list[RunRecord], marks: list[OutcomeMark]) -> list[SparkBar]:
    """Return the last outcomes, oldest first, each as high as its share of the longest duration."""
    took = [
        None if run.started_at is None or run.ended_at is None else max(0, run.ended_at - run.started_at)
        for run in reversed(newest)
    ]
    longest = max((each for each in took if each is not None), default=0) or 1
    return [
        SparkBar(
            index,
            LOW if each is None else LOW + round((HIGH - LOW) * each / longest),
            mark.look,
            mark.title if each is None else f"{mark.title}, {span(each)}",
        )
        for index, (mark, each) in enumerate(zip(marks, took, strict=True))
    ]


def reason_of_pause(job: JobRecord) -> str:
    """Return why a schedule is paused, in the words of who paused it; empty for none."""
    because = job.paused_because if job.paused else None
    return "" if because in (None, BY_HAND) else str(because)


def stopped_by(job: JobRecord) -> str:
    """Return what stops a schedule, for people; nothing if it is active."""
    flags = {"paused": job.paused, "suspended": job.suspended}
    return ", ".join(word for word, flag in flags.items() if flag)


def damaged_row(job: JobRecord, fault: str) -> Row:
    """Return a schedule whose record cannot be read, so that it does not hide the others."""
    badge = Badge("bad", "damaged", fault)
    return Row(
        job.identity, "Unreadable record", "", "", None, 0, [badge], [], [], Day([], 0), stopped_by(job)
    )


def uncomputed_row(job: JobRecord, reason: str) -> Row:
    """Return a schedule whose next start is not computed, so that the others are shown in time."""
    badge = Badge("wait", "not computed", reason)
    return Row(job.identity, "", "", "", None, 0, [badge], [], [], Day([], 0), stopped_by(job))


def definition_of(fields: Document) -> tuple[Document, Document]:
    """Return the fields of a schedule's definition and of its state that differ from their defaults."""
    shown = {
        name: value
        for name, value in fields.items()
        if name not in (*IN_HEADING, *OF_PAUSE) and value is not None and value != DEFAULTS.get(name)
    }
    state = {name: value for name, value in shown.items() if name in OF_STATE}
    return {name: value for name, value in shown.items() if name not in state}, state


def coming_of(state: JobState, now: int) -> list[Coming]:
    """Return the next starts of a schedule, each with the effect of a clock change on it."""
    job = state.job
    schedule, zone = compiled_job(job.definition, job.identity).job.schedule, zone_of_job(job)
    starts = list(islice(starts_ahead(state, now), COMING))
    return [
        Coming(
            rfc3339(start.nominal_time),
            moment_of(1000 * start.nominal_time, zone, now),
            moment_of(start.fire_time, zone, now),
            next((line.note for line in preview(schedule, start.nominal_time, 1) if line.instant), None),
        )
        for start in starts
    ]


def notes_of(job: JobRecord, now: int) -> list[tuple[PageTime, str]]:
    """Return the effects of coming clock changes on a schedule."""
    schedule, zone = compiled_job(job.definition, job.identity).job.schedule, zone_of_job(job)
    start = now // 1000
    lines = changes_ahead(schedule, start, start + A_YEAR_AHEAD)[:NOTES]
    return [(moment_of(1000 * line.at, zone, now), line.note) for line in lines if line.note is not None]


def badges_of(job: JobRecord, open_runs: list[RunRecord], following: NextStart) -> list[Badge]:
    """Return the states of a schedule; without any other it is active."""
    if job.deleted_at is not None:
        return [Badge("stop", "deleted", "Deleted; its history is kept")]
    badges = []
    if job.paused:
        because = reason_of_pause(job)
        title = f"Paused: {because}" if because else "Paused manually"
        badges.append(Badge("wait", "paused", title))
    if job.suspended:
        badges.append(Badge("wait", "suspended", "Suspended by its definition (policy.suspend)"))
    if running := sum(run.in_flight for run in open_runs):
        badges.append(Badge("run", "running" if running == 1 else f"{running} running", "Runs in progress"))
    if pending := sum(run.status is RunStatus.PENDING for run in open_runs):
        badges.append(Badge("wait", f"{pending} pending", "Runs recorded and not started yet"))
    if waiting := sum(run.waits_for_retry for run in open_runs):
        word = "waiting to retry" if waiting == 1 else f"{waiting} waiting to retry"
        badges.append(Badge("wait", word, "Failed runs that are tried again"))
    if job.failures:
        badges.append(Badge("bad", "failing", f"Consecutive failures: {job.failures}"))
    is_boot = compiled_job(job.definition, job.identity).job.schedule.is_boot
    if following.start_at is None and not job.is_stopped and not is_boot:
        badges.append(
            Badge("stop", "finished", "No further runs")
            if following.nominal_time is None
            else Badge("none", "never starts", "Its constraints allow no start of a period ahead")
        )
    return badges or [Badge("ok", "active", "Runs on schedule")]


# --- the chart of a day --------------------------------------------------------------------------


def day_of(state: JobState, now: int) -> Day:
    """Return the runs that start in the next 24 hours."""
    end = now + 1000 * DAY
    job = state.job
    segments = segments_of(job)
    first, last = now // 1000, end // 1000
    periods = sum(count_between(each.compiled.plan, first, last) for each in segments)
    has_window = any(each.compiled.early != each.compiled.late for each in segments)
    if periods <= MAX_LISTED or has_window or job.remaining is not None:
        starts = list(islice(_until(state, now, end), MAX_IN_WINDOWS))
        parts = {(start.fire_time - now) // (1000 * PART_S) for start in starts}
        return Day(_bars(parts), len(starts) if len(starts) < MAX_IN_WINDOWS else None)
    return Day(_bars(_probed(state, now)), _counted(state, now, end))


def _until(state: JobState, now: int, end: int) -> Iterator[PeriodStart]:
    return takewhile(lambda start: start.fire_time < end, starts_ahead(state, now))


def _probed(state: JobState, now: int) -> set[int]:
    """Return the columns of a dense schedule in which a run starts: one start per column is enough."""
    parts: set[int] = set()
    part, width = 0, 1000 * PART_S
    while part < PARTS:
        start = next(starts_ahead(state, max(now, now + part * width - 1)), None)
        if start is None or start.fire_time >= now + PARTS * width:
            break
        part = (start.fire_time - now) // width
        parts.add(part)
        part += 1
    return parts


def _counted(state: JobState, now: int, end: int) -> int | None:
    """Return the number of starts of a dense schedule if nothing but the schedule decides them."""
    segment = segments_of(state.job)[-1]
    if state.job.is_stopped or not segment.compiled.plain:
        return None if next(_until(state, now, end), None) else 0
    return segment.count_until((end - 1) // 1000) - segment.count_until(now // 1000)


def _bars(parts: set[int]) -> list[Bar]:
    bars: list[Bar] = []
    for part in sorted(parts):
        if bars and bars[-1].x + bars[-1].width == part:
            bars[-1] = Bar(bars[-1].x, bars[-1].width + 1)
        else:
            bars.append(Bar(part, 1))
    return bars


# --- runs ----------------------------------------------------------------------------------------


def run_entry(run: RunRecord, zone: Zone, now: int) -> HistoryRow:
    """Return a run as a row of a history."""
    started_at, ended_at = run.started_at, run.ended_at
    shown = moment_of(1000 * run.nominal_time, zone, now)
    return HistoryRow(
        rfc3339(run.nominal_time),
        mark_of(run, shown),
        shown,
        run=run_view(run, now),
        started=None if started_at is None else moment_of(started_at, zone, now),
        took_ms=None if started_at is None or ended_at is None else ended_at - started_at,
    )


def open_entry(run: RunRecord, zone: Zone, now: int) -> HistoryRow:
    """Return a run that has not ended, with its duration so far."""
    entry = run_entry(run, zone, now)
    return entry if run.started_at is None else entry._replace(took_ms=max(0, now - run.started_at))


def dropped_entry(dropped: RangeRecord, zone: Zone, now: int) -> HistoryRow:
    """Return a range of dropped periods as one row of a history."""
    (look, word), reason = OUTCOMES[dropped.outcome], dropped.reason.sentence
    shown = moment_of(1000 * dropped.first, zone, now)
    return HistoryRow(
        rfc3339(dropped.last),
        OutcomeMark(look, word, reason, f"{shown.local}: {_titled(word, reason)}", None),
        shown,
        moment_of(1000 * dropped.last, zone, now),
        dropped.periods,
    )


def mark_of(run: RunRecord, nominal: PageTime) -> OutcomeMark:
    """Return the outcome of a run."""
    (look, word), reason = WAITING if run.waits_for_retry else LOOKS[run.status], reason_of(run)
    period_id = rfc3339(run.nominal_time) if run.kind is RunKind.PERIOD else None
    return OutcomeMark(look, word, reason, f"{nominal.local}: {_titled(word, reason)}", period_id)


def _titled(word: str, reason: str) -> str:
    """Return the word of a status with its reason, which may begin with the same word."""
    return reason if reason.startswith(f"{word}:") else f"{word}, {reason}"


def reason_of(run: RunRecord) -> str:
    """Return the reason of a run's status: how a failed one ended, the retry of a successful one."""
    if run.status is RunStatus.FAILED and run.error:
        return f"{sentence_of(run)}: {run.error}" if run.waits_for_retry else run.error
    if run.status is RunStatus.FAILED and not run.waits_for_retry and run.result is not None:
        return RESULTS[run.result]
    if run.waits_for_retry:
        return sentence_of(run)
    if run.status is RunStatus.SUCCESS and run.reason is Reason.RETRY:
        return "retried after a failed attempt"
    return run.reason.sentence


class RunDetails(NamedTuple):
    """A run: its outcome, its record, the time it is responsible for, and its earlier attempts."""

    name: str
    timezone: str
    nominal: PageTime
    mark: OutcomeMark
    run: RunView
    started: PageTime | None
    took_ms: int | None
    interval: tuple[PageTime, PageTime]
    attempts: list[AttemptView]
    offer: ActionOffer


def run_page(
    job: JobRecord, run: RunRecord, attempts: list[AttemptRecord], interval: DataInterval, now: int
) -> RunDetails:
    """Return the page of a run, requested or of a period."""
    zone = zone_of_job(job)
    entry = open_entry(run, zone, now) if run.in_flight else run_entry(run, zone, now)
    assert entry.run is not None
    start, end = (moment_of(1000 * at, zone, now) for at in interval)
    return RunDetails(
        run.identity,
        zone.key,
        entry.nominal,
        entry.mark,
        entry.run,
        entry.started,
        entry.took_ms,
        (start, end),
        list(map(attempt_view, attempts)),
        offer_of(job, None if run.kind is RunKind.MANUAL else run.nominal_time, now),
    )


# --- periods -------------------------------------------------------------------------------------


def period_page(job: JobRecord, explanation: Explanation, run: RunRecord | None, now: int) -> PeriodPage:
    """Return the explanation of a period, with links to the periods before and after it."""
    compiled, zone = compiled_job(job.definition, job.identity), zone_of_job(job)
    time = explanation.nominal_time
    before = after = None
    if time is not None:
        before, after = compiled.plan.prev_at_or_before(time - 1), compiled.plan.next_after(time)
    nominal = None if time is None else moment_of(1000 * time, zone, now)
    return PeriodPage(
        job.identity,
        compiled.job.schedule.text,
        compiled.job.schedule.timezone,
        None if time is None else rfc3339(time),
        nominal,
        _mark_without_run(explanation) if run is None or nominal is None else mark_of(run, nominal),
        explanation.headline,
        explanation.remedy,
        _fact_rows(explanation, zone, now),
        None if run is None else run_view(run, now),
        None if before is None else rfc3339(before),
        None if after is None else rfc3339(after),
        time is not None and explanation.code != "no_period",
        offer_of(job, None if explanation.code == "no_period" else time, now),
    )


def offer_of(job: JobRecord, period: EpochSeconds | None, now: int) -> ActionOffer:
    """Return the actions on a schedule from the page of one of its periods."""
    has_begun = period is not None and 1000 * period <= now
    backfill = (rfc3339(period), rfc3339(period + 1)) if period is not None and has_begun else None
    return ActionOffer(job.deleted_at is not None, bool(job.paused), backfill)


def _mark_without_run(explanation: Explanation) -> OutcomeMark:
    if explanation.outcome is None:
        look, word = CODES.get(explanation.code, NO_PERIOD)
    else:
        look, word = OUTCOMES[explanation.outcome]
    sentence = explanation.facts[-1].sentence
    return OutcomeMark(look, word, sentence, _titled(word, sentence), None)


def with_counterfactual(page: PeriodPage, other: Counterfactual, job: JobRecord, now: int) -> PeriodPage:
    """Return a page with what would have happened under changed fields."""
    explanation = other.explanation
    mark = _mark_without_run(explanation)
    facts = _fact_rows(explanation, zone_of_job(job), now)
    return page._replace(
        # An execution may have failed: the headline says so, and no colour claims a success.
        other=WhatIfOutcome(
            mark.word,
            "wait" if explanation.outcome is Outcome.EXECUTED else mark.look,
            explanation.headline,
            facts,
            other.assumptions,
        )
    )


def _fact_rows(explanation: Explanation, zone: Zone, now: int) -> list[FactRow]:
    return [
        FactRow(
            str(fact.code),
            fact.sentence,
            None if fact.at is None else moment_of(fact.at, zone, now),
            [link.id for link in fact.links if link.kind == "period"],
        )
        for fact in explanation.facts
    ]


# --- the audit log -------------------------------------------------------------------------------


class AuditRow(NamedTuple):
    """A change that a caller made: the fields that it changed, each with its value before and after."""

    at: PageTime
    who: str
    action: str
    name: str
    request_id: str | None
    changes: list[tuple[str, str | None, str | None]]


def audit_entry(entry: AuditView, now: int) -> AuditRow:
    """Return an entry of the audit log as its page shows it."""
    before, after = (dict(_leaves(entry[side] or {})) for side in ("before", "after"))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    changes = [(name, _shortened(before.get(name)), _shortened(after.get(name))) for name in names]
    at = moment_of(1000 * parse_instant(entry["at"]), UTC_ZONE, now)
    return AuditRow(at, entry["who"], entry["action"], entry["name"], entry["request_id"], changes)


def _leaves(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value of a document with its path."""
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner if isinstance(inner, str) else json.dumps(inner)


def _shortened(value: str | None) -> str | None:
    """Return the beginning of a long value: an entry of a backfill has a thousand keys."""
    if value is None or len(value) <= MAX_SHOWN:
        return value
    return f"{value[:MAX_SHOWN]}... ({len(value):,} characters; the API has all)"
