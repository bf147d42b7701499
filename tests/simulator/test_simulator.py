"""The seeded world: fixed seeds are lawful, what once broke stays mended, and a false story is found out."""

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.job.outcome import Outcome
from kron.core.plan.plan import plan
from kron.core.plan.record import RunStatus
from kron.core.plan.registration import create
from kron.core.plan.report import Traits
from kron.core.plan.step import JobState, Snapshot
from kron.core.task.task import TaskConfig, job_of
from kron.core.time.instant import datetime_of
from kron.testing.simulator import (
    Act,
    History,
    Scenario,
    ScenarioStep,
    ScenarioTask,
    drawn,
    play,
    shrink,
    simulate,
)
from kron.testing.simulator.demand import unmet
from kron.testing.simulator.flaws import CRONS, FLAWS
from kron.testing.simulator.judge import judge, judged
from kron.testing.simulator.scenario import BUSY, RARE
from kron.testing.simulator.step_counter import MAX_WAKES, CountedClock
from kron.testing.simulator.strict_cron import next_after, parsed
from tests.tiers import mostly_slow

SEEDS = range(100)
ON_DISK = range(1_000, 1_006)
NOON = 1767268800
MINUTELY = ScenarioTask("a", "* * * * *")
HOURLY = ScenarioTask("a", "0 * * * *")
DROPPED = (Outcome.MISSED, Outcome.SKIPPED)


def test_a_scenario_with_failures_prints_nothing() -> None:
    program = "from kron.testing import simulate; raise SystemExit(not simulate(7).lawful)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("first", mostly_slow(SEEDS[:60:5]))
def test_every_story_is_lawful(first: int) -> None:
    for seed in range(first, first + 5):
        verdict = simulate(seed)
        assert verdict.lawful, str(verdict)


@pytest.mark.parametrize("seed", mostly_slow(ON_DISK))
def test_stories_are_lawful_on_disk(seed: int, tmp_path: Path) -> None:
    verdict = simulate(seed, folder=tmp_path)
    assert verdict.lawful, str(verdict)


def test_the_same_seed_tells_the_same_story() -> None:
    stories = [simulate(7).history for _ in range(2)]
    assert stories[0].lines == stories[1].lines
    assert stories[0].uptimes == stories[1].uptimes


@pytest.mark.slow
def test_a_story_in_memory_needs_no_other_thread() -> None:
    """Waiting for a thread takes a varying number of turns of the event loop, which would break replays."""
    before, begun = threading.gettrace(), list[str]()
    threading.settrace(lambda *_: begun.append(threading.current_thread().name))
    try:
        for seed in range(5):
            simulate(seed)
    finally:
        threading.settrace(before)
    assert begun == []


def test_seeds_differ_and_reach_everything() -> None:
    scenarios = [drawn(seed) for seed in SEEDS]
    assert len(set(scenarios)) == len(SEEDS)
    steps = [step for scenario in scenarios for step in scenario.steps]
    assert {step.act for step in steps} == set(Act)
    assert {step.how for step in steps if step.act is Act.FAULT} == {
        "before", "after", "lose", "delay", "yield",
    }  # fmt: skip


def wait(seconds: float) -> ScenarioStep:
    return ScenarioStep(Act.WAIT, seconds=seconds)


ONCE_BROKEN = {
    "a crash while a failed initialization is let go of": (
        ScenarioStep(Act.FAULT, call="cases", how="before"),
        ScenarioStep(Act.TRAP, call="release", how="before"),
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        wait(20),
    ),
    "a failed initialization whose release is late": (
        ScenarioStep(Act.FAULT, call="cases", how="before"),
        ScenarioStep(Act.FAULT, call="release", how="delay"),
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        wait(20),
    ),
    "a second initialize while a stop waits for a start to be written": (
        ScenarioStep(Act.INIT, tasks=(HOURLY,)),
        ScenarioStep(Act.STOP),
        wait(365 * 86_400),
        ScenarioStep(Act.INIT, tasks=(HOURLY._replace(retry_s=30),)),
        ScenarioStep(Act.STOP, turns=1),
        ScenarioStep(Act.INIT),
    ),
    "an end after the wake began, while the clock is set": (
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        ScenarioStep(Act.CRASH, turns=2),
        ScenarioStep(Act.INIT, tasks=(MINUTELY._replace(retry_s=0.0005), ScenarioTask("c", "*  * * * *"))),
        ScenarioStep(Act.JUMP, turns=2, seconds=86_400),
    ),
    "a second stop while the first waits for a lost answer": (
        ScenarioStep(Act.FAULT, call="settle", how="lose"),
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        ScenarioStep(Act.STOP, turns=8),
        ScenarioStep(Act.STOP),
    ),
    "the lease is held still because its release failed": (
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        ScenarioStep(Act.FAULT, turns=8, call="release", how="before"),
        wait(59),
        ScenarioStep(Act.STOP),
        wait(59),
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
    ),
    "a clock set back while the store fails": (
        ScenarioStep(Act.INIT, tasks=(ScenarioTask("a", "45 * * * *"),)),
        ScenarioStep(Act.FAULT, turns=5, call="load", how="before"),
        ScenarioStep(Act.JUMP, seconds=-3600),
        wait(1),
    ),
    "a clock set back at the end of a longer life": (
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
        wait(2 * 3600),
        ScenarioStep(Act.JUMP, seconds=-3600),
    ),
    "a clock set back behind a crash that nobody kept in mind": (
        ScenarioStep(Act.CRASH),
        ScenarioStep(Act.JUMP, seconds=-3600),
        ScenarioStep(Act.INIT, tasks=(MINUTELY,)),
    ),
}


