"""Charts of one schedule as values that a template draws: days of a year, durations, a window, attempts.

Nothing here reads a clock or a store. Positions are percentages, unless a chart says otherwise.
"""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from kron.core.job.decision import Decision, attempts_of, decide_at
from kron.core.job.job import Job
from kron.core.job.policy import FRONT_DEFAULTS, POLICY
from kron.core.plan.query import RunCount
from kron.core.plan.record import AttemptRecord, RangeRecord, RunRecord
from kron.core.time.instant import DAY, EpochSeconds, datetime_of, rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.documents import Document
from kron.fronts.service.web.time_text import span
from kron.fronts.service.web.timeline import SEVERITY, WORDS, look_of
from kron.fronts.service.web.view_models import LOOKS, OUTCOMES, value_text

# The weeks of the heat map, and the distance of its cells, in its own units.
WEEKS, CELL = 53, 14
# Executions in the chart of durations, and those that are needed for percentiles.
MAX_TREND, MIN_TREND = 120, 5
# An execution is slow if it took longer than the 95th percentile and this many medians.
SLOW = 2
# The part of that chart's width that is left to the labels of its scale, in percent.
SCALE_WIDTH = 12
# The columns of a window's chart, and the numbers that are drawn for its curve.
COLUMNS, SAMPLES = 96, 4_800


# --- the days of a year --------------------------------------------------------------------------


class DayCell(NamedTuple):
    """A day of the heat map: its place, the look of its worst outcome, and what happened."""

    x: int
    y: int
    look: str
    title: str


class YearMap(NamedTuple):
    """The past year, a column for each week."""

    cells: list[DayCell]
    months: list[tuple[int, str]]
    summary: str
    # Its looks, the worst first, each with its number in words.
    legend: list[tuple[str, str]]


def midnights_of(zone: Zone, now: int) -> list[EpochSeconds]:
    """Return when each day of the chart begins in a zone, and when today ends."""
    first, today = _first_and_last(zone, now)
    start = int(datetime.combine(first, time(), UTC).timestamp())
    count = (today - first).days + 2
    changes = list(zone.changes(start - DAY, start + (count + 1) * DAY))
    offsets = {zone.offset_at(start)} | {change.after for change in changes}
    # A day begins at an offset's midnight, or where the clocks skip it.
    candidates = sorted(
        {start + number * DAY - offset for number in range(count) for offset in offsets}
        | {change.at for change in changes}
    )
    begins: dict[date, EpochSeconds] = {}
    for instant in candidates:
        begins.setdefault(_day(instant, zone), instant)
    return [begins[day] for day in sorted(begins) if first <= day <= today + timedelta(days=1)]


