"""Bounded exhaustive exploration: every order of a few events for two tasks."""

from collections.abc import Iterator
from itertools import product

from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask

# One task fails and is retried after a delay, the other is still running at its next due minute.
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
START_AT = 1767268770


def scenarios(bound: int) -> Iterator[Scenario]:
    """Yield all scenarios of up to `bound` steps after the first, the short ones first."""
    for length in range(bound + 1):
        for steps in product(ALPHABET, repeat=length):
            yield Scenario("UTC", START_AT, (START, *steps))


def count(bound: int) -> int:
    """Return the number of scenarios."""
    return sum(len(ALPHABET) ** length for length in range(bound + 1))