STORE_CALLS = ("acquire", "in_flight", "cases", "put", "load", "settle", "release")


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("call", STORE_CALLS)
def test_after_a_crash_at_any_call_of_the_store_the_next_initialization_continues(
    call: str, how: str
) -> None:
    """The stored state is readable, and the task starts at its next minute."""
    again = ScenarioStep(Act.INIT, tasks=(MINUTELY,))
    steps = (
        ScenarioStep(Act.TRAP, call=call, how=how),
        ScenarioStep(Act.INIT, tasks=(MINUTELY._replace(does=("20s",)),)),
        wait(120),
        ScenarioStep(Act.STOP),
        wait(1),
        again,
        wait(120),
    )
    verdict = judged(Scenario("UTC", NOON + 30, steps))
    assert verdict.lawful, str(verdict)
    assert len(verdict.history.uptimes) == 2, "it crashed once"
    assert verdict.history.is_running
    assert verdict.history.uptimes[-1]["a", "RunSuccess"] >= 2


@pytest.mark.parametrize("steps", [pytest.param(steps, id=name) for name, steps in ONCE_BROKEN.items()])
def test_what_once_broke_is_lawful(steps: tuple[ScenarioStep, ...]) -> None:
    verdict = judged(Scenario("UTC", NOON + 30, steps))
    assert verdict.lawful, str(verdict)


# --- the judge can say no ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story() -> History:
    tasks = (ScenarioTask("a", "* * * * *", 20, ("ok", "fail", "90s", "hang")),)
    again = (ScenarioTask("a", "* * * * *", 20),)
    steps = (
        ScenarioStep(Act.INIT, tasks=tasks),
        wait(400),
        ScenarioStep(Act.CRASH),
        wait(200),
        ScenarioStep(Act.INIT, tasks=again),
    )
    story = asyncio.run(play(Scenario("UTC", NOON + 30, steps)))
    assert judge(story).lawful
    return story


def without(story: History, event: str, number: int) -> list[str]:
    places = [i for i, line in enumerate(story.lines) if json.loads(line).get("event") == event]
    return [line for i, line in enumerate(story.lines) if i != places[number]]


@pytest.mark.parametrize("event", ["RunStart", "RunSuccess", "RunFailure"])
def test_a_trace_with_a_line_less_is_found_out(story: History, event: str) -> None:
    told = replace(story, lines=without(story, event, 0))
    assert not judge(told).lawful


def test_a_lost_record_is_found_out(story: History) -> None:
    memory = story.tasks[0]
    for number in range(len(memory.runs) - 1):
        runs = memory.runs[:number] + memory.runs[number + 1 :]
        lost = replace(story, tasks=[replace(memory, runs=runs)])
        assert judge(lost).signature == "ledger", memory.runs[number]


def test_a_run_that_is_over_and_still_open_is_found_out(story: History) -> None:
    memory = story.tasks[0]
    runs = [run._replace(is_open=1) if run.status == "SUCCESS" else run for run in memory.runs]
    assert judge(replace(story, tasks=[replace(memory, runs=runs)])).signature == "ledger"


def test_an_edit_that_nobody_made_is_found_out(story: History) -> None:
    memory = story.tasks[0]
    edited = replace(memory, job=memory.job._replace(epoch=2))
    assert "epoch" in "".join(judge(replace(story, tasks=[edited])).faults)


