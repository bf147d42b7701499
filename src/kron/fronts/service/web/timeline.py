"""The timeline: past runs, windows and coming starts of a fleet as values that a template draws.

Nothing here reads a clock or a store. Positions are percentages of the width; what shares a column of a
crowded lane is one mark, in the look of its worst outcome.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice, takewhile
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.cron.schedule import seconds_between
from kron.core.cron.walk import Plan
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.next_start import starts_ahead
from kron.core.plan.query import TagCount
from kron.core.plan.record import RangeRecord, RunKind, RunRecord
from kron.core.plan.step import JobState
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, datetime_of, rfc3339
from kron.core.wording import counted
from kron.fronts.service.web.time_text import span
from kron.fronts.service.web.view_models import LOOKS, OUTCOMES, WAITING

# More schedules than this are grouped by tag; more tags than this share the last lane.
MAX_LANES = 24
# Marks of a lane, and of all lanes, that are drawn one by one, each with a link.
MAX_SINGLE, MAX_SINGLES = 60, 400
# Coming starts of a schedule that are listed; a denser one is counted column by column.
MAX_LISTED = 300
# Occurrences of a plan that are walked; of more, each column is counted, which costs as much as this many.
MAX_WALKED = 5_000
# Plans whose columns are remembered while one picture is made.
MAX_PLANS = 4_096
# The order of looks: the worst one stands for all in its column.
SEVERITY = {
    "bad": 8,
    "miss": 7,
    "none": 6,
    "skip": 5,
    "stop": 4,
    "run": 3,
    "sent": 3,
    "ok": 2,
    "wait": 1,
    "next": 0,
}
# From this severity on, a lane has a problem.
PROBLEM = SEVERITY["skip"]
# What a column of each look covers of the height of a crowded lane: parts from the top, each with its height.
# The look is known without its colour; others cover all of it.
SHAPES = {
    "bad": ((0, 0.4), (0.6, 0.4)),
    "miss": ((0, 0.2), (0.8, 0.2)),
    "none": ((0.4, 0.2),),
    "skip": ((0.5, 0.5),),
    "stop": ((0.8, 0.2),),
    "run": ((0, 0.5),),
    "sent": ((0, 0.5),),
}
WHOLE = ((0, 1),)
WORDS = dict(LOOKS.values()) | {"next": "upcoming"}
NO_TAG = "no tag"
# A label closer to an edge than this, in percent, would leave the picture.
MARGIN = 2


class Zoom(StrEnum):
    """How much time the timeline shows, half of it ahead."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class Scale(NamedTuple):
    """A zoom's length, its number of columns and the distance of its labels, in milliseconds."""

    length: int
    columns: int
    step: int
    label: str


MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
SCALES = {
    Zoom.HOUR: Scale(HOUR, 120, 10 * MINUTE, "%H:%M"),
    Zoom.DAY: Scale(DAY, 288, 3 * HOUR, "%H:%M"),
    Zoom.WEEK: Scale(7 * DAY, 168, DAY, "%a %-d"),
    Zoom.MONTH: Scale(30 * DAY, 240, 5 * DAY, "%-d %b"),
}


class View(NamedTuple):
    """The drawn interval `[start, end)` and now, in milliseconds, and its number of columns."""

    start: int
    end: int
    now: int
    columns: int

    @property
    def width(self) -> int:
        """Return the length of a column in milliseconds."""
        return (self.end - self.start) // self.columns

    def column(self, at: int) -> int:
        """Return the column of an instant."""
        return (at - self.start) // self.width

    def has(self, at: int) -> bool:
        """Say whether an instant is in the interval."""
        return self.start <= at < self.end

    def x(self, at: int) -> float:
        """Return the place of an instant, in percent of the width."""
        part = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return round(100 * part, 2)


