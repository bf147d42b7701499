"""Bulk loads of many callers take turns: a short request of another one goes on beside them."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from kron.clocks.system import SystemClock
from kron.fronts.service.auth.principal import Caller, TokenScope, acting_as, current_caller
from kron.fronts.service.bulk import BATCH, upsert_lines
from kron.fronts.service.registrar import BATCHES_AT_ONCE, Registrar
from kron.fronts.service.schedule_spec import ScheduleSpec
from kron.stores.sqlite.store import SqliteStore
from tests.waiting import until

CALLERS = 9
SCHEDULE = {"workflow_id": "report", "version": 1, "cron_expr": "0 0 1 1 *", "timezone": "UTC"}


def caller_of(name: str) -> Caller:
    return Caller(name, frozenset({TokenScope.WRITE}), (name,))


async def lines_of(name: str, count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield json.dumps({**SCHEDULE, "schedule_id": f"{name}/{number}"}).encode() + b"\n"


async def test_batches_of_many_callers_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    registrar, store = Registrar(SqliteStore(), SystemClock()), asyncio.Event()
    active: list[str] = []
    most: list[int] = []
    upsert = registrar.upsert_schedules

    async def upsert_later(specs: Sequence[ScheduleSpec]) -> int:
        active.append(current_caller().name)
        most.append(len(active))
        await store.wait()
        count = await upsert(specs)
        active.remove(current_caller().name)
        return count

    monkeypatch.setattr(registrar, "upsert_schedules", upsert_later)
    loading = []
    # The first callers send two batches at once: each still has one turn.
    for name in ("user 0", *(f"user {number}" for number in range(CALLERS))):
        with acting_as(caller_of(name)):
            lines = upsert_lines(registrar, lines_of(name, 2 * BATCH), max_line=1_000)
            loading.append(asyncio.create_task(lines))
    await until(lambda: len(active) == BATCHES_AT_ONCE)
    assert len(set(active)) == BATCHES_AT_ONCE
    store.set()
    assert await asyncio.gather(*loading) == [(2 * BATCH, 2)] * (CALLERS + 1)
    assert max(most) == BATCHES_AT_ONCE


async def test_a_caller_whose_lines_come_slowly_takes_no_turn() -> None:
    registrar, sent = Registrar(SqliteStore(), SystemClock()), asyncio.Event()

    async def slowly(name: str) -> AsyncIterator[bytes]:
        async for line in lines_of(name, 1):
            yield line
        await sent.wait()

    slow = []
    for number in range(BATCHES_AT_ONCE):
        with acting_as(caller_of(f"slow {number}")):
            slow.append(
                asyncio.create_task(upsert_lines(registrar, slowly(f"slow {number}"), max_line=1_000))
            )
    await asyncio.sleep(0)
    with acting_as(caller_of("user")):
        assert await upsert_lines(registrar, lines_of("user", 3), max_line=1_000) == (3, 1)
    sent.set()
    assert await asyncio.gather(*slow) == [(1, 1)] * BATCHES_AT_ONCE
