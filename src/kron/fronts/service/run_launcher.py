"""The run launcher: starts a workflow's version once for each key, for workers elsewhere and for programs."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from kron.core.errors import ConflictError, InvalidOptionError, KronError, StoreError, UnknownRunError
from kron.core.identity import identity_fault
from kron.core.job.fields import parse_instant
from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord, RunStatus
from kron.core.plan.report import RunEvent, RunReport
from kron.core.time.instant import EPOCH, EpochSeconds
from kron.core.workflow import StartRequest
from kron.fronts.service.auth.principal import present_request
from kron.fronts.service.errors import LaunchFailedError, NoRunnerError
from kron.fronts.service.registrar import MILLISECOND, Registrar
from kron.fronts.service.runs import Feedback, take_feedback
from kron.launchers.callback import CallbackLauncher
from kron.launchers.workflow import NoExecutorError, UnknownWorkflowError, WorkflowLauncher
from kron.ports import Clock, IdempotencyLog, Launch

_log = logging.getLogger("kron.service")
# A key names files of processes, so it is made of what can.
KEY = re.compile(r"[A-Za-z0-9._:-]{1,200}")
# For how long a start is remembered, in milliseconds.
KEEP_MS = 30 * 86_400_000
ENDS = {RunEvent.SUCCESS: "SUCCESS", RunEvent.FAILED: "FAILED", RunEvent.CANCELLED: "FAILED"}
REFUSED = frozenset({RunEvent.LAUNCH_FAILED, RunEvent.CANCELLED, RunEvent.ORPHANED})


class Wanted(NamedTuple):
    """A start somebody asks for: of what, for whom, and which of a schedule's runs it is."""

    workflow_id: str
    version: int
    user_id: str
    scheduled_for: EpochSeconds
    key: str
    schedule_id: str | None = None
    attempt: int = 1
    token: int = 0


class Launched(NamedTuple):
    """A start that was accepted, perhaps before, and the run's name where the executor gave it one."""

    run_id: str | None = None
    repeated: bool = False


class RunLauncher:
    """Loads the DAG of a workflow's version and hands it to the executor, once for each key."""

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
        self._under_way: dict[tuple[str, int], tuple[Wanted, asyncio.Task[Launched]]] = {}

    async def start(
        self,
        workflow_id: str,
        version: int,
        user_id: str,
        scheduled_for: datetime | str,
        idempotency_key: str,
    ) -> bool:
        """Start a run and say whether it was accepted; a missing DAG starts nothing (SPEC 3: 4, 12)."""
        at = parse_instant(scheduled_for)
        try:
            await self.launch(Wanted(workflow_id, version, user_id, at, idempotency_key))
        except (UnknownWorkflowError, LaunchFailedError) as error:
            _log.warning("not started: %s", error)
            return False
        return True

    async def launch(self, wanted: Wanted) -> Launched:
        """Start a run, or raise why it was not accepted; one that is being started is waited for."""
        _check(wanted)
        attempt = wanted.key, wanted.attempt
        if attempt not in self._under_way:
            task = asyncio.create_task(self._launch(wanted))
            self._under_way[attempt] = wanted, task
            task.add_done_callback(lambda _: self._under_way.pop(attempt))
        begun, task = self._under_way[attempt]
        _check_same(wanted, begun.workflow_id, begun.version)
        launched = await asyncio.shield(task)
        return launched if begun is wanted else launched._replace(repeated=True)

    async def _launch(self, wanted: Wanted) -> Launched:
        """First record, then start (DESIGN 1); what was not accepted may be tried again."""
        now = (self._clock.now() - EPOCH) // MILLISECOND
        start = StartRequest(wanted.key, wanted.attempt, wanted.workflow_id, wanted.version, now)
        known = await self._starts.begin(start, old=now - KEEP_MS)
        if known is not None:
            _check_same(wanted, known.workflow_id, known.version)
            if known.accepted:
                return Launched(repeated=True)
            if not self._launcher.traits.idempotent:
                message = "A start with this key was begun before, and nobody knows whether it came about"
                raise LaunchFailedError(message, idempotency_key=wanted.key)
        try:
            run_id = await self._hand_over(wanted, now)
        except KronError:
            with suppress(StoreError):
                await self._starts.end(start, accepted=False)
            raise
        await self._starts.end(start, accepted=True)
        _log.info("started version %d of %s [%s]", wanted.version, wanted.workflow_id, wanted.key)
        return Launched(run_id)

    async def _hand_over(self, wanted: Wanted, now: int) -> str | None:
        try:
            ready = await self._launcher.ready(launch_of(wanted, now))
        except NoExecutorError as cause:
            raise NoRunnerError(str(cause)) from cause
        inner = self._launcher.inner
        answered: asyncio.Future[RunReport] = asyncio.get_running_loop().create_future()

        def hear(report: RunReport) -> None:
            if not answered.done():
                answered.set_result(report)
            if report.happened in ENDS and self._on_end is not None:
                self._on_end(report)

        if isinstance(inner, CallbackLauncher):
            # A call that has begun is accepted; how it ends is another matter.
            if not inner.knows(ready):
                raise LaunchFailedError("No function is registered under the executor's name")
            inner.start(ready, hear)
            return None
        inner.start(ready, hear)
        report = await answered
        if report.happened in REFUSED:
            raise LaunchFailedError(report.error or "The executor did not take it", key=wanted.key)
        return report.run_id

    async def close(self) -> None:
        """Wait for starts under way, and let what runs go on by itself."""
        tasks = [task for _, task in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks)
        await self._launcher.close(wait=False)


