"""Wall times asked about: the instant one means, and what a change of the clocks did to it."""

from datetime import UTC, datetime
from typing import NamedTuple

from kron.core.cron.preview import clock_text
from kron.core.cron.timeline import NEXT
from kron.core.plan.compiled import CompiledJob
from kron.core.plan.registration import is_period
from kron.core.plan.why import Fact, neighbours
from kron.core.time.instant import DAY, EpochSeconds, rfc3339, seconds_of
from kron.core.time.zone import Transition, Zone


class Meant(NamedTuple):
    """The instant a wall time means, or None if there is none, and what there is to say about that."""

    instant: EpochSeconds | None
    facts: list[Fact]


def meant_by(terms: CompiledJob, wall: datetime) -> Meant:
    """Return what a wall time in a job's zone means: no instant, one, or one of two."""
    zone = terms.plan.zone
    instants = instants_of(zone, wall)
    if not instants:
        return _skipped(terms, wall, _gap_at(zone, wall))
    if len(instants) == 1:
        return Meant(instants[0], [])
    periods = [instant for instant in instants if is_period(terms, instant)] or instants
    which = "first" if periods[0] == instants[0] else "second"
    texts = " and ".join(map(rfc3339, instants))
    twice = f"{_text(wall)} comes twice in {zone.key}, at {texts}; this is the {which}"
    return Meant(periods[0], [Fact("dst_repeat", twice)])


def instants_of(zone: Zone, wall: datetime) -> list[EpochSeconds]:
    """Return the instants at which a zone's clocks show a wall time, oldest first: none, one or two."""
    seconds, found = seconds_of(wall.replace(tzinfo=UTC)), set()
    for fold in (0, 1):
        offset = wall.replace(tzinfo=zone.tzinfo, fold=fold).utcoffset()
        assert offset is not None
        instant = seconds - (offset.days * DAY + offset.seconds)
        if zone.offset_at(instant) == seconds - instant:
            found.add(instant)
    return sorted(found)


def _gap_at(zone: Zone, wall: datetime) -> Transition:
    """Return the change of the clocks that skips a wall time."""
    seconds = seconds_of(wall.replace(tzinfo=UTC))
    changes = zone.changes(seconds - 2 * DAY, seconds + 2 * DAY)
    return next(gap for gap in changes if gap.at + gap.before <= seconds < gap.at + gap.after)


def _skipped(terms: CompiledJob, wall: datetime, gap: Transition) -> Meant:
    seconds, zone = seconds_of(wall.replace(tzinfo=UTC)), terms.plan.zone.key
    skipped, near = f"{_text(wall)} does not exist in {zone}", neighbours(terms, gap.at - 1)
    if terms.plan.on_walls().prev_at_or_before(seconds) != seconds:
        return Meant(None, [Fact("no_period", f"{skipped}, and it is no nominal time either; {near}")])
    if terms.job.schedule.dst_gap == NEXT:
        moved = f"{skipped}, and its period is at the end of the gap, {rfc3339(gap.at)}"
        return Meant(gap.at, [Fact("dst_gap", moved)])
    return Meant(None, [Fact("dst_gap", f"{skipped}; {near}")])


def _text(wall: datetime) -> str:
    return f"{wall:%Y-%m-%d} {clock_text(wall)}"
