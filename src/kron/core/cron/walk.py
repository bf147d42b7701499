"""The search: the first matching instant after another, in either direction.

There is one search, and it goes forward. To go back, time is mirrored: instant `t` becomes `~t`, so
days, hours and stretches run the other way and the same code finds the previous match.
"""

from functools import lru_cache
from itertools import count

from kron.core.cron.expression import Expression, MatchingDays
from kron.core.cron.field import bits_of, mirrored
from kron.core.cron.timeline import BOTH, SKIP, Timeline, timeline_of
from kron.core.time.instant import DAY, EpochSeconds
from kron.core.time.zone import Zone, zone_of

HOUR, MINUTE = 3600, 60
# Later than every instant in both directions: the result of a search without a match.
NEVER = 1 << 62
# Offsets are less than a day, so two days after a search's start no fold can repeat an earlier wall time.
SETTLED = 2 * DAY
# Most searches end within these steps.
NEAR_STEPS = 8
# The entry of a table if no matching hour is left in the day, or no matching minute or second.
NO_HOUR, NO_SIXTIETH = 24, 60


class Walk:
    """One direction of one schedule: finds the next match, and caches the position of the last one.

    `hours[h]` is the first matching hour at or after h, or NO_HOUR; so are the minutes of such an hour and
    the seconds of such a minute. Tables are small whatever they list: thousands of plans may stay in memory.
    """

    __slots__ = (
        "_days",
        "_first",
        "_hours",
        "_inside",
        "_minutes",
        "_seconds",
        "_stretch",
        "_timeline",
        "_year",
    )

    def __init__(
        self, hours: bytes, minutes: bytes, seconds: bytes, days: MatchingDays, timeline: Timeline
    ) -> None:
        self._hours = hours
        self._minutes = minutes
        self._seconds = seconds
        # The first matching second of an hour, and of a day.
        self._inside = minutes[0] * MINUTE + seconds[0]
        self._first = hours[0] * HOUR + self._inside
        self._days = days
        self._timeline = timeline
        # The position of the last match, initially of another walk; most searches start near it. Each is
        # replaced atomically, so threads that share a walk see either the old one or the new one.
        self._year = days.latest
        self._stretch = timeline.latest

    def next_after(self, instant: int) -> int | None:
        """Return the first match later than an instant, or None at the end of the calendar."""
        instant += 1
        start, end, offset = self._stretch
        if not start <= instant < end:
            return self._search(instant, NEVER, NEVER)
        wall = self._wall_from(instant + offset)
        found = wall - offset
        return found if found < end else self._search(_beyond(end, instant, wall), instant + offset, wall)

    def _wall_from(self, wall: int) -> int:
        """Return the first matching wall time at or after another, as local seconds, or NEVER."""
        start, end, mask = self._year
        day = wall // DAY
        if not start <= day < end:
            return self._other_year(day, wall)
        rest = mask >> day - start
        if rest & 1:
            midnight = day * DAY
            second = wall - midnight
            hour = second // HOUR
            found = self._hours[hour]
            if found == hour:
                minute = second % HOUR // MINUTE
                at = self._minutes[minute]
                if at == minute:
                    exact = self._seconds[second % MINUTE]
                    if exact != NO_SIXTIETH:
                        return wall - second % MINUTE + exact
                    at = self._minutes[minute + 1]
                if at != NO_SIXTIETH:
                    return midnight + hour * HOUR + at * MINUTE + self._seconds[0]
                found = self._hours[hour + 1]
            if found != NO_HOUR:
                return midnight + found * HOUR + self._inside
            rest ^= 1
        if rest:
            return (day + (rest & -rest).bit_length() - 1) * DAY + self._first
        return self._other_year(end, end * DAY)

    def _other_year(self, day: int, wall: int) -> int:
        """Continue in the first year with a match at or after the year of a day."""
        year = self._days.year_from(day)
        if year is None:
            return NEVER
        start, end, mask = year
        self._year = (start, end, mask)
        return self._wall_from(max(wall, start * DAY))

    def _search(self, instant: int, wall_from: int, wall: int) -> int | None:
        """Search the stretches from an instant; no wall time in `[wall_from, wall)` matches."""
        origin = instant
        for step in count():
            if step > NEAR_STEPS:
                instant = self._timeline.beyond_repeats(origin, instant)
            stretch = self._timeline.stretch_from(instant)
            if stretch is None:
                return None
            start, end, offset, walls = stretch
            if instant < start:
                instant = start
            if walls is not None:
                if self._wall_from(walls[0]) < walls[1]:
                    return instant
                instant = end
                continue
            if not wall_from <= instant + offset <= wall:
                wall_from = instant + offset
                wall = self._wall_from(wall_from)
            if wall - offset < end:
                self._stretch = (start, end, offset)
                return wall - offset
            instant = _beyond(end, instant, wall)
        raise AssertionError("the calendar ends")


def _beyond(end: int, instant: int, wall: int) -> int:
    """Return where to continue if nothing from `instant` to the stretch's `end` matched before `wall`.

    Only a nearby fold can repeat earlier wall times; after that, nothing matches before `wall`, for any
    number of stretches.
    """
    return end if end < instant + SETTLED else max(end, wall - DAY)


def walk_back(expression: Expression, timeline: Timeline) -> Walk:
    """Return the walk that finds the previous match, over a mirrored timeline."""
    return Walk(
        hour_table(mirrored(expression.hour.mask, 24)),
        sixtieth_table(mirrored(expression.minute.mask, 60)),
        sixtieth_table(mirrored(expression.second.mask, 60)),
        expression.days.mirror(),
        timeline,
    )


@lru_cache(maxsize=4096)
def hour_table(hours: int) -> bytes:
    """Return the first matching hour at or after each hour."""
    return _table(hours, NO_HOUR)


@lru_cache(maxsize=4096)
def sixtieth_table(values: int) -> bytes:
    """Return the first matching minute or second at or after each of them."""
    return _table(values, NO_SIXTIETH)


def _table(mask: int, none: int) -> bytes:
    table = b""
    for value in bits_of(mask):
        table = table.ljust(value + 1, bytes((value,)))
    return table.ljust(none + 1, bytes((none,)))


class Plan(Walk):
    """An expression compiled for a zone; in whole seconds since 1970.

    Plans are shared: schedules with the same text, zone and options have the same plan, so a time that many
    schedules need at one instant is computed once (`next_times`). A plan is itself the forward walk; the
    backward walk is created on first use.
    """

    __slots__ = ("_back", "dst", "expression", "zone")

    def __init__(self, expression: Expression, zone: Zone, dst_gap: str, dst_repeat: str) -> None:
        Walk.__init__(
            self,
            hour_table(expression.hour.mask),
            sixtieth_table(expression.minute.mask),
            sixtieth_table(expression.second.mask),
            expression.days,
            timeline_of(zone, dst_gap, dst_repeat),
        )
        self.expression = expression
        self.zone = zone
        self.dst = (dst_gap, dst_repeat)
        self._back: Walk | None = None

    def prev_at_or_before(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last match not later than an instant, or None at the start of the calendar."""
        if self._back is None:
            self._back = walk_back(self.expression, timeline_of(self.zone, *self.dst, backwards=True))
        found = self._back.next_after(~instant - 1)
        return None if found is None else ~found

    def on_walls(self) -> "Plan":
        """Return the same expression over wall times alone, as if there were no zone."""
        return Plan(self.expression, zone_of("UTC"), SKIP, BOTH)
