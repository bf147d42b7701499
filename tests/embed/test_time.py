"""The scheduler's time (reading 16): monotone, kept on disk, and honest where the clock fell behind it."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.task.errors import SchedulerAlreadyActiveError
from kron.core.time.instant import EPOCH
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock, trace
from kron.testing.faulty_store import Fault
from kron.theory import Kind, Trace, check
from kron.theory.derive import derived
from tests.embed.rig import HOURLY, MINUTELY, Rig, a_rig
from tests.embed.stage import Act, Given, KeptInMemory, Stage, crash, init, jump, moment, shown, stop, until
from tests.strategies import law

MS = timedelta(milliseconds=1)


class KeptInFile(SqliteStore):
    """A store in a file that outlives a crash of its user."""

    async def close(self) -> None:
        self.drop_locks()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    kept = KeptInFile(str(tmp_path / "kron.db"))
    made = a_rig(kept)
    yield made
    await made.stage.close()
    await SqliteStore.close(kept)


def kept_in(folder: Path) -> str:
    """Return the latest instant that is on disk, be it the list's or a task's."""
    latest = "SELECT max(high) FROM (SELECT high FROM marks UNION ALL SELECT changed_at FROM jobs)"
    with closing(sqlite3.connect(folder / "kron.db")) as connection:
        ((high,),) = connection.execute(latest)
    return shown(EPOCH + high * MS)


def times_of(stage: Stage, event: str) -> list[str]:
    """Return when events of a name stand in the trace."""
    return [shown(EPOCH + line["t"] * MS) for line in stage.traced() if line["event"] == event]


# --- kept ------------------------------------------------------------------------------------------


async def test_the_latest_instant_is_stored_with_each_record(rig: Rig, tmp_path: Path) -> None:
    rig.begin("12:00:30")
    story = [
        (init("12:00:30", Given("a", "* * * * *", 7, "3s, fail 2s"), Given("b", "2 * * * *")), "12:00:30"),
        (until("12:00:34"), "12:00:33"),
        (until("12:01:00.5"), "12:01"),
        (until("12:01:03"), "12:01:02"),
        (until("12:01:20"), "12:01:09"),
        (until("12:02:50"), "12:02"),
        (stop("12:02:55"), "12:02"),
        (init("12:02:57"), "12:02:57"),
    ]
    for act, kept in story:
        await rig.stage.play(act)
        await rig.stage.clock.advance_to(rig.stage.clock.now())
        assert kept_in(tmp_path) == kept, act


@pytest.mark.parametrize("failures", [0, 3])
async def test_a_step_back_that_is_noticed_is_stored_though_the_store_fails(
    rig: Rig, tmp_path: Path, failures: int
) -> None:
    """The latest instant was read by a call that was refused, and nothing was written for it."""
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", HOURLY), until("12:03:10"))
    await rig.refuse()
    assert kept_in(tmp_path) == "12:00:30"
    rig.store.then("settle", *[Fault.BEFORE] * failures)
    await rig.stage.play(jump("12:03:10", "12:01:20"), until("12:01:40"))
    assert (kept_in(tmp_path), rig.store.waiting) == ("12:03:10", 0)
    await rig.stage.play(crash("12:01:45"), init("12:01:50", HOURLY), until("12:02"))
    assert times_of(rig.stage, "InitSuccess") == ["12:00:30", "12:03:10"]


async def test_a_step_back_is_stored_also_where_a_stop_comes_at_once(rig: Rig, tmp_path: Path) -> None:
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", HOURLY), until("12:03:10"))
    await rig.refuse()
    rig.stage.clock.jump_to(moment("12:01:20"))
    await rig.stage.scheduler.stop()
    assert kept_in(tmp_path) == "12:03:10"


@pytest.mark.parametrize("end", [stop, crash])
async def test_the_latest_instant_outlives_all_tasks_and_is_the_least_time_of_the_next_list(
    rig: Rig, tmp_path: Path, end: Any
) -> None:
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", MINUTELY), until("12:03:10"), end("12:03:20"), until("12:03:30"))
    await rig.stage.play(init("12:04:20"), end("12:04:30"), until("12:04:40"))
    assert await rig.store.cases("embed:main") == []
    assert kept_in(tmp_path) == "12:04:20"
    await rig.stage.play(
        jump("12:04:40", "12:03:40"), init("12:03:40", Given("a", "4 * * * *")), until("12:59")
    )
    assert times_of(rig.stage, "RunStart")[-1] >= "12:04:20", "its minute is the one that was kept"
    assert len(rig.stage.calls) == 5
    cases = await rig.store.cases("embed:main")
    assert [shown(EPOCH + case.job.edited_at * MS) for case in cases] == ["12:04:20"]


# --- monotone --------------------------------------------------------------------------------------

MOVES = st.tuples(st.sampled_from(["pass", "jump"]), st.integers(-7_000_000, 7_000_000))


async def told(moves: list[tuple[str, int]]) -> tuple[list[int], list[int], list[int]]:
    """Move the clock and call at the wrong moment each time; return the trace's times, and the clock's."""
    clock, kept = SimulatedClock(moment("12:00:30")), KeptInMemory()
    stage = Stage(lambda: kept, free=lambda: None)
    scheduler = Scheduler(kept, clock=clock, timezone="UTC")
    trace(scheduler, stage.lines)
    await scheduler.initialize([("a", "0 0 1 1 *", stage.callback("a"), timedelta(0))])
    walls = [(clock.now() - EPOCH) // MS]
    for move, milliseconds in moves:
        if move == "jump":
            clock.jump_to(clock.now() + milliseconds * MS)
        else:
            await clock.advance_to(clock.now() + abs(milliseconds) * MS)
        walls.append((clock.now() - EPOCH) // MS)
        with pytest.raises(SchedulerAlreadyActiveError):
            await scheduler.initialize([])
    await scheduler.stop()
    lines = [json.loads(line) for line in stage.lines.getvalue().splitlines()[1:]]
    calls = [line["t"] for line in lines if line["event"] == "InitFailure"]
    await SqliteStore.close(kept)
    return [line["t"] for line in lines], calls, walls


@law(40)
@given(st.lists(MOVES, max_size=8))
def test_the_time_of_a_trace_is_the_clock_made_monotone(moves: list[tuple[str, int]]) -> None:
    times, calls, walls = asyncio.run(told(moves))
    assert times == sorted(times)
    # The clock is read at each call, so the time is the latest that it ever showed then.
    assert calls == [max(walls[: count + 2]) for count in range(len(calls))]


# --- behind an instant that was not stored ----------------------------------------------------------

STORIES = [
    pytest.param([crash("12:05"), jump("12:05", "12:04"), init("12:04:10", HOURLY)], True, id="by a crash"),
    pytest.param(
        [stop("12:05"), until("12:05:10"), jump("12:05:20", "12:04"), init("12:04:10", HOURLY)],
        True,
        id="by a stop",
    ),
    pytest.param([jump("12:05", "12:03"), until("12:06")], True, id="while nobody looked"),
    pytest.param(
        [crash("12:05"), jump("12:05", "12:00"), init("12:00:10", HOURLY)], True, id="behind all that is kept"
    ),
    pytest.param([jump("12:05", "12:20"), until("12:21")], False, id="set forward"),
    pytest.param(
        [crash("12:05"), jump("12:05", "12:20"), init("12:20", HOURLY)], False, id="set forward while dead"
    ),
    pytest.param([crash("12:05"), init("12:05", HOURLY)], False, id="not set at all"),
    pytest.param(
        [until("13:00"), jump("13:00", "12:59:10"), until("13:01")],
        False,
        id="set back a little at an instant that is on record",
    ),
    pytest.param(
        [until("13:00"), jump("13:00", "12:30"), until("12:30:30")],
        False,
        id="set back by more than a minute, and not yet believed",
    ),
    pytest.param(
        [until("13:00"), jump("13:00", "12:30"), until("12:31")],
        True,
        id="set back by more than a minute, and believed",
    ),
    pytest.param(
        [until("13:00"), crash("13:00"), jump("13:00", "12:30"), init("12:31", HOURLY)],
        False,
        id="set back while dead, and all that was passed is kept",
    ),
]


@pytest.mark.parametrize(("acts", "behind"), STORIES)
async def test_a_clock_behind_an_instant_that_passed_and_was_not_stored_is_supernatural(
    rig: Rig, acts: list[Act], behind: bool
) -> None:
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", HOURLY), until("12:00:40"), *acts)
    kinds = [line["kind"] for line in rig.stage.traced() if line["event"] == "Supernatural"]
    assert kinds == ["clock"] * behind
    report = check(Trace.from_jsonl(rig.stage.lines.getvalue()))
    assert (report.scope_ends is not None) is behind
    assert report.conforms


# --- dues ------------------------------------------------------------------------------------------


def dues_of(stage: Stage) -> list[str]:
    """Return the dues of a trace as the checker has them."""
    subject = Trace.from_jsonl(stage.lines.getvalue())
    positions = list(subject)
    lists = [event.tasks for position in positions for event in position.events if event.tasks is not None]
    universe = dict.fromkeys(task for tasks in lists for task in tasks.tasks)
    return [
        f"{shown(EPOCH + position.t * MS)} {event.task}"
        for position in derived(subject.header, positions, kron=True, universe=universe)
        for event in position.events
        if event.kind is Kind.DUE
    ]


@pytest.mark.parametrize("down", [[], [stop("12:01:05"), until("12:01:06")], [crash("12:01:05")]])
async def test_a_due_instant_that_the_clock_skips_is_due_all_the_same(rig: Rig, down: list[Act]) -> None:
    tasks = [Given("a", "1 * * * *"), Given("b", "5 * * * *")]
    rig.begin("12:00:30")
    await rig.stage.play(init("12:00:30", *tasks), until("12:01:04"), *down, jump("12:01:10", "12:30:30"))
    await rig.stage.play(*([init("12:30:30", *tasks)] if down else []), until("12:31"))
    assert dues_of(rig.stage) == ["12:01 a", "12:05 b"]
    assert rig.stage.calls == ["12:01 a", "12:30:30 b"]
    report = check(Trace.from_jsonl(rig.stage.lines.getvalue()), within=30 * 60_000)
    assert (report.conforms, report.scope_ends) == (True, None)


async def test_a_due_instant_that_the_clock_repeats_is_not_due_again(rig: Rig) -> None:
    tasks = [MINUTELY, Given("b", "2 * * * *")]
    rig.begin("12:00:30")
    await rig.stage.play(
        init("12:00:30", *tasks), until("12:03"), jump("12:03", "12:01:30"), until("12:03:30")
    )
    await rig.stage.play(stop("12:03:40"), until("12:03:50"), jump("12:03:50", "12:01:50"))
    await rig.stage.play(init("12:01:55", *tasks), until("12:05"))
    assert dues_of(rig.stage) == [f"12:0{minute} a" for minute in range(3)] + ["12:02 b"] + [
        f"12:0{minute} a" for minute in range(3, 6)
    ]
    assert sorted(rig.stage.calls) == [
        "12:00:30 a",
        "12:01 a",
        "12:02 a",
        "12:02 b",
        "12:03 a",
        "12:04 a",
        "12:05 a",
    ]
    report = check(Trace.from_jsonl(rig.stage.lines.getvalue()), happy=["clock"])
    assert report.conforms


# --- since the first registration (reading 13) -----------------------------------------------------


async def owed(
    registered_s: int, due_minute: int, restarts: list[tuple[bool, bool]]
) -> tuple[int, list[str]]:
    """Register a task that never starts, restart, and return when it is at last asked for what was due."""
    kept = KeptInMemory()
    rig = a_rig(kept)
    rig.begin("12:00")
    never, asked = Given("a", "0 0 1 1 *"), Given("a", f"{due_minute} * * * *")
    await rig.stage.play(
        until(f"12:{registered_s // 60:02}:{registered_s % 60:02}"),
    )
    now_s = registered_s
    for crashes, changes in [(False, False), *restarts]:
        await rig.stage.scheduler.initialize(
            rig.stage.listed([never._replace(retry=61) if changes else never])
        )
        now_s += 70
        await rig.stage.clock.advance_to(moment("12:00") + timedelta(seconds=now_s))
        await (rig.stage.crash() if crashes else rig.stage.scheduler.stop())
    await rig.stage.scheduler.initialize(rig.stage.listed([asked]))
    await rig.stage.clock.advance_to(rig.stage.clock.now() + MS)
    rig.conforms()
    await rig.stage.close()
    await SqliteStore.close(kept)
    return now_s, rig.stage.calls


@law(60)
@given(
    registered_s=st.integers(0, 1200) | st.sampled_from([60, 120, 600]),
    due_minute=st.integers(0, 30),
    restarts=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=4),
)
def test_of_a_task_that_never_ran_all_dues_since_its_first_registration_are_owed(
    registered_s: int, due_minute: int, restarts: list[tuple[bool, bool]]
) -> None:
    """However often it was restarted or changed since; what was due up to its registration is excused."""
    now_s, calls = asyncio.run(owed(registered_s, due_minute, restarts))
    assert bool(calls) is (registered_s < 60 * due_minute <= now_s)
