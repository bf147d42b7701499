"""The loop in virtual time, on the store in memory and on a file: times, crashes, jumps, failing stores."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.errors import OwnedError, StoreError
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, OnOrphan, Overlap
from kron.core.plan.pause import pause
from kron.core.plan.record import IncidentKind, Result, RunRecord, key_of
from kron.core.plan.registration import create
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, Limits, WriteResult
from kron.core.time.instant import EPOCH
from kron.launchers.callback import CallbackLauncher
from kron.runtime.engine import BATCH, FIRST_BATCH, Engine
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, SimulatedClock
from tests.engine_world import with_policy
from tests.tiers import mostly_slow
from tests.waiting import PATIENCE_S

SPACE = "runner:test"
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOON_S = int(NOON.timestamp())
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
Callback = Callable[[Launch], Awaitable[object]]
# Which call fails, and how.
LOAD, BEFORE, AFTER = ("load", Fault.BEFORE), ("settle", Fault.BEFORE), ("settle", Fault.AFTER)


def job_of(name: str = "job", text: str = "* * * * *", **policy: object) -> Job:
    job = Job(identity=name, schedule=Schedule(text))
    return with_policy(job, **{"deadline": None, "overlap": Overlap.ALLOW, **policy})


class Lines:
    """A journal that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Mapping[str, object]]] = []

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        self.lines.append((event, fields))

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        pass

    def events(self) -> list[str]:
        return [event for event, _ in self.lines if event not in tuple(IncidentKind)]


class Rig:
    """An engine and everything around it; `again` makes another one after a crash."""

    def __init__(self, path: str, clock: SimulatedClock) -> None:
        self.file = SqliteStore(path)
        self.store = FaultyStore(self.file, clock)
        self.clock = clock
        self.journal = Lines()
        self.launcher = CallbackLauncher(clock)
        self.calls: list[tuple[datetime, str, int, int]] = []
        self.engine = self.make_engine()

    def make_engine(self) -> Engine:
        return Engine(
            self.store,
            self.clock,
            {"callback": self.launcher},
            namespace=SPACE,
            owner="me",
            journal=self.journal,
        )

    async def add(self, *jobs: Job, callback: Callback | None = None) -> None:
        now = (self.clock.now() - EPOCH) // timedelta(milliseconds=1)
        created = [create(job, now=now) for job in jobs]
        await self.store.put(SPACE, created=created, changed=[], now=now)
        for job in jobs:
            self.launcher.callbacks[job.identity] = self._noting(callback)
        self.engine.call()

    def _noting(self, callback: Callback | None) -> Callback:
        async def call(launch: Launch) -> None:
            run = launch.run
            self.calls.append((self.clock.now(), run.identity, run.nominal_time, run.attempt))
            if callback is not None:
                await callback(launch)

        return call

    async def run(self) -> None:
        await self.engine.acquire()
        self.engine.run()

    async def crash(self) -> None:
        """End as a process does that is killed: no writes, no calls, no locks."""
        self.engine.kill()
        callbacks = self.launcher.callbacks
        with suppress(asyncio.CancelledError):
            await self.launcher.close(wait=False)
        self.file.drop_locks()
        self.launcher = CallbackLauncher(self.clock)
        self.launcher.callbacks = callbacks
        self.engine = self.make_engine()

    def fail(self, *faults: tuple[str, Fault]) -> None:
        """Have the next calls of these names fail, in this order."""
        for call, fault in faults:
            self.store.then(call, fault)

    async def spoil(self, name: str) -> None:
        """Leave a job with a definition that cannot be used."""
        (case,) = await self.store.cases(SPACE, [name])
        broken = case.job._replace(definition='{"schedule": "nonsense"}', revision=case.job.revision + 1)
        await self.store.put(SPACE, created=[], changed=[Change(broken, case.job.revision)], now=0)

    async def runs(self, name: str = "job") -> list[RunRecord]:
        return (await self.store.runs(SPACE, name, limit=10_000))[::-1]

    async def seen(self, name: str = "job") -> list[str]:
        return [f"{run.status} {run.reason}" for run in await self.runs(name)]

    def starts(self) -> list[tuple[int, int]]:
        """Return when and which period was called, in seconds after noon."""
        return [(int((at - NOON).total_seconds()), nominal - NOON_S) for at, _, nominal, _ in self.calls]


