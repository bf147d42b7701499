"""Every order of a few events in a small world is lawful; how many there are is counted."""

import pytest

from kron.testing.simulator.explore import count, scenarios
from kron.testing.simulator.judge import judged
from tests.tiers import mostly_slow

BOUND = 3


def test_the_scenarios_are_all_there_and_none_twice() -> None:
    assert len(set(scenarios(BOUND))) == count(BOUND) == 1 + 7 + 49 + 343


@pytest.mark.parametrize("part", mostly_slow(range(8)))
def test_every_order_of_events_is_lawful(part: int) -> None:
    explored = [
        verdict for scenario in list(scenarios(BOUND))[part::8] if not (verdict := judged(scenario)).lawful
    ]
    assert not explored, str(explored[0])
