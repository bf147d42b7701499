"""What progress costs: the steps that promises of a busy life take, for lists and absences of any size."""

import asyncio
from typing import NamedTuple

from kron.testing.simulator.compute import Weather
from kron.testing.simulator.judge import WITNESSES, judge, steps_of
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask
from kron.testing.simulator.world import play
from kron.theory import Status, Witnesses, check, fit
from kron.theory.checker import Cost, costs_of

# Half a minute before noon, in a zone whose offsets have to be found out.
BEGIN, ZONE = 1767268770, "Europe/Berlin"
HOUR = 3600
# No finite trace decides these two.
UNDECIDED = ("EA4", "EA5")


class Progress(NamedTuple):
    """The dearest and the cheapest promise of each axiom; the smallest a that does for the published b."""

    tasks: int
    down_s: int
    dearest: dict[str, Cost]
    cheapest: dict[str, Cost]
    fitted: Witnesses
    conforms: bool


def busy_life(tasks: int, down_s: int) -> Scenario:
    """Return a life in which every task fails once, is tried again, and outlives an absence and a crash."""
    given = tuple(ScenarioTask(f"task-{number:06}", "0 * * * *", 60, ("fail",)) for number in range(tasks))
    begin, stop, crash = (
        ScenarioStep(Act.INIT, tasks=given),
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.CRASH),
    )
    steps = (
        begin, _wait(101), stop, _wait(down_s), begin, _wait(60), crash, _wait(10),
        begin, _wait(HOUR), stop, _wait(1),
    )  # fmt: skip
    return Scenario(ZONE, BEGIN, steps)


def measure(tasks: int, down_s: int = HOUR) -> Progress:
    """Live a busy life, count its steps, and hold it to the published witnesses."""
    story = asyncio.run(play(busy_life(tasks, down_s), weather=Weather(None, 0)))
    trace = steps_of(story)
    costs = sorted(costs_of(trace))
    dearest = {cost.axiom: cost for cost in costs}
    cheapest = {cost.axiom: cost for cost in reversed(costs)}
    report = check(trace, WITNESSES)
    judged = all(finding.status is Status.PASSED for finding in report if finding.axiom not in UNDECIDED)
    fitted = fit(trace, b=WITNESSES.b)
    return Progress(tasks, down_s, dearest, cheapest, fitted, judged and judge(story).lawful)


def _wait(seconds: float) -> ScenarioStep:
    return ScenarioStep(Act.WAIT, seconds=seconds)
