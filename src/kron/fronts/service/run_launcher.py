"""The run launcher: starts a version of a workflow once per key, for remote workers and for programs."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from kron.core.errors import (
    ConflictError,
    InputError,
    InvalidOptionError,
    KronError,
    StoreError,
    UnknownRunError,
)
from kron.core.fields import identity_fault, parse_instant, parse_name
from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord, RunStatus
from kron.core.plan.report import DataInterval, Launch, RunEvent, RunReport
from kron.core.time.instant import EPOCH, MILLISECOND, EpochSeconds
from kron.core.workflow import StartRequest
from kron.dag_ports import IdempotencyLog
from kron.fronts.service.auth.principal import current_request_id
from kron.fronts.service.errors import LaunchFailedError, NoRunnerError
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import Feedback, take_feedback
from kron.launchers.callback import CallbackLauncher
from kron.launchers.workflow import NoExecutorError, UnknownWorkflowError, WorkflowLauncher
from kron.ports import Clock

_log = logging.getLogger("kron.service")
# A key is part of file names.
KEY = re.compile(r"[A-Za-z0-9._:-]{1,200}")
# How long a start is remembered, in milliseconds.
KEEP_MS = 30 * 86_400_000
ENDS = {RunEvent.SUCCESS: "SUCCESS", RunEvent.FAILED: "FAILED", RunEvent.CANCELLED: "FAILED"}
REFUSED = frozenset({RunEvent.LAUNCH_FAILED, RunEvent.CANCELLED, RunEvent.ORPHANED})


class WorkflowStart(NamedTuple):
    """A requested start: the workflow's version, its user, and the schedule's run it belongs to."""

    workflow_id: str
    version: int
    user_id: str
    scheduled_for: EpochSeconds
    key: str
    schedule_id: str | None = None
    attempt: int = 1
    token: int = 0
    interval: DataInterval | None = None


class StartResult(NamedTuple):
    """An accepted start: the executor's name of the run, if any, and whether it was accepted before."""

    run_id: str | None = None
    repeated: bool = False


class RunLauncher:
    """Loads the DAG of a workflow's version and starts the executor with it, once per key."""

    def __init__(
        self,
        clock: Clock,
        launcher: WorkflowLauncher,
        log: IdempotencyLog,
        *,
        on_end: Callable[[RunReport], None] | None = None,
    ) -> None:
        self._clock = clock
        self._launcher = launcher
        self._starts = log
        self._on_end = on_end
        self._in_flight: dict[tuple[str, int], tuple[WorkflowStart, asyncio.Task[StartResult]]] = {}

    async def start(
        self,
        workflow_id: str,
        version: int,
        user_id: str,
        scheduled_for: datetime | str,
        idempotency_key: str,
    ) -> bool:
        """Start a run and return whether it was accepted; a missing DAG starts nothing (SPEC 3: 4, 12)."""
        at = parse_instant(scheduled_for)
        try:
            await self.launch(WorkflowStart(workflow_id, version, user_id, at, idempotency_key))
        except (UnknownWorkflowError, LaunchFailedError) as error:
            _log.warning("not started: %s", error)
            return False
        return True

    async def launch(self, start: WorkflowStart) -> StartResult:
        """Start a run, or raise the reason it was refused; a concurrent start with the same key is joined."""
        _check(start)
        attempt = start.key, start.attempt
        if attempt not in self._in_flight:
            task = asyncio.create_task(self._launch(start))
            self._in_flight[attempt] = start, task
            task.add_done_callback(lambda _: self._in_flight.pop(attempt))
        first, task = self._in_flight[attempt]
        _check_same(start, first.workflow_id, first.version)
        result = await asyncio.shield(task)
        return result if first is start else result._replace(repeated=True)

    async def _launch(self, start: WorkflowStart) -> StartResult:
        """Record first, then start; a refused start may be retried."""
        now = (self._clock.now() - EPOCH) // MILLISECOND
        request = StartRequest(start.key, start.attempt, start.workflow_id, start.version, now)
        known = await self._starts.begin(request, old=now - KEEP_MS)
        if known is not None:
            _check_same(start, known.workflow_id, known.version)
            if known.accepted:
                return StartResult(repeated=True)
            if not self._launcher.traits.idempotent:
                message = "An earlier start with this key has an unknown outcome"
                raise LaunchFailedError(message, idempotency_key=start.key)
        try:
            run_id = await self._execute(start, now)
        except KronError:
            with suppress(StoreError):
                await self._starts.end(request, accepted=False)
            raise
        await self._starts.end(request, accepted=True)
        _log.info("started version %d of %s [%s]", start.version, start.workflow_id, start.key)
        return StartResult(run_id)

    async def _execute(self, start: WorkflowStart, now: int) -> str | None:
        try:
            ready = await self._launcher.ready(launch_of(start, now))
        except NoExecutorError as cause:
            raise NoRunnerError(str(cause)) from cause
        inner = self._launcher.inner
        first: asyncio.Future[RunReport] = asyncio.get_running_loop().create_future()

        def sink(report: RunReport) -> None:
            if not first.done():
                first.set_result(report)
            if report.happened in ENDS and self._on_end is not None:
                self._on_end(report)

        if isinstance(inner, CallbackLauncher):
            # A call is accepted when it has started; its end is reported later.
            if not inner.knows(ready):
                raise LaunchFailedError("No function is registered under the executor's name")
            inner.start(ready, sink)
            return None
        inner.start(ready, sink)
        report = await first
        if report.happened in REFUSED:
            raise LaunchFailedError(report.error or "The executor refused the run", key=start.key)
        return report.run_id

    async def close(self) -> None:
        """Wait for starts in flight; running executions continue without this process."""
        tasks = [task for _, task in self._in_flight.values()]
        if tasks:
            await asyncio.wait(tasks)
        await self._launcher.close(wait=False)