@pytest.mark.parametrize("wrong", ["MISSED", "SKIPPED"])
def test_missed_and_skipped_are_told_apart(wrong: str) -> None:
    """A period while the scheduler was down was missed; one that gave way to a newer one was skipped."""
    tasks = (ScenarioTask("a", "* * * * *", 20, ("200s",)),)
    away = (ScenarioStep(Act.STOP), wait(1_200), ScenarioStep(Act.INIT, tasks=tasks), wait(60))
    told = asyncio.run(
        play(Scenario("UTC", NOON - 30, (ScenarioStep(Act.INIT, tasks=tasks), wait(400), *away)))
    )
    assert judge(told).lawful
    memory, outcome = told.tasks[0], Outcome(wrong.lower())
    assert {dropped.outcome for dropped in memory.ranges} | {run.outcome for run in memory.runs} >= {
        Outcome.MISSED, Outcome.SKIPPED,
    }  # fmt: skip
    status = RunStatus(wrong)
    runs = [run._replace(status=status) if run.outcome in DROPPED else run for run in memory.runs]
    ranges = [dropped._replace(outcome=outcome) for dropped in memory.ranges]
    assert judge(replace(told, tasks=[replace(memory, runs=runs, ranges=ranges)])).signature == "ledger"


@pytest.mark.parametrize("event", ["RunStart", "RunSuccess", "RunFailure"])
def test_what_was_seen_and_not_told_is_found_out(story: History, event: str) -> None:
    """A trace cannot distinguish an open call from one whose end was lost; the recorded calls can."""
    lives = [seen.copy() for seen in story.uptimes]
    lives[-1]["a", event] += 1
    assert judge(replace(story, uptimes=lives)).signature == "calls"


def test_a_crash_takes_one_end_of_a_task_with_it_and_no_more(story: History) -> None:
    lives = [seen.copy() for seen in story.uptimes]
    lives[0]["a", "RunSuccess"] += 1
    assert judge(replace(story, uptimes=lives)).lawful
    lives[0]["a", "RunSuccess"] += 1
    assert judge(replace(story, uptimes=lives)).signature == "calls"


async def test_a_story_without_end_is_broken_off() -> None:
    clock = CountedClock(datetime_of(NOON))
    clock.wakes = MAX_WAKES - 100

    async def go_on_and_on() -> None:
        while True:
            await clock.sleep_until(clock.now() + timedelta(seconds=1))

    going = asyncio.create_task(go_on_and_on())
    with pytest.raises(TimeoutError, match="without an end"):
        await clock.advance_to(clock.now() + timedelta(days=365))
    assert clock.now() == datetime_of(NOON + 100)
    going.cancel()


# --- the scheduler's own word does not count ----------------------------------------------------------


@pytest.mark.slow
def test_stories_call_return_refuse_and_start(lawful_stories: list[History]) -> None:
    """A judge of stories in which nothing happens would find nothing."""
    calls = sum((calls for story in lawful_stories for calls in story.calls), Counter[str]())
    assert calls["InitSuccess"] > 40
    assert calls["InitFailure"] > 40
    assert calls["StopEnd"] > 30
    starts = Counter(json.loads(line).get("event") for story in lawful_stories for line in story.lines)
    assert starts["RunStart"] > 200
    flaws = {step.flaw for seed in SEEDS for step in drawn(seed).steps if step.flaw}
    assert len(flaws) > len(FLAWS) / 2


@pytest.fixture(scope="module")
def lawful_stories() -> list[History]:
    return [simulate(seed).history for seed in SEEDS[:20]]


@pytest.mark.parametrize("flaw", FLAWS)
def test_every_flaw_is_refused_with_the_error_of_the_specification(flaw: str) -> None:
    steps = (ScenarioStep(Act.INIT, tasks=(MINUTELY,), flaw=flaw), wait(60))
    verdict = judged(Scenario("UTC", NOON + 30, steps))
    assert verdict.lawful, str(verdict)
    assert verdict.history.calls == [Counter(InitStart=1, InitFailure=1)]
    start, failure = (json.loads(line) for line in verdict.history.lines[1:])
    assert (start["event"], start["valid"], failure["event"]) == ("InitStart", False, "InitFailure")


def retold(story: History, change: Callable[[dict[str, Any]], dict[str, Any]]) -> History:
    return replace(story, lines=[json.dumps(change(json.loads(line))) for line in story.lines])


def test_a_valid_list_that_is_refused_is_found_out() -> None:
    story = asyncio.run(play(Scenario("UTC", NOON + 30, (ScenarioStep(Act.INIT, tasks=(MINUTELY,)),))))
    lines = [json.loads(line) for line in story.lines]
    told = [line for line in lines if line.get("event") in (None, "InitStart", "InitSuccess")]
    refused = [
        line | {"event": "InitFailure"} if line.get("event") == "InitSuccess" else line for line in told
    ]
    nothing = replace(
        story,
        lines=list(map(json.dumps, refused)),
        tasks=[],
        uptimes=[Counter()],
        calls=[Counter(InitStart=1, InitFailure=1)],
    )
    assert judge(nothing).signature == "S5"
    # An error that no fault of the store explains does not excuse it.
    assert [line["event"] for line in refused[1:]] == ["InitStart", "InitFailure"]


