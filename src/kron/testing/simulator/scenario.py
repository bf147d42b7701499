"""Scenarios: the steps that a scheduler goes through; drawn from a seed, printed, and shrunk."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from kron.core.time.instant import DAY, datetime_of
from kron.testing.faulty_store import Fault
from kron.testing.simulator.flaws import FLAWS
from kron.testing.simulator.rng import Rng

MINUTE, HOUR = 60, 3600
MONTH, YEAR = 30 * DAY, 365 * DAY
MAX_STEPS = 24


class ScenarioTask(NamedTuple):
    """A task as a scenario registers it; `does` scripts the ends of its calls, then all succeed.

    `ok` and `fail` end at once, `30s` and `fail 30s` after that time, `hang` never.
    """

    name: str
    cron: str
    retry_s: float = 60
    does: tuple[str, ...] = ()

    def __str__(self) -> str:
        does = f", {', '.join(self.does)}" if self.does else ""
        return f"{self.name} ({self.cron}; retry {self.retry_s:g}s{does})"


class Act(StrEnum):
    """The kinds of steps: TRAP is a crash at the next call of a store method, before or after it is done."""

    INIT = "initialize"
    STOP = "stop"
    CRASH = "crash"
    TRAP = "trap"
    FAULT = "fault"
    JUMP = "jump"
    WAIT = "wait"


class ScenarioStep(NamedTuple):
    """One step: it follows the previous one after `turns` iterations of the event loop.

    An INIT with a `flaw` has an invalid list: the tasks, and a registration with that flaw.
    """

    act: Act
    turns: int = 0
    seconds: float = 0
    tasks: tuple[ScenarioTask, ...] = ()
    call: str = ""
    how: str = ""
    flaw: str = ""

    def __str__(self) -> str:
        later = f" {self.turns} turns later" if self.turns else ""
        match self.act:
            case Act.INIT:
                listed = [*map(str, self.tasks), *([self.flaw] if self.flaw else [])]
                return f"initialize{later}: {'; '.join(listed) or 'no tasks'}"
            case Act.TRAP | Act.FAULT:
                return f"{self.act}{later}: {self.how} {self.call}"
            case Act.WAIT | Act.JUMP:
                return (
                    f"{self.act}{later} {timedelta(seconds=abs(self.seconds))}{' back' * (self.seconds < 0)}"
                )
            case Act.STOP | Act.CRASH:
                return f"{self.act}{later}"


class Scenario(NamedTuple):
    """A zone, a start in epoch seconds, and the steps."""

    zone: str
    start: float
    steps: tuple[ScenarioStep, ...]

    @property
    def faulty(self) -> bool:
        """Return whether the store fails or is slow in it, so that starts may be late."""
        return any(step.act is Act.FAULT for step in self.steps)

    @property
    def seconds(self) -> float:
        """Return the seconds that pass in it."""
        return sum(step.seconds for step in self.steps if step.seconds > 0)

    def __str__(self) -> str:
        start = (datetime_of(int(self.start)) + timedelta(seconds=self.start % 1)).isoformat()
        return "\n".join([f"{self.zone}, from {start}", *(f"  {step}" for step in self.steps)])


# --- drawing -----------------------------------------------------------------------------------------

# Zones, each with an instant shortly before a transition or a new day.
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
# How often a scenario ends with a run that exceeds its next minutes; all offsets are whole quarters.
EPISODES, QUARTER, QUARTERLY = 0.2, 900, "0-2,15-17,30-32,45-47 * * * *"
# How often it ends with a store that fails when the end of a run is to be written.
OUTAGES = 0.2
# How often an initialization with an invalid list comes before a step.
FLAWED_LISTS = 0.08
ENGINE_CALLS = ("load", "settle", "settle", "cases", "find_runs", "in_flight")
# These calls do not fail after writing: `initialize` could not report a list that was written.
CALL_FAULTS = {call: tuple(Fault) for call in ENGINE_CALLS} | dict.fromkeys(
    ("acquire", "put", "release"), (Fault.BEFORE, Fault.DELAY, Fault.YIELD)
)
ACTS = (
    *(Act.INIT,) * 24, *(Act.STOP,) * 13, *(Act.CRASH,) * 8, *(Act.TRAP,) * 8, *(Act.FAULT,) * 8,
    *(Act.JUMP,) * 3, *(Act.WAIT,) * 36,
)  # fmt: skip


def drawn(seed: int | str) -> Scenario:
    """Return the scenario of a seed: busy minutes, or quiet years."""
    rng = Rng(seed, "scenario")
    zone, near = rng.one_of(PLACES)
    start = near + rng.one_of((0, 0.5, 30, 59.999, 120))
    rare = rng.happens(0.3)
    tame = rng.happens(0.4)
    acts = [act for act in ACTS if not (tame and act in (Act.FAULT, Act.JUMP))]
    tasks = _tasks(rng, rare)
    steps = [ScenarioStep(Act.INIT, tasks=tasks)]
    is_up = True
    for _ in range(4 + rng.below(MAX_STEPS)):
        step = _step(rng, rng.one_of(acts), rare=rare, is_up=is_up)
        if step.act is Act.INIT:
            # Most restarts have the previous list, with new scripts.
            tasks = _again(rng, tasks) if rng.happens(SAME_LIST) else step.tasks
            step = step._replace(tasks=tasks)
        is_up = {Act.INIT: True, Act.STOP: False, Act.CRASH: False}.get(step.act, is_up)
        steps.append(step)
        if step.act is not Act.WAIT and rng.happens(0.6):
            steps.append(_pause(rng, rare=rare, is_up=is_up))
    if not rare and rng.happens(EPISODES):
        passed = sum(step.seconds for step in steps)
        steps += _overrun(rng, start + passed)
    if not (rare or tame) and rng.happens(OUTAGES):
        passed = sum(step.seconds for step in steps)
        steps += _outage(rng, start + passed)
    return Scenario(zone, start, tuple(_with_flawed_lists(Rng(seed, "flaws"), steps)))


def _with_flawed_lists(rng: Rng, steps: Sequence[ScenarioStep]) -> Iterator[ScenarioStep]:
    """Yield the steps, and before some of them an initialization with an invalid list."""
    tasks: tuple[ScenarioTask, ...] = ()
    for step in steps:
        if rng.happens(FLAWED_LISTS):
            turns, flaw = rng.one_of((0, 0, 1, 3)), rng.one_of(tuple(FLAWS))
            yield ScenarioStep(Act.INIT, turns, tasks=tasks, flaw=flaw)
        tasks = step.tasks or tasks
        yield step


def _overrun(rng: Rng, now: float) -> list[ScenarioStep]:
    """Return a run that exceeds its next minutes, a stop that waits for it, then the same list again.

    The period that waited for that run is due as soon as a scheduler is active, not at the next quarter.
    """
    tasks = (ScenarioTask("a", QUARTERLY, rng.one_of(RETRIES), (rng.one_of(("200s", "fail 200s")),)),)
    waits = (QUARTER - now % QUARTER - 10, rng.one_of((20, 80, 140, 200)), rng.one_of((80, 250, 400)), 70)
    quarter, run, end, rest = (ScenarioStep(Act.WAIT, seconds=seconds) for seconds in waits)
    init, again = ScenarioStep(Act.INIT, tasks=tasks), ScenarioStep(Act.INIT, tasks=_again(rng, tasks))
    return [
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.WAIT, seconds=QUARTER),
        quarter,
        init,
        run,
        ScenarioStep(Act.STOP),
        end,
        again,
        rest,
    ]


def _outage(rng: Rng, now: float) -> list[ScenarioStep]:
    """Return a run whose end is first reported to a failing store; the end must not be lost."""
    tasks = (ScenarioTask("a", "* * * * *", rng.one_of(RETRIES), (rng.one_of(("30s", "fail 30s")),) * 3),)
    # In any case something runs ten seconds after the start of a minute.
    run = MINUTE - now % MINUTE + 10
    how = str(rng.one_of((Fault.BEFORE, Fault.AFTER, Fault.LOSE)))
    return [
        ScenarioStep(Act.STOP),
        ScenarioStep(Act.WAIT, seconds=5 * MINUTE),
        ScenarioStep(Act.INIT, tasks=tasks),
        ScenarioStep(Act.WAIT, seconds=run),
        ScenarioStep(Act.FAULT, call=rng.one_of(("load", "settle")), how=how),
        ScenarioStep(Act.WAIT, seconds=2 * MINUTE),
    ]


def without_long_waits(scenario: Scenario) -> Scenario:
    """Return the scenario without long waits and clock jumps, which the compute model provides."""
    steps = [step._replace(seconds=min(step.seconds, PAUSES[-1])) for step in scenario.steps]
    return scenario._replace(steps=tuple(step for step in steps if step.act is not Act.JUMP))


def _step(rng: Rng, act: Act, *, rare: bool, is_up: bool) -> ScenarioStep:
    turns = rng.one_of((0, 0, 1, 2, 3, 5, 8, 13, 30))
    match act:
        case Act.INIT:
            return ScenarioStep(act, turns, tasks=_tasks(rng, rare))
        case Act.STOP | Act.CRASH:
            return ScenarioStep(act, turns)
        case Act.TRAP:
            call = rng.one_of((*ENGINE_CALLS, "put", "acquire", "release"))
            return ScenarioStep(act, turns, call=call, how=rng.one_of(("before", "after")))
        case Act.FAULT:
            call = rng.one_of(tuple(CALL_FAULTS))
            return ScenarioStep(act, turns, call=call, how=str(rng.one_of(CALL_FAULTS[call])))
        case Act.JUMP:
            return ScenarioStep(act, turns, rng.one_of((5, 61, 600, HOUR, DAY, 400 * DAY, -5, -90, -HOUR)))
        case Act.WAIT:
            return _pause(rng, rare=rare, is_up=is_up)


def _pause(rng: Rng, *, rare: bool, is_up: bool) -> ScenarioStep:
    pauses: Sequence[float] = PAUSES
    if rare and rng.happens(0.5):
        pauses = RARE_PAUSES
    elif not is_up and rng.happens(0.3):
        pauses = LONG_PAUSES
    return ScenarioStep(Act.WAIT, seconds=rng.one_of(pauses))


def _again(rng: Rng, tasks: tuple[ScenarioTask, ...]) -> tuple[ScenarioTask, ...]:
    return tuple(task._replace(does=rng.some_of(DOES, 5)) for task in tasks)


def _tasks(rng: Rng, rare: bool) -> tuple[ScenarioTask, ...]:
    crons = RARE if rare else BUSY
    return tuple(
        ScenarioTask(name, rng.one_of(crons), rng.one_of(RETRIES), rng.some_of(DOES, 5))
        for name in "abc"
        if rng.happens(0.8)
    )


# --- shrinking ---------------------------------------------------------------------------------------

# A scenario has a few dozen steps, so this is reached only if a fault is not deterministic.
MAX_TRIALS = 400


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Return a minimal scenario that still fails."""
    trials = 0
    smaller_fails = True
    while smaller_fails:
        smaller_fails = False
        for smaller in _smaller(scenario):
            trials += 1
            if trials > MAX_TRIALS:
                return scenario
            if fails(smaller):
                scenario, smaller_fails = smaller, True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario without one part: a step, a task, an entry of a task's script, or loop turns."""
    steps = scenario.steps
    for i in reversed(range(len(steps))):
        yield scenario._replace(steps=steps[:i] + steps[i + 1 :])
    for i, step in enumerate(steps):
        variants = [step._replace(turns=0)] if step.turns else []
        if step.act is Act.INIT:
            tasks = step.tasks
            variants += [step._replace(tasks=tasks[:k] + tasks[k + 1 :]) for k in range(len(tasks))]
            variants += [
                step._replace(tasks=(*tasks[:k], task._replace(does=task.does[:-1]), *tasks[k + 1 :]))
                for k, task in enumerate(tasks)
                if task.does
            ]
        for variant in variants:
            yield scenario._replace(steps=(*steps[:i], variant, *steps[i + 1 :]))
