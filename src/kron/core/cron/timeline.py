"""A zone under the DST options of a schedule: its spans, with gaps and folds resolved.

With any options the result is a list of stretches of constant offset, so the search over it needs no
knowledge of daylight saving time.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kron.core.time.instant import DAY, FIRST_SECOND, LAST_SECOND, EpochSeconds
from kron.core.time.zone import REPEATING_FROM, Transition, Zone, year_bounds, year_of

SKIP, NEXT = "skip", "next"
GAP_CHOICES = (SKIP, NEXT)
BOTH, FIRST, LAST = "both", "first", "last"
REPEAT_CHOICES = (BOTH, FIRST, LAST)
# Any 42 full years have all 14 kinds of years: leap or not, starting on each weekday (29 February falls
# on a given weekday every 28 years, and every 40 across a century without a leap day).
KINDS_WITHIN = 42
# Years that a timeline remembers: there are six thousand of them, for each zone with each pair of options.
MAX_YEARS = 16


class Stretch(NamedTuple):
    """The instants `[start, end)` with one offset.

    With `walls`, it is the single instant at a gap's end, which matches if any wall time in the
    half-open `walls` does.
    """

    start: EpochSeconds
    end: EpochSeconds
    offset: int
    walls: tuple[int, int] | None = None


class Timeline:
    """The stretches of one zone under two DST options; use `timeline_of`, which shares instances.

    If `mirrored`, time runs backwards: instant t is represented as `~t`, so the previous one is next.
    """

    __slots__ = ("_gap", "_mirrored", "_repeat", "_years", "latest", "zone")

    def __init__(self, zone: Zone, gap: str, repeat: str, mirrored: bool) -> None:
        self.zone = zone
        self._gap = gap
        self._repeat = repeat
        self._mirrored = mirrored
        self._years: dict[int, tuple[Stretch, ...]] = {}
        # The last result (start, end, offset), where a new schedule starts its search: schedules of one zone
        # mostly search near one instant. Replaced atomically.
        self.latest = (0, 0, 0)

    def beyond_repeats(self, origin: int, instant: int) -> int:
        """Return where a search from `origin` continues that found nothing until `instant`.

        Once it has seen every kind of year under a zone's final rule, further years only repeat them: a time
        that is skipped in all of them (02:30 on each last Sunday of March in Berlin) is not there.
        """
        year = year_of(~origin if self._mirrored else origin)
        if not self._mirrored:
            last = max(year, REPEATING_FROM) + KINDS_WITHIN
            return (
                instant if last > year_of(LAST_SECOND) or instant < year_bounds(last)[0] else LAST_SECOND + 1
            )
        first = year - KINDS_WITHIN
        if first <= REPEATING_FROM or instant < ~year_bounds(first)[0]:
            return instant
        return max(instant, ~year_bounds(REPEATING_FROM)[0])

    def stretch_from(self, instant: int) -> Stretch | None:
        """Return the stretch an instant lies in or, if it lies in none, the next one."""
        while True:
            real = ~instant if self._mirrored else instant
            if not FIRST_SECOND <= real <= LAST_SECOND:
                return None
            year = year_of(real)
            stretches = self._years.get(year)
            if stretches is None:
                if len(self._years) >= MAX_YEARS:
                    self._years.clear()
                stretches = self._years[year] = self._stretches_of(year)
            for stretch in stretches:
                if instant < stretch.end:
                    if stretch.walls is None:
                        self.latest = stretch[:3]
                    return stretch
            # Reached only if a hole ends the year.
            start, end = year_bounds(year)
            instant = ~start + 1 if self._mirrored else end

    def _stretches_of(self, year: int) -> tuple[Stretch, ...]:
        stretches = tuple(self._cut(year))
        return tuple(map(_mirror, reversed(stretches))) if self._mirrored else stretches

    def _cut(self, year: int) -> Iterator[Stretch]:
        start, end = year_bounds(year)
        changes = tuple(self.zone.changes(start - DAY, end + DAY))
        holes = [_hole_of(change, self._repeat) for change in changes if change.size < 0]
        gaps = {change.at: change for change in changes if change.size > 0 and self._gap == NEXT}
        for span in self.zone.spans_of(year):
            since = span.start
            if gap := gaps.get(since):
                yield Stretch(since, since + 1, span.offset, (since + gap.before, since + gap.after + 1))
                since += 1
            for hole_start, hole_end in holes:
                if since < hole_end and hole_start < span.end:
                    if since < hole_start:
                        yield Stretch(since, hole_start, span.offset)
                    since = hole_end
            if since < span.end:
                yield Stretch(since, span.end, span.offset)


@lru_cache(maxsize=8192)
def timeline_of(zone: Zone, gap: str, repeat: str, *, backwards: bool = False) -> Timeline:
    """Return the shared timeline of a zone under two valid options."""
    return Timeline(zone, gap, repeat, backwards)


def _mirror(stretch: Stretch) -> Stretch:
    start, end, offset, walls = stretch
    return Stretch(-end, -start, -offset, walls and (-walls[1], -walls[0]))


def _hole_of(fold: Transition, repeat: str) -> tuple[EpochSeconds, EpochSeconds]:
    """Return the instants `[start, end)` of a fold that are excluded."""
    if repeat == FIRST:
        return fold.at, fold.at - fold.size
    if repeat == LAST:
        return fold.at + fold.size, fold.at
    return fold.at, fold.at