def test_an_invalid_list_that_is_accepted_is_found_out(story: History) -> None:
    told = retold(story, lambda line: line | ({"valid": False} if line.get("event") == "InitStart" else {}))
    assert judge(told).signature == "S4"


@pytest.mark.parametrize("event", ["InitStart", "InitSuccess", "InitFailure", "StopStart", "StopEnd"])
def test_a_call_that_is_not_in_the_trace_is_found_out(story: History, event: str) -> None:
    calls = [seen.copy() for seen in story.calls]
    calls[-1][event] += 1
    assert judge(replace(story, calls=calls)).signature == "calls"


def test_starts_that_the_schedule_demands_are_looked_for_without_kron_s_parsers() -> None:
    """Even if trace, observed calls and records agree that nothing was due."""
    noon = 1000 * NOON
    call = {"call": 1, "list": 1}
    listed = [{"id": "a", "schedule": "0 12 * * *", "retry_delay": 0}]
    lines = [
        {"t": noon - 30_000, "event": "InitStart", "tasks": listed, **call},
        {"t": noon - 30_000, "event": "InitSuccess", **call},
    ]
    unmet_in = partial(unmet, zone="UTC", until=noon + 60_000, late_ms=30_000)
    assert list(unmet_in(lines)) == [f"a was due at {NOON} and not started until {noon + 60_000}"]
    run = [
        {"t": noon + 30_000, "event": "RunStart", "task": "a"},
        {"t": noon + 30_000, "event": "RunSuccess", "task": "a"},
    ]
    assert list(unmet_in([*lines, *run])) == []
    late = [line | {"t": noon + 30_001} for line in run]
    assert list(unmet_in([*lines, *late])) == [f"a was due at {NOON} and not started until {noon + 30_001}"]
    assert list(unmet_in([*lines, {"t": noon - 1, "event": "StopStart", "call": 2}])) == []


WHERE_CLOCKS_CHANGE = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago")


@pytest.mark.parametrize("zone", WHERE_CLOCKS_CHANGE)
@pytest.mark.parametrize("cron", [*BUSY, *RARE])
def test_the_demand_agrees_with_the_schedules(cron: str, zone: str) -> None:
    """It reads expressions and zones by itself, and must read them alike."""
    strict, schedule = parsed(cron), Schedule(cron, zone, dialect="posix")
    assert strict is not None
    for start in (1774745880, 1792889880, 1772952900, 1775314500, 1791041100, 1775357700):
        at = start
        for _ in range(5):
            found = next_after(strict, ZoneInfo(zone), at, until=at + 9 * 366 * 86_400)
            assert found is not None
            assert datetime_of(found) == schedule.next_after(datetime_of(at))
            at = found


@pytest.mark.parametrize("cron", CRONS)
def test_the_demand_refuses_what_the_grammar_refuses(cron: str) -> None:
    assert parsed(cron) is None


# --- making smaller ----------------------------------------------------------------------------------


def has_a_crash_and_a_restart(scenario: Scenario) -> bool:
    acts = [step.act for step in scenario.steps]
    return Act.CRASH in acts and Act.INIT in acts[acts.index(Act.CRASH) :]


def test_a_scenario_is_made_as_small_as_can_be() -> None:
    scenario = next(found for found in map(drawn, SEEDS) if has_a_crash_and_a_restart(found))
    found = shrink(scenario, has_a_crash_and_a_restart)
    assert [step.act for step in found.steps] == [Act.CRASH, Act.INIT]
    assert all(step.turns == 0 and step.tasks == () for step in found.steps)


# --- what no story shows -----------------------------------------------------------------------------


@pytest.mark.parametrize("late_ms", [0, 60_000], ids=["one is due", "another came since"])
def test_an_owner_that_is_stopping_starts_no_plain_period_either(late_ms: int) -> None:
    """A stop may be called while a wake reads due periods; those are left for the next owner."""
    job = create(job_of(TaskConfig("a", "* * * * *", timedelta(0)), "UTC"), now=1000 * NOON)
    due = 1000 * NOON + late_ms
    snapshot = Snapshot([JobState(job)], 1000 * NOON, 1, {"callback": Traits()})
    begun, _ = plan(snapshot, due)
    assert len(begun[0].starts) == 1
    left, _ = plan(snapshot._replace(draining=True), due)
    assert [change.starts for change in left] == [[]]
    assert left[0].job.cursor == job.cursor
