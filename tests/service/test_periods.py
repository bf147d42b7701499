"""From a schedule to its starts: when, under which key, and what is recorded before (SPEC 3: 5, 7, 12)."""

import sqlite3
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kron.core.plan.record import RunStatus
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.executor import executing
from tests.service.registrar_rig import HOURLY, MINUTE, NOON, WORK, Office, office_on
from tests.service.server import serving
from tests.waiting import wait_for

HOUR = timedelta(hours=1)
# A day with a change of the clocks, and what is skipped or repeated on it.
DAYS = [
    pytest.param("Europe/Berlin", "2026-03-29", id="02:00 to 03:00 is skipped"),
    pytest.param("Europe/Berlin", "2026-10-25", id="02:00 to 03:00 comes twice"),
    pytest.param("America/New_York", "2026-03-08", id="skipped, west"),
    pytest.param("America/New_York", "2026-11-01", id="twice, west"),
    pytest.param("Australia/Lord_Howe", "2026-10-04", id="half an hour is skipped"),
    pytest.param("Australia/Lord_Howe", "2026-04-05", id="half an hour comes twice"),
    pytest.param("Asia/Kathmandu", "2026-06-01", id="no change, odd offset"),
]


def instants(zone: str, day: str, minutes: set[int], hours: set[int]) -> list[int]:
    """Return the instants of a day whose wall clock shows these, by looking at every minute around it."""
    noon = int(datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=ZoneInfo(zone)).timestamp())
    around = range(noon - noon % 60 - 14 * 3600, noon + 14 * 3600, 60)
    walls = [(instant, datetime.fromtimestamp(instant, ZoneInfo(zone))) for instant in around]
    return [
        instant
        for instant, wall in walls
        if (wall.date().isoformat(), wall.minute in minutes, wall.hour in hours) == (day, True, True)
    ]


async def worked_through(office: Office, zone: str, day: str) -> None:
    """Run the schedules from before a day until after it, an hour at a time."""
    start = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    office.clock.jump_to(start - 3 * HOUR)
    await office.registrar.upsert_schedule(
        {**WORK, "schedule_id": "local", "cron_expr": "*/15 0-4 * * *", "timezone": zone}
    )
    await office.work()
    for hour in range(-2, 20):
        await office.until(start + hour * HOUR)


@pytest.mark.parametrize(("zone", "day"), DAYS)
async def test_every_period_of_a_day_starts_at_its_instant_by_the_clock_on_the_wall(
    zone: str, day: str
) -> None:
    async with office_on(SqliteStore()) as office:
        await worked_through(office, zone, day)
        runs = await office.runs("local")
        expected = instants(zone, day, {0, 15, 30, 45}, set(range(5)))
        assert [run.nominal_time for run in runs] == expected
        assert [run.started_at for run in runs] == [1000 * time for time in expected]
        assert {run.status for run in runs} == {RunStatus.SUCCESS}


