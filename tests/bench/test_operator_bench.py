"""The operator part of the benchmark in a small size."""

import pytest

from bench import operator


@pytest.mark.slow
def test_a_burst_and_the_idle_time_before_it_are_measured() -> None:
    found = operator.run(lambda _: None, quick=True)
    assert [row.cost is not None for row in found.rows] == [True, True]
    assert [goal.met for goal in found.goals] == [None, True]
