"""The launcher of DAG runs: a period of a workflow becomes a run of the runtime, found again by its key."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from kron.core.dag.plan import run_id_of, run_key_of
from kron.core.dag.record import RUN_ENDS, DagRun, DagRunStatus
from kron.core.errors import KronError, StoreError
from kron.core.fields import FieldTable
from kron.core.plan.record import RunKind, RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.core.time.instant import rfc3339
from kron.dag_ports import DagRuns
from kron.launchers.launch import lease_is_lost, report_of
from kron.launchers.spec import LauncherContext, LauncherKind, TableSettings, launcher_table
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
# How often the runs in flight are checked for their end.
POLL = timedelta(milliseconds=500)
NOT_HERE = "it is for the setting executor: a schedule names workflow_id and version instead"
ENDS = {
    DagRunStatus.SUCCESS: RunEvent.SUCCESS,
    DagRunStatus.FAILED: RunEvent.FAILED,
    DagRunStatus.CANCELLED: RunEvent.CANCELLED,
}


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


class DagLauncher:
    """Starts a DAG run for each launch, and reports its end; the runs outlive this process."""

    traits = Traits(reports=True, idempotent=True, enqueues=True)

    def __init__(self, clock: Clock, runs: DagRuns) -> None:
        self._clock = clock
        self._runs = runs
        self._starting: set[asyncio.Task[None]] = set()
        self._watched: dict[str, list[tuple[Launch, ReportSink]]] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Return whether runs are being started; those in flight need no worker of schedules."""
        return bool(self._starting)

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Start a run in a new task."""
        self._spawn(self._start(launch, sink))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, launch: Launch, sink: ReportSink) -> None:
        run = launch.run
        try:
            if lease_is_lost(launch) or launch.payload is None:
                raise KronError(NOT_HERE if launch.payload is None else "the lease was lost before the start")
            facts = launch.payload.facts
            with self._clock.working():
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
        except KronError as error:
            sink(report_of(self._clock, run, RunEvent.LAUNCH_FAILED, str(error)))
            return
        sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=started.run_id))
        self._watch(started.run_id, launch, sink)

    def end(self, run: RunRecord) -> None:
        """Cancel the run of a launch; its end is reported when its tasks have ended."""
        for run_id, launches in self._watched.items():
            if any(launch.run.key == run.key for launch, _ in launches):
                self._spawn(self._cancel(run_id))

    async def _cancel(self, run_id: str) -> None:
        try:
            await self._runs.cancel(run_id)
        except KronError as error:
            _log.warning("the DAG run %s cannot be cancelled: %s", run_id, error)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Watch the runs again that exist under the keys of launches; a run that ended is reported."""
        adopted = set()
        for launch in runs:
            if launch.payload is None and launch.run.run_id is None:
                continue
            run_id = launch.run.run_id or dag_run_id(launch)
            if await self._runs.find(run_id) is not None:
                self._watch(run_id, launch, sink)
                adopted.add(launch.run.key)
        return frozenset(adopted)

    def _watch(self, run_id: str, launch: Launch, sink: ReportSink) -> None:
        others = [each for each in self._watched.get(run_id, []) if each[0].run.key != launch.run.key]
        self._watched[run_id] = [*others, (launch, sink)]
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._poll(), name="kron dag runs")

    async def _poll(self) -> None:
        while self._watched:
            try:
                for run_id in list(self._watched):
                    await self._check(run_id)
            except StoreError as error:
                _log.warning("DAG runs cannot be checked: %s", error)
            if self._watched:
                await self._clock.sleep_until(self._clock.now() + POLL)

    async def _check(self, run_id: str) -> None:
        run = await self._runs.find(run_id)
        if run is not None and run.status not in RUN_ENDS:
            return
        event = RunEvent.ORPHANED if run is None else ENDS[run.status]
        error = await self._error_of(run)
        for launch, sink in self._watched.pop(run_id, []):
            sink(report_of(self._clock, launch.run, event, error, run_id))

    async def _error_of(self, run: DagRun | None) -> str | None:
        if run is None:
            return "its DAG run does not exist any more"
        return await self._runs.error_of(run.run_id) if run.status is DagRunStatus.FAILED else None

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the starts, and leave the runs to the next worker."""
        if self._starting:
            await asyncio.wait(set(self._starting))
        self._watched.clear()
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
