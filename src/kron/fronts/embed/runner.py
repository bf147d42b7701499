"""`kron.Runner`: the whole engine for `kron.Job` values whose work is a function of this program."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from datetime import datetime
from types import TracebackType
from uuid import uuid4

from kron.core.errors import ConflictError, InvalidOptionError, StoreError
from kron.core.job.job import Job
from kron.core.plan.compiled import definition_of
from kron.core.plan.registration import ask_for, create, delete, edit, pause, resume
from kron.core.plan.resume_preview import starts_on_resume
from kron.core.plan.step import Change, JobState
from kron.core.plan.why import Explanation
from kron.core.time.instant import seconds_of
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.housekeeping import Caretaker
from kron.fronts.embed.registration import callback_fault
from kron.fronts.embed.run import Run, Work, calling, run_of
from kron.fronts.embed.store_source import State
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Clock, Store
from kron.runtime import why as inquiry
from kron.runtime.journal import LogJournal

# How often a change is made anew because somebody else changed the job meanwhile.
MAX_TRIES = 10


class Runner:
    """Runs jobs, with windows, constraints and every policy, inside a program.

    `add` jobs before or after the start; `async with runner:` starts and stops. `state` is a URL as for
    `kron.Scheduler`; `name` keeps the jobs of several runners apart; at most `max_calls` functions run at
    once. With `wait` it waits for another process that has the same name and state.
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
        self._caretaker = Caretaker(self._wiring.clock, clean=self._wiring.prune)

    # --- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look after the jobs; nothing starts before this has returned."""
        if self._is_running:
            raise ConflictError("The runner is running already")
        self._is_running = True
        try:
            launcher = CallbackLauncher(self._wiring.clock, max_calls=self._max_calls)
            launcher.callbacks.update((name, call) for name, (_, call) in self._jobs.items())
            self._wiring.assemble(LogJournal(), launcher)
            await self._wiring.take_over(wait=self._wait)
            await self._write([job for job, _ in self._jobs.values()])
        except BaseException:
            self._is_running = False
            await self._wiring.give_up()
            raise
        self._wiring.engine.run()
        self._caretaker.begin(self._crash)

    async def stop(self) -> None:
        """Start nothing more, wait for the functions that run, and let go of everything."""
        if self._wiring.launcher.is_inside():
            raise ConflictError("A function cannot wait for stop(), which waits for the function")
        if self._is_running:
            self._is_running = False
            self._wiring.engine.drain()
            self._caretaker.end()
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
        self._caretaker.end()
        if self._is_running:
            self._is_running = False
            self._wiring.crash()

    # --- jobs ------------------------------------------------------------------------------------

    def add(self, job: Job, callback: Work) -> Awaitable[None]:
        """Have a job call an async function, which may take the `Run` as its argument.

        A job of the same identity is changed. After the start it is written at once; awaiting what this
        returns says when.
        """
        if fault := callback_fault(callback, arguments=1):
            raise InvalidOptionError(option="callback", value=callback, reason=fault)
        call = calling(callback)
        self._jobs[job.identity] = job, call
        if not self._is_running:
            return Done()
        self._wiring.launcher.callbacks[job.identity] = call
        return asyncio.create_task(self._write([job]), name=f"kron add {job.identity}")

    async def remove(self, identity: str) -> None:
        """Delete a job: what waits is cancelled, what runs may end, and its runs stay on record."""
        await self._change(identity, lambda case, now: delete(case.job, list(case.runs), now=now))
        self._jobs.pop(identity, None)

    async def pause(self, identity: str, *, because: str = "by hand") -> None:
        """Have a job start nothing by itself; its periods are judged when it is resumed."""
        await self._change(identity, lambda case, _: pause(case.job, list(case.runs), because=because))

    async def preview_resume(self, identity: str) -> int:
        """Return how many periods would start if the job were resumed now."""
        return starts_on_resume(await self._case(identity), now=self._wiring.engine.now())

    async def resume(self, identity: str) -> int:
        """Resume a job and return how many periods start now; `preview_resume` tells before."""
        found = 0

        def resumed(case: JobState, now: int) -> Change:
            nonlocal found
            found = starts_on_resume(case, now=now)
            return resume(case.job, list(case.runs), now=now)

        await self._change(identity, resumed)
        return found

    async def run_now(self, identity: str, *, request: str | None = None) -> str:
        """Start a job once beside its schedule and return the run's key; the same request runs once."""
        wish = uuid4().hex if request is None else request
        asked = await self._change(identity, lambda case, now: ask_for(case.job, request=wish, now=now))
        return asked.inserts[0].key

    # --- questions -------------------------------------------------------------------------------

    async def runs(self, identity: str, *, before: datetime | None = None, limit: int = 100) -> list[Run]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        self._check_running()
        at = None if before is None else seconds_of(before)
        found = await self._wiring.store.runs(self._wiring.namespace, identity, before=at, limit=limit)
        return list(map(run_of, found))

    async def why(self, identity: str, nominal_time: datetime) -> Explanation:
        """Return why a period ended as it did, or where it stands, as a chain of facts.

        A naive datetime is a wall time in the job's zone.
        """
        await self._case(identity)
        store, space, now = self._wiring.store, self._wiring.namespace, self._wiring.engine.now()
        return await inquiry.why(store, space, identity, nominal_time, now=now)

    # --- writing ---------------------------------------------------------------------------------

    async def _case(self, identity: str) -> JobState:
        self._check_running()
        cases = await self._wiring.store.cases(self._wiring.namespace, [identity])
        if not cases:
            raise InvalidOptionError(option="job", value=identity, reason="there is no such job")
        return cases[0]

    async def _change(self, identity: str, make: Callable[[JobState, int], Change]) -> Change:
        """Make a change of one job, again where somebody else was quicker."""
        self._check_running()
        store, space = self._wiring.store, self._wiring.namespace
        for _ in range(MAX_TRIES):
            case = await self._case(identity)
            now = self._wiring.engine.now()
            change = make(case, now)
            settled = await store.put(space, created=[], changed=[change], now=now)
            if not settled.stale_jobs:
                # A run that was asked for before exists, and one is enough.
                self._wiring.engine.call()
                return change
        raise StoreError(f'The job "{identity}" cannot be changed: somebody else keeps changing it')

    async def _write(self, jobs: Sequence[Job]) -> None:
        """Write new and changed jobs, all or none."""
        store, space = self._wiring.store, self._wiring.namespace
        names = [job.identity for job in jobs]
        for _ in range(MAX_TRIES):
            with self._wiring.clock.working():
                stored = {case.job.identity: case for case in await store.cases(space, names)}
                now = self._wiring.engine.now()
                created = [create(job, now=now) for job in jobs if job.identity not in stored]
                known = [(stored[job.identity], job) for job in jobs if job.identity in stored]
                edits = [(case, job) for case, job in known if _differs(case, job)]
                changed = [edit(case.job, list(case.runs), job, now=now) for case, job in edits]
                settled = await store.put(space, created=created, changed=changed, now=now)
            if not settled.stale_jobs and not settled.existing_runs:
                self._wiring.engine.call()
                return
        raise StoreError("The jobs cannot be written: somebody else keeps changing them")

    def _check_running(self) -> None:
        if not self._is_running:
            raise ConflictError("The runner is not running; use `async with runner:`")


class Done:
    """Something that is done already; awaiting it takes no time."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _differs(case: JobState, job: Job) -> bool:
    return case.job.deleted_at is not None or case.job.definition != definition_of(job)
