"""Waits between tries: they grow, end, and are the same for the same key."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InputError
from kron.launchers.backoff import MIN_SHARE, Backoff, share_of, sleep_for
from kron.testing.clock import SimulatedClock
from tests.strategies import law

BACKOFF = Backoff(max_attempts=5, first_delay=timedelta(seconds=1), max_delay=timedelta(seconds=5))


def test_waits_double_up_to_the_bound_and_then_end() -> None:
    waits = [BACKOFF.delay_after("key", failed) for failed in range(1, 7)]
    assert waits[4:] == [None, None]
    for wait, whole in zip(waits[:4], (1, 2, 4, 5), strict=True):
        assert wait is not None
        assert MIN_SHARE * whole <= wait <= whole


def test_a_single_attempt_is_never_repeated() -> None:
    assert Backoff(max_attempts=1).delay_after("key", 1) is None
    assert Backoff(max_attempts=2).delay_after("key", 1) is not None


@law(100)
@given(
    key=st.text(max_size=8),
    failed=st.integers(1, 2_000),
    asked=st.floats(0, 1e12),
    first=st.integers(0, 10_000),
    more=st.integers(0, 10_000),
)
def test_no_wait_is_longer_than_the_bound(key: str, failed: int, asked: float, first: int, more: int) -> None:
    backoff = Backoff(
        max_attempts=3_000,
        first_delay=timedelta(milliseconds=first),
        max_delay=timedelta(milliseconds=first + more),
    )
    wait = backoff.delay_after(key, failed, requested_s=asked)
    assert wait is not None
    assert min(asked, backoff.max_delay.total_seconds()) <= wait <= backoff.max_delay.total_seconds()
    assert wait == backoff.delay_after(key, failed, requested_s=asked)


def test_shares_are_spread_and_for_ever_the_same() -> None:
    shares = [share_of(f"key {n}", 1) for n in range(1_000)]
    assert 0 <= min(shares) < 0.05
    assert 0.95 < max(shares) < 1
    assert 0.45 < sum(shares) / 1_000 < 0.55
    assert share_of("key", 1) == 0.03348418066598369


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_attempts": 0}, id="never"),
        pytest.param({"first_delay": timedelta(seconds=-1)}, id="negative"),
        pytest.param({"first_delay": timedelta(hours=1)}, id="longer than the longest"),
    ],
)
def test_what_would_not_end_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Backoff(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("jump", [timedelta(hours=-3), timedelta(hours=3)], ids=["back", "forwards"])
async def test_a_pause_lasts_as_long_whatever_the_wall_clock_does(jump: timedelta) -> None:
    clock = SimulatedClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    task = asyncio.create_task(sleep_for(clock, 60))
    await clock.advance_to(clock.now() + timedelta(seconds=20))
    clock.jump_to(clock.now() + jump)
    await clock.advance_to(clock.now() + timedelta(seconds=39))
    assert not task.done()
    await clock.advance_to(clock.now() + timedelta(seconds=1))
    assert task.done()
