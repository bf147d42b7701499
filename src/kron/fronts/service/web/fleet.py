"""The fleet: the coming load by minute and by hour, its worst minutes, and windows that would spread them.

Nothing here reads a clock or a store.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.job.decision import is_plain, starts_between
from kron.core.job.job import Job
from kron.core.plan.compiled import compiled_job
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.step import JobState
from kron.core.time.instant import datetime_of, rfc3339
from kron.fronts.service.web.timeline import DAY, HOUR, MINUTE, ComingStarts, View, coming_of, total_of

# A heat map's colour changes at these multiples of the median.
STEPS = (0.75, 1.25, 2, 4)
# Worst minutes that are listed, and schedules that each of them names.
MAX_WORST, MAX_NAMED = 5, 8
# The window that is suggested, and how many schedules a remedy changes.
WINDOW, MAX_SPREAD = "10m", 200
# A minute with fewer starts needs no suggestion.
CROWDED = 3


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


def fleet_of(
    states: Sequence[JobState], now: int, *, is_spent: Callable[[], bool] = lambda: False
) -> FleetPage:
    """Return the load of the next day by minute, and of the next week by hour."""
    # From the hour that has begun to this minute of tomorrow: a time of day that has passed comes again.
    hour, end = now // HOUR * HOUR, now // MINUTE * MINUTE + DAY
    day = View(hour, end, now, (end - hour) // MINUTE)
    week = View(now // DAY * DAY, now // DAY * DAY + 7 * DAY, now, 7 * 24)
    by_minute = {state.job.identity: _coming(state, day, is_spent) for state in states}
    by_hour = [_coming(state, week, is_spent) for state in states]
    minutes, hours = total_of(list(by_minute.values())), total_of(by_hour)
    names = [f"{datetime_of((hour + row * HOUR) // 1000):%H:00}" for row in range(ceil((end - hour) / HOUR))]
    days = [f"{datetime_of((week.start + row * DAY) // 1000):%a %-d}" for row in range(7)]
    return FleetPage(
        heat_of(minutes, day, 60, names),
        heat_of(hours, week, 24, days),
        [_worst(column, minutes, by_minute, day) for column in _fullest(minutes)],
        suggestion_of(states, by_minute, minutes, day),
        len(states),
        sum(coming.is_nominal for coming in by_minute.values()),
    )


def _coming(state: JobState, view: View, is_spent: Callable[[], bool]) -> ComingStarts:
    try:
        return coming_of(state, view, listed=False, is_spent=is_spent)
    except UNUSABLE:
        return ComingStarts({})


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
    return HeatMap(cells, rows, columns, f"{sum(counts.values()):,} starts, at most {peak:,} in one cell")


def level_of(count: int, usual: int) -> int:
    """Return the step of a cell's colour, by its multiple of the median cell; the highest is from four on."""
    return 1 + bisect_right(STEPS, count / usual)


def _starts(count: int) -> str:
    return "start" if count == 1 else "starts"


def _fullest(minutes: Mapping[int, int]) -> list[int]:
    full = [column for column, count in minutes.items() if count > 1]
    return sorted(full, key=lambda column: (-minutes[column], column))[:MAX_WORST]


def _worst(column: int, minutes: Mapping[int, int], by_name: Mapping[str, ComingStarts], view: View) -> Worst:
    names = sorted(name for name, coming in by_name.items() if coming.columns.get(column))
    at = rfc3339((view.start + column * view.width) // 1000)
    return Worst(at, minutes[column], names[:MAX_NAMED], max(0, len(names) - MAX_NAMED))


# --- a suggestion --------------------------------------------------------------------------------


def suggestion_of(
    states: Sequence[JobState], by_name: Mapping[str, ComingStarts], minutes: Mapping[int, int], view: View
) -> Suggestion | None:
    """Return what would spread the schedules of the fullest minute that can be spread."""
    crowded = (column for column in _fullest(minutes) if minutes[column] >= CROWDED)
    found = (_suggestion_at(column, states, by_name, minutes, view) for column in crowded)
    return next((each for each in found if each is not None), None)


def _suggestion_at(
    worst: int,
    states: Sequence[JobState],
    by_name: Mapping[str, ComingStarts],
    minutes: Mapping[int, int],
    view: View,
) -> Suggestion | None:
    """Return what would spread the schedules that start exactly in a minute, if something would."""
    first, start = worst // 60 * 60, (view.start + worst // 60 * HOUR) // 1000
    spread = [job for job in _jobs_in(states, by_name, worst) if _can_spread(job, start)][:MAX_SPREAD]
    if len(spread) < CROWDED:
        return None
    load = Counter(
        {column - first: minutes[column] for column in range(first, first + 60) if column in minutes}
    )
    before = max(load.values())
    peaks = {remedy: _peak(load, spread, remedy, start) for remedy in Remedy}
    after = {remedy: peak for remedy, peak in peaks.items() if peak is not None and peak < before}
    if not after:
        return None
    at = rfc3339((view.start + worst * view.width) // 1000)
    return Suggestion(at, sorted(job.identity for job in spread), before, after)


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


def _jobs_in(states: Sequence[JobState], by_name: Mapping[str, ComingStarts], column: int) -> list[Job]:
    records = (state.job for state in states if by_name[state.job.identity].columns.get(column))
    return [compiled_job(job.definition, job.identity).for_job(job.identity) for job in records]


def _can_spread(job: Job, start: int) -> bool:
    """Say whether a window would change the start of one period, and overlap no other."""
    return is_plain(job) and count_between(job.schedule.plan, start, start + 3600) == 1


def _minutes_of(job: Job, start: int) -> list[int]:
    times = (chosen for _, chosen in starts_between(job, start, start + 3600) if chosen is not None)
    return [(chosen - start) // 60 for chosen in times]
