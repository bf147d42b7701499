"""Where calls, starts and ends stand in a trace, on a store that is slow or fails (readings 3 to 20)."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InputError
from kron.core.plan.record import AttemptRecord, RunRecord
from kron.core.task.errors import SchedulerAlreadyActiveError
from kron.core.time.instant import EPOCH
from kron.fronts.embed.scheduler import Scheduler
from kron.fronts.embed.task_list import MANY
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from kron.testing.faulty_store import Fault, FaultyStore
from kron.testing.simulator.judge import judge
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep
from kron.testing.simulator.scenario import ScenarioTask as Listed
from kron.testing.simulator.world import History, play
from tests.embed.rig import HOURLY, MINUTELY, SPACE, Rig, a_rig
from tests.embed.stage import SECOND, Given, KeptInMemory, Stage, crash, init, jump, moment, stop, until
from tests.strategies import law


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    kept = KeptInMemory()
    made = a_rig(kept)
    yield made
    await made.stage.close()
    await SqliteStore.close(kept)


# --- an event stands where the time in its record was read (reading 14) -----------------------------


async def test_a_start_stands_before_a_call_that_came_while_it_was_being_written(rig: Rig) -> None:
    """The retry is decided in one minute and recorded in the next; a refused call comes in between."""
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", Given("a", "* * * * *", 29.5, "fail")), until("12:00:59"))
    rig.store.then("settle", Fault.DELAY)
    await rig.stage.play(until("12:01:00.2"))
    await rig.refuse()
    await rig.stage.play(until("12:01:30"))
    assert rig.events()[3:] == [
        "RunFailure 30",
        "RunStart 59.5",
        "InitStart 60.2",
        "InitFailure 60.2",
        "RunSuccess 60.5",
        "RunStart 60.5",
        "RunSuccess 60.5",
    ]


async def test_an_end_stands_before_a_stop_that_came_while_it_was_being_written(rig: Rig) -> None:
    """So the delay of its retry is counted from where the callback ended."""
    task = Given("a", "0 * * * *", 10, "fail 10s")
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", task), stop("12:00:35"), until("12:00:39"))
    rig.store.then("settle", Fault.DELAY)
    await rig.stage.play(stop("12:00:40.5"), until("12:00:45"), init("12:00:46", task), until("12:00:59"))
    assert rig.events()[2:] == [
        "RunStart 30",
        "StopStart 35",
        "RunFailure 40",
        "StopStart 40.5",
        "StopEnd 41",
        "StopEnd 41",
        "InitStart 46",
        "InitSuccess 46",
        "RunStart 50",
    ]


async def test_a_list_holds_from_where_its_time_was_read_and_not_where_it_was_written(rig: Rig) -> None:
    """Its task is due in the minute in which it was read, and starts in the next one."""
    rig.begin("12:00:59.5")
    rig.store.then("put", Fault.DELAY)
    beginning = asyncio.create_task(rig.stage.scheduler.initialize(rig.stage.listed([HOURLY])))
    await rig.stage.play(until("12:01:00.2"))
    await rig.refuse()
    await rig.stage.play(until("12:01:30"))
    await beginning
    expected = ["InitStart 59.5", "InitSuccess 59.5", "InitStart 60.2", "InitFailure 60.2"]
    assert rig.events() == [*expected, "RunStart 60.5", "RunSuccess 60.5"]


async def test_a_start_stands_before_a_stop_that_came_later_although_the_clock_was_set_back(rig: Rig) -> None:
    """The retry is decided at the latest instant that the clock ever showed; calls have that time, too."""
    rig.begin("12:00:30")
    task = Given("a", "* * * * *", 0, "ok, ok, ok, fail 40s")
    await rig.stage.play(init("12:00:30", task), until("12:03"))
    # The first call records the instant alone.
    rig.store.then("settle", Fault.YIELD, Fault.DELAY)
    await rig.stage.play(jump("12:03", "12:02:30"), stop("12:02:30.5"), until("12:02:40"))
    events = [event.split()[0] for event in rig.events()[-5:]]
    assert events == ["RunFailure", "RunStart", "RunSuccess", "StopStart", "StopEnd"]


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_the_times_in_a_trace_are_those_on_record(rig: Rig, fault: Fault | None) -> None:
    rig.begin("12:00:30")
    tasks = [Given("a", "* * * * *", 7, "3s, fail, fail 2s"), Given("b", "1 * * * *", 60, "fail 90s")]
    if fault in (Fault.DELAY, Fault.YIELD):
        rig.store.then("put", fault)
    beginning = asyncio.create_task(rig.stage.scheduler.initialize(rig.stage.listed(tasks)))
    await rig.stage.play(until("12:00:31.7"))
    await beginning
    for at in ("12:00:59", "12:01:06", "12:02:10", "12:02:40"):
        await rig.stage.play(until(at))
        rig.store.then("settle", *([] if fault is None else [fault]))
    await rig.stage.play(until("12:04:30"))
    traced = [(event["event"], event["t"]) for event in rig.stage.traced()]
    (a, b) = await rig.store.cases(SPACE)
    assert {a.job.edited_at, b.job.edited_at} == {t for event, t in traced if event == "InitSuccess"}
    recorded = await recorded_events(rig)
    assert sorted(line for line in traced if line[0].startswith("Run")) == sorted(recorded)
    rig.conforms()


async def recorded_events(rig: Rig) -> list[tuple[str, int]]:
    """Return the recorded starts and ends."""
    found = []
    for name in ("a", "b"):
        for run in await rig.runs(name):
            attempts: list[AttemptRecord | RunRecord] = [*await rig.store.attempts(SPACE, run.key), run]
            for attempt in attempts:
                assert attempt.started_at is not None
                found.append(("RunStart", attempt.started_at))
                if attempt.ended_at is not None:
                    success = attempt.result == "success"
                    found.append(("RunSuccess" if success else "RunFailure", attempt.ended_at))
    return found


async def test_nothing_is_written_past_an_event_whose_commit_is_unknown(rig: Rig) -> None:
    """Calls wait for it, whether its answer is late or lost; the trace does not grow meanwhile."""
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", MINUTELY), until("12:00:59"))
    before = rig.stage.lines.getvalue()
    rig.store.then("settle", Fault.LOSE)
    await rig.stage.play(until("12:01:00.5"))
    await rig.refuse()
    assert rig.stage.lines.getvalue() == before
    rig.store.then("cases", Fault.BEFORE)
    await rig.stage.play(until("12:01:01"))
    await rig.refuse()
    assert rig.stage.lines.getvalue() == before, "the answer was lost, and nobody has asked again"
    await rig.stage.play(stop("12:01:01.05"), until("12:01:30"))
    refused = ["InitStart 60.5", "InitFailure 60.5", "InitStart 61", "InitFailure 61"]
    events = rig.events()
    assert events[4:10] == ["RunStart 60", *refused, "StopStart 61.05"]
    assert [event.split()[0] for event in events[10:]] == ["RunSuccess", "StopEnd"]


@pytest.mark.parametrize("call", ["settle", "put"])
async def test_what_never_was_committed_never_shows(rig: Rig, call: str) -> None:
    rig.begin("12:00:30")
    if call == "settle":
        await rig.stage.play(init("12:00:30", HOURLY), until("12:59"))
    before = rig.stage.lines.getvalue()
    rig.store.then(call, Fault.DELAY)
    beginning = None
    if call == "put":
        beginning = asyncio.create_task(rig.stage.scheduler.initialize(rig.stage.listed([HOURLY])))
        await rig.stage.play(until("12:00:30.5"))
    else:
        await rig.stage.play(until("13:00:00.5"))
    await rig.stage.crash()
    after = [json.loads(line)["event"] for line in rig.stage.lines.getvalue()[len(before) :].splitlines()]
    assert after == ["InitStart"] * (call == "put") + ["UnexpectedShutdown"]
    if beginning is not None:
        await asyncio.wait([beginning])
        assert beginning.cancelled()


# --- what was durable when a crash came ------------------------------------------------------------


def a_story(*steps: ScenarioStep) -> History:
    """Play a story from noon on; what a dead scheduler could not report follows from the records."""
    story = asyncio.run(play(Scenario("UTC", moment("12:00:30").timestamp(), steps)))
    assert judge(story).lawful, judge(story)
    return story


def words(story: History) -> list[str]:
    return [json.loads(line).get("event", "") for line in story.lines[1:]]


def wait(seconds: float) -> ScenarioStep:
    return ScenarioStep(Act.WAIT, seconds=seconds)


def begin(cron: str = "0 * * * *", *does: str) -> ScenarioStep:
    return ScenarioStep(Act.INIT, tasks=(Listed("a", cron, 60, does),))


def test_a_start_that_is_durable_at_a_crash_has_happened_though_it_was_not_called() -> None:
    story = a_story(ScenarioStep(Act.TRAP, call="settle", how="after"), begin(), wait(5), begin(), wait(5))
    assert words(story) == [
        *("InitStart", "InitSuccess", "RunStart", "UnexpectedShutdown"),
        *("InitStart", "InitSuccess", "RunStart", "RunSuccess"),
    ]
    assert [life["a", "RunStart"] for life in story.uptimes] == [0, 1]


def test_a_start_that_was_called_before_a_crash_is_orphaned() -> None:
    story = a_story(begin("0 * * * *", "hang"), wait(5), ScenarioStep(Act.CRASH), begin(), wait(5))
    assert words(story)[2:4] == ["RunStart", "UnexpectedShutdown"]
    assert words(story)[6:] == ["RunStart", "RunSuccess"]
    assert [life["a", "RunStart"] for life in story.uptimes] == [1, 1]


def test_a_start_that_is_not_durable_at_a_crash_has_not_happened() -> None:
    """The minute in which the task came first is over by then, so nothing is owed."""
    story = a_story(ScenarioStep(Act.TRAP, call="settle", how="before"), begin(), wait(60), begin(), wait(60))
    assert words(story) == ["InitStart", "InitSuccess", "UnexpectedShutdown", "InitStart", "InitSuccess"]
    assert [life["a", "RunStart"] for life in story.uptimes] == [0, 0]


@pytest.mark.parametrize(("how", "committed"), [("after", True), ("before", False)])
def test_an_override_that_was_committed_at_a_crash_has_happened(how: str, committed: bool) -> None:
    other = begin("30 * * * *")
    dies = ScenarioStep(Act.TRAP, call="put", how=how)
    story = a_story(
        begin(), wait(10), ScenarioStep(Act.STOP), wait(10), dies, other, wait(3600), other, wait(5)
    )
    crashed = words(story).index("UnexpectedShutdown")
    assert (words(story)[crashed - 1] == "InitSuccess") is committed
    (memory,) = story.tasks
    assert memory.job.epoch == 2, "it was overridden once, by the call before the crash or the one after it"
    at_crash = json.loads(story.lines[crashed + 1])["t"]
    assert (memory.job.edited_at <= at_crash) is committed


# --- stops (readings 3 and 8) ----------------------------------------------------------------------


async def test_all_open_stops_end_together_and_from_there_on_initialize_is_accepted(rig: Rig) -> None:
    """Initialization is attempted at every turn of the event loop, in all stages of stopping."""
    rig.begin("12:00")
    await rig.stage.play(init("12:00", Given("a", "0 * * * *", 60, "30s")), until("12:00:10"))
    scheduler, listed = rig.stage.scheduler, rig.stage.listed([HOURLY])
    stops = [asyncio.create_task(scheduler.stop())]
    refused = 0

    async def insist() -> None:
        nonlocal refused
        while True:
            try:
                await scheduler.initialize(listed)
            except SchedulerAlreadyActiveError:
                refused += 1
                await asyncio.sleep(0)
            else:
                return

    await rig.stage.play(until("12:00:20"))
    stops.append(asyncio.create_task(scheduler.stop()))
    await rig.stage.play(until("12:00:29"))
    rig.store.then("settle", Fault.YIELD)
    rig.store.then("release", Fault.YIELD)
    insisting = asyncio.create_task(insist())
    ending = asyncio.create_task(rig.stage.clock.advance_to(moment("12:00:31")))
    while not insisting.done():
        if scheduler.state == "stopping" and len(stops) < 6:
            stops.append(asyncio.create_task(scheduler.stop()))
        await asyncio.sleep(0)
    await asyncio.gather(*stops, insisting, ending)
    events = [event.split()[0] for event in rig.events()]
    first = events.index("StopEnd")
    assert refused > 0
    assert events[first : first + 8] == ["StopEnd"] * 6 + ["InitStart", "InitSuccess"]
    assert events[:first].count("StopStart") == 6
    assert events[:first].count("InitFailure") == refused == events.count("InitFailure")


async def test_a_second_initialize_with_the_same_list_leaves_two_lines_and_nothing_else(rig: Rig) -> None:
    async def played(*, again: bool) -> tuple[list[Any], list[str], list[Any]]:
        store = KeptInMemory()
        stage = Stage(lambda: store, free=lambda: None)
        await stage.play(init("12:00:30", HOURLY), until("12:00:40"))
        if again:
            with pytest.raises(SchedulerAlreadyActiveError):
                await stage.scheduler.initialize(stage.listed([HOURLY]))
        await stage.play(until("13:00:10"), stop("13:00:20"), until("13:01"))
        cases = [case.job._replace(number=0) for case in await store.cases(SPACE)]
        await stage.close()
        return stage.traced(), stage.calls, cases

    once, calls, cases = await played(again=False)
    twice, calls_again, cases_again = await played(again=True)
    (place,) = (place for place, event in enumerate(twice) if event["event"] == "InitFailure")
    assert [event["event"] for event in twice[place - 1 : place + 1]] == ["InitStart", "InitFailure"]
    del twice[place - 1 : place + 1]
    assert [(event["event"], event["t"]) for event in twice] == [
        (event["event"], event["t"]) for event in once
    ]
    assert (calls_again, cases_again) == (calls, cases)


class Ticking(SimulatedClock):
    """A clock that advances by a millisecond at each reading, so that a time identifies its reading."""

    def now(self) -> datetime:
        self._pass_to(super().now() + timedelta(milliseconds=1))
        return super().now()


async def sessions_of(turns: list[tuple[int, Fault | None]]) -> tuple[list[tuple[int, int]], list[RunRecord]]:
    """Initialize and stop repeatedly, after these numbers of turns of the loop; return when, and runs."""
    clock, kept = Ticking(moment("12:00:58")), KeptInMemory()
    store = FaultyStore(kept, clock)
    scheduler = Scheduler(store, clock=clock, timezone="UTC")

    async def work() -> None:
        await asyncio.sleep(0)

    found = []
    for count, fault in turns:
        for call in ("load", "settle"):
            store.then(call, *([] if fault is None else [fault]))
        await scheduler.initialize([(name, "* * * * *", work, timedelta(0)) for name in "abc"])
        returned = milliseconds(clock)
        for _ in range(count):
            await asyncio.sleep(0)
        await clock.advance_to(clock.now() + count * SECOND)
        called = milliseconds(clock)
        stopping = asyncio.create_task(scheduler.stop())
        await clock.advance_to(clock.now() + 20 * SECOND)
        await stopping
        found.append((returned, called))
    runs = [run for name in "abc" for run in await kept.runs(SPACE, name)]
    await SqliteStore.close(kept)
    return found, runs


def milliseconds(clock: SimulatedClock) -> int:
    return (clock.now() - EPOCH) // timedelta(milliseconds=1)


@law(40)
@given(
    st.lists(
        st.tuples(st.integers(0, 70), st.sampled_from([None, None, Fault.YIELD, Fault.DELAY, Fault.BEFORE])),
        min_size=1,
        max_size=5,
    )
)
def test_a_start_s_time_is_read_after_initialize_returned_and_before_stop_was_called(
    turns: list[tuple[int, Fault | None]],
) -> None:
    sessions, runs = asyncio.run(sessions_of(turns))
    started = [run.started_at for run in runs if run.started_at is not None]
    assert all(any(returned < at <= called for returned, called in sessions) for at in started)
    assert started or all(count == 0 for count, _ in turns)


@pytest.mark.parametrize(
    ("fault", "called"),
    [
        pytest.param(Fault.YIELD, True, id="the store is busy"),
        pytest.param(Fault.DELAY, True, id="the store is late"),
        pytest.param(Fault.AFTER, True, id="it fails after it wrote"),
        pytest.param(Fault.LOSE, True, id="its answer is lost"),
        pytest.param(Fault.BEFORE, False, id="it wrote nothing, so nothing was decided"),
    ],
)
async def test_what_was_decided_just_before_a_stop_is_called_and_waited_for(
    rig: Rig, fault: Fault, called: bool
) -> None:
    rig.begin("12:59:50")
    await rig.stage.play(init("12:59:50", Given("a", "0 * * * *", 60, "30s")), until("12:59:59"))
    settles = rig.store.calls["settle"]
    rig.store.then("settle", fault)
    coming = asyncio.create_task(rig.stage.clock.advance_to(moment("13:00:00")))
    for _ in range(1000):
        if rig.store.calls["settle"] > settles:
            break
        await asyncio.sleep(0)
    assert rig.stage.calls == [], "it is decided, and not on record yet"
    stopping = asyncio.create_task(rig.stage.scheduler.stop())
    await coming
    await rig.stage.play(until("13:00:20"))
    assert len(rig.stage.calls) == called
    assert stopping.done() is not called
    await rig.stage.play(until("13:01:00"))
    await stopping
    runs = [run for run in await rig.runs() if run.started_at is not None]
    assert [(run.result, run.attempt) for run in runs] == [("success", 1)] * called
    events = [event.split()[0] for event in rig.events()]
    assert events[2:] == [*["RunStart"] * called, "StopStart", *["RunSuccess"] * called, "StopEnd"]
    await rig.stage.play(init("13:02", HOURLY), until("13:30"))
    assert len(rig.stage.calls) == 1, "what was not decided is still owed; what was is not done again"
    rig.conforms()


# --- theorems, in the flesh ------------------------------------------------------------------------


DOWN: list[Callable[[str], Any]] = [crash, stop]


@pytest.mark.parametrize("end", DOWN, ids=["a crash", "a stop"])
async def test_nothing_starts_between_the_end_and_the_next_beginning(
    rig: Rig, end: Callable[[str], Any]
) -> None:
    rig.begin("12:00")
    tasks = [MINUTELY, Given("b", "* * * * *", 0, "fail, hang"), Given("c", "* * * * *", 45, "fail, fail")]
    tasks = tasks if end is crash else [*tasks[::2], Given("b", "* * * * *", 0, "fail, fail")]
    await rig.stage.play(init("12:00", *tasks), until("12:02:10"), end("12:02:20"))
    before = list(rig.stage.calls)
    await rig.stage.play(until("12:30"))
    assert rig.stage.calls == before
    beginning = asyncio.create_task(
        rig.stage.scheduler.initialize(rig.stage.listed([MINUTELY, HOURLY._replace(name="d")]))
    )
    await rig.stage.play(until("12:31:30"))
    await beginning
    assert rig.stage.calls[len(before) :] == ["12:30 a", "12:31 a"]
    rig.conforms()


async def test_two_runs_of_one_task_never_overlap(rig: Rig) -> None:
    """Whatever comes while it runs: dues, restarts of the store, a stop, a crash, an override."""
    rig.begin("12:00")
    long = Given("a", "* * * * *", 0, "90s, fail 70s, 130s, hang, 61s")
    await rig.stage.play(init("12:00", long), until("12:02:10"))
    rig.store.then("settle", Fault.LOSE, Fault.AFTER, Fault.DELAY)
    await rig.stage.play(stop("12:03:10"), until("12:06"), init("12:06", long._replace(does="hang")))
    await rig.stage.play(
        until("12:09"), crash("12:09:10"), init("12:10", Given("a", "0-59 * * * *", 0, "61s"))
    )
    await rig.stage.play(until("12:15"))
    assert len(rig.stage.calls) > 6
    running = False
    for event in rig.stage.traced():
        if event["event"] == "RunStart":
            assert not running
        running = event["event"] == "RunStart" or (running and event["event"] in ("StopStart", "InitStart"))
    rig.conforms()


# --- what is wrong is said at once (reading 20) ----------------------------------------------------


async def nothing() -> None: ...


GOOD = ("a", "0 * * * *", nothing, timedelta(0))
LONG = [(f"task {number}", *GOOD[1:]) for number in range(MANY + 1)]
WRONG: list[Any] = [
    pytest.param("a", id="no list"),
    pytest.param([GOOD[:3]], id="three parts"),
    pytest.param([("", *GOOD[1:])], id="no name"),
    pytest.param([GOOD, ("b", "61 * * * *", *GOOD[2:])], id="no expression"),
    pytest.param([(*GOOD[:2], print, GOOD[3])], id="no async function"),
    pytest.param([(*GOOD[:3], timedelta(-1))], id="a negative delay"),
    pytest.param([GOOD, GOOD], id="twice the same name"),
    pytest.param([*LONG, GOOD, GOOD], id="the last of thousands"),
]


@pytest.mark.parametrize("registrations", WRONG)
async def test_a_wrong_list_is_refused_before_the_call_waits_for_anything(
    tmp_path: Path, registrations: Any
) -> None:
    for state in (
        FaultyStore(KeptInMemory(), SimulatedClock(moment("12:00"))),
        f"sqlite:///{tmp_path}/kron.db",
    ):
        scheduler = Scheduler(state, timezone="UTC")
        with pytest.raises(InputError):
            # One step of the coroutine: an await that suspends would return here.
            scheduler.initialize(registrations).send(None)
        assert scheduler.state == "uninitialized"
        assert not isinstance(state, FaultyStore) or not state.calls
    assert os.listdir(tmp_path) == []


async def test_a_call_at_the_wrong_moment_is_refused_before_it_waits_for_anything(rig: Rig) -> None:
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", HOURLY), until("12:00:40"))
    asked = rig.store.calls.copy()
    with pytest.raises(SchedulerAlreadyActiveError):
        rig.stage.scheduler.initialize([GOOD]).send(None)
    assert rig.store.calls == asked
