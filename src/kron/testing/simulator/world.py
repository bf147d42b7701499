"""The simulated world: plays a scenario with the real scheduler on a real store, in virtual time."""

import asyncio
import io
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from kron.core.errors import InputError, KronError
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunRecord
from kron.core.task.errors import SchedulerAlreadyActiveError
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.file import MEMORY
from kron.testing.crash import kill, trace
from kron.testing.faulty_store import Fault, was_injected
from kron.testing.simulator.compute import ComputeModel
from kron.testing.simulator.crash_store import CrashStore, InlineStore
from kron.testing.simulator.demand import CallOracle
from kron.testing.simulator.flaws import FLAWS, flawed
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask
from kron.testing.simulator.step_counter import CountedClock, StampedTrace, StepCounter
from kron.testing.simulator.trace_repair import complete, supernatural

NAMESPACE = "embed:main"
FILE = "simulated.db"
# The fault-free time at the end in which the scheduler must fulfil its obligations.
RECOVERY = timedelta(minutes=5)
FOREVER = timedelta(days=36_525)
MAX_ROWS = 100_000
# The most real time for one piece of work.
MAX_WORK_S = 30.0
Callback = Callable[[], Awaitable[object]]
# A task, and the name of a trace event.
Seen = tuple[str, str]
ACTIVE = ("initializing", "running", "stopping")


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """All stored records of one task at the end."""

    job: JobRecord
    runs: list[RunRecord]
    ranges: list[RangeRecord]
    attempts: dict[str, list[AttemptRecord]]


@dataclass(slots=True)
class History:
    """The history of a scenario: the trace, the stored records, and the faults observed."""

    scenario: Scenario
    lines: list[str] = field(default_factory=list)
    tasks: list[TaskHistory] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    # The observed calls of each task per process lifetime; all but the last ended with a crash.
    uptimes: list[Counter[Seen]] = field(default_factory=lambda: [Counter()])
    # The observed calls of `initialize` and `stop` per process lifetime, by the name of the trace event.
    calls: list[Counter[str]] = field(default_factory=lambda: [Counter()])
    is_running: bool = False
    until: int = 0
    # The counter of the engine's steps, if they were counted.
    counter: StepCounter | None = None


