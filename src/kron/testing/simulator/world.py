"""The world: plays a scenario with the real scheduler on a real store, in virtual time."""

import asyncio
import io
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from kron.core.errors import KronError
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunRecord
from kron.core.plan.step import MILLISECOND
from kron.core.time.instant import EPOCH
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.file import MEMORY
from kron.testing.crash import kill, trace
from kron.testing.faulty_store import Fault
from kron.testing.simulator.compute import Weather
from kron.testing.simulator.crash_store import PromptStore, TrappedStore
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask
from kron.testing.simulator.step_counter import Meter, MeteredClock, Stamped
from kron.testing.simulator.trace_repair import complete, supernatural

SPACE = "embed:main"
FILE = "simulated.db"
# How long a scheduler has at the end to do what it owes, with nothing in its way.
PEACE = timedelta(minutes=5)
FOR_EVER = timedelta(days=36_525)
MAX_ROWS = 100_000
# Real time in which every piece of work ends, or never does.
MAX_WORK_S = 30.0
Callback = Callable[[], Awaitable[object]]
# A task, and what happened to it in the words of a trace.
Seen = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TaskMemory:
    """All that is on record of one task at the end."""

    job: JobRecord
    runs: list[RunRecord]
    ranges: list[RangeRecord]
    attempts: dict[str, list[AttemptRecord]]


@dataclass(slots=True)
class Story:
    """What happened: the trace, what is on record, and what the world itself saw go wrong."""

    scenario: Scenario
    lines: list[str] = field(default_factory=list)
    memories: list[TaskMemory] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    # What was seen of each task's calls in each life; all but the last life ended with a crash.
    lives: list[Counter[Seen]] = field(default_factory=lambda: [Counter()])
    is_running: bool = False
    until: int = 0
    # What the engine's steps were counted by, if they were.
    meter: Meter | None = None


