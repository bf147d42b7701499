"""The worker of DAG runs: leases due tasks, executes them with launchers, and records how they end.

A task is recorded as executing before it starts. A worker that dies loses its leases; another one takes its
tasks over: it resumes those that still run, as processes do, and the others end as lost and may be retried.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from kron.app.dag.secret import task_identity
from kron.app.dag.task_call import (
    MAX_OUTPUT,
    TaskFailedError,
    TaskFunction,
    call_task,
    context_of,
    document_of,
    printing_to_tasks,
)
from kron.app.dag.write import Decide, write_run
from kron.app.launchers import build_launcher, settings_of
from kron.clocks.system import SystemClock
from kron.core.dag.definition import ResultSource
from kron.core.dag.plan import TaskEnd, accepted, ended_together, execution_key
from kron.core.dag.record import AttemptOutcome, DagClaim
from kron.core.errors import InputError, StoreError
from kron.core.job.outcome import Reason
from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.record import JobRecord, RunRecord, RunStatus
from kron.core.plan.report import DataInterval, Launch, LeaseStatus, Payload, RunEvent, RunReport
from kron.core.time.instant import EPOCH, MILLISECOND, instant_text
from kron.core.time.steady import ClockState, Reading
from kron.dag_ports import DagClaimRequest, DagLease, DagStore
from kron.launchers.backoff import Backoff
from kron.launchers.callback import CallbackLauncher, CallbackOptions, CallbackSettings
from kron.launchers.celery.spec import CeleryOptions, CelerySettings
from kron.launchers.launch import tidy
from kron.launchers.process.spec import ProcessOptions, ProcessSettings
from kron.launchers.secret import Vault
from kron.launchers.spec import LauncherConfig, LauncherContext, LauncherSettings, launcher_text_of
from kron.ports import Clock, Launcher

_log = logging.getLogger("kron.dag")
LEASE = timedelta(seconds=30)
# How long the tasks of other workers, and starts by other processes, may stay unseen.
TICK = timedelta(seconds=1)
# The longest time between two renewals.
MAX_RENEW = timedelta(seconds=2)
SLOTS = 32
# How many tasks one claim leases beyond the slots, each of a user of which none executes.
MAX_BEYOND = 8
MAX_TRIES = 1_000
STORE_BACKOFF = Backoff(max_delay=timedelta(seconds=10))
LOST = "the worker that executed it died"
STOPPED = "the worker stopped"
OUTCOMES = {
    RunEvent.SUCCESS: AttemptOutcome.SUCCESS,
    RunEvent.FAILED: AttemptOutcome.FAILED,
    RunEvent.LAUNCH_FAILED: AttemptOutcome.FAILED,
    RunEvent.CANCELLED: AttemptOutcome.CANCELLED,
    RunEvent.ORPHANED: AttemptOutcome.LOST,
}


@dataclass(slots=True, eq=False)
class TaskExecution:
    """One attempt that this worker executes; `why` is the outcome of an end that the worker requested.

    `deadline` is by the monotonic clock: an attempt has its whole timeout, however the wall clock is set.
    `error` is that of a function that raised an exception.
    """

    claim: DagClaim
    launch: Launch
    launcher: Launcher
    deadline: float | None
    output: str | None = None
    result: str | None = None
    error: str | None = None
    why: AttemptOutcome | None = None

    @property
    def lease(self) -> DagLease:
        """Return the lease of the attempt."""
        task = self.claim.task
        return DagLease(task.run_id, task.task_id, task.attempt)

    @property
    def may_start_again(self) -> bool:
        """Return whether an attempt of a dead worker that never started may start without a second effect."""
        is_ending = self.why is not None or bool(self.claim.run.cancel)
        return self.claim.taken_over and self.launcher.traits.idempotent and not is_ending


@dataclass(frozen=True, slots=True, kw_only=True)
class DagWorkerOptions:
    """How a worker works: its name, how many tasks it executes at once, and how long its leases last.

    `functions` are those that tasks of the type `python` name. `config` and `secret` are for its launchers;
    `vault` decrypts the secrets of tasks, and resolves their references.
    """

    name: str
    slots: int = SLOTS
    lease: timedelta = LEASE
    tick: timedelta = TICK
    functions: Mapping[str, TaskFunction] = field(default_factory=dict)
    config: LauncherConfig = field(default_factory=LauncherConfig)
    secret: bytes | None = None
    vault: Vault = field(default_factory=Vault)


class DagWorker:
    """Executes the tasks of all DAGs in a store until it is stopped."""

    def __init__(self, store: DagStore, options: DagWorkerOptions, clock: Clock | None = None) -> None:
        self._store = store
        self._options = options
        # The functions by name; more may be registered while it runs.
        self.functions = dict(options.functions)
        self._clock = clock or SystemClock()
        self._lease_ms = options.lease // MILLISECOND
        # A cancellation is noticed when leases are renewed.
        self._renew_ms = min(self._lease_ms // 3, MAX_RENEW // MILLISECOND)
        self._launchers: dict[str, Launcher] = {}
        self._executions: dict[DagLease, TaskExecution] = {}
        self._by_key: dict[str, TaskExecution] = {}
        self._ends: list[tuple[TaskExecution, TaskEnd]] = []
        # Attempts that another system has accepted, and that are to be recorded as such.
        self._accepted: list[TaskExecution] = []
        self._wake = asyncio.Event()
        self._is_stopping = False
        # While it is drained it claims no further tasks.
        self._is_drained = False
        # When leases are renewed next, and when wrong ones are looked for, by the monotonic clock.
        self._renew_at = self._check_at = 0.0
        # After a jump, until when no lease of another worker counts as expired.
        self._take_over_at = 0.0
        self._time, self._is_steady = ClockState(), False
        # The end of the leases by the monotonic clock, which no change of the wall clock affects.
        self._leased_until = 0.0
        self._failures = 0

    @property
    def executing(self) -> int:
        """Return how many tasks execute."""
        return len(self._executions)

    @property
    def _is_idle(self) -> bool:
        return not self._executions and not self._ends

    def wake(self) -> None:
        """Make the worker check for due tasks now."""
        self._wake.set()

    def stop(self) -> None:
        """Claim no further tasks, and end `run` when the executing ones have ended."""
        self._is_stopping = True
        self._wake.set()

    def drain(self, *, is_drained: bool) -> None:
        """Claim no further tasks until the drain is ended."""
        self._is_drained = is_drained
        self._wake.set()

    async def run(self, until: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Execute tasks until stopped, or until a condition holds when it is checked between two turns.

        A cancelled worker leaves its processes to the next one; its functions are cancelled.
        """
        with printing_to_tasks():
            try:
                while not (self._is_stopping and self._is_idle):
                    wake_at = await self._turn()
                    if until is not None and self._is_idle and await until():
                        break
                    await self._sleep(wake_at)
            finally:
                await self._close()

    async def _turn(self) -> int:
        """Record ends, renew leases, claim tasks; return when the next turn is due, in milliseconds."""
        with self._clock.working():
            try:
                self._read_clock()
                await self._record_accepted()
                await self._record_ends()
                await self._renew()
                await self._claim()
                wake_at = await self._next_wake()
            except StoreError as error:
                self._failures += 1
                delay_s = STORE_BACKOFF.delay_after(self._options.name, min(self._failures, 5)) or 10.0
                _log.warning("the store failed, retrying in %.1f s: %s", delay_s, error)
                return self._now() + int(1000 * delay_s)
        self._failures = 0
        return wake_at

    async def _sleep(self, wake_at: int) -> None:
        """Sleep until an instant or a call, at most a tick: the clock may be set back before."""
        wake_at = min(wake_at, self._now() + self._options.tick // MILLISECOND)
        if not self._wake.is_set() and wake_at > self._now():
            sleeping = asyncio.create_task(self._clock.sleep_until(EPOCH + wake_at * MILLISECOND))
            called = asyncio.create_task(self._wake.wait())
            try:
                await asyncio.wait({sleeping, called}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                called.cancel()
        self._wake.clear()

    async def _next_wake(self) -> int:
        now = self._now()
        times = [now + self._options.tick // MILLISECOND]
        if self._executions:
            ends = [each.deadline for each in self._executions.values() if each.deadline is not None]
            first_s = min([self._renew_at, *ends]) - self._clock.monotonic()
            times.append(now + int(1000 * first_s))
        if not (self._is_stopping or self._is_drained):
            due = await self._store.next_due(now)
            times += [] if due is None else [due]
        return min(times)

    # --- leases ----------------------------------------------------------------------------------------

    async def _renew(self) -> None:
        began = self._clock.monotonic()
        self._end_late(began)
        if not self._executions or began < self._renew_at:
            return
        leases = sorted(self._executions)
        kept = await self._store.renew(self._options.name, leases, self._now() + self._lease_ms)
        self._renew_at = began + self._renew_ms / 1000
        self._leased_until = began + self._lease_ms / 1000
        for lease in leases:
            execution = self._executions.get(lease)
            if execution is None:
                continue
            if lease not in kept:
                await self._drop(execution)
            elif kept[lease]:
                self._request_end(execution, AttemptOutcome.CANCELLED)

    def _end_late(self, now: float) -> None:
        for execution in list(self._executions.values()):
            if execution.deadline is not None and execution.deadline <= now:
                execution.deadline = None
                self._request_end(execution, AttemptOutcome.TIMEOUT)

    def _request_end(self, execution: TaskExecution, why: AttemptOutcome) -> None:
        if execution.why is None:
            execution.why = why
            execution.launcher.end(execution.launch.run)

    async def _drop(self, execution: TaskExecution) -> None:
        """Forget an attempt whose lease was lost; end it unless the other worker has resumed it."""
        _log.warning("lost the lease of %s", execution.lease)
        self._forget(execution)
        state = await self._store.state(execution.claim.run.run_id)
        task = None if state is None else state.tasks.get(execution.claim.task.task_id)
        is_resumed = task is not None and task.attempt == execution.claim.task.attempt and task.worker
        if not is_resumed or isinstance(execution.launcher, CallbackLauncher):
            execution.launcher.end(execution.launch.run)

    def _forget(self, execution: TaskExecution) -> None:
        self._executions.pop(execution.lease, None)
        self._by_key.pop(execution.launch.run.key, None)

    def _lease_status(self, lease: DagLease) -> LeaseStatus:
        is_held = lease in self._executions and self._clock.monotonic() < self._leased_until
        return LeaseStatus.HELD if is_held else LeaseStatus.LOST

    # --- claiming and starting -------------------------------------------------------------------------

    async def _claim(self) -> None:
        if self._is_stopping or self._is_drained:
            return
        now, began = self._now(), self._clock.monotonic()
        slots = self._options.slots
        free = slots - len(self._executions)
        request = DagClaimRequest(
            self._options.name,
            now,
            now + self._lease_ms,
            free if free > 0 else MAX_BEYOND,
            executing=Counter(each.claim.run.user_id for each in self._executions.values()),
            # Beyond its slots it executes one task of each user that has none.
            most_of_user=max(1, slots // 2) if free > 0 else 1,
            is_full=free <= 0,
            takes_over=began >= self._take_over_at,
            latest_lease=self._latest_lease(now, began),
        )
        claims = await self._store.claim(request)
        if request.latest_lease is not None:
            self._check_at = began + LOOKAHEAD_MS / 1000
        if claims and not self._executions:
            self._renew_at = began + self._renew_ms / 1000
            self._leased_until = began + self._lease_ms / 1000
        for claim in claims:
            try:
                await self._start(claim, now)
            except InputError as error:
                _log.warning("the task %s cannot be started: %s", claim.task.task_id, error)
                launcher = CallbackLauncher(self._clock)
                unstarted = TaskExecution(
                    claim, launch_of(claim, "{}", CallbackSettings.kind), launcher, None
                )
                self._end(unstarted, TaskEnd(AttemptOutcome.FAILED, str(error)))

    def _read_clock(self) -> None:
        """Note whether the clock was set: then leases are renewed before any counts as expired."""
        mono = self._clock.monotonic()
        reading = Reading(self._now(), round(1000 * mono))
        self._time, judged = self._time.read(reading, lookahead_ms=LOOKAHEAD_MS, steady_ms=LOOKAHEAD_MS)
        self._is_steady = judged.is_steady
        if judged.jump:
            self._renew_at, self._take_over_at = mono, mono + self._lease_ms / 1000

    def _latest_lease(self, now: int, mono: float) -> int | None:
        """Return the latest instant of a right lease, once in a while and only if the clock has been steady.

        After a step back the workers of this store renew their leases long before it counts as steady.
        """
        is_due = self._is_steady and mono >= self._check_at
        return now + self._lease_ms + LOOKAHEAD_MS if is_due else None

    async def _start(self, claim: DagClaim, now: int) -> None:
        spec = claim.spec
        # The owner of the run, whatever the task says: its secrets and its signature are the owner's.
        document: dict[str, object] = {**spec.launcher, "user_id": claim.run.user_id}
        if document["kind"] == ProcessSettings.kind:
            # Its exit status is to be found by the worker that takes over, should this one die.
            document.setdefault("survive", True)
        if document["kind"] == CelerySettings.kind:
            document.setdefault("await_result", True)
        identity = task_identity(claim.run.dag_id, claim.task.task_id)
        settings = settings_of(self._options.vault.open(json.dumps(document), identity))
        launcher = self._launcher_of(settings)
        launch = launch_of(claim, launcher_text_of(settings), settings.launcher_kind)
        launch = launch._replace(payload=payload_of(claim, launch.run.key))
        lease = DagLease(claim.task.run_id, claim.task.task_id, claim.task.attempt)
        launch = launch._replace(lease_status=partial(self._lease_status, lease))
        timeout, started = spec.policy.timeout, claim.task.started_at or now
        # It may have started under a clock that was ahead.
        left_s = 0.0 if timeout is None else timeout.total_seconds() - max(0, now - started) / 1000
        deadline = None if timeout is None else self._clock.monotonic() + left_s
        execution = TaskExecution(claim, launch, launcher, deadline)
        self._executions[lease] = self._by_key[launch.run.key] = execution
        if claim.taken_over:
            await self._take_over(execution)
        else:
            launcher.start(launch, partial(self._on_report, execution))

    async def _take_over(self, execution: TaskExecution) -> None:
        """Resume an attempt of a dead worker, start it again where that has no second effect, or end it."""
        launch, launcher = execution.launch, execution.launcher
        sink = partial(self._on_report, execution)
        is_cancelled = bool(execution.claim.run.cancel)
        if launch.run.key in await launcher.adopt([launch], sink):
            _log.info("resumed %s", execution.lease)
            if is_cancelled:
                self._request_end(execution, AttemptOutcome.CANCELLED)
        elif launcher.traits.idempotent and not is_cancelled:
            launcher.start(launch, sink)
        else:
            self._end(execution, TaskEnd(AttemptOutcome.LOST, LOST))

    def _launcher_of(self, settings: LauncherSettings) -> Launcher:
        kind = settings.launcher_kind
        if kind not in self._launchers:
            options = self._options
            own = (
                CallbackOptions(pick=self._pick),
                replace(options.config.get(ProcessOptions), on_output=self._on_output),
                replace(options.config.get(CeleryOptions), on_end=self._on_celery_end),
            )
            config = LauncherConfig((*own, *options.config.options), options.config.default)
            context = LauncherContext(self._clock, config, options.secret)
            self._launchers[kind] = build_launcher(settings, context)
        return self._launchers[kind]

    def _pick(self, launch: Launch) -> Callable[[Launch], Awaitable[object]] | None:
        name = json.loads(launch.job.launcher).get("name")
        function = self.functions.get(name)
        return None if function is None else partial(self._call, function)

    async def _call(self, function: TaskFunction, launch: Launch) -> None:
        execution = self._by_key[launch.run.key]
        try:
            called = await call_task(function, context_of(launch))
        except TaskFailedError as error:
            # Its traceback is in the output, so the launcher need not log it.
            execution.output = error.output
            execution.error = tidy(f"{type(error.cause).__name__}: {error.cause}")
        else:
            execution.result, execution.output = called.result, called.output

    # --- reports ---------------------------------------------------------------------------------------

    def _on_output(self, launch: Launch, output: bytes) -> None:
        execution = self._by_key.get(launch.run.key)
        if execution is not None:
            # Of a longer output the end is kept: the attempts of a run are read together.
            end = output[-MAX_OUTPUT:]
            execution.output = tidy(end.decode(errors="replace"), len(end) + 3)

    def _on_celery_end(self, run: RunRecord, result: str | None, traceback: str | None) -> None:
        execution = self._by_key.get(run.key)
        if execution is not None:
            execution.result = result
            execution.output = None if traceback is None else tidy(traceback[-MAX_OUTPUT:], MAX_OUTPUT)

    def _on_report(self, execution: TaskExecution, report: RunReport) -> None:
        event, traits = report.happened, execution.launcher.traits
        if event is RunEvent.ACCEPTED and not traits.reports:
            # Its executor reports no end: an accepted start is all that can be known.
            event = RunEvent.SUCCESS
        elif event is RunEvent.ACCEPTED and traits.remote and not traits.idempotent:
            # A worker that takes over must know whether to start it.
            self._accepted.append(execution)
            self.wake()
        if event not in OUTCOMES or self._executions.get(execution.lease) is not execution:
            return
        if event is RunEvent.ORPHANED and execution.may_start_again:
            execution.launcher.start(execution.launch, partial(self._on_report, execution))
            return
        outcome, error, result = OUTCOMES[event], report.error, execution.result
        if event is RunEvent.ORPHANED and error is None:
            error = LOST
        if outcome is AttemptOutcome.SUCCESS and execution.error is not None:
            outcome, error = AttemptOutcome.FAILED, execution.error
        if outcome is AttemptOutcome.CANCELLED:
            outcome = execution.why or AttemptOutcome.LOST
            error = _reason_of(execution, outcome) or error
        if outcome is AttemptOutcome.SUCCESS and execution.claim.spec.policy.result is ResultSource.LAST_LINE:
            result, error = _last_line(execution.output)
            outcome = AttemptOutcome.SUCCESS if error is None else AttemptOutcome.FAILED
        self._end(execution, TaskEnd(outcome, error, result))

    def _end(self, execution: TaskExecution, end: TaskEnd) -> None:
        if end.outcome is not AttemptOutcome.SUCCESS:
            _log.info("%s: %s: %s", execution.lease, end.outcome.value, end.error)
        self._ends.append((execution, end._replace(output=execution.output)))
        self.wake()

    async def _record_accepted(self) -> None:
        while self._accepted:
            task = self._accepted[0].claim.task
            await self._record(task.run_id, partial(accepted, claim=task))
            del self._accepted[0]

    async def _record_ends(self) -> None:
        """Record the ends of attempts, those of one run together; stale ones belong to another worker."""
        while self._ends:
            run_id = self._ends[0][0].claim.run.run_id
            ends = [each for each in self._ends if each[0].claim.run.run_id == run_id]
            pairs = [(execution.claim.task, end) for execution, end in ends]
            await self._record(run_id, partial(ended_together, ends=pairs, now=self._now()))
            self._ends = [each for each in self._ends if each not in ends]
            for execution, _ in ends:
                self._forget(execution)

    async def _record(self, run_id: str, decide: Decide) -> None:
        """Commit a decision about the present state of a run; a stale decision writes nothing."""
        written = await write_run(self._store, run_id, decide, max_tries=MAX_TRIES)
        if written is None:
            raise StoreError(f"Tasks of {run_id} cannot be recorded: the run keeps changing")
        if written.change is None:
            _log.warning("reports about tasks of %s are stale", run_id)

    async def _close(self) -> None:
        """End functions, leave processes running, and give up the leases that are left."""
        for launcher in self._launchers.values():
            await launcher.close(wait=False)
        with suppress(StoreError):
            await self._record_accepted()
            await self._record_ends()
            if self._executions:
                await self._store.renew(self._options.name, sorted(self._executions), self._now())

    def _now(self) -> int:
        return (self._clock.now() - EPOCH) // MILLISECOND


def _reason_of(execution: TaskExecution, outcome: AttemptOutcome) -> str | None:
    if outcome is AttemptOutcome.TIMEOUT:
        return f"it took longer than its timeout of {execution.claim.spec.policy.timeout}"
    return STOPPED if outcome is AttemptOutcome.LOST else None


def _last_line(output: str | None) -> tuple[str | None, str | None]:
    """Return the last line of an output as JSON text, or an error."""
    lines = [line for line in (output or "").splitlines() if line.strip()]
    try:
        value = json.loads(lines[-1] if lines else "null")
        return json.dumps(value, separators=(",", ":"), allow_nan=False), None
    except (ValueError, RecursionError):
        return None, f"the last line of its output is not JSON: {tidy(lines[-1], 100)}"


def launch_of(claim: DagClaim, launcher: str, kind: str) -> Launch:
    """Return an attempt as a launch without a payload, with a job and a run that are not stored."""
    run, task = claim.run, claim.task
    name, nominal, now = f"{run.dag_id}/{task.task_id}", run.logical_date // 1000, task.started_at or 0
    job = JobRecord(name, "{}", launcher, kind, 1, now, now, 1, nominal, None, None)
    record = RunRecord(
        execution_key(run, task), name, nominal, now, RunStatus.STARTED, Reason.DUE, now, 1,
        is_open=1, attempt=task.attempt, token=task.attempt, started_at=now, acked=task.accepted,
    )  # fmt: skip
    return Launch(job, record, interval=DataInterval(nominal, nominal))


def payload_of(claim: DagClaim, key: str) -> Payload:
    """Return what the executor of an attempt gets, or raise DocumentTooLargeError."""
    run, task, spec = claim.run, claim.task, claim.spec
    facts = {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "task_id": task.task_id,
        "logical_date": instant_text(run.logical_date),
        "user_id": run.user_id,
    }
    meta = {
        **facts, "workflow_id": run.dag_id, "version": run.version, "attempt": task.attempt,
        "logical_ms": run.logical_date, "idempotency_key": key, "run_key": run.run_key,
    }  # fmt: skip
    return Payload(document_of(run.input, spec.arguments, claim.upstream, meta), facts)
