"""The run orchestrator: stores versions of DAGs, starts their runs, and cancels, retries and clears them."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NoReturn

from kron.app.dag.write import Decide, beside, write_run
from kron.app.launchers import read_launcher, settings_of
from kron.clocks.system import SystemClock
from kron.core.dag.contract import DagError, StartRunResult, parse_logical_date
from kron.core.dag.definition import (
    MAX_CACHED,
    MAX_RESULT,
    MAX_TEXT,
    DagDefinition,
    definition_of,
    read_definition,
)
from kron.core.dag.plan import cancelled, cleared, new_tasks, retried, run_id_of, run_key_of
from kron.core.dag.record import DagRun, DagRunStatus, DagState
from kron.core.errors import Problem, quoted
from kron.core.fields import text_fault
from kron.core.plan.compiled import cached_by_text
from kron.core.time.instant import EPOCH, MILLISECOND, instant_text
from kron.core.value_types import MAX_VERSION
from kron.core.workflow import NAME, NAME_RULE, WorkflowRecord, same_dag
from kron.dag_ports import DEFAULT_USER, DagStore, WorkflowStore
from kron.launchers.spec import SEALED, InvalidLauncherError, LauncherSettings
from kron.ports import Clock

# Tasks that the open runs of one user may have in all, where open runs are limited.
MAX_OPEN_TASKS = 100_000
# Tries of a change by hand while workers write to the same run.
MAX_TRIES = 100
# Kinds of launchers that cannot execute a task.
NOT_TASKS = frozenset({"workflow", "dag"})
# Ends the name of a kind whose executions are reported over HTTP, which tasks of DAGs cannot be.
REPORTS = ":reports"
StoredReader = Callable[[str], LauncherSettings]


class RunOrchestrator:
    """Starts runs of DAGs in a store: one for each logical date of a DAG, and rerun key where one is given.

    `on_change` is called after a write that gives workers something to do. With `max_open`, a user has at
    most that many open runs; of DAGs with many tasks fewer.
    """

    def __init__(
        self,
        store: DagStore,
        workflows: WorkflowStore,
        clock: Clock | None = None,
        *,
        on_change: Callable[[], None] | None = None,
        max_open: int | None = None,
    ) -> None:
        self.store = store
        self._max_open = max_open
        self._workflows = workflows
        self._clock = clock or SystemClock()
        self.on_change = on_change or (lambda: None)
        # Published versions never change.
        self._published: dict[tuple[str, int], WorkflowRecord] = {}

    # --- definitions ---------------------------------------------------------------------------------

    async def put_version(
        self, dag_id: str, version: int, document: Mapping[str, object], *, user_id: str = DEFAULT_USER
    ) -> WorkflowRecord:
        """Store a version of a DAG; a published one never changes, one with `"draft": true` may."""
        _check_version(version)
        checked_document(dag_id, document)
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        record = WorkflowRecord(dag_id, version, text, user_id, self._now())
        stored = await self._workflows.put(record)
        if not same_dag(stored.dag, text):
            raise DagError(
                "DAG_STATE_VERSION_PUBLISHED",
                f'Version {version} of "{dag_id}" is published and does not change; store another version',
                category="state",
                context={"dag_id": dag_id, "version": version},
            )
        return stored

    async def definition(self, dag_id: str, version: int | None = None) -> WorkflowRecord:
        """Return a published version of a DAG, by default the latest, or raise DagError."""
        if not NAME.fullmatch(dag_id):
            _refuse("INVALID_DAG_ID", f'Invalid dag_id "{quoted(dag_id)}": {NAME_RULE}', dag_id=dag_id)
        if version is not None:
            _check_version(version)
            return await self._version(dag_id, version)
        for known in await self._workflows.versions(dag_id):
            if (dag_id, known.version) in self._published:
                return self._published[dag_id, known.version]
            record = await self._workflows.get(dag_id, known.version)
            if record is not None and not record.is_draft:
                return self._keep(record)
        raise not_found(f'The DAG "{dag_id}" has no published version', dag_id=dag_id)

    async def _version(self, dag_id: str, version: int) -> WorkflowRecord:
        if (dag_id, version) in self._published:
            return self._published[dag_id, version]
        record = await self._workflows.get(dag_id, version)
        if record is None:
            raise not_found(f'There is no version {version} of "{dag_id}"', dag_id=dag_id, version=version)
        if record.is_draft:
            raise DagError(
                "DAG_STATE_NOT_PUBLISHED",
                f'Version {version} of "{dag_id}" is a draft; publish it first',
                category="state",
                context={"dag_id": dag_id, "version": version},
            )
        return self._keep(record)

    def _keep(self, record: WorkflowRecord) -> WorkflowRecord:
        kept = sum(len(each.dag) for each in self._published.values())
        if len(self._published) >= MAX_CACHED or kept + len(record.dag) > MAX_TEXT:
            self._published.clear()
        self._published[record.workflow_id, record.version] = record
        return record

    # --- starting ------------------------------------------------------------------------------------

    async def start_run(
        self,
        *,
        dag_id: str,
        version: int | None = None,
        trigger: str = "manual",
        logical_date: str,
        input: Mapping[str, object] | None = None,  # noqa: A002 (the name of the field)
        rerun_key: str | None = None,
    ) -> StartRunResult:
        """Start the run of a logical date, or return the one that has its key; tasks are queued with it."""
        at = parse_logical_date(logical_date)
        text = _input_text(input)
        _check_words(trigger, rerun_key)
        record = await self.definition(dag_id, version)
        definition = await beside(len(record.dag), checked_definition, record.dag, dag_id)
        await self._check_pools(definition)
        run, now = _new_run(record, definition, self._now(), at, trigger, rerun_key, text), self._now()
        await self._check_open(run, len(definition.tasks))
        tasks = await beside(len(record.dag), new_tasks, run, now)
        stored, created = await self.store.start(run, tasks)
        if created:
            self.on_change()
        return run_receipt(stored, created=created)

    async def _check_pools(self, definition: DagDefinition) -> None:
        if not definition.pools:
            return
        unknown = sorted(definition.pools - set(await self.store.pools()))
        if unknown:
            pool = unknown[0]
            message = f'There is no pool "{pool}"; set its slots first, e.g. kron dag pool {pool} 4'
            _refuse("UNKNOWN_POOL", message, pool=pool)

    async def _check_open(self, run: DagRun, tasks: int) -> None:
        """Raise DagError if a new run is one too many of its user, so that no user fills the store."""
        if self._max_open is None:
            return
        most = max(1, min(self._max_open, MAX_OPEN_TASKS // tasks))
        count = await self.store.open_runs(run.user_id)
        if count >= most and await self.store.run(run.run_id) is None:
            raise DagError(
                "DAG_LIMIT_OPEN_RUNS",
                f'"{run.user_id}" has {count} open runs of DAGs; with {tasks} tasks each, at most {most} may '
                "be open (max_open_runs)",
                category="limit",
                context={"dag_id": run.dag_id, "open_runs": count},
            )

    async def slot_runs(self, dag_id: str, slots: Iterable[int]) -> list[DagRun]:
        """Return the runs that slots of a DAG have; the others would be started by a catch-up."""
        keys = (run_key_of(dag_id, slot, None) for slot in slots)
        runs = [await self.store.run(run_id_of(key)) for key in keys]
        return [run for run in runs if run is not None]

    # --- by hand -------------------------------------------------------------------------------------

    async def cancel(self, run_id: str) -> DagRun:
        """Cancel a run: tasks that have not started never do, executing ones are ended."""
        return await self._write(run_id, lambda state: cancelled(state, self._now()))

    async def retry(self, run_id: str) -> DagRun:
        """Run the failed and cancelled tasks of a run again, and all that depend on them."""
        return await self._write(run_id, lambda state: retried(state, self._now()))

    async def clear(self, run_id: str, tasks: Collection[str]) -> DagRun:
        """Run some tasks of a run again, and all that depend on them."""
        return await self._write(run_id, lambda state: cleared(state, tasks, self._now()))

    async def _write(self, run_id: str, decide: Decide) -> DagRun:
        written = await write_run(self.store, run_id, decide, max_tries=MAX_TRIES)
        if written is None:
            raise DagError(
                "DAG_STATE_CONTENDED",
                f"The run {run_id} changed during each of {MAX_TRIES} tries; try again",
                category="state",
                context={"run_id": run_id},
            )
        if written.change is not None:
            self.on_change()
            return written.change.run
        return _known(written.state, run_id).run

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, DagRunStatus]:
        """Return the states of runs; those that do not exist are left out."""
        return await self.store.statuses(run_ids)

    async def error_of(self, run_id: str) -> str | None:
        """Return why a run failed: its first failed task and its error."""
        failed = await self.store.failed_task(run_id)
        return f"the task {failed[0]} failed: {failed[1]}" if failed else None

    async def state(self, run_id: str) -> DagState:
        """Return a run with its tasks, or raise DagError."""
        return _known(await self.store.state(run_id), run_id)

    def _now(self) -> int:
        return (self._clock.now() - EPOCH) // MILLISECOND


def _known(state: DagState | None, run_id: str) -> DagState:
    """Return the state of a run that exists, or raise DagError."""
    if state is None:
        raise DagError(
            "DAG_RUN_NOT_FOUND",
            f'There is no run "{quoted(run_id)}"',
            category="not_found",
            context={"run_id": run_id},
        )
    return state


def run_receipt(run: DagRun, *, created: bool) -> StartRunResult:
    """Return a run as the result of its start, or of a repeated one."""
    return StartRunResult(
        run_id=run.run_id,
        run_key=run.run_key,
        dag_id=run.dag_id,
        version=run.version,
        logical_date=instant_text(run.logical_date),
        status=run.status.value,
        created=created,
    )


@cached_by_text(MAX_CACHED, MAX_TEXT)
def checked_definition(text: str, dag_id: str) -> DagDefinition:
    """Return a stored definition whose tasks all have valid executors, or raise DagError."""
    return _checked(dag_id, definition_of(text, dag_id), settings_of)


def checked_document(dag_id: str, document: object) -> DagDefinition:
    """Return the definition in a document whose tasks all have valid executors, or raise DagError."""
    return _checked(dag_id, read_definition(dag_id, document), None)


def _checked(dag_id: str, definition: DagDefinition, stored: StoredReader | None) -> DagDefinition:
    problems = _executor_problems(definition, stored)
    if problems:
        text = "; ".join(map(str, problems))
        _refuse("INVALID_DEFINITION", f'The DAG "{dag_id}" is invalid: {text}', problems=tuple(problems))
    return definition


def _executor_problems(definition: DagDefinition, stored: StoredReader | None) -> list[Problem]:
    """Return what is wrong with the executors of tasks; those of stored ones may have encrypted secrets."""
    problems: list[Problem] = []
    for number, task in enumerate(definition.tasks.values()):
        path = f"nodes.{number}"
        kind = task.launcher["kind"]
        if kind in NOT_TASKS:
            problems.append(Problem(f"{path}.type", kind, "cannot execute a task"))
            continue
        try:
            if stored is not None and SEALED in task.launcher:
                settings = stored(json.dumps(task.launcher))
            else:
                settings = read_launcher(task.launcher, path=path)
        except InvalidLauncherError as error:
            problems += error.problems
            continue
        if settings.launcher_kind.endswith(REPORTS):
            problems.append(Problem(f"{path}.reports", True, "an accepted task has ended; leave it out"))
    return problems


def _new_run(
    record: WorkflowRecord,
    definition: DagDefinition,
    now: int,
    logical_date: int,
    trigger: str,
    rerun_key: str | None,
    text: str,
) -> DagRun:
    key = run_key_of(record.workflow_id, logical_date, rerun_key)
    return DagRun(
        run_id=run_id_of(key),
        run_key=key,
        dag_id=record.workflow_id,
        version=record.version,
        trigger=trigger,
        logical_date=logical_date,
        rerun_key=rerun_key,
        user_id=record.user_id,
        digest=sha256(record.dag.encode()).hexdigest(),
        definition=record.dag,
        input=text,
        status=DagRunStatus.QUEUED,
        created_at=now,
        parallelism=definition.limits.parallelism,
        max_active_tasks=definition.limits.max_active_tasks,
    )


# --- checks --------------------------------------------------------------------------------------------


def not_found(message: str, **context: object) -> DagError:
    """Return the error of a definition that does not exist."""
    return DagError("DAG_DEFINITION_NOT_FOUND", message, category="not_found", context=context)


def _refuse(code: str, message: str, **context: object) -> NoReturn:
    raise DagError(f"DAG_VALIDATION_{code}", message, context=context)


def _check_version(version: object) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= MAX_VERSION:
        reason = f"must be a whole number from 0 to {MAX_VERSION}"
        _refuse("INVALID_VERSION", f'Invalid version "{quoted(version)}": {reason}', version=version)


def _check_words(trigger: object, rerun_key: object) -> None:
    if not isinstance(trigger, str) or not NAME.fullmatch(trigger):
        _refuse("INVALID_TRIGGER", f'Invalid trigger "{quoted(trigger)}": {NAME_RULE}', trigger=trigger)
    if rerun_key is not None and not (isinstance(rerun_key, str) and NAME.fullmatch(rerun_key)):
        message = f'Invalid rerun_key "{quoted(rerun_key)}": {NAME_RULE}'
        _refuse("INVALID_RERUN_KEY", message, rerun_key=rerun_key)


def _input_text(value: object) -> str:
    """Return an input as JSON text of limited size."""
    document = {} if value is None else value
    if not isinstance(document, Mapping):
        _refuse("INVALID_INPUT", "Invalid input: must be an object")
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as cause:
        _refuse("INVALID_INPUT", f"Invalid input: must be a JSON document ({cause})")
    if len(text) > MAX_RESULT:
        reason = f"has {len(text):,} characters as JSON; at most {MAX_RESULT:,} are allowed"
        _refuse("INVALID_INPUT", f"Invalid input: {reason}")
    if fault := text_fault(text):
        _refuse("INVALID_INPUT", f"Invalid input: {fault}")
    return text
