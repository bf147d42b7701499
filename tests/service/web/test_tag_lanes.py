"""Many schedules on one page: nothing that needs attention is left out, and no tenant sees another."""

import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.query import MAX_GROUPED, JobFilter
from kron.core.plan.record import RangeRecord, RunRecord, RunStatus
from kron.core.plan.step import Change
from kron.fronts.service.auth.principal import acting_as
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.web import start_group, tag_lanes
from kron.fronts.service.web.start_group import coming_starts, start_groups_of
from kron.fronts.service.web.timeline import HOUR, MAX_LANES, Zoom, coming_of, view_of
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.auth.test_tenancy import ANN, BOB, a_schedule
from tests.service.web.test_now import NOON, now_of, pages_of
from tests.service.web.test_timeline import a_run

NOW = int(NOON.timestamp()) * 1000


@pytest.fixture
async def registrar() -> AsyncIterator[Registrar]:
    store = SqliteStore()
    yield Registrar(store, SimulatedClock(NOON))
    await store.close()


async def recorded(registrar: Registrar, name: str, *runs: RunRecord, **fields: object) -> None:
    """Write runs of a schedule, and what a field of its record or its ranges have become."""
    ((job, _),) = await registrar.whole.find_jobs(NAMESPACE, JobFilter(names=[name]))
    ranges = fields.pop("ranges", [])
    assert isinstance(ranges, list)
    changed = job._replace(revision=job.revision + 1, **fields)  # type: ignore[arg-type]
    change = Change(changed, job.revision, inserts=list(runs), ranges=ranges)
    await registrar.whole.put(NAMESPACE, created=[], changed=[change], now=NOW)


async def filled(registrar: Registrar, prefix: str = "", count: int = MAX_LANES + 6) -> list[str]:
    names = [f"{prefix}job{number:02}" for number in range(count)]
    for number, name in enumerate(names):
        await registrar.upsert_schedule(a_schedule(name, tags=[f"team{number % 3}"]))
    return names


async def test_failing_skipped_and_dropped_periods_of_many_schedules_are_listed(registrar: Registrar) -> None:
    names = await filled(registrar)
    failed = a_run(NOW - HOUR, RunStatus.FAILED, names[1])
    await recorded(registrar, names[1], failed, failures=1, last_failure_at=NOW - HOUR)
    await recorded(registrar, names[2], a_run(NOW - 2 * HOUR, RunStatus.SKIPPED, names[2]))
    last = (NOW - 3 * HOUR) // 1000
    dropped = RangeRecord(names[3], last - 9, last, 10, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW)
    await recorded(registrar, names[3], ranges=[dropped])
    running = a_run(NOW - HOUR, RunStatus.STARTED, names[4])._replace(ended_at=None, is_open=1)
    await recorded(registrar, names[4], running)
    page = await now_of(registrar)
    assert [(each.name, each.look) for each in page.problems] == [
        (names[1], "bad"), (names[2], "skip"), (names[3], "miss"),
    ]  # fmt: skip
    lanes = {lane.tag: lane for lane in page.timeline.lanes}
    assert [lane.tag for lane in page.timeline.lanes] == ["team1", "team0", "team2"]
    assert lanes["team0"].summary.startswith("10 missed")
    assert lanes["team1"].summary.startswith("1 failed, 1 running")
    assert lanes["team2"].summary.startswith("1 skipped")
    assert [each.title for each in lanes["team1"].stretches] == ["1 running, for 1 h"]
    assert page.notes == []
    assert (await now_of(registrar, tag="team0")).problems[0].name == names[3]


