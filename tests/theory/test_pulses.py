"""Where pulses stand (reading 15): as the checker derives them, and as if every one were written out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from kron.theory import Event, Finding, Kind, Position, Status, Trace, check, line_of
from kron.theory.derive import derived
from kron.theory.verdict import LIVENESS_AXIOMS
from tests.strategies import law
from tests.theory.notation import trace
from tests.theory.strategies import IDS, LISTS, Line, Shape, tasks_of, traces
from tests.theory.strategies import lines_of as drawn_lines

PULSES = ["MinuteStart", "Due", "RetryDue"]


def shown(text: str) -> list[str]:
    """Return the positions of a trace together with its pulses: `time event+event`."""
    subject = trace(text, derive=PULSES, timezone="UTC")
    written = list(subject)
    lists = [event.tasks for position in written for event in position.events if event.tasks is not None]
    universe = dict.fromkeys(task for tasks in lists for task in tasks.tasks)
    return [
        f"{position.t} {'+'.join(map(str, position.events))}"
        for position in derived(subject.header, written, kron=True, universe=universe)
    ]


PLACES = [
    pytest.param(
        "IS=AB@60 IEs@60 RS:a@60",
        [
            "60 MinuteStart+Due a+Due b",
            "60 InitStart call IS1",
            "60 InitSuccess call IS1",
            "60 RunStart a",
        ],
        id="before every action of their time, all dues at one position",
    ),
    pytest.param(
        "IS@10 IEs@10 RS@20 REf@55 RS@60",
        [
            "0 MinuteStart+Due a",
            "10 InitStart call IS1",
            "10 InitSuccess call IS1",
            "20 RunStart a",
            "55 RunFailure a",
            "60 MinuteStart+Due a",
            "60 RetryDue a",
            "60 RunStart a",
        ],
        id="a retry of the same time has a position of its own",
    ),
    pytest.param(
        "IS=AB@10 IEs@10 RS:a@20 RS:b@20 REf:a@25 REf:b@25 RS:a@30",
        [
            "0 MinuteStart+Due a+Due b",
            "10 InitStart call IS1",
            "10 InitSuccess call IS1",
            "20 RunStart a",
            "20 RunStart b",
            "25 RunFailure a",
            "25 RunFailure b",
            "30 RetryDue a",
            "30 RetryDue b",
            "30 RunStart a",
        ],
        id="and each retry its own",
    ),
    pytest.param(
        "IS=A2@70 IEs@70 RS@130",
        [
            "60 MinuteStart",
            "70 InitStart call IS1",
            "70 InitSuccess call IS1",
            "120 MinuteStart",
            "130 RunStart a",
        ],
        id="a minute begins, though nothing is due in it",
    ),
    pytest.param(
        "IS=NONE@59 IEs@61 SS@121",
        [
            "0 MinuteStart",
            "59 InitStart call IS1",
            "60 MinuteStart",
            "61 InitSuccess call IS1",
            "120 MinuteStart",
            "121 StopStart call SS2",
        ],
        id="also where there is no task at all",
    ),
    pytest.param(
        "IS=A2@3590 IEs@3590 C@3600",
        [
            "3540 MinuteStart",
            "3590 InitStart call IS1",
            "3590 InitSuccess call IS1",
            "3600 MinuteStart+Due a",
            "3600 Compute",
        ],
        id="a minute stands with its dues",
    ),
    pytest.param(
        "IS=NOW@10 IEs@10 RS@20 REf@25 SS@25 SE@30",
        [
            "0 MinuteStart+Due a",
            "10 InitStart call IS1",
            "10 InitSuccess call IS1",
            "20 RunStart a",
            "25 RunFailure a",
            "25 RetryDue a",
            "25 StopStart call SS2",
            "30 StopEnd call SS2",
        ],
        id="without a delay directly after the failure",
    ),
    pytest.param(
        "IS=NOW@50 IEs@50 RS@55 REf@60 RS@60 REf@60",
        [
            "0 MinuteStart+Due a",
            "50 InitStart call IS1",
            "50 InitSuccess call IS1",
            "55 RunStart a",
            "60 MinuteStart+Due a",
            "60 RunFailure a",
            "60 RetryDue a",
            "60 RunStart a",
            "60 RunFailure a",
            "60 RetryDue a",
        ],
        id="after each failure, also where a minute begins",
    ),
]


@pytest.mark.parametrize(("text", "expected"), PLACES)
def test_a_pulse_stands_in_its_place(text: str, expected: list[str]) -> None:
    assert shown(text) == expected


# --- the same with every minute written out --------------------------------------------------------

# Which minutes of an hour match the schedules that traces are drawn with.
MATCHES = {"* * * * *": range(60), "1 * * * *": [1], "0,2 * * * *": [0, 2]}


def spelled_out(lines: list[str]) -> list[str]:
    """Return a trace in which every minute stands with its dues, however many pass between two events."""
    positions = list(Trace.from_jsonl(lines))
    tuples = {
        (task.id, task.schedule)
        for position in positions
        for event in position.events
        if event.tasks is not None
        for task in event.tasks.tasks
        if task.schedule is not None
    }
    found: list[Position] = []
    minute = positions[0].t // 60 if positions else 0
    for position in positions:
        while 60 * minute <= position.t:
            dues = [
                Event(Kind.DUE, task=name, schedule=text)
                for name, text in sorted(tuples)
                if minute % 60 in MATCHES[text]
            ]
            found.append(Position(0, 0, 60 * minute, (Event(Kind.MINUTE_START), *dues)))
            minute += 1
        found.append(position)
    written = [
        line_of(event, i=i, t=position.t) for i, position in enumerate(found) for event in position.events
    ]
    return [with_header(lines, ["RetryDue"]), *written]


def with_header(lines: list[str], derive: list[str]) -> str:
    header: Line = json.loads(lines[0])
    return json.dumps(header | {"derive": derive, "timezone": "UTC"})


def essence(finding: Finding) -> tuple[Status, int | None]:
    """Return how an axiom stands and since when; that something is late shows at the next position."""
    shows_at_once = finding.status is Status.FAILED and finding.axiom not in LIVENESS_AXIOMS
    return finding.status, finding.t if shows_at_once else None


@st.composite
def calm_traces(draw: DrawFn) -> list[str]:
    """Draw restarts with other lists and runs, with a moment or an hour between them."""
    shape = Shape(t=draw(st.integers(0, 200)))
    for _ in range(draw(st.integers(1, 6))):
        label = draw(st.sampled_from(list(LISTS)))
        shape.calls += 1
        call = {"call": shape.calls, "list": label}
        shape.add(event="InitStart", **call, tasks=tasks_of(label))
        shape.add(event="InitSuccess", **call)
        for _ in range(draw(st.integers(0, 3))):
            shape.t += draw(st.sampled_from([0, 5, 30, 60, 61, 130, 400, 3700]))
            name = draw(st.sampled_from(IDS))
            shape.add(event="RunStart", task=name)
            shape.add(event=draw(st.sampled_from(["RunSuccess", "RunFailure"])), task=name)
        shape.t += draw(st.sampled_from([0, 5, 61, 130, 400, 3700]))
        shape.add(event="StopStart", call=-shape.calls)
        shape.add(event="StopEnd", call=-shape.calls)
        shape.t += draw(st.sampled_from([0, 5, 61, 130, 400, 3700]))
    return drawn_lines({"kron_trace": 1, "unit": "s", "compute": "none"}, shape.events)


@law(300)
@given(lines=calm_traces() | traces(), within=st.none() | st.integers(0, 100))
def test_a_derived_minute_counts_as_one_that_is_written(lines: list[str], within: int | None) -> None:
    """Of the minutes between two events the checker looks at a few; all of them say the same."""
    if "compute" not in json.loads(lines[0]):
        within = None
    few = Trace.from_jsonl([with_header(lines, PULSES), *lines[1:]])
    every = Trace.from_jsonl(spelled_out(lines))
    found = {finding.axiom: essence(finding) for finding in check(few, within=within)}
    assert found == {finding.axiom: essence(finding) for finding in check(every, within=within)}
