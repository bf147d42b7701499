"""The page of the present: the timeline of the fleet, what needs attention, and the health of the service."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from kron.app.budget import CpuBudget
from kron.core.job.profile import profile_fields_of
from kron.core.plan.compiled import compiled_job
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.query import FoundJob, JobFilter, RunCursor
from kron.core.plan.record import JobRecord, RangeRecord, RunKind, RunRecord, RunStatus
from kron.core.plan.step import JobState
from kron.core.time.instant import rfc3339
from kron.fronts.service.auth.principal import current_caller
from kron.fronts.service.client import LocalClient
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.web.fleet import FleetPage, fleet_of
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of
from kron.fronts.service.web.timeline import (
    MAX_LANES,
    PROBLEM,
    SEVERITY,
    ComingStarts,
    Drawn,
    FleetTimeline,
    View,
    Zoom,
    coming_of,
    look_of,
    timeline_of,
    view_of,
)
from kron.fronts.service.web.view_models import OUTCOMES, zone_of_job
from kron.fronts.service.web.workers import lease_health
from kron.ports import Clock

# Schedules that are drawn, how many of a larger fleet, and past runs that are read, in pages.
PART_OF_FLEET = 3_000
MAX_FLEET, MAX_RUNS, RUNS_PAGE = 10_000, 5_000, 1_000
# A run is recorded at most this long before it starts, as far as the timeline looks for it.
RECORDED_MS = 3_600_000
# Processor time for the decisions of windows, in seconds.
WINDOWS_S = 0.15
# Profiles whose tags are remembered.
MAX_PROFILES = 4_096
# How many problems are listed.
MAX_PROBLEMS = 8
# How many of a failing schedule's newest runs are searched for the one that failed.
NEWEST = 5
# Viewers of one tenant share a picture that is this young, in seconds; this many pictures are kept.
SHARED_S, MAX_SHARED = 4.0, 64

T = TypeVar("T")


class Shared(Generic[T]):
    """Answers that several viewers share for a moment: the first one computes, the others wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Future[T]]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return a young answer, or make one; the key must hold everything that it depends on."""
        now = self._clock.monotonic()
        at, answer = self._answers.get(key, (0.0, None))
        if answer is None or now - at >= SHARED_S or (answer.done() and answer.exception()):
            answer = asyncio.ensure_future(make())
            self._answers[key] = now, answer
            self._answers.move_to_end(key)
            if len(self._answers) > MAX_SHARED:
                self._answers.popitem(last=False)
        return await asyncio.shield(answer)

    def forget(self, key: Hashable) -> None:
        """Make the next answer anew."""
        self._answers.pop(key, None)


class Attention(NamedTuple):
    """A schedule that needs attention: when and why, in one sentence, and what would change it."""

    name: str
    at: PageTime
    look: str
    sentence: str = ""
    remedy: str | None = None
    period_id: str | None = None
    key: str | None = None
    is_paused: bool = False


class HealthItem(NamedTuple):
    """One part of the service: its name, its look and its state."""

    name: str
    look: str
    text: str


class NowPage(NamedTuple):
    """The page: its picture, problems and health; `notes` say what the picture leaves out."""

    timeline: FleetTimeline
    zoom: Zoom
    start: PageTime
    end: PageTime
    earlier: str
    later: str
    total: int
    notes: list[str]
    problems: list[Attention]
    health: list[HealthItem]


class _Problem(NamedTuple):
    at: int
    identity: str
    nominal_time: int
    look: str
    # The key and the error of a manual run, which belongs to no period.
    manual: tuple[str, str] | None = None


class NowPages:
    """Reads what the page of the present shows."""

    def __init__(self, registrar: Registrar, client: LocalClient) -> None:
        self._registrar = registrar
        self._client = client
        self._query = registrar.catalog.query
        self._shared: Shared[NowPage] = Shared(registrar.clock)
        self._fleets: Shared[FleetPage] = Shared(registrar.clock)

    async def page(self, zoom: Zoom, middle: int | None, tag: str | None) -> NowPage:
        """Return the page around an instant, or around now."""
        key = current_caller().users, zoom, middle, tag
        return await self._shared.get(key, lambda: self._page(zoom, middle, tag))

    async def _page(self, zoom: Zoom, middle: int | None, tag: str | None) -> NowPage:
        now = self._registrar.now()
        view = view_of(zoom, now if middle is None else middle, now)
        began = self._registrar.clock.monotonic()
        total = await self._query.count(JobFilter(tag=tag))
        answered_s = self._registrar.clock.monotonic() - began
        jobs = await self._query.jobs(JobFilter(tag=tag), limit=_drawn_of(total))
        runs, is_whole = await self._runs(view)
        states = await self._query.states([found.job.identity for found in jobs])
        dropped = {}
        if len(jobs) <= MAX_LANES:
            dropped = {found.job.identity: await self._query.ranges(found.job.identity) for found in jobs}
        fleet = _Fleet(jobs, states, runs, dropped, view)
        drawn, nominal = await self._client.aside.run(fleet.drawn)
        picture = await self._client.aside.run(timeline_of, drawn, view, zoom)
        notes = list(_notes(len(jobs), total, nominal, runs if not is_whole else None))
        return NowPage(
            picture,
            zoom,
            moment_of(view.start, UTC_ZONE, now),
            moment_of(view.end, UTC_ZONE, now),
            rfc3339(view.start // 1000),
            rfc3339(view.end // 1000),
            total,
            notes,
            await self._problems(fleet, now),
            await self._health(answered_s),
        )

    async def fleet(self) -> FleetPage:
        """Return the coming load of the caller's schedules."""
        return await self._fleets.get(current_caller().users, self._fleet)

    def forget_fleet(self) -> None:
        """Compute the load anew: schedules were changed here."""
        self._fleets.forget(current_caller().users)

    async def _fleet(self) -> FleetPage:
        total = await self._query.count(JobFilter())
        jobs = await self._query.jobs(JobFilter(), limit=_drawn_of(total))
        states = [JobState(found.job) for found in jobs]

        def load() -> FleetPage:
            budget = CpuBudget(WINDOWS_S)
            page = fleet_of(states, self._registrar.now(), is_spent=lambda: budget.is_spent)
            return page._replace(total=total)

        return await self._client.aside.run(load)

    async def _runs(self, view: View) -> tuple[list[RunRecord], bool]:
        """Return the newest runs of a view, and whether these are all."""
        runs: list[RunRecord] = []
        if view.start > view.now:
            return runs, True
        before: RunCursor | None = RunCursor(min(view.end, view.now) + 1, "")
        while before is not None and len(runs) < MAX_RUNS:
            page, before = await self._query.latest(limit=RUNS_PAGE, before=before)
            runs += page
            if page and page[-1].created_at < view.start - RECORDED_MS:
                return runs, True
        return runs, before is None

    async def _problems(self, fleet: "_Fleet", now: int) -> list[Attention]:
        """Return the schedules with a problem, the newest first, each explained by its records."""
        failing = sorted(fleet.failing, key=lambda job: job.last_failure_at or 0, reverse=True)[:MAX_PROBLEMS]
        newest = await self._query.newest_runs([job.identity for job in failing], limit=NEWEST)
        failed = [
            _Problem(run.ended_at or run.fire_time, run.identity, run.nominal_time, "bad", _manual(run))
            for runs in newest.values()
            for run in [run for run in runs if run.status is RunStatus.FAILED][:1]
        ]
        known = {problem.identity for problem in failed}
        others = [problem for problem in fleet.problems() if problem.identity not in known]
        shown = sorted([*failed, *others], key=lambda each: each[:3], reverse=True)[:MAX_PROBLEMS]
        return [await self._explained(fleet, problem, now) for problem in shown]

    async def _explained(self, fleet: "_Fleet", problem: _Problem, now: int) -> Attention:
        job = fleet.jobs[problem.identity]
        at = moment_of(problem.at, zone_of_job(job), now)
        known = Attention(problem.identity, at, problem.look, is_paused=bool(job.paused))
        if problem.manual is not None:
            key, error = problem.manual
            return known._replace(key=key, sentence=f"a manual run failed: {error}")
        period_id = rfc3339(problem.nominal_time)
        explanation = await self._query.why(problem.identity, period_id)
        return known._replace(sentence=explanation.headline, remedy=explanation.remedy, period_id=period_id)

    async def _health(self, answered_s: float) -> list[HealthItem]:
        ready, clock = await self._client.health(), await self._query.clock_problem()
        worker, is_ok = ready["worker"], ready["status"] == "ok"
        return [
            HealthItem("Store", "ok", f"answered in {max(1, round(1000 * answered_s))} ms"),
            HealthItem("Worker", "ok" if is_ok else "bad", worker or "in another process"),
            HealthItem("Leases", *lease_health(await self._query.leases())),
            HealthItem("Clock", "ok" if clock is None else "bad", clock or "steady"),
        ]


