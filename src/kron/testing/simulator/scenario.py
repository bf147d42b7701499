"""Scenarios: what happens to a scheduler, step by step; drawn from a seed, shown, and made smaller."""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from kron.core.time.instant import DAY, datetime_of
from kron.testing.faulty_store import Fault
from kron.testing.simulator.rng import Draw

MINUTE, HOUR = 60, 3600
MONTH, YEAR = 30 * DAY, 365 * DAY
MAX_STEPS = 24


class ScenarioTask(NamedTuple):
    """A task as a scenario registers it; `does` says how its calls end, one after the other, then all well.

    `ok` and `fail` at once, `30s` and `fail 30s` after that while, `hang` never.
    """

    name: str
    cron: str
    retry_s: float = 60
    does: tuple[str, ...] = ()

    def __str__(self) -> str:
        does = f", {', '.join(self.does)}" if self.does else ""
        return f"{self.name} ({self.cron}; retry {self.retry_s:g}s{does})"


class Act(StrEnum):
    """What can happen: TRAP is a crash that waits for a call of the store, before or after it is done."""

    INIT = "initialize"
    STOP = "stop"
    CRASH = "crash"
    TRAP = "trap"
    FAULT = "fault"
    JUMP = "jump"
    WAIT = "wait"


class ScenarioStep(NamedTuple):
    """One step: it comes so many turns of the event loop after the one before it."""

    act: Act
    turns: int = 0
    seconds: float = 0
    tasks: tuple[ScenarioTask, ...] = ()
    call: str = ""
    how: str = ""

    def __str__(self) -> str:
        later = f" {self.turns} turns later" if self.turns else ""
        match self.act:
            case Act.INIT:
                return f"initialize{later}: {'; '.join(map(str, self.tasks)) or 'no tasks'}"
            case Act.TRAP | Act.FAULT:
                return f"{self.act}{later}: {self.how} {self.call}"
            case Act.WAIT | Act.JUMP:
                return (
                    f"{self.act}{later} {timedelta(seconds=abs(self.seconds))}{' back' * (self.seconds < 0)}"
                )
            case Act.STOP | Act.CRASH:
                return f"{self.act}{later}"


class Scenario(NamedTuple):
    """A zone, a beginning in epoch seconds, and the steps."""

    zone: str
    start: float
    steps: tuple[ScenarioStep, ...]

    @property
    def faulty(self) -> bool:
        """Say whether the store fails or is late in it, so that what is owed may come late."""
        return any(step.act is Act.FAULT for step in self.steps)

    @property
    def seconds(self) -> float:
        """Return how much time passes in it."""
        return sum(step.seconds for step in self.steps if step.seconds > 0)

    def __str__(self) -> str:
        begin = (datetime_of(int(self.start)) + timedelta(seconds=self.start % 1)).isoformat()
        return "\n".join([f"{self.zone}, from {begin}", *(f"  {step}" for step in self.steps)])


# --- drawing -----------------------------------------------------------------------------------------

# Zones, each with an instant shortly before its clocks change or a day begins.
PLACES = (
    ("UTC", 1767268800),
    ("UTC", 1767225540),
    ("Europe/Berlin", 1774745880),
    ("Europe/Berlin", 1792889880),
    ("America/New_York", 1772952900),
    ("Australia/Lord_Howe", 1775314500),
    ("Australia/Lord_Howe", 1791041100),
    ("America/Santiago", 1775357700),
    ("Asia/Kathmandu", 1767204900),
)
BUSY = (
    "* * * * *", "*  * * * *", "0,1 * * * *", "1,3 * * * *", "2 * * * *", "0-10 * * * *", "30 2 * * *",
    "0,15,30,45 * * * *", "0 0 * * *", "1-3,57-59 1-3 * * *",
)  # fmt: skip
RARE = (
    "0 0 1 1 *", "30 2 29 2 *", "0 12 1 * *", "30 2 * 3,10 0", "15 4 31 * *", "0 0 13 * 5",
    "45 23 28-31 12 *",
)  # fmt: skip
DOES = ("ok", "ok", "fail", "fail", "30s", "fail 30s", "90s", "fail 70s", "200s", "hang")
RETRIES = (0, 0.0005, 1, 30, 60, 200, 7200)
PAUSES = (0.001, 1, 5, 20, 30, 59, 60, 61, 119, 180, 400)
LONG_PAUSES = (HOUR, 7 * HOUR, DAY, 40 * DAY, 4 * YEAR)
RARE_PAUSES = (HOUR, DAY, MONTH, 3 * MONTH, YEAR)
SAME_LIST = 0.6
# How often a life ends with a run that outlasts its next minutes; no zone's offset is less than a quarter.
EPISODES, QUARTER, QUARTERLY = 0.2, 900, "0-2,15-17,30-32,45-47 * * * *"
# How often it ends with a store that fails just when the end of a run is to be written.
OUTAGES = 0.2
ENGINE_CALLS = ("load", "settle", "settle", "cases", "find_runs", "in_flight")
# A list that was written although `initialize` failed is beyond what a caller can be told.
CALL_FAULTS = {call: tuple(Fault) for call in ENGINE_CALLS} | dict.fromkeys(
    ("acquire", "put", "release"), (Fault.BEFORE, Fault.DELAY, Fault.YIELD)
)
ACTS = (
    *(Act.INIT,) * 24, *(Act.STOP,) * 13, *(Act.CRASH,) * 8, *(Act.TRAP,) * 8, *(Act.FAULT,) * 8,
    *(Act.JUMP,) * 3, *(Act.WAIT,) * 36,
)  # fmt: skip


