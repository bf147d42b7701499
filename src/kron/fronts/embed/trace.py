"""The trace of a scheduler: calls and runs in the order in which they count, for the theory to judge.

A start that was decided before `stop` was called counts before it, although it becomes durable later. So the
line of a call is held back until everything decided before it is written (SPEC 2: reading 14).
"""

from collections.abc import Mapping
from datetime import timedelta
from itertools import count
from typing import Protocol, TextIO

from kron.core.errors import InputError
from kron.core.turn import MILLISECOND
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

    def stop_started(self, at: int, *, hold: bool) -> None:
        """Take note that `stop` was called; with `hold`, something may be decided and not yet written."""
        ...

    def stops_ended(self, at: int) -> None:
        """Take note that every open call of `stop` returns now."""
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

    def stop_started(self, at: int, *, hold: bool) -> None:
        """Forget it."""

    def stops_ended(self, at: int) -> None:
        """Forget it."""

    def crashed(self, at: int) -> None:
        """Forget it."""


class SchedulerTrace(TraceJournal):
    """Writes the calls of `initialize` and `stop` beside the runs."""

    def __init__(self, file: TextIO, *, timezone: str, further: Journal) -> None:
        derived = ["MinuteStart", "Due", "RetryDue"]
        header = {"compute": "none", "derive": derived, "timezone": timezone}
        super().__init__(file, further=further, header=header)
        # Every call writes a line, so no number is used again.
        self._calls = count(self.written)
        self._held: list[tuple[int, int]] = []
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
        self.event("InitStart", at, call=call, list=call, tasks=listed, **fields)
        return call

    def init_succeeded(self, at: int, call: int) -> None:
        """Write that `initialize` returned, and the stops that waited for it."""
        self.event("InitSuccess", at, call=call, list=call)
        self._write_held()

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Write that `initialize` raised; a store that fails, or an owner elsewhere, is beyond the model."""
        if error is not None and not isinstance(error, InputError):
            self.event("Supernatural", at, kind="store")
        self.event("InitFailure", at, call=call, list=call)
        if error is not None:
            # One that came at the wrong moment changes nothing for those that wait for another.
            self._write_held()

    def stop_started(self, at: int, *, hold: bool) -> None:
        """Write that `stop` was called, or hold that back until what was decided before is written."""
        call = next(self._calls)
        self._open_stops.append(call)
        # One that follows another which is held back waits with it.
        hold = hold or bool(self._held)
        self._held.append((at, call))
        if not hold:
            self._write_held()

    def stops_ended(self, at: int) -> None:
        """Write that every open call of `stop` returned, one after the other."""
        self._write_held()
        for call in self._open_stops:
            self.event("StopEnd", at, call=call)
        self._open_stops = []

    def crashed(self, at: int) -> None:
        """Write that everything ended without notice."""
        self._held, self._open_stops = [], []
        self.event("UnexpectedShutdown", at)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Take the engine's word for it that nothing decided before the stop is left."""
        if event == "draining":
            self._write_held()
        super().note(event, fields)

    def _write_held(self) -> None:
        held, self._held = self._held, []
        for at, call in held:
            self.event("StopStart", at, call=call)


def _milliseconds(delay: timedelta) -> int:
    """Return a delay as the engine waits for it: rounded up, so that nothing comes too early."""
    return -(-delay // MILLISECOND)
