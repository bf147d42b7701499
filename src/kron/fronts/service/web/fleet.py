"""The fleet: the coming load by minute and by hour, its worst minutes, and windows that would spread them.

Nothing here reads a clock or a store.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

from kron.core.cron.count import count_between
from kron.core.job.decision import is_plain, starts_between
from kron.core.job.job import Job
from kron.core.plan.compiled import compiled_job
from kron.core.time.instant import datetime_of, rfc3339
from kron.fronts.service.web.start_group import FleetStarts, StartGroup, StartGroups, coming_starts
from kron.fronts.service.web.timeline import DAY, HOUR, MINUTE, ComingStarts, View

# A heat map's colour changes at these multiples of the median.
STEPS = (0.75, 1.25, 2, 4)
# Worst minutes that are listed, and schedules that each of them names.
MAX_WORST, MAX_NAMED = 5, 8
# The window that is suggested, and how many schedules a remedy changes.
WINDOW, MAX_SPREAD = "10m", 200
# A minute with fewer starts needs no suggestion.
CROWDED = 3


# A schedule, and its coming starts.
Known: TypeAlias = tuple[StartGroup, ComingStarts]


class HeatCell(NamedTuple):
    """A cell of a heat map: its column and row, its step of colour, and its starts."""

    x: int
    y: int
    level: int
    title: str


class HeatMap(NamedTuple):
    """Starts in each cell, with the labels of its rows."""

    cells: list[HeatCell]
    rows: list[str]
    columns: int
    summary: str
    starts: int
    peak: int
    # The steps of colour that the map has, each with the starts of its cells in words.
    legend: list[tuple[int, str]]


class Worst(NamedTuple):
    """A full minute, and the schedules that start in it."""

    at: str
    starts: int
    names: list[str]
    more: int


class Remedy(StrEnum):
    """What would spread the schedules of a full minute: a window after it, or a minute of their own."""

    WINDOW = "window"
    HASH = "hash"


class Suggestion(NamedTuple):
    """The schedules of a full minute, the peak of its hour, and the peak after each remedy."""

    at: str
    names: list[str]
    before: int
    after: dict[Remedy, int]


class FleetPage(NamedTuple):
    """The coming load of a fleet."""

    minutes: HeatMap
    hours: HeatMap
    worst: list[Worst]
    suggestion: Suggestion | None
    schedules: int
    nominal: int
    # How many there are; more than `schedules` if not all are counted.
    total: int = 0


class ComingLoad(NamedTuple):
    """The coming starts of a fleet by minute of the next day and by hour of the next week."""

    day: View
    week: View
    coming: FleetStarts
    minutes: Mapping[int, int]
    hours: Mapping[int, int]
    # The fullest minutes.
    full: Sequence[int]
    schedules: int
    total: int

    @property
    def definitions(self) -> list[str]:
        """Return the definitions of several schedules that start in a full minute."""
        shared = (item for item in self.coming.known() if item[0].jobs > 1)
        full = set(self.full)
        return sorted({one.definition for one, coming in shared if coming.columns.keys() & full})


def load_of(fleet: StartGroups, now: int) -> ComingLoad:
    """Return the load of the next day by minute, and of the next week by hour."""
    # From the hour that has begun to this minute of tomorrow: a time of day that has passed comes again.
    hour, end = now // HOUR * HOUR, now // MINUTE * MINUTE + DAY
    day = View(hour, end, now, (end - hour) // MINUTE)
    week = View(now // DAY * DAY, now // DAY * DAY + 7 * DAY, now, 7 * 24)
    coming, later = coming_starts(fleet.groups, day), coming_starts(fleet.groups, week)
    counted = fleet.total - fleet.left_out - max(coming.left_out, later.left_out)
    minutes = coming.total()
    return ComingLoad(day, week, coming, minutes, later.total(), _fullest(minutes), counted, fleet.total)


def fleet_of(load: ComingLoad, members: Sequence[StartGroup]) -> FleetPage:
    """Return the page of a load; `members` are the schedules of the definitions that share a full minute."""
    day, week = load.day, load.week
    rows = range(ceil((day.end - day.start) / HOUR))
    names = [f"{datetime_of((day.start + row * HOUR) // 1000):%H:00}" for row in rows]
    days = [f"{datetime_of((week.start + row * DAY) // 1000):%a %-d}" for row in range(7)]
    shared = {one.definition: coming for one, coming in load.coming.known() if one.jobs > 1}
    known = [(one, coming) for one, coming in load.coming.known() if one.jobs == 1]
    listed = {one.name for one, _ in known}
    known += [(one, shared[one.definition]) for one in members if one.name not in listed]
    return FleetPage(
        heat_of(load.minutes, day, 60, names),
        heat_of(load.hours, week, 24, days),
        [_worst(column, load, known) for column in load.full],
        suggestion_of(load, known),
        load.schedules,
        load.coming.nominal,
        load.total,
    )


def heat_of(counts: Mapping[int, int], view: View, columns: int, rows: list[str]) -> HeatMap:
    """Return a heat map with `columns` cells in each row; empty cells are left out."""
    peak = max(counts.values(), default=0)
    usual = sorted(counts.values())[len(counts) // 2] if counts else 1
    cells = [
        HeatCell(
            column % columns,
            column // columns,
            level_of(count, usual),
            f"{rfc3339((view.start + column * view.width) // 1000)}: {count:,} {_starts(count)}",
        )
        for column, count in sorted(counts.items())
        if 0 <= column < view.columns
    ]
    total = sum(counts.values())
    summary = f"{total:,} {_starts(total)}, at most {peak:,} in one cell"
    return HeatMap(cells, rows, columns, summary, total, peak, legend_of(usual, peak))


def level_of(count: int, usual: int) -> int:
    """Return the step of a cell's colour, by its multiple of the median cell; the highest is from four on."""
    return 1 + bisect_right(STEPS, count / usual)


