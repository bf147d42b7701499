"""The two methods: what they promise, in which order things happen, and what overlapping calls come to."""

import asyncio
import inspect
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kron
from kron.clocks.system import SystemClock
from kron.core.errors import OwnedError, StoreError
from kron.core.plan.record import AuditRecord, JobRecord
from kron.core.plan.step import Change, Ownership, WriteResult
from kron.core.task.errors import (
    SchedulerAlreadyActiveError,
    SchedulerFailedError,
    SchedulerStopInCallbackError,
)
from kron.core.task.task import TASK_TRANSITIONS, TaskEvent, TaskState
from kron.fronts.embed.event import POLLING_TRANSITIONS, SCHEDULER_TRANSITIONS, Event
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock, kill
from tests.embed.stage import Failing as Losing
from tests.embed.stage import Given, KeptInMemory, Stage, init, stop, until

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
BEGUN = ["SchedulerInitializationStarted", "PollingStarted", "SchedulerInitializationCompleted"]
ENDED = ["SchedulerStopRequested", "PollingStopRequested", "PollingStopped", "SchedulerStopped"]


async def nothing() -> None:
    """Do nothing."""


class Failing(SqliteStore):
    """A store whose named calls fail."""

    def __init__(self, path: str = ":memory:", *, error: Exception | None = None) -> None:
        super().__init__(path)
        self.failing: set[str] = set()
        self.error = error or StoreError("the store fails")

    def _check(self, name: str) -> None:
        if name in self.failing:
            raise self.error

    async def put(
        self,
        namespace: str,
        *,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str] = (),
        audit: Sequence[AuditRecord] = (),
        now: int,
    ) -> WriteResult:
        self._check("put")
        return await super().put(
            namespace, created=created, changed=changed, forgotten=forgotten, audit=audit, now=now
        )

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        self._check("release")
        await super().release(ownership, now=now)


class Slow(SqliteStore):
    """A store that writes a registration when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def cases(self, *arguments: Any, **named: Any) -> Any:
        await self.gate.wait()
        return await super().cases(*arguments, **named)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    kept = KeptInMemory()
    made = Stage(lambda: kept, free=lambda: None)
    yield made
    made.traced()
    await made.close()


def a_scheduler(**options: Any) -> Scheduler:
    options = {"state": "memory://", "clock": SimulatedClock(NOON + SECOND), "timezone": "UTC", **options}
    return Scheduler(options.pop("state"), **options)


def clock_of(scheduler: Scheduler) -> SimulatedClock:
    clock = scheduler._wiring.clock
    assert isinstance(clock, SimulatedClock)
    return clock


# --- the surface -----------------------------------------------------------------------------------


def test_there_are_exactly_two_public_methods() -> None:
    methods = {name for name, _ in inspect.getmembers(Scheduler, callable) if not name.startswith("_")}
    assert methods == {"initialize", "stop"}
    assert list(inspect.signature(Scheduler.initialize).parameters) == ["self", "registrations"]
    assert list(inspect.signature(Scheduler.stop).parameters) == ["self"]
    assert kron.Scheduler is Scheduler


async def test_both_methods_give_nothing_back() -> None:
    scheduler = a_scheduler()
    begun: object = await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])  # type: ignore[func-returns-value]
    ended: object = await scheduler.stop()  # type: ignore[func-returns-value]
    assert (begun, ended) == (None, None)


def test_a_new_scheduler_touches_nothing(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/kron.db", clock=SimulatedClock(NOON), timezone="UTC")
    assert (scheduler.state, scheduler.polling, dict(scheduler.tasks)) == ("uninitialized", "inactive", {})
    asyncio.run(scheduler.stop())
    assert scheduler.state == "uninitialized"
    assert list(tmp_path.iterdir()) == []


async def test_as_a_context_manager_it_stops_at_the_end() -> None:
    async with a_scheduler() as scheduler:
        await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])
        assert scheduler.state == "running"
    assert scheduler.state == "stopped"


async def test_without_a_clock_the_hosts_is_read() -> None:
    scheduler = Scheduler("memory://")
    assert isinstance(scheduler._wiring.clock, SystemClock)
    async with scheduler:
        called = asyncio.Event()

        async def call() -> None:
            called.set()

        await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
        await called.wait()
        attempted = scheduler.tasks["a"].last_attempt_at
        assert attempted is not None
        assert abs(attempted - datetime.now(UTC)) < timedelta(hours=1)


async def test_a_list_may_be_a_tuple_and_a_registration_a_list() -> None:
    async with a_scheduler() as scheduler:
        listed: Any = (["a", "* * * * *", nothing, timedelta(0)], ("b", "0 0 1 1 *", nothing, MINUTE))
        await scheduler.initialize(listed)
        assert set(scheduler.tasks) == {"a", "b"}


async def test_without_a_state_it_is_kept_beside_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    program = tmp_path / "100% #1?" / "program.py"
    monkeypatch.setattr(__main__, "__file__", str(program), raising=False)
    async with Scheduler(clock=SimulatedClock(NOON), timezone="UTC") as scheduler:
        await scheduler.initialize([])
        assert (program.parent / "kron.db").is_file()


async def test_state_in_memory_says_that_nothing_survives(caplog: pytest.LogCaptureFixture) -> None:
    Scheduler("memory://")
    assert "it is lost when this program ends" in caplog.text
    assert "one of several" not in caplog.text
    caplog.clear()
    Scheduler("sqlite:///unused.db")
    assert caplog.text == ""


FORKING = """
import multiprocessing, os, sys
import kron