@asynccontextmanager
async def rig_on(path: str) -> AsyncIterator[Rig]:
    made = Rig(path, SimulatedClock(NOON + timedelta(milliseconds=1)))
    try:
        yield made
    finally:
        made.engine.kill()
        with suppress(asyncio.CancelledError):
            await made.launcher.close(wait=False)
        await made.store.close()


@pytest.fixture(params=["memory", "file"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_on(":memory:" if request.param == "memory" else str(tmp_path / "kron.db")) as made:
        yield made


async def fails(launch: Launch) -> None:
    raise ValueError("broken")


async def hangs(launch: Launch) -> None:
    await asyncio.Event().wait()


async def first_call_waits(rig: Rig, job: Job, *, after: timedelta = MINUTE) -> asyncio.Event:
    """Run until the job's first period was called, and return the gate at which its calls wait."""
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    await rig.add(job, callback=waits)
    await rig.run()
    await rig.clock.advance_to(NOON + after)
    return gate


# --- starts and ends -------------------------------------------------------------------------------


async def test_a_callback_is_called_at_its_time_and_its_end_is_on_record(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    assert [at for at, *_ in rig.calls] == [NOON + number * MINUTE for number in (1, 2, 3)]
    runs = await rig.runs()
    assert [(run.status, run.result, run.error) for run in runs] == [("SUCCESS", Result.SUCCESS, None)] * 3
    assert [run.ended_at for run in runs] == [1000 * (NOON_S + 60 * number) for number in (1, 2, 3)]


async def test_a_loop_is_idle_for_as_long_as_nothing_is_due(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + SECOND)
    assert [rig.engine.is_idle(for_ms) for for_ms in (0, 59_000, 59_001)] == [True, True, False]


async def test_a_callback_that_raises_has_failed(rig: Rig) -> None:
    await rig.add(job_of(), callback=fails)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    (run,) = await rig.runs()
    assert (run.status, run.result, run.error) == ("FAILED", Result.FAILED, "ValueError: broken")


async def test_a_job_without_a_function_is_recorded_as_not_launched(rig: Rig) -> None:
    await rig.add(job_of())
    rig.launcher.callbacks.clear()
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    (run,) = await rig.runs()
    assert (run.status, run.result) == ("FAILED", Result.LAUNCH_FAILED)


async def test_a_callback_that_takes_virtual_time_ends_when_it_ends(rig: Rig) -> None:
    async def takes_ten_seconds(launch: Launch) -> None:
        await rig.clock.sleep_until(rig.clock.now() + 10 * SECOND)

    await rig.add(job_of(), callback=takes_ten_seconds)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + 9 * SECOND)
    assert await rig.seen() == ["STARTED due"]
    await rig.clock.advance_to(NOON + MINUTE + 10 * SECOND)
    (run,) = await rig.runs()
    assert (run.status, run.ended_at) == ("SUCCESS", 1000 * (NOON_S + 70))


async def test_callbacks_that_hang_do_not_hold_up_time(rig: Rig) -> None:
    await rig.add(job_of("hangs"), callback=hangs)
    await rig.add(job_of("job"))
    await rig.run()
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    assert await rig.seen("hangs") == ["STARTED due"] * 5
    assert await rig.seen("job") == ["SUCCESS due"] * 5


async def test_many_jobs_due_at_once_start_at_once_and_each_once(rig: Rig) -> None:
    """More than fit in the first chunk of a wake."""
    names = [f"job-{number}" for number in range(300)]
    await rig.add(*(job_of(name, deadline=timedelta(0)) for name in names))
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    for number in (1, 2):
        called = [name for at, name, *_ in rig.calls if at == NOON + number * MINUTE]
        assert sorted(called) == sorted(names)
    assert len(rig.calls) == 600
    for name in names[::50]:
        assert await rig.seen(name) == ["SUCCESS due"] * 2


async def test_the_end_of_a_run_that_was_started_here_is_written_without_a_read(rig: Rig) -> None:
    await rig.add(*map(job_of, "abc"))
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    loads, seen = rig.store.calls["load"], await rig.seen("a")
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    # One read of due jobs for each wake: that of the starts, and that of their ends.
    assert (await rig.seen("a"))[len(seen) :] == ["SUCCESS due"]
    assert rig.store.calls["load"] - loads == 2


async def test_a_run_that_takes_too_long_is_cancelled_and_lost(rig: Rig) -> None:
    cancelled: list[datetime] = []

    async def stays(launch: Launch) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(rig.clock.now())

    await rig.add(job_of(text="0 * * * *", run_timeout=timedelta(seconds=30)), callback=stays)
    await rig.run()
    await rig.clock.advance_to(NOON + timedelta(hours=1, seconds=40))
    assert cancelled == [NOON + timedelta(hours=1, seconds=30)]
    (run,) = await rig.runs()
    assert (run.status, run.result) == ("FAILED", Result.LOST)


async def test_replace_cancels_the_callback_and_starts_the_next(rig: Rig) -> None:
    await rig.add(job_of(overlap=Overlap.REPLACE), callback=hangs)
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    assert await rig.seen() == ["CANCELLED replaced", "STARTED due"]
    assert rig.starts() == [(60, 60), (120, 120)]


async def test_a_change_from_outside_is_seen_when_called(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    (case,) = await rig.store.cases(SPACE, ["job"])
    await rig.store.put(SPACE, created=[], changed=[pause(case.job, [], because="by hand", now=1)], now=1)
    rig.engine.call()
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    assert rig.starts() == [(60, 60)]


# --- retries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "expected_ms"),
    [
        pytest.param(timedelta(seconds=7), [0, 7_000, 14_000], id="seconds"),
        pytest.param(timedelta(microseconds=1), [0, 1, 2], id="below a millisecond"),
        pytest.param(timedelta(0), [0, 0, 0], id="at once"),
    ],
)
async def test_retries_come_at_the_exact_virtual_time(
    rig: Rig, delay: timedelta, expected_ms: list[int]
) -> None:
    async def fails_twice(launch: Launch) -> None:
        if launch.run.attempt < 3:
            raise ValueError("broken")

    await rig.add(job_of(text="0 * * * *", retry_delay=delay), callback=fails_twice)
    await rig.run()
    hour = NOON + timedelta(hours=1)
    await rig.clock.advance_to(hour + MINUTE)
    assert [(at - hour) // timedelta(milliseconds=1) for at, *_ in rig.calls] == expected_ms
    (run,) = await rig.runs()
    assert (run.status, run.attempt) == ("SUCCESS", 3)
    assert [a.error for a in await rig.store.attempts(SPACE, run.key)] == ["ValueError: broken"] * 2


# --- crashes ---------------------------------------------------------------------------------------


async def test_killed_and_started_again_nothing_is_lost_and_nothing_doubled(rig: Rig) -> None:
    await rig.add(job_of(catchup=Catchup.ALL))
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    await rig.crash()
    await rig.clock.advance_to(NOON + 10 * MINUTE + 30 * SECOND)
    await rig.run()
    await rig.clock.advance_to(NOON + 12 * MINUTE)
    assert sorted(nominal for _, nominal in rig.starts()) == [60 * number for number in range(1, 13)]
    assert await rig.seen() == ["SUCCESS due"] * 2 + ["SUCCESS caught_up"] * 7 + ["SUCCESS due"] * 3


@pytest.mark.parametrize(
    ("on_orphan", "expected"),
    [
        pytest.param(OnOrphan.RESTART, ("SUCCESS", 2, [1, 2]), id="restart"),
        pytest.param(OnOrphan.FAIL, ("FAILED", 1, [1]), id="fail"),
    ],
)
async def test_an_execution_that_died_with_its_owner(
    rig: Rig, on_orphan: OnOrphan, expected: tuple[str, int, list[int]]
) -> None:
    async def first_hangs(launch: Launch) -> None:
        if launch.run.attempt == 1:
            await asyncio.Event().wait()

    await rig.add(job_of(on_orphan=on_orphan), callback=first_hangs)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    await rig.crash()
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + 5 * SECOND)
    (run,) = await rig.runs()
    assert (run.status, run.attempt, [attempt for *_, attempt in rig.calls]) == expected


async def test_a_take_over_that_fails_half_way_leaves_no_orphan_behind_for_the_next_try(rig: Rig) -> None:
    """It would be reported twice: an accepted start whose acknowledgement is not written is sent again."""

    async def first_hangs(launch: Launch) -> None:
        if launch.run.attempt == 1:
            await asyncio.Event().wait()

    await rig.add(job_of(on_orphan=OnOrphan.RESTART), callback=first_hangs)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    await rig.crash()
    rig.fail(("note_incidents", Fault.BEFORE))
    with pytest.raises(StoreError):
        await rig.engine.acquire()
    assert rig.engine.is_written
    await rig.engine.acquire()
    assert not rig.engine.is_written
    rig.engine.run()
    await rig.clock.advance_to(NOON + MINUTE + 5 * SECOND)
    assert [attempt for *_, attempt in rig.calls] == [1, 2]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_of(), id="a plain job"),
        pytest.param(
            Job.from_dict({**job_of().to_dict(), "constraints": {"only": {"hours": [12]}}}), id="a constraint"
        ),
    ],
)
async def test_a_period_that_is_on_record_is_not_started_again_although_the_job_forgot_it(
    rig: Rig, job: Job
) -> None:
    """Starts of plain jobs are written together, all others row by row."""
    await rig.add(job)
    (before,) = await rig.store.cases(SPACE, ["job"])
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    (after,) = await rig.store.cases(SPACE, ["job"])
    forgetful = before.job._replace(revision=after.job.revision + 1)
    await rig.store.put(SPACE, created=[], changed=[Change(forgetful, after.job.revision)], now=0)
    rig.engine.call()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    assert rig.starts() == [(60, 60), (120, 120)]
    assert await rig.seen() == ["SUCCESS due"] * 2


