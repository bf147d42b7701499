"""The trace of a scheduler: calls and runs in the order in which they count, for the theory to judge.

What is decided, or has ended, counts from the instant in its record, although it becomes durable later. So
the line of a call is held back as long as anything earlier may still be written (SPEC 2: reading 14).
"""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import NamedTuple, Protocol, TextIO

from kron.core.errors import InputError
from kron.core.plan.step import MILLISECOND
from kron.fronts.embed.registration import read_registrations
from kron.ports import Journal
from kron.runtime.journal import TraceJournal


class Calls(Protocol):
    """Whoever wants to know of the calls of `initialize` and `stop`; times are in milliseconds."""

    def init_started(self, at: int, registrations: object) -> int:
        """Take note that `initialize` was called; return a number for the call."""
        ...

    def init_succeeded(self, at: int, call: int) -> None:
        """Take note that `initialize` returned."""
        ...

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Take note that `initialize` raised; without an error it was called at the wrong moment."""
        ...

    def stop_started(self, at: int) -> None:
        """Take note that `stop` was called."""
        ...

    def stops_ended(self, at: int) -> None:
        """Take note that every open call of `stop` returns now."""
        ...

    def rested(self) -> None:
        """Take note that the engine has done what it woke up for."""
        ...

    def crashed(self, at: int) -> None:
        """Take note that everything ended without notice."""
        ...


class Silence:
    """Nobody wants to know."""

    def init_started(self, at: int, registrations: object) -> int:
        """Forget it."""
        return 0

    def init_succeeded(self, at: int, call: int) -> None:
        """Forget it."""

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Forget it."""

    def stop_started(self, at: int) -> None:
        """Forget it."""

    def stops_ended(self, at: int) -> None:
        """Forget it."""

    def rested(self) -> None:
        """Forget it."""

    def crashed(self, at: int) -> None:
        """Forget it."""


class Held(NamedTuple):
    """One event that waits until everything earlier is known."""

    at: int
    name: str
    fields: dict[str, object]


class SchedulerTrace(TraceJournal):
    """Writes the calls of `initialize` and `stop` beside the runs.

    `is_open` says whether something with an instant that is over may still come to be on record.
    """

    def __init__(self, file: TextIO, *, timezone: str, further: Journal, is_open: Callable[[], bool]) -> None:
        derived = ["MinuteStart", "Due", "RetryDue"]
        header = {"compute": "none", "derive": derived, "timezone": timezone}
        super().__init__(file, further=further, header=header)
        self._is_open = is_open
        # Every call writes a line, so no number is used again.
        self._calls = count(self.written)
        self._held: list[Held] = []
        self._open_stops: list[int] = []

    def init_started(self, at: int, registrations: object) -> int:
        """Write that `initialize` was called; a list that cannot be read has no tasks and is not valid."""
        call = next(self._calls)
        try:
            tasks = [task for task, _ in read_registrations(registrations)]
            fields: dict[str, object] = {}
        except InputError:
            tasks, fields = [], {"valid": False}
        listed = [
            {"id": name, "schedule": cron, "retry_delay": _milliseconds(delay)} for name, cron, delay in tasks
        ]
        self._called(at, "InitStart", call=call, list=call, tasks=listed, **fields)
        return call

    def init_succeeded(self, at: int, call: int) -> None:
        """Write that `initialize` returned, where its list began to hold, and what waited for that."""
        self.write_before(at)
        if at < self._latest:
            # The clock has fallen behind an instant that was passed and that nobody kept (reading 16).
            self.event("Supernatural", at, kind="clock")
        self.event("InitSuccess", at, call=call, list=call)
        self._write_held()

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Write that `initialize` raised; a store that fails, or an owner elsewhere, is beyond the model."""
        if error is None:
            # It came at the wrong moment, and nothing is over by that.
            self._called(at, "InitFailure", call=call, list=call)
            return
        self._write_held()
        if not isinstance(error, InputError):
            self.event("Supernatural", at, kind="store")
        self.event("InitFailure", at, call=call, list=call)

    def stop_started(self, at: int) -> None:
        """Write that `stop` was called."""
        call = next(self._calls)
        self._open_stops.append(call)
        self._called(at, "StopStart", call=call)

    def stops_ended(self, at: int) -> None:
        """Write that every open call of `stop` returned, one after the other."""
        self._write_held()
        for call in self._open_stops:
            self.event("StopEnd", at, call=call)
        self._open_stops = []

    def rested(self) -> None:
        """Write what was held back, if nothing earlier can come any more."""
        if not self._is_open():
            self._write_held()

    def crashed(self, at: int) -> None:
        """Write that everything ended without notice; what was held back, nobody knows any more."""
        self._held, self._open_stops = [], []
        self.event("UnexpectedShutdown", at)

    def write_before(self, at: int) -> None:
        """Write what was held back and came before an instant; of one instant, what is on record is first."""
        while self._held and self._held[0].at < at:
            held = self._held.pop(0)
            self.event(held.name, held.at, **held.fields)

    def _called(self, at: int, name: str, **fields: object) -> None:
        self._held.append(Held(at, name, fields))
        self.rested()

    def _write_held(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self.event(line.name, line.at, **line.fields)


def _milliseconds(delay: timedelta) -> int:
    """Return a delay as the engine waits for it: rounded up, so that nothing comes too early."""
    return -(-delay // MILLISECOND)
