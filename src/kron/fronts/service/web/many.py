"""The counts of many schedules: what their lanes, their load and their problems are drawn from."""

from asyncio import gather
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping

from kron.app.query import Query
from kron.core.plan.query import JobFilter, RunSpan, TagCount
from kron.core.plan.record import JobRecord, RunStatus
from kron.fronts.service.web.attention import MAX_PROBLEMS, Problem
from kron.fronts.service.web.crowd import CountedFleet, crowd_of
from kron.fronts.service.web.few import Shown, dropped_problem, is_problem, nominal_note, problem_of
from kron.fronts.service.web.starter import Starters, coming_starts, tags_of
from kron.fronts.service.web.timeline import PROBLEM, SEVERITY, View, Zoom
from kron.fronts.service.web.view_models import LOOKS, OUTCOMES

# Runs in a view whose outcomes are all counted by tag; of more, those without success, and the load of all.
MAX_TALLIED = 75_000
# Failing schedules that are read to find the newest, and running executions.
MAX_FAILING, MAX_RUNNING = 2_000, 500
# Counts whose schedules are searched for a problem, and runs of each.
MAX_SEARCHED, RUNS_SEARCHED = 24, 100
# A period may start this long before its nominal time, as far as a problem is searched, in seconds.
EARLY_S = 3_600


async def many_of(
    query: Query, starters: Awaitable[Starters], wanted: JobFilter, view: View, zoom: Zoom
) -> tuple[Shown, int]:
    """Return the picture of many schedules, and how many they are."""
    span = RunSpan(view.start, view.end, view.width, view.now)
    is_past = view.start <= view.now
    # None of them needs another, so the database reads them at the same time.
    fleet, made, found, running = await gather(
        starters,
        query.count_made(JobFilter(), span),
        query.jobs(wanted._replace(failing=True), limit=MAX_FAILING),
        _running(query, wanted),
    )
    is_part = sum(made.values()) > MAX_TALLIED
    counts = await query.tally(wanted, span, not_ok=is_part) if is_past else []
    if is_part and wanted.tag is not None:
        made = await query.count_made(wanted, span)
    failing = {each.job.identity: each.job for each in found}
    problems, jobs = await _problems(query, wanted, counts, failing, view)

    def drawn() -> Shown:
        coming = coming_starts(fleet.starters, view)
        counted = CountedFleet(fleet.tags, counts, coming.by_tag(), running, made if is_part else None)
        notes = [
            *_part_note(sum(made.values()) if is_part else 0),
            *nominal_note(coming.nominal),
            *_left_out_note(fleet.left_out + coming.left_out),
            *_failing_note(len(failing)),
        ]
        return Shown(crowd_of(counted, view, zoom), notes, {**failing, **jobs}, problems)

    return await query.compute(drawn), fleet.total


async def _running(query: Query, wanted: JobFilter) -> Mapping[str | None, list[int]]:
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
) -> tuple[list[Problem], dict[str, JobRecord]]:
    """Return the newest problems beside failing schedules: one of each tag and outcome in a column."""
    newest = sorted((each for each in counts if _is_problem(each)), key=lambda each: each.part, reverse=True)
    searched = {each.name: each for each in reversed(newest) if each.name not in failing}
    problems: list[Problem] = []
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


async def _problem(query: Query, count: TagCount, view: View) -> Problem | None:
    """Return the newest problem that a count has counted of one schedule."""
    end = view.start + (count.part + 1) * view.width
    if count.is_dropped:
        look = LOOKS[count.status][0]
        ranges = [each for each in await query.ranges(count.name) if OUTCOMES[each.outcome][0] == look]
        return next((dropped_problem(each) for each in ranges if 1000 * each.first < end), None)
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


def _failing_note(failing: int) -> Iterable[str]:
    if failing > MAX_PROBLEMS:
        more = "at least " if failing == MAX_FAILING else ""
        yield f"{more}{failing:,} schedules are failing; the newest are listed below.".capitalize()