async def test_a_killed_engine_writes_nothing_more(rig: Rig) -> None:
    gate = await first_call_waits(rig, job_of())
    rig.engine.kill()
    gate.set()
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    assert await rig.seen() == ["STARTED due"]
    assert rig.engine.health.state == "killed"


# --- stopping --------------------------------------------------------------------------------------


async def test_stop_waits_for_callbacks_notes_their_ends_and_starts_nothing(rig: Rig) -> None:
    gate = await first_call_waits(rig, job_of())
    stopping = asyncio.create_task(rig.engine.stop())
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    assert not stopping.done()
    gate.set()
    await stopping
    assert await rig.seen() == ["SUCCESS due"]
    await rig.clock.advance_to(NOON + 9 * MINUTE)
    assert rig.starts() == [(60, 60)]
    assert rig.engine.health.state == "stopped"


async def test_what_waited_for_an_end_that_came_while_stopping_starts_with_the_next_owner(rig: Rig) -> None:
    gate = await first_call_waits(rig, job_of(text="0,1 13 * * *", overlap=Overlap.QUEUE), after=61 * MINUTE)
    assert await rig.seen() == ["STARTED due", "PENDING queued"]
    stopping = asyncio.create_task(rig.engine.stop())
    await rig.clock.advance_to(NOON + 62 * MINUTE)
    gate.set()
    await stopping
    assert await rig.seen() == ["SUCCESS due", "PENDING queued"]
    rig.engine = rig.make_engine()
    await rig.run()
    await rig.clock.advance_to(NOON + 63 * MINUTE)
    assert rig.starts() == [(3600, 3600), (3720, 3660)]