def work():
    kron.Runner(sys.argv[1])
    sys.stderr.flush()

if __name__ == "__main__":
    print("parent", file=sys.stderr, flush=True)
    work()
    if child := os.fork():
        os.waitpid(child, 0)
        print("spawned", file=sys.stderr, flush=True)
        process = multiprocessing.get_context("spawn").Process(target=work)
        process.start()
        process.join()
    else:
        print("forked", file=sys.stderr, flush=True)
        work()
"""
ALONE = "state is kept in memory: it is lost when this program ends"
SEVERAL = (
    f"{ALONE}. This looks like one of several processes of a server, each of which would start every job: "
    "use a file or PostgreSQL (sqlite:///kron.db, postgresql://...), so that one of them does"
)


@pytest.mark.slow
def test_state_in_memory_of_a_server_with_several_processes_says_that_each_starts_every_job(
    tmp_path: Path,
) -> None:
    program = tmp_path / "server.py"
    program.write_text(FORKING)

    def logged(state: str) -> list[str]:
        command = [sys.executable, str(program), state]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stderr.splitlines()

    assert logged("memory://") == ["parent", ALONE, "forked", SEVERAL, "spawned", SEVERAL]
    assert logged("sqlite:///jobs.db") == ["parent", "forked", "spawned"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"state": "mysql://x"}, "Invalid store", id="an unknown kind of state"),
        pytest.param({"state": "kron.db"}, "not a URL", id="a path"),
        pytest.param({"timezone": "Berlin"}, "Unknown timezone", id="an unknown zone"),
        pytest.param({"name": ""}, "Invalid name", id="no name"),
        pytest.param({"on_event": nothing}, "Invalid on_event", id="an async listener"),
    ],
)
def test_a_wrong_option_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(kron.InputError, match=message):
        a_scheduler(**options)


async def test_names_keep_schedulers_with_one_state_apart(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/kron.db", SimulatedClock(NOON + SECOND)
    calls: list[str] = []

    async def one() -> None:
        calls.append("one")

    async def two() -> None:
        calls.append("two")

    async with (
        Scheduler(url, clock=clock, timezone="UTC", name="one") as first,
        Scheduler(url, clock=clock, timezone="UTC", name="two") as second,
    ):
        await first.initialize([("a", "1 * * * *", one, MINUTE)])
        await second.initialize([("a", "2 * * * *", two, MINUTE)])
        await first.stop()
        await first.initialize([])
        await clock.advance_to(NOON + 5 * MINUTE)
    assert calls == ["two"]


# --- states and events -----------------------------------------------------------------------------


async def test_the_states_and_events_of_a_life_in_order(stage: Stage) -> None:
    await stage.play(init("12:00:30", Given("a", "0 13 * * *")), stop("12:01"), until("12:02"))
    assert list(zip(stage.events, stage.states, strict=True)) == [
        ("SchedulerInitializationStarted", "initializing"),
        ("PollingStarted", "initializing"),
        ("SchedulerInitializationCompleted", "running"),
        ("SchedulerStopRequested", "stopping"),
        ("PollingStopRequested", "stopping"),
        ("PollingStopped", "stopping"),
        ("SchedulerStopped", "stopped"),
    ]


async def test_events_in_order(stage: Stage) -> None:
    await stage.play(
        init("12:00:30", Given("a", "* * * * *", 90, "ok, fail")), until("12:02"), stop("12:02:30")
    )
    await stage.play(until("12:03"))
    assert stage.events == [
        *BEGUN,
        "TaskRunStarted a",
        "TaskRunCompleted a",
        "TaskRunStarted a",
        "TaskRunFailed a",
        "TaskRetryPreempted a",
        "TaskRunStarted a",
        "TaskRunCompleted a",
        *ENDED,
    ]


async def test_a_retry_has_its_own_event(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 30, "fail")), until("12:10"))
    assert stage.events[len(BEGUN) :] == [
        "TaskRunStarted a",
        "TaskRunFailed a",
        "TaskRetryStarted a",
        "TaskRunCompleted a",
    ]


async def test_an_empty_list_has_nothing_to_poll(stage: Stage) -> None:
    await stage.play(init("12:00"), until("12:10"), stop("12:11"), until("12:12"))
    assert stage.events == [*BEGUN[::2], *ENDED[::3]]


async def test_task_states_follow_the_table(stage: Stage) -> None:
    """Every event is seen in a state in which the table has it."""
    known = {(before.value, event.value): after.value for before, event, after in TASK_TRANSITIONS}
    state = {"a": "AwaitingRun", "b": "AwaitingRun"}
    tasks = [
        Given("a", "* * * * *", 20, "fail, fail, 100s, fail 70s, ok, fail"),
        Given("b", "*  * * * *", 0, "fail, fail"),
    ]
    await stage.play(init("12:00:30", *tasks), until("12:20"))
    for line in stage.events[len(BEGUN) :]:
        event, task = line.split()
        state[task] = known[state[task], event]
    assert {event for _, event in known} == {line.split()[0] for line in stage.events[len(BEGUN) :]}


@pytest.mark.parametrize(
    ("table", "states"),
    [
        pytest.param(SCHEDULER_TRANSITIONS, 5, id="scheduler"),
        pytest.param(POLLING_TRANSITIONS, 3, id="polling"),
        pytest.param(TASK_TRANSITIONS, 3, id="task"),
    ],
)
def test_a_table_has_one_answer_for_every_event_in_every_state(table: Any, states: int) -> None:
    assert len({(before, event) for before, event, _ in table}) == len(table)
    assert len({before for before, _, _ in table} | {after for _, _, after in table}) == states


async def test_the_times_of_a_task(stage: Stage) -> None:
    await stage.play(init("12:00:30", Given("a", "* * * * *", 90, "ok, fail")))
    seen = []
    for at in (30, 31, 61, 121):
        await stage.clock.advance_to(NOON + at * SECOND)
        task = stage.scheduler.tasks["a"]
        times = [task.last_attempt_at, task.last_success_at, task.pending_retry_until]
        seen.append((task.state, *(None if time is None else (time - NOON) // SECOND for time in times)))
    assert seen == [
        (TaskState.AWAITING_RUN, 30, 30, None),
        (TaskState.AWAITING_RUN, 30, 30, None),
        (TaskState.AWAITING_RETRY, 60, 30, 150),
        (TaskState.AWAITING_RUN, 120, 120, None),
    ]


async def test_a_task_is_running_until_its_callback_ends(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 60, "30s")))
    seen = []
    for at in ("12:00:29", "12:00:30"):
        await stage.play(until(at))
        seen.append(stage.scheduler.tasks["a"].state)
    assert seen == [TaskState.RUNNING, TaskState.AWAITING_RUN]


async def test_times_are_kept_through_restart_crash_and_override(stage: Stage) -> None:
    hourly = Given("a", "0 * * * *", 600, "ok, fail")
    await stage.play(init("11:00:30", hourly), until("12:00"))
    before = stage.scheduler.tasks["a"]
    assert before.pending_retry_until == NOON + 10 * MINUTE
    await stage.crash()
    await stage.play(init("12:01", Given("a", "0 * * * *", 600)))
    assert dict(stage.scheduler.standings) == {"a": "preserved"}
    assert stage.scheduler.tasks["a"] == before
    await stage.play(stop("12:02"), until("12:03"), init("12:04", Given("a", "0 * * * *", 900)))
    assert dict(stage.scheduler.standings) == {"a": "overridden"}
    after = stage.scheduler.tasks["a"]
    assert (after.last_attempt_at, after.last_success_at) == (before.last_attempt_at, before.last_success_at)
    assert after.pending_retry_until == NOON + 15 * MINUTE


async def test_the_attempt_is_on_record_before_the_callback_is_called(tmp_path: Path) -> None:
    path = tmp_path / "kron.db"
    found: list[tuple[object, ...]] = []

    async def look() -> None:
        with sqlite3.connect(path) as connection:
            found.extend(connection.execute("SELECT last_start_at FROM jobs"))
        connection.close()

    clock = SimulatedClock(NOON)
    async with Scheduler(f"sqlite:///{path}", clock=clock, timezone="UTC") as scheduler:
        await scheduler.initialize([("a", "0 * * * *", look, MINUTE)])
        await clock.advance_to(NOON + SECOND)
    assert found == [(int(1000 * NOON.timestamp()),)]


# --- listeners and logs ----------------------------------------------------------------------------


async def test_a_listener_that_raises_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def raises(event: Event) -> None:
        raise ValueError("a bad listener")

    calls: list[str] = []

    async def call() -> None:
        calls.append("a")

    scheduler = a_scheduler(on_event=raises)
    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    await clock_of(scheduler).advance_to(NOON + 2 * MINUTE)
    await scheduler.stop()
    assert calls == ["a"] * 3
    assert caplog.text.count("a bad listener") >= 10


async def test_an_event_says_what_when_and_to_whom() -> None:
    events: list[Event] = []

    async def fails() -> None:
        raise ValueError("broken")

    scheduler = a_scheduler(on_event=events.append)
    await scheduler.initialize([("a", "1 * * * *", fails, MINUTE)])
    await clock_of(scheduler).advance_to(NOON + MINUTE)
    await kill(scheduler)
    failed = next(event for event in events if event.name == TaskEvent.RUN_FAILED.value)
    assert (failed.task, failed.at) == ("a", NOON + MINUTE)
    assert dict(failed.details) == {"attempt": 1, "error": "ValueError: broken"}


async def test_a_failing_callback_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_here() -> None:
        raise ValueError("broken")

    scheduler = a_scheduler()
    await scheduler.initialize([("a", "* * * * *", fails_here, MINUTE)])
    await clock_of(scheduler).advance_to(NOON + 2 * SECOND)
    await scheduler.stop()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info is not None
    assert "fails_here" in caplog.text


async def test_events_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kron.scheduler")
    async with a_scheduler() as scheduler:
        await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])
        await clock_of(scheduler).advance_to(NOON + MINUTE)
    logged = [record.getMessage().split()[0] for record in caplog.records if record.name == "kron.scheduler"]
    assert logged[1:4] == BEGUN
    assert logged[-4:] == ENDED


@pytest.mark.parametrize(
    ("forward", "late"),
    [
        pytest.param(50 * SECOND, 0, id="within a minute"),
        pytest.param(61 * SECOND, 1, id="just over a minute"),
        pytest.param(10 * MINUTE, 1, id="ten minutes"),
    ],
)
async def test_a_start_later_than_a_minute_is_logged_and_counted(
    caplog: pytest.LogCaptureFixture, forward: timedelta, late: int
) -> None:
    scheduler = a_scheduler()
    clock = clock_of(scheduler)
    await scheduler.initialize([("a", "1 * * * *", nothing, MINUTE)])
    await clock.advance_to(NOON + 50 * SECOND)
    clock.jump_to(NOON + MINUTE + forward)
    await clock.advance_to(NOON + MINUTE + forward + SECOND)
    await scheduler.stop()
    assert scheduler.late_starts == late
    assert caplog.text.count("late start: a") == late


async def test_what_waited_for_its_own_run_or_its_retry_is_not_late(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0,1 * * * *", 600, "400s, fail")), until("12:30"))
    assert stage.calls == ["12:00 a", "12:06:40 a", "12:16:40 a"]
    assert stage.scheduler.late_starts == 0


# --- initialize ------------------------------------------------------------------------------------


async def test_nothing_starts_before_initialize_has_returned() -> None:
    calls: list[str] = []
    returned: list[int] = []

    async def call() -> None:
        calls.append("a")

    scheduler = a_scheduler()

    async def begin() -> None:
        await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
        returned.append(len(calls))
        assert scheduler.tasks["a"].last_attempt_at is None

    await asyncio.create_task(begin())
    await clock_of(scheduler).advance_to(NOON + 2 * SECOND)
    await scheduler.stop()
    assert (returned, calls) == ([0], ["a"])


async def test_of_overlapping_initializations_the_first_goes_on() -> None:
    events: list[str] = []
    store = Slow()
    scheduler = a_scheduler(state=store, on_event=lambda event: events.append(event.name))
    listed = [("a", "* * * * *", nothing, MINUTE)]
    first = asyncio.create_task(scheduler.initialize(listed))
    await asyncio.sleep(0)
    assert scheduler.state == "initializing"
    for _ in range(3):
        with pytest.raises(SchedulerAlreadyActiveError) as refused:
            await scheduler.initialize(listed)
        assert refused.value.details == {"currentState": "initializing"}
    assert events == BEGUN[:1]
    store.gate.set()
    await first
    assert events[:3] == BEGUN
    with pytest.raises(SchedulerAlreadyActiveError, match="already running"):
        await scheduler.initialize(listed)
    assert [event for event in events if event.startswith("Scheduler")] == BEGUN[::2]
    await scheduler.stop()
    await store.close()


async def test_an_identical_list_while_running_is_refused_and_changes_nothing(stage: Stage) -> None:
    hourly = Given("a", "0 * * * *")
    await stage.play(init("12:00:30", hourly), until("12:00:31"))
    before = await stage.store.cases("embed:main")
    with pytest.raises(SchedulerAlreadyActiveError) as refused:
        await stage.scheduler.initialize(stage.listed([hourly]))
    assert str(refused.value) == "Cannot initialize scheduler: scheduler is already running"
    assert await stage.store.cases("embed:main") == before
    await stage.play(until("13:00"))
    assert stage.calls == ["12:00:30 a", "13:00 a"]


async def test_the_same_list_after_a_stop_leaves_each_task_once(stage: Stage) -> None:
    hourly = Given("a", "0 * * * *")
    await stage.play(init("12:01", hourly))
    before = await stage.store.cases("embed:main")
    for minute in range(2, 6):
        await stage.play(stop(f"12:0{minute}"), until(f"12:0{minute}:30"), init(f"12:0{minute}:40", hourly))
        assert dict(stage.scheduler.standings) == {"a": "preserved"}
    assert [case.job.definition for case in await stage.store.cases("embed:main")] == [
        case.job.definition for case in before
    ]
    await stage.play(until("13:00"))
    assert stage.calls == ["13:00 a"]


async def test_each_task_gets_one_standing(stage: Stage) -> None:
    tasks = [
        Given(name, "0 * * * *", 60, "hang" if name == "orphan" else "")
        for name in ("same", "cron", "delay", "orphan", "gone")
    ]
    await stage.play(init("12:00:30", *tasks), until("12:01"))
    assert set(stage.scheduler.standings.values()) == {"new"}
    await stage.crash()
    again = [
        Given("same", "0 * * * *"),
        Given("cron", "0  * * * *"),
        Given("delay", "0 * * * *", 60.0000001 + 0.000001),
        Given("orphan", "30 * * * *"),
        Given("Same", "0 * * * *"),
    ]
    await stage.play(init("12:02", *again))
    assert dict(stage.scheduler.standings) == {
        "same": "preserved",
        "cron": "overridden",
        "delay": "overridden",
        "orphan": "orphaned",
        "Same": "new",
    }
    assert {case.job.identity for case in await stage.store.cases("embed:main")} == set(
        stage.scheduler.standings
    )


async def test_another_callback_is_no_other_configuration(stage: Stage) -> None:
    await stage.play(init("12:01", Given("a", "0 * * * *")), stop("12:02"), until("12:03"))
    other: list[str] = []

    async def another() -> None:
        other.append("called")

    await stage.scheduler.initialize([("a", "0 * * * *", another, MINUTE)])
    assert dict(stage.scheduler.standings) == {"a": "preserved"}
    await stage.play(until("13:00"))
    assert (stage.calls, other) == ([], ["called"])


async def test_the_identifier_is_the_instances_own_and_owns_the_state(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/kron.db", SimulatedClock(NOON)
    one, two = (Scheduler(url, clock=clock, timezone="UTC") for _ in range(2))
    assert (one.identifier, two.identifier) == (None, None)
    async with two:
        await two.initialize([])
    async with one:
        await one.initialize([])
        assert one.identifier not in (None, two.identifier)
        with sqlite3.connect(tmp_path / "kron.db") as connection:
            assert connection.execute("SELECT owner FROM leases").fetchall() == [(one.identifier,)]
        connection.close()


@pytest.mark.parametrize("before", [[], [("a", "0 * * * *", nothing, MINUTE)]], ids=["new", "with state"])
async def test_an_initialization_that_cannot_write_leaves_everything_as_it_was(before: Any) -> None:
    store, events = Failing(), list[str]()
    scheduler = a_scheduler(state=store, on_event=lambda event: events.append(event.name))
    await scheduler.initialize(before)
    await scheduler.stop()
    stored = await store.cases("embed:main")
    events.clear()
    store.failing = {"put"}
    with pytest.raises(StoreError, match="the store fails"):
        await scheduler.initialize([("b", "* * * * *", nothing, MINUTE)])
    assert events == ["SchedulerInitializationStarted", "SchedulerInitializationFailed"]
    assert scheduler.state == "uninitialized"
    assert await store.cases("embed:main") == stored
    store.failing = set()
    await scheduler.initialize([("b", "* * * * *", nothing, MINUTE)])
    await scheduler.stop()
    await store.close()


async def test_an_override_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The disk is full in the middle: what was stored before is still there."""
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    scheduler = a_scheduler(state=store)
    await scheduler.initialize([(f"old {n}", "0 * * * *", nothing, MINUTE) for n in range(3)])
    await scheduler.stop()
    before = await store.cases("embed:main")
    pages = await store._do(lambda: store._open().execute("PRAGMA page_count").fetchone()[0])
    await store._do(lambda: store._open().execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    new = [(f"new {n} {'x' * 500}", "0 * * * *", nothing, MINUTE) for n in range(200)]
    with pytest.raises(StoreError, match="full"):
        await scheduler.initialize(new)
    assert await store.cases("embed:main") == before
    await store._do(lambda: store._open().execute("PRAGMA max_page_count = 100000").fetchone())
    await scheduler.initialize(new)
    assert len(await store.cases("embed:main")) == 200
    await scheduler.stop()
    await store.close()


async def test_an_unexpected_error_is_wrapped_and_kept() -> None:
    error = RuntimeError("out of the blue")
    store = Failing(error=error)
    scheduler = a_scheduler(state=store)
    store.failing = {"put"}
    with pytest.raises(SchedulerFailedError) as failed:
        await scheduler.initialize([])
    assert str(failed.value) == "Cannot initialize scheduler: RuntimeError: out of the blue"
    assert failed.value.details["cause"] is error
    store.failing = {"release"}
    await scheduler.initialize([])
    with pytest.raises(SchedulerFailedError, match="Cannot stop scheduler") as failed:
        await scheduler.stop()
    assert failed.value.details["cause"] is error
    assert scheduler.state == "stopped"
    await store.close()


async def test_a_caller_that_gives_up_leaves_nothing_behind() -> None:
    store = Slow()
    scheduler = a_scheduler(state=store)
    begin = asyncio.create_task(scheduler.initialize([("a", "* * * * *", nothing, MINUTE)]))
    await asyncio.sleep(0)
    begin.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begin
    assert scheduler.state == "uninitialized"
    store.gate.set()
    await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])
    await scheduler.stop()
    await store.close()