def view_of(zoom: Zoom, middle: int, now: int) -> View:
    """Return the view of a zoom around an instant, which is moved to a boundary of columns."""
    scale = SCALES[zoom]
    width = scale.length // scale.columns
    first = -(-1000 * FIRST_SECOND // width) * width
    last = (1000 * LAST_SECOND - scale.length) // width * width
    start = min(max((middle - scale.length // 2) // width * width, first), last)
    return View(start, start + scale.length, now, scale.columns)


class Tick(NamedTuple):
    """A labelled line of the time axis."""

    x: float
    label: str
    at: str


def ticks_of(view: View, zoom: Zoom) -> list[Tick]:
    """Return the lines of the time axis, in UTC."""
    scale = SCALES[zoom]
    first = -(-view.start // scale.step) * scale.step
    return [
        Tick(view.x(at), f"{datetime_of(at // 1000):{scale.label}}", rfc3339(at // 1000))
        for at in range(first, view.end, scale.step)
        if MARGIN <= view.x(at) <= 100 - MARGIN
    ]


# --- coming starts -------------------------------------------------------------------------------


class ComingStarts(NamedTuple):
    """The starts of a schedule ahead: how many in each column, those listed one by one, and its windows.

    `is_nominal` if the starts of windows are counted at their nominal times.
    """

    columns: Mapping[int, int]
    listed: Sequence[tuple[int, int]] = ()
    windows: Sequence[tuple[int, int]] = ()
    is_nominal: bool = False


NOTHING = ComingStarts({})


def coming_of(
    state: JobState, view: View, *, listed: bool = True, is_spent: Callable[[], bool] = lambda: False
) -> ComingStarts:
    """Return the starts of a schedule in a view that are later than now; with `listed` also one by one.

    Once `is_spent`, windows are not decided any more: their starts count at their nominal times.
    """
    job = state.job
    if view.end <= view.now or job.is_stopped or job.deleted_at is not None:
        return NOTHING if job.pause_ends_at is None else _listed(state, view)
    compiled = compiled_job(job.definition, job.identity)
    first, last = max(view.start, view.now + 1000) // 1000, view.end // 1000
    policy = compiled.policy
    limits = policy.start_at is not None or policy.end_at is not None
    is_special = job.remaining is not None or job.past is not None or job.handled is not None or limits
    if is_special or (not compiled.plain and not is_spent()):
        return _listed(state, view)
    counts = _columns(compiled.plan, first, last, view)
    times: list[tuple[int, int]] = []
    if listed and sum(counts.values()) <= MAX_LISTED:
        times = [(1000 * time, time) for time in seconds_between(compiled.plan, first, last)]
    return ComingStarts(counts, times, is_nominal=not compiled.plain)


def _listed(state: JobState, view: View) -> ComingStarts:
    """Return the starts that are found one by one, with their windows."""
    compiled = compiled_job(state.job.definition, state.job.identity)
    since = max(view.now, view.start - 1)
    ahead = takewhile(lambda start: start.fire_time < view.end, starts_ahead(state, since))
    starts = [(start.fire_time, start.nominal_time) for start in islice(ahead, MAX_LISTED + 1)]
    if len(starts) > MAX_LISTED:
        # The windows of the first of them alone would look as if the others had none.
        first, last = max(view.start, view.now + 1000) // 1000, view.end // 1000
        return ComingStarts(_columns(compiled.plan, first, last, view), is_nominal=not compiled.plain)
    windows = _real(_window(compiled, time) for _, time in starts)
    return ComingStarts(Counter(view.column(at) for at, _ in starts), starts, windows)


def _window(compiled: CompiledJob, nominal_time: int) -> tuple[int, int]:
    return 1000 * (nominal_time + compiled.early), 1000 * (nominal_time + compiled.late)


def _real(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(start, end) for start, end in windows if end > start]


@lru_cache(maxsize=MAX_PLANS)
def _columns(plan: Plan, first: int, last: int, view: View) -> Mapping[int, int]:
    """Return how many occurrences of a plan are in each column; schedules with one plan share the answer."""
    if last > LAST_SECOND or count_between(plan, first, last) <= MAX_WALKED:
        return Counter(view.column(1000 * time) for time in seconds_between(plan, first, last))
    counts = {}
    for column in range(view.column(1000 * first), view.columns):
        start = (view.start + column * view.width) // 1000
        count = count_between(plan, max(start, first), start + view.width // 1000)
        if count:
            counts[column] = count
    return counts


# --- lanes ---------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """A schedule to draw: its runs and dropped periods in the view, and its coming starts."""

    name: str
    runs: Sequence[RunRecord] = ()
    dropped: Sequence[RangeRecord] = ()
    coming: ComingStarts = NOTHING
    windows: Sequence[tuple[int, int]] = ()
    # What keeps it from starting, such as "paused".
    stopped: str = ""
    # Its runs by column, where they are too many to be read.
    counted: Sequence[TagCount] = ()


class Single(NamedTuple):
    """A mark with a link: to a period, or to a run by its key."""

    x: float
    look: str
    title: str
    name: str
    period_id: str | None
    key: str | None


class Crowd(NamedTuple):
    """The columns of one look in a lane, as a path, and how many runs they stand for."""

    look: str
    path: str
    title: str


class LaneBar(NamedTuple):
    """A piece of a lane: a window, a running execution, or a range of dropped periods."""

    x: float
    width: float
    look: str
    title: str


class Lane(NamedTuple):
    """A row of the timeline: a schedule, or the schedules of a tag."""

    label: str
    schedules: int
    summary: str
    look: str
    singles: list[Single]
    crowds: list[Crowd]
    stretches: list[LaneBar]
    tag: str | None = None
    is_rest: bool = False


class Area(NamedTuple):
    """The load: starts in each column as a path, the highest one, and when it is."""

    path: str
    peak: int
    title: str
    width: str = ""
    peak_at: str | None = None


class FleetTimeline(NamedTuple):
    """The whole picture."""

    lanes: list[Lane]
    ticks: list[Tick]
    now_x: float | None
    load: Area
    columns: int
    is_grouped: bool = False

    @property
    def has_windows(self) -> bool:
        """Say whether a window is drawn, which the legend then explains."""
        return any(each.look == "window" for lane in self.lanes for each in lane.stretches)


class _Mark(NamedTuple):
    at: int
    look: str
    title: str
    name: str
    period_id: str | None
    key: str | None


def timeline_of(schedules: Sequence[Drawn], view: View, zoom: Zoom) -> FleetTimeline:
    """Return the picture of a few schedules, one lane each, the worst first."""
    left, lanes = MAX_SINGLES, []
    for one in sorted(schedules, key=lambda one: (*_rank(one, view), one.name)):
        lane = _lane(one, view, left)
        left -= len(lane.singles)
        lanes.append(lane)
    now_x = view.x(view.now) if view.has(view.now) else None
    return FleetTimeline(lanes, ticks_of(view, zoom), now_x, load_of(schedules, view), view.columns)


def _rank(one: Drawn, view: View) -> tuple[int, int]:
    """Return the worst outcome of a lane and how often it occurs, the worst lane first."""
    counts = Counter(SEVERITY[look_of(run)] for run in one.runs if view.has(_at(run)))
    if one.counted:
        looks, _ = looks_of(one.counted)
        counts = Counter({SEVERITY[look]: runs for look, runs in looks.items()})
    counts.update(SEVERITY[OUTCOMES[each.outcome][0]] for each in one.dropped if touches(each, view))
    worst = max(counts, default=0)
    return (-worst, -counts[worst]) if worst >= PROBLEM else (0, 0)


def look_of(run: RunRecord) -> str:
    """Return the look of a run."""
    return (WAITING if run.waits_for_retry else LOOKS[run.status])[0]


def _at(run: RunRecord) -> int:
    """Return where a run stands: at its start, or where it was to start."""
    return run.fire_time if run.started_at is None else run.started_at


def touches(dropped: RangeRecord, view: View) -> bool:
    """Say whether aggregated periods are in a view."""
    return 1000 * dropped.last >= view.start and 1000 * dropped.first < view.end


def _lane(one: Drawn, view: View, left: int) -> Lane:
    marks = [] if one.counted else list(_marks(one, view))
    counts, looks = looks_of(one.counted)
    counts.update(mark.look for mark in marks)
    coming = one.coming.columns
    ahead = sum(coming.values())
    is_dense = len(marks) + ahead > min(MAX_SINGLE, left) or len(one.coming.listed) != ahead
    is_crowded = bool(one.counted) or is_dense
    if not is_crowded:
        marks += _coming_marks(one)
    crowds = crowds_of(looks or _worst_looks(marks, view), counts, coming) if is_crowded else []
    for dropped in one.dropped:
        if touches(dropped, view):
            counts[OUTCOMES[dropped.outcome][0]] += dropped.periods
    worst = max(counts, key=SEVERITY.__getitem__, default="wait")
    shown = [summary_of(counts, ahead)] if counts or ahead or not one.stopped else []
    return Lane(
        one.name,
        1,
        ", ".join([*filter(None, [one.stopped]), *shown]),
        worst if SEVERITY[worst] >= PROBLEM else "none",
        [] if is_crowded else [_single(mark, view) for mark in marks],
        crowds,
        list(_stretches(one, view)),
    )


def looks_of(counted: Iterable[TagCount]) -> tuple[Counter[str], dict[int, str]]:
    """Return how many runs have each look, and the look of the worst ones in each column."""
    counts: Counter[str] = Counter()
    looks: dict[int, str] = {}
    for each in counted:
        look = LOOKS[each.status][0]
        counts[look] += each.runs
        if SEVERITY[look] > SEVERITY.get(looks.get(each.part, ""), -1):
            looks[each.part] = look
    return counts, looks


def total_of(all_coming: Iterable[tuple[int, ComingStarts]]) -> Counter[int]:
    """Return the coming starts in each column, each as often as it is shared.

    Schedules with one plan share a mapping, which is added up once.
    """
    shared: dict[int, tuple[int, Mapping[int, int]]] = {}
    for jobs, coming in all_coming:
        known, _ = shared.get(id(coming.columns), (0, coming.columns))
        shared[id(coming.columns)] = known + jobs, coming.columns
    total: Counter[int] = Counter()
    for jobs, columns in shared.values():
        for column, count in columns.items():
            total[column] += jobs * count
    return total


def summary_of(counts: Mapping[str, int], coming: int) -> str:
    """Return what a lane shows, in words."""
    ordered = sorted(counts, key=SEVERITY.__getitem__, reverse=True)
    parts = [f"{counts[look]:,} {WORDS[look]}" for look in ordered]
    return ", ".join([*parts, f"{coming:,} upcoming"] if coming else parts) or "nothing in view"


def _marks(one: Drawn, view: View) -> Iterator[_Mark]:
    for run in one.runs:
        at = _at(run)
        if view.has(at) and not (run.status.value == "PENDING" and at > view.now):
            look = look_of(run)
            period_id = rfc3339(run.nominal_time) if run.kind is RunKind.PERIOD else None
            words = f"{one.name}, {rfc3339(at // 1000)}: {WORDS[look]}"
            if run.started_at is not None and run.ended_at is not None:
                words += f" after {span(run.ended_at - run.started_at)}"
            yield _Mark(at, look, words, one.name, period_id, run.key)


def _coming_marks(one: Drawn) -> Iterator[_Mark]:
    for at, nominal_time in one.coming.listed:
        period_id = rfc3339(nominal_time)
        yield _Mark(at, "next", f"{one.name}, {rfc3339(at // 1000)}: upcoming", one.name, period_id, None)


def _single(mark: _Mark, view: View) -> Single:
    return Single(view.x(mark.at), mark.look, mark.title, mark.name, mark.period_id, mark.key)


def _worst_looks(marks: Sequence[_Mark], view: View) -> dict[int, str]:
    """Return the look of the worst mark in each column."""
    looks: dict[int, str] = {}
    for mark in marks:
        column = view.column(mark.at)
        if SEVERITY[mark.look] > SEVERITY.get(looks.get(column, ""), -1):
            looks[column] = mark.look
    return looks


def crowds_of(looks: Mapping[int, str], counts: Mapping[str, int], coming: Mapping[int, int]) -> list[Crowd]:
    """Return one path for each look; a column without a mark has that of its coming starts."""
    by_look: defaultdict[str, list[int]] = defaultdict(list)
    for column in looks.keys() | coming.keys():
        by_look[looks.get(column, "next")].append(column)
    total = {**counts, "next": sum(coming.values())}
    return [
        Crowd(look, _path(columns, SHAPES.get(look, WHOLE)), f"{total[look]:,} {WORDS[look]}")
        for look, columns in sorted(by_look.items(), key=lambda item: SEVERITY[item[0]])
    ]


def _path(columns: Iterable[int], parts: Sequence[tuple[float, float]]) -> str:
    """Return rectangles over some columns, one for each part of the height; adjacent ones are one."""
    pieces: list[list[int]] = []
    for column in sorted(columns):
        if pieces and sum(pieces[-1]) == column:
            pieces[-1][1] += 1
        else:
            pieces.append([column, 1])
    return "".join(
        f"M{start} {top:g}h{width}v{height:g}h-{width}z" for start, width in pieces for top, height in parts
    )


def _stretches(one: Drawn, view: View) -> Iterator[LaneBar]:
    for start, end in (*one.windows, *one.coming.windows):
        if end > view.start and start < view.end:
            yield LaneBar(view.x(start), bar_width(view, start, end), "window", "window")
    for dropped in one.dropped:
        if touches(dropped, view):
            look, word = OUTCOMES[dropped.outcome]
            title = f"{one.name}: {counted(dropped.periods, 'period')} {word}, {dropped.reason.sentence}"
            start, end = 1000 * dropped.first, 1000 * dropped.last
            yield LaneBar(view.x(start), bar_width(view, start, end), look, title)
    for run in one.runs:
        if (
            run.in_flight
            and run.started_at is not None
            and run.started_at < view.end
            and view.now > view.start
        ):
            title = f"{one.name}: running for {span(max(0, view.now - run.started_at))}"
            yield LaneBar(view.x(run.started_at), bar_width(view, run.started_at, view.now), "run", title)


def bar_width(view: View, start: int, end: int) -> float:
    """Return a width in percent, at least as wide as can be seen."""
    return max(round(view.x(end) - view.x(start), 2), 0.15)


# --- load ----------------------------------------------------------------------------------------


def load_of(schedules: Sequence[Drawn], view: View) -> Area:
    """Return the starts in each column: past ones as recorded, coming ones as planned."""
    counts = total_of((1, one.coming) for one in schedules)
    for one in schedules:
        for each in one.counted:
            counts[each.part] += each.started
        counts.update(
            view.column(run.started_at)
            for run in (() if one.counted else one.runs)
            if run.started_at is not None and view.has(run.started_at)
        )
    return area_of(counts, view)


def area_of(counts: Mapping[int, int], view: View) -> Area:
    """Return the starts in each column as an area."""
    peak = max(counts.values(), default=0)
    if not peak:
        return Area("", 0, "no starts")
    at = view.start + min(column for column in counts if counts[column] == peak) * view.width
    heights = [round(100 - 100 * counts.get(column, 0) / peak, 1) for column in range(view.columns)]
    path = "M0 100" + "".join(f"V{height:g}h1" for height in heights) + "V100z"
    width, peak_at = _length(view.width), rfc3339(at // 1000)
    words = f"peak: {peak:,} {'start' if peak == 1 else 'starts'} in {width} from {peak_at}"
    return Area(path, peak, words, width, peak_at)


def _length(milliseconds: int) -> str:
    return (
        span(milliseconds) if milliseconds >= MINUTE else f"{timedelta(milliseconds=milliseconds).seconds} s"
    )
