"""A seeded world for `kron.Scheduler`: what can go wrong does, and every story is judged."""

from kron.testing.simulator.judge import Verdict, simulate
from kron.testing.simulator.scenario import Act, Given, Scenario, Step, drawn
from kron.testing.simulator.shrink import shrink
from kron.testing.simulator.world import Story, play

__all__ = ["Act", "Given", "Scenario", "Step", "Story", "Verdict", "drawn", "play", "shrink", "simulate"]
