"""A seeded world for `kron.Scheduler`: what can go wrong does, and every story is judged."""

from kron.testing.simulator.judge import Verdict, simulate
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask, drawn
from kron.testing.simulator.shrink import shrink
from kron.testing.simulator.world import Story, play

__all__ = [
    "Act",
    "Scenario",
    "ScenarioStep",
    "ScenarioTask",
    "Story",
    "Verdict",
    "drawn",
    "play",
    "shrink",
    "simulate",
]
