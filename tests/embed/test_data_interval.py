"""The data interval of a callback, across an edit and a store that does not answer for a moment."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kron
from kron.fronts.embed.answer import Run
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from kron.testing.faulty_store import Fault, FaultyStore

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("faults", [[], [Fault.BEFORE], [Fault.BEFORE] * 3])
async def test_the_first_interval_after_an_edit_meets_the_last_one_before_it(
    tmp_path: Path, faults: list[Fault]
) -> None:
    clock = SimulatedClock(NOON)
    store = FaultyStore(SqliteStore(str(tmp_path / "kron.db")), clock)
    runner = kron.Runner(store, clock=clock)
    calls: list[Run] = []

    async def work(run: Run) -> None:
        calls.append(run)

    def job(schedule: str) -> kron.Job:
        return kron.Job.from_dict({"identity": "job", "schedule": schedule, "policy": {"deadline": None}})

    runner.add(job("0 0 * * *"), work)
    async with runner:
        await clock.advance_to(NOON + HOUR / 2)
        await runner.add(job("0 * * * *"), work)
        store.then("epochs", *faults)
        await clock.advance_to(NOON + 2.5 * HOUR)
        midnight, one, two = NOON - 12 * HOUR, NOON + HOUR, NOON + 2 * HOUR
        told = [(run.data_interval_start, run.data_interval_end) for run in calls]
        assert told == [(midnight, one), (one, two)]
        await runner.run_now("job")
        await clock.advance_to(NOON + 2.6 * HOUR)
        assert (calls[-1].data_interval_start, calls[-1].data_interval_end) == (one, two)
        listed = [
            (run.kind, run.data_interval_start, run.data_interval_end) for run in await runner.runs("job")
        ]
        assert listed == [("manual", one, two), ("period", one, two), ("period", midnight, one)]
    await store.close()
