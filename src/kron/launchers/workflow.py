"""Executions that are workflows: the DAG JSON is loaded and handed to an executor (SPEC 3: 12)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from kron.core.errors import InputError, InvalidOptionError, StoreError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent
from kron.core.time.instant import rfc3339
from kron.core.workflow import MAX_VERSION, NAME, WorkflowRecord
from kron.launchers.backoff import Backoff, pause
from kron.launchers.callback import Callback
from kron.launchers.report import report_of
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import CallbackSettings, Settings, WorkflowSettings, launcher_text_of, settings_of
from kron.ports import Clock, Launch, Launcher, Payload, ReportSink, WorkflowStore

_log = logging.getLogger("kron.launchers")
Attempt: TypeAlias = tuple[str, int]
# What a program registers under a name: it is called with a DAG and the run's meta data.
Function: TypeAlias = Callable[[Mapping[str, object], Mapping[str, object]], Awaitable[object]]
# How a store that fails is asked again before a launch is given up.
STORE_BACKOFF = Backoff(tries=4, first=timedelta(milliseconds=200), most=timedelta(seconds=5))
# How much of what was loaded is remembered, in bytes; a version never changes.
MAX_REMEMBERED = 16 << 20


class UnknownWorkflowError(InputError):
    """A version of a workflow is asked for that does not exist."""

    code = "unknown_workflow"

    def __init__(self, *, workflow_id: str, version: int | None = None) -> None:
        which = f'workflow "{workflow_id}"' if version is None else f'version {version} of "{workflow_id}"'
        super().__init__(f"There is no {which}", workflow_id=workflow_id, version=version)


class NoExecutorError(InputError):
    """Workflows are to be started where nobody runs them."""

    code = "no_executor"

    def __init__(self) -> None:
        super().__init__("Nobody runs workflows here: the setting executor names none")


async def find_workflow(workflows: WorkflowStore, workflow_id: str, version: int) -> WorkflowRecord:
    """Return a version of a workflow, or raise UnknownWorkflowError, also for names that none can have."""
    possible = NAME.fullmatch(workflow_id) and 0 <= version <= MAX_VERSION
    record = await workflows.get(workflow_id, version) if possible else None
    if record is None:
        raise UnknownWorkflowError(workflow_id=workflow_id, version=version)
    return record


class WorkflowLauncher:
    """Starts workflows by another launcher, the executor's, which gets the DAG and the run's meta data.

    With `own_only`, a workflow that belongs to somebody else than the schedule does not exist for it.
    """

    def __init__(
        self,
        clock: Clock,
        workflows: WorkflowStore,
        executor: Settings | None,
        inner: Launcher,
        *,
        own_only: bool = False,
    ) -> None:
        self.traits = inner.traits
        self.inner = inner
        self._clock = clock
        self._workflows = workflows
        self._executor = "{}" if executor is None else launcher_text_of(executor)
        self._has_executor = executor is not None
        self._loading: dict[Attempt, tuple[asyncio.Task[None], Launch, ReportSink]] = {}
        self._own_only = own_only
        # The DAGs that were loaded, each with whose it is.
        self._known: dict[tuple[str, int], tuple[str, str]] = {}

    @property
    def busy(self) -> bool:
        """Say whether executions are under way."""
        return bool(self._loading) or self.inner.busy

    @property
    def remembered(self) -> int:
        """Return how many bytes of DAGs are remembered."""
        return sum(len(dag) for dag, _ in self._known.values())

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Load the DAG and hand it over, in a task of its own."""
        before = self._loading.get((launch.run.key, launch.run.attempt))
        if before is not None:
            before[0].cancel()
        task = asyncio.create_task(self._load(launch), name=f"kron {launch.job.identity}")
        self._loading[launch.run.key, launch.run.attempt] = task, launch, hear

    async def _load(self, launch: Launch) -> None:
        try:
            ready = await self.ready(launch)
        except (InputError, StoreError) as error:
            self._refuse(launch, str(error))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the engine hears of it
            _log.exception("the launch of %r failed unexpectedly", launch.run.identity)
            self._refuse(launch, f"the launch failed unexpectedly: {type(error).__name__}")
        else:
            found = self._loading.pop((launch.run.key, launch.run.attempt), None)
            if found is not None:
                # Whoever adopted it meanwhile has a lease of its own.
                self.inner.start(ready._replace(lease_status=found[1].lease_status), found[2])

    def _refuse(self, launch: Launch, error: str, happened: RunEvent = RunEvent.LAUNCH_FAILED) -> None:
        found = self._loading.pop((launch.run.key, launch.run.attempt), None)
        if found is not None:
            found[2](report_of(self._clock, launch.run, happened, error))

    async def ready(self, launch: Launch) -> Launch:
        """Return a launch as the executor gets it; a store that fails is asked again."""
        settings = settings_of(launch.job.launcher)
        if not isinstance(settings, WorkflowSettings):
            raise InvalidOptionError(
                option="launcher", value=launch.job.launcher_kind, reason="is no workflow"
            )
        if not self._has_executor:
            raise NoExecutorError
        failed = 0
        while True:  # `wait_of` bounds it
            try:
                with self._clock.working():
                    dag = await self._dag_of(settings)
                break
            except StoreError:
                failed += 1
                wait_s = STORE_BACKOFF.wait_of(launch.run.key, failed)
                if wait_s is None:
                    raise
                await pause(self._clock, wait_s)
        return self._handed(launch)._replace(payload=given_of(launch.run, settings, dag))

    async def _dag_of(self, settings: WorkflowSettings) -> str:
        name = settings.workflow_id, settings.version
        if name not in self._known:
            record = await find_workflow(self._workflows, *name)
            if self.remembered + len(record.dag) > MAX_REMEMBERED:
                self._known.clear()
            self._known[name] = record.dag, record.user_id
        dag, owner = self._known[name]
        if self._own_only and owner != settings.user_id:
            raise UnknownWorkflowError(workflow_id=settings.workflow_id, version=settings.version)
        return dag

    def _handed(self, launch: Launch) -> Launch:
        return launch._replace(job=launch.job._replace(launcher=self._executor))

    def end(self, run: RunRecord) -> None:
        """Give up a start that has not begun, or ask the executor's launcher to end it."""
        found = self._loading.get((run.key, run.attempt))
        if found is None:
            self.inner.end(run)
            return
        found[0].cancel()
        self._refuse(found[1], "ended on request before it began", RunEvent.CANCELLED)

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Go on with what is being loaded here, and find the rest where the executor's launcher does."""
        mine = set()
        for launch in runs:
            attempt = launch.run.key, launch.run.attempt
            if attempt in self._loading:
                self._loading[attempt] = self._loading[attempt][0], launch, hear
                mine.add(launch.run.key)
        rest = [self._handed(launch) for launch in runs if launch.run.key not in mine]
        return frozenset(mine) | await self.inner.adopt(rest, hear)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for what runs, or let it go."""
        while self._loading:
            tasks = [task for task, _, _ in self._loading.values()]
            if not wait:
                self._loading.clear()
                for task in tasks:
                    task.cancel()
            await asyncio.wait(tasks)
        await self.inner.close(wait=wait)


def given_of(run: RunRecord, settings: WorkflowSettings, dag: str) -> Payload:
    """Return what an executor gets: the DAG as it was deployed, and the run's meta data (SPEC 3: 12)."""
    meta: dict[str, object] = {
        "source": "schedule",
        "user_id": settings.user_id,
        "scheduled_for": rfc3339(run.nominal_time),
        "idempotency_key": run.key,
        "workflow_id": settings.workflow_id,
        "version": settings.version,
        "schedule_id": run.identity,
        "attempt": run.attempt,
        "fencing_token": run.token,
    }
    # The DAG is text already, and may be long.
    document = f'{{"dag":{dag},"meta":{json.dumps(meta)}}}'
    return Payload(document, {name: str(value) for name, value in meta.items()})


def picker_of(
    functions: Mapping[str, Function], *, secret: bytes | None = None
) -> Callable[[Launch], Callback | None]:
    """Return what picks the function an executor names, and calls it with DAG and meta data.

    With a `secret` the meta data has the token that is good for reporting on the run.
    """

    def pick(launch: Launch) -> Callback | None:
        settings = settings_of(launch.job.launcher)
        name = settings.name if isinstance(settings, CallbackSettings) else None
        function = functions.get(name or "")
        return None if function is None else lambda launched: _call(function, launched, secret)

    return pick


async def _call(function: Function, launch: Launch, secret: bytes | None) -> None:
    assert launch.payload is not None, "an executor is only handed workflows"
    document = json.loads(launch.payload.document)
    token = {} if secret is None else {"run_token": run_token_of(secret, launch.run.key)}
    await function(document["dag"], document["meta"] | token)
