"""Sheets: what each page shows, as values, and how they come from records."""

from datetime import datetime
from itertools import islice
from typing import NamedTuple

from kron.core.cron.preview import changes_ahead, preview
from kron.core.job.fields import parse_instant
from kron.core.plan.compiled import compiled_job
from kron.core.plan.query import FoundJob
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.why import Explanation
from kron.core.time.instant import DAY, milliseconds_of, rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.documents import Document, coming, run_view
from kron.fronts.service.web.badge import (
    Badge,
    OutcomeMark,
    badges_of,
    mark_of,
    mark_of_answer,
    mark_of_document,
)
from kron.fronts.service.web.chart import Day, day_of
from kron.fronts.service.web.time_text import PageTime, moment_of

# How many coming times and changes of the clocks are shown.
COMING, NOTES = 5, 6
# What a schedule is if nothing is said, and what stands elsewhere on its page.
USUAL: Document = {
    "jitter_ms": 0, "dialect": "extended", "dst_gap": "skip", "dst_repeat": "both", "failures": 0,
    "paused": False,
    "window": {"mode": "after", "duration": "0s"}, "distribution": {"name": "uniform"},
    "seed": {"strategy": "stable", "salt": ""}, "constraints": {"only": {}, "avoid": {}},
    "replace_grace": "10s", "queue_max": 100, "max_catchup": 1000,
}  # fmt: skip
ELSEWHERE = ("schedule_id", "sentence", "next_run_at", "cron_expr", "timezone", "updated_at")
# How far ahead changes of the clocks are looked for: a zone that has any has one in this time.
AHEAD = 400 * DAY


class Row(NamedTuple):
    """A schedule among others."""

    name: str
    sentence: str
    expression: str
    timezone: str
    next_at: PageTime | None
    badges: list[Badge]
    strip: list[OutcomeMark]
    day: Day
    is_paused: bool


class Overview(NamedTuple):
    """A page of schedules; `after` is the name the next page begins behind."""

    rows: list[Row]
    after: str | None


class Coming(NamedTuple):
    """A time to come: its nominal time, when it starts, and what the clocks do to it."""

    period_id: str
    nominal: PageTime
    fires: PageTime | None
    note: str | None


class HistoryRow(NamedTuple):
    """A line of a history: a run, or periods that were dropped together."""

    at: str
    mark: OutcomeMark
    nominal: PageTime
    last: PageTime | None = None
    periods: int = 1
    run: Document | None = None
    began: PageTime | None = None
    took_ms: int | None = None


class Detail(NamedTuple):
    """Everything about one schedule; `said` is what of its fields is not as usual."""

    row: Row
    said: Document
    fields: Document
    is_deleted: bool
    coming: list[Coming]
    notes: list[tuple[PageTime, str]]
    waiting: list[HistoryRow]
    history: list[HistoryRow]
    dropped: int
    ranges: int
    following: tuple[int, int] | None


class Link(NamedTuple):
    """A link of the chain behind a period."""

    code: str
    sentence: str
    at: PageTime | None


class PeriodPage(NamedTuple):
    """Why a period ended as it did."""

    name: str
    expression: str
    timezone: str
    period_id: str | None
    nominal: PageTime | None
    mark: OutcomeMark
    links: list[Link]
    run: Document | None
    before: str | None
    after: str | None


def zone_of_job(job: JobRecord) -> Zone:
    """Return the zone a schedule is in."""
    return compiled_job(job.definition, job.identity).plan.zone