def drawn(seed: int | str) -> Scenario:
    """Return the scenario of a seed: minutes of a busy life, or years of a quiet one."""
    draw = Draw(seed, "scenario")
    zone, near = draw.one_of(PLACES)
    start = near + draw.one_of((0, 0.5, 30, 59.999, 120))
    rare = draw.happens(0.3)
    tame = draw.happens(0.4)
    acts = [act for act in ACTS if not (tame and act in (Act.FAULT, Act.JUMP))]
    tasks = _tasks(draw, rare)
    steps = [ScenarioStep(Act.INIT, tasks=tasks)]
    is_up = True
    for _ in range(4 + draw.below(MAX_STEPS)):
        step = _step(draw, draw.one_of(acts), rare=rare, is_up=is_up)
        if step.act is Act.INIT:
            # Mostly a restart has the list of before; what its tasks do is their own.
            tasks = _again(draw, tasks) if draw.happens(SAME_LIST) else step.tasks
            step = step._replace(tasks=tasks)
        is_up = {Act.INIT: True, Act.STOP: False, Act.CRASH: False}.get(step.act, is_up)
        steps.append(step)
        if step.act is not Act.WAIT and draw.happens(0.6):
            steps.append(_pause(draw, rare=rare, is_up=is_up))
    if not rare and draw.happens(EPISODES):
        passed = sum(step.seconds for step in steps)
        steps += _overrun(draw, start + passed)
    if not (rare or tame) and draw.happens(OUTAGES):
        passed = sum(step.seconds for step in steps)
        steps += _outage(draw, start + passed)
    return Scenario(zone, start, tuple(steps))


def _overrun(draw: Draw, now: float) -> list[ScenarioStep]:
    """Return a run that outlasts its next minutes, and a stop that waits for it; then the same list again.

    What waited for that run is owed as soon as somebody is there again, not a quarter of an hour later.
    """
    tasks = (ScenarioTask("a", QUARTERLY, draw.one_of(RETRIES), (draw.one_of(("200s", "fail 200s")),)),)
    waits = (QUARTER - now % QUARTER - 10, draw.one_of((20, 80, 140, 200)), draw.one_of((80, 250, 400)), 70)
    quarter, run, end, rest = (ScenarioStep(Act.WAIT, seconds=seconds) for seconds in waits)
    begin, again = ScenarioStep(Act.INIT, tasks=tasks), ScenarioStep(Act.INIT, tasks=_again(draw, tasks))
    return [
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.WAIT, seconds=QUARTER),
        quarter,
        begin,
        run,
        ScenarioStep(Act.STOP),
        end,
        again,
        rest,
    ]


def _outage(draw: Draw, now: float) -> list[ScenarioStep]:
    """Return a run of which a store that fails is told first; its end is not to be lost by that."""
    tasks = (ScenarioTask("a", "* * * * *", draw.one_of(RETRIES), (draw.one_of(("30s", "fail 30s")),) * 3),)
    # Whatever is owed before, something runs ten seconds after a minute has begun.
    run = MINUTE - now % MINUTE + 10
    how = str(draw.one_of((Fault.BEFORE, Fault.AFTER, Fault.LOSE)))
    return [
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.WAIT, seconds=5 * MINUTE),
        ScenarioStep(Act.INIT, tasks=tasks),
        ScenarioStep(Act.WAIT, seconds=run),
        ScenarioStep(Act.FAULT, call=draw.one_of(("load", "settle")), how=how),
        ScenarioStep(Act.WAIT, seconds=2 * MINUTE),
    ]


def sheltered(scenario: Scenario) -> Scenario:
    """Return a scenario in which nobody waits for long or sets the clock: the weather does that."""
    steps = [step._replace(seconds=min(step.seconds, PAUSES[-1])) for step in scenario.steps]
    return scenario._replace(steps=tuple(step for step in steps if step.act is not Act.JUMP))


def _step(draw: Draw, act: Act, *, rare: bool, is_up: bool) -> ScenarioStep:
    turns = draw.one_of((0, 0, 1, 2, 3, 5, 8, 13, 30))
    match act:
        case Act.INIT:
            return ScenarioStep(act, turns, tasks=_tasks(draw, rare))
        case Act.STOP | Act.CRASH:
            return ScenarioStep(act, turns)
        case Act.TRAP:
            call = draw.one_of((*ENGINE_CALLS, "put", "acquire", "release"))
            return ScenarioStep(act, turns, call=call, how=draw.one_of(("before", "after")))
        case Act.FAULT:
            call = draw.one_of(tuple(CALL_FAULTS))
            return ScenarioStep(act, turns, call=call, how=str(draw.one_of(CALL_FAULTS[call])))
        case Act.JUMP:
            return ScenarioStep(act, turns, draw.one_of((5, 61, 600, HOUR, DAY, 400 * DAY, -5, -90, -HOUR)))
        case Act.WAIT:
            return _pause(draw, rare=rare, is_up=is_up)


def _pause(draw: Draw, *, rare: bool, is_up: bool) -> ScenarioStep:
    pauses: Sequence[float] = PAUSES
    if rare and draw.happens(0.5):
        pauses = RARE_PAUSES
    elif not is_up and draw.happens(0.3):
        pauses = LONG_PAUSES
    return ScenarioStep(Act.WAIT, seconds=draw.one_of(pauses))


def _again(draw: Draw, tasks: tuple[ScenarioTask, ...]) -> tuple[ScenarioTask, ...]:
    return tuple(task._replace(does=draw.some_of(DOES, 5)) for task in tasks)


def _tasks(draw: Draw, rare: bool) -> tuple[ScenarioTask, ...]:
    crons = RARE if rare else BUSY
    return tuple(
        ScenarioTask(name, draw.one_of(crons), draw.one_of(RETRIES), draw.some_of(DOES, 5))
        for name in "abc"
        if draw.happens(0.8)
    )