async def test_stop_in_the_middle_of_a_burst_comes_to_an_end_and_loses_nothing(rig: Rig) -> None:
    """Recorded starts are launched; the others are left to the next owner."""
    stops: list[asyncio.Task[None]] = []

    async def stop_at_once(launch: Launch) -> None:
        if not stops:
            stops.append(asyncio.create_task(rig.engine.stop()))

    names = [f"job-{number:04}" for number in range(2_500)]
    await rig.add(*map(job_of, names), callback=stop_at_once)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    async with asyncio.timeout(PATIENCE_S):
        await stops[0]
    assert rig.engine.health.state == "stopped"
    begun = [name for _, name, *_ in rig.calls]
    assert 0 < len(begun) < len(names)
    rig.engine = rig.make_engine()
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + SECOND)
    assert sorted(name for _, name, *_ in rig.calls) == names
    for name in (begun[0], begun[-1], names[-1]):
        assert await rig.seen(name) == ["SUCCESS due"]


@pytest.mark.slow
async def test_jobs_of_a_burst_that_have_more_to_do_at_once_do_it_in_the_same_wake(rig: Rig) -> None:
    """The next chunk is read while one is written: what that leaves to do is found all the same."""
    names = [f"job-{number:04}" for number in range(1_100)]
    await rig.add(*(job_of(name, catchup=Catchup.ALL, overlap=Overlap.ALLOW) for name in names))
    await rig.run()
    await rig.engine.stop()
    await rig.clock.advance_to(NOON + 3 * MINUTE + 30 * SECOND)
    rig.engine = rig.make_engine()
    rig.engine.limits = Limits(catchup_per_tick=None, replayed_per_wake=1)
    await rig.run()
    await rig.clock.advance_to(NOON + 3 * MINUTE + 31 * SECOND)
    begun = sorted((name, nominal - NOON_S) for _, name, nominal, _ in rig.calls)
    assert begun == [(name, 60 * minute) for name in names for minute in (1, 2, 3)]


