"""Notions of the theory by themselves, what follows from its axioms, and that it knows no engine."""

import json
import subprocess
import sys

import pytest
from hypothesis import given

from kron.theory import Kind, Position, Status, Task, TaskList, Trace, check
from kron.theory.attribution import attributed
from kron.theory.event import RUN_ENDS, Opaque
from kron.theory.world import TraceWorld
from tests.strategies import law
from tests.theory.notation import EVERY, lines_of, trace
from tests.theory.strategies import traces

# --- the checker alone -----------------------------------------------------------------------------

# Imports, then a whole check in both readings, then all that was loaded of Kron.
ALONE = """
import json, sys
lines = sys.stdin.read()
{work}
print(json.dumps(sorted(name for name in sys.modules if name.startswith("kron"))))
"""
CHECKS = """
from kron.theory import Trace, check
print(check(Trace.from_jsonl(lines), reading="literal").verdict, file=sys.stderr)
print(check(Trace.from_jsonl(lines)).verdict, file=sys.stderr)
"""
KNOWS = "import kron.core.cron.dialect, kron.core.time.zone, kron.core.cron.schedule, kron.core.errors"


def loaded_by(work: str, lines: str) -> tuple[set[str], str]:
    """Return which of Kron's modules a program of its own has loaded, and what it said."""
    code = ALONE.format(work=work)
    done = subprocess.run(
        [sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout)), done.stderr


def test_a_trace_is_judged_alone_and_nothing_of_the_engine_is_even_loaded() -> None:
    text = "\n".join(lines_of("IS@10 IEs RS@20 REs RS@30", derive=["MinuteStart", "Due"], timezone="UTC"))
    loaded, said = loaded_by(CHECKS, text)
    allowed, _ = loaded_by(KNOWS, "")
    assert said.split()[-1] == "violates"
    assert {name for name in loaded if not name.startswith("kron.theory")} <= allowed
    assert "kron.core.cron.schedule" in loaded, "dues were computed, so the trace was really judged"


# --- tasks and lists -------------------------------------------------------------------------------


def a_list(*tasks: Task) -> TaskList:
    return TaskList(label=None, tasks=tasks, valid=True)


A, OTHER_A, B = Task("a", EVERY, 5), Task("a", "0 * * * *", 500), Task("b", EVERY, 5)


@pytest.mark.parametrize(
    ("x", "y", "alike"),
    [
        pytest.param(A, A, True, id="itself"),
        pytest.param(A, OTHER_A, True, id="nothing but the id is the same"),
        pytest.param(A, B, False, id="all but the id is the same"),
        pytest.param(A, Task("A", EVERY, 5), False, id="another case"),
    ],
)
def test_tasks_are_alike_exactly_if_their_ids_are_equal(x: Task, y: Task, alike: bool) -> None:
    assert x.is_like(y) is y.is_like(x) is alike


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        pytest.param((), (), True, id="nothing"),
        pytest.param((A, B), (OTHER_A, B), True, id="place by place"),
        pytest.param((A, B), (B, A), False, id="another order"),
        pytest.param((A,), (A, B), False, id="one longer"),
        pytest.param((A, B), (A, A), False, id="one place differs"),
        pytest.param((A, A), (OTHER_A, A), True, id="duplicates count as often as they stand there"),
    ],
)
def test_lists_are_alike_place_by_place(
    first: tuple[Task, ...], second: tuple[Task, ...], alike: bool
) -> None:
    assert a_list(*first).is_like(a_list(*second)) is a_list(*second).is_like(a_list(*first)) is alike


def test_a_task_has_its_five_parts_and_only_a_trace_that_says_them_shows_them() -> None:
    said = {"id": "a", "schedule": EVERY, "retry_delay": 5, "callback": "backup", "key": "k"}
    plain = {name: said[name] for name in ("id", "schedule", "retry_delay")}
    lines = ['{"kron_trace": 1}', json.dumps({"t": 0, "event": "InitStart", "tasks": [said, plain]})]
    ((event,),) = [position.events for position in Trace.from_jsonl(lines)]
    assert event.tasks is not None
    whole, bare = event.tasks.tasks
    assert (whole.id, whole.schedule, whole.callback, whole.retry_delay) == ("a", EVERY, "backup", 5)
    assert whole.key == Opaque("k")
    assert (bare.callback, bare.key) == (None, None)
    assert list(Trace.from_jsonl(Trace.from_jsonl(lines).to_jsonl())) == list(Trace.from_jsonl(lines))


def test_an_opaque_key_can_be_compared_and_nothing_else() -> None:
    key = Opaque("secret")
    assert key == Opaque("secret")
    assert key != Opaque("other")
    assert key != "secret"
    assert "secret" not in f"{key!r} {key}"
    with pytest.raises(TypeError):
        sorted([key, Opaque("other")])  # type: ignore[type-var]
    with pytest.raises(TypeError):
        json.dumps(key)


