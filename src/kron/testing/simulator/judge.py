"""The judge: the theory's axioms on the trace, the ledger on the records, and calls against starts."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kron.testing.simulator.compute import ComputeModel
from kron.testing.simulator.demand import unmet
from kron.testing.simulator.ledger import faults_of
from kron.testing.simulator.scenario import Act, Scenario, drawn, without_long_waits
from kron.testing.simulator.step_counter import POINT, computed
from kron.testing.simulator.trace_repair import Line, without_refused
from kron.testing.simulator.world import History, Seen, play
from kron.theory import Report, Trace, Witnesses, check
from kron.theory.environment import EnvironmentClass

# The time for retries of a store that fails a few times; without faults nothing may be late at all.
MAX_LATE_MS = 30_000
HAPPY = ("clock",)
# The most that a promise of a simulated engine costs, in steps: a per bit of the list and the time,
# plus b, much of which is for downtimes of years.
WITNESSES = Witnesses(a=10, b=5_000, t_lag=0)
FAIR = "fair"
CALL_EVENTS = ("InitStart", "InitSuccess", "InitFailure", "StopStart", "StopEnd")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The faults of a history, if any; `str` gives a report for people."""

    seed: int | str | None
    history: History
    faults: tuple[str, ...]

    @property
    def lawful(self) -> bool:
        """Return whether there are no faults."""
        return not self.faults

    @property
    def signature(self) -> str:
        """Return the kind of the first fault, to distinguish it from others."""
        return self.faults[0].split(":")[0] if self.faults else ""

    def __str__(self) -> str:
        head = f"seed {self.seed}: {'no violations' if self.lawful else 'VIOLATION'}"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults), str(self.history.scenario)])


def judge(history: History, seed: int | str | None = None) -> Verdict:
    """Judge a history."""
    lines: list[Line] = without_refused([json.loads(line) for line in history.lines])
    report = _report(history, lines)
    faults = [f"{finding.axiom}: {finding.message} (t {finding.t})" for finding in report.failed]
    faults += [
        f"calls: {fault}"
        for fault in [*history.faults, *_miscounts(history, lines), *_untold(history, lines)]
    ]
    faults += [f"demand: {fault}" for fault in _unmet(history, lines)]
    faults += [f"ledger: {fault}" for fault in faults_of(history, lines)]
    return Verdict(seed, history, tuple(faults))


def _report(history: History, lines: Sequence[Line]) -> Report:
    """Judge a trace by the axioms: liveness by compute where steps were counted, else by the clock."""
    if history.counter is not None:
        return check(steps_of(history), WITNESSES, happy=HAPPY)
    return check(trace_of(lines), happy=HAPPY, within=late_ms(history.scenario))


def trace_of(lines: Sequence[Line]) -> Trace:
    """Return lines as a trace."""
    return Trace.from_jsonl([json.dumps(line) for line in lines])


def steps_of(history: History) -> Trace:
    """Return the trace, in steps, of a history whose steps were counted."""
    assert history.counter is not None, "the steps were not counted"
    lines = without_refused([json.loads(line) for line in history.lines])
    return computed(trace_of(lines), [line[POINT] for line in lines[1:]], history.counter)


def late_ms(scenario: Scenario) -> int:
    """Return how late a start may be by the wall clock: a clock set forward makes all starts late."""
    jumped = sum(step.seconds for step in scenario.steps if step.act is Act.JUMP and step.seconds > 0)
    return int(1000 * jumped) + (MAX_LATE_MS if scenario.faulty else 0)


def _unmet(history: History, lines: Sequence[Line]) -> Iterator[str]:
    """Find starts that the schedules demand; a counted history is late as often as its compute pauses."""
    if history.counter is None:
        zone, until = history.scenario.zone, history.until
        yield from unmet(lines, zone, until=until, late_ms=late_ms(history.scenario))


def _untold(history: History, lines: Sequence[Line]) -> Iterator[str]:
    """Compare the observed calls of `initialize` and `stop` with the trace, per process lifetime.

    A crash may come before a call is traced, and between a traced end and the return of its call.
    """
    traced = [Counter[str]()]
    for line in lines:
        if line.get("event") == "UnexpectedShutdown":
            traced.append(Counter())
        elif line.get("event") in CALL_EVENTS:
            traced[-1][line["event"]] += 1
    for number, (told, seen) in enumerate(zip(traced, history.calls, strict=True)):
        crashed = number + 1 < len(traced)
        ended = seen["InitSuccess"] + seen["InitFailure"]
        cut_off = {"InitSuccess": seen["InitStart"] - ended, "StopEnd": seen["StopStart"] - seen["StopEnd"]}
        for event in CALL_EVENTS:
            extra = told[event] - seen[event]
            if extra > (cut_off.get(event, 0) if crashed else 0) or (extra < 0 and not crashed):
                counts = f"{told[event]} times in the trace and {seen[event]} times observed"
                yield f"process {number}: {event} {counts}"


def _miscounts(history: History, lines: Sequence[Line]) -> Iterator[str]:
    """Compare the observed calls with the trace, per process lifetime.

    A crash may come between a record and its effect: one start of a task may be lost before its call, and
    one end of a call before it is reported.
    """
    uptimes = [Counter[Seen]()]
    for line in lines:
        if line.get("event") == "UnexpectedShutdown":
            uptimes.append(Counter())
        elif "task" in line:
            uptimes[-1][line["task"], line["event"]] += 1
    for number, (traced, seen) in enumerate(zip(uptimes, history.uptimes, strict=True)):
        spare = 1 if number + 1 < len(uptimes) else 0
        for name, event in sorted(traced | seen):
            missing = traced[name, event] - seen[name, event]
            if not 0 <= (missing if event == "RunStart" else -missing) <= spare:
                counts = f"{traced[name, event]} times in the trace and {seen[name, event]} times observed"
                yield f"process {number}: {event} of {name} {counts}"


def judged(
    scenario: Scenario,
    *,
    seed: int | str | None = None,
    folder: Path | None = None,
    compute: ComputeModel | None = None,
) -> Verdict:
    """Play a scenario and judge it."""
    with _unprinted():
        history = asyncio.run(play(scenario, folder, compute))
    return judge(history, seed)


@contextmanager
def _unprinted() -> Iterator[None]:
    """Print no log of the scheduler: scenarios fail on purpose. Configured handlers still receive it."""
    # Python prints warnings of loggers without a handler.
    handler, logger = logging.NullHandler(), logging.getLogger("kron")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def simulate(seed: int | str, *, folder: Path | None = None, environment: str | None = None) -> Verdict:
    """Play the scenario of a seed, in memory or with a file in a folder, and judge it.

    With an `environment` every step of the engine is counted, and liveness is judged by steps. `fair` never
    pauses; `freezing`, `thawing`, `lower-bounded` and `burst` are the theory's classes.
    """
    if environment is None:
        return judged(drawn(seed), seed=seed, folder=folder)
    if environment == FAIR:
        return judged(drawn(seed), seed=seed, folder=folder, compute=ComputeModel(None, seed))
    compute = ComputeModel(EnvironmentClass(environment), seed)
    return judged(without_long_waits(drawn(seed)), seed=seed, folder=folder, compute=compute)