async def test_after_a_burst_it_wakes_for_whoever_is_due_first_not_for_those_read_last(rig: Rig) -> None:
    seldom = [f"seldom-{number:02}" for number in range(FIRST_BATCH + 20)]
    often = [f"often-{number:04}" for number in range(BATCH)]
    hourly = [job_of(name, text="1 * * * *") for name in seldom]
    minutely = [job_of(name, overlap=Overlap.ALLOW) for name in often]
    # No end wakes it either.
    await rig.add(*hourly[:FIRST_BATCH], *minutely, *hourly[FIRST_BATCH:], callback=hangs)
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE + SECOND)
    assert sorted(name for _, name, *_ in rig.calls) == sorted([*often, *often, *seldom])


async def test_what_came_while_it_was_stopped_is_found_by_the_next(rig: Rig) -> None:
    await rig.add(job_of(catchup=Catchup.NONE))
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    await rig.engine.stop()
    await rig.clock.advance_to(NOON + 5 * MINUTE + 30 * SECOND)
    rig.engine = rig.make_engine()
    await rig.run()
    await rig.clock.advance_to(NOON + 6 * MINUTE)
    assert rig.starts() == [(60, 60), (330, 300), (360, 360)]
    (dropped,) = await rig.store.ranges(SPACE, "job")
    assert (dropped.first, dropped.last, dropped.periods) == (NOON_S + 120, NOON_S + 240, 3)


async def test_an_owner_keeps_others_out_until_it_stops(rig: Rig) -> None:
    await rig.run()
    with pytest.raises(OwnedError):
        await rig.store.acquire(SPACE, "other")
    await rig.engine.stop()
    assert (await rig.store.acquire(SPACE, "other")).token == 2


# --- clocks that are set ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        pytest.param(50 * SECOND, ["SUCCESS due"], id="a little: due, and merely late"),
        pytest.param(
            timedelta(minutes=5, seconds=30), ["SUCCESS due"], id="much: missed, but for the last minute"
        ),
    ],
)
async def test_the_clock_is_set_forward(rig: Rig, by: timedelta, expected: list[str]) -> None:
    await rig.add(job_of(catchup=Catchup.NONE))
    await rig.run()
    await rig.clock.advance_to(NOON + 30 * SECOND)
    rig.clock.jump_to(NOON + 30 * SECOND + by)
    assert rig.calls == []
    await rig.clock.advance_to(NOON + 31 * SECOND + by)
    assert (await rig.seen())[-1:] == expected
    assert rig.engine.health.jumps == 1
    assert rig.journal.events() == ["clock_jumped"]
    missed = sum(shared.periods for shared in await rig.store.ranges(SPACE, "job"))
    assert missed == (0 if by < MINUTE else 4)


async def test_ten_years_forward_is_one_counted_record(rig: Rig) -> None:
    await rig.add(job_of(text="* * * * * *", catchup=Catchup.ONCE))
    await rig.run()
    await rig.clock.advance_to(NOON + 3 * SECOND)
    rig.clock.jump_to(NOON.replace(year=2036))
    await rig.clock.advance_to(NOON.replace(year=2036) + SECOND)
    (dropped,) = await rig.store.ranges(SPACE, "job")
    assert dropped.periods > 315_000_000
    assert len(await rig.runs()) < 80


