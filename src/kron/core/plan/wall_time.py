"""Wall times: their instants in a job's zone, and the effects of clock changes on its periods."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from kron.core.cron.preview import Effect, clock_text, effects, times_text
from kron.core.cron.timeline import BOTH, FIRST, NEXT
from kron.core.plan.compiled import CompiledJob
from kron.core.plan.fact import Fact, Link, period_link
from kron.core.plan.registration import is_period
from kron.core.time.instant import DAY, FIRST_SECOND, LAST_SECOND, EpochSeconds, rfc3339, seconds_of
from kron.core.time.zone import Transition, Zone, wall_time


class WallTime(NamedTuple):
    """The instant of a wall time, or None if there is none, and the facts about it."""

    instant: EpochSeconds | None
    facts: list[Fact]


def resolve_wall_time(compiled: CompiledJob, wall: datetime, *, now: int) -> WallTime:
    """Resolve a wall time in a job's zone: to no instant, one, or one of two."""
    zone = compiled.plan.zone
    instants = instants_of(zone, wall)
    if not instants:
        return _skipped(compiled, wall, _gap_at(zone, wall), now)
    if len(instants) == 1:
        return WallTime(instants[0], [])
    periods = [instant for instant in instants if is_period(compiled, instant)] or instants
    return WallTime(periods[0], [])


def instants_of(zone: Zone, wall: datetime) -> list[EpochSeconds]:
    """Return the instants at which a zone's clocks show a wall time, oldest first: zero, one or two."""
    seconds, instants = seconds_of(wall.replace(tzinfo=UTC)), set()
    for fold in (0, 1):
        offset = wall.replace(tzinfo=zone.tzinfo, fold=fold).utcoffset()
        assert offset is not None
        instant = seconds - (offset.days * DAY + offset.seconds)
        if zone.offset_at(instant) == seconds - instant:
            instants.add(instant)
    return sorted(instants)


def neighbours(compiled: CompiledJob, instant: EpochSeconds) -> str:
    """Return the nominal times before and after an instant, for people."""
    return f"the nearest are {' and '.join(rfc3339(time) for time in _near(compiled, instant))}"


def neighbour_links(compiled: CompiledJob, instant: EpochSeconds) -> tuple[Link, ...]:
    """Return references to the periods before and after an instant."""
    return tuple(map(period_link, _near(compiled, instant)))


def _near(compiled: CompiledJob, instant: EpochSeconds) -> list[EpochSeconds]:
    near = (compiled.plan.prev_at_or_before(instant), compiled.plan.next_after(instant))
    return [time for time in near if time is not None]


# --- clock changes ---------------------------------------------------------------------------------------


def clock_change_facts(compiled: CompiledJob, instant: EpochSeconds, *, now: int) -> Iterator[Fact]:
    """Yield how a clock change within a day doubled a period, moved it here, or dropped it."""
    schedule, here = compiled.job.schedule, is_period(compiled, instant)
    start, end = max(instant - DAY, FIRST_SECOND), min(instant + DAY, LAST_SECOND) + 1
    for effect in effects(schedule, start, end):
        change, cause = effect.change, change_text(compiled.plan.zone, effect.change, now)
        if effect.is_gap:
            yield from _gap_facts(compiled, effect, instant, now)
        elif change.at + change.size <= instant < change.at - change.size and (
            here or _is_wall(compiled, instant)
        ):
            wall = clock_text(wall_time(instant, compiled.plan.zone.offset_at(instant)))
            is_first = instant < change.at
            twin = instant - change.size if is_first else instant + change.size
            which = "first" if is_first else "second"
            if schedule.dst_repeat == BOTH:
                option = 'dst_repeat "first" or "last" runs it once'
            else:
                kept = "first" if schedule.dst_repeat == FIRST else "second"
                option = f'dst_repeat "{schedule.dst_repeat}" runs the {kept} only'
            sentence = f"{cause}, so {wall} occurs twice, and this is the {which}; {option}"
            yield Fact("dst_repeat", sentence, 1000 * change.at, (period_link(twin),))


def _gap_facts(compiled: CompiledJob, effect: Effect, instant: EpochSeconds, now: int) -> Iterator[Fact]:
    """Yield that a period stands for skipped times, or that a time nearby was skipped."""
    at, gap = effect.change.at, _gap_text(compiled, effect.change, times_text(effect), now)
    if compiled.job.schedule.dst_gap == NEXT:
        if instant == at:
            yield Fact("dst_moved", f'{gap}, and its period is here (dst_gap "next")', 1000 * at)
    elif not is_period(compiled, instant):
        yield Fact("dst_gap", f"{gap}; {_option(effect.change)}", 1000 * at)


def _gap_text(compiled: CompiledJob, change: Transition, times: str, now: int) -> str:
    """Return that wall times are skipped by a clock change."""
    verb = "did" if 1000 * change.at <= now else "does"
    return f"{change_text(compiled.plan.zone, change, now)}, so {times} {verb} not exist"


def _option(change: Transition) -> str:
    """Return the option that runs skipped times."""
    return f'dst_gap "next" runs it at {clock_text(wall_time(change.at, change.after))}'


def change_text(zone: Zone, change: Transition, now: int) -> str:
    """Return a clock change in words, in the past tense once it is over."""
    before, after = wall_time(change.at, change.before), wall_time(change.at, change.after)
    verb = "went" if 1000 * change.at <= now else "go"
    way = "forward" if change.size > 0 else "back"
    day = "" if before.date() == after.date() else f"{after:%Y-%m-%d} "
    start, end = f"{before:%Y-%m-%d} {clock_text(before)}", f"{day}{clock_text(after)}"
    return f"clocks in {zone.key} {verb} {way} from {start} to {end}"


def _is_wall(compiled: CompiledJob, instant: EpochSeconds) -> bool:
    """Say whether the wall clock of an instant matches the schedule, whether or not that is a period."""
    seconds = instant + compiled.plan.zone.offset_at(instant)
    return compiled.plan.on_walls().prev_at_or_before(seconds) == seconds


def _gap_at(zone: Zone, wall: datetime) -> Transition:
    """Return the transition that skips a wall time."""
    seconds = seconds_of(wall.replace(tzinfo=UTC))
    changes = zone.changes(seconds - 2 * DAY, seconds + 2 * DAY)
    return next(gap for gap in changes if gap.at + gap.before <= seconds < gap.at + gap.after)


def _skipped(compiled: CompiledJob, wall: datetime, gap: Transition, now: int) -> WallTime:
    seconds = seconds_of(wall.replace(tzinfo=UTC))
    near, links = neighbours(compiled, gap.at - 1), neighbour_links(compiled, gap.at - 1)
    skipped = _gap_text(compiled, gap, clock_text(wall), now)
    if compiled.plan.on_walls().prev_at_or_before(seconds) != seconds:
        text = f"{skipped}, and is not a nominal time either; {near}"
        return WallTime(None, [Fact("no_period", text, 1000 * gap.at, links)])
    if compiled.job.schedule.dst_gap == NEXT:
        # The facts of the period at the end of the gap name the change.
        return WallTime(gap.at, [])
    return WallTime(None, [Fact("dst_gap", f"{skipped}; {_option(gap)}; {near}", 1000 * gap.at, links)])
