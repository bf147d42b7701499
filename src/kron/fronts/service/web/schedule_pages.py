"""What the pages of schedules, runs and periods show, queried from the records.

Every query goes through the registrar's tenant store, so that a page shows the caller's tenants only.
"""

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import inf
from typing import NamedTuple

from kron.app.budget import CpuBudget
from kron.app.query import PageStart
from kron.core.errors import InputError, InvalidOptionError, StoreError, UnknownRunError
from kron.core.fields import parse_instant
from kron.core.job.policy import POLICY
from kron.core.plan.compiled import compiled_job
from kron.core.plan.counterfactual import what_if
from kron.core.plan.next_start import next_start, phase_of_job
from kron.core.plan.pause import BY_HAND
from kron.core.plan.period_history import definition_at
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.query import AuditFilter, FoundJob, JobFilter, RunCursor
from kron.core.plan.record import JobRecord, RunRecord, RunStatus, present_definition
from kron.core.plan.step import JobState
from kron.fronts.service.auth.principal import UNRESTRICTED
from kron.fronts.service.client import LocalClient
from kron.fronts.service.documents import schedule_view
from kron.fronts.service.registrar import Registrar, unknown_as_schedule
from kron.fronts.service.responses import RunView
from kron.fronts.service.runs import OutputRequest
from kron.fronts.service.url import place_of
from kron.fronts.service.web.charts import (
    AttemptsChart,
    PolicyRow,
    Proof,
    Trend,
    WindowChart,
    YearMap,
    attempts_chart,
    midnights_of,
    policy_of,
    proof_of,
    trend_of,
    window_of,
    year_of,
)
from kron.fronts.service.web.output import OutputPage, output_page
from kron.fronts.service.web.time_text import UTC_ZONE
from kron.fronts.service.web.view_models import (
    Detail,
    HistoryRow,
    Overview,
    PeriodPage,
    Row,
    RunDetails,
    coming_of,
    damaged_row,
    definition_of,
    dropped_entry,
    notes_of,
    open_entry,
    period_page,
    row_of,
    run_entry,
    run_page,
    uncomputed_row,
    with_counterfactual,
    zone_of_job,
)

# How many of each a page shows.
SCHEDULES, RUNS, STRIP = 50, 50, 30
# Runs that are searched at once for a status, and searches for one page; the open runs have an index.
SEARCHED, SEARCHES = 1_000, 4
OFTEN_FEW = frozenset({RunStatus.PENDING, RunStatus.STARTED})
# How many schedules are sorted by other than their names: all that match are read.
MAX_SORTED = 2_000
# Of more, by duration those with one of as many newest runs are sorted; by next start those with a period
# within the longest of these times with few enough, in hours.
SORTED_WITHIN = {744: "a month", 168: "a week", 24: "a day", 6: "six hours", 1: "an hour"}
# How many of the newest runs of a schedule are searched for the last that ended, to sort by its duration.
NEWEST_ENDED = 3
# How many of the newest runs the charts of a schedule show.
MAX_CHARTED = 1_000
# How many audit records are searched for the caller who paused a schedule.
MAX_AUDITS = 50
# The processor time of a page's rows, in seconds; beyond it rows say so.
PAGE_S, TOO_COSTLY = 0.5, "its next start takes too long to compute for this list: open its page"


class ScheduleCharts(NamedTuple):
    """The charts of a schedule, and its effective policy."""

    year: YearMap
    trend: Trend | None
    policy: list[PolicyRow]


class PeriodCharts(NamedTuple):
    """The window of a period, the certificate of its decision, and the attempts of its run."""

    window: WindowChart | None
    proof: Proof
    attempts: AttemptsChart | None


class SortKey(StrEnum):
    """The order of the list of schedules, other than by name."""

    NEXT = "next"
    FAILURES = "failures"
    DURATION = "duration"


def _first_in_order(wanted: JobFilter, order: SortKey, now: int) -> Iterator[tuple[JobFilter, str]]:
    """Yield filters of the schedules that are first in an order, without the rest, the widest first."""
    if order is SortKey.FAILURES and wanted.failing is None:
        yield wanted._replace(failing=True), "that are failing"
    if order is SortKey.NEXT and not wanted.paused and not wanted.suspended:
        active = wanted._replace(paused=False, suspended=False)
        for hours, words in SORTED_WITHIN.items():
            yield active._replace(due_by=now + hours * 3_600_000), f"with a period within {words}"