@pytest.mark.parametrize("by", [30 * SECOND, timedelta(hours=2)], ids=["a little", "much"])
async def test_the_clock_is_set_back_and_nothing_starts_twice(rig: Rig, by: timedelta) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    rig.clock.jump_to(NOON + 3 * MINUTE - by)
    await rig.clock.advance_to(NOON + 3 * MINUTE - by + 10 * SECOND)
    assert rig.engine.health.jumps == 1
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    starts = [nominal for _, nominal in rig.starts()]
    # A clock that is two hours behind runs steadily, so the minutes that it shows are run, each once.
    shown = [] if by < MINUTE else list(range(180 - 7200, 60, 60))
    assert starts == [60, 120, 180, *shown, 240, 300]
    assert await rig.seen() == ["SUCCESS due"] * len(starts)


async def test_a_clock_that_is_set_back_shortens_no_retry_delay(rig: Rig) -> None:
    async def sets_the_clock_back(launch: Launch) -> None:
        if launch.run.attempt == 1:
            rig.clock.jump_to(NOON + 59 * MINUTE)
            raise ValueError("broken")

    job = job_of(text="0 * * * *", retry_delay=10 * SECOND)
    await rig.add(job, callback=sets_the_clock_back)
    await rig.run()
    await rig.clock.advance_to(NOON + 60 * MINUTE)
    await rig.clock.advance_to(NOON + 62 * MINUTE)
    assert [at - NOON for at, *_ in rig.calls] == [60 * MINUTE, 60 * MINUTE + 10 * SECOND]


async def test_time_does_not_go_back_behind_what_is_on_record(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    await rig.engine.stop()
    rig.clock.jump_to(NOON + MINUTE - SECOND)
    rig.engine = rig.make_engine()
    await rig.run()
    assert rig.engine.now() == 1000 * (NOON_S + 180)
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    assert [nominal for _, nominal in rig.starts()] == [60, 120, 180, 240, 300]


async def test_whoever_asks_the_engine_for_the_time_does_not_hide_a_jump(rig: Rig) -> None:
    await rig.add(job_of(catchup=Catchup.NONE))
    await rig.run()
    await rig.clock.advance_to(NOON + 30 * SECOND)
    rig.clock.jump_to(NOON + 10 * MINUTE + 30 * SECOND)
    rig.engine.now()
    await rig.clock.advance_to(NOON + 10 * MINUTE + 31 * SECOND)
    assert rig.engine.health.jumps == 1
    assert [nominal for _, nominal in rig.starts()] == [600]


# --- stores that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([LOAD], id="reading"),
        pytest.param([BEFORE], id="before the commit"),
        pytest.param([AFTER], id="after the commit"),
        pytest.param([BEFORE, AFTER], id="before, then after"),
        pytest.param([AFTER, LOAD, LOAD], id="after, then reading"),
        pytest.param([AFTER, AFTER], id="after, and again"),
        pytest.param([BEFORE] * 6, id="for a while"),
    ],
)
async def test_a_failing_store_loses_nothing_and_doubles_nothing(
    rig: Rig, faults: list[tuple[str, Fault]]
) -> None:
    await rig.add(
        job_of("one"), job_of("two", retry_delay=timedelta(0)), job_of("three", overlap=Overlap.SKIP)
    )
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + 30 * SECOND)
    rig.fail(*faults)
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    assert rig.engine.health.state == "degraded"
    assert rig.engine.health.error is not None
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    assert rig.store.waiting == 0
    assert (rig.engine.health.state, rig.engine.health.failures) == ("running", len(faults))
    assert rig.journal.events() == ["store_failed"] * len(faults)
    for name in ("one", "two", "three"):
        called = [(nominal - NOON_S, attempt) for _, who, nominal, attempt in rig.calls if who == name]
        assert called == [(60, 1), (120, 1), (180, 1)]
        assert await rig.seen(name) == ["SUCCESS due"] * 3


@pytest.mark.parametrize("fault", [BEFORE, AFTER, LOAD], ids=str)
@pytest.mark.parametrize("chunks", mostly_slow([1, 2, 3]))
async def test_a_store_that_fails_in_the_middle_of_a_burst_loses_nothing_and_doubles_nothing(
    rig: Rig, fault: tuple[str, Fault], chunks: int
) -> None:
    """While one chunk is being written, the one before it starts; neither may be forgotten."""
    names = [f"job-{number:04}" for number in range(2_500)]
    await rig.add(*(job_of(name, text="1 * * * *") for name in names))
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE - SECOND)
    rig.fail(*[(fault[0], Fault.YIELD)] * chunks, fault)
    await rig.clock.advance_to(NOON + MINUTE + SECOND)
    assert rig.store.waiting == 0
    assert sorted(name for _, name, *_ in rig.calls) == names
    assert (rig.engine.health.state, rig.engine.health.failures) == ("running", 1)


