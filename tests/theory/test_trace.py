"""The format of traces: lines that are read, lines that are refused and why, and lines that are written."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InputError, InvalidTraceError
from kron.theory import Event, Header, Kind, Position, Task, TaskList, Trace, check, line_of
from kron.theory.event import OWNERS, Owner
from tests.strategies import law
from tests.theory.notation import lines_of, trace
from tests.theory.strategies import traces

HEADER = '{"kron_trace": 1, "unit": "ms"}'
TASK = {"id": "a", "schedule": "* * * * *", "retry_delay": 5}
START = {"t": 1, "event": "InitStart", "call": "c", "list": "A", "tasks": [TASK]}


def read(*events: object, header: str = HEADER) -> Trace:
    return Trace.from_jsonl(
        [header, *(event if isinstance(event, str) else json.dumps(event) for event in events)]
    )


def test_a_trace_is_read() -> None:
    found = list(
        read(START, {"t": 1, "event": "InitSuccess", "call": "c"}, {"i": 7, "t": 3, "event": "Compute"})
    )
    tasks = TaskList(label="A", tasks=(Task("a", "* * * * *", 5),), valid=True)
    assert found == [
        Position(0, 0, 1, (Event(Kind.INIT_START, call="c", tasks=tasks),)),
        Position(1, 1, 1, (Event(Kind.INIT_SUCCESS, call="c", tasks=tasks),)),
        Position(2, 7, 3, (Event(Kind.COMPUTE),)),
    ]


def test_events_with_one_number_share_a_position() -> None:
    (first, second) = read(
        {"i": 3, "t": 1, "event": "Compute"},
        {"i": 3, "t": 1, "event": "RunStart", "task": "a"},
        {"i": 3, "t": 1, "event": "Compute"},
        {"t": 1, "event": "Compute"},
    )
    assert [event.kind for event in first.events] == [Kind.COMPUTE, Kind.RUN_START]
    assert (first.i, second.i) == (3, 4)


def test_blank_lines_and_unknown_fields_are_passed_over() -> None:
    assert len(list(read("", "  ", {"t": 1, "event": "Compute", "note": "x"}, "\n"))) == 1


def test_a_list_may_be_named_again_without_its_tasks() -> None:
    named = {"t": 2, "event": "InitStart", "call": "d", "list": "A"}
    found = list(read(START, named, {"t": 3, "event": "InitSuccess", "call": "c", "list": "A"}))
    assert found[0].events[0].tasks == found[1].events[0].tasks == found[2].events[0].tasks


def test_only_the_last_names_of_lists_are_remembered() -> None:
    starts = [{**START, "list": number} for number in range(101)]
    again = {"t": 2, "event": "InitStart", "call": "d", "list": 1}
    assert len(list(read(*starts, again))) == 102
    with pytest.raises(InvalidTraceError, match='line 103: InitStart needs "tasks"'):
        read(*starts, {**again, "list": 0})


@pytest.mark.parametrize(
    ("tasks", "valid"),
    [
        pytest.param([TASK], True, id="one"),
        pytest.param([], True, id="none"),
        pytest.param([TASK, TASK], False, id="one twice"),
        pytest.param([TASK, {**TASK, "schedule": "0 * * * *"}], False, id="one name, two schedules"),
        pytest.param([{**TASK, "schedule": "*/5 * * * *"}], False, id="not of the strict dialect"),
        pytest.param([{**TASK, "schedule": "0 0 30 2 *"}], False, id="never"),
        pytest.param([{**TASK, "retry_delay": -1}], False, id="a negative delay"),
        pytest.param([{**TASK, "retry_delay": 0}], True, id="no delay"),
        pytest.param([{**TASK, "id": ""}], False, id="no name"),
    ],
)
def test_whether_a_list_is_valid_is_computed_unless_it_is_said(tasks: list[object], valid: bool) -> None:
    ((start,),) = [position.events for position in read({**START, "tasks": tasks})]
    assert start.tasks is not None
    assert start.tasks.valid is valid
    ((start,),) = [position.events for position in read({**START, "tasks": tasks, "valid": not valid})]
    assert start.tasks is not None
    assert start.tasks.valid is not valid


WRONG = [
    pytest.param([], 1, "the first line is not a header", id="nothing"),
    pytest.param(["[]"], 1, "the first line is not a header", id="no object"),
    pytest.param(["{"], 1, "it is not JSON", id="no JSON"),
    pytest.param(['{"kron_trace": 2}'], 1, "unknown format version 2", id="another version"),
    pytest.param(['{"kron_trace": true}'], 1, "version True", id="no version"),
    pytest.param(['{"kron_trace": 1, "unit": "us"}'], 1, "unit is 'us'", id="another unit"),
    pytest.param(['{"kron_trace": 1, "unit": []}'], 1, "unit is []", id="no unit"),
    pytest.param(['{"kron_trace": 1, "compute": "some"}'], 1, "compute is 'some'", id="another compute"),
    pytest.param(['{"kron_trace": 1, "derive": "Due"}'], 1, '"derive" is not a list', id="derive no list"),
    pytest.param(['{"kron_trace": 1, "derive": ["RunStart"]}'], 1, "cannot be derived", id="derive a start"),
    pytest.param(['{"kron_trace": 1, "derive": [[]]}'], 1, "cannot be derived", id="derive a list"),
    pytest.param(['{"kron_trace": 1, "timezone": "Mars"}'], 1, 'Unknown timezone "Mars"', id="another world"),
    pytest.param(['{"kron_trace": 1, "timezone": 5}'], 1, "Unknown timezone", id="no zone"),
    pytest.param(
        ['{"kron_trace": 1, "unit": "step", "derive": ["Due"]}'], 1, "has no minutes", id="steps and dues"
    ),
    pytest.param([HEADER, "x"], 2, "it is not JSON", id="no JSON in an event"),
    pytest.param([HEADER, "[" * 100_000], 2, "nested too deeply", id="deep"),
    pytest.param([HEADER, "1" * 5000], 2, "it is not JSON", id="a number without end"),
    pytest.param([HEADER, b"\xff"], 2, "not UTF-8", id="no UTF-8"),
    pytest.param([HEADER, "3"], 2, "an event must be an object", id="no object as event"),
    pytest.param([HEADER, '{"event": "Compute"}'], 2, "t is missing", id="no time"),
    pytest.param([HEADER, '{"t": 1.5, "event": "Compute"}'], 2, "t is 1.5", id="a broken time"),
    pytest.param([HEADER, '{"t": true, "event": "Compute"}'], 2, "t is true", id="a true time"),
    pytest.param([HEADER, '{"t": NaN, "event": "Compute"}'], 2, "t is NaN", id="no number"),
    pytest.param([HEADER, '{"t": 1, "i": -1, "event": "Compute"}'], 2, "i is -1", id="a negative position"),
    pytest.param([HEADER, '{"t": 1, "i": "0", "event": "Compute"}'], 2, 'i is "0"', id="a text as position"),
    pytest.param([HEADER, '{"t": 1}'], 2, "missing is not an event", id="no event"),
    pytest.param([HEADER, '{"t": 1, "event": "Tick"}'], 2, '"Tick" is not an event', id="another event"),
    pytest.param([HEADER, '{"t": 1, "event": ["Due"]}'], 2, "is not an event", id="a list as event"),
    pytest.param([HEADER, '{"t": 1, "event": "Due"}'], 2, "task is missing", id="a due of nobody"),
    pytest.param([HEADER, '{"t": 1, "event": "RunStart", "task": 7}'], 2, "task is 7", id="a number as task"),
    pytest.param([HEADER, '{"t": 1, "event": "Supernatural"}'], 2, "kind is missing", id="no kind"),
    pytest.param(
        [HEADER, '{"t": 1, "event": "StopStart", "call": []}'], 2, "call is []", id="a list as call"
    ),
    pytest.param([HEADER, '{"t": 1, "event": "StopEnd", "call": true}'], 2, "call is true", id="a true call"),
    pytest.param([HEADER, '{"t": 1, "event": "InitStart"}'], 2, 'needs "tasks"', id="no tasks"),
    pytest.param([HEADER, json.dumps({**START, "tasks": [7]})], 2, "a task must be an object", id="no task"),
    pytest.param([HEADER, json.dumps({**START, "tasks": [{"id": "a"}]})], 2, "retry_delay", id="half a task"),
    pytest.param([HEADER, json.dumps({**START, "valid": 1})], 2, "valid is 1", id="valid a number"),
    pytest.param(
        [HEADER, json.dumps({**START, "tasks": [{**TASK, "schedule": None}]})],
        2,
        "schedule",
        id="no schedule",
    ),
    pytest.param(
        [HEADER, '{"t": 5, "event": "Compute"}', "", '{"t": 4, "event": "Compute"}'],
        4,
        "t goes back by 1; time must not decrease",
        id="time goes back",
    ),
    pytest.param(
        [HEADER, '{"t": 5, "i": 4, "event": "Compute"}', '{"t": 5, "i": 3, "event": "Compute"}'],
        3,
        "i goes back",
        id="a position goes back",
    ),
    pytest.param(
        [HEADER, '{"t": 5, "i": 4, "event": "Compute"}', '{"t": 6, "i": 4, "event": "Compute"}'],
        3,
        "events at one position must have one time",
        id="two times at one position",
    ),
    pytest.param(
        ['{"kron_trace": 1, "unit": "s", "derive": ["Due"]}', '{"t": 999999999999, "event": "Compute"}'],
        2,
        "minutes can be derived only for the years 1 to 9999",
        id="beyond the calendar",
    ),
]


@pytest.mark.parametrize(("lines", "line", "reason"), WRONG)
def test_what_is_no_trace_is_refused_with_its_line(lines: list[str], line: int, reason: str) -> None:
    with pytest.raises(InvalidTraceError) as refused:
        Trace.from_jsonl(lines)
    assert (refused.value.line, refused.value.code) == (line, "invalid_trace")
    assert str(refused.value).startswith(f"Invalid trace, line {line}: ")
    assert reason in str(refused.value)
    with pytest.raises(InvalidTraceError):
        check(Trace.from_jsonl(iter(lines)))


def test_what_comes_after_the_scope_must_still_be_readable() -> None:
    lines = [*lines_of("IS IEs Sup:store"), "x"]
    with pytest.raises(InvalidTraceError, match="line 5"):
        check(Trace.from_jsonl(iter(lines)))


def test_a_stream_is_read_as_it_is_judged_and_only_once() -> None:
    seen = 0

    def lines() -> Iterator[str]:
        nonlocal seen
        for line in lines_of("IS IEs Due RS REs"):
            seen += 1
            yield line

    subject = Trace.from_jsonl(lines())
    assert seen == 1
    positions = iter(subject)
    next(positions)
    assert seen == 3
    with pytest.raises(InvalidTraceError, match="only once"):
        check(subject)


def test_a_list_of_lines_can_be_judged_again() -> None:
    subject = trace("IS IEs Due RS REs")
    assert check(subject).to_dict() == check(subject).to_dict()
    assert check(Trace.from_jsonl("\n".join(lines_of("IS IEs Due RS REs")))).conforms


# --- writing ---


@law(150)
@given(lines=traces())
def test_a_trace_written_and_read_back_is_the_same(lines: list[str]) -> None:
    subject = Trace.from_jsonl(lines)
    again = Trace.from_jsonl(list(subject.to_jsonl()))
    assert again.header == subject.header
    assert list(again) == list(subject)
    assert check(again, happy=["store"]).to_dict() == check(subject, happy=["store"]).to_dict()


def test_an_event_is_written_as_a_line() -> None:
    assert line_of(Event(Kind.RUN_START, task="a"), t=5) == '{"t": 5, "event": "RunStart", "task": "a"}'
    assert json.loads(line_of(Event(Kind.DUE, task="a", schedule="* * * * *"), t=5, i=2)) == {
        "i": 2,
        "t": 5,
        "event": "Due",
        "task": "a",
        "schedule": "* * * * *",
    }


def test_a_header_says_only_what_is_not_usual() -> None:
    assert Header().to_dict() == {"kron_trace": 1, "unit": "ms"}
    derive = frozenset({Kind.DUE, Kind.RETRY_DUE})
    assert Header(unit="s", derive=derive, timezone="Europe/Berlin", computed=False).to_dict() == {
        "kron_trace": 1,
        "unit": "s",
        "derive": ["Due", "RetryDue"],
        "timezone": "Europe/Berlin",
        "compute": "none",
    }


# --- the alphabet ---


def test_every_event_has_an_owner() -> None:
    scheduler = {Kind.INIT_SUCCESS, Kind.INIT_FAILURE, Kind.STOP_END, Kind.RUN_START}
    assert {kind for kind in Kind if OWNERS[kind] is Owner.SCHEDULER} == scheduler
    assert {kind for kind in Kind if OWNERS[kind] is Owner.NOBODY} == {Kind.SUPERNATURAL}
    assert set(OWNERS) == set(Kind)


# --- hostile input ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("t", "i", "event", "call", "list", "tasks", "task", "schedule", "kind", "valid", "retry_delay", "id")
OBJECTS = st.dictionaries(
    st.sampled_from([*NAMES, "kron_trace", "unit", "derive", "timezone", "compute"]), JSON
)


@law(200)
@given(
    lines=traces(),
    values=st.lists(st.tuples(st.integers(0, 40), OBJECTS | JSON), max_size=3),
    signs=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.text(max_size=4)), max_size=2),
)
def test_fuzzed_lines_raise_only_the_named_error(
    lines: list[str], values: list[tuple[int, object]], signs: list[tuple[int, int, str]]
) -> None:
    for place, value in values:
        number = place % len(lines)
        known = json.loads(lines[number])
        both = isinstance(known, dict) and isinstance(value, dict)
        lines[number] = json.dumps(known | value if both else value)
    for place, column, text in signs:
        number = place % len(lines)
        lines[number] = lines[number][:column] + text + lines[number][column + 1 :]
    try:
        report = check(Trace.from_jsonl(lines))
    except InputError as error:
        assert isinstance(error, InvalidTraceError)  # noqa: PT017 (either outcome is lawful)
    else:
        assert report.verdict in ("conforms", "violates")
