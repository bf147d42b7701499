"""The work of a busy minute and of a recovery grows with the number of tasks, and no faster (SPEC 1: R1, R2).

Work is counted, not timed: the steps of SQLite's machine, the rows written, the calls of Python functions.
"""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock, kill

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DELAY = timedelta(minutes=5)
# More than the engine does in one transaction, twice as many, and twice as many again.
COUNTS = (1_200, 2_400, 4_800)
# SQLite calls it after this many of its steps.
STEPS = 100
# How much more each further task may take: the last chunk is seldom full.
SLACK = 1.02


class Work(NamedTuple):
    """What was done."""

    steps: int
    rows: int
    calls: int


class CountingStore(SqliteStore):
    """A store in a file that counts the steps of its database."""

    steps = 0

    def _open(self) -> sqlite3.Connection:
        connection = super()._open()
        connection.set_progress_handler(self._step, STEPS)
        return connection

    def _step(self) -> int:
        self.steps += STEPS
        return 0

    @property
    def rows(self) -> int:
        """Return how many rows were written since it was opened."""
        return super()._open().total_changes


class Calls:
    """Counts the calls of Python functions in every thread that begins while it looks, and in this one."""

    count = 0

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        self.count += event == "call"

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Look, as long as this lasts."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def tasks(count: int, callback: object) -> list[tuple[str, str, object, timedelta]]:
    return [(f"task {number}", "0 12 * * *", callback, DELAY) for number in range(count)]


async def due_at_once(folder: Path, count: int) -> tuple[Work, Work]:
    """Return the work of one minute in which all tasks are due, and of a recovery when all of them ran."""
    store, clock, calls = CountingStore(str(folder / f"{count}.db")), SimulatedClock(NOON - DELAY), Calls()
    begun: list[int] = []

    async def stay() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    async def end() -> None:
        begun.append(2)

    with calls.counted():
        scheduler = Scheduler(store, clock=clock, timezone="UTC")
        await scheduler.initialize(tasks(count, stay))  # type: ignore[arg-type]
        before = Work(store.steps, store.rows, calls.count)
        await clock.advance_to(NOON)
        minute = Work(store.steps, store.rows, calls.count)
        assert begun == [1] * count
        await kill(scheduler)
        killed = Work(store.steps, store.rows, calls.count)
        again = Scheduler(store, clock=clock, timezone="UTC")
        await again.initialize(tasks(count, end))  # type: ignore[arg-type]
        await clock.advance_to(NOON + DELAY)
        recovered = Work(store.steps, store.rows, calls.count)
    assert sorted(begun) == [1] * count + [2] * count
    assert set(again.standings.values()) == {"orphaned"}
    await again.stop()
    await store.close()
    return _difference(minute, before), _difference(recovered, killed)


def _difference(after: Work, before: Work) -> Work:
    return Work(*(later - earlier for later, earlier in zip(after, before, strict=True)))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Work, Work]]:
    folder = tmp_path_factory.mktemp("growth")
    return [asyncio.run(due_at_once(folder, count)) for count in COUNTS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", Work._fields)
def test_twice_as_many_tasks_due_in_one_minute_are_at_most_twice_the_work(
    found: list[tuple[Work, Work]], kind: str
) -> None:
    _check_growth([getattr(minute, kind) for minute, _ in found])


@pytest.mark.slow
@pytest.mark.parametrize("kind", Work._fields)
def test_twice_as_many_tasks_running_at_a_crash_are_at_most_twice_the_work_after_it(
    found: list[tuple[Work, Work]], kind: str
) -> None:
    _check_growth([getattr(recovery, kind) for _, recovery in found])


def _check_growth(work: list[int]) -> None:
    """Check that a further task takes no more than those before it did."""
    few, some, many = work
    per_task = (some - few) / (COUNTS[1] - COUNTS[0])
    assert per_task > 0
    assert (many - some) / (COUNTS[2] - COUNTS[1]) <= SLACK * per_task, work
