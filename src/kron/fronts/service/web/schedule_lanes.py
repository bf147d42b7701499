"""The timeline of a few schedules, a lane for each: its runs, its windows and its coming starts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kron.app.budget import CpuBudget
from kron.app.query import Query
from kron.core.plan.compiled import compiled_job
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.query import FoundJob, JobFilter, RunSpan, TagCount
from kron.core.plan.record import JobRecord, RangeRecord, RunRecord
from kron.core.plan.step import JobState
from kron.fronts.service.web.attention import FleetProblem, dropped_problem, is_problem, problem_of
from kron.fronts.service.web.start_group import WINDOWS_S
from kron.fronts.service.web.timeline import (
    ComingStarts,
    Drawn,
    FleetTimeline,
    View,
    Zoom,
    coming_of,
    timeline_of,
    touches,
)
from kron.fronts.service.web.view_models import stopped_by

# Runs that are read for all lanes together.
MAX_RUNS = 5_000
# Runs that are counted for schedules that have more of them in the view.
MAX_COUNTED = 300_000
# A period may start this long before its nominal time, as far as a view or a problem is searched, in seconds.
EARLY_S = 3_600


class Shown(NamedTuple):
    """A picture, notes on what it leaves out, and what needs attention, with the schedules of both."""

    picture: FleetTimeline
    notes: list[str]
    jobs: Mapping[str, JobRecord]
    problems: list[FleetProblem]


async def schedule_lanes(query: Query, found: Sequence[FoundJob], view: View, zoom: Zoom) -> Shown:
    """Return the picture of a few schedules, a lane for each."""
    names = [each.job.identity for each in found]
    states = await query.states(names)
    limit = MAX_RUNS // max(1, len(names))
    before = None if view.end > view.now else view.end // 1000 + EARLY_S
    runs, cut = {}, []
    for name in names:
        runs[name] = await query.runs(name, before=before, limit=limit) if view.start <= view.now else []
        if len(runs[name]) == limit and view.has(runs[name][-1].fire_time):
            cut.append(name)
    dropped = {name: await query.ranges(name) for name in names}
    counted = await _counted(query, cut, view)
    cut = [name for name in cut if name not in counted]
    records = _Records([each.job for each in found], states, runs, dropped, view, counted)

    def drawn() -> Shown:
        schedules = records.drawn()
        nominal = sum(one.coming.is_nominal for one in schedules)
        whose = cut[0] if len(cut) == 1 else f"{len(cut)} schedules each"
        notes = [f"Drawn: the newest {limit:,} runs of {whose}."] if cut else []
        notes += nominal_note(nominal)
        return Shown(timeline_of(schedules, view, zoom), notes, records.jobs, list(records.problems()))

    return await query.compute(drawn)


async def _counted(query: Query, names: Sequence[str], view: View) -> dict[str, list[TagCount]]:
    """Return the runs of schedules with many in the view, by column; of too many none."""
    span = RunSpan(view.start, view.end, view.width, view.now)
    # The numbers of each are read from the runs of all.
    if not names or len(names) * sum((await query.count_made(JobFilter(), span)).values()) > MAX_COUNTED:
        return {}
    return {
        # Dropped periods are drawn from their records.
        name: [each for each in await query.tally(JobFilter(names=[name]), span) if not each.is_dropped]
        for name in names
    }


def nominal_note(nominal: int) -> list[str]:
    """Return the note on windows that are not decided."""
    words = "schedule" if nominal == 1 else "schedules"
    reason = "There are too many windows for one page"
    return (
        [f"{reason}: the starts of {nominal:,} {words} are drawn at their nominal times."] if nominal else []
    )


class _Records:
    """The records behind a picture."""

    def __init__(
        self,
        jobs: Sequence[JobRecord],
        states: Mapping[str, JobState],
        runs: Mapping[str, Sequence[RunRecord]],
        dropped: Mapping[str, Sequence[RangeRecord]],
        view: View,
        counted: Mapping[str, Sequence[TagCount]],
    ) -> None:
        self.jobs = {job.identity: job for job in jobs}
        self._states = states
        self._dropped = dropped
        self._view = view
        self._counted = counted
        self._runs = {name: {run.key: run for run in theirs} for name, theirs in runs.items()}
        for name, state in states.items():
            self._runs[name].update({run.key: run for run in state.runs})

    def drawn(self) -> list[Drawn]:
        """Return what to draw of each schedule."""
        budget = CpuBudget(WINDOWS_S)
        return [self._drawn(job, budget) for job in self.jobs.values()]

    def _drawn(self, job: JobRecord, budget: CpuBudget) -> Drawn:
        name = job.identity
        runs = list(self._runs[name].values())
        counted = self._counted.get(name, ())
        one = Drawn(name, runs, self._dropped.get(name, ()), stopped=stopped_by(job), counted=counted)
        try:
            state = self._states.get(name, JobState(job))
            coming = coming_of(state, self._view, is_spent=lambda: budget.is_spent)
            return one._replace(coming=coming, windows=_windows(job, [] if counted else runs, coming))
        except UNUSABLE:
            return one

    def problems(self) -> Iterable[FleetProblem]:
        """Yield the newest period of each schedule that did not run, or its newest manual run that failed."""
        for name in self.jobs:
            bad = [run for run in self._runs[name].values() if is_problem(run, self._view)]
            times = [problem_of(run) for run in bad]
            times += [
                dropped_problem(each, self._view.now)
                for each in self._dropped.get(name, ())
                if touches(each, self._view) and 1000 * each.first <= self._view.now
            ]
            if times:
                yield max(times, key=lambda each: (each.at, each.nominal_time))


def _windows(job: JobRecord, runs: Sequence[RunRecord], coming: ComingStarts) -> list[tuple[int, int]]:
    """Return the windows of past periods."""
    compiled = compiled_job(job.definition, job.identity)
    if compiled.early == compiled.late:
        return []
    ahead = {nominal_time for _, nominal_time in coming.listed}
    times = {run.nominal_time for run in runs} - ahead
    return [(1000 * (time + compiled.early), 1000 * (time + compiled.late)) for time in sorted(times)]
