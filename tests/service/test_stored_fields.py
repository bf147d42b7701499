"""Each stored field has its own meaning: as given, nominal or planned, first written or last changed."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from kron.ports import Store
from kron.testing import Step
from tests.service.registrar_rig import HOURLY, MINUTE, NOON, SECOND, office_on
from tests.service.test_tables import Connection, database, instant, rows

__all__ = ["database"]

HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)


async def test_names_are_stored_as_given(database: tuple[Store, Connection]) -> None:
    """Neither case, nor spaces, nor letters beyond ASCII are changed."""
    store, connection = database
    names = {"workflow_id": " Nightly  Report Ä", "user_id": "Ann.B@Example.org ß", "schedule_id": "Job Ö/1"}
    launcher = {"kind": "http", "url": "http://127.0.0.1:9/Start"}
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**HOURLY, **names, "launcher": launcher})
        found = await office.registrar.get_schedule("Job Ö/1")
        assert {name: found[name] for name in names} == names
        (schedule,) = rows(connection, "SELECT * FROM schedules")
        assert {name: schedule[name] for name in names} == names
        connection.commit()
    await store.close()


async def test_a_row_has_its_nominal_time_its_fire_time_and_when_it_was_written_first_and_last(
    database: tuple[Store, Connection],
) -> None:
    """A period with a window is written when the window opens, and changes when it starts and ends."""
    store, connection = database
    async with office_on(store) as office:
        fields: dict[str, object] = {"window": {"mode": "after", "duration": "30m"}, "jitter_ms": 1_000}
        fields["start_at"] = "2026-01-01T12:30:00Z"
        await office.registrar.upsert_schedule({**HOURLY, **fields})
        office.launchers["workflow"].then("hourly", Step.HANG)
        await office.work()
        await office.until(NOON + HOUR - MILLISECOND)
        (planned,) = rows(connection, "SELECT * FROM schedule_runs")
        written_at = NOON + HOUR - SECOND
        assert (planned["status"], instant(planned["run_at"])) == ("PENDING", NOON + HOUR)
        assert instant(planned["created_at"]) == instant(planned["updated_at"]) == written_at
        fire_at = instant(planned["fire_at"])
        assert NOON + HOUR < fire_at < NOON + 2 * HOUR
        await office.until(NOON + 2 * HOUR - MINUTE)
        (started,) = rows(connection, "SELECT * FROM schedule_runs")
        assert (started["status"], instant(started["run_at"])) == ("STARTED", NOON + HOUR)
        assert instant(started["created_at"]) == written_at
        assert instant(started["started_at"]) == instant(started["updated_at"]) == fire_at
        launcher = office.launchers["workflow"]
        launcher.end(launcher.running[0])
        await office.until(NOON + 2 * HOUR - MINUTE + MILLISECOND)
        (ended,) = rows(connection, "SELECT * FROM schedule_runs")
        assert instant(ended["created_at"]) == written_at
        assert instant(ended["updated_at"]) == instant(ended["ended_at"]) == NOON + 2 * HOUR - MINUTE
        connection.commit()
    await store.close()


async def test_a_schedules_updated_at_is_the_time_of_its_last_change(
    database: tuple[Store, Connection],
) -> None:
    store, connection = database
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(HOURLY)
        created_at = NOON + MILLISECOND
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: office.registrar.upsert_schedule({**HOURLY, "jitter_ms": 5}),
            lambda: office.registrar.pause_schedule("hourly", True),
            lambda: office.registrar.pause_schedule("hourly", False),
        ]
        for minute, change in enumerate(changes, start=1):
            office.clock.jump_to(NOON + minute * MINUTE)
            await change()
            found = await office.registrar.get_schedule("hourly")
            assert instant(found["created_at"]) == created_at
            assert instant(found["updated_at"]) == NOON + minute * MINUTE
            (schedule,) = rows(connection, "SELECT * FROM schedules")
            assert instant(schedule["updated_at"]) == NOON + minute * MINUTE
            connection.commit()
    await store.close()
