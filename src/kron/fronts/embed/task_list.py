"""The task list of a scheduler: reconciled with the stored jobs, and moved to the host's time zone."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple, TypeVar

from kron.app.catalog import Write
from kron.clocks.host_zone import host_timezone
from kron.core.plan.report import Launch, RunEvent
from kron.core.plan.step import JobState
from kron.core.task.errors import TaskTryDeserializeError
from kron.core.task.reconcile import Resolution, resolve
from kron.core.task.task import TaskConfig
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.event import LOGGER
from kron.fronts.embed.registration import Registration, read_registrations
from kron.fronts.embed.task_status import TaskTracker, entries_of
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Journal
from kron.runtime.burst import burst

# From this many tasks on, work over all of them would block the event loop noticeably.
MANY = 2_000

T = TypeVar("T")


class Reconciled(NamedTuple):
    """A committed comparison: its instant, the stored tasks before it, and how each task compares."""

    at: int
    stored: list[JobState]
    resolution: Resolution


class TaskReconciler:
    """Reconciles the stored tasks with a list, and follows the host into another time zone."""

    def __init__(self, wiring: Wiring, tracker: TaskTracker, *, timezone: str | None) -> None:
        self._wiring = wiring
        self._tracker = tracker
        self._fixed = timezone
        self.timezone = timezone
        self.quarantined: tuple[TaskTryDeserializeError, ...] = ()

    async def start(self, registrations: object, journal: Journal, *, wait: bool) -> int:
        """Check the list, take over, compare and commit; return the instant from which the list applies."""
        # Before any wait and I/O, however long the list is: an invalid one is refused at once (reading 20).
        with self._busy_with(registrations):
            registered = read_registrations(registrations)
        wiring = self._wiring
        # A cancelled callback did not succeed, so it failed.
        launcher = CallbackLauncher(wiring.clock, pick=self._pick, cancelled=RunEvent.FAILED)
        wiring.assemble(journal, launcher)
        self.timezone = self._fixed or host_timezone()
        await wiring.worker.take_over(wait=wait)
        with wiring.clock.working(), self._busy_with(registered):
            reconciled = await self._reconcile([task for task, _ in registered])
            await self._enter(registered, reconciled)
        return reconciled.at

    def _busy_with(self, registrations: object) -> AbstractContextManager[None]:
        """Return the context for work over a list; a long one is a burst."""
        many = isinstance(registrations, list | tuple) and len(registrations) >= MANY
        return burst() if many else nullcontext()

    async def _reconcile(self, tasks: Sequence[TaskConfig]) -> Reconciled:
        """Commit the changes that make the stored tasks match the list, in one transaction."""
        store, namespace = self._wiring.store, self._wiring.namespace

        async def decide(stored: list[JobState], now: int) -> Write[Reconciled]:
            assert self.timezone is not None
            compare = partial(resolve, tasks, stored, timezone=self.timezone, now=now)
            resolution = await aside(compare, count=len(tasks) + len(stored))
            return Write(
                result=Reconciled(now, stored, resolution),
                created=resolution.created,
                changed=resolution.changed,
                forgotten=resolution.forgotten,
            )

        return await self._wiring.catalog.write(lambda: store.cases(namespace), decide)

    async def _enter(self, registered: Sequence[Registration], reconciled: Reconciled) -> None:
        """Track the tasks of the list from their stored states on."""
        resolution = reconciled.resolution
        self._quarantine(resolution)
        forgotten = frozenset(resolution.forgotten)
        known = (state for state in reconciled.stored if state.job.identity not in forgotten)
        enter = partial(entries_of, registered, resolution.standings, known)
        self._tracker.entries = await aside(enter, count=len(registered))

    async def follow_zone(self) -> bool:
        """Move the tasks to the host's zone if it has changed; periods due before the move stay due."""
        if self._fixed is not None or (moved_to := host_timezone()) == self.timezone:
            return False
        LOGGER.warning("the host's time zone changed from %s to %s", self.timezone, moved_to)
        self.timezone = moved_to
        tasks = [entry.task(name) for name, entry in self._tracker.entries.items()]
        with self._wiring.clock.working():
            self._quarantine((await self._reconcile(tasks)).resolution)
        return True

    def _quarantine(self, resolution: Resolution) -> None:
        """Keep and log the faults of stored tasks."""
        self.quarantined = tuple(resolution.faults.values())
        for name, fault in resolution.faults.items():
            LOGGER.error("stored task %r is unreadable and treated as new: %s", name, fault)

    def _pick(self, launch: Launch) -> Callback | None:
        entry = self._tracker.entries.get(launch.job.identity)
        return None if entry is None else entry.call


async def aside(work: Callable[[], T], *, count: int) -> T:
    """Return the result of pure work over `count` items, computed in a thread if they are many."""
    if count < MANY:
        return work()
    thread = ThreadPoolExecutor(1, "kron-aside")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    finally:
        thread.shutdown(wait=False)
