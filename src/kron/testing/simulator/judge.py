"""The judge: the theory's axioms on the trace, the ledger on what is on record, and calls against starts."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kron.testing.simulator.compute import Weather
from kron.testing.simulator.compute_trace import computed
from kron.testing.simulator.ledger import faults_of
from kron.testing.simulator.scenario import Act, Scenario, drawn, sheltered
from kron.testing.simulator.step_counter import POINT
from kron.testing.simulator.trace_repair import Line, lawful
from kron.testing.simulator.world import Seen, Story, play
from kron.theory import Report, Trace, Witnesses, check
from kron.theory.environment import EnvironmentClass

# As long as a store that fails a few times is asked again; without that nothing may be late at all.
MAX_LATE_MS = 30_000
HAPPY = ("clock",)
# What every promise of a simulated engine costs at most, in steps: a for each bit of the list and the time,
# and b in any case, much of which is for absences of years.
WITNESSES = Witnesses(a=10, b=5_000, t_lag=0)
FAIR = "fair"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a story is found guilty of, if anything; `str` of it is what to read."""

    seed: int | str | None
    story: Story
    faults: tuple[str, ...]

    @property
    def lawful(self) -> bool:
        """Say whether nothing was wrong."""
        return not self.faults

    @property
    def signature(self) -> str:
        """Return what kind of fault was found first, to tell it from others."""
        return self.faults[0].split(":")[0] if self.faults else ""

    def __str__(self) -> str:
        head = f"seed {self.seed}: {'lawful' if self.lawful else 'VIOLATION'}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults), str(self.story.scenario)])


def judge(story: Story, seed: int | str | None = None) -> Verdict:
    """Judge what happened."""
    lines: list[Line] = lawful([json.loads(line) for line in story.lines])
    report = _report(story, lines)
    found = [f"{finding.axiom}: {finding.message} (t {finding.t})" for finding in report.failed]
    found += [f"calls: {fault}" for fault in [*story.faults, *_miscounts(story, lines)]]
    found += [f"ledger: {fault}" for fault in faults_of(story, lines)]
    return Verdict(seed, story, tuple(found))


def _report(story: Story, lines: Sequence[Line]) -> Report:
    """Judge a trace by the axioms: liveness by compute where steps were counted, else by the clock."""
    if story.meter is not None:
        return check(steps_of(story), WITNESSES, happy=HAPPY)
    return check(trace_of(lines), happy=HAPPY, within=late_ms(story.scenario))


def trace_of(lines: Sequence[Line]) -> Trace:
    """Return lines as a trace."""
    return Trace.from_jsonl([json.dumps(line) for line in lines])


def steps_of(story: Story) -> Trace:
    """Return the trace of a story whose steps were counted, in steps and with all of them in it."""
    assert story.meter is not None, "nobody counted"
    lines = lawful([json.loads(line) for line in story.lines])
    return computed(trace_of(lines), [line[POINT] for line in lines[1:]], story.meter)


def late_ms(scenario: Scenario) -> int:
    """Return how late by the wall clock something may be: a clock set forward makes all that is owed late."""
    jumped = sum(step.seconds for step in scenario.steps if step.act is Act.JUMP and step.seconds > 0)
    return int(1000 * jumped) + (MAX_LATE_MS if scenario.faulty else 0)


def _miscounts(story: Story, lines: Sequence[Line]) -> Iterator[str]:
    """Compare what was seen with what was told, life by life.

    A crash may come between what is on record and what happens: one start of a task may die before its call,
    and one end of a call before anybody heard of it.
    """
    lives = [Counter[Seen]()]
    for line in lines:
        if line.get("event") == "UnexpectedShutdown":
            lives.append(Counter())
        elif "task" in line:
            lives[-1][line["task"], line["event"]] += 1
    for life, (told, seen) in enumerate(zip(lives, story.lives, strict=True)):
        spare = 1 if life + 1 < len(lives) else 0
        for name, event in sorted(told | seen):
            missing = told[name, event] - seen[name, event]
            if not 0 <= (missing if event == "RunStart" else -missing) <= spare:
                counts = f"{told[name, event]} times in the trace and {seen[name, event]} times in the world"
                yield f"life {life}: {event} of {name} {counts}"


def judged(
    scenario: Scenario,
    *,
    seed: int | str | None = None,
    folder: Path | None = None,
    weather: Weather | None = None,
) -> Verdict:
    """Play a scenario and judge it."""
    return judge(asyncio.run(play(scenario, folder, weather)), seed)


def simulate(seed: int | str, *, folder: Path | None = None, environment: str | None = None) -> Verdict:
    """Play the scenario of a seed, in memory or with a file in a folder, and judge it.

    With an `environment` every step of the engine is counted, and liveness is judged by that. `fair` grants
    all the compute there is; `freezing`, `thawing`, `lower-bounded` and `burst` are the theory's classes.
    """
    if environment is None:
        return judged(drawn(seed), seed=seed, folder=folder)
    if environment == FAIR:
        return judged(drawn(seed), seed=seed, folder=folder, weather=Weather(None, seed))
    weather = Weather(EnvironmentClass(environment), seed)
    return judged(sheltered(drawn(seed)), seed=seed, folder=folder, weather=weather)