def _check(wanted: Wanted) -> None:
    if not KEY.fullmatch(wanted.key):
        reason = "must be 1 to 200 of A-Z a-z 0-9 . _ : -"
        raise InvalidOptionError(option="idempotency_key", value=ascii(wanted.key), reason=reason)
    fault = None if wanted.schedule_id is None else identity_fault(wanted.schedule_id)
    if fault is not None:
        raise InvalidOptionError(option="identity", value=ascii(wanted.schedule_id), reason=fault)


def _check_same(wanted: Wanted, workflow_id: str, version: int) -> None:
    if (wanted.workflow_id, wanted.version) != (workflow_id, version):
        message = f'The key "{wanted.key}" stands for a start of version {version} of "{workflow_id}"'
        raise ConflictError(message, idempotency_key=wanted.key)


def launch_of(wanted: Wanted, now: int) -> Launch:
    """Return a start as launchers know it: a job and a run that nobody else has on record."""
    said = {"workflow_id": wanted.workflow_id, "version": wanted.version, "user_id": wanted.user_id}
    name = wanted.schedule_id or wanted.workflow_id
    text = json.dumps({"kind": "workflow", **said})
    job = JobRecord(name, "{}", text, "workflow", 1, now, now, 1, wanted.scheduled_for, None, None)
    run = RunRecord(
        wanted.key, name, wanted.scheduled_for, now, RunStatus.STARTED, Reason.DUE, now, 1,
        is_open=1, attempt=wanted.attempt, token=wanted.token, started_at=now,
    )  # fmt: skip
    return Launch(job, run, request_id=present_request())


def reporter_of(registrar: Registrar) -> Callable[[RunReport], None]:
    """Return what notes the ends of runs that were started for a worker elsewhere, which waits for them."""
    noting: set[asyncio.Task[None]] = set()

    async def note(report: RunReport) -> None:
        feedback = Feedback(ENDS[report.happened], report.run_id, report.error, report.attempt)
        try:
            await take_feedback(registrar, report.key, feedback)
        except (UnknownRunError, ConflictError):
            _log.debug("nobody waits for the end of %s", report.key)
        except KronError as error:
            _log.warning("the end of %s was not noted: %s", report.key, error)

    def hear(report: RunReport) -> None:
        task = asyncio.create_task(note(report))
        noting.add(task)
        task.add_done_callback(noting.discard)

    return hear