async def test_a_second_process_is_refused_or_waits(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/kron.db", SimulatedClock(NOON + SECOND)
    first, second, patient = (
        Scheduler(url, clock=clock, timezone="UTC", wait=wait) for wait in (False, False, True)
    )
    await first.initialize([("a", "1 * * * *", nothing, MINUTE)])
    with pytest.raises(OwnedError, match="owned by another process"):
        await second.initialize([("a", "1 * * * *", nothing, MINUTE)])
    assert second.state == "uninitialized"
    waiting = asyncio.create_task(patient.initialize([("a", "1 * * * *", nothing, MINUTE)]))
    await clock.advance_to(NOON + 10 * SECOND)
    assert not waiting.done()
    await first.stop()
    await clock.advance_to(NOON + 12 * SECOND)
    await waiting
    assert patient.state == "running"
    await patient.stop()


@pytest.mark.parametrize(
    "faults", [["after"] * 2, ["before"], ["after", "load"], ["before", "after", "after"]], ids="-".join
)
async def test_what_is_written_is_told_also_where_the_stores_answer_is_lost(faults: list[str]) -> None:
    store = Losing()
    stage = Stage(lambda: store, free=lambda: None)
    await stage.play(init("12:00:30", Given("a", "* * * * *", 60, "ok, 30s, fail, ok")), until("12:00:40"))
    for at in ("12:00:50", "12:01:10", "12:01:50", "12:02:50"):
        await stage.play(until(at))
        store.faults = list(faults)
    await stage.play(until("12:05"))
    assert store.faults == []
    starts = [event for event in stage.events if "Started a" in event]
    ends = [event for event in stage.events if "Completed a" in event or "Failed a" in event]
    assert len(starts) == len(ends) == len(stage.calls)
    assert stage.scheduler.tasks["a"].state is TaskState.AWAITING_RUN
    stage.traced()
    await stage.close()


# --- stop ------------------------------------------------------------------------------------------


async def test_stop_waits_for_callbacks_and_nothing_starts_after_it_was_called(stage: Stage) -> None:
    await stage.play(
        init("12:00", Given("a", "* * * * *", 60, "150s"), Given("b", "* * * * *")), stop("12:00:30")
    )
    await stage.play(until("12:02:29"))
    (stopping,) = stage.stopping
    assert not stopping.done()
    assert (stage.scheduler.state, stage.scheduler.polling) == ("stopping", "stopping")
    await stage.play(until("12:02:30"))
    await stopping
    assert stage.calls == ["12:00 a", "12:00 b"]
    assert (stage.scheduler.state, stage.scheduler.polling) == ("stopped", "inactive")


async def test_initialize_while_stopping_is_refused(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 60, "150s")), stop("12:00:30"), until("12:01"))
    with pytest.raises(SchedulerAlreadyActiveError) as refused:
        await stage.scheduler.initialize([])
    assert refused.value.current_state == "running"
    await stage.play(until("12:03"), init("12:04"))
    assert stage.scheduler.state == "running"