def _check(start: WorkflowStart) -> None:
    if not KEY.fullmatch(start.key):
        reason = "must be 1 to 200 of A-Z a-z 0-9 . _ : -"
        raise InvalidOptionError(option="idempotency_key", value=ascii(start.key), reason=reason)
    fault = None if start.schedule_id is None else identity_fault(start.schedule_id)
    if fault is not None:
        raise InvalidOptionError(option="identity", value=ascii(start.schedule_id), reason=fault)
    for option, name in (("workflow_id", start.workflow_id), ("user_id", start.user_id)):
        try:
            parse_name(name)
        except InputError as error:
            reason = str(error.details["reason"])
            raise InvalidOptionError(option=option, value=ascii(name), reason=reason) from None


def _check_same(start: WorkflowStart, workflow_id: str, version: int) -> None:
    if (start.workflow_id, start.version) != (workflow_id, version):
        message = f'The key "{start.key}" belongs to a start of version {version} of "{workflow_id}"'
        raise ConflictError(message, idempotency_key=start.key)


def launch_of(start: WorkflowStart, now: int) -> Launch:
    """Return a start as a launch, with a job and a run that are not stored."""
    workflow = {"workflow_id": start.workflow_id, "version": start.version, "user_id": start.user_id}
    name = start.schedule_id or start.workflow_id
    text = json.dumps({"kind": "workflow", **workflow})
    job = JobRecord(name, "{}", text, "workflow", 1, now, now, 1, start.scheduled_for, None, None)
    run = RunRecord(
        start.key, name, start.scheduled_for, now, RunStatus.STARTED, Reason.DUE, now, 1,
        is_open=1, attempt=start.attempt, token=start.token, started_at=now,
    )  # fmt: skip
    interval = start.interval or DataInterval(start.scheduled_for, start.scheduled_for)
    return Launch(job, run, request_id=current_request_id(), interval=interval)


def reporter_of(registrar: Registrar) -> Callable[[RunReport], None]:
    """Return a sink that records the ends of runs that were started for a remote worker."""
    recording: set[asyncio.Task[None]] = set()

    async def record(report: RunReport) -> None:
        feedback = Feedback(ENDS[report.happened], report.run_id, report.error, report.attempt)
        try:
            await take_feedback(registrar, report.key, feedback)
        except (UnknownRunError, ConflictError):
            _log.debug("the end of %s belongs to no open run", report.key)
        except KronError as error:
            _log.warning("the end of %s was not recorded: %s", report.key, error)

    def sink(report: RunReport) -> None:
        task = asyncio.create_task(record(report))
        recording.add(task)
        task.add_done_callback(recording.discard)

    return sink
