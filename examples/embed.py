"""A scheduler inside a program: three tasks through one week, in virtual time.

Run it with `python examples/embed.py`. With `--live` it runs by the machine's clock until you press Ctrl-C.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import kron
from kron.testing import SimulatedClock, kill

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


class Shop:
    """The work of the tasks: one is fast, one fails sometimes, one is slow."""

    def __init__(self, clock: SimulatedClock | None) -> None:
        self._clock = clock
        self._reports = 0

    async def close_the_till(self) -> None:
        self._say("the till is closed")

    async def send_report(self) -> None:
        self._reports += 1
        if self._reports == 2:
            raise ConnectionError("no answer from the mail server")
        self._say("the report is sent")

    async def count_the_stock(self) -> None:
        self._say("counting begins")
        if self._clock is not None:
            await self._clock.sleep_until(self._clock.now() + timedelta(hours=2))
        self._say("counting is over")

    def registrations(self) -> list[tuple[str, str, Callable[[], Awaitable[None]], timedelta]]:
        return [
            ("till", "0 20 * * 1-6", self.close_the_till, timedelta(minutes=5)),
            ("report", "30 20 * * 1-6", self.send_report, timedelta(minutes=10)),
            ("stock", "0 22 * * 6", self.count_the_stock, timedelta(hours=1)),
        ]

    def _say(self, what: str) -> None:
        at = "" if self._clock is None else f"{self._clock.now():%a %H:%M}  "
        print(f"{at}{what}")


async def a_week(state: str) -> None:
    """Simulate a week, with a power cut in it."""
    clock = SimulatedClock(MONDAY)
    shop = Shop(clock)
    scheduler = kron.Scheduler(state, clock=clock, timezone="UTC")
    await scheduler.initialize(shop.registrations())
    await clock.advance_to(MONDAY + timedelta(days=5, hours=23))
    print("--- the power fails while the stock is counted ---")
    kill(scheduler)
    await clock.advance_to(MONDAY + timedelta(days=6, hours=9))
    async with kron.Scheduler(state, clock=clock, timezone="UTC") as scheduler:
        await scheduler.initialize(shop.registrations())
        print("--- the power is back; stock is", scheduler.standings["stock"], "---")
        await clock.advance_to(MONDAY + timedelta(days=7, hours=21))
    for name, task in scheduler.tasks.items():
        print(f"{name}: {task.state}, last success {task.last_success_at:%a %H:%M}")


async def live() -> None:
    """Run by the machine's clock, with the state beside this file."""
    async with kron.Scheduler() as scheduler:
        await scheduler.initialize(Shop(None).registrations())
        await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["--live"]:
        asyncio.run(live())
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(a_week(f"sqlite:///{Path(folder) / 'kron.db'}"))