@pytest.mark.parametrize("fault", [BEFORE, AFTER, LOAD], ids=str)
async def test_an_end_is_not_lost_when_the_store_fails(rig: Rig, fault: tuple[str, Fault]) -> None:
    gate = await first_call_waits(rig, job_of(text="0 * * * *"), after=timedelta(hours=1))
    rig.fail(fault)
    gate.set()
    await rig.clock.advance_to(NOON + timedelta(hours=1, minutes=1))
    assert rig.store.waiting == 0
    assert await rig.seen() == ["SUCCESS due"]
    assert len(rig.calls) == 1


@pytest.mark.parametrize("fault", [BEFORE, AFTER], ids=str)
async def test_a_failed_write_of_an_end_does_not_start_the_run_beside_it_again(
    rig: Rig, fault: tuple[str, Fault]
) -> None:
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await (gate.wait() if len(rig.calls) == 1 else asyncio.Event().wait())

    await rig.add(job_of(overlap=Overlap.ALLOW), callback=waits)
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE + SECOND)
    rig.fail(fault)
    gate.set()
    await rig.clock.advance_to(NOON + 2 * MINUTE + 30 * SECOND)
    assert rig.store.waiting == 0
    assert [nominal for _, nominal in rig.starts()] == [60, 120]
    assert await rig.seen() == ["SUCCESS due", "STARTED due"]


async def test_an_execution_is_asked_to_end_although_the_answer_was_lost(rig: Rig) -> None:
    await rig.add(job_of(overlap=Overlap.REPLACE), callback=hangs)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE + 30 * SECOND)
    rig.fail(AFTER)
    await rig.clock.advance_to(NOON + 2 * MINUTE + 5 * SECOND)
    assert await rig.seen() == ["CANCELLED replaced", "STARTED due"]


async def test_a_store_that_stays_away_is_asked_again_and_again_but_not_without_end(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + 30 * SECOND)
    rig.fail(*[BEFORE] * 1_000)
    await rig.clock.advance_to(NOON + 10 * MINUTE)
    failures = rig.engine.health.failures
    # Every five seconds after the first ones, for nine minutes.
    assert 100 < failures < 130
    rig.store.heal()
    await rig.clock.advance_to(NOON + 11 * MINUTE)
    assert [nominal for _, nominal in rig.starts()] == [60 * number for number in range(1, 12)]


