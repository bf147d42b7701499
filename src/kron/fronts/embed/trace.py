"""The trace of a scheduler: calls and runs in the order of their instants, for `kron.theory` to check.

A decision or an end has the instant of its record, although it is committed later. So the line of a call is
held back while an earlier record may still be committed (SPEC 2: reading 14).
"""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import NamedTuple, Protocol, TextIO

from kron.core.errors import ConflictError, StoreError
from kron.core.task.errors import SchedulerFailedError
from kron.core.time.instant import MILLISECOND
from kron.ports import Journal
from kron.runtime.journal import TraceJournal


class CallTrace(Protocol):
    """Records the calls of `initialize` and `stop`; times are in milliseconds."""

    def init_started(self, at: int, registrations: object) -> int:
        """Record a call of `initialize`; return the number of the call."""
        ...

    def init_succeeded(self, at: int, call: int) -> None:
        """Record that `initialize` returned."""
        ...

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Record that `initialize` raised; without an error it was called in the wrong state."""
        ...

    def stop_started(self, at: int) -> None:
        """Record a call of `stop`."""
        ...

    def stops_ended(self, at: int) -> None:
        """Record that every open call of `stop` returns now."""
        ...

    def rested(self) -> None:
        """Record that the engine has finished a wake."""
        ...

    def crashed(self, at: int) -> None:
        """Record a crash."""
        ...


class NoTrace:
    """Records nothing."""

    def init_started(self, at: int, registrations: object) -> int:
        """Do nothing."""
        return 0

    def init_succeeded(self, at: int, call: int) -> None:
        """Do nothing."""

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Do nothing."""

    def stop_started(self, at: int) -> None:
        """Do nothing."""

    def stops_ended(self, at: int) -> None:
        """Do nothing."""

    def rested(self) -> None:
        """Do nothing."""

    def crashed(self, at: int) -> None:
        """Do nothing."""


class CallJudge(Protocol):
    """Judges the calls of `initialize`, independently of the scheduler's answer."""

    def is_valid(self, registrations: object) -> bool | None:
        """Return whether a list must be accepted; None leaves it to the checker of the trace."""
        ...

    def is_store_error(self, error: BaseException) -> bool:
        """Return whether an error was raised by the store."""
        ...


class TypeJudge:
    """Judges an error by its type, and leaves lists to the checker of the trace."""

    def is_valid(self, registrations: object) -> bool | None:
        """Return None for registrations of the right shape."""
        return None if listed_tasks(registrations) is not None else False

    def is_store_error(self, error: BaseException) -> bool:
        """Return whether the store failed or has another owner; an unexpected error is the scheduler's."""
        return isinstance(error, StoreError | ConflictError) and not isinstance(error, SchedulerFailedError)


class HeldEvent(NamedTuple):
    """One event that waits until every earlier one is written."""

    at: int
    name: str
    fields: dict[str, object]


class SchedulerTrace(TraceJournal):
    """Writes the calls of `initialize` and `stop` beside the runs.

    `is_open` says whether a record with a past instant may still be committed.
    """

    def __init__(
        self,
        file: TextIO,
        *,
        timezone: str,
        further: Journal,
        is_open: Callable[[], bool],
        judge: CallJudge | None = None,
    ) -> None:
        derived = ["MinuteStart", "Due", "RetryDue"]
        header = {"compute": "none", "derive": derived, "timezone": timezone}
        super().__init__(file, further=further, header=header)
        self._is_open = is_open
        self._judge: CallJudge = judge or TypeJudge()
        # Every call writes a line, so no number is used twice.
        self._calls = count(self.written)
        self._held: list[HeldEvent] = []
        self._open_stops: list[int] = []

    def init_started(self, at: int, registrations: object) -> int:
        """Write a call of `initialize` with its list as given, whatever the scheduler makes of it."""
        call = next(self._calls)
        listed, valid = listed_tasks(registrations) or [], self._judge.is_valid(registrations)
        fields: dict[str, object] = {} if valid is None else {"valid": valid}
        self._called(at, "InitStart", call=call, list=call, tasks=listed, **fields)
        return call

    def init_succeeded(self, at: int, call: int) -> None:
        """Write that `initialize` returned, at the instant from which its list applies."""
        self.write_before(at)
        if at < self._latest:
            # The clock is behind an instant that no record kept (reading 16).
            self.event("Supernatural", at, kind="clock")
        self.event("InitSuccess", at, call=call, list=call)
        self._write_held()

    def init_failed(self, at: int, call: int, error: BaseException | None) -> None:
        """Write that `initialize` raised; an error of the store is outside the model."""
        if error is None:
            # A call in the wrong state ends nothing.
            self._called(at, "InitFailure", call=call, list=call)
            return
        self._write_held()
        if self._judge.is_store_error(error):
            self.event("Supernatural", at, kind="store")
        self.event("InitFailure", at, call=call, list=call)

    def stop_started(self, at: int) -> None:
        """Write a call of `stop`."""
        call = next(self._calls)
        self._open_stops.append(call)
        self._called(at, "StopStart", call=call)

    def stops_ended(self, at: int) -> None:
        """Write that every open call of `stop` returned, in order."""
        self._write_held()
        for call in self._open_stops:
            self.event("StopEnd", at, call=call)
        self._open_stops = []

    def rested(self) -> None:
        """Write the held events, if no earlier one can follow."""
        if not self._is_open():
            self._write_held()

    def crashed(self, at: int) -> None:
        """Write a crash; the held events are lost with it."""
        self._held, self._open_stops = [], []
        self.event("UnexpectedShutdown", at)

    def write_before(self, at: int) -> None:
        """Write the held events before an instant; at the same instant, recorded events come first."""
        while self._held and self._held[0].at < at:
            held = self._held.pop(0)
            self.event(held.name, held.at, **held.fields)

    def _called(self, at: int, name: str, **fields: object) -> None:
        self._held.append(HeldEvent(at, name, fields))
        self.rested()

    def _write_held(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self.event(line.name, line.at, **line.fields)


def listed_tasks(registrations: object) -> list[dict[str, object]] | None:
    """Return the tasks of a list as a trace shows them, valid or not; None if it has another shape."""
    if not isinstance(registrations, list | tuple):
        return None
    listed: list[dict[str, object]] = []
    for item in registrations:
        match item:
            case (str() as name, str() as cron, callback, timedelta() as delay) if callable(callback):
                listed.append({"id": name, "schedule": cron, "retry_delay": _milliseconds(delay)})
            case _:
                return None
    return listed


def _milliseconds(delay: timedelta) -> int:
    """Return a delay as the engine waits for it: rounded up to whole milliseconds."""
    return -(-delay // MILLISECOND)
