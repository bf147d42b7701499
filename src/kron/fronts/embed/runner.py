"""`kron.Runner`: the engine for `kron.Job` values that call functions of this program."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import Parameter, signature
from types import TracebackType
from uuid import uuid4

from kron.app.catalog import JobDefinition
from kron.app.preview import preview_resume
from kron.core.errors import ConflictError, InvalidOptionError, UnknownJobError
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.pause import BY_HAND
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch
from kron.core.plan.step import DEFAULT_LIMITS
from kron.core.plan.why import Explanation
from kron.core.time.instant import EPOCH, datetime_of, seconds_of
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.housekeeping import Housekeeping
from kron.fronts.embed.registration import callback_fault
from kron.fronts.embed.store_source import State
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Clock, Store
from kron.runtime.journal import LogJournal

Work = Callable[..., Awaitable[object]]
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One period of a job, or one manual run, with its latest attempt.

    `key` is the same for every attempt: use it as an idempotency key to do the work once.
    """

    job: str
    key: str
    kind: str
    nominal_time: datetime
    fire_time: datetime
    status: str
    reason: Reason
    outcome: Outcome | None
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


class Runner:
    """Runs jobs, with windows, constraints and every policy, inside a program.

    `add` jobs before or after the start; `async with runner:` starts and stops. `state` is a URL as for
    `kron.Scheduler`; `name` separates the jobs of several runners; at most `max_calls` functions run at
    once. With `wait` it waits for the lease of another process with the same name and state.
    """

    def __init__(
        self,
        state: str | Store | None = None,
        *,
        name: str = "main",
        clock: Clock | None = None,
        max_calls: int | None = None,
        wait: bool = False,
    ) -> None:
        self._wiring = Wiring(State(state), clock, kind="runner", name=name)
        self._max_calls = max_calls
        self._wait = wait
        self._jobs: dict[str, tuple[Job, Callback]] = {}
        self._is_running = False
        self._housekeeping = Housekeeping(self._wiring.clock)

    # --- life cycle ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take over the jobs and run them; nothing starts before this has returned."""
        if self._is_running:
            raise ConflictError("The runner is running already")
        self._is_running = True
        try:
            launcher = CallbackLauncher(self._wiring.clock, max_calls=self._max_calls)
            launcher.callbacks.update((name, call) for name, (_, call) in self._jobs.items())
            self._wiring.assemble(LogJournal(), launcher)
            await self._wiring.worker.take_over(wait=self._wait)
            await self._register([job for job, _ in self._jobs.values()])
        except BaseException:
            self._is_running = False
            await self._wiring.give_up()
            raise
        self._wiring.worker.start()
        self._housekeeping.start(self._crash)

    async def stop(self) -> None:
        """Start nothing more, wait for the running functions, and close the store."""
        if self._wiring.launcher.is_inside():
            raise ConflictError("A function cannot wait for stop(), which waits for the function")
        if self._is_running:
            self._is_running = False
            self._wiring.worker.drain()
            self._housekeeping.end()
            await self._wiring.close()

    async def __aenter__(self) -> "Runner":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _crash(self) -> None:
        """Drop everything without writing, as the death of the process would."""
        self._housekeeping.end()
        if self._is_running:
            self._is_running = False
            self._wiring.crash()

    @property
    def clock_behind(self) -> timedelta:
        """Return how far the clock is behind the latest recorded instant, zero within a minute."""
        return self._wiring.clock_behind

    # --- jobs ------------------------------------------------------------------------------------

    def add(self, job: Job, callback: Work) -> Awaitable[None]:
        """Run an async function for a job; the function may take the `Run` as its argument.

        A job of the same identity is edited. After the start it is written at once: await the result to know
        when it is committed.
        """
        if fault := callback_fault(callback, arguments=1):
            raise InvalidOptionError(option="callback", value=callback, reason=fault)
        jitter, most = job.policy.jitter_ms, DEFAULT_LIMITS.lookahead_ms
        if jitter > most:
            reason = f"is longer than the runner's lookahead: use at most {most}"
            raise InvalidOptionError(option="policy.jitter_ms", value=jitter, reason=reason)
        call = _calling(callback)
        self._jobs[job.identity] = job, call
        if not self._is_running:
            return Done()
        self._wiring.launcher.callbacks[job.identity] = call
        return asyncio.create_task(self._register([job]), name=f"kron add {job.identity}")

    async def remove(self, identity: str) -> None:
        """Delete a job: waiting runs are cancelled, running ones may end, and its history stays."""
        with self._known_jobs():
            await self._wiring.catalog.delete(identity)
        self._jobs.pop(identity, None)

    async def pause(self, identity: str, *, because: str = BY_HAND, until: datetime | None = None) -> None:
        """Pause a job, until an instant if one is given; its periods are judged when it is resumed."""
        ends_at = None if until is None else 1000 * seconds_of(until)
        with self._known_jobs():
            await self._wiring.catalog.pause(identity, because=because, until=ends_at)

    async def preview_resume(self, identity: str) -> int:
        """Return how many periods would run if the job were resumed now."""
        with self._known_jobs():
            now = self._wiring.engine.now()
            return (await preview_resume(self._wiring.catalog.query, identity, now=now)).total

    async def resume(self, identity: str) -> int:
        """Resume a job and return how many periods it runs now; `preview_resume` returns it before.

        That is none while the job's policy suspends it, which only another definition changes.
        """
        with self._known_jobs():
            return (await self._wiring.catalog.resume(identity)).preview.total

    async def run_now(self, identity: str, *, request: str | None = None) -> str:
        """Start a job once beside its schedule and return the run's key; the same request runs once."""
        name = uuid4().hex if request is None else request
        with self._known_jobs():
            return (await self._wiring.catalog.run_now(identity, name)).key

    # --- history ---------------------------------------------------------------------------------

    async def runs(self, identity: str, *, before: datetime | None = None, limit: int = 100) -> list[Run]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        at = None if before is None else seconds_of(before)
        with self._known_jobs():
            return list(map(_run_of, await self._wiring.catalog.query.runs(identity, before=at, limit=limit)))

    async def why(self, identity: str, nominal_time: datetime) -> Explanation:
        """Return why a period ended as it did, or its present state, as a chain of facts.

        A naive datetime is a wall time in the job's zone.
        """
        with self._known_jobs():
            return await self._wiring.catalog.query.why(identity, nominal_time)

    # --- writing ---------------------------------------------------------------------------------

    async def _register(self, jobs: list[Job]) -> None:
        with self._wiring.clock.working():
            await self._wiring.catalog.upsert([JobDefinition(job) for job in jobs])

    @contextmanager
    def _known_jobs(self) -> Iterator[None]:
        """Require a running runner, and name an unknown job as the caller did."""
        if not self._is_running:
            raise ConflictError("The runner is not running; use `async with runner:`")
        try:
            yield
        except UnknownJobError as error:
            identity = error.details["identity"]
            raise InvalidOptionError(option="job", value=identity, reason="there is no such job") from error


class Done:
    """An awaitable that is done already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _run_of(record: RunRecord) -> Run:
    """Return a run from its record."""
    return Run(
        job=record.identity,
        key=record.key,
        kind=record.kind.value,
        nominal_time=datetime_of(record.nominal_time),
        fire_time=_moment(record.fire_time),
        status=record.status.value,
        reason=record.reason,
        outcome=record.outcome,
        attempt=record.attempt,
        started_at=None if record.started_at is None else _moment(record.started_at),
        ended_at=None if record.ended_at is None else _moment(record.ended_at),
        error=record.error,
    )


def _moment(milliseconds: int) -> datetime:
    """Return milliseconds since 1970 as an aware datetime."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def _calling(work: Work) -> Callback:
    """Return a callback that calls a function, with the run if it takes an argument."""
    takes_run = any(parameter.kind in POSITIONAL for parameter in signature(work).parameters.values())

    async def call(launch: Launch) -> None:
        await (work(_run_of(launch.run)) if takes_run else work())

    return call