def row_of(found: FoundJob, waiting: list[RunRecord], newest: list[RunRecord], now: int) -> Row:
    """Return a schedule among others, with its open runs and its newest ones."""
    job = found.job
    terms, zone = compiled_job(job.definition, job.identity), zone_of_job(job)
    schedule = terms.job.schedule
    following = None if job.deleted_at is not None else next(coming(job, now), None)
    starts = None if following is None else terms.fire_time(job.identity, following) or 1000 * following
    return Row(
        job.identity,
        schedule.expression.describe(),
        schedule.text,
        schedule.timezone,
        None if starts is None else moment_of(starts, zone, now),
        badges_of(job, waiting, following),
        [mark_of(run, moment_of(1000 * run.nominal_time, zone, now)) for run in reversed(newest)],
        day_of(job, now // 1000),
        bool(job.paused),
    )


def damaged_row(job: JobRecord, fault: str) -> Row:
    """Return a schedule whose definition cannot be read, so that the others can be shown beside it."""
    badge = Badge("bad", "damaged", fault)
    sentence = "What is remembered of it cannot be read"
    return Row(job.identity, sentence, "", "", None, [badge], [], Day([], 0), bool(job.paused))


def said_of(fields: Document) -> Document:
    """Return those fields of a schedule that say something."""
    return {
        name: value
        for name, value in fields.items()
        if name not in ELSEWHERE and value is not None and value != USUAL.get(name)
    }


def coming_of(job: JobRecord, now: int) -> list[Coming]:
    """Return the next times of a schedule, each with what a change of the clocks does to it."""
    if job.deleted_at is not None:
        return []
    terms, zone = compiled_job(job.definition, job.identity), zone_of_job(job)
    times = list(islice(coming(job, now), COMING))
    lines = preview(terms.job.schedule, times[0], COMING) if times else []
    notes = {line.instant: line.note for line in lines}
    found = []
    for time in times:
        fires = terms.fire_time(job.identity, time)
        found.append(
            Coming(
                rfc3339(time),
                moment_of(1000 * time, zone, now),
                None if fires is None else moment_of(fires, zone, now),
                notes.get(time),
            )
        )
    return found


def notes_of(job: JobRecord, now: int) -> list[tuple[PageTime, str]]:
    """Return what coming changes of the clocks do to a schedule."""
    schedule, zone = compiled_job(job.definition, job.identity).job.schedule, zone_of_job(job)
    start = now // 1000
    lines = changes_ahead(schedule, start, start + AHEAD)[:NOTES]
    return [(moment_of(1000 * line.at, zone, now), line.note) for line in lines if line.note is not None]


def run_entry(run: Document, zone: Zone, now: int) -> HistoryRow:
    """Return a run as a line of a history."""
    nominal = parse_instant(str(run["run_at"]))
    began, over = _instant(run["started_at"]), _instant(run["ended_at"])
    shown = moment_of(1000 * nominal, zone, now)
    return HistoryRow(
        str(run["run_at"]),
        mark_of_document(run, shown),
        shown,
        run=run,
        began=None if began is None else moment_of(began, zone, now),
        took_ms=None if began is None or over is None else over - began,
    )


def open_entry(run: RunRecord, zone: Zone, now: int) -> HistoryRow:
    """Return a run that is not over, with how long it has been running."""
    entry = run_entry(run_view(run), zone, now)
    return entry if run.started_at is None else entry._replace(took_ms=max(0, now - run.started_at))


def dropped_entry(dropped: Document, zone: Zone, now: int) -> HistoryRow:
    """Return periods that were dropped together as one line of a history."""
    first, last = (parse_instant(str(dropped[name])) for name in ("first_run_at", "last_run_at"))
    shown = moment_of(1000 * first, zone, now)
    return HistoryRow(
        str(dropped["last_run_at"]),
        mark_of_document({**dropped, "status": str(dropped["outcome"]).upper()}, shown),
        shown,
        moment_of(1000 * last, zone, now),
        int(str(dropped["periods"])),
    )


def story_of(job: JobRecord, answer: Explanation, run: RunRecord | None, now: int) -> PeriodPage:
    """Return the chain of facts behind a period, with its neighbours."""
    terms, zone = compiled_job(job.definition, job.identity), zone_of_job(job)
    time = answer.nominal_time
    before = after = None
    if time is not None:
        before, after = terms.plan.prev_at_or_before(time - 1), terms.plan.next_after(time)
    nominal = None if time is None else moment_of(1000 * time, zone, now)
    return PeriodPage(
        job.identity,
        terms.job.schedule.text,
        terms.job.schedule.timezone,
        None if time is None else rfc3339(time),
        nominal,
        mark_of_answer(answer) if run is None or nominal is None else mark_of(run, nominal),
        [
            Link(str(fact.code), fact.sentence, None if fact.at is None else moment_of(fact.at, zone, now))
            for fact in answer.facts
        ],
        None if run is None else run_view(run),
        None if before is None else rfc3339(before),
        None if after is None else rfc3339(after),
    )


def _instant(text: object) -> int | None:
    """Return the milliseconds of an instant that a document has."""
    if text is None:
        return None
    return milliseconds_of(datetime.fromisoformat(str(text)))
