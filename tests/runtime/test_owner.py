"""Owners come and go: who runs a job changes nothing of what is decided."""

import pytest

from kron.core.errors import OwnedError
from kron.core.job.decision import decide
from kron.core.job.job import Job
from kron.core.plan.step import Ownership
from kron.core.time.instant import datetime_of
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from tests.engine_stage import HOUR, MINUTE, SPACE, Stage, stage_on

JOB = Job.from_dict(
    {
        "identity": "job",
        "schedule": "*/10 * * * *",
        "window": {"mode": "around", "duration": "18m"},
        "distribution": {"name": "normal"},
        "policy": {"deadline": None, "concurrency": "allow"},
    }
)


async def check_decisions(stage: Stage) -> None:
    """Check that the fire time of every run is the decision of its definition."""
    await stage.advance(HOUR)
    runs = await stage.runs()
    assert len(runs) >= 10
    for run in runs:
        chosen = decide(JOB, datetime_of(run.nominal_time)).chosen_time
        assert chosen is not None
        assert run.fire_time == 1000 * chosen


@pytest.mark.slow
async def test_a_change_of_the_owner_changes_no_chosen_time(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(JOB)
        await stage.run()
        for owner in ("second", "third"):
            await stage.advance(25 * MINUTE)
            await stage.engine.stop()
            stage.engine = stage.make_engine(owner)
            await stage.run()
        await check_decisions(stage)


async def test_the_owner_after_a_crash_changes_no_chosen_time() -> None:
    store = SqliteStore()
    async with stage_on(store) as stage:
        await stage.add(JOB)
        await stage.run()
        for owner in ("second", "third"):
            await stage.advance(25 * MINUTE)
            stage.engine.kill()
            store.drop_locks()
            stage.engine = stage.make_engine(owner)
            await stage.run()
        await check_decisions(stage)
    await store.close()


class FiniteStore(SqliteStore):
    """A store whose leases have an end, and whose renewals fail."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self.renewals = 0
        self._failure = failure

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        ownership = await super().acquire(namespace, owner, now=now, balance=balance)
        return ownership._replace(ttl_ms=30_000)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        self.renewals += 1
        raise self._failure


async def test_an_engine_ends_when_a_renewal_finds_that_its_lease_is_lost() -> None:
    """Otherwise an engine without due jobs would look as if it ran, with no lease and no renewal."""
    store = FiniteStore(OwnedError(namespace=SPACE, owner="other"))
    async with stage_on(store) as stage:
        await stage.run()
        await stage.advance(MINUTE)
        assert stage.engine.health.state == "lost"
    await store.close()


async def test_an_engine_whose_renewal_fails_by_its_own_mistake_says_so_and_lets_the_lease_lapse() -> None:
    store = FiniteStore(AssertionError("our own mistake"))
    async with stage_on(store) as stage:
        await stage.run()
        await stage.advance(MINUTE)
        health = stage.engine.health
        assert (health.state, health.error) == ("failed", "AssertionError: our own mistake")
        assert store.renewals == 1
    await store.close()