class World:
    """A clock, a store that outlives crashes, and the scheduler that is on."""

    def __init__(self, scenario: Scenario, folder: Path | None, weather: Weather | None) -> None:
        self._path = MEMORY if folder is None else str(folder / FILE)
        self._zone = scenario.zone
        self._meter = None if weather is None else Meter(weather)
        self.clock = MeteredClock(EPOCH + timedelta(seconds=scenario.start), max_work_s=MAX_WORK_S)
        self.store = TrappedStore(PromptStore(self._path), self.clock, self._die)
        self.story = Story(scenario, meter=self._meter)
        self._lines = io.StringIO() if self._meter is None else Stamped(self._meter)
        self._scripts: dict[str, list[str]] = {}
        self._calls: list[asyncio.Task[None]] = []
        self._busy: set[str] = set()
        self._is_dead = False
        self.scheduler = self._make()

    def _make(self) -> Scheduler:
        made = Scheduler(self.store, clock=self.clock, timezone=self._zone)
        trace(made, self._lines)
        self._life = object()
        return made

    # --- steps -----------------------------------------------------------------------------------

    async def play(self) -> Story:
        """Take every step, then leave the scheduler in peace for a while, and ask what is on record."""
        with nullcontext() if self._meter is None else self._meter.reading(self.clock):
            await self._live()
        await self._close()
        return self.story

    async def _live(self) -> None:
        try:
            for step in self.story.scenario.steps:
                await self._take(step)
                if self._is_dead:
                    await self._rise()
            self.store.heal()
            await self.clock.advance_to(self.clock.now() + PEACE)
        except TimeoutError as endless:
            self.story.faults.append(str(endless) or "something works and never ends")

    async def _take(self, step: ScenarioStep) -> None:
        for _ in range(step.turns):
            await asyncio.sleep(0)
        if self._is_dead:
            await self._rise()
        match step.act:
            case Act.INIT:
                self._initialize(step.tasks)
            case Act.STOP:
                self._begin(self.scheduler.stop())
            case Act.CRASH:
                await asyncio.sleep(0)
                self._die()
            case Act.TRAP:
                self.store.set_trap(step.call, step.how)
            case Act.FAULT:
                self.store.then(step.call, Fault(step.how))
            case Act.JUMP:
                self._jump(step.seconds)
            case Act.WAIT:
                await self.clock.advance_to(self.clock.now() + timedelta(seconds=step.seconds))

    def _initialize(self, tasks: tuple[ScenarioTask, ...]) -> None:
        if self.scheduler.state in ("uninitialized", "stopped"):
            self.store.put_at = None
        self._begin(self.scheduler.initialize(self._listed(tasks)))

    def _begin(self, call: Coroutine[object, object, None]) -> None:
        life = self._life

        async def try_to() -> None:
            if life is not self._life:
                call.close()  # nobody calls the dead
                return
            with suppress(KronError, asyncio.CancelledError):
                await call

        self._calls.append(asyncio.create_task(try_to()))

    def _jump(self, seconds: float) -> None:
        if seconds < 0:
            supernatural(self._lines, "clock_back")
        self.clock.jump_to(self.clock.now() + timedelta(seconds=seconds))

    # --- callbacks -------------------------------------------------------------------------------

    def _listed(self, tasks: tuple[ScenarioTask, ...]) -> list[tuple[str, str, Callback, timedelta]]:
        self._scripts.update({task.name: list(task.does) for task in tasks})
        return [
            (task.name, task.cron, self._callback(task.name), timedelta(seconds=task.retry_s))
            for task in tasks
        ]

    def _callback(self, name: str) -> Callback:
        """Return a function that notes its call and follows the task's script."""

        async def call() -> None:
            life = self._life
            if name in self._busy:
                self.story.faults.append(f"{name} is called while it runs, at {self.clock.now()}")
            self._busy.add(name)
            self.story.lives[-1][name, "RunStart"] += 1
            ended_as = "RunFailure"
            try:
                await self._act(name)
                ended_as = "RunSuccess"
            finally:
                if life is self._life:
                    self._busy.discard(name)
                    self.story.lives[-1][name, ended_as] += 1

        return call

    async def _act(self, name: str) -> None:
        script = self._scripts.get(name)
        step = script.pop(0) if script else "ok"
        how, _, takes = step.rpartition(" ")
        if step == "hang":
            await self.clock.sleep_until(self.clock.now() + FOR_EVER)
        elif takes.endswith("s"):
            await self.clock.sleep_until(self.clock.now() + timedelta(seconds=float(takes[:-1])))
        if "fail" in (how, step):
            raise ValueError("as the scenario says")

    # --- death and life --------------------------------------------------------------------------

    def _die(self) -> None:
        """End everything without notice."""
        if not self._is_dead:
            self._is_dead = True
            self._life = object()
            self._busy = set()
            self.story.lives.append(Counter())
            self._count(False)
            kill(self.scheduler)

    async def _rise(self) -> None:
        """Have another scheduler with the same state; what is on record has happened (reading 14)."""
        await asyncio.sleep(0)
        store = self.store.inner
        assert isinstance(store, PromptStore)
        store.drop_locks()
        if self._path != MEMORY:
            await store.close()
            self.store.inner = PromptStore(self._path)
        memories = await self._memories()
        complete(self._lines, memories, self.store.put_at)
        self.store.put_at = None
        self._is_dead = False
        self._count(True)
        self.scheduler = self._make()

    def _count(self, counts: bool) -> None:
        """The dead take no steps."""
        if self._meter is not None:
            self._meter.is_counting = counts

    async def _memories(self) -> list[TaskMemory]:
        store, found = self.store.inner, []
        for case in await store.cases(SPACE):
            name = case.job.identity
            runs = await store.runs(SPACE, name, limit=MAX_ROWS)
            attempts = {run.key: await store.attempts(SPACE, run.key) for run in runs if run.attempt > 1}
            found.append(TaskMemory(case.job, runs, await store.ranges(SPACE, name), attempts))
        return found

    async def _close(self) -> None:
        """End, and leave everything behind that a judge needs."""
        story, engine = self.story, getattr(self.scheduler._wiring, "engine", None)
        story.is_running = self.scheduler.state == "running"
        if story.is_running and engine is not None and engine.health.state not in ("running", "ready"):
            story.faults.append(f"the engine is {engine.health.state}: {engine.health.error}")
        story.faults += [f"what was written cannot be read: {error}" for error in self.scheduler.quarantined]
        story.until = (self.clock.now() - EPOCH) // MILLISECOND
        story.memories = await self._memories()
        story.lines = self._lines.getvalue().splitlines()
        # What ends from here on is broken off.
        self._life = object()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        with suppress(asyncio.CancelledError):
            await kill(self.scheduler)
        await self.store.inner.close()


async def play(scenario: Scenario, folder: Path | None = None, weather: Weather | None = None) -> Story:
    """Play a scenario in memory, or with a file in a folder; in some weather, every step is counted."""
    return await World(scenario, folder, weather).play()
