"""The workflow launcher: loads the DAG JSON of a run and hands it to an executor (SPEC 3: 12)."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, TypeAlias

from kron.core.errors import InputError, StoreError
from kron.core.fields import FieldTable, row
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, Payload, RunEvent, Traits
from kron.core.time.instant import rfc3339
from kron.core.value_types import MAX_VERSION, NAME_TEXT, VERSION
from kron.core.workflow import NAME, WorkflowRecord
from kron.dag_ports import WorkflowStore
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.callback import Callback, CallbackSettings
from kron.launchers.launch import Attempt, report_of
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import (
    LauncherContext,
    LauncherKind,
    LauncherSettings,
    TableSettings,
    launcher_table,
    launcher_text_of,
    settings_parser,
)
from kron.ports import Clock, Launcher, ReportSink

_log = logging.getLogger("kron.launchers")
# A function that a program registers as an executor: it is called with a DAG and the run's metadata.
Function: TypeAlias = Callable[[Mapping[str, object], Mapping[str, object]], Awaitable[object]]
# Retries of a failing store before a launch fails.
STORE_BACKOFF = Backoff(
    max_attempts=4, first_delay=timedelta(milliseconds=200), max_delay=timedelta(seconds=5)
)
# How many bytes of DAGs are cached; a version never changes.
MAX_CACHED = 16 << 20


class UnknownWorkflowError(InputError):
    """A workflow, or a version of it, does not exist."""

    code = "unknown_workflow"

    def __init__(self, *, workflow_id: str, version: int | None = None) -> None:
        which = f'workflow "{workflow_id}"' if version is None else f'version {version} of "{workflow_id}"'
        super().__init__(f"There is no {which}", workflow_id=workflow_id, version=version)


class NoExecutorError(InputError):
    """A workflow is to be started, and no executor is configured."""

    code = "no_executor"

    def __init__(self) -> None:
        super().__init__("No executor is configured for workflows: set executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSettings(TableSettings):
    """The job is a workflow: its DAG is loaded and handed to the worker's executor."""

    kind: ClassVar[str] = "workflow"
    table: ClassVar[FieldTable]

    workflow_id: str = field(metadata=row(NAME_TEXT, "the workflow"))
    version: int = field(metadata=row(VERSION, "its version"))
    user_id: str = field(metadata=row(NAME_TEXT, "the user it runs for"))


WorkflowSettings.table = launcher_table(WorkflowSettings, required=("workflow_id", "version", "user_id"))
_settings_of = settings_parser(WorkflowSettings)
_executor_of = settings_parser(CallbackSettings)


async def find_workflow(workflows: WorkflowStore, workflow_id: str, version: int) -> WorkflowRecord:
    """Return a version of a workflow, or raise UnknownWorkflowError, also for invalid names."""
    is_valid = NAME.fullmatch(workflow_id) and 0 <= version <= MAX_VERSION
    record = await workflows.get(workflow_id, version) if is_valid else None
    if record is None:
        raise UnknownWorkflowError(workflow_id=workflow_id, version=version)
    return record


