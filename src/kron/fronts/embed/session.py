"""One list of tasks in force: brought in line with what is stored, and kept so while it lasts."""

from asyncio import CancelledError
from collections.abc import Sequence
from functools import partial

from kron.clocks.host_zone import host_timezone
from kron.core.errors import StoreError
from kron.core.override import Resolution, Standing, resolve
from kron.core.task import Task
from kron.core.task_error import TaskTryDeserializeError
from kron.core.turn import Case
from kron.fronts.embed.aside import aside
from kron.fronts.embed.book import Book, entries_of
from kron.fronts.embed.event import LOGGER
from kron.fronts.embed.registration import Callback, read_registrations
from kron.fronts.embed.wiring import Wiring
from kron.ports import Journal, Launch

# How often a list is compared anew because somebody changed a stored task meanwhile.
MAX_TRIES = 10


class CallbackCancelledError(Exception):
    """A callback ended by being cancelled: it did not succeed, so it failed."""


class Session:
    """Brings the stored tasks in line with a list, and follows the host into another time zone."""

    def __init__(self, wiring: Wiring, book: Book, *, timezone: str | None) -> None:
        self._wiring = wiring
        self._book = book
        self._fixed = timezone
        self._tasks: list[Task] = []
        self._callbacks: dict[str, Callback] = {}
        self.timezone = timezone
        self.standings: dict[str, Standing] = {}
        self.quarantined: tuple[TaskTryDeserializeError, ...] = ()

    async def begin(self, registrations: object, journal: Journal, *, wait: bool) -> int:
        """Check, take over, compare, write; return the instant at which the list began to hold."""
        self._read(registrations)
        wiring = self._wiring
        wiring.assemble(journal)
        self.timezone = self._fixed or host_timezone()
        wiring.register(self._callbacks, self._call)
        await wiring.take_over(wait=wait)
        with wiring.clock.working():
            now, stored, found = await self._write()
            await self._note(stored, found)
        return now

    def _read(self, registrations: object) -> None:
        """Read the list at once, however long: what is wrong is said before any wait and I/O (reading 20)."""
        registered = read_registrations(registrations)
        self._tasks = [task for task, _ in registered]
        self._callbacks = {task.name: callback for task, callback in registered}

    async def _write(self) -> tuple[int, list[Case], Resolution]:
        """Bring what is stored in line with the list, all at once."""
        store, namespace = self._wiring.store, self._wiring.namespace
        assert self.timezone is not None
        for _ in range(MAX_TRIES):
            stored = await store.cases(namespace)
            now = self._wiring.engine.now()
            compare = partial(resolve, self._tasks, stored, timezone=self.timezone, now=now)
            found = await aside(compare, count=len(self._tasks) + len(stored))
            settled = await store.put(
                namespace, created=found.created, changed=found.changed, forgotten=found.forgotten, now=now
            )
            if not settled.changed and not settled.handled:
                return now, stored, found
        raise StoreError("The tasks cannot be written: somebody else keeps changing them")

    async def _note(self, stored: Sequence[Case], found: Resolution) -> None:
        self.standings, self.quarantined = found.standings, tuple(found.faults.values())
        for name, fault in found.faults.items():
            LOGGER.error("stored task %r cannot be used and is taken for new: %s", name, fault)
        gone = frozenset(found.forgotten)
        known = (case for case in stored if case.job.identity not in gone)
        self._book.entries = await aside(partial(entries_of, self._tasks, known), count=len(self._tasks))

    async def follow_zone(self) -> bool:
        """Follow the host if it has moved to another zone; what was due before stays due."""
        if self._fixed is not None or (moved_to := host_timezone()) == self.timezone:
            return False
        LOGGER.warning("the host's time zone is %s now, and was %s", moved_to, self.timezone)
        self.timezone = moved_to
        with self._wiring.clock.working():
            await self._write()
        self._wiring.engine.call()
        return True

    async def _call(self, launch: Launch) -> None:
        try:
            await self._callbacks[launch.job.identity]()
        except CancelledError as cancelled:
            if self._wiring.has_crashed:
                raise
            raise CallbackCancelledError("the callback was cancelled") from cancelled