class World:
    """A clock, a store that survives crashes, and the running scheduler."""

    def __init__(self, scenario: Scenario, folder: Path | None, compute: ComputeModel | None) -> None:
        self._path = MEMORY if folder is None else str(folder / FILE)
        self._zone = scenario.zone
        self._counter = None if compute is None else StepCounter(compute)
        self.clock = CountedClock(EPOCH + timedelta(seconds=scenario.start), max_work_s=MAX_WORK_S)
        self.store = CrashStore(InlineStore(self._path), self.clock, self._crash)
        self.history = History(scenario, counter=self._counter)
        self._lines = io.StringIO() if self._counter is None else StampedTrace(self._counter)
        self._scripts: dict[str, list[str]] = {}
        self._calls: list[asyncio.Task[None]] = []
        self._busy: set[str] = set()
        self._crashed = False
        # The list that was accepted last; nothing else may be called.
        self._accepted: object = None
        self._processes = 0
        self._earlier_stops = 0
        self.scheduler = self._make()

    def _make(self) -> Scheduler:
        scheduler = Scheduler(self.store, clock=self.clock, timezone=self._zone)
        # The identifier decides when an owner prunes; a random one would make every history differ.
        self._processes += 1
        scheduler._wiring.identifier = f"process {self._processes}"
        trace(scheduler, self._lines, judge=CallOracle(was_injected))
        self._process = object()
        return scheduler

    # --- steps -----------------------------------------------------------------------------------

    async def play(self) -> History:
        """Take every step, let the scheduler recover without faults, and read the stored records."""
        with nullcontext() if self._counter is None else self._counter.counting(self.clock):
            await self._play_steps()
        await self._close()
        return self.history

    async def _play_steps(self) -> None:
        try:
            for step in self.history.scenario.steps:
                await self._take(step)
                if self._crashed:
                    await self._restart()
            self.store.heal()
            await self.clock.advance_to(self.clock.now() + RECOVERY)
        except TimeoutError as timeout:
            self.history.faults.append(str(timeout) or "work does not end")

    async def _take(self, step: ScenarioStep) -> None:
        for _ in range(step.turns):
            await asyncio.sleep(0)
        if self._crashed:
            await self._restart()
        match step.act:
            case Act.INIT:
                self._initialize(step)
            case Act.STOP:
                self._begin(self._stop(self.scheduler))
            case Act.CRASH:
                await asyncio.sleep(0)
                self._crash()
            case Act.TRAP:
                self.store.set_trap(step.call, step.how)
            case Act.FAULT:
                self.store.then(step.call, Fault(step.how))
            case Act.JUMP:
                self._jump(step.seconds)
            case Act.WAIT:
                await self.clock.advance_to(self.clock.now() + timedelta(seconds=step.seconds))

    def _initialize(self, step: ScenarioStep) -> None:
        if self.scheduler.state in ("uninitialized", "stopped"):
            self.store.put_at = None
        registrations: object = self._listed(step.tasks)
        if step.flaw:
            registrations = flawed(self._listed(step.tasks), step.flaw, self._callback("flawed", None))
        self._begin(self._call_initialize(self.scheduler, registrations, FLAWS.get(step.flaw)))

    def _begin(self, call: Coroutine[object, object, None]) -> None:
        """Run a call in a task, unless its process crashes before that."""
        process = self._process

        async def try_to() -> None:
            if process is not self._process:
                call.close()
                return
            with suppress(asyncio.CancelledError):
                await call

        self._calls.append(asyncio.create_task(try_to()))

    async def _call_initialize(
        self, scheduler: Scheduler, registrations: Any, refused_with: type[InputError] | None
    ) -> None:
        process, calls = self._process, self.history.calls[-1]
        was_active = scheduler.state in ACTIVE
        calls["InitStart"] += 1
        try:
            await scheduler.initialize(registrations)
        except Exception as error:  # noqa: BLE001 - whatever it raises is judged
            if process is self._process:
                calls["InitFailure"] += 1
                self._judge_refusal(error, SchedulerAlreadyActiveError if was_active else refused_with)
        else:
            calls["InitSuccess"] += 1
            self._accepted = registrations

    def _judge_refusal(self, error: Exception, expected: type[KronError] | None) -> None:
        """Judge the error of a refusal; whether the list had to be accepted is judged by S5."""
        if not was_injected(error) and (expected is None or not isinstance(error, expected)):
            self.history.faults.append(f"initialize raises {type(error).__name__}: {error}")

    async def _stop(self, scheduler: Scheduler) -> None:
        process, calls = self._process, self.history.calls[-1]
        calls["StopStart"] += 1
        try:
            await scheduler.stop()
        except Exception as error:  # noqa: BLE001 - whatever it raises is judged
            if process is self._process and not was_injected(error):
                self.history.faults.append(f"stop raises {type(error).__name__}: {error}")
        if process is self._process:
            calls["StopEnd"] += 1
            if self._ended_stops() - self._earlier_stops < calls["StopEnd"]:
                self.history.faults.append(f"stop returns before it is done, at {self.clock.now()}")

    def _ended_stops(self) -> int:
        return self._lines.getvalue().count('"StopEnd"')

    def _jump(self, seconds: float) -> None:
        if seconds < 0:
            supernatural(self._lines, "clock_back")
        self.clock.jump_to(self.clock.now() + timedelta(seconds=seconds))

    # --- callbacks -------------------------------------------------------------------------------

    def _listed(self, tasks: tuple[ScenarioTask, ...]) -> list[object]:
        self._scripts.update({task.name: list(task.does) for task in tasks})
        listed: list[object] = []
        listed += [
            (task.name, task.cron, self._callback(task.name, listed), timedelta(seconds=task.retry_s))
            for task in tasks
        ]
        return listed

    def _callback(self, name: str, listed: object) -> Callback:
        """Return a function of a list that records its call and follows the task's script."""

        async def call() -> None:
            process = self._process
            if self._accepted is not listed:
                self.history.faults.append(f"{name} of another list is called, at {self.clock.now()}")
            if name in self._busy:
                self.history.faults.append(f"{name} is called while it runs, at {self.clock.now()}")
            self._busy.add(name)
            self.history.uptimes[-1][name, "RunStart"] += 1
            ended_as = "RunFailure"
            try:
                await self._act(name)
                ended_as = "RunSuccess"
            finally:
                if process is self._process:
                    self._busy.discard(name)
                    self.history.uptimes[-1][name, ended_as] += 1

        return call

    async def _act(self, name: str) -> None:
        script = self._scripts.get(name)
        step = script.pop(0) if script else "ok"
        how, _, takes = step.rpartition(" ")
        if step == "hang":
            await self.clock.sleep_until(self.clock.now() + FOREVER)
        elif takes.endswith("s"):
            await self.clock.sleep_until(self.clock.now() + timedelta(seconds=float(takes[:-1])))
        if "fail" in (how, step):
            raise ValueError("failed by the scenario")

    # --- crash and restart -----------------------------------------------------------------------

    def _crash(self) -> None:
        """End everything at once."""
        if not self._crashed:
            self._crashed = True
            self._process = object()
            self._busy = set()
            self._accepted = None
            self.history.uptimes.append(Counter())
            self.history.calls.append(Counter())
            self._count(False)
            kill(self.scheduler)

    async def _restart(self) -> None:
        """Start another scheduler with the same state; recorded events have happened (reading 14)."""
        await asyncio.sleep(0)
        store = self.store.inner
        assert isinstance(store, InlineStore)
        store.drop_locks()
        if self._path != MEMORY:
            await store.close()
            self.store.inner = InlineStore(self._path)
        tasks = await self._task_histories()
        complete(self._lines, tasks, self.store.put_at)
        self._earlier_stops = self._ended_stops()
        self.store.put_at = None
        self._crashed = False
        self._count(True)
        self.scheduler = self._make()

    def _count(self, counts: bool) -> None:
        """Switch the counter; a crashed process takes no steps."""
        if self._counter is not None:
            self._counter.is_counting = counts

    async def _task_histories(self) -> list[TaskHistory]:
        store, histories = self.store.inner, []
        for state in await store.cases(NAMESPACE):
            name = state.job.identity
            runs = await store.runs(NAMESPACE, name, limit=MAX_ROWS)
            attempts = {run.key: await store.attempts(NAMESPACE, run.key) for run in runs if run.attempt > 1}
            histories.append(TaskHistory(state.job, runs, await store.ranges(NAMESPACE, name), attempts))
        return histories

    async def _close(self) -> None:
        """Stop, and collect everything that the judge needs."""
        history, engine = self.history, getattr(self.scheduler._wiring, "engine", None)
        history.is_running = self.scheduler.state == "running"
        if history.is_running and engine is not None and engine.health.state not in ("running", "ready"):
            history.faults.append(f"the engine is {engine.health.state}: {engine.health.error}")
        history.faults += [f"a stored record cannot be read: {error}" for error in self.scheduler.quarantined]
        history.until = (self.clock.now() - EPOCH) // MILLISECOND
        history.tasks = await self._task_histories()
        history.lines = self._lines.getvalue().splitlines()
        # Calls that end from here on are aborted.
        self._process = object()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        with suppress(asyncio.CancelledError):
            await kill(self.scheduler)
        await self.store.inner.close()


async def play(
    scenario: Scenario, folder: Path | None = None, compute: ComputeModel | None = None
) -> History:
    """Play a scenario in memory, or with a file in a folder; with a compute model, count every step."""
    return await World(scenario, folder, compute).play()