class WorkflowLauncher:
    """Starts workflows with another launcher, the executor's, which gets the DAG and the run's metadata.

    With `own_only` a schedule can start only workflows of its own user; others do not exist for it.
    """

    def __init__(
        self,
        clock: Clock,
        workflows: WorkflowStore,
        executor: LauncherSettings | None,
        inner: Launcher,
        *,
        own_only: bool,
    ) -> None:
        self.traits = inner.traits
        self.inner = inner
        self._clock = clock
        self._workflows = workflows
        self._executor = "{}" if executor is None else launcher_text_of(executor)
        self._has_executor = executor is not None
        self._loading: dict[Attempt, tuple[asyncio.Task[None], Launch, ReportSink]] = {}
        self._own_only = own_only
        # Loaded DAGs, each with its owner.
        self._cache: dict[tuple[str, int], tuple[str, str]] = {}

    @property
    def busy(self) -> bool:
        """Return whether runs are in flight."""
        return bool(self._loading) or self.inner.busy

    @property
    def cached_bytes(self) -> int:
        """Return the size of the cached DAGs."""
        return sum(len(dag) for dag, _ in self._cache.values())

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Load the DAG and start the executor, in a new task."""
        before = self._loading.get((launch.run.key, launch.run.attempt))
        if before is not None:
            before[0].cancel()
        task = asyncio.create_task(self._load(launch), name=f"kron {launch.job.identity}")
        self._loading[launch.run.key, launch.run.attempt] = task, launch, sink

    async def _load(self, launch: Launch) -> None:
        try:
            ready = await self.ready(launch)
        except (InputError, StoreError) as error:
            self._refuse(launch, str(error))
        except Exception as error:  # noqa: BLE001 - every error is reported to the engine
            _log.exception("the launch of %r failed unexpectedly", launch.run.identity)
            self._refuse(launch, f"the launch failed unexpectedly: {type(error).__name__}")
        else:
            loaded = self._loading.pop((launch.run.key, launch.run.attempt), None)
            if loaded is not None:
                # It may have been adopted during the load, with another lease.
                self.inner.start(ready._replace(lease_status=loaded[1].lease_status), loaded[2])

    def _refuse(self, launch: Launch, error: str, event: RunEvent = RunEvent.LAUNCH_FAILED) -> None:
        loading = self._loading.pop((launch.run.key, launch.run.attempt), None)
        if loading is not None:
            loading[2](report_of(self._clock, launch.run, event, error))

    async def ready(self, launch: Launch) -> Launch:
        """Return a launch as the executor gets it; reads of a failing store are retried."""
        settings = _settings_of(launch.job.launcher)
        if not self._has_executor:
            raise NoExecutorError
        failures = 0
        while True:  # `delay_after` bounds it
            try:
                with self._clock.working():
                    dag = await self._dag_of(settings)
                break
            except StoreError:
                failures += 1
                delay_s = STORE_BACKOFF.delay_after(launch.run.key, failures)
                if delay_s is None:
                    raise
                await sleep_for(self._clock, delay_s)
        return self._for_executor(launch)._replace(payload=payload_of(launch, settings, dag))

    async def _dag_of(self, settings: WorkflowSettings) -> str:
        name = settings.workflow_id, settings.version
        if name not in self._cache:
            record = await find_workflow(self._workflows, *name)
            if self.cached_bytes + len(record.dag) > MAX_CACHED:
                self._cache.clear()
            self._cache[name] = record.dag, record.user_id
        dag, owner = self._cache[name]
        if self._own_only and owner != settings.user_id:
            raise UnknownWorkflowError(workflow_id=settings.workflow_id, version=settings.version)
        return dag

    def _for_executor(self, launch: Launch) -> Launch:
        return launch._replace(job=launch.job._replace(launcher=self._executor))

    def end(self, run: RunRecord) -> None:
        """Abandon a start whose DAG is being loaded, or end the executor's run."""
        loading = self._loading.get((run.key, run.attempt))
        if loading is None:
            self.inner.end(run)
            return
        loading[0].cancel()
        self._refuse(loading[1], "ended on request before it started", RunEvent.CANCELLED)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Resume the loads of this launcher, and adopt the rest with the executor's."""
        mine = set()
        for launch in runs:
            attempt = launch.run.key, launch.run.attempt
            if attempt in self._loading:
                self._loading[attempt] = self._loading[attempt][0], launch, sink
                mine.add(launch.run.key)
        rest = [self._for_executor(launch) for launch in runs if launch.run.key not in mine]
        return frozenset(mine) | await self.inner.adopt(rest, sink)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for running executions, or abandon them."""
        while self._loading:
            tasks = [task for task, _, _ in self._loading.values()]
            if not wait:
                self._loading.clear()
                for task in tasks:
                    task.cancel()
            await asyncio.wait(tasks)
        await self.inner.close(wait=wait)


def payload_of(launch: Launch, settings: WorkflowSettings, dag: str) -> Payload:
    """Return the input of an executor: the DAG as it was deployed, and the run's metadata (SPEC 3: 12)."""
    run = launch.run
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
        **launch.data_interval.to_dict(),
    }
    # The DAG is text already, and may be long.
    document = f'{{"dag":{dag},"meta":{json.dumps(meta)}}}'
    return Payload(document, {name: str(value) for name, value in meta.items()})


def picker_of(
    functions: Mapping[str, Function], *, secret: bytes | None = None
) -> Callable[[Launch], Callback | None]:
    """Return the choice of the function that the executor names; it is called with DAG and metadata.

    With a `secret` the metadata has the run's token, for reporting on it.
    """

    def pick(launch: Launch) -> Callback | None:
        function = functions.get(_executor_of(launch.job.launcher).name or "")
        return None if function is None else lambda launched: _call(function, launched, secret)

    return pick


async def _call(function: Function, launch: Launch, secret: bytes | None) -> None:
    assert launch.payload is not None, "an executor gets workflows only"
    document = json.loads(launch.payload.document)
    token = {} if secret is None else {"run_token": run_token_of(secret, launch.run.key)}
    await function(document["dag"], document["meta"] | token)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowOptions:
    """The store of workflows, the executor's settings and launcher, and whether users are separated."""

    workflows: WorkflowStore | None = None
    executor: LauncherSettings | None = None
    inner: Launcher | None = None
    own_only: bool = False


def _build(_: str, context: LauncherContext) -> WorkflowLauncher | None:
    options = context.config.get(WorkflowOptions)
    if options.workflows is None or options.inner is None:
        return None
    return WorkflowLauncher(
        context.clock, options.workflows, options.executor, options.inner, own_only=options.own_only
    )


# Its traits are those of the executor's launcher; these are the ones of a callback.
WORKFLOW = LauncherKind(
    name=WorkflowSettings.kind,
    read=WorkflowSettings.read,
    schema=WorkflowSettings.schema(),
    traits={WorkflowSettings.kind: Traits()},
    build=_build,
)
