"""Traces: timestamped positions with their events, read from and written as JSON lines.

A list of lines is read at once and can be iterated again; a stream is read while it is judged, once.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from kron.core.errors import InvalidTraceError
from kron.theory.event import (
    INIT_ENDS,
    INIT_EVENTS,
    NO_LIST,
    STOP_EVENTS,
    TASK_EVENTS,
    Event,
    Kind,
    Name,
    Opaque,
    Position,
    Task,
    TaskList,
    fields_of,
    is_valid,
)
from kron.theory.header import Header, header_of

Line: TypeAlias = str | bytes

_KINDS = {str(kind): kind for kind in Kind}
# The longest accepted line: the largest lists have a few hundred bytes per task.
MAX_LINE = 64 << 20
# The most list names kept, the latest ones.
MAX_LISTS = 100
_MINUTE_START, _COMPUTE = Event(Kind.MINUTE_START), Event(Kind.COMPUTE)
_PLAIN = {Kind.MINUTE_START: _MINUTE_START, Kind.COMPUTE: _COMPUTE, Kind.CRASH: Event(Kind.CRASH)}


class Trace:
    """A trace: a header and positions in order."""

    __slots__ = ("_positions", "header")

    def __init__(self, header: Header, positions: Iterable[Position]) -> None:
        self.header = header
        self._positions: Iterable[Position] | None = positions

    @classmethod
    def from_jsonl(cls, lines: Iterable[Line]) -> "Trace":
        """Return the trace that JSON lines describe.

        The header is read at once. So is the rest if `lines` is a sequence or one string; any other
        iterable, such as a file, is read while it is judged, and can be judged once.
        """
        if isinstance(lines, str | bytes):
            lines = lines.splitlines()
        reader = _Reader(lines)
        positions = reader.positions()
        return cls(reader.header, tuple(positions) if isinstance(lines, Sequence) else positions)

    def __iter__(self) -> Iterator[Position]:
        """Yield the positions written in the trace."""
        positions = self._positions
        if positions is None:
            raise InvalidTraceError(line=1, reason="a trace read from a stream can be read only once")
        if not isinstance(positions, Sequence):
            self._positions = None
        return iter(positions)

    def to_jsonl(self) -> Iterator[str]:
        """Yield the lines of the trace."""
        yield json.dumps(self.header.to_dict())
        for position in self:
            for event in position.events:
                yield line_of(event, i=position.i, t=position.t)


def line_of(event: Event, *, t: int, i: int | None = None) -> str:
    """Return one event as a line of a trace."""
    fields: dict[str, object] = {} if i is None else {"i": i}
    fields |= {"t": t, "event": str(event.kind)}
    if event.call is not None:
        fields["call"] = event.call
    if event.tasks is not None and event.kind in INIT_EVENTS:
        fields |= _list_fields(event.tasks, whole=event.kind is Kind.INIT_START)
    for name, value in (("task", event.task), ("schedule", event.schedule), ("kind", event.phenomenon)):
        if value is not None:
            fields[name] = value
    return json.dumps(fields)


def _list_fields(tasks: TaskList, *, whole: bool) -> dict[str, object]:
    fields: dict[str, object] = {} if tasks.label is None else {"list": tasks.label}
    if whole:
        fields["tasks"] = [fields_of(task) for task in tasks.tasks]
        if tasks.valid != is_valid(tasks.tasks):
            fields["valid"] = tasks.valid
    return fields


class _Reader:
    """Parses lines in order; keeps the named lists and the open calls."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = self._decoded(lines)
        self._line = 1
        self._labels: dict[Name, TaskList] = {}
        self._calls: dict[Name, TaskList] = {}
        self._latest = NO_LIST
        self.header = header_of(next(self._lines, None), self._line)
        self._within = self.header.calendar

    def _decoded(self, lines: Iterable[Line]) -> Iterator[object]:
        for self._line, line in enumerate(lines, 1):
            if len(line) > MAX_LINE:
                raise self._invalid(f"it is longer than {MAX_LINE >> 20} MiB")
            try:
                if line and not line.isspace():
                    yield json.loads(line)
            except UnicodeDecodeError as cause:
                raise self._invalid("it is not UTF-8 text") from cause
            except RecursionError as cause:
                raise self._invalid("it is nested too deeply") from cause
            except ValueError as cause:
                raise self._invalid(f"it is not JSON: {getattr(cause, 'msg', cause)}") from cause

    def positions(self) -> Iterator[Position]:
        """Yield positions; events with one number share a position, duplicates are dropped."""
        index, place, last_t = 0, -1, 0
        events: dict[Event, None] = {}
        for value in self._lines:
            if not isinstance(value, dict):
                raise self._invalid("an event must be an object")
            t, i = self._time_of(value), value.get("i", place + 1)
            if type(i) is not int or i < 0:
                raise self._invalid(f"i is {_shown(i)}; it must be a whole number from 0")
            if events:
                self._check_order(i - place, t - last_t)
                if i != place:
                    yield Position(index, place, last_t, tuple(events))
                    index += 1
                    events = {}
            events[self._event_of(value)] = None
            place, last_t = i, t
        if events:
            yield Position(index, place, last_t, tuple(events))

    def _time_of(self, value: dict[str, object]) -> int:
        t = value.get("t")
        if type(t) is not int:
            raise self._invalid(f"t is {_shown(t)}; it must be a whole number")
        if self._within is not None and t not in self._within:
            raise self._invalid(f"t is {_shown(t)}; minutes can be derived only for the years 1 to 9999")
        return t

    def _check_order(self, steps: int, passed: int) -> None:
        if steps < 0:
            raise self._invalid("i goes back")
        if passed < 0:
            raise self._invalid(f"t goes back by {-passed}; time must not decrease")
        if steps == 0 and passed:
            raise self._invalid("events at one position must have one time")

    def _event_of(self, value: dict[str, object]) -> Event:
        name = value.get("event")
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise self._invalid(f"{_shown(name)} is not an event")
        if kind in _PLAIN:
            if kind is Kind.CRASH:
                self._calls.clear()
            return _PLAIN[kind]
        if kind in TASK_EVENTS:
            schedule = self._text(value, "schedule") if kind is Kind.DUE and "schedule" in value else None
            return Event(kind, task=self._text(value, "task"), schedule=schedule)
        if kind is Kind.SUPERNATURAL:
            return Event(kind, phenomenon=self._text(value, "kind"))
        call = self._name(value, "call")
        if kind in STOP_EVENTS:
            return Event(kind, call=call)
        return Event(kind, call=call, tasks=self._list_of(kind, call, value))

    def _list_of(self, kind: Kind, call: Name, value: dict[str, object]) -> TaskList:
        """Return the R of an Init event: by its label, else by its call, else the latest list."""
        label = self._name(value, "list")
        if kind in INIT_ENDS:
            tasks = self._calls.pop(call, self._latest)
            return tasks if label is None else self._labels.get(label, tasks)
        if "tasks" not in value and label is not None and label in self._labels:
            tasks = self._labels[label]
        else:
            tasks = self._new_list(label, value)
        if label is not None:
            self._remember(label, tasks)
        self._calls[call] = self._latest = tasks
        return tasks

    def _remember(self, label: Name, tasks: TaskList) -> None:
        """Keep the latest names; a trace that names every list anew must not exhaust memory."""
        self._labels.pop(label, None)
        self._labels[label] = tasks
        if len(self._labels) > MAX_LISTS:
            del self._labels[next(iter(self._labels))]

    def _new_list(self, label: Name, value: dict[str, object]) -> TaskList:
        given = value.get("tasks")
        if not isinstance(given, list):
            raise self._invalid('InitStart needs "tasks", a list')
        tasks = tuple(map(self._task_of, given))
        valid = value.get("valid")
        if valid is not None and not isinstance(valid, bool):
            raise self._invalid(f"valid is {_shown(valid)}; it must be true or false")
        return TaskList(label=label, tasks=tasks, valid=is_valid(tasks) if valid is None else valid)

    def _task_of(self, value: object) -> Task:
        if not isinstance(value, dict):
            raise self._invalid('a task must be an object with "id", "schedule" and "retry_delay"')
        delay = value.get("retry_delay")
        if type(delay) is not int:
            raise self._invalid(f"retry_delay is {_shown(delay)}; it must be a whole number")
        callback = self._text(value, "callback") if "callback" in value else None
        key = Opaque(self._text(value, "key")) if "key" in value else None
        return Task(self._text(value, "id"), self._text(value, "schedule"), delay, callback, key)

    def _text(self, value: dict[str, object], field: str) -> str:
        text = value.get(field)
        if not isinstance(text, str):
            raise self._invalid(f"{field} is {_shown(text)}; it must be a string")
        return text

    def _name(self, value: dict[str, object], field: str) -> Name:
        name = value.get(field)
        if name is not None and type(name) is not str and type(name) is not int:
            raise self._invalid(f"{field} is {_shown(name)}; it must be a string or a whole number")
        return name if isinstance(name, str | int) else None

    def _invalid(self, reason: str) -> InvalidTraceError:
        return InvalidTraceError(line=self._line, reason=reason)


def _shown(value: object) -> str:
    """Return a value for an error message, truncated if it is long."""
    if value is None:
        return "missing"
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 40 else f"{shown[:40]}..."