async def test_with_too_many_runs_the_lanes_show_problems_and_the_load_all_runs(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await filled(registrar)
    monkeypatch.setattr(tag_lanes, "MAX_TALLIED", 3)
    ended = [a_run(NOW - HOUR + 1000 * second, RunStatus.SUCCESS, names[0]) for second in range(5)]
    await recorded(registrar, names[0], *ended)
    await recorded(registrar, names[2], a_run(NOW - HOUR, RunStatus.SKIPPED, names[2]))
    page = await now_of(registrar)
    (note,) = page.notes
    assert note.startswith("6 runs are in view: the lanes show those without success")
    assert [each.name for each in page.problems] == [names[2]]
    assert not any("success" in lane.summary for lane in page.timeline.lanes)
    assert page.timeline.load.title == "peak: 5 starts in 5 min from 2026-06-01T11:00:00Z"


async def test_two_tenants_with_many_schedules_see_their_own(registrar: Registrar) -> None:
    for caller in (ANN, BOB):
        with acting_as(caller):
            names = await filled(registrar, f"{caller.name}/")
        await recorded(registrar, names[0], a_run(NOW - HOUR, RunStatus.SKIPPED, names[0]))
    pages = pages_of(registrar)
    for caller in (ANN, BOB):
        with acting_as(caller):
            page = await pages.page(Zoom.DAY, None, None)
            fleet = await pages.fleet()
        assert (page.total, fleet.total) == (MAX_LANES + 6, MAX_LANES + 6)
        assert [each.name for each in page.problems] == [f"{caller.name}/job00"]
        assert sum(lane.schedules for lane in page.timeline.lanes) == MAX_LANES + 6
        assert page.timeline.lanes[0].summary.startswith("1 skipped")
        assert all(name.startswith(f"{caller.name}/") for worst in fleet.worst for name in worst.names)


EXPRESSIONS = ("0 * * * *", "*/7 3-20 * * *", "H H * * *", "30 12 * * 1-5", "0 9 1 * *")


@pytest.mark.parametrize("zoom", list(Zoom))
async def test_start_groups_start_as_often_as_their_schedules_one_by_one(
    zoom: Zoom, registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        fields: dict[str, object] = {"cron_expr": EXPRESSIONS[number % 5], "tags": [f"t{number % 2}"]}
        if number % 7 == 3:
            fields["window"] = {"mode": "after", "duration": "20m"}
        if number % 11 == 5:
            fields["end_at"] = "2026-06-02T00:00:00Z"
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", **fields))
    for number in (5, 6, 7):
        await recorded(registrar, f"job{number:02}", paused=1)
    await recorded(registrar, "job08", paused=1, paused_until=NOW + HOUR)
    await recorded(registrar, "job09", remaining=2)
    monkeypatch.setattr(start_group, "READ_S", 60.0)
    monkeypatch.setattr(start_group, "STARTS_S", 60.0)
    monkeypatch.setattr(start_group, "WINDOWS_S", 60.0)
    query, view = registrar.catalog.query, view_of(zoom, NOW, NOW)
    fleet = await start_groups_of(query, JobFilter())
    states = await query.states([f"job{number:02}" for number in range(40)])
    expected: Counter[int] = Counter()
    for state in states.values():
        expected.update(coming_of(state, view).columns)
    assert fleet.total == 40
    coming = coming_starts(fleet.groups, view)
    assert coming.total() == expected
    assert sum(coming.by_tag().values(), Counter()) == expected
    nominal = sum(coming_of(state, view).is_nominal for state in states.values())
    assert (coming.left_out, coming.nominal, fleet.left_out) == (0, nominal, 0)


async def test_a_schedule_whose_windows_others_with_another_tag_have_too_is_counted_once(
    registrar: Registrar,
) -> None:
    window = {"mode": "after", "duration": "10m"}
    names = {"alone": "team0", "one": "team1", "two": "team1", "three": "team1"}
    for name, tag in names.items():
        await registrar.upsert_schedule(a_schedule(name, cron_expr="0 * * * *", window=window, tags=[tag]))
    fleet = await start_groups_of(registrar.catalog.query, JobFilter())
    assert sorted((one.name, one.jobs) for one in fleet.groups) == sorted((name, 1) for name in names)
    assert (fleet.total, fleet.left_out) == (4, 0)


async def test_schedules_of_long_definitions_are_left_out_and_told(registrar: Registrar) -> None:
    for number in range(30):
        salt = str(number).rjust(MAX_GROUPED if number < 3 else 1)
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", cron_expr="0 3 * * *", salt=salt))
    page = await now_of(registrar)
    assert page.notes == ["The coming starts of 3 schedules are left out: choose a tag to see them."]


async def test_failing_schedules_of_long_definitions_are_read_until_a_page_is_full(
    registrar: Registrar,
) -> None:
    for number in range(90):
        salt = str(number).rjust(60_000)
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", cron_expr="0 3 * * *", salt=salt))
        await recorded(registrar, f"job{number:02}", failures=1, last_failure_at=NOW)
    page = await now_of(registrar)
    (note,) = [note for note in page.notes if "failing" in note]
    assert re.fullmatch(r"At least [67]\d schedules are failing; the newest are listed below.", note)


async def test_definitions_are_read_while_the_budget_lasts(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", cron_expr=f"{number} 3 * * *"))
    monkeypatch.setattr(start_group, "READ_S", 0.0)
    page = await now_of(registrar)
    assert page.notes == ["The coming starts of 30 schedules are left out: choose a tag to see them."]


async def test_more_schedules_of_their_own_times_than_are_read_are_told(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", cron_expr="H 3 * * *"))
    monkeypatch.setattr(start_group, "MAX_SINGLY", 20)
    page = await now_of(registrar)
    assert page.notes == ["The coming starts of 10 schedules are left out: choose a tag to see them."]
    fleet = await pages_of(registrar).fleet()
    assert (fleet.schedules, fleet.total) == (20, 30)
