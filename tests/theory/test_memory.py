"""The checker's memory is bounded by the tasks, not by the length of the trace."""

import tracemalloc
from collections.abc import Iterator
from itertools import islice

import pytest

from bench.theory import trace_lines
from kron.theory import Trace, Witnesses, check
from kron.theory.checker import positions_of
from kron.theory.monitor import CheckOptions, Monitor


@pytest.mark.parametrize("derived", [False, True], ids=["written", "derived"])
@pytest.mark.parametrize("kron", [True, False], ids=["kron", "literal"])
def test_the_states_kept_are_those_of_the_tasks(derived: bool, kron: bool) -> None:
    trace = Trace.from_jsonl(trace_lines(5_000, 7, derived=derived))
    monitor = Monitor(trace.header, CheckOptions(kron=kron, witnesses=Witnesses(100, 100, 0)))
    for position in positions_of(trace, kron=kron):
        monitor.feed(position)
        assert monitor.tasks.states <= 14
        assert monitor.tasks.promised <= 7


def lines(count: int) -> Iterator[str]:
    return islice(trace_lines(1_000_000, 20, derived=False), count)


def peak_of(count: int) -> int:
    tracemalloc.start()
    try:
        assert check(Trace.from_jsonl(lines(count)), Witnesses(1000, 1000, 0)).conforms
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_longer_trace_takes_no_more_memory() -> None:
    peak_of(100)  # loads and fills the caches
    short, long = peak_of(6_000), peak_of(30_000)
    assert long < 2 * short
