"""A seeded simulator for `kron.Scheduler`: injects every kind of fault and judges each history."""

from kron.testing.simulator.judge import Verdict, simulate
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask, drawn, shrink
from kron.testing.simulator.world import History, play

__all__ = [
    "Act",
    "History",
    "Scenario",
    "ScenarioStep",
    "ScenarioTask",
    "Verdict",
    "drawn",
    "play",
    "shrink",
    "simulate",
]
