"""The viewer: the one place that every page asks for what it shows.

Pages ask nothing else, so that whoever is to decide who may see what has one door to guard.
"""

import asyncio

from kron.core.errors import StoreError
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.query import FoundJob, JobFilter, RunCursor
from kron.core.plan.record import RunStatus
from kron.fronts.service.documents import schedule_view
from kron.fronts.service.errors import UnknownScheduleError
from kron.fronts.service.registrar import NAMESPACE, Registrar, check_name
from kron.fronts.service.runs import latest_page, runs_page
from kron.fronts.service.web.time_text import UTC_ZONE
from kron.fronts.service.web.view_models import (
    Detail,
    HistoryRow,
    Overview,
    PeriodPage,
    Row,
    coming_of,
    damaged_row,
    dropped_entry,
    notes_of,
    open_entry,
    row_of,
    run_entry,
    said_of,
    story_of,
    zone_of_job,
)
from kron.runtime import why as inquiry

# How many of each a page shows.
SCHEDULES, RUNS, STRIP = 50, 50, 16
# What the filter of the overview says, and which schedules that means.
STATES = {
    "": JobFilter(),
    "active": JobFilter(paused=False),
    "paused": JobFilter(paused=True),
    "failing": JobFilter(failing=True),
}


class Pages:
    """Answers what pages ask."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._store = registrar.store

    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return self._registrar.now()

    async def overview(self, *, search: str = "", state: str = "", after: str = "") -> Overview:
        """Return a page of schedules, each with its last outcomes: three questions in all."""
        if "\0" in search:
            return Overview([], None)
        wanted = STATES[state]._replace(search=search or None)
        found = await self._store.find_jobs(NAMESPACE, wanted, after=after, limit=SCHEDULES + 1)
        more, found = len(found) > SCHEDULES, found[:SCHEDULES]
        names = [one.job.identity for one in found]
        cases = {case.job.identity: case.runs for case in await self._store.cases(NAMESPACE, names)}
        newest = await self._store.newest_runs(NAMESPACE, names, limit=STRIP)
        now = self.now()

        def row(one: FoundJob) -> Row:
            name = one.job.identity
            try:
                return row_of(one, list(cases.get(name, ())), newest.get(name, []), now)
            except UNUSABLE as fault:
                return damaged_row(one.job, str(fault))

        def rows() -> list[Row]:
            return [row(one) for one in found]

        return Overview(await asyncio.to_thread(rows), names[-1] if more else None)

    async def schedule(self, name: str, place: tuple[int, int] | None = None) -> Detail:
        """Return one schedule with its history, also one that was deleted."""
        found = await self._find(name)
        (case,) = await self._store.cases(NAMESPACE, [name])
        newest = await self._store.newest_runs(NAMESPACE, [name], limit=STRIP)
        page = await runs_page(self._registrar, name, limit=RUNS, place=place)
        ranges = await self._store.ranges(NAMESPACE, name)
        now = self.now()

        def detail() -> Detail:
            zone = zone_of_job(found.job)
            fields = schedule_view(found, now=now)
            row = row_of(found, list(case.runs), newest.get(name, []), now)
            entries = [run_entry(run, zone, now) for run in page.runs]
            entries += [dropped_entry(one, zone, now) for one in page.dropped]
            return Detail(
                row,
                said_of(fields),
                fields,
                found.job.deleted_at is not None,
                coming_of(found.job, now),
                notes_of(found.job, now),
                [open_entry(run, zone, now) for run in case.runs],
                sorted(entries, key=lambda entry: entry.at, reverse=True),
                sum(one.periods for one in ranges),
                len(ranges),
                page.following,
            )

        try:
            return await asyncio.to_thread(detail)
        except UNUSABLE as fault:
            raise StoreError(f"What is remembered of the schedule cannot be read: {fault}") from fault

    async def runs(
        self, *, status: RunStatus | None = None, before: RunCursor | None = None
    ) -> tuple[list[HistoryRow], RunCursor | None]:
        """Return the latest runs of all schedules, and where the next page begins."""
        found, following = await latest_page(self._registrar, limit=RUNS, status=status, before=before)
        now = self.now()
        return [run_entry(run, UTC_ZONE, now) for run in found], following

    async def period(self, name: str, at: str) -> PeriodPage:
        """Return the chain of facts behind a period, or behind a wall time that is none."""
        found = await self._find(name)
        now = self.now()
        answer = await inquiry.why(self._store, NAMESPACE, name, at, now=now)
        run = None
        if answer.nominal_time is not None:
            memory = await inquiry.recall_job(self._store, NAMESPACE, name)
            run = (await inquiry.recall_period(self._store, NAMESPACE, memory, answer.nominal_time)).run
        return await asyncio.to_thread(story_of, found.job, answer, run, now)

    async def _find(self, name: str) -> FoundJob:
        check_name(name)
        wanted = JobFilter(names=[name], deleted=True)
        found = await self._store.find_jobs(NAMESPACE, wanted, limit=1)
        if not found:
            raise UnknownScheduleError(schedule_id=name)
        return found[0]
