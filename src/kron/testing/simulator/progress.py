"""The cost of progress: the steps per promise in a busy scenario, for any list and downtime."""

import asyncio
from typing import NamedTuple

from kron.testing.simulator.compute import ComputeModel
from kron.testing.simulator.judge import WITNESSES, judge, steps_of
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask
from kron.testing.simulator.world import play
from kron.theory import Status, Witnesses, check, fit
from kron.theory.checker import Cost, costs_of

# Half a minute before noon, in a zone with transitions.
START_AT, ZONE = 1767268770, "Europe/Berlin"
HOUR = 3600
# No finite trace decides these two.
UNDECIDED = ("EA4", "EA5")


class Progress(NamedTuple):
    """The most and the least expensive promise of each axiom; the smallest a for the published b."""

    tasks: int
    down_s: int
    most_expensive: dict[str, Cost]
    least_expensive: dict[str, Cost]
    fitted: Witnesses
    conforms: bool


def busy_scenario(tasks: int, down_s: int) -> Scenario:
    """Return a scenario in which every task fails once, is retried, and survives downtime and a crash."""
    given = tuple(ScenarioTask(f"task-{number:06}", "0 * * * *", 60, ("fail",)) for number in range(tasks))
    init, stop, crash = (
        ScenarioStep(Act.INIT, tasks=given),
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.CRASH),
    )
    steps = (
        init, _wait(101), stop, _wait(down_s), init, _wait(60), crash, _wait(10),
        init, _wait(HOUR), stop, _wait(1),
    )  # fmt: skip
    return Scenario(ZONE, START_AT, steps)


def measure(tasks: int, down_s: int = HOUR) -> Progress:
    """Play a busy scenario, count its steps, and check it against the published witnesses."""
    history = asyncio.run(play(busy_scenario(tasks, down_s), compute=ComputeModel(None, 0)))
    trace = steps_of(history)
    costs = sorted(costs_of(trace))
    most_expensive = {cost.axiom: cost for cost in costs}
    least_expensive = {cost.axiom: cost for cost in reversed(costs)}
    report = check(trace, WITNESSES)
    judged = all(finding.status is Status.PASSED for finding in report if finding.axiom not in UNDECIDED)
    fitted = fit(trace, b=WITNESSES.b)
    return Progress(tasks, down_s, most_expensive, least_expensive, fitted, judged and judge(history).lawful)


def _wait(seconds: float) -> ScenarioStep:
    return ScenarioStep(Act.WAIT, seconds=seconds)
