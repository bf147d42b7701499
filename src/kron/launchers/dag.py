"""The launcher of DAG runs: a period of a workflow becomes a run of the runtime, found again by its key."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import ClassVar, NamedTuple

from kron.core.dag.plan import run_id_of, run_key_of
from kron.core.dag.record import RUN_ENDS, DagRunStatus
from kron.core.errors import KronError, StoreError
from kron.core.fields import FieldTable
from kron.core.plan.record import RunKind, RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.core.time.instant import rfc3339
from kron.dag_ports import DagRuns
from kron.launchers.fair_queue import FairTasks, Share
from kron.launchers.launch import Attempt, lease_is_lost, report_of, tenant_of
from kron.launchers.spec import LauncherContext, LauncherKind, TableSettings, launcher_table
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
# How often the runs in flight are checked for their end.
POLL = timedelta(milliseconds=500)
# How many starts, cancellations and ends are written at once, in all and of one user.
MOST, PER_TENANT = 8, 2
NOT_HERE = "it is for the setting executor: a schedule names workflow_id and version instead"
ENDS = {
    DagRunStatus.SUCCESS: RunEvent.SUCCESS,
    DagRunStatus.FAILED: RunEvent.FAILED,
    DagRunStatus.CANCELLED: RunEvent.CANCELLED,
}
# The states of a run whose end is reported; None of one that does not exist any more.
ENDED = frozenset({None, *RUN_ENDS})
GONE = "its DAG run does not exist any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class DagSettings(TableSettings):
    """Workflows are executed by Kron's DAG runtime; for the setting `executor` only."""

    kind: ClassVar[str] = "dag"
    table: ClassVar[FieldTable]


DagSettings.table = launcher_table(DagSettings)


def dag_run_id(launch: Launch) -> str:
    """Return the id of the DAG run of a launch, which its key determines."""
    assert launch.payload is not None, "an executor gets workflows only"
    dag_id, run = launch.payload.facts["workflow_id"], launch.run
    return run_id_of(run_key_of(dag_id, 1000 * run.nominal_time, _rerun_key(run)))


def _rerun_key(run: RunRecord) -> str | None:
    """Return what tells a manual run from the run of a period: every other one has its logical date alone."""
    return f"manual-{run.key[:16]}" if run.kind is RunKind.MANUAL else None


class Watcher(NamedTuple):
    """A run that waits for the end of a DAG run."""

    run: RunRecord
    sink: ReportSink
    tenant: str


