"""Damaged rows: their job is set aside with an error, all others run, nothing crashes or spins."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from kron.core.job.policy import Catchup
from kron.core.plan.record import JobRecord
from kron.core.plan.step import LoadResult, Ownership
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.testing.clock import SimulatedClock
from tests.faults.rig import MILLISECOND, MINUTE, NOON, SECOND, SPACE, Rig, job_of, rig_of
from tests.postgres import Server

Damage = Callable[[str], None]
# A wake for each minute and each end, and some more; a loop that spins asks a thousand times as often.
MAX_LOADS = 60


class CountingSqlite(SqliteStore):
    """A store that counts its calls."""

    loads = 0

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        self.loads += 1
        return await super().load(ownership, until=until, limit=limit, named=named, without=without)


class CountingPostgres(PostgresStore):
    """A store that counts its calls."""

    loads = 0

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        self.loads += 1
        return await super().load(ownership, until=until, limit=limit, named=named, without=without)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = SimulatedClock(NOON + MILLISECOND)
    async with rig_of(CountingSqlite(str(tmp_path / "kron.db")), clock) as made:
        yield made


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    """Run a statement beside the engine, as a database client would."""

    def run(statement: str) -> None:
        with closing(sqlite3.connect(tmp_path / "kron.db")) as connection, connection:
            assert connection.execute(statement).rowcount == 1

    return run


async def fails(launch: object) -> None:
    raise ValueError("broken")


async def begin(rig: Rig) -> None:
    """Run two jobs for a minute and a half; the one to be damaged waits for a retry, far away."""
    await rig.add(job_of("good"))
    await rig.add(job_of("bad", retry_delay=timedelta(hours=1)), callback=fails)
    await rig.run()
    await advance(rig, MINUTE + 30 * SECOND)


async def advance(rig: Rig, by: timedelta) -> None:
    assert isinstance(rig.clock, SimulatedClock)
    await rig.clock.advance_to(NOON + by)


async def is_set_aside(rig: Rig, store: CountingSqlite | CountingPostgres) -> None:
    """Run for some minutes, then check."""
    store.loads = 0
    await advance(rig, 6 * MINUTE)
    assert rig.engine.health.state == "running"
    assert store.loads < MAX_LOADS
    assert rig.starts_of("good") == [60, 120, 180, 240, 300, 360]
    assert rig.journal.events() == ["quarantined"]
    assert rig.starts_of("bad") == [60]
    (case,) = [case for case in await store.cases(SPACE) if case.job.identity == "bad"]
    assert case.job.paused
    assert "its record cannot be used" in (case.job.paused_because or "")


BROKEN = "UPDATE jobs SET {} WHERE schedule_id = 'bad'"
BROKEN_RUN = "UPDATE runs SET {} WHERE schedule_id = 'bad' AND is_open = 1"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("definition = 'this is no JSON'", id="no JSON"),
        pytest.param("definition = ''", id="nothing"),
        pytest.param("definition = '[]'", id="another JSON"),
        pytest.param("definition = 'null'", id="null"),
        pytest.param("definition = '{\"schedule\": 5}'", id="a number for a text"),
        pytest.param('definition = \'{"schedule": "* * * *"}\'', id="a field too few"),
        pytest.param(
            'definition = \'{"schedule": "* * * * *", "policy": {"catchup": "never"}}\'',
            id="an unknown choice",
        ),
        pytest.param("definition = x'ff00fe'", id="bytes"),
        pytest.param(f"definition = '{'[' * 5_000}'", id="deep JSON"),
        pytest.param("cursor = 'here'", id="a text for the cursor"),
        pytest.param("revision = 'seven'", id="a text for the revision"),
        pytest.param("resumed_at = 'yesterday'", id="a text for the resumption"),
        pytest.param("past = 'yesterday'", id="no JSON for earlier definitions"),
        pytest.param("past = '[]'", id="no earlier definitions where there are some"),
        pytest.param("remaining = 'some'", id="a text for the rest"),
    ],
)
async def test_a_damaged_job_is_set_aside_and_the_others_run(rig: Rig, damage: Damage, change: str) -> None:
    await begin(rig)
    damage(BROKEN.format(change))
    assert isinstance(rig.store, CountingSqlite)
    await is_set_aside(rig, rig.store)


@pytest.mark.parametrize("change", ["next_time = 'soon'", "plan_at = 'soon'", "plan_at = x'00'"])
async def test_what_can_be_computed_again_is_computed_again(rig: Rig, damage: Damage, change: str) -> None:
    await begin(rig)
    damage(BROKEN.format(change))
    rig.engine.call()
    await advance(rig, 3 * MINUTE)
    assert rig.starts_of("good") == rig.starts_of("bad") == [60, 120, 180]
    assert rig.journal.events() == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("status = 'FLYING'", id="an unknown status"),
        pytest.param("reason = ''", id="an unknown reason"),
        pytest.param("kind = 'sort'", id="an unknown kind"),
        pytest.param("result = 'mixed'", id="an unknown result"),
        pytest.param("status = 'FLYING', due_at = 1", id="an unknown status, due"),
        pytest.param("due_at = 'soon'", id="a text for when to look"),
        pytest.param("fire_time = 'noon'", id="a text for when to start"),
        pytest.param("attempt = 'first'", id="a text for the attempt"),
        pytest.param("epoch = x'01'", id="bytes for the epoch"),
    ],
)
async def test_the_job_of_a_damaged_run_is_set_aside_and_the_others_run(
    rig: Rig, damage: Damage, change: str
) -> None:
    await begin(rig)
    damage(BROKEN_RUN.format(change))
    assert isinstance(rig.store, CountingSqlite)
    await is_set_aside(rig, rig.store)


async def test_a_damaged_run_does_not_keep_the_next_owner_out(rig: Rig, damage: Damage) -> None:
    await begin(rig)
    await rig.engine.stop()
    damage(BROKEN_RUN.format("status = 'FLYING', due_at = 1"))
    await rig.run()
    assert isinstance(rig.store, CountingSqlite)
    await is_set_aside(rig, rig.store)


async def test_a_run_whose_job_is_gone_does_not_keep_the_next_owner_out(rig: Rig, damage: Damage) -> None:
    await begin(rig)
    await rig.engine.stop()
    damage("UPDATE runs SET schedule_id = 'nobody', status = 'STARTED' WHERE is_open = 1")
    await rig.run()
    await advance(rig, 3 * MINUTE)
    assert rig.starts_of("good") == [60, 120, 180]


async def test_a_replay_without_a_beginning_is_set_aside(rig: Rig, damage: Damage) -> None:
    await rig.add(job_of("bad", catchup=Catchup.SPREAD))
    await rig.run()
    await advance(rig, 30 * SECOND)
    damage(BROKEN.format("replay_until = next_time, replay_at = NULL"))
    await advance(rig, 2 * MINUTE)
    assert rig.journal.events() == ["quarantined"]
    assert rig.calls == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE schedules SET definition = '{\"schedule\": \"nonsense\"}' WHERE schedule_id = 'bad'",
        "UPDATE schedules SET past = 'nonsense' WHERE schedule_id = 'bad'",
        "UPDATE schedule_runs SET status = 'FLYING', due_at = 1 WHERE schedule_id = 'bad'",
        "UPDATE schedule_runs SET reason = '' WHERE schedule_id = 'bad'",
    ],
)
async def test_a_damaged_row_of_postgres_is_set_aside_and_the_others_run(
    postgres: Server, postgres_url: str, change: str
) -> None:
    store = CountingPostgres(postgres_url)
    async with rig_of(store, SimulatedClock(NOON + MILLISECOND)) as rig:
        await begin(rig)
        postgres.execute(change, postgres_url)
        await is_set_aside(rig, store)


DAMAGED = [
    "status = 'FLYING'",
    "reason = ''",
    "kind = 'sort'",
    "result = 'mixed'",
]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_damaged_run_of_the_past_is_left_out_of_lists_and_reported(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pages stay full, so that no reader takes one for the last."""

    def hurt(number: int, change: str) -> None:
        where = f"nominal_time = {int(NOON.timestamp()) + 60 * number}"
        if kind == "sqlite":
            with closing(sqlite3.connect(tmp_path / "kron.db")) as connection, connection:
                assert connection.execute(f"UPDATE runs SET {change} WHERE {where}").rowcount == 1
        else:
            postgres: Server = request.getfixturevalue("postgres")
            postgres.execute(f"UPDATE schedule_runs SET {change} WHERE {where}", store_url)

    store_url = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    store = PostgresStore(store_url) if store_url else SqliteStore(str(tmp_path / "kron.db"))
    async with rig_of(store, SimulatedClock(NOON + MILLISECOND)) as rig:
        await rig.add(job_of("good"))
        await rig.run()
        await advance(rig, 12 * MINUTE)
        keys = {run.nominal_time: run.key for run in await rig.runs("good")}
        for number, change in enumerate(DAMAGED):
            # The newest but one, and so on.
            hurt(11 - number, change)
        kept = [12, 7, 6, 5, 4, 3, 2, 1]
        caplog.clear()
        for limit in (1, 2, 3, 5, 100):
            expected = [int(NOON.timestamp()) + 60 * number for number in kept[:limit]]
            assert [run.nominal_time for run in await store.runs(SPACE, "good", limit=limit)] == expected
            assert [run.nominal_time for run in await store.latest_runs(SPACE, limit=limit)] == expected
        assert keys[int(NOON.timestamp()) + 660] in caplog.text
        assert await store.find_runs(SPACE, [keys[int(NOON.timestamp()) + 660]]) == []
        await advance(rig, 14 * MINUTE)
        assert rig.starts_of("good") == [60 * number for number in range(1, 15)]
