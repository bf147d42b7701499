"""Runs of DAGs as the current caller may see and change them, with an audit record of every change."""

from collections.abc import Mapping, Sequence

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.trigger import CatchupTriggerRequest, SchedulerTriggerService
from kron.core.dag.contract import DagError, StartRunResult
from kron.core.dag.plan import UNFINISHED
from kron.core.dag.record import DagRun, DagState, DagSummary
from kron.dag_ports import DagStore
from kron.fronts.service.auth.audit import dag_entry
from kron.fronts.service.auth.principal import current_caller
from kron.fronts.service.registrar import NAMESPACE, Registrar

# The most slots of one request; a longer range is caught up in several, each of which can be repeated.
MAX_SLOTS = 1_000
# How many keys of runs, and names of tasks, one audit record lists.
MAX_LISTED = 100


class TenantDags:
    """Runs of DAGs of the caller's tenants; those of other tenants do not exist."""

    def __init__(self, store: DagStore, registrar: Registrar) -> None:
        self.store = store
        self._registrar = registrar

    @property
    def orchestrator(self) -> RunOrchestrator:
        """Return an orchestrator with the definitions of the caller's tenants; it caches none for others."""
        registrar = self._registrar
        most = None if current_caller().users is None else registrar.rules.max_open_runs or None
        return RunOrchestrator(self.store, registrar.workflows, registrar.clock, max_open=most)

    # --- reading -------------------------------------------------------------------------------------

    async def run(self, run_id: str) -> DagRun:
        """Return a run, or raise DagError."""
        run = await self.store.run(run_id)
        if run is None or not current_caller().sees(run.user_id):
            raise DagError(
                "DAG_RUN_NOT_FOUND", "There is no such run", category="not_found", context={"run_id": run_id}
            )
        return run

    async def state(self, run_id: str) -> DagState:
        """Return a run with its tasks, or raise DagError."""
        await self.run(run_id)
        return await self.orchestrator.state(run_id)

    async def page(self, dag_id: str, status: str | None, cursor: str | None, limit: int) -> list[DagRun]:
        """Return the runs of a DAG, latest first, after one of them."""
        await self.orchestrator.definition(dag_id)
        before = None if cursor is None else await self.run(cursor)
        return await self.store.runs(dag_id=dag_id, status=status, before=before, limit=limit)

    async def summaries(self, *, after: str, limit: int) -> list[DagSummary]:
        """Return the caller's DAGs by name, with the number of their runs in each state."""
        names = await self._registrar.workflows.names(after=after, limit=limit)
        return [await self.store.summary(name) for name in names]

    # --- changes -------------------------------------------------------------------------------------

    async def start(
        self,
        dag_id: str,
        *,
        logical_date: str,
        version: int | None = None,
        input: Mapping[str, object] | None = None,  # noqa: A002 (the name of the field)
        rerun_key: str | None = None,
    ) -> StartRunResult:
        """Start the run of a logical date, or return the one that has its key."""
        started = await self.orchestrator.start_run(
            dag_id=dag_id, version=version, logical_date=logical_date, input=input, rerun_key=rerun_key
        )
        await self._note_starts("trigger", [started])
        return started

    async def catch_up(self, request: CatchupTriggerRequest) -> list[StartRunResult]:
        """Start a run for each slot of a range that has none."""
        started: list[StartRunResult] = []
        try:
            result = await SchedulerTriggerService(self.orchestrator).trigger_catchup(request)
            started = list(result.started_runs)
        except DagError as error:
            started = [run for run in error.started_runs if isinstance(run, StartRunResult)]
            raise
        finally:
            await self._note_starts("catchup", started)
        return started

    async def cancel(self, run_id: str) -> None:
        """Cancel a run; one that has ended stays as it is."""
        before = await self.run(run_id)
        after = await self.orchestrator.cancel(run_id)
        if (before.status, before.cancel) != (after.status, after.cancel):
            await self._note("cancel", after, {"run_key": after.run_key})

    async def retry(self, run_id: str, tasks: Sequence[str] = ()) -> None:
        """Run tasks again with all that depend on them; without any, those that failed."""
        state = await self.state(run_id)
        if tasks:
            after = await self.orchestrator.clear(run_id, tasks)
        else:
            after = await self.orchestrator.retry(run_id)
        names = tasks or [name for name, task in state.tasks.items() if task.status in UNFINISHED]
        if names:
            await self._note("retry", after, {"run_key": after.run_key, "tasks": list(names[:MAX_LISTED])})

    async def pause(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG, or resume it."""
        record = await self.orchestrator.definition(dag_id)
        was_paused = dag_id in await self.store.paused()
        await self.store.set_paused(dag_id, paused=paused)
        if paused != was_paused:
            entry = dag_entry(
                "pause" if paused else "resume",
                dag_id,
                record.user_id,
                {"paused": paused},
                now=self._registrar.now(),
                before={"paused": was_paused},
            )
            await self._registrar.store.note(NAMESPACE, entry)

    async def _note_starts(self, action: str, started: Sequence[StartRunResult]) -> None:
        created = [run for run in started if run.created]
        if created:
            keys = [run.run_key for run in created[:MAX_LISTED]]
            run = await self.run(created[0].run_id)
            await self._note(action, run, {"runs": len(created), "run_keys": keys})

    async def _note(self, action: str, run: DagRun, after: Mapping[str, object]) -> None:
        entry = dag_entry(action, run.dag_id, run.user_id, after, now=self._registrar.now())
        await self._registrar.store.note(NAMESPACE, entry)
