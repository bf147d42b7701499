"""The timeline of many schedules: a lane for each tag, drawn from counts, however many runs there are."""

from asyncio import gather
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kron.app.query import Query
from kron.core.plan.query import JobFilter, RunSpan, TagCount
from kron.core.plan.record import JobRecord, RunStatus
from kron.fronts.service.web.attention import (
    MAX_PROBLEMS,
    FleetProblem,
    dropped_problem,
    is_problem,
    problem_of,
)
from kron.fronts.service.web.schedule_lanes import EARLY_S, Shown, nominal_note
from kron.fronts.service.web.start_group import StartGroups, coming_starts, tags_of
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
    looks_of,
    summary_of,
    ticks_of,
)
from kron.fronts.service.web.view_models import LOOKS, OUTCOMES

# Runs in a view whose outcomes are all counted by tag; of more, those without success, and the load of all.
MAX_TALLIED = 75_000
# Failing schedules that are read to find the newest, and running executions.
MAX_FAILING, MAX_RUNNING = 2_000, 500
# Counts whose schedules are searched for a problem, and runs of each.
MAX_SEARCHED, RUNS_SEARCHED = 24, 100


async def tag_lanes(
    query: Query, groups: Awaitable[StartGroups], wanted: JobFilter, view: View, zoom: Zoom
) -> tuple[Shown, int]:
    """Return the picture of many schedules, and how many they are."""
    span = RunSpan(view.start, view.end, view.width, view.now)
    # None of them needs another, so the database reads them at the same time.
    fleet, past, found, running = await gather(
        groups,
        _past_of(query, wanted, span),
        query.job_page(wanted._replace(failing=True), after="", limit=MAX_FAILING),
        _running_of(query, wanted),
    )
    counts, made = past
    total = 0 if made is None else sum(made.values())
    failing = {each.job.identity: each.job for each in found[0]}
    problems, jobs = await _problems(query, wanted, counts, failing, view)

    def drawn() -> Shown:
        coming = coming_starts(fleet.groups, view)
        counted = CountedFleet(fleet.tags, counts, coming.by_tag(), running, made)
        notes = [
            *_part_note(total),
            *nominal_note(coming.nominal),
            *_left_out_note(fleet.left_out + coming.left_out),
            *_failing_note(len(failing), has_more=found[1]),
        ]
        return Shown(timeline_by_tag(counted, view, zoom), notes, {**failing, **jobs}, problems)

    return await query.compute(drawn), fleet.total


async def _past_of(
    query: Query, wanted: JobFilter, span: RunSpan
) -> tuple[list[TagCount], Mapping[int, int] | None]:
    """Return the runs by tag and outcome; of too many those without success, and how many all are."""
    if span.start > span.now:
        return [], None
    made = await query.count_made(JobFilter(), span)
    if sum(made.values()) <= MAX_TALLIED:
        return await query.tally(wanted, span), None
    counts = await query.tally(wanted, span, not_ok=True)
    return counts, made if wanted == JobFilter() else await query.count_made(wanted, span)


async def _running_of(query: Query, wanted: JobFilter) -> Mapping[str | None, list[int]]:
    """Return the starts of the newest running executions by first tag."""
    runs, _ = await query.latest(limit=MAX_RUNNING, status=RunStatus.STARTED)
    names = sorted({run.identity for run in runs})
    found = await query.jobs(wanted._replace(names=names), limit=len(names)) if names else []
    tags = {each.job.identity: next(iter(tags_of(each.job.profile)), None) for each in found}
    starts: defaultdict[str | None, list[int]] = defaultdict(list)
    for run in runs:
        if run.identity in tags and run.started_at is not None:
            starts[tags[run.identity]].append(run.started_at)
    return starts


async def _problems(
    query: Query, wanted: JobFilter, counts: Iterable[TagCount], failing: Mapping[str, JobRecord], view: View
) -> tuple[list[FleetProblem], dict[str, JobRecord]]:
    """Return the newest problems beside failing schedules: one of each tag and outcome in a column."""
    newest = sorted((each for each in counts if _is_problem(each)), key=lambda each: each.part, reverse=True)
    searched = {each.name: each for each in reversed(newest) if each.name not in failing}
    problems: list[FleetProblem] = []
    for each in sorted(searched.values(), key=lambda each: each.part, reverse=True)[:MAX_SEARCHED]:
        problem = await _problem(query, each, view)
        problems += [] if problem is None else [problem]
        if len(problems) == MAX_PROBLEMS:
            break
    names = [problem.identity for problem in problems]
    found = await query.jobs(wanted._replace(names=names), limit=len(names)) if names else []
    jobs = {each.job.identity: each.job for each in found}
    return [problem for problem in problems if problem.identity in jobs], jobs


def _is_problem(count: TagCount) -> bool:
    return SEVERITY[LOOKS[count.status][0]] >= PROBLEM


async def _problem(query: Query, count: TagCount, view: View) -> FleetProblem | None:
    """Return the newest problem that a count has counted of one schedule."""
    end = view.start + (count.part + 1) * view.width
    if count.is_dropped:
        look = LOOKS[count.status][0]
        ranges = [each for each in await query.ranges(count.name) if OUTCOMES[each.outcome][0] == look]
        begun = (each for each in ranges if 1000 * each.first < end and 1000 * each.first <= view.now)
        return next((dropped_problem(each, view.now) for each in begun), None)
    runs = await query.runs(count.name, before=end // 1000 + EARLY_S, limit=RUNS_SEARCHED)
    return next((problem_of(run) for run in runs if is_problem(run, view)), None)


def _part_note(runs: int) -> Iterable[str]:
    if runs:
        yield (
            f"{runs:,} runs are in view: the lanes show those without success and the coming starts, "
            "the load shows all."
        )


def _left_out_note(schedules: int) -> Iterable[str]:
    if schedules:
        words = "schedule is" if schedules == 1 else "schedules are"
        yield f"The coming starts of {schedules:,} {words} left out: choose a tag to see them."


def _failing_note(failing: int, *, has_more: bool) -> Iterable[str]:
    if failing > MAX_PROBLEMS or has_more:
        more = "at least " if has_more else ""
        yield f"{more}{failing:,} schedules are failing; the newest are listed below.".capitalize()


# --- drawing: nothing below reads a clock or a store ----------------------------------------------


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


def timeline_by_tag(fleet: CountedFleet, view: View, zoom: Zoom) -> FleetTimeline:
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
    counts, looks = looks_of(group.counts)
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
