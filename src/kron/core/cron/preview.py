"""Upcoming times for people, with the effects of clock changes: dropped, repeated and moved times."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice

from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.cron.timeline import BOTH, FIRST, NEXT
from kron.core.time.instant import DAY, SECOND, EpochSeconds
from kron.core.time.zone import Transition, wall_time

# How far ahead clock changes are searched: a zone that has any has one in this time.
A_YEAR_AHEAD = 400 * DAY


class Mark(StrEnum):
    """The effect of a clock change on a time."""

    SKIPPED = "skipped"
    MOVED = "moved"
    FIRST_OF_TWO = "first_of_two"
    SECOND_OF_TWO = "second_of_two"
    LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a preview: an occurrence, or (without an instant) one that a clock change removed.

    `at` is its sort key.
    """

    at: EpochSeconds = field(compare=False)
    instant: EpochSeconds | None
    wall: datetime
    offset: int
    mark: Mark | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one transition on a schedule: the wall times it skips or repeats."""

    change: Transition
    first: datetime
    last: datetime
    count: int

    @property
    def is_gap(self) -> bool:
        """Return whether wall times are skipped, not repeated."""
        return self.change.size > 0


def effects(schedule: Schedule, start: EpochSeconds, end: EpochSeconds) -> Iterator[Effect]:
    """Yield the transitions in `[start, end)` that skip or repeat a wall time of the schedule."""
    for change in schedule.plan.zone.changes(start, end):
        walls = sorted((change.at + change.before, change.at + change.after))
        matching = list(seconds_between(schedule.plan.on_walls(), walls[0], walls[1]))
        if matching:
            yield Effect(
                change=change,
                first=wall_time(matching[0], 0),
                last=wall_time(matching[-1], 0),
                count=len(matching),
            )


def preview(schedule: Schedule, start: EpochSeconds, count: int) -> list[Line]:
    """Return the first occurrences at or after an instant, with the effects of clock changes."""
    instants = list(islice(seconds_between(schedule.plan, start, None), count))
    if not instants:
        return []
    # The largest transition is a day, and the times it repeats start that long before it.
    near = list(effects(schedule, start - DAY, instants[-1] + DAY + 1))
    lost = [line for effect in near if (line := _lost(schedule, effect))]
    lines = [line for line in lost if start <= line.at <= instants[-1]]
    changes = [effect.change.at for effect in near]
    for instant in instants:
        # Only transitions within a day of a time can move or repeat it.
        first, last = bisect_left(changes, instant - DAY), bisect_right(changes, instant + DAY)
        lines.append(_line_of(schedule, instant, near[first:last]))
    return sorted(lines, key=lambda line: line.at)


def changes_ahead(schedule: Schedule, start: EpochSeconds, end: EpochSeconds) -> list[Line]:
    """Return the effects of the transitions in `[start, end)`, one or two lines for each."""
    lines: list[Line] = []
    for effect in effects(schedule, start, end):
        lost = _lost(schedule, effect)
        if lost is not None:
            lines.append(lost)
        elif effect.is_gap:
            lines.append(_line_of(schedule, effect.change.at, [effect]))
        else:
            first = effect.change.at + effect.change.size
            instants = seconds_between(schedule.plan, first, first - 2 * effect.change.size)
            repeated = [_line_of(schedule, instant, [effect]) for instant in instants]
            lines += [repeated[0], repeated[effect.count]]
    return lines


def _line_of(schedule: Schedule, instant: EpochSeconds, near: list[Effect]) -> Line:
    offset = schedule.plan.zone.offset_at(instant)
    mark = note = None
    for effect in near:
        at, size = effect.change.at, effect.change.size
        if schedule.dst_gap == NEXT and size > 0 and instant == at:
            mark, note = Mark.MOVED, f"{times_text(effect)} moved here: {_cause(effect.change)}"
        elif schedule.dst_repeat == BOTH and at + size <= instant < at:
            mark, note = Mark.FIRST_OF_TWO, f"first of two: {_cause(effect.change)}"
        elif schedule.dst_repeat == BOTH and at <= instant < at - size:
            mark, note = Mark.SECOND_OF_TWO, f"second of two: {_cause(effect.change)}"
    wall = wall_time(instant, offset)
    return Line(at=instant, instant=instant, wall=wall, offset=offset, mark=mark, note=note)


def _lost(schedule: Schedule, effect: Effect) -> Line | None:
    """Return the line for the times that a transition removes, if any."""
    change, cause = effect.change, _cause(effect.change)
    if effect.is_gap and schedule.dst_gap != NEXT:
        note = f"{times_text(effect)} skipped: {cause}"
        at, offset, mark = change.at, change.before, Mark.SKIPPED
        return Line(at=at, instant=None, wall=effect.first, offset=offset, mark=mark, note=note)
    if not effect.is_gap and schedule.dst_repeat != BOTH:
        second = schedule.dst_repeat == FIRST
        note = f"{'second' if second else 'first'} {times_text(effect)} left out: {cause}"
        offset = change.after if second else change.before
        at, mark = (effect.first - wall_time(offset, 0)) // SECOND, Mark.LEFT_OUT
        return Line(at=at, instant=None, wall=effect.first, offset=offset, mark=mark, note=note)
    return None


def times_text(effect: Effect) -> str:
    """Format the times of day that a transition affects: the first, the last, and how many they are."""
    if effect.count == 1:
        return clock_text(effect.first)
    return f"{clock_text(effect.first)} to {clock_text(effect.last)} ({effect.count} times)"


def _cause(change: Transition) -> str:
    before, after = wall_time(change.at, change.before), wall_time(change.at, change.after)
    day = "" if before.date() == after.date() else f"{after:%d %b} "
    way = "forward" if change.size > 0 else "back"
    return f"clocks go {way} {clock_text(before)} to {day}{clock_text(after)}"


def clock_text(wall: datetime) -> str:
    """Format a time of day, with seconds only if they are not zero."""
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