def _drawn_of(total: int) -> int:
    """Return how many schedules are drawn: all, or where these are too many, as many as are quick to draw."""
    return MAX_FLEET if total <= MAX_FLEET else PART_OF_FLEET


def _manual(run: RunRecord) -> tuple[str, str] | None:
    return (run.key, run.error or run.reason.sentence) if run.kind is RunKind.MANUAL else None


@lru_cache(maxsize=MAX_PROFILES)
def tags_of(profile: str | None) -> tuple[str, ...]:
    """Return the tags of a schedule."""
    tags = profile_fields_of(profile)["tags"]
    return tuple(map(str, tags)) if isinstance(tags, (list, tuple)) else ()


class _Fleet:
    """The records behind a picture."""

    def __init__(
        self,
        jobs: Sequence[FoundJob],
        states: dict[str, JobState],
        runs: Iterable[RunRecord],
        dropped: dict[str, list[RangeRecord]],
        view: View,
    ) -> None:
        self.jobs = {found.job.identity: found.job for found in jobs}
        self._states = states
        self._dropped = dropped
        self._view = view
        self._runs: defaultdict[str, dict[str, RunRecord]] = defaultdict(dict)
        for run in runs:
            self._runs[run.identity][run.key] = run
        for name, state in states.items():
            self._runs[name].update({run.key: run for run in state.runs})

    @property
    def failing(self) -> list[JobRecord]:
        """Return the jobs whose last execution failed."""
        return [job for job in self.jobs.values() if job.failures]

    def drawn(self) -> tuple[list[Drawn], int]:
        """Return what to draw of each schedule, and of how many the windows are not decided."""
        budget = CpuBudget(WINDOWS_S)
        drawn = [self._drawn(job, budget) for job in self.jobs.values()]
        return drawn, sum(one.coming.is_nominal for one in drawn)

    def _drawn(self, job: JobRecord, budget: CpuBudget) -> Drawn:
        name = job.identity
        runs = list(self._runs[name].values())
        one = Drawn(name, tags_of(job.profile), runs, self._dropped.get(name, ()))
        try:
            state = self._states.get(name, JobState(job))
            is_small = len(self.jobs) <= MAX_LANES
            coming = coming_of(state, self._view, listed=is_small, is_spent=lambda: budget.is_spent)
            return one._replace(coming=coming, windows=_windows(job, runs, coming))
        except UNUSABLE:
            return one

    def problems(self) -> Iterable[_Problem]:
        """Yield the newest period of each schedule that did not run, or its newest manual run that failed."""
        for name in self.jobs:
            bad = [run for run in self._runs[name].values() if self._is_problem(run)]
            times = [
                _Problem(run.fire_time, name, run.nominal_time, look_of(run), _manual(run)) for run in bad
            ]
            times += [
                _Problem(1000 * each.last, name, each.last, OUTCOMES[each.outcome][0])
                for each in self._dropped.get(name, ())
                if 1000 * each.last >= self._view.start
            ]
            if times:
                yield max(times, key=lambda each: each[:3])

    def _is_problem(self, run: RunRecord) -> bool:
        look = look_of(run)
        # The failed periods of failing schedules are known; a manual run does not make a schedule failing.
        is_new = look != "bad" or run.kind is RunKind.MANUAL
        # A period without an allowed time is recorded before its nominal time.
        is_new = is_new and run.fire_time <= self._view.now
        return SEVERITY[look] >= PROBLEM and is_new and self._view.has(run.fire_time)


def _windows(job: JobRecord, runs: Sequence[RunRecord], coming: ComingStarts) -> list[tuple[int, int]]:
    """Return the windows of past periods."""
    compiled = compiled_job(job.definition, job.identity)
    if compiled.early == compiled.late:
        return []
    ahead = {nominal_time for _, nominal_time in coming.listed}
    times = {run.nominal_time for run in runs} - ahead
    return [(1000 * (time + compiled.early), 1000 * (time + compiled.late)) for time in sorted(times)]


def _notes(drawn: int, total: int, nominal: int, runs: Sequence[RunRecord] | None) -> Iterable[str]:
    if total > drawn:
        yield f"Drawn: the first {drawn:,} of {total:,} schedules by name. Choose a tag to see others."
    if nominal:
        words = "schedule has" if nominal == 1 else "schedules have"
        yield f"{nominal:,} {words} too many windows: their starts are drawn at their nominal times."
    if runs:
        yield f"Drawn: the newest {len(runs):,} runs, since {rfc3339(runs[-1].created_at // 1000)}."
