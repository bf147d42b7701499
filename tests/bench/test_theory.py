"""The theory part of the benchmark in a small size: its traces are lawful, and all of it is measured."""

import pytest

from bench import progress, theory
from kron.theory import Trace, check


@pytest.mark.parametrize("derived", [False, True], ids=["written", "derived"])
def test_the_trace_that_is_measured_is_lawful_and_has_all_kinds_of_ends(derived: bool) -> None:
    lines = list(theory.trace_lines(3_000, 5, derived=derived))
    assert len(lines) == 3_001
    report = check(Trace.from_jsonl(lines), None if derived else theory.GENEROUS)
    assert [finding.message for finding in report.failed] == []
    text = "".join(lines)
    for kind in ("InitSuccess", "StopEnd", "RunSuccess", "RunFailure"):
        assert kind in text
    assert ("RetryDue" in text.partition("tasks")[2]) is not derived


@pytest.mark.slow
def test_both_traces_are_measured_and_the_goal_is_about_a_million_events() -> None:
    said: list[str] = []
    found = theory.run(said.append, quick=True)
    assert [row.title for row in found.rows] == [theory.TITLE, theory.TITLE]
    assert all(row.cost and "conforms" in row.note for row in found.rows)
    (goal,) = found.goals
    assert (goal.what, goal.wanted, goal.met) == (
        "trace checking, 1 M events, processor time",
        "<= 30 s",
        None,
    )
    assert len(said) == 2


@pytest.mark.slow
def test_progress_is_counted_for_lists_and_absences_that_grow() -> None:
    said: list[str] = []
    found = progress.run(said.append, quick=True)
    assert [row.contender for row in found.rows] == [
        "1 tasks", "4 tasks", "16 tasks", "1 task, 1 years away", "1 task, 10 years away",
    ]  # fmt: skip
    assert all("fitted (a, b, t_lag) = (" in row.note for row in found.rows)
    (goal,) = found.goals
    assert goal.met
    assert len(said) == len(found.rows)