def legend_of(usual: int, peak: int) -> list[tuple[int, str]]:
    """Return the steps of colour up to the fullest cell, each with the starts of its cells in words."""
    begins = [1, *(max(1, ceil(step * usual)) for step in STEPS), peak + 1]
    ranges = [(first, min(after - 1, peak)) for first, after in pairwise(begins)]
    return [
        (level, f"{first:,}" if first == last else f"{first:,} to {last:,}")
        for level, (first, last) in enumerate(ranges, 1)
        if first <= last
    ]


def _starts(count: int) -> str:
    return "start" if count == 1 else "starts"


def _fullest(minutes: Mapping[int, int]) -> list[int]:
    full = [column for column, count in minutes.items() if count > 1]
    return sorted(full, key=lambda column: (-minutes[column], column))[:MAX_WORST]


def _worst(column: int, load: ComingLoad, known: Sequence[Known]) -> Worst:
    names = sorted(one.name for one, coming in known if coming.columns.get(column))[:MAX_NAMED]
    schedules = sum(one.jobs for one, coming in load.coming.known() if coming.columns.get(column))
    at = rfc3339((load.day.start + column * load.day.width) // 1000)
    return Worst(at, load.minutes[column], names, max(0, schedules - len(names)))


# --- a suggestion --------------------------------------------------------------------------------


def suggestion_of(load: ComingLoad, known: Sequence[Known]) -> Suggestion | None:
    """Return what would spread the schedules of the fullest minute that can be spread."""
    crowded = (column for column in load.full if load.minutes[column] >= CROWDED)
    found = (_suggestion_at(column, load, known) for column in crowded)
    return next((each for each in found if each is not None), None)


def _suggestion_at(worst: int, load: ComingLoad, known: Sequence[Known]) -> Suggestion | None:
    """Return what would spread the schedules that start exactly in a minute, if something would."""
    view, minutes = load.day, load.minutes
    first, start = worst // 60 * 60, (view.start + worst // 60 * HOUR) // 1000
    jobs = (_job_of(one) for one, coming in known if coming.columns.get(worst))
    spread = list(islice((job for job in jobs if _can_spread(job, start)), MAX_SPREAD))
    if len(spread) < CROWDED:
        return None
    hour = {column - first: minutes[column] for column in range(first, first + 60) if column in minutes}
    before = max(hour.values())
    peaks = {remedy: _peak(hour, spread, remedy, start) for remedy in Remedy}
    after = {remedy: peak for remedy, peak in peaks.items() if peak is not None and peak < before}
    if not after:
        return None
    at = rfc3339((view.start + worst * view.width) // 1000)
    return Suggestion(at, sorted(job.identity for job in spread), before, after)


def _job_of(one: StartGroup) -> Job:
    return compiled_job(one.definition, one.name).for_job(one.name)


def _peak(load: Mapping[int, int], jobs: Sequence[Job], remedy: Remedy, start: int) -> int | None:
    """Return the fullest minute of an hour after a remedy; None if one of the jobs cannot have it."""
    changed = Counter(load)
    for job in jobs:
        other = remedied(job, remedy)
        if other is None:
            return None
        changed.subtract(_minutes_of(job, start))
        changed.update(_minutes_of(other, start))
    return max(changed.values())


def remedied(job: Job, remedy: Remedy) -> Job | None:
    """Return a job with a remedy; None for the hash of a job whose minute is not one number."""
    change = change_of(job.schedule.text, remedy)
    return None if change is None else Job.from_dict({**job.to_dict(), **change})


def change_of(expression: str, remedy: Remedy) -> dict[str, object] | None:
    """Return the fields of a definition that a remedy changes, or None."""
    if remedy is Remedy.WINDOW:
        return {"window": {"mode": "after", "duration": WINDOW}}
    minute, *others = expression.split()
    return {"schedule": " ".join(["H", *others])} if minute.isdecimal() and len(others) == 4 else None


def _can_spread(job: Job, start: int) -> bool:
    """Say whether a window would change the start of one period, and overlap no other."""
    return is_plain(job) and count_between(job.schedule.plan, start, start + 3600) == 1


def _minutes_of(job: Job, start: int) -> list[int]:
    times = (chosen for _, chosen in starts_between(job, start, start + 3600) if chosen is not None)
    return [(chosen - start) // 60 for chosen in times]
