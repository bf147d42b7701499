"""Clocks that are set, back and forward, by seconds, hours and years: no second start, no spin, no growth."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.record import JobRecord
from kron.core.plan.step import Change, LoadResult, Ownership, WriteResult
from kron.stores.sqlite.store import SqliteStore
from kron.testing.clock import SimulatedClock
from tests.faults.fork_server import seed_of
from tests.faults.rig import MILLISECOND, MINUTE, NOON, SECOND, SPACE, Rig, job_of, rig_of
from tests.tiers import mostly_slow

HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
JUMPS = [2 * SECOND, 40 * SECOND, HOUR, 7 * HOUR, timedelta(days=30), 10 * YEAR]
EVERY_SECOND = "* * * * * *"
JOBS = [
    job_of("allow-none", EVERY_SECOND, catchup=Catchup.NONE),
    job_of("skip-once", EVERY_SECOND, catchup=Catchup.ONCE, overlap=Overlap.SKIP),
    job_of("buffer-all", EVERY_SECOND, catchup=Catchup.ALL, overlap=Overlap.BUFFER_ONE, max_catchup=5),
    job_of("spread", "* * * * *", catchup=Catchup.SPREAD, max_catchup=5),
    job_of("jitter", "* * * * *", catchup=Catchup.ONCE, jitter_ms=20_000),
    job_of("late", EVERY_SECOND, deadline=2 * SECOND),
]


class CountingStore(SqliteStore):
    """A store that counts its calls."""

    asked = 0

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        self.asked += 1
        return await super().load(ownership, until=until, limit=limit, named=named, without=without)

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        self.asked += 1
        return await super().settle(ownership, changes, now=now)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_of(CountingStore(), SimulatedClock(NOON + MILLISECOND)) as made:
        yield made


def clock_of(rig: Rig) -> SimulatedClock:
    assert isinstance(rig.clock, SimulatedClock)
    return rig.clock


async def advance(rig: Rig, by: timedelta) -> None:
    await clock_of(rig).advance_to(rig.clock.now() + by)


async def jump(rig: Rig, by: timedelta) -> tuple[int, int]:
    """Set the clock and let five seconds pass; return the store's calls and the rows added."""
    store = rig.store
    assert isinstance(store, CountingStore)
    before, rows = store.asked, await rows_of(rig)
    clock_of(rig).jump_to(rig.clock.now() + by)
    await advance(rig, 5 * SECOND)
    return store.asked - before, await rows_of(rig) - rows


async def rows_of(rig: Rig) -> int:
    count = 0
    for job in JOBS:
        count += len(await rig.runs(job.identity)) + len(await rig.store.ranges(SPACE, job.identity))
    return count


async def check_one_record_each(rig: Rig) -> None:
    """No period has two records, none was called twice, and none was called before its time."""
    called = [call[:3] for call in rig.calls]
    assert len(called) == len(set(called))
    for job in JOBS:
        rows = [(run.nominal_time, run.nominal_time) for run in await rig.runs(job.identity)]
        shared = [(found.first, found.last) for found in await rig.store.ranges(SPACE, job.identity)]
        for (_, last), (first, _) in pairwise(sorted(rows + shared)):
            assert last < first


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("by", mostly_slow(JUMPS), ids=str)
@pytest.mark.parametrize("at", [500 * MILLISECOND, 0 * SECOND], ids=["between periods", "when they are due"])
async def test_a_jump_starts_nothing_twice_and_costs_little(
    rig: Rig, by: timedelta, back: bool, at: timedelta
) -> None:
    await rig.add(*JOBS)
    await rig.run()
    await clock_of(rig).advance_to(NOON + 3 * MINUTE + at)
    calls = len(rig.calls)
    asked, added = await jump(rig, -by if back else by)
    assert rig.engine.health.jumps == 1
    shown = ["clock_behind"] if back and by > MINUTE else ["clock_moved_forward"] if by > 24 * HOUR else []
    assert rig.journal.events() == ["clock_jumped", *shown]
    # Twice for each start and each end, at most a minute's worth of each job that was merely late.
    assert asked < 2_000
    assert added < 70 * len(JOBS)
    if back and by > 10 * SECOND:
        assert len(rig.calls) == calls
    if not back:
        assert len(rig.calls) > calls
    await check_one_record_each(rig)


async def test_a_failing_job_is_not_tried_without_its_delay_after_the_clock_was_set_back(rig: Rig) -> None:
    """An end cannot lie before its beginning: its retry would always be due."""

    async def fails(launch: object) -> None:
        raise ValueError("broken")

    await rig.add(job_of("job", "0 * * * *", retry_delay=10 * SECOND), callback=fails)
    await rig.run()
    await clock_of(rig).advance_to(NOON + HOUR + 25 * SECOND)
    assert len(rig.calls) == 3
    clock_of(rig).jump_to(NOON + 10 * MINUTE)
    await advance(rig, 5 * SECOND)
    so_far = len(rig.calls)
    await advance(rig, 54 * SECOND)
    assert len(rig.calls) == so_far <= 4
    await advance(rig, SECOND)
    # After a minute the clock is trusted again, and the delay has passed.
    assert len(rig.calls) == so_far + 1
    (run,) = await rig.runs()
    assert run.ended_at is None or run.started_at is None or run.ended_at >= run.started_at


async def test_a_jump_before_the_first_wake_is_noticed(rig: Rig) -> None:
    await rig.add(*JOBS)
    await rig.engine.acquire()
    clock_of(rig).jump_to(NOON + 7 * HOUR)
    rig.engine.run()
    await advance(rig, SECOND)
    assert rig.engine.health.jumps == 1
    assert await rows_of(rig) < 70 * len(JOBS)


async def test_many_jumps_one_after_the_other(rig: Rig) -> None:
    chance = Random(seed_of("jumps"))
    await rig.add(*JOBS)
    await rig.run()
    for _ in range(25):
        by = chance.choice(JUMPS[:-1]) * chance.choice([-1, 1])
        asked, added = await jump(rig, by + chance.randint(-900, 900) * MILLISECOND)
        assert asked < 2_000
        assert added < 70 * len(JOBS)
    assert rig.engine.health.state == "running"
    assert rig.engine.health.jumps == 25
    await check_one_record_each(rig)
