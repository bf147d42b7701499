"""`kron.Runner`: the engine for `kron.Job` values that call functions of this program."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutine
from types import TracebackType
from typing import TypeVar, Unpack
from uuid import uuid4

from kron.app.catalog import JobDefinition
from kron.app.preview import preview_resume
from kron.app.query import LATEST
from kron.app.worker import NoticeSender
from kron.core.cron.schedule import Schedule
from kron.core.errors import ConflictError, InvalidOptionError, OwnedError, UnknownJobError
from kron.core.fields import suggestion
from kron.core.job.job import Job, check_has_times
from kron.core.job.notify import IS_REDACTED, Notify, parse_notify
from kron.core.plan.compiled import compiled_job
from kron.core.plan.next_start import NextStart, next_start
from kron.core.plan.pause import BY_HAND
from kron.core.plan.query import JobFilter
from kron.core.plan.report import Launch
from kron.core.plan.step import DEFAULT_LIMITS, JobState
from kron.core.time.instant import seconds_of
from kron.fronts.embed.answer import JobStatus, Run, Why, run_of, status_of, why_of
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.background import BackgroundThread
from kron.fronts.embed.housekeeping import Housekeeping
from kron.fronts.embed.job_options import JobOptions, job_of
from kron.fronts.embed.registration import callback_fault, is_async, takes_argument
from kron.fronts.embed.store_source import State
from kron.fronts.embed.thread_call import MAX_THREADS, CallThreads, without_exit
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Clock, Journal, Store
from kron.runtime.journal import LogJournal

Work = Callable[..., object]
Decorated = TypeVar("Decorated", bound=Work)
Answer = TypeVar("Answer")
_log = logging.getLogger("kron.runner")
# Every job that is not deleted, and how many of them are read at once.
EVERY, PAGE = JobFilter(), 1_000
# How many names a warning has at most.
MAX_LISTED = 10
NOT_RUNNING = "The runner is not running; use `async with runner:`, or `with runner:` without an event loop"
FORKED = "The runner runs in the process that this one was forked from; start it after the fork"
STOP_IN_CALL = "A function cannot wait for stop(), which waits for the function"


class Runner:
    """Runs jobs, with windows, constraints and every policy, inside a program.

    `job` decorates a function with its schedule, and `add` takes a `kron.Job`, before or after the start.
    `async with runner:` runs the jobs in the program's event loop; a program without one uses `with runner:`,
    or `start()` and `stop()`, which run them in a background thread. Async functions run in the event loop,
    others in one of `max_threads` threads.

    `state` is a URL as for `kron.Scheduler`; `name` separates the jobs of several runners; at most
    `max_calls` functions run at once. With `wait` it waits for the lease of another process with the same
    name and state; a background thread waits after `start()` has returned. `notify` is the default of
    jobs that define none, and has the `channels` that jobs may name.
    """

    def __init__(
        self,
        state: str | Store | None = None,
        *,
        name: str = "main",
        clock: Clock | None = None,
        max_calls: int | None = None,
        max_threads: int = MAX_THREADS,
        wait: bool = False,
        notify: Mapping[str, object] | None = None,
    ) -> None:
        given = dict(notify or {})
        channels = given.pop("channels", None)
        self._channels: Mapping[str, object] = channels if isinstance(channels, Mapping) else {}
        self._notify = parse_notify(given) if given else None
        self._check_channels(self._notify, "notify")
        self._journal = LogJournal()
        self._wiring = Wiring(State(state), clock, kind="runner", name=name)
        self._max_calls = max_calls
        self._threads = CallThreads(self._wiring.clock, max_threads)
        self._wait = wait
        self._jobs: dict[str, tuple[Job, Work]] = {}
        self._is_running = self._is_simulated = False
        self._housekeeping = Housekeeping(self._wiring.clock)
        # The event loop that the runner runs in, and its thread if the runner started one.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: BackgroundThread | None = None
        self._pid = os.getpid()

    # --- life cycle ------------------------------------------------------------------------------

    def start(self) -> Awaitable[None]:
        """Take over the jobs and run them.

        Await it in a program with an event loop; nothing starts before it has returned. Without one it
        starts a background thread, and returns or raises when the jobs are taken over; with `wait` it also
        returns when another process has them.
        """
        if self._is_running or (self._background is not None and self._background.is_alive):
            raise ConflictError(FORKED if self._is_forked else "The runner is already running")
        if _running_loop() is not None:
            return self._start()
        thread = f"kron {self._wiring.namespace}"
        self._background = BackgroundThread(self._start, self._stop, name=thread)
        try:
            self._background.start()
        except BaseException:
            self._background = None
            raise
        return Done()

    async def _start(self) -> None:
        if self._is_running:
            raise ConflictError("The runner is already running")
        self._is_running = True
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        try:
            launcher = CallbackLauncher(self._wiring.clock, max_calls=self._max_calls)
            launcher.callbacks.update((name, self._calling(work)) for name, (_, work) in self._jobs.items())
            needed = self._channels or self._notify or any(job.notify for job, _ in self._jobs.values())
            sender = self._sender if needed and not self._is_simulated else None
            self._wiring.assemble(self._journal, launcher, sender=sender)
            await self._take_over()
            await self._register([job for job, _ in self._jobs.values()])
            await self._warn_of_jobs_without_functions()
        except BaseException:
            self._is_running = False
            await self._wiring.give_up()
            raise
        self._wiring.worker.start()
        self._housekeeping.start(self._crash)

    async def _warn_of_jobs_without_functions(self) -> None:
        """Log stored jobs that the program no longer names: their starts fail until they are removed."""
        with self._wiring.clock.working():
            stored = await self._wiring.catalog.query.jobs(EVERY, limit=PAGE)
        names = [found.job.identity for found in stored if found.job.identity not in self._jobs]
        if names:
            listed = ", ".join(map(repr, names[:MAX_LISTED]))
            _log.warning("%d stored jobs have no function here; add or remove() them: %s", len(names), listed)

    async def _take_over(self) -> None:
        worker = self._wiring.worker
        try:
            await worker.take_over()
        except OwnedError:
            if not self._wait:
                raise
            _log.info("standing by: another process runs the jobs of %r", self._wiring.namespace)
            if self._background is not None:
                self._background.stand_by()
            await worker.take_over(wait=True)

    def stop(self) -> Awaitable[None]:
        """Start nothing more, wait for the running functions, and close the store.

        Await it in a program with an event loop. A background thread has ended when it returns, and an
        exception that ended the thread is raised here.
        """
        loop, background = _running_loop(), self._background
        if self._threads.is_inside():
            raise ConflictError(STOP_IN_CALL)
        if background is None or (loop is not None and loop is self._loop):
            return Done() if loop is None else self._stop()
        if loop is not None:
            return asyncio.to_thread(self._end, background)
        self._end(background)
        return Done()

    def _end(self, background: BackgroundThread) -> None:
        try:
            background.stop()
        finally:
            self._background = None

    async def _stop(self) -> None:
        if self._wiring.launcher.is_inside():
            raise ConflictError(STOP_IN_CALL)
        if self._is_running:
            self._is_running = False
            self._wiring.worker.drain()
            self._housekeeping.end()
            try:
                await self._wiring.close()
            finally:
                self._threads.close()
                if self._background is not None:
                    self._background.request_stop()

    async def __aenter__(self) -> "Runner":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> "Runner":
        if _running_loop() is not None:
            raise ConflictError("This thread has an event loop; use `async with runner:`")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self, answer: Awaitable[Answer]) -> Answer:
        """Return the result of a call of this runner from a thread that has no event loop.

        For example `runner.wait(runner.runs("report"))` while the runner is in a background thread, or in a
        function that runs in a thread.
        """
        loop = self._loop if self._is_running else None
        if loop is None or self._is_forked or _running_loop() is not None:
            if iscoroutine(answer):
                answer.close()
            here = FORKED if self._is_forked else "This thread has an event loop; use await"
            raise ConflictError(NOT_RUNNING if loop is None else here)
        if not loop.is_running():
            # A test in virtual time: its event loop runs only when it is used.
            return loop.run_until_complete(_awaited(answer))
        return asyncio.run_coroutine_threadsafe(_awaited(answer), loop).result()

    @property
    def _is_forked(self) -> bool:
        """Say whether this is a child of the process that the runner runs in: its threads are not here."""
        return self._is_running and self._pid != os.getpid()

    @contextmanager
    def _rewired(self, state: Store, clock: Clock) -> Iterator[None]:
        """Use another state and clock for a time, and notify no target; for `kron.testing`."""
        if self._is_running:
            raise ConflictError("The runner is already running")
        kept = self._wiring, self._threads, self._housekeeping
        kind, _, name = self._wiring.namespace.partition(":")
        self._wiring = Wiring(State(state), clock, kind=kind, name=name)
        self._threads = CallThreads(clock, self._threads.max_threads)
        self._housekeeping = Housekeeping(clock)
        self._is_simulated = True
        try:
            yield
        finally:
            self._is_simulated = False
            self._wiring, self._threads, self._housekeeping = kept

    def _crash(self) -> None:
        """Drop everything without writing, as the death of the process would."""
        self._housekeeping.end()
        if self._is_running:
            self._is_running = False
            self._wiring.crash()
            self._threads.close()

    @property
    def error(self) -> str | None:
        """Return the present problem of a running runner, such as a store that does not answer, or None."""
        return self._wiring.worker.error if self._is_running else None

    @property
    def clock_behind(self) -> timedelta:
        """Return how far the clock is behind the latest recorded instant, zero within a minute."""
        return self._wiring.clock_behind

    # --- jobs ------------------------------------------------------------------------------------

    def job(
        self, schedule: str | Schedule, *, identity: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Decorated], Decorated]:
        """Decorate a function with its schedule; the function itself is unchanged.

        `identity` is the job's stable name, by default the function's. The options are the fields of a job
        and of its policy: `@runner.job("*/5 * * * *", window="2m", deadline="1m")`.
        """
        if callable(schedule):
            reason = 'a job needs its schedule, as in @runner.job("0 3 * * *")'
            raise InvalidOptionError(option="schedule", value=schedule, reason=reason)

        def decorate(function: Decorated) -> Decorated:
            name = getattr(function, "__name__", None) if identity is None else identity
            if name is None or name == "<lambda>":
                raise InvalidOptionError(
                    option="identity", value=name, reason="the function has no name; give one"
                )
            if name in self._jobs and self._jobs[name][1] is not function:
                reason = "another function has this identity; give each its own"
                raise InvalidOptionError(option="identity", value=name, reason=reason)
            self.add(job_of(name, schedule, **options), function)
            return function

        return decorate

    def add(self, job: Job, callback: Work) -> Awaitable[None]:
        """Run a function for a job; it may take the `Run` as its argument.

        An async function runs in the event loop, any other in a thread. A job of the same identity is edited.
        After the start it is written at once: await the result to know when it is committed; in a thread
        without an event loop it is committed when this returns.
        """
        if fault := callback_fault(callback, arguments=1, may_block=True):
            raise InvalidOptionError(option="callback", value=callback, reason=fault)
        check_has_times(job)
        jitter, most = job.policy.jitter_ms, DEFAULT_LIMITS.lookahead_ms
        if jitter > most:
            reason = f"is longer than the runner's lookahead: use at most {most}"
            raise InvalidOptionError(option="policy.jitter_ms", value=jitter, reason=reason)
        self._check_channels(job.notify, "job.notify")
        self._jobs[job.identity] = job, callback
        if not self._is_running:
            return Done()
        self._wiring.launcher.callbacks[job.identity] = self._calling(callback)
        if _running_loop() is None:
            self.wait(self._register([job]))
            return Done()
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

    async def next_start(self, identity: str) -> NextStart:
        """Return the job's next period and its next start, with the periods passed over before it.

        The same answer as in the service: windows, constraints, jitter and a pause with an end are included.
        """
        with self._known_jobs():
            state = await self._wiring.catalog.query.state(identity)
        return next_start(state, self._wiring.engine.now())

    async def jobs(self) -> list[JobStatus]:
        """Return every job in the order of their names, each with its next start.

        A job that is stored, and that neither `add` nor `job` has named since, has no function.
        """
        query, listed = self._wiring.catalog.query, list[JobStatus]()
        with self._known_jobs():
            page = await query.jobs(EVERY, limit=PAGE)
            while page:
                states = await query.states([found.job.identity for found in page])
                listed += (self._status_of(states[found.job.identity]) for found in page)
                page = await query.jobs(EVERY, after=page[-1].job.identity, limit=PAGE)
        return listed

    def _status_of(self, state: JobState) -> JobStatus:
        identity = state.job.identity
        added = self._jobs.get(identity)
        stored = compiled_job(state.job.definition, identity).for_job(identity)
        following = next_start(state, self._wiring.engine.now())
        definition = stored if added is None else added[0]
        return status_of(state, definition, following, has_function=added is not None)

    # --- notifications ---------------------------------------------------------------------------

    def _sender(self, store: Store, journal: Journal) -> NoticeSender:
        # Imported here: a program that only runs functions needs neither an HTTP client nor SMTP.
        from kron.app.notify.channel import parse_channels
        from kron.app.notify.sender import NotifyOptions, Sender

        options = NotifyOptions(channels=parse_channels(self._channels), default=self._notify)
        clock, namespace = self._wiring.clock, self._wiring.namespace
        return Sender(store, clock, namespace=namespace, options=options, journal=journal)

    def _check_channels(self, notify: Notify | None, option: str) -> None:
        """Refuse the name of a channel that the runner does not have."""
        for name in () if notify is None else notify.hidden() + notify.encrypted():
            raise InvalidOptionError(option=f"{option}.{name}", value=None, reason=IS_REDACTED)
        for name in () if notify is None else notify.channels():
            if name not in self._channels:
                reason = f"there is no such channel; {suggestion(name, self._channels)}"
                raise InvalidOptionError(option=f"{option}.to", value=name, reason=reason)

    # --- history ---------------------------------------------------------------------------------

    async def runs(self, identity: str, *, before: datetime | None = None, limit: int = 100) -> list[Run]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        at = None if before is None else seconds_of(before)
        with self._known_jobs():
            runs = await self._wiring.catalog.query.runs(identity, before=at, limit=limit)
            intervals = await self._wiring.catalog.query.data_intervals(identity, runs)
        return list(map(run_of, runs, intervals))

    async def why(self, identity: str, nominal_time: datetime | str = LATEST) -> Why:
        """Return why a period ended as it did, or its present state, as a chain of facts.

        By default that is the latest period. A naive datetime is a wall time in the job's zone.
        """
        with self._known_jobs():
            return why_of(await self._wiring.catalog.query.why(identity, nominal_time))

    # --- calling and writing ---------------------------------------------------------------------

    def _calling(self, work: Work) -> Callback:
        """Return a callback that calls a function, with the run if it takes an argument."""
        takes_run, waits = takes_argument(work), is_async(work)

        async def call(launch: Launch) -> None:
            bound = partial(work, run_of(launch.run, launch.data_interval)) if takes_run else work
            if waits:
                result = bound()
                assert isinstance(result, Awaitable)
                await (result if self._background is None else without_exit(result))
            else:
                await self._threads.call(launch.job.identity, bound)

        return call

    async def _register(self, jobs: list[Job]) -> None:
        worker = self._wiring.worker
        is_silent = worker.has_sender or self._is_simulated
        if not is_silent and any(job.notify is not None for job in jobs):
            worker.use_sender(self._sender(self._wiring.store, self._journal))
        with self._wiring.clock.working():
            await self._wiring.catalog.upsert([JobDefinition(job) for job in jobs])

    @contextmanager
    def _known_jobs(self) -> Iterator[None]:
        """Require a runner that runs in this event loop, and name an unknown job as the caller did."""
        if not self._is_running:
            raise ConflictError(NOT_RUNNING)
        if _running_loop() is not self._loop:
            raise ConflictError("The runner runs in another thread; use runner.wait(...)")
        try:
            yield
        except UnknownJobError as error:
            identity = error.details["identity"]
            raise InvalidOptionError(option="job", value=identity, reason="there is no such job") from error


class Done:
    """An awaitable that is done already."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _awaited(answer: Awaitable[Answer]) -> Answer:
    return await answer