class DagLauncher:
    """Starts a DAG run for each launch, and reports its end; the runs outlive this process.

    Users take turns: each start, cancellation and end of thousands at once is a write that others wait for.
    """

    traits = Traits(reports=True, idempotent=True, enqueues=True)

    def __init__(self, clock: Clock, runs: DagRuns) -> None:
        self._clock = clock
        self._runs = runs
        self._tasks = FairTasks(most=MOST, per_tenant=PER_TENANT, per_target=sys.maxsize, reserved=PER_TENANT)
        # How much work waits or is being done, and whether there is none.
        self._pending = 0
        self._idle = asyncio.Event()
        # Launches whose turn has not come.
        self._waiting: dict[Attempt, tuple[Launch, ReportSink]] = {}
        # Who is told the end of each run, by the keys of their runs; and the DAG run of each key.
        self._watched: dict[str, dict[str, Watcher]] = {}
        self._run_ids: dict[str, str] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Return whether runs are being started; those in flight need no worker of schedules."""
        return bool(self._pending)

    @property
    def waiting(self) -> int:
        """Return how many launches wait for their turn."""
        return len(self._waiting)

    def _do(self, work: Callable[[], Coroutine[None, None, None]], tenant: str) -> None:
        """Do work in the turn of its user."""
        self._pending += 1
        self._idle.clear()
        self._tasks.start(partial(self._counted, work), Share(tenant))

    async def _counted(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await work()
        finally:
            self._pending -= 1
            if not self._pending:
                self._idle.set()

    # --- starting --------------------------------------------------------------------------------

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Start a run in the turn of its user."""
        if launch.payload is not None:
            # The store has its DAG, and many launches may wait.
            launch = launch._replace(payload=launch.payload._replace(document=""))
        attempt = launch.run.key, launch.run.attempt
        self._waiting[attempt] = launch, sink
        self._do(partial(self._start, attempt), tenant_of(launch))

    async def _start(self, attempt: Attempt) -> None:
        if attempt not in self._waiting:
            # It was ended before its turn.
            return
        launch, sink = self._waiting.pop(attempt)
        try:
            with self._clock.working():
                run_id = await self._started(launch)
        except KronError as error:
            sink(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, str(error)))
            return
        sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=run_id))
        self._watch(run_id, launch, sink)

    async def _started(self, launch: Launch) -> str:
        """Start the run of a launch, or retry it, and return its id."""
        run = launch.run
        if lease_is_lost(launch) or launch.payload is None:
            raise KronError(NOT_HERE if launch.payload is None else "the lease was lost before the start")
        facts = launch.payload.facts
        started = await self._runs.start_run(
            dag_id=facts["workflow_id"],
            version=int(facts["version"]),
            trigger="scheduled" if run.kind is not RunKind.MANUAL else "manual",
            logical_date=rfc3339(run.nominal_time),
            input={},
            rerun_key=_rerun_key(run),
        )
        if run.attempt > 1 and not started.created:
            await self._runs.retry(started.run_id)
        return started.run_id

    # --- ending ----------------------------------------------------------------------------------

    def end(self, run: RunRecord) -> None:
        """Cancel the run of a launch; its end is reported when its tasks have ended."""
        waiting = self._waiting.pop((run.key, run.attempt), None)
        if waiting is not None:
            error = "ended on request before it started"
            waiting[1](report_of(self._clock, run, RunEvent.CANCELLED, error))
        run_id = self._run_ids.get(run.key)
        if run_id is not None:
            self._do(partial(self._cancel, run_id), self._watched[run_id][run.key].tenant)

    async def _cancel(self, run_id: str) -> None:
        try:
            await self._runs.cancel(run_id)
        except KronError as error:
            _log.warning("the DAG run %s cannot be cancelled: %s", run_id, error)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Watch the runs again that exist under the keys of launches; a run that ended is reported."""
        adopted, ids = set(), {}
        for launch in runs:
            attempt = launch.run.key, launch.run.attempt
            if attempt in self._waiting:
                waiting = self._waiting[attempt][0]._replace(lease_status=launch.lease_status)
                self._waiting[attempt] = waiting, sink
                adopted.add(launch.run.key)
            elif launch.payload is not None or launch.run.run_id is not None:
                ids[launch.run.key] = launch.run.run_id or dag_run_id(launch)
        known = await self._runs.statuses(list(ids.values())) if ids else {}
        for launch in runs:
            if ids.get(launch.run.key) in known:
                self._watch(ids[launch.run.key], launch, sink)
                adopted.add(launch.run.key)
        return frozenset(adopted)

    # --- watching --------------------------------------------------------------------------------

    def _watch(self, run_id: str, launch: Launch, sink: ReportSink) -> None:
        self._watched.setdefault(run_id, {})[launch.run.key] = Watcher(launch.run, sink, tenant_of(launch))
        self._run_ids[launch.run.key] = run_id
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._poll(), name="kron dag runs")

    async def _poll(self) -> None:
        while self._watched:
            watched = list(self._watched)
            try:
                statuses = await self._runs.statuses(watched)
            except StoreError as error:
                _log.warning("DAG runs cannot be checked: %s", error)
            else:
                self._note_ends([(run_id, statuses.get(run_id)) for run_id in watched])
            if self._watched:
                await self._clock.sleep_until(self._clock.now() + POLL)

    def _note_ends(self, statuses: Iterable[tuple[str, DagRunStatus | None]]) -> None:
        """Report the runs that have ended or do not exist any more."""
        for run_id, status in statuses:
            watchers = self._watched.pop(run_id, {}) if status in ENDED else {}
            for key in watchers:
                del self._run_ids[key]
            if watchers:
                tenant = next(iter(watchers.values())).tenant
                self._do(partial(self._report, run_id, status, list(watchers.values())), tenant)

    async def _report(self, run_id: str, status: DagRunStatus | None, watchers: Iterable["Watcher"]) -> None:
        event = RunEvent.ORPHANED if status is None else ENDS[status]
        error = GONE if status is None else None
        if status is DagRunStatus.FAILED:
            try:
                error = await self._runs.error_of(run_id)
            except KronError as failure:
                error = f"why it failed cannot be read: {failure}"
        for watcher in watchers:
            watcher.sink(report_of(self._clock, watcher.run, event, error, run_id))

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the starts, and leave the runs to the next worker."""
        if not wait:
            self._tasks.cancel()
            self._waiting.clear()
        elif self._pending:
            await self._idle.wait()
        self._watched.clear()
        self._run_ids.clear()
        if self._watching is not None:
            self._watching.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class DagOptions:
    """The runtime that executes DAGs; without one the launcher cannot be used."""

    runs: DagRuns | None = None


def _build(_: str, context: LauncherContext) -> DagLauncher | None:
    runs = context.config.get(DagOptions).runs
    return None if runs is None else DagLauncher(context.clock, runs)


DAG = LauncherKind(
    name=DagSettings.kind,
    read=DagSettings.read,
    schema=DagSettings.schema(),
    traits={DagSettings.kind: DagLauncher.traits},
    build=_build,
)
