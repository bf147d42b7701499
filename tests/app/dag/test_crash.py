"""A worker that dies between any two writes leaves runs that another one finishes, each attempt recorded."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from kron.app.dag.task_call import TaskContext
from kron.core.dag.record import DagRunStatus
from kron.stores.dag import DagTables, Work
from kron.stores.sqlite.dag import SqliteDatabase
from tests.app.dag.house import House, node

T = TypeVar("T")


class Killed(BaseException):
    """The process is gone."""


class MortalDatabase(SqliteDatabase):
    """A database whose client dies at a transaction: before it, or after it was committed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.lives: int | None = None
        self.after = False

    async def do(self, work: Work[T], *, exclusive: bool = False) -> T:
        if self.lives is None:
            return await super().do(work, exclusive=exclusive)
        self.lives -= 1
        if self.lives < 0 or (self.lives == 0 and not self.after):
            raise Killed
        result = await super().do(work, exclusive=exclusive)
        if self.lives == 0:
            raise Killed
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_every_task_ends_once_whichever_write_its_first_worker_died_at(
    tmp_path: Path, after: bool
) -> None:
    for lives in range(1, 100):
        calls: Counter[tuple[str, int]] = Counter()

        async def work(context: TaskContext, calls: Counter[tuple[str, int]] = calls) -> str:
            calls[context.task_id, context.attempt] += 1
            return context.task_id

        database = MortalDatabase(":memory:")
        house = House(DagTables(database), tmp_path)
        await house.put(
            node("a", function="work", retries=3, retry_delay=0),
            node("b", "a", function="work", retries=3, retry_delay=0),
        )
        run_id = await house.start()
        # The lease of the one that dies is short, that of the other longer than a busy machine may need.
        short, long = ({"lease": timedelta(milliseconds=ms)} for ms in (100, 30_000))
        tick = {"tick": timedelta(milliseconds=5)}
        database.lives, database.after = lives, after
        was_killed = False
        try:
            await house.work({"work": work}, name="first", **short, **tick)
        except Killed:
            was_killed = True
        database.lives = None
        async with asyncio.timeout(60):
            await house.work({"work": work}, name="second", **long, **tick)
        state = await house.state(run_id)
        assert state.run.status is DagRunStatus.SUCCESS, lives
        assert list((await house.store.results(run_id, list(state.tasks))).values()) == ['"a"', '"b"']
        attempts = {(each.task_id, each.attempt): each for each in await house.store.attempts(run_id)}
        assert set(calls) <= set(attempts)
        assert max(calls.values()) == 1
        assert all(each.outcome is not None for each in attempts.values())
        ends = Counter(each.task_id for each in attempts.values() if each.outcome == "success")
        assert ends == {"a": 1, "b": 1}
        await house.store.close()
        await house.workflows.close()
        if not was_killed:
            return
    raise AssertionError("the run takes fewer writes")
