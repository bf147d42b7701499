"""Bounded exhaustive exploration: every order in which a few things can happen in a small world."""

from collections.abc import Iterator
from itertools import product

from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask

# One task fails and is tried again after a while, the other is still running when its next minute comes.
FAILING = ScenarioTask("a", "* * * * *", 30, ("fail",))
SLOW = ScenarioTask("b", "* * * * *", 0, ("90s",))
EDITED = ScenarioTask("a", "0-59 * * * *", 90)
START = ScenarioStep(Act.INIT, tasks=(FAILING, SLOW))
ALPHABET = (
    START,
    ScenarioStep(Act.INIT, tasks=(EDITED,)),
    ScenarioStep(Act.STOP),
    ScenarioStep(Act.CRASH, turns=1),
    ScenarioStep(Act.WAIT, seconds=60),
    ScenarioStep(Act.TRAP, call="settle", how="after"),
    ScenarioStep(Act.FAULT, call="settle", how="after"),
)
# Half a minute before noon.
BEGIN = 1767268770


def scenarios(bound: int) -> Iterator[Scenario]:
    """Yield all scenarios of up to so many steps after the first, the short ones first."""
    for length in range(bound + 1):
        for steps in product(ALPHABET, repeat=length):
            yield Scenario("UTC", BEGIN, (START, *steps))


def count(bound: int) -> int:
    """Return how many scenarios there are."""
    return sum(len(ALPHABET) ** length for length in range(bound + 1))
