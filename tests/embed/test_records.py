"""What is stored of a task: its times, its overrides in one transaction, its retries and its late starts."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kron.core.errors import StoreError
from kron.core.plan.record import JobRecord
from kron.core.plan.step import JobState
from kron.fronts.embed.scheduler import Scheduler
from kron.fronts.embed.task_status import LAST_INSTANT, TaskStatus
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, SimulatedClock
from tests.embed.stage import Given, KeptInMemory, Stage, init, moment, stop, until
from tests.postgres import Server
from tests.waiting import PATIENCE_S

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE, SECOND, DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)
SPACE = "embed:main"
SLOW = Given("a", "0 * * * *", 600, "30s, fail 40s, 50s, 4000s, 100s")


async def nothing() -> None:
    """Do nothing."""


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    kept = KeptInMemory()
    made = Stage(lambda: kept, free=lambda: None)
    yield made
    made.traced()
    await made.close()


async def stored(stage: Stage, name: str = "a") -> JobRecord:
    (state,) = await stage.store.cases(SPACE, [name])
    return state.job


def ms(text: str) -> int:
    return int(1000 * moment(text).timestamp())


def times(status: TaskStatus) -> tuple[datetime | None, ...]:
    return status.last_attempt_at, status.last_success_at, status.pending_retry_until


# --- times -----------------------------------------------------------------------------------------


async def test_an_attempt_has_the_time_of_its_start_and_a_success_that_of_its_end(stage: Stage) -> None:
    await stage.play(init("11:00", SLOW), until("11:00:29"))
    assert times(stage.scheduler.tasks["a"]) == (moment("11:00"), None, None)
    await stage.play(until("11:00:30"))
    assert times(stage.scheduler.tasks["a"]) == (moment("11:00"), moment("11:00:30"), None)
    await stage.play(until("12:00:39"))
    assert times(stage.scheduler.tasks["a"]) == (moment("12:00"), moment("11:00:30"), None)
    await stage.play(until("12:00:40"))
    failed = (moment("12:00"), moment("11:00:30"), moment("12:10:40"))
    assert times(stage.scheduler.tasks["a"]) == failed


async def test_the_stored_times_are_those_of_the_start_the_success_and_the_failure(stage: Stage) -> None:
    await stage.play(init("11:00", SLOW), until("11:30"))
    job = await stored(stage)
    assert (job.last_start_at, job.last_success_at, job.last_failure_at) == (
        ms("11:00"),
        ms("11:00:30"),
        None,
    )
    await stage.play(until("12:05"))
    job = await stored(stage)
    assert (job.last_start_at, job.last_success_at) == (ms("12:00"), ms("11:00:30"))
    assert job.last_failure_at == ms("12:00:40")
    # A retry that succeeds, and a run that outlasts its next period, do not end the way of most runs.
    await stage.play(until("12:30"))
    job = await stored(stage)
    assert (job.last_start_at, job.last_success_at) == (ms("12:10:40"), ms("12:11:30"))
    await stage.play(until("14:07"))
    job = await stored(stage)
    assert (job.last_start_at, job.last_success_at) == (ms("14:06:40"), ms("14:06:40"))
    await stage.play(until("14:59"))
    job = await stored(stage)
    assert (job.last_start_at, job.last_success_at) == (ms("14:06:40"), ms("14:08:20"))


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(SLOW._replace(does=""), id="preserved"),
        pytest.param(SLOW._replace(cron="30 * * * *", does=""), id="another expression"),
        pytest.param(SLOW._replace(retry=1200, does=""), id="another delay"),
        pytest.param(Given("a", "15 3 * * 1", 1200), id="both"),
    ],
)
async def test_all_times_are_kept_through_a_crash_and_an_override(stage: Stage, after: Given) -> None:
    await stage.play(init("11:00", SLOW), until("12:01"))
    before = await stored(stage)
    await stage.crash()
    await stage.play(init("12:02", after))
    assert stage.scheduler.standings["a"] == (
        "preserved" if after == SLOW._replace(does="") else "overridden"
    )
    kept = await stored(stage)
    names = ("last_start_at", "last_success_at", "last_failure_at")
    assert [getattr(kept, name) for name in names] == [getattr(before, name) for name in names]
    assert None not in [getattr(kept, name) for name in names]
    retried = moment("12:00:40") + after.retry * SECOND
    assert times(stage.scheduler.tasks["a"]) == (moment("12:00"), moment("11:00:30"), retried)


# --- retries ---------------------------------------------------------------------------------------


LEAP_DAY = datetime(2028, 2, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "delay",
    [timedelta(0), timedelta(milliseconds=1), SECOND, DAY - SECOND, DAY + SECOND, 40 * DAY, 1_400 * DAY],
    ids=str,
)
@pytest.mark.slow
async def test_a_retry_comes_exactly_after_its_delay_however_long(delay: timedelta) -> None:
    clock, calls = SimulatedClock(LEAP_DAY), list[datetime]()

    async def fails_once() -> None:
        calls.append(clock.now())
        if len(calls) == 1:
            raise ValueError("once")

    async with Scheduler("memory://", clock=clock, timezone="UTC") as scheduler:
        # Due again in four years: until then nothing pre-empts the retry.
        await scheduler.initialize([("a", "0 12 29 2 *", fails_once, delay)])
        await clock.advance_to(LEAP_DAY + delay - timedelta(milliseconds=1) if delay else LEAP_DAY)
        assert calls == [LEAP_DAY] * (1 if delay else 2)
        await clock.advance_to(LEAP_DAY + delay + DAY)
    assert calls == [LEAP_DAY, LEAP_DAY + delay]


@pytest.mark.parametrize("delay", [36_526 * DAY, 3_000_000 * DAY, 999_999_998 * DAY], ids=str)
async def test_a_delay_that_ends_after_the_calendar_waits_for_the_next_period(
    stage: Stage, delay: timedelta
) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", delay.total_seconds(), "fail")), until("12:30"))
    pending = stage.scheduler.tasks["a"].pending_retry_until
    assert pending == min(NOON + min(delay, LAST_INSTANT - NOON), LAST_INSTANT)
    assert stage.scheduler.tasks["a"].state == "AwaitingRetry"
    await stage.crash()
    again = [Given("a", "0 * * * *", delay.total_seconds()), Given("b", "0 * * * *", 1)]
    await stage.play(init("12:40", *again), until("13:01"))
    assert stage.scheduler.standings["a"] == "preserved"
    assert stage.calls == ["12:00 a", "13:00 a", "13:00 b"]
    assert stage.scheduler.tasks["a"].state == "AwaitingRun"


NAMES = (" ", "\t", "a\nb", "a\r\n", "\u2028", "é", "x" * 5_000, "a b", "%s", "'; --", "\x7f")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_text_that_is_not_empty_is_a_name(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    state = f"sqlite:///{tmp_path}/kron.db"
    if kind == "postgres":
        server: Server = request.getfixturevalue("postgres")
        state = server.fresh()
    clock, calls = SimulatedClock(NOON), list[str]()
    caplog.set_level("INFO")

    def callback(name: str) -> Any:
        async def call() -> None:
            calls.append(name)

        return call

    for expected in ("new", "preserved"):
        async with Scheduler(state, clock=clock, timezone="UTC") as scheduler:
            await scheduler.initialize([(name, "* * * * *", callback(name), MINUTE) for name in NAMES])
            assert dict(scheduler.standings) == dict.fromkeys(NAMES, expected)
            await clock.advance_to(clock.now() + MINUTE)
    # A minute each, and the first one at once.
    assert Counter(calls) == Counter(dict.fromkeys(NAMES, 3))
    # Another zone edits every task.
    async with Scheduler(state, clock=clock, timezone="Europe/Berlin") as scheduler:
        await scheduler.initialize([(name, "* * * * *", callback(name), MINUTE) for name in NAMES])
        await clock.advance_to(clock.now() + MINUTE)
    assert Counter(calls) == Counter(dict.fromkeys(NAMES, 4))
    assert not any("\n" in record.getMessage() for record in caplog.records)


# --- events ----------------------------------------------------------------------------------------


async def test_an_orphan_that_starts_again_is_no_retry(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 600, "hang, fail")), until("12:01"))
    await stage.crash()
    stage.events.clear()
    await stage.play(init("12:05", Given("a", "0 * * * *", 600)), until("12:20"))
    runs = [event for event in stage.events if event.startswith("Task")]
    assert runs == [
        "TaskRunStarted a", "TaskRunFailed a", "TaskRetryStarted a", "TaskRunCompleted a",
    ]  # fmt: skip
    assert stage.calls == ["12:00 a", "12:05 a", "12:15 a"]


@pytest.mark.parametrize(
    ("back", "late"),
    [("13:00:59", 0), ("13:01:00", 0), ("13:01:00.001", 1), ("13:01:01", 1), ("13:04:59", 1)],
)
async def test_a_start_is_late_from_a_minute_after_it_was_due(
    stage: Stage, caplog: pytest.LogCaptureFixture, back: str, late: int
) -> None:
    hourly = Given("a", "0 * * * *")
    await stage.play(init("12:00", hourly), stop("12:30"), until("12:31"), init(back, hourly), until("13:10"))
    assert [call.endswith(" a") for call in stage.calls] == [True, True]
    assert stage.scheduler.late_starts == late
    by = (moment(back) - moment("13:00")).total_seconds()
    assert caplog.text.count(f"late start: a by {by:.3f} s") == late


async def test_a_start_that_an_outage_delays_is_late_also_without_a_listener(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SimulatedClock(NOON + SECOND)
    store = FaultyStore(SqliteStore(), clock)
    async with Scheduler(store, clock=clock, timezone="UTC") as scheduler:
        await scheduler.initialize([("a", "1 * * * *", nothing, MINUTE)])
        await clock.advance_to(NOON + 50 * SECOND)
        # Retried after 0.1, 0.2, 0.4 s and so on, and every 5 s in the end: two minutes of outage.
        store.then("load", *[Fault.BEFORE] * 28)
        await clock.advance_to(NOON + 5 * MINUTE)
        attempt = scheduler.tasks["a"].last_attempt_at
        assert attempt is not None
        assert NOON + 2 * MINUTE < attempt < NOON + 4 * MINUTE
        assert scheduler.late_starts == 1
        assert "late start: a by 1" in caplog.text


# --- overrides -------------------------------------------------------------------------------------

REFUSALS = {
    "the override": "BEFORE UPDATE OF definition ON jobs WHEN NEW.schedule_id = 'changed'",
    "the new task": "BEFORE INSERT ON jobs WHEN NEW.schedule_id = 'new'",
    "the removal": "BEFORE DELETE ON jobs WHEN OLD.schedule_id = 'gone'",
}


@pytest.mark.parametrize("refusal", [pytest.param(text, id=name) for name, text in REFUSALS.items()])
async def test_new_overridden_and_removed_tasks_are_one_transaction(tmp_path: Path, refusal: str) -> None:
    """The database refuses one of the writes, whichever: none of the others is there afterwards."""
    path = tmp_path / "kron.db"
    scheduler = Scheduler(f"sqlite:///{path}", clock=SimulatedClock(NOON + SECOND), timezone="UTC")
    before = [(name, "0 * * * *", nothing, MINUTE) for name in ("same", "changed", "gone")]
    after = [("same", "0 * * * *", nothing, MINUTE), ("changed", "5 * * * *", nothing, MINUTE)]
    after += [("new", "0 * * * *", nothing, MINUTE)]
    await scheduler.initialize(before)
    await scheduler.stop()
    records = await cases_of(path)
    execute(path, f"CREATE TRIGGER refusal {refusal} BEGIN SELECT RAISE(ABORT, 'refused'); END")
    with pytest.raises(StoreError, match="refused"):
        await scheduler.initialize(after)
    assert scheduler.state == "uninitialized"
    assert await cases_of(path) == records
    execute(path, "DROP TRIGGER refusal")
    await scheduler.initialize(after)
    assert dict(scheduler.standings) == {"same": "preserved", "changed": "overridden", "new": "new"}
    await scheduler.stop()
    assert {state.job.identity for state in await cases_of(path)} == {"same", "changed", "new"}


async def cases_of(path: Path) -> list[JobState]:
    store = SqliteStore(str(path))
    states = await store.cases(SPACE)
    await store.close()
    return states


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


async def test_the_same_list_again_changes_no_record(stage: Stage) -> None:
    tasks = [Given("a", "0 * * * *", 600, "fail"), Given("b", "30 * * * *")]
    await stage.play(init("12:00:30", *tasks), until("12:31"), stop("12:32"), until("12:33"))
    before = await stage.store.cases(SPACE)
    assert len(before) == 2
    again = [task._replace(does="") for task in tasks]
    for minute in (34, 36):
        await stage.play(init(f"12:{minute}", *again), stop(f"12:{minute}:30"), until(f"12:{minute + 1}"))
        assert set(stage.scheduler.standings.values()) == {"preserved"}
        assert await stage.store.cases(SPACE) == before


# --- after a stop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ok", "fails", "hangs till the stop"])
async def test_after_a_stop_no_task_thread_or_file_is_left(tmp_path: Path, how: str) -> None:
    path, clock, gate = tmp_path / "kron.db", SimulatedClock(NOON), asyncio.Event()

    async def call() -> None:
        if how == "fails":
            raise ValueError("on purpose")
        if how == "hangs till the stop":
            await gate.wait()

    others, threads = asyncio.all_tasks(), set(threading.enumerate())
    scheduler = Scheduler(f"sqlite:///{path}", clock=clock, timezone="UTC")
    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    await clock.advance_to(NOON + SECOND)
    assert (tmp_path / "kron.db-wal").exists()
    stopping = asyncio.create_task(scheduler.stop())
    await asyncio.sleep(0)
    assert scheduler.state == "stopping"
    gate.set()
    await stopping
    assert (scheduler.state, scheduler.polling) == ("stopped", "inactive")
    assert asyncio.all_tasks() == others
    # SQLite removes its log when the last connection is closed.
    assert not (tmp_path / "kron.db-wal").exists()
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE_S)
    assert set(threading.enumerate()) <= threads


async def test_without_tasks_no_loop_is_left_and_nothing_is_called(stage: Stage) -> None:
    await stage.play(init("12:00:30", Given("a", "* * * * *")), until("12:01:30"))
    assert "kron embed:main" in loops()
    await stage.play(stop("12:01:40"), until("12:01:50"))
    assert stage.events[-3:] == ["PollingStopRequested", "PollingStopped", "SchedulerStopped"]
    await stage.play(init("12:02:30"), until("12:10"))
    assert (stage.scheduler.state, stage.scheduler.polling) == ("running", "inactive")
    assert "kron embed:main" not in loops()
    assert stage.calls == ["12:00:30 a", "12:01 a"]
    assert stage.events.count("PollingStarted") == stage.events.count("PollingStopped") == 1
    assert await stage.store.cases(SPACE) == []


def loops() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


# --- one task at a time ----------------------------------------------------------------------------


async def test_each_due_minute_calls_each_task_once_and_never_twice_at_once(stage: Stage) -> None:
    """Counted outside the callbacks: a callback that raises would only be tried again."""
    running: dict[str, int] = dict.fromkeys("abcdef", 0)
    most, calls = dict(running), dict(running)
    together: list[int] = []

    def working(name: str) -> Any:
        async def work() -> None:
            calls[name] += 1
            running[name] += 1
            most[name] = max(most[name], running[name])
            together.append(sum(running.values()))
            await stage.clock.sleep_until(stage.clock.now() + 70 * SECOND)
            running[name] -= 1

        return work

    stage.begin("12:00")
    await stage.scheduler.initialize([(name, "* * * * *", working(name), MINUTE) for name in running])
    await stage.clock.advance_to(NOON + 10 * MINUTE)
    assert set(most.values()) == {1}
    assert max(together) == 6
    # A call of 70 s, and at its end the minute that waited: at 0, 70, 140 ... 560 s.
    assert set(calls.values()) == {9}