async def test_any_number_of_stops_may_overlap(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 60, "30s")), until("12:00:10"))
    stops = [asyncio.create_task(stage.scheduler.stop()) for _ in range(5)]
    await stage.play(until("12:00:20"))
    assert not any(task.done() for task in stops)
    await stage.play(until("12:01"))
    assert await asyncio.gather(*stops) == [None] * 5
    await stage.scheduler.stop()
    assert stage.events[-4:] == [ENDED[1], "TaskRunCompleted a", *ENDED[2:]]
    ends = [event["event"] for event in stage.traced() if event["event"].startswith("Stop")]
    assert ends == ["StopStart"] * 5 + ["StopEnd"] * 5 + ["StopStart", "StopEnd"]


async def test_a_stop_during_initialize_waits_for_it_and_nothing_starts() -> None:
    calls: list[str] = []
    events: list[str] = []

    async def call() -> None:
        calls.append("a")

    store = Slow()
    scheduler = a_scheduler(state=store, on_event=lambda event: events.append(event.name))
    begin = asyncio.create_task(scheduler.initialize([("a", "* * * * *", call, MINUTE)]))
    await asyncio.sleep(0)
    stops = [asyncio.create_task(scheduler.stop()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in stops)
    store.gate.set()
    await asyncio.gather(begin, *stops)
    assert scheduler.state == "stopped"
    await clock_of(scheduler).advance_to(NOON + 5 * MINUTE)
    assert calls == []
    assert events == [BEGUN[0], BEGUN[2], ENDED[0], ENDED[3]]
    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    await clock_of(scheduler).advance_to(NOON + 5 * MINUTE + SECOND)
    await scheduler.stop()
    assert calls == ["a"]
    await store.close()


async def test_a_stop_during_an_initialize_that_fails_returns() -> None:
    store = Slow()
    scheduler = a_scheduler(state=store)
    begin = asyncio.create_task(scheduler.initialize([]))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(scheduler.stop())
    await asyncio.sleep(0)
    begin.cancel()
    await stopping
    assert scheduler.state == "uninitialized"
    with pytest.raises(asyncio.CancelledError):
        await begin
    await store.close()


async def test_a_caller_of_stop_that_gives_up_does_not_keep_it_from_stopping(stage: Stage) -> None:
    await stage.play(init("12:00", Given("a", "0 * * * *", 60, "30s")), until("12:00:10"))
    stopping = asyncio.create_task(stage.scheduler.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with suppress(asyncio.CancelledError):
        await stopping
    assert stage.scheduler.state == "stopping"
    await stage.play(until("12:01"))
    assert stage.scheduler.state == "stopped"


async def test_callbacks_that_fail_while_stopping_do_not_keep_it_from_stopping(stage: Stage) -> None:
    await stage.play(
        init("12:00", *(Given(name, "0 * * * *", 60, "fail 30s") for name in "abc")),
        stop("12:00:10"),
        until("12:01"),
    )
    await stage.stopping[0]
    assert stage.scheduler.state == "stopped"
    assert [event for event in stage.events if "Failed" in event] == [
        f"TaskRunFailed {name}" for name in "abc"
    ]
    assert {case.runs[0].reason for case in await stage.store.cases("embed:main")} == {"retry"}


async def test_a_callback_cannot_wait_for_stop() -> None:
    refused: list[str] = []
    stops: list[asyncio.Task[None]] = []
    scheduler = a_scheduler()

    async def stops_from_within() -> None:
        try:
            await scheduler.stop()
        except SchedulerStopInCallbackError as error:
            refused.append(str(error))
            stops.append(asyncio.create_task(scheduler.stop()))

    await scheduler.initialize([("a", "* * * * *", stops_from_within, MINUTE)])
    await clock_of(scheduler).advance_to(NOON + 2 * SECOND)
    await asyncio.gather(*stops)
    assert scheduler.state == "stopped"
    assert "a callback cannot wait for stop()" in refused[0]


async def test_a_callback_that_is_cancelled_has_failed_and_is_tried_again(stage: Stage) -> None:
    calls: list[datetime] = []

    async def cancels_itself() -> None:
        calls.append(stage.clock.now())
        if len(calls) == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

    stage.begin("12:00")
    await stage.scheduler.initialize([("a", "0 * * * *", cancels_itself, 90 * SECOND)])
    await stage.clock.advance_to(NOON + 5 * MINUTE)
    assert calls == [NOON, NOON + 90 * SECOND]
    assert "TaskRunFailed a" in stage.events


class Alike:
    """A callback that is equal to every other of its kind."""

    def __init__(self, name: str, called: list[str]) -> None:
        self.name = name
        self.called = called

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    __hash__ = None  # type: ignore[assignment]

    async def __call__(self) -> None:
        self.called.append(self.name)
        if self.name == "b":
            raise ValueError("as it should")


async def test_tasks_with_callbacks_that_are_equal_call_each_its_own_and_go_their_own_ways(
    stage: Stage,
) -> None:
    called: list[str] = []
    stage.begin("11:58")
    tasks = [(name, "0 12 * * *", Alike(name, called), 60 * MINUTE) for name in ("a", "b", "c")]
    await stage.scheduler.initialize(tasks)
    await stage.clock.advance_to(NOON + SECOND)
    assert called == ["a", "b", "c"]
    states = {name: task.state for name, task in stage.scheduler.tasks.items()}
    assert states == {"a": "AwaitingRun", "b": "AwaitingRetry", "c": "AwaitingRun"}
    assert stage.scheduler.tasks["b"].pending_retry_until == NOON + 60 * MINUTE
    assert stage.scheduler.tasks["a"].last_success_at == NOON


# --- one at a time, and beside each other ----------------------------------------------------------


async def test_the_same_inputs_make_the_same_decisions() -> None:
    stories = []
    crons = {"a": "* * * * *", "b": "0,7 * * * *", "c": "*  * * * *"}
    for _ in range(2):
        stage = Stage(SqliteStore, free=lambda: None)
        tasks = [Given(name, cron, 90, "fail, ok, 200s, fail") for name, cron in crons.items()]
        await stage.play(init("12:00:30", *tasks), until("12:20"), stop("12:20:30"), until("12:40"))
        await stage.play(init("13:10", *tasks), until("13:20"))
        jobs = [case.job for case in await stage.store.cases("embed:main")]
        stories.append((sorted(stage.calls), jobs))
        await stage.close()
    assert stories[0] == stories[1]


# --- the event loop ends ---------------------------------------------------------------------------


def test_when_the_event_loop_is_closed_without_a_stop_the_state_is_free_and_callbacks_are_orphans(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/kron.db"
    calls: list[str] = []

    async def hangs() -> None:
        calls.append("begun")
        await asyncio.Event().wait()

    async def begin_and_leave() -> None:
        clock = SimulatedClock(NOON)
        scheduler = Scheduler(url, clock=clock, timezone="UTC")
        await scheduler.initialize([("a", "0 * * * *", hangs, MINUTE)])
        await clock.advance_to(NOON + SECOND)

    async def again() -> str:
        clock = SimulatedClock(NOON + MINUTE)
        async with Scheduler(url, clock=clock, timezone="UTC") as scheduler:
            await scheduler.initialize([("a", "0 * * * *", nothing, MINUTE)])
            return scheduler.standings["a"]

    asyncio.run(begin_and_leave())
    assert calls == ["begun"]
    assert asyncio.run(again()) == "orphaned"


@pytest.mark.parametrize(
    ("schedule", "called", "kept"),
    [
        pytest.param("0 0,6,18 * * *", 360, range(260, 285), id="ninety days"),
        pytest.param("0 0 * * *", 120, range(100, 105), id="at least the last hundred"),
    ],
)
async def test_what_is_old_is_removed_and_what_is_newer_stays(
    stage: Stage, schedule: str, called: int, kept: range
) -> None:
    await stage.play(init("12:00", Given("a", schedule)), until("05-01 12:00"))
    runs = await stage.store.runs("embed:main", "a", limit=1_000)
    assert len(stage.calls) == called
    assert len(runs) in kept


async def test_killed_in_the_middle_it_can_be_used_again_and_writes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "kron.db"))
    scheduler = a_scheduler(state=store)
    clock = clock_of(scheduler)

    async def hangs() -> None:
        await asyncio.Event().wait()

    await scheduler.initialize([("a", "* * * * *", hangs, MINUTE)])
    await clock.advance_to(NOON + 2 * SECOND)
    kill(scheduler)
    await clock.advance_to(NOON + 3 * MINUTE)
    (case,) = await store.cases("embed:main")
    assert [run.status for run in case.runs] == ["STARTED"]
    assert scheduler.state == "uninitialized"
    await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])
    assert dict(scheduler.standings) == {"a": "orphaned"}
    await clock.advance_to(NOON + 4 * MINUTE)
    await scheduler.stop()
    await store.close()


async def test_killed_during_initialize_it_writes_nothing_and_whoever_waits_is_let_go() -> None:
    store = Slow()
    scheduler = a_scheduler(state=store)
    begin = asyncio.create_task(scheduler.initialize([("a", "* * * * *", nothing, MINUTE)]))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(scheduler.stop())
    await asyncio.sleep(0)
    kill(scheduler)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await begin
    await stopping
    assert scheduler.state == "uninitialized"
    assert await store.cases("embed:main") == []
    await scheduler.initialize([("a", "* * * * *", nothing, MINUTE)])
    assert dict(scheduler.standings) == {"a": "new"}
    await scheduler.stop()
    await store.close()
