"""One list of tasks in force: brought in line with what is stored, and kept so while it lasts."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from kron.clocks.host_zone import host_timezone
from kron.core.errors import StoreError
from kron.core.plan.report import RunEvent
from kron.core.plan.step import JobState
from kron.core.task.errors import TaskTryDeserializeError
from kron.core.task.reconcile import Resolution, resolve
from kron.core.task.task import Task
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.event import LOGGER
from kron.fronts.embed.offload import MANY, aside
from kron.fronts.embed.registration import Registration, read_registrations
from kron.fronts.embed.task_status import Book, entries_of
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Journal, Launch
from kron.runtime.burst import burst

# How often a list is compared anew because somebody changed a stored task meanwhile.
MAX_TRIES = 10


class Session:
    """Brings the stored tasks in line with a list, and follows the host into another time zone."""

    def __init__(self, wiring: Wiring, book: Book, *, timezone: str | None) -> None:
        self._wiring = wiring
        self._book = book
        self._fixed = timezone
        self.timezone = timezone
        self.quarantined: tuple[TaskTryDeserializeError, ...] = ()

    async def begin(self, registrations: object, journal: Journal, *, wait: bool) -> int:
        """Check, take over, compare, write; return the instant at which the list began to hold."""
        # At once, however long the list is: what is wrong is said before any wait and I/O (reading 20).
        with self._busy_with(registrations):
            registered = read_registrations(registrations)
        wiring = self._wiring
        # A callback that was cancelled did not succeed, so it failed.
        launcher = CallbackLauncher(wiring.clock, pick=self._pick, cancelled=RunEvent.FAILED)
        wiring.assemble(journal, launcher)
        self.timezone = self._fixed or host_timezone()
        await wiring.take_over(wait=wait)
        with wiring.clock.working(), self._busy_with(registered):
            return await self._take_stock(registered)

    def _busy_with(self, registrations: object) -> AbstractContextManager[None]:
        """Return what is held while a list is worked through; a long one is a burst."""
        many = isinstance(registrations, list | tuple) and len(registrations) >= MANY
        return burst() if many else nullcontext()

    async def _take_stock(self, registered: Sequence[Registration]) -> int:
        """Compare with what is stored, write, and enter what is known; return the instant of it."""
        now, stored, found = await self._write([task for task, _ in registered])
        await self._note(registered, stored, found)
        return now

    async def _write(self, tasks: Sequence[Task]) -> tuple[int, list[JobState], Resolution]:
        """Bring what is stored in line with the list, all at once."""
        store, namespace = self._wiring.store, self._wiring.namespace
        assert self.timezone is not None
        for _ in range(MAX_TRIES):
            stored = await store.cases(namespace)
            now = self._wiring.engine.now()
            compare = partial(resolve, tasks, stored, timezone=self.timezone, now=now)
            found = await aside(compare, count=len(tasks) + len(stored))
            settled = await store.put(
                namespace, created=found.created, changed=found.changed, forgotten=found.forgotten, now=now
            )
            if not settled.stale_jobs and not settled.existing_runs:
                return now, stored, found
        raise StoreError("The tasks cannot be written: somebody else keeps changing them")

    async def _note(
        self, registered: Sequence[Registration], stored: Sequence[JobState], found: Resolution
    ) -> None:
        self.quarantined = tuple(found.faults.values())
        for name, fault in found.faults.items():
            LOGGER.error("stored task %r cannot be used and is taken for new: %s", name, fault)
        gone = frozenset(found.forgotten)
        known = (case for case in stored if case.job.identity not in gone)
        enter = partial(entries_of, registered, found.standings, known)
        self._book.entries = await aside(enter, count=len(registered))

    async def follow_zone(self) -> bool:
        """Follow the host if it has moved to another zone; what was due before stays due."""
        if self._fixed is not None or (moved_to := host_timezone()) == self.timezone:
            return False
        LOGGER.warning("the host's time zone is %s now, and was %s", moved_to, self.timezone)
        self.timezone = moved_to
        tasks = [entry.task(name) for name, entry in self._book.entries.items()]
        with self._wiring.clock.working():
            await self._write(tasks)
        self._wiring.engine.call()
        return True

    def _pick(self, launch: Launch) -> Callback | None:
        entry = self._book.entries.get(launch.job.identity)
        return None if entry is None else entry.call