@pytest.mark.parametrize(
    ("overlap", "seen"),
    [
        ("allow", ["STARTED", "SUCCESS", "SUCCESS"]),
        ("skip", ["STARTED", "SKIPPED", "SKIPPED"]),
        ("queue", ["STARTED", "PENDING", "PENDING"]),
    ],
)
async def test_a_repeated_hour_is_judged_by_the_overlap_policy(overlap: str, seen: list[str]) -> None:
    """02:30 comes twice on this day, and once more the next; the first of them hangs."""
    async with office_on(SqliteStore()) as office:
        office.clock.jump_to(datetime(2026, 10, 25, 0, tzinfo=UTC))
        office.launchers["workflow"].then("local", Step.HANG)
        document = {**HOURLY, "schedule_id": "local", "cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}
        await office.registrar.upsert_schedule({**document, "overlap_policy": overlap})
        await office.work()
        await office.until(datetime(2026, 10, 26, 2, tzinfo=UTC))
        runs = await office.runs("local")
        assert [run.status.value for run in runs] == seen
        twice = [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]
        once_more = datetime(2026, 10, 26, 1, 30, tzinfo=UTC)
        assert [run.nominal_time for run in runs] == [int(time.timestamp()) for time in (*twice, once_more)]


@pytest.mark.parametrize(
    ("catchup", "starts"), [("none", 0), ("once", 1), ("fire_immediately", 2), ("spread", 2)]
)
async def test_periods_of_a_repeated_hour_that_nobody_looked_after_follow_the_catch_up_policy(
    catchup: str, starts: int
) -> None:
    async with office_on(SqliteStore()) as office:
        office.clock.jump_to(datetime(2026, 10, 25, 0, tzinfo=UTC))
        document = {**HOURLY, "schedule_id": "local", "cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}
        await office.registrar.upsert_schedule(
            {**document, "catchup_policy": catchup, "overlap_policy": "allow"}
        )
        office.clock.jump_to(datetime(2026, 10, 25, 5, tzinfo=UTC))
        await office.work()
        await office.until(datetime(2026, 10, 25, 5, 5, tzinfo=UTC))
        started = sorted(start.nominal_time for start in office.launchers["workflow"].started)
        nominal = instants("Europe/Berlin", "2026-10-25", {30}, {2})
        assert started == nominal[2 - starts :]


@pytest.mark.slow
def test_a_start_finds_its_own_row_committed_and_then_shows_what_came_of_it(tmp_path: Path) -> None:
    """The executor itself looks into the database while it is asked to start, before it answers."""
    seen: dict[str, tuple[str, str] | None] = {}

    def look(key: str) -> None:
        other = sqlite3.connect(tmp_path / "kron.db")
        query = "SELECT schedule_id, run_at FROM schedule_runs WHERE idempotency_key = ?"
        seen[key] = other.execute(query, [key]).fetchone()
        other.close()

    with executing(look) as executor, serving(tmp_path) as (client, _):
        for name, url in (("good", executor.url), ("bad", "http://127.0.0.1:9/")):
            launcher = {"kind": "http", "url": url}
            document = {**WORK, "schedule_id": name, "cron_expr": "* * * * * *", "timezone": "UTC"}
            assert (
                client.post("/schedules/upsert", json={**document, "launcher": launcher}).status_code == 200
            )

        def statuses(name: str) -> set[str]:
            return {run["status"] for run in client.get(f"/schedules/{name}/runs").json()["runs"]}

        wait_for(lambda: len(seen) > 1 and "ENQUEUED" in statuses("good") and "FAILED" in statuses("bad"))
        for key, row in seen.items():
            assert row is not None, "it was started before it was on record"
            instant = int(datetime.fromisoformat(row[1]).timestamp())
            assert key == sha256(f"good:{instant}".encode()).hexdigest()
        assert statuses("good") <= {"ENQUEUED", "STARTED"}
        # A target that does not report has nothing in flight, so none is skipped while another is sent.
        assert statuses("bad") <= {"FAILED", "ENQUEUED"}


async def test_a_fire_time_to_come_is_a_row_and_outlives_the_one_who_planned_it(tmp_path: Path) -> None:
    """A window puts the fire time after the nominal time; in between the engine dies with all its timers."""
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**HOURLY, "window": {"mode": "after", "duration": "30m"}})
        await office.work()
        await office.until(NOON + HOUR + timedelta(milliseconds=1))
        planned = (await office.runs("hourly"))[-1]
        assert planned.status is RunStatus.PENDING
        assert planned.fire_time > 1000 * planned.nominal_time
        office.engine.kill()
    # Its death lets go of the file.
    await store.close()
    fire = datetime.fromtimestamp(planned.fire_time / 1000, UTC)
    other = SqliteStore(path)
    async with office_on(other) as second:
        second.clock.jump_to(NOON + HOUR + MINUTE)
        await second.work()
        await second.until(fire - timedelta(milliseconds=1))
        assert second.launchers["workflow"].started == []
        await second.until(fire)
        assert [start.key for start in second.launchers["workflow"].started] == [planned.key]
        done = (await second.runs("hourly"))[-1]
        assert (done.key, done.fire_time) == (planned.key, planned.fire_time)
        assert done.started_at == planned.fire_time
    await other.close()
