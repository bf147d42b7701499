"""Functions that block run in a bounded pool of threads, and nothing claims to interrupt them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kron
from kron.clocks.system import SystemClock
from kron.fronts.embed.thread_call import CallThreads
from kron.testing import SimulatedClock
from tests.waiting import PATIENCE_S, until

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
async def threads() -> AsyncIterator[CallThreads]:
    pool = CallThreads(SystemClock(), 1)
    yield pool
    pool.close()


def a_runner(**options: Any) -> tuple[kron.Runner, SimulatedClock]:
    clock = SimulatedClock(NOON + timedelta(seconds=1))
    return kron.Runner("memory://", clock=clock, **options), clock


async def test_blocking_functions_run_side_by_side_beside_the_event_loop() -> None:
    runner, clock = a_runner()
    # Neither passes it before both are in.
    both = threading.Barrier(2, timeout=PATIENCE_S)
    names: set[str] = set()

    def meet() -> None:
        both.wait()
        names.add(threading.current_thread().name.rpartition("_")[0])

    runner.job("@hourly", identity="one")(meet)
    runner.job("@hourly", identity="two")(meet)
    async with runner:
        await clock.advance_to(NOON + HOUR)
        assert [run.status for run in await runner.runs("one")] == ["SUCCESS"]
    assert names == {"kron-call"}


async def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    runner, clock = a_runner(max_threads=2)
    running, most = 0, 0
    lock = threading.Lock()

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    for number in range(6):
        runner.job("@hourly", identity=f"job {number}")(count)
    async with runner:
        await clock.advance_to(NOON + HOUR)
    assert (most, running) == (2, 0)
    with pytest.raises(kron.InvalidOptionError, match="max_threads"):
        a_runner(max_threads=0)


async def test_virtual_time_does_not_pass_while_a_thread_works() -> None:
    runner, clock = a_runner()
    seen: list[datetime] = []

    @runner.job("@hourly")
    def slow() -> None:
        threading.Event().wait(0.02)
        seen.append(clock.now())

    async with runner:
        await clock.advance_to(NOON + 24 * HOUR)
        statuses = {run.status for run in await runner.runs("slow")}
    assert seen == [NOON + hour * HOUR for hour in range(1, 25)]
    assert statuses == {"SUCCESS"}


async def test_an_exception_an_exit_and_a_forgotten_await_are_failed_runs() -> None:
    runner, clock = a_runner()

    async def waits() -> None: ...

    @runner.job("@hourly")
    def raises() -> None:
        raise ValueError("broken")

    @runner.job("@hourly")
    def exits() -> None:
        raise SystemExit(3)

    runner.job("@hourly", identity="forgets")(lambda: waits())  # noqa: PLW0108 - a lambda is not async
    async with runner:
        await clock.advance_to(NOON + HOUR)
        errors = [(await runner.runs(name))[0].error for name in ("raises", "exits", "forgets")]
    assert errors == [
        "ValueError: broken",
        "RuntimeError: the function exited: SystemExit(3)",
        "TypeError: the function returned a coroutine that nothing awaits; define it with async def",
    ]


class Function:
    """A function that is held until it is released, and notes what it learned."""

    def __init__(self, *, asks: bool) -> None:
        self.is_in, self.released = threading.Event(), threading.Event()
        self.asks = asks
        self.answers: list[bool] = []

    def __call__(self) -> None:
        self.is_in.set()
        assert self.released.wait(PATIENCE_S)
        if self.asks:
            self.answers.append(kron.cancel_requested())


async def test_a_cancelled_call_lasts_until_its_function_returns_and_has_its_result(
    threads: CallThreads, caplog: pytest.LogCaptureFixture
) -> None:
    function = Function(asks=False)
    call = asyncio.create_task(threads.call("job", function))
    await until(function.is_in.is_set)
    call.cancel()
    await asyncio.sleep(0.01)
    assert not call.done()
    assert "its function runs in a thread, and ends when it returns" in caplog.text
    function.released.set()
    await call


async def test_a_function_that_checks_is_recorded_as_cancelled(threads: CallThreads) -> None:
    function = Function(asks=True)
    call = asyncio.create_task(threads.call("job", function))
    await until(function.is_in.is_set)
    call.cancel()
    await asyncio.sleep(0)
    function.released.set()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert function.answers == [True]


async def test_no_end_is_requested_of_other_calls_or_outside_of_one(threads: CallThreads) -> None:
    function = Function(asks=True)
    function.released.set()
    await threads.call("job", function)
    assert function.answers == [False]
    assert not kron.cancel_requested()


async def test_a_call_that_is_cancelled_before_it_has_a_thread_never_runs(threads: CallThreads) -> None:
    first, second = Function(asks=False), Function(asks=False)
    running = asyncio.create_task(threads.call("first", first))
    await until(first.is_in.is_set)
    waiting = asyncio.create_task(threads.call("second", second))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.released.set()
    await running
    assert not second.is_in.is_set()


@pytest.mark.slow
async def test_a_blocking_run_that_checks_ends_when_it_is_replaced() -> None:
    runner = kron.Runner("memory://")
    done = threading.Event()

    @runner.job("* * * * * *", overlap="replace", replace_grace="10s", deadline=None)
    def polite() -> None:
        while not (kron.cancel_requested() or done.is_set()):
            threading.Event().wait(0.01)

    async with runner:
        ended: list[kron.Run] = []
        while not ended:
            await asyncio.sleep(0.05)
            ended = [run for run in await runner.runs("polite") if run.ended_at is not None]
        done.set()
    assert {f"{run.status} {run.reason}" for run in ended} == {"CANCELLED replaced"}


@pytest.mark.slow
async def test_a_timeout_is_recorded_while_the_function_still_runs() -> None:
    runner = kron.Runner("memory://")
    function = Function(asks=False)
    runner.job("0 0 29 2 *", identity="stuck", run_timeout="100ms")(function)
    async with runner:
        await runner.run_now("stuck")
        await until(function.is_in.is_set)
        run = (await runner.runs("stuck"))[0]
        while run.ended_at is None:
            await asyncio.sleep(0.05)
            run = (await runner.runs("stuck"))[0]
        function.released.set()
    assert run.status == "FAILED"
    assert run.error is not None
    assert "timeout" in run.error
