"""Lists so long that they are worked through beside the event loop: like short ones, and nothing waits."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.core.task.errors import CronExpressionInvalidError, TaskTryDeserializeError
from kron.core.task.restore import _check_fields, _check_record, _check_times
from kron.core.task.task import TaskConfig, job_of
from kron.core.time.instant import LAST_SECOND
from kron.fronts.embed.scheduler import Scheduler
from kron.fronts.embed.task_list import MANY
from kron.testing import kill

COUNT = MANY + 1
DELAY = timedelta(minutes=5)
NOW = 1_790_000_000_000
RECORD = create(job_of(TaskConfig("a", "0 3 1 1 *", DELAY), "UTC"), now=NOW)


async def never() -> None:
    raise AssertionError("nothing is due")


def tasks(delay: timedelta = DELAY) -> list[Any]:
    return [(f"task {number}", f"{number % 60} 3 29 2 *", never, delay) for number in range(COUNT)]


def scheduler_of(path: Path) -> Scheduler:
    return Scheduler(f"sqlite:///{path / 'kron.db'}", timezone="UTC")


async def turns_during(work: Coroutine[Any, Any, None]) -> int:
    """Return how many turns others have in the event loop until some work is done."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/kron.db"])
async def test_others_have_their_turns_while_many_tasks_are_new_known_and_changed(
    tmp_path: Path, url: str
) -> None:
    scheduler = Scheduler(url.format(tmp_path), timezone="UTC")
    for delay, standing in ((DELAY, "new"), (DELAY, "preserved"), (2 * DELAY, "overridden")):
        # Each of the steps (loading, comparing, writing, noting) leaves the loop to others.
        assert await turns_during(scheduler.initialize(tasks(delay))) > 20
        assert list(scheduler.standings.values()) == [standing] * COUNT
        assert len(scheduler.tasks) == COUNT
        await scheduler.stop()


async def test_a_long_list_that_its_owner_changes_meanwhile_is_read_as_it_was(tmp_path: Path) -> None:
    scheduler, given = scheduler_of(tmp_path), tasks()
    beginning = asyncio.create_task(scheduler.initialize(given))
    await asyncio.sleep(0)
    given.clear()
    await beginning
    assert len(scheduler.tasks) == COUNT
    await scheduler.stop()


async def test_what_is_wrong_with_a_long_list_is_said_before_anything_is_written(tmp_path: Path) -> None:
    scheduler, given = scheduler_of(tmp_path), tasks()
    given[-1] = ("last", "61 * * * *", never, DELAY)
    with pytest.raises(CronExpressionInvalidError) as caught:
        await scheduler.initialize(given)
    assert caught.value.registration_index == COUNT - 1
    assert (scheduler.state, os.listdir(tmp_path)) == ("uninitialized", [])
    await scheduler.initialize(tasks())
    await scheduler.stop()


async def test_a_stop_while_a_long_list_is_written_waits_for_it(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path)
    beginning = asyncio.create_task(scheduler.initialize(tasks()))
    await asyncio.sleep(0)
    assert scheduler.state == "initializing"
    await scheduler.stop()
    assert (beginning.done(), scheduler.state) == (True, "stopped")
    await beginning


async def test_a_crash_while_the_state_is_taken_over_leaves_nothing_behind(tmp_path: Path) -> None:
    scheduler = scheduler_of(tmp_path)
    beginning = asyncio.create_task(scheduler.initialize(tasks()))
    await asyncio.sleep(0)
    await kill(scheduler)
    with suppress(asyncio.CancelledError):
        await beginning
    assert (beginning.cancelled(), scheduler.state) == (True, "uninitialized")
    await scheduler.initialize(tasks())
    assert set(scheduler.standings.values()) == {"new"}
    await scheduler.stop()


def fault_by_name(record: JobRecord) -> str | None:
    try:
        _check_fields(record)
        _check_times(record, NOW)
    except TaskTryDeserializeError as fault:
        return str(fault)
    return None


def fault_at_once(record: JobRecord) -> str | None:
    try:
        _check_record(record, NOW)
    except TaskTryDeserializeError as fault:
        return str(fault)
    return None


EDGES = [
    -1,
    0,
    1,
    NOW,
    NOW + 1,
    NOW + 2,
    NOW // 1000,
    NOW // 1000 + 1,
    1000 * LAST_SECOND,
    True,
    None,
    "",
    1.5,
]
EDGES += [-1000 * LAST_SECOND, 1000 * LAST_SECOND + 1, -1000 * LAST_SECOND - 1]


@given(st.dictionaries(st.sampled_from(JobRecord._fields), st.sampled_from(EDGES), max_size=3))
def test_a_record_checked_at_once_has_the_fault_it_has_field_by_field(fields: dict[str, Any]) -> None:
    record = RECORD._replace(**fields)
    assert fault_at_once(record) == fault_by_name(record)