async def test_a_store_that_came_back_is_asked_again_soon_when_it_fails_the_next_time(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    rig.fail(*[BEFORE] * 6)
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    assert rig.store.waiting == 0
    rig.fail(BEFORE)
    await rig.clock.advance_to(NOON + 3 * MINUTE + SECOND)
    assert rig.calls[-1][0] - (NOON + 3 * MINUTE) == timedelta(milliseconds=100)


# --- ownership -------------------------------------------------------------------------------------


async def test_whoever_lost_ownership_starts_nothing_more(rig: Rig) -> None:
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    rig.file.drop_locks()
    await rig.store.acquire(SPACE, "thief")
    await rig.clock.advance_to(NOON + 5 * MINUTE)
    assert rig.starts() == [(60, 60)]
    assert rig.engine.health.state == "lost"
    assert rig.journal.events() == ["ownership_lost"]
    assert await rig.seen() == ["SUCCESS due"]
    await rig.engine.stop()


async def test_a_call_that_ends_after_ownership_was_lost_does_not_hold_up_time(rig: Rig) -> None:
    gate = await first_call_waits(rig, job_of())
    rig.file.drop_locks()
    await rig.store.acquire(SPACE, "thief")
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    gate.set()
    await rig.clock.advance_to(NOON + 3 * MINUTE)
    assert await rig.seen() == ["STARTED due"]


# --- the same every time ---------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_same_story_has_the_same_records_on_every_store(tmp_path: Path) -> None:
    stories = []
    for path in (":memory:", str(tmp_path / "one.db"), str(tmp_path / "two.db")):
        async with rig_on(path) as made:
            stories.append(await _story(made))
    assert stories[0] == stories[1] == stories[2]


async def _story(rig: Rig) -> tuple[Iterable[object], ...]:
    jobs = [job_of(f"job-{overlap}", overlap=overlap, jitter_ms=3_000) for overlap in Overlap]

    async def takes_a_while(launch: Launch) -> None:
        await rig.clock.sleep_until(rig.clock.now() + timedelta(seconds=launch.run.nominal_time % 97))

    await rig.add(*jobs, callback=takes_a_while)
    await rig.run()
    await rig.clock.advance_to(NOON + 10 * MINUTE)
    await rig.crash()
    await rig.clock.advance_to(NOON + 17 * MINUTE)
    await rig.run()
    rig.fail(BEFORE, AFTER, LOAD)
    await rig.clock.advance_to(NOON + 20 * MINUTE)
    rig.clock.jump_to(NOON + 40 * MINUTE)
    await rig.clock.advance_to(NOON + 50 * MINUTE)
    # What is replaced at once is cancelled before or after its first step, as the store is quick or slow.
    calls = [call for call in rig.calls if call[1] != "job-replace"]
    return calls, [await rig.runs(job.identity) for job in jobs]


async def test_the_key_and_the_attempt_reach_the_callback(rig: Rig) -> None:
    launches: list[Launch] = []

    async def keeps(launch: Launch) -> None:
        launches.append(launch)

    await rig.add(job_of(), callback=keeps)
    await rig.run()
    await rig.clock.advance_to(NOON + MINUTE)
    job, run, *_ = launches[0]
    assert (job.identity, run.key, run.attempt, run.token) == ("job", key_of("job", NOON_S + 60), 1, 1)


# --- what must not stop the loop -------------------------------------------------------------------


async def test_a_job_whose_record_cannot_be_used_is_set_aside_and_the_others_run(rig: Rig) -> None:
    await rig.add(job_of("good"), job_of("bad"))
    await rig.spoil("bad")
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    assert [name for _, name, *_ in rig.calls] == ["good", "good"]
    (case,) = await rig.store.cases(SPACE, ["bad"])
    assert case.job.paused
    assert "nonsense" in (case.job.paused_because or "")
    assert rig.journal.events() == ["quarantined"]
    assert rig.engine.health.state == "running"


async def test_after_a_job_was_set_aside_the_others_are_still_woken_for(rig: Rig) -> None:
    await rig.add(job_of("good", "0 * * * *"), job_of("bad"))
    await rig.spoil("bad")
    await rig.run()
    await rig.clock.advance_to(NOON + timedelta(hours=2))
    assert [(at, name) for at, name, *_ in rig.calls] == [
        (NOON + timedelta(hours=number), "good") for number in (1, 2)
    ]


async def test_a_retry_of_a_job_that_was_set_aside_does_not_come_up_again(rig: Rig) -> None:
    await rig.add(job_of("bad", "0 * * * *", retry_delay=MINUTE), callback=fails)
    await rig.run()
    await rig.clock.advance_to(NOON + timedelta(hours=1))
    await rig.spoil("bad")
    await rig.clock.advance_to(NOON + timedelta(hours=3))
    assert len(rig.calls) == 1
    assert rig.journal.events() == ["quarantined"]
    (run,) = await rig.runs("bad")
    assert (run.is_open, run.due_at) == (1, None)


async def test_a_launcher_that_raises_is_a_launch_that_failed(rig: Rig) -> None:
    def refuse(launch: Launch, sink: object) -> None:
        raise OSError("no more processes")

    rig.launcher.start = refuse  # type: ignore[method-assign]
    await rig.add(job_of())
    await rig.run()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    runs = await rig.runs()
    assert [(run.status, run.result) for run in runs] == [("FAILED", Result.LAUNCH_FAILED)] * 2
    assert runs[0].error == "OSError: no more processes"
    assert rig.engine.health.state == "running"


async def test_an_engine_that_fails_by_its_own_mistake_says_so(rig: Rig) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise AssertionError("our own mistake")

    await rig.add(job_of())
    await rig.run()
    rig.store.load = broken  # type: ignore[assignment, method-assign]
    await rig.clock.advance_to(NOON + MINUTE)
    assert (rig.engine.health.state, rig.engine.health.error) == ("failed", "AssertionError: our own mistake")
    assert rig.journal.events() == ["engine_failed"]
    with pytest.raises(AssertionError):
        await rig.engine.stop()
