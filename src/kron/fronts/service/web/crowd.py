"""The timeline of many schedules: a lane for each tag, drawn from counts, however many runs there are.

Nothing here reads a clock or a store.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kron.core.plan.query import TagCount
from kron.fronts.service.web.time_text import span
from kron.fronts.service.web.timeline import (
    MAX_LANES,
    NO_TAG,
    PROBLEM,
    SEVERITY,
    FleetTimeline,
    Lane,
    LaneBar,
    View,
    Zoom,
    area_of,
    bar_width,
    crowds_of,
    summary_of,
    ticks_of,
)
from kron.fronts.service.web.view_models import LOOKS


class CountedFleet(NamedTuple):
    """The schedules, the runs, the coming starts and the running executions of each first tag.

    `made` has all runs in each column where `counts` are only of those without success.
    """

    tags: Mapping[str | None, int]
    counts: Sequence[TagCount]
    coming: Mapping[str | None, Counter[int]]
    running: Mapping[str | None, Sequence[int]]
    made: Mapping[int, int] | None = None


class _Group(NamedTuple):
    """The schedules of one lane."""

    tag: str
    schedules: int
    counts: list[TagCount]
    coming: Counter[int]
    running: list[int]

    @property
    def rank(self) -> tuple[int, int, str]:
        """Return the worst outcome and how often it occurs, the worst lane first."""
        counts: Counter[int] = Counter()
        for each in self.counts:
            counts[SEVERITY[LOOKS[each.status][0]]] += each.runs
        worst = max(counts, default=0)
        return (-worst, -counts[worst], self.tag) if worst >= PROBLEM else (0, 0, self.tag)


def crowd_of(fleet: CountedFleet, view: View, zoom: Zoom) -> FleetTimeline:
    """Return the picture of many schedules: a lane for each first tag, the worst first."""
    ranked = sorted(_groups(fleet), key=lambda group: group.rank)
    is_long = len(ranked) > MAX_LANES
    shown = ranked[: MAX_LANES - 1] if is_long else ranked
    lanes = [_lane(group, view) for group in shown]
    if is_long:
        rest = ranked[MAX_LANES - 1 :]
        lanes.append(_lane(_merged(rest), view)._replace(label=f"{len(rest)} more tags", is_rest=True))
    now_x = view.x(view.now) if view.has(view.now) else None
    load = area_of(_load(fleet), view)
    return FleetTimeline(lanes, ticks_of(view, zoom), now_x, load, view.columns, is_grouped=True)


def _groups(fleet: CountedFleet) -> list[_Group]:
    counts: defaultdict[str | None, list[TagCount]] = defaultdict(list)
    for each in fleet.counts:
        counts[each.tag].append(each)
    return [
        _Group(
            NO_TAG if tag is None else tag,
            schedules,
            counts[tag],
            fleet.coming.get(tag, Counter()),
            list(fleet.running.get(tag, ())),
        )
        for tag, schedules in fleet.tags.items()
    ]


def _merged(groups: Sequence[_Group]) -> _Group:
    coming: Counter[int] = Counter()
    for group in groups:
        coming.update(group.coming)
    return _Group(
        "",
        sum(group.schedules for group in groups),
        [each for group in groups for each in group.counts],
        coming,
        [start for group in groups for start in group.running],
    )


def _lane(group: _Group, view: View) -> Lane:
    counts: Counter[str] = Counter()
    looks: dict[int, str] = {}
    for each in group.counts:
        look = LOOKS[each.status][0]
        counts[look] += each.runs
        if SEVERITY[look] > SEVERITY.get(looks.get(each.part, ""), -1):
            looks[each.part] = look
    worst = max(counts, key=SEVERITY.__getitem__, default="wait")
    return Lane(
        group.tag,
        group.schedules,
        summary_of(counts, sum(group.coming.values())),
        worst if SEVERITY[worst] >= PROBLEM else "none",
        [],
        crowds_of(looks, counts, group.coming),
        _running(group.running, view),
        group.tag,
    )


def _running(starts: Sequence[int], view: View) -> list[LaneBar]:
    """Return one bar for all running executions of a lane, from the first start to now."""
    if not starts or min(starts) >= view.end or view.now <= view.start:
        return []
    first = min(starts)
    longest = span(max(0, view.now - first))
    title = f"{len(starts):,} running, {'' if len(starts) == 1 else 'the first '}for {longest}"
    return [LaneBar(view.x(first), bar_width(view, first, view.now), "run", title)]


def _load(fleet: CountedFleet) -> Counter[int]:
    """Return the starts in each column: past ones as recorded, coming ones as planned."""
    load: Counter[int] = Counter(fleet.made or {})
    for coming in fleet.coming.values():
        load.update(coming)
    for each in fleet.counts:
        if fleet.made is None:
            load[each.part] += each.started
        elif not each.is_dropped:
            load[each.part] -= each.runs - each.started
    return +load
