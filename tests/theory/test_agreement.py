"""The monitors and the slow evaluator agree on every axiom of every trace, in both readings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.theory import Trace, Witnesses, check
from kron.theory.axioms import evaluate
from kron.theory.liveness import LivenessBounds
from kron.theory.verdict import Status
from tests.strategies import law
from tests.theory.strategies import likely_traces, loose_traces, traces

WITNESSES = st.none() | st.builds(
    Witnesses, a=st.sampled_from([0, 0, 1]), b=st.integers(0, 4), t_lag=st.integers(0, 2)
)


def compare(lines: list[str], reading: str, witnesses: Witnesses | None, within: int | None) -> None:
    """Judge a trace in both ways."""
    trace = Trace.from_jsonl(lines)
    within = None if trace.header.computed else within
    report = check(trace, witnesses, reading=reading, happy=["clock"], within=within)
    expected = evaluate(trace, LivenessBounds(witnesses, within), reading=reading, happy=["clock"])
    found = {finding.axiom: (finding.status, finding.position) for finding in report}
    assert found == expected


@pytest.mark.parametrize("reading", ["kron", "literal"])
@law(250)
@given(lines=loose_traces(), witnesses=WITNESSES, within=st.none() | st.integers(0, 60))
def test_monitors_and_definitions_agree_on_any_events(
    reading: str, lines: list[str], witnesses: Witnesses | None, within: int | None
) -> None:
    compare(lines, reading, witnesses, within)


@pytest.mark.parametrize("reading", ["kron", "literal"])
@law(250)
@given(lines=likely_traces(), witnesses=WITNESSES, within=st.none() | st.integers(0, 60))
def test_monitors_and_definitions_agree_on_likely_runs(
    reading: str, lines: list[str], witnesses: Witnesses | None, within: int | None
) -> None:
    compare(lines, reading, witnesses, within)


@law(60)
@given(lines=traces(), cut=st.integers(0, 30))
def test_what_a_prefix_shows_the_whole_shows(lines: list[str], cut: int) -> None:
    trace = Trace.from_jsonl(lines)
    whole = check(trace, happy=["clock", "store"])
    prefix = Trace(trace.header, list(trace)[:cut])
    for finding in check(prefix, happy=["clock", "store"]):
        if finding.status is Status.FAILED:
            assert whole[finding.axiom] == finding
