"""Virtual time: sleepers wake in order and at their own time, work holds it still, jumps wake nobody."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.testing import SimulatedClock
from tests.strategies import law
from tests.waiting import PATIENCE_S

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def clock() -> SimulatedClock:
    return SimulatedClock(NOON)


def test_it_starts_at_an_aware_datetime() -> None:
    with pytest.raises(ValueError, match="aware"):
        SimulatedClock(datetime(2026, 1, 1))


async def test_time_stands_still_until_told_otherwise(clock: SimulatedClock) -> None:
    assert (clock.now(), clock.monotonic()) == (NOON, 0.0)
    await asyncio.sleep(0)
    assert clock.now() == NOON
    await clock.advance_to(NOON + 90 * SECOND)
    assert (clock.now(), clock.monotonic()) == (NOON + 90 * SECOND, 90.0)


async def test_time_never_goes_back_by_advancing(clock: SimulatedClock) -> None:
    await clock.advance_to(NOON - SECOND)
    assert (clock.now(), clock.monotonic()) == (NOON, 0.0)


async def test_who_sleeps_until_the_past_does_not_sleep(clock: SimulatedClock) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await clock.sleep_until(NOON)
        await clock.sleep_until(NOON - SECOND)


async def test_sleepers_wake_in_order_each_at_its_own_time(clock: SimulatedClock) -> None:
    woken: list[tuple[int, datetime]] = []

    async def sleeper(number: int, until: datetime) -> None:
        await clock.sleep_until(until)
        woken.append((number, clock.now()))

    times = [3, 1, 2, 1]
    tasks = [asyncio.create_task(sleeper(n, NOON + s * SECOND)) for n, s in enumerate(times)]
    await clock.advance_to(NOON + 2 * SECOND)
    assert woken == [(1, NOON + SECOND), (3, NOON + SECOND), (2, NOON + 2 * SECOND)]
    await clock.advance_to(NOON + 3 * SECOND)
    await asyncio.gather(*tasks)
    assert woken[-1] == (0, NOON + 3 * SECOND)


async def test_a_sleeper_that_sleeps_again_wakes_on_the_way(clock: SimulatedClock) -> None:
    woken: list[datetime] = []

    async def sleeper() -> None:
        while True:
            await clock.sleep_until(clock.now() + SECOND)
            woken.append(clock.now())

    task = asyncio.create_task(sleeper())
    await clock.advance_to(NOON + 5 * SECOND)
    assert woken == [NOON + number * SECOND for number in range(1, 6)]
    task.cancel()


async def test_a_cancelled_sleeper_harms_nobody(clock: SimulatedClock) -> None:
    task = asyncio.create_task(clock.sleep_until(NOON + SECOND))
    await asyncio.sleep(0)
    task.cancel()
    await clock.advance_to(NOON + 2 * SECOND)
    assert (task.cancelled(), clock.now()) == (True, NOON + 2 * SECOND)


async def test_time_waits_for_work_that_left_the_event_loop(clock: SimulatedClock) -> None:
    """As a store's thread does: it is real time that passes, and virtual time that waits."""
    seen: list[datetime] = []

    async def worker() -> None:
        await clock.sleep_until(NOON + SECOND)
        with clock.working():
            await asyncio.to_thread(lambda: None)
            await asyncio.sleep(0.01)
            seen.append(clock.now())

    task = asyncio.create_task(worker())
    await clock.advance_to(NOON + 60 * SECOND)
    assert seen == [NOON + SECOND]
    await task


async def test_works_may_overlap(clock: SimulatedClock) -> None:
    first, second = clock.working(), clock.working()
    first.__enter__()
    second.__enter__()
    advance = asyncio.create_task(clock.advance_to(NOON + SECOND))
    for _ in range(50):
        await asyncio.sleep(0)
    first.__exit__(None, None, None)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (advance.done(), clock.now()) == (False, NOON)
    second.__exit__(None, None, None)
    await advance
    assert clock.now() == NOON + SECOND


async def test_time_does_not_wait_for_who_waits_for_something_else(clock: SimulatedClock) -> None:
    never = asyncio.create_task(asyncio.Event().wait())
    async with asyncio.timeout(PATIENCE_S):
        await clock.advance_to(NOON + SECOND)
    assert not never.done()
    never.cancel()


@pytest.mark.parametrize("by", [timedelta(hours=1), timedelta(hours=-1)], ids=["forward", "back"])
async def test_a_jump_sets_the_wall_clock_alone_and_wakes_nobody(
    clock: SimulatedClock, by: timedelta
) -> None:
    task = asyncio.create_task(clock.sleep_until(NOON + 60 * SECOND))
    await clock.advance_to(NOON + SECOND)
    clock.jump_to(NOON + by)
    for _ in range(50):
        await asyncio.sleep(0)
    assert (clock.now(), clock.monotonic(), task.done()) == (NOON + by, 1.0, False)
    await clock.advance_to(NOON + by + timedelta(milliseconds=1))
    assert (task.done(), clock.monotonic()) == (True, 1.001)


async def test_after_a_jump_everybody_looks_once_and_sleeps_on(clock: SimulatedClock) -> None:
    looks: list[datetime] = []

    async def until_noon_and_a_minute() -> None:
        while clock.now() < NOON + 60 * SECOND:
            await clock.sleep_until(NOON + 60 * SECOND)
            looks.append(clock.now())

    task = asyncio.create_task(until_noon_and_a_minute())
    await clock.advance_to(NOON + SECOND)
    clock.jump_to(NOON - timedelta(hours=1))
    await clock.advance_to(NOON)
    await clock.advance_to(NOON + 60 * SECOND)
    await task
    assert looks == [NOON - timedelta(hours=1), NOON + 60 * SECOND]


@law(50)
@given(times=st.lists(st.integers(1, 50), max_size=12), steps=st.lists(st.integers(0, 30), max_size=6))
def test_steps_do_not_change_what_wakes_when(times: list[int], steps: list[int]) -> None:
    def story(naps: list[int]) -> list[tuple[int, datetime]]:
        return asyncio.run(_wakes(times, naps))

    assert story([*steps, 200]) == story([sum(steps) + 200])


async def _wakes(times: list[int], naps: list[int]) -> list[tuple[int, datetime]]:
    clock = SimulatedClock(NOON)
    woken: list[tuple[int, datetime]] = []

    async def sleeper(number: int, seconds: int) -> None:
        await clock.sleep_until(NOON + seconds * SECOND)
        woken.append((number, clock.now()))

    tasks = [asyncio.create_task(sleeper(*pair)) for pair in enumerate(times)]
    for nap in naps:
        await clock.advance_to(clock.now() + nap * SECOND)
    await asyncio.gather(*tasks)
    return woken


def test_one_clock_serves_several_event_loops_one_after_the_other() -> None:
    clock = SimulatedClock(datetime(2026, 1, 1, tzinfo=UTC))

    async def work_for_a_while() -> None:
        async def works() -> None:
            with clock.working():
                await asyncio.sleep(0.01)

        working = asyncio.create_task(works())
        await asyncio.sleep(0)
        await clock.advance_to(clock.now() + timedelta(minutes=1))
        assert working.done()

    asyncio.run(work_for_a_while())
    asyncio.run(work_for_a_while())
    assert clock.monotonic() == 120