def test_a_key_tells_tuples_apart_in_the_literal_reading_only() -> None:
    tasks = [{"id": "a", "schedule": EVERY, "retry_delay": 5, "key": key} for key in ("one", "two")]
    events = [json.loads(line) for line in lines_of("IS IEs Due RS REs SS SE IS IEs RS")]
    begun = [event for event in events if event.get("event") == "InitStart"]
    for number, event in enumerate(begun):
        event |= {"list": number, "tasks": [tasks[number]]}
    for event in events:
        if event.get("event") == "InitSuccess":
            event.pop("list", None)
    subject = Trace.from_jsonl([json.dumps(event) for event in events])
    one, two = (Task("a", EVERY, 5, None, Opaque(key)) for key in ("one", "two"))
    literal = TraceWorld(subject.header, list(attributed(subject)), kron=False)
    assert places(literal.due_pending(one))[:2] == [2]
    assert places(literal.due_pending(two))[:7] == [2, 3, 4, 5, 6, 7, 8]
    ours = TraceWorld(subject.header, list(subject), kron=True)
    assert places(ours.due_pending(one)) == places(ours.due_pending(two)) == [2]


# --- formulas --------------------------------------------------------------------------------------


def world(text: str) -> TraceWorld:
    subject = trace(text)
    return TraceWorld(subject.header, list(subject), kron=True)


def places(formula: list[bool]) -> list[int]:
    return [i for i, value in enumerate(formula) if value]


def test_a_stop_belongs_to_the_list_that_is_registered_there() -> None:
    subject = world("SS SE IS IEs SS SE IS=AB SS IEs SE SS SE")
    by_label = {tasks.label: tasks for tasks in subject.lists}
    one, two = by_label["A"], by_label["AB"]
    assert places(subject.stop_of(one, Kind.STOP_START)) == [4, 7]
    assert places(subject.stop_of(one, Kind.STOP_END)) == [5]
    assert places(subject.stop_of(two, Kind.STOP_START)) == [10]
    assert places(subject.stop_of(two, Kind.STOP_END)) == [9, 11]


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        pytest.param("IS IEs Due", [0, 1, 2], id="nothing ever ran"),
        pytest.param("RS C REs C", [2, 3], id="from the very start to the end, which is quiet"),
        pytest.param("RS REf", [1], id="a failure is an end"),
        pytest.param("RS:a RS:b REs:a REs:b", [3], id="one of two still runs"),
        pytest.param("RS:a RS:b REs:b Crash C", [3, 4], id="a crash ends all"),
        pytest.param("RS:a REs:b C", [], id="the end of another is none"),
        pytest.param("RS SS SE", [], id="a stop ends nothing"),
    ],
)
def test_it_is_quiescent_where_nothing_runs(text: str, quiet: list[int]) -> None:
    assert places(world(text).quiescent) == quiet


# --- theorems --------------------------------------------------------------------------------------
# Each is looked for in the positions themselves, with nothing of the theory but the names of its events.


def breaks_theorem_1(positions: list[Position], *, by: Kind = Kind.CRASH) -> bool:
    """Say whether something starts after a crash with no success of an initialization since."""
    is_down = False
    for position in positions:
        kinds = {event.kind for event in position.events}
        if is_down and Kind.RUN_START in kinds:
            return True
        is_down = by in kinds or (is_down and Kind.INIT_SUCCESS not in kinds)
    return False


def breaks_theorem_2(positions: list[Position]) -> bool:
    """Say whether a task starts while it runs."""
    running: set[str | None] = set()
    for position in positions:
        begun = {event.task for event in position.events if event.kind is Kind.RUN_START}
        if begun & running:
            return True
        ended = {event.task for event in position.events if event.kind in RUN_ENDS}
        crashed = any(event.kind is Kind.CRASH for event in position.events)
        running = set() if crashed else (running | begun) - ended
    return False


def breaks_theorem_3(positions: list[Position]) -> bool:
    """Say whether something starts after a stop's end with no success of an initialization since."""
    return breaks_theorem_1(positions, by=Kind.STOP_END)


THEOREMS = {
    "1": (breaks_theorem_1, "IS IEs Due RS Crash Due RS"),
    "2": (breaks_theorem_2, "IS IEs Due RS Due RS"),
    "3": (breaks_theorem_3, "IS IEs SS SE Due RS"),
}


def is_refuted(subject: Trace) -> bool:
    return check(subject, happy=["clock", "store"])["S1"].status is Status.FAILED


@pytest.mark.parametrize("number", THEOREMS)
def test_what_breaks_a_theorem_breaks_an_axiom(number: str) -> None:
    breaks, example = THEOREMS[number]
    assert breaks(list(trace(example)))
    assert is_refuted(trace(example))


@law(500)
@given(lines=traces())
def test_the_theorems_follow_from_the_axioms(lines: list[str]) -> None:
    """No trace whatsoever breaks one and satisfies the axioms."""
    positions = list(Trace.from_jsonl(lines))
    broken = [number for number, (breaks, _) in THEOREMS.items() if breaks(positions)]
    assert not broken or is_refuted(Trace.from_jsonl(lines)), broken
