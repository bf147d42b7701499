"""What Hypothesis draws from: traces of every kind, most of them unlawful somewhere."""

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Line: TypeAlias = dict[str, object]

IDS = ("a", "b")
SCHEDULES = ("* * * * *", "1 * * * *", "0,2 * * * *")
LISTS = {
    "A": [("a", SCHEDULES[0], 5)],
    "B": [("a", SCHEDULES[1], 0), ("b", SCHEDULES[0], 40)],
    "C": [("a", SCHEDULES[1], 70), ("a", SCHEDULES[0], 5)],
    "D": [("a", SCHEDULES[2], 5), ("b", SCHEDULES[2], 5)],
    "E": [],
}
CALLS = (None, 1, 2)
PHENOMENA = ("store", "clock")


def tasks_of(label: str) -> list[Line]:
    """Return the tasks of a list as a trace has them."""
    return [{"id": name, "schedule": text, "retry_delay": delay} for name, text, delay in LISTS[label]]


def lines_of(header: Line, events: list[Line]) -> list[str]:
    """Return the lines of a trace."""
    return [json.dumps(header), *map(json.dumps, events)]


@st.composite
def headers(draw: DrawFn, *, compute: bool | None = None) -> Line:
    """Draw a header: with pulses written or derived, with Compute events or without."""
    header: Line = {"kron_trace": 1, "unit": "s"}
    if draw(st.booleans()):
        choices = [["RetryDue"], ["MinuteStart", "Due", "RetryDue"], ["MinuteStart", "Due"], ["MinuteStart"]]
        header |= {"derive": draw(st.sampled_from(choices)), "timezone": "UTC"}
    if not (draw(st.booleans()) if compute is None else compute):
        header["compute"] = "none"
    return header


@st.composite
def loose_events(draw: DrawFn) -> Line:
    """Draw any event at all."""
    kind = draw(st.sampled_from(KINDS))
    event: Line = {"event": kind}
    if kind.startswith(("Init", "Stop")):
        call = draw(st.sampled_from(CALLS))
        event |= {} if call is None else {"call": call}
    if kind == "InitStart":
        label = draw(st.sampled_from(list(LISTS)))
        event |= {"list": label, "tasks": tasks_of(label)}
    elif kind.startswith("Init") and draw(st.booleans()):
        event["list"] = draw(st.sampled_from(list(LISTS)))
    elif kind.startswith("Run") or kind in ("Due", "RetryDue"):
        event["task"] = draw(st.sampled_from(IDS))
        if kind == "Due" and draw(st.booleans()):
            event["schedule"] = draw(st.sampled_from(SCHEDULES))
    elif kind == "Supernatural":
        event["kind"] = draw(st.sampled_from(PHENOMENA))
    return event


KINDS = (
    ["InitStart", "InitSuccess", "RunStart", "RunSuccess", "RunFailure", "Due"] * 3
    + ["InitFailure", "StopStart", "StopEnd", "UnexpectedShutdown", "RetryDue", "MinuteStart", "Compute"] * 2
    + ["Supernatural"]
)


@st.composite
def loose_traces(draw: DrawFn, most: int = 16) -> list[str]:
    """Draw a trace of any events in any order, some of them at shared positions."""
    header = draw(headers())
    t, i = draw(st.integers(0, 100) if "derive" in header else st.integers(-70, 70)), 0
    events: list[Line] = []
    for number in range(draw(st.integers(0, most))):
        if number and draw(st.integers(0, 3)):
            t += draw(st.sampled_from([0, 1, 1, 5, 40, 61]))
            i += 1
        events.append({"i": i, "t": t, **draw(loose_events())})
    return lines_of(header, events)


@dataclass
class Shape:
    """Roughly what a scheduler would do, so that traces are lawful for a while."""

    events: list[Line] = field(default_factory=list)
    calls: int = 0
    t: int = 0

    def add(self, **fields: object) -> None:
        """Add an event at a position of its own."""
        self.events.append({"t": self.t, **fields})


@st.composite
def likely_traces(draw: DrawFn, most: int = 14) -> list[str]:
    """Draw a trace that goes as a scheduler's would, with a few things left out or put in."""
    header = draw(headers())
    shape = Shape(t=draw(st.integers(0, 70)))
    _initialize(draw, shape)
    for _ in range(draw(st.integers(1, most))):
        shape.t += draw(st.sampled_from([0, 1, 3, 20, 45, 61, 130]))
        _move(draw, shape)
    events = [event for event in shape.events if draw(st.integers(0, 19))]
    if "compute" not in header:
        events = _with_compute(draw, events)
    elif draw(st.booleans()):
        events = _with_shared_positions(draw, events)
    return lines_of(header, events)


def _with_shared_positions(draw: DrawFn, events: list[Line]) -> list[Line]:
    """Let some events stand at the position of the one before."""
    found: list[Line] = []
    i = 0
    for event in events:
        apart = draw(st.integers(0, 4)) > 0
        if found and apart:
            i += 1
        found.append(
            {**event, "i": i, "t": event["t"] if not found or found[-1]["i"] != i else found[-1]["t"]}
        )
    return found


def _move(draw: DrawFn, shape: Shape) -> None:
    name = draw(st.sampled_from(IDS))
    match draw(st.sampled_from(["due", "run", "run", "fail", "retry", "restart", "crash", "stop", "minute"])):
        case "due":
            schedule = draw(st.sampled_from(["", *SCHEDULES]))
            shape.add(event="Due", task=name, **({"schedule": schedule} if schedule else {}))
        case "run":
            shape.add(event="RunStart", task=name)
            if draw(st.booleans()):
                shape.t += 1
                shape.add(event="RunSuccess", task=name)
        case "fail":
            shape.add(event="RunStart", task=name)
            shape.add(event="RunFailure", task=name)
        case "retry":
            shape.add(event="RetryDue", task=name)
        case "restart":
            _stop(shape)
            _initialize(draw, shape)
        case "crash":
            shape.add(event="UnexpectedShutdown")
            _initialize(draw, shape)
        case "stop":
            _stop(shape)
        case _:
            shape.add(event="MinuteStart")


def _initialize(draw: DrawFn, shape: Shape) -> None:
    label = draw(st.sampled_from(["A", "A", "B", "B", "C", "D", "E"]))
    shape.calls += 1
    shape.add(event="InitStart", call=shape.calls, list=label, tasks=tasks_of(label))
    end = "InitSuccess" if draw(st.integers(0, 5)) else "InitFailure"
    shape.add(event=end, call=shape.calls, list=label)


def _stop(shape: Shape) -> None:
    shape.calls += 1
    shape.add(event="StopStart", call=shape.calls)
    shape.add(event="StopEnd", call=shape.calls)


def _with_compute(draw: DrawFn, events: list[Line]) -> list[Line]:
    """Put Compute at most positions with an action, and at some of their own."""
    found: list[Line] = []
    for i, event in enumerate(events):
        event = {"i": 2 * i, **event}
        quiet = event["event"] in ("Due", "RetryDue", "MinuteStart", "UnexpectedShutdown")
        if draw(st.integers(0, 9)) and not quiet:
            found.append({"i": 2 * i, "t": event["t"], "event": "Compute"})
        found.append(event)
        if not draw(st.integers(0, 2)):
            found.append({"i": 2 * i + 1, "t": event["t"], "event": "Compute"})
    return found


def traces() -> SearchStrategy[list[str]]:
    """Draw a trace."""
    return loose_traces() | likely_traces()