class Pages:
    """Queries the values that pages show."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar
        self._query = registrar.catalog.query
        self.max_sorted = MAX_SORTED
        self.searched = SEARCHED

    def now(self) -> int:
        """Return the current instant in milliseconds."""
        return self._registrar.now()

    async def clock_problem(self) -> str | None:
        """Return the problem of a worker's clock, now or within the last hour."""
        return await self._query.clock_problem()

    async def overview(self, wanted: JobFilter, *, after: str = "") -> Overview:
        """Return a page of schedules by name."""
        total = await self._query.count(wanted)
        jobs = await self._query.jobs(wanted, after=after, limit=SCHEDULES + 1)
        more, jobs = len(jobs) > SCHEDULES, jobs[:SCHEDULES]
        return Overview(await self._rows(jobs), jobs[-1].job.identity if more else None, total)

    async def sortable(self, wanted: JobFilter, order: SortKey) -> tuple[JobFilter, str | None] | None:
        """Return which of the matching schedules can be sorted, and a note if not all; None if none can."""
        total = await self._query.count(wanted)
        if total <= self.max_sorted:
            return wanted, None
        if order is SortKey.DURATION:
            firsts = await self._with_newest_runs(wanted)
        else:
            firsts = list(_first_in_order(wanted, order, self.now()))
        for first, words in firsts:
            count = await self._query.count(first)
            if 0 < count <= self.max_sorted:
                noun = "schedule" if count == 1 else "schedules"
                return first, f"Sorted: the {count:,} {noun} {words}, of {total:,} that match."
        return None

    async def _with_newest_runs(self, wanted: JobFilter) -> list[tuple[JobFilter, str]]:
        """Return those of the matching schedules that have one of the newest runs."""
        if wanted.names is not None:
            return []
        runs, _ = await self._query.latest(limit=self.max_sorted)
        names = sorted({run.identity for run in runs})
        return [(wanted._replace(names=names), f"with one of the newest {len(runs):,} runs")]

    async def sorted_overview(self, wanted: JobFilter, order: SortKey, shown: int) -> Overview:
        """Return a page of sorted schedules, after those that were shown."""
        jobs, has_more = await self._query.job_page(wanted, after="", limit=self.max_sorted)
        note = f"Sorted: the first {len(jobs):,} schedules by name; more have too long definitions."
        ranked = await self._ranked(jobs, order)
        page = ranked[shown : shown + SCHEDULES]
        after = shown + SCHEDULES if len(ranked) > shown + SCHEDULES else None
        return Overview(await self._rows(page), after, len(jobs), note if has_more else None)

    async def _ranked(self, jobs: Sequence[FoundJob], order: SortKey) -> list[FoundJob]:
        if order is SortKey.NEXT:
            return await self._by_next_start(jobs)
        if order is SortKey.FAILURES:
            return sorted(jobs, key=_by_failures)
        newest = await self._query.newest_runs([found.job.identity for found in jobs], limit=NEWEST_ENDED)
        longest = {name: next(filter(None, map(_took_of, runs)), 0) for name, runs in newest.items()}
        return sorted(jobs, key=lambda found: (-longest.get(found.job.identity, 0), found.job.identity))

    async def _by_next_start(self, jobs: Sequence[FoundJob]) -> list[FoundJob]:
        """Return jobs by their next start; those without one, or too costly to compute, are last."""
        states = await self._query.states([found.job.identity for found in jobs])
        now = self.now()

        def start_of(job: JobRecord, budget: CpuBudget) -> float:
            if budget.is_spent:
                return inf
            try:
                start = next_start(states.get(job.identity, JobState(job)), now, self._registrar.traits)
            except UNUSABLE:
                return inf
            return inf if start.start_at is None else start.start_at

        def ranked() -> list[FoundJob]:
            budget = CpuBudget(PAGE_S)
            return sorted(jobs, key=lambda found: (start_of(found.job, budget), found.job.identity))

        return await self._registrar.compute_pool.run(ranked)

    async def _rows(self, jobs: Sequence[FoundJob]) -> list[Row]:
        """Return the rows of some schedules, each with its last outcomes, in two queries."""
        names = [one.job.identity for one in jobs]
        states = await self._query.states(names)
        newest = await self._query.newest_runs(names, limit=STRIP)
        now = self.now()

        def row(one: FoundJob, budget: CpuBudget) -> Row:
            name = one.job.identity
            if budget.is_spent:
                return uncomputed_row(one.job, TOO_COSTLY)
            try:
                state = states.get(name, JobState(one.job))
                following = next_start(state, now, self._registrar.traits)
                return row_of(one, state, following, newest.get(name, []), now)
            except UNUSABLE as fault:
                return damaged_row(one.job, str(fault))

        def rows() -> list[Row]:
            budget = CpuBudget(PAGE_S)
            return [row(one, budget) for one in jobs]

        return await self._registrar.compute_pool.run(rows)

    async def schedule(
        self, name: str, place: tuple[int, int] | None = None, status: RunStatus | None = None
    ) -> Detail:
        """Return a schedule with its history, or its runs with a status; deleted or not."""
        listed = await self._find(name)
        state = await self._query.state(name, deleted=True)
        newest = await self._query.newest_runs([name], limit=STRIP)
        start = None if place is None else PageStart(*place)
        runs = await self._query.run_page(name, limit=RUNS, start=start, status=status)
        ranges = await self._query.ranges(name)
        paused_by = await self._pauser_of(listed.job)
        now = self.now()

        def detail() -> Detail:
            zone = zone_of_job(listed.job)
            following = next_start(state, now, self._registrar.traits)
            fields = schedule_view(listed, following, phase_of_job(state, now, following))
            row = row_of(listed, state, following, newest.get(name, []), now)
            entries = [run_entry(run, zone, now) for run in runs.runs]
            entries += [dropped_entry(one, zone, now) for one in runs.dropped]
            return Detail(
                row,
                *definition_of(fields),
                fields,
                listed.job.deleted_at is not None,
                coming_of(state, now),
                notes_of(listed.job, now),
                [open_entry(run, zone, now) for run in state.runs],
                sorted(entries, key=lambda entry: entry.at, reverse=True),
                sum(one.periods for one in ranges),
                len(ranges),
                runs.following,
                paused_by,
            )

        try:
            return await self._registrar.compute_pool.run(detail)
        except UNUSABLE as fault:
            raise StoreError(f'The record of schedule "{name}" cannot be read: {fault}') from fault

    async def charts(self, name: str) -> ScheduleCharts | None:
        """Return the charts of a schedule; None for an unreadable record."""
        job = (await self._find(name)).job
        zone = zone_of_job(job)
        runs = await self._query.runs(name, limit=MAX_CHARTED)
        ranges, now, rules = await self._query.ranges(name), self.now(), self._registrar.rules
        counts = await self._query.run_counts(name, bounds=midnights_of(zone, now))
        defaults = {
            field: POLICY[field].type.parse(value)
            for field, value in (("overlap", rules.overlap_policy), ("catchup", rules.catchup_policy))
        }

        def charts() -> ScheduleCharts:
            own = compiled_job(job.definition, job.identity).for_job(job.identity)
            year = year_of(counts, ranges, zone, now)
            return ScheduleCharts(
                year, trend_of(runs), policy_of(own, {**defaults, "jitter_ms": rules.jitter_ms})
            )

        try:
            return await self._registrar.compute_pool.run(charts)
        except UNUSABLE:
            return None

    async def period_charts(self, name: str, period_id: str | None) -> PeriodCharts | None:
        """Return the window and the certificate of a period, by the definition that was in force."""
        if period_id is None:
            return None
        time = parse_instant(period_id)
        history = await self._query.period_history(name, time)
        definition = (definition_at(history, time) or present_definition(history.job)).definition

        run, now = history.run, self.now()
        attempts = None if run is None else attempts_chart(run, history.attempts, now)

        def charts() -> PeriodCharts:
            job = compiled_job(definition, name).for_job(name)
            return PeriodCharts(window_of(job, time), proof_of(job, time), attempts)

        try:
            return await self._registrar.compute_pool.run(charts)
        except (InputError, *UNUSABLE):
            return None

    async def runs(
        self, *, status: RunStatus | None = None, before: RunCursor | None = None
    ) -> tuple[list[HistoryRow], RunCursor | None]:
        """Return the latest runs of all schedules, and the cursor of the next page."""
        if status is None or status in OFTEN_FEW:
            runs, following = await self._query.latest(limit=RUNS, status=status, before=before)
        else:
            runs, following = await self._searched(status, before)
        now = self.now()
        # Those recorded together are in the order of their periods.
        ordered = sorted(runs, key=lambda run: (run.created_at, run.nominal_time), reverse=True)
        return [run_entry(run, UTC_ZONE, now) for run in ordered], following

    async def _searched(
        self, status: RunStatus, before: RunCursor | None
    ) -> tuple[list[RunRecord], RunCursor | None]:
        """Return the runs with a status among the newest ones, and where the next search starts."""
        found: list[RunRecord] = []
        following = before
        for _ in range(SEARCHES):
            runs, following = await self._query.latest(limit=self.searched, before=following)
            found += [run for run in runs if run.status is status]
            if len(found) > RUNS:
                last = found[RUNS - 1]
                return found[:RUNS], RunCursor(last.created_at, last.key)
            if following is None:
                break
        return found, following

    async def period(self, name: str, at: str, changes: Sequence[str] = ()) -> PeriodPage:
        """Return the explanation of a period, or of a wall time that is no period.

        `changes` of its definition are answered with what they would have done.
        """
        listed = await self._find(name)
        now = self.now()
        explanation = await self._query.why(name, at)
        run = None
        if explanation.nominal_time is not None:
            run = (await self._query.period_history(name, explanation.nominal_time)).run
        page = await self._registrar.compute_pool.run(period_page, listed.job, explanation, run, now)
        if not changes:
            return page
        other = await self._query.what_if(explanation, what_if(changes), self._registrar.traits)
        return with_counterfactual(page, other, listed.job, now)

    async def output(
        self, client: LocalClient, run: RunView, attempt: int | None, find: str
    ) -> OutputPage | None:
        """Return the output of a run's process; None where none has started."""
        wanted = OutputRequest(run["run_at"], run["idempotency_key"], attempt)
        try:
            document = await client.logs(run["schedule_id"], wanted)
        except InvalidOptionError:
            return None
        # The id of a process has its start time; other executions keep their output in their own systems.
        if document["note"] is not None and ":" not in (run["run_id"] or ""):
            return None
        return await self._registrar.compute_pool.run(output_page, document, find)

    async def run(self, key: str) -> tuple[RunDetails, AttemptsChart | None]:
        """Return a run with its data interval, its earlier attempts and the chart of all of them."""
        found = await self._query.run(key)
        if found is None:
            raise UnknownRunError(idempotency_key=key)
        run, attempts = found
        listed = await self._find(run.identity)
        (interval,) = await self._query.data_intervals(run.identity, [run])
        page = run_page(listed.job, run, attempts, interval, self.now())
        return page, attempts_chart(run, attempts, self.now())

    async def timezone(self, name: str) -> str:
        """Return the name of a schedule's time zone."""
        return zone_of_job((await self._find(name)).job).key

    async def _find(self, name: str) -> FoundJob:
        with unknown_as_schedule():
            return await self._query.find(name, deleted=True)

    async def _pauser_of(self, job: JobRecord) -> str | None:
        """Return the authenticated caller who paused a schedule, from the audit log, or None."""
        if not job.paused or job.paused_because not in (None, BY_HAND):
            return None
        wanted = AuditFilter(identity=job.identity)
        for audited in await self._query.audits(wanted, limit=MAX_AUDITS):
            if _is_paused(audited.record.after) and not _is_paused(audited.record.before):
                who = audited.record.who
                return None if who == UNRESTRICTED.name else who
        return None


def _by_failures(found: FoundJob) -> tuple[int, int, str]:
    """Sort the schedule with the most failures in a row first, and the latest failure before others."""
    return -found.job.failures, -(found.job.last_failure_at or 0), found.job.identity


def _took_of(run: RunRecord) -> int:
    """Return how long an ended execution took, in milliseconds; 0 for other runs."""
    return 0 if run.ended_at is None or run.started_at is None else max(0, run.ended_at - run.started_at)


def _is_paused(state: str | None) -> bool:
    return state is not None and json.loads(state).get("paused") is True


async def listed_schedules(
    pages: Pages, wanted: JobFilter, sort: SortKey | None, cursor: str | None
) -> tuple[Overview, bool]:
    """Return a page of schedules, and whether too many match to sort them: they are then listed by name."""
    if sort and (found := await pages.sortable(wanted, sort)):
        shown = 0 if cursor is None else int(place_of(cursor, int)[0])
        first, note = found
        listed = await pages.sorted_overview(first, sort, min(max(shown, 0), pages.max_sorted))
        return listed._replace(note=listed.note or note), False
    after = "" if cursor is None else str(place_of(cursor, str)[0])
    return await pages.overview(wanted, after=after), bool(sort)