def _first_and_last(zone: Zone, now: int) -> tuple[date, date]:
    """Return the first day of the chart, a Monday, and today."""
    today = _day(now // 1000, zone)
    return today - timedelta(days=today.weekday() + 7 * (WEEKS - 1)), today


def year_of(counts: Sequence[RunCount], dropped: Sequence[RangeRecord], zone: Zone, now: int) -> YearMap:
    """Return the outcomes of each day of the past year, from the counts between its midnights in a zone."""
    first, today = _first_and_last(zone, now)
    begins = [_day(instant, zone) for instant in midnights_of(zone, now)]
    days: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for part, status, runs in counts:
        days[begins[part]][LOOKS[status][0]] += runs
    for each in dropped:
        # A range may be years long; its days are marked, its periods counted on the first.
        day, end = max(_day(each.first, zone), first), min(_day(each.last, zone), today)
        days[day][OUTCOMES[each.outcome][0]] += each.periods if day <= end else 0
        for number in range(1, (end - day).days + 1):
            days[day + timedelta(days=number)][OUTCOMES[each.outcome][0]] += 0
    shown = [day for day in sorted(days) if first <= day <= today and days[day]]
    cells = [_cell(first + timedelta(days=number), days, first) for number in range((today - first).days + 1)]
    months = [
        (CELL * week, f"{first + timedelta(weeks=week):%b}")
        for week in range(WEEKS)
        if (first + timedelta(weeks=week)).day <= 7
    ]
    total = sum((days[day] for day in shown), Counter())
    legend = [(look, _words({look: total[look]})) for look in _by_severity(total)]
    return YearMap(cells, months, _words(total) or "no runs", legend)


def _day(seconds: EpochSeconds, zone: Zone) -> date:
    try:
        return datetime_of(seconds + zone.offset_at(seconds)).date()
    except (OverflowError, ValueError):
        return datetime_of(seconds).date()


def _cell(day: date, days: Mapping[date, Counter[str]], first: date) -> DayCell:
    counts = days.get(day, Counter())
    number = (day - first).days
    worst = max(counts, key=SEVERITY.__getitem__, default="empty")
    return DayCell(
        CELL * (number // 7),
        CELL * (number % 7),
        worst,
        f"{day:%a} {day.day} {day:%b %Y}: {_words(counts) or 'no runs'}",
    )


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{counts[look]:,} {WORDS[look]}" if counts[look] else WORDS[look] for look in _by_severity(counts)
    )


def _by_severity(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=SEVERITY.__getitem__, reverse=True)


# --- durations -----------------------------------------------------------------------------------


class Took(NamedTuple):
    """An execution in the chart of durations."""

    x: float
    y: float
    look: str
    is_slow: bool
    title: str
    period_id: str


class Trend(NamedTuple):
    """The durations of the newest executions, oldest first, with the lines of two percentiles."""

    points: list[Took]
    p50: int
    p95: int
    p50_y: float
    p95_y: float
    slow: int
    # The scale: the longest duration and its place.
    highest: int
    highest_y: float


def trend_of(runs: Sequence[RunRecord]) -> Trend | None:
    """Return the durations of the newest executions that ended, or None if they are too few."""
    ended = [run for run in runs if run.started_at is not None and run.ended_at is not None][:MAX_TREND][::-1]
    if len(ended) < MIN_TREND:
        return None
    took = [_took(run) for run in ended]
    ordered, highest = sorted(took), max(took) or 1
    p50, p95 = (ordered[-(-len(ordered) * share // 100) - 1] for share in (50, 95))

    def y(milliseconds: int) -> float:
        # A fifth is left free above the longest one.
        return round(95 - 75 * milliseconds / highest, 1)

    points = [
        Took(
            round(SCALE_WIDTH + (100 - SCALE_WIDTH) * (number + 0.5) / len(ended), 2),
            y(length),
            look_of(run),
            length > p95 and length > SLOW * p50,
            f"{rfc3339(run.nominal_time)}: {WORDS[look_of(run)]} after {span(length)}",
            rfc3339(run.nominal_time),
        )
        for number, (run, length) in enumerate(zip(ended, took, strict=True))
    ]
    slow = sum(point.is_slow for point in points)
    return Trend(points, p50, p95, y(p50), y(p95), slow, highest, y(highest))


def _took(run: RunRecord) -> int:
    assert run.started_at is not None
    assert run.ended_at is not None
    return max(0, run.ended_at - run.started_at)


# --- the policy ----------------------------------------------------------------------------------


class PolicyRow(NamedTuple):
    """A field of the effective policy, its value, and where it comes from."""

    name: str
    value: str
    origin: str


def policy_of(job: Job, defaults: Mapping[str, object]) -> list[PolicyRow]:
    """Return the effective policy of a schedule; `defaults` are those that the service's settings change."""
    standard = FRONT_DEFAULTS["service"]
    rows = []
    for row in POLICY.rows:
        value = getattr(job.policy, row.name)
        origin = "definition"
        if row.name in defaults and value == defaults[row.name] != getattr(standard, row.name):
            origin = "default, from the settings of the service"
        elif value == getattr(standard, row.name):
            origin = "default"
        rows.append(PolicyRow(row.name, value_text(row.type.write(value)), origin))
    return rows


# --- the window of a period ----------------------------------------------------------------------


class Sampled(NamedTuple):
    """A candidate of a decision: its place, and the constraint that rejected it, if one did."""

    x: float
    title: str
    is_rejected: bool


class WindowChart(NamedTuple):
    """The window of a period: the curve of its distribution, forbidden parts, and the candidates."""

    curve: str
    columns: int
    forbidden: list[tuple[float, float]]
    samples: list[Sampled]
    nominal_x: float | None
    start: str
    end: str
    summary: str
    chosen: str | None
    rejected: int


class Proof(NamedTuple):
    """The certificate of a decision, and the command that recomputes it."""

    document: Document
    command: str


def proof_of(job: Job, nominal_time: EpochSeconds) -> Proof:
    """Return the certificate of a period."""
    document = decide_at(job, nominal_time).to_dict()
    text = json.dumps(document, separators=(",", ":"))
    # Some shells' echo reads the backslashes of JSON.
    return Proof(document, f"printf %s {shlex.quote(text)} | kron verify -")


def window_of(job: Job, nominal_time: EpochSeconds) -> WindowChart | None:
    """Return the chart of a period's window, or None where there is no window."""
    decision = decide_at(job, nominal_time)
    start, end = decision.bounds
    if start == end:
        return None
    samples = list(attempts_of(job, nominal_time, decision.bounds, decision.seed_hash))

    def x(second: EpochSeconds) -> float:
        return round(100 * (second - start) / (end - start), 2)

    rejected = len([sample for sample in samples if sample.rejected_by])
    chosen = None if decision.chosen_time is None else rfc3339(decision.chosen_time)
    return WindowChart(
        _curve(decision),
        COLUMNS,
        _forbidden(decision),
        [
            Sampled(
                x(sample.candidate),
                f"{rfc3339(sample.candidate)}: "
                + (f"rejected by {sample.rejected_by}" if sample.rejected_by else "chosen"),
                sample.rejected_by is not None,
            )
            for sample in samples
        ],
        x(nominal_time) if start <= nominal_time <= end else None,
        rfc3339(start),
        rfc3339(end),
        f"chosen: {chosen or 'none'}, {rejected} {'candidate' if rejected == 1 else 'candidates'} rejected",
        chosen,
        rejected,
    )


def _curve(decision: Decision) -> str:
    """Return the density of the distribution over the window, as an area of 100 units' height."""
    counts = [0] * COLUMNS
    for number in range(SAMPLES):
        place = decision.job.distribution.place(
            (number + 0.5) / SAMPLES, decision.bounds, decision.nominal_time
        )
        counts[min(max(int(place * COLUMNS), 0), COLUMNS - 1)] += 1
    highest = max(counts)
    heights = [round(100 - 85 * count / highest, 1) for count in counts]
    points = "".join(f"L{column + 0.5} {height:g}" for column, height in enumerate(heights))
    return f"M0 100V{heights[0]:g}{points}H{COLUMNS}V100z"


def _forbidden(decision: Decision) -> list[tuple[float, float]]:
    """Return the parts of a window that constraints forbid, as place and width."""
    start, end = decision.bounds
    job, parts = decision.job, list[tuple[float, float]]()
    width = round(100 / COLUMNS, 3)
    for column in range(COLUMNS):
        middle = start + (2 * column + 1) * (end - start) // (2 * COLUMNS)
        if job.constraints.rejected_by(middle, job.schedule.plan.zone) is not None:
            x = column * 100 / COLUMNS
            if parts and abs(sum(parts[-1]) - x) < width / 2:
                parts[-1] = parts[-1][0], parts[-1][1] + width
            else:
                parts.append((round(x, 3), width))
    return parts


# --- attempts ------------------------------------------------------------------------------------


class Attempted(NamedTuple):
    """An attempt in the chart of a run: its place and width, its look and what became of it."""

    x: float
    width: float
    look: str
    label: str
    title: str


class AttemptsChart(NamedTuple):
    """The attempts of a run, and the milliseconds from the first start to the last end."""

    bars: list[Attempted]
    length: int


def attempts_chart(run: RunRecord, earlier: Sequence[AttemptRecord], now: int) -> AttemptsChart | None:
    """Return the attempts of a run that started; None if none did."""
    latest = AttemptRecord(
        run.key, run.attempt, run.token, run.started_at, run.ended_at, run.result, run.error, run.run_id
    )
    bars = [
        (each, each.started_at, each.ended_at if each.ended_at is not None else now)
        for each in (*earlier, latest)
        if each.started_at is not None
    ]
    if not bars:
        return None
    start, end = min(begin for _, begin, _ in bars), max(over for _, _, over in bars)
    whole = max(1, end - start)
    drawn = [
        Attempted(
            round(100 * (begin - start) / whole, 2),
            max(0.5, round(100 * (over - begin) / whole, 2)),
            "run" if each.ended_at is None else "ok" if str(each.result) == "success" else "bad",
            f"Attempt {each.attempt}",
            f"{span(max(0, over - begin))}, "
            + ("running" if each.ended_at is None else each.error or str(each.result)),
        )
        for each, begin, over in bars
    ]
    return AttemptsChart(drawn, max(0, end - start))
