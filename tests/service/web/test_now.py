"""The page of the present: its picture, what needs attention, and the records of the caller's tenant only."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from kron.fronts.service.auth.principal import acting_as
from kron.fronts.service.client import LocalClient
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import Feedback, run_now, take_feedback
from kron.fronts.service.settings import Settings
from kron.fronts.service.web.now import NowPage, NowPages, Shared
from kron.fronts.service.web.render import render
from kron.fronts.service.web.timeline import HOUR, Zoom
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.auth.test_tenancy import ANN, BOB, a_schedule
from tests.service.registrar_rig import SECOND, office_on

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HTTP = {"kind": "http", "url": "https://example.com/start"}


@pytest.fixture
async def registrar() -> AsyncIterator[Registrar]:
    store = SqliteStore()
    yield Registrar(store, SimulatedClock(NOON))
    await store.close()


def pages_of(registrar: Registrar) -> NowPages:
    return NowPages(registrar, LocalClient(registrar, Settings()))


async def now_of(registrar: Registrar, zoom: Zoom = Zoom.DAY, tag: str | None = None) -> NowPage:
    return await pages_of(registrar).page(zoom, None, tag)


async def test_two_tenants_see_their_own_lanes_and_problems() -> None:
    store = SqliteStore()
    async with office_on(store) as office:
        registrar = office.registrar
        await office.work()
        for caller in (ANN, BOB):
            with acting_as(caller):
                name = f"{caller.name}/daily"
                await registrar.upsert_schedule(a_schedule(name, launcher=HTTP))
                run = await run_now(registrar, name)
                await office.until(office.clock.now() + SECOND)
                await take_feedback(registrar, run["idempotency_key"], Feedback("FAILED", error=f"of {name}"))
        shared = pages_of(registrar)
        for caller, other in ((ANN, "bob"), (BOB, "ann")):
            with acting_as(caller):
                page = await shared.page(Zoom.DAY, None, None)
            assert [lane.label for lane in page.timeline.lanes] == [f"{caller.name}/daily"]
            assert page.total == 1
            text = render(
                "now.html",
                it=page,
                zooms=list(Zoom),
                at="",
                tag="",
                now="2026-06-01T12:00:00Z",
                may_run=True,
                may_write=True,
            )
            assert f"A manual run failed: of {caller.name}/daily." in text
            assert other not in text
    await store.close()


async def test_windows_are_in_the_legend_where_they_are_drawn(registrar: Registrar) -> None:
    await registrar.upsert_schedule(a_schedule("exact"))
    assert not (await now_of(registrar)).timeline.has_windows
    await registrar.upsert_schedule(
        a_schedule("wide", cron_expr="0 * * * *", window={"mode": "after", "duration": "20m"})
    )
    page = await now_of(registrar)
    assert page.timeline.has_windows
    known = {"at": "", "tag": "", "now": "2026-06-01T12:00:00Z", "may_run": True, "may_write": True}
    legend = render("now.html", it=page, zooms=list(Zoom), **known).partition('class="legend"')[2]
    assert "</svg>window</li>" in legend


async def test_a_fleet_is_narrowed_to_a_tag(registrar: Registrar) -> None:
    for number in range(30):
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", tags=[f"team{number % 3}"]))
    whole = await now_of(registrar)
    assert whole.timeline.is_grouped
    assert [(lane.tag, lane.schedules) for lane in whole.timeline.lanes] == [
        ("team0", 10), ("team1", 10), ("team2", 10),
    ]  # fmt: skip
    narrow = await now_of(registrar, tag="team1")
    assert [lane.label for lane in narrow.timeline.lanes] == [f"job{n:02}" for n in range(1, 30, 3)]
    assert (await now_of(registrar, tag="no\0tag")).timeline.lanes == []


async def test_a_moved_view_lists_the_problems_of_its_time_alone() -> None:
    store = SqliteStore()
    async with office_on(store) as office:
        await office.work()
        await office.registrar.upsert_schedule(a_schedule("job", cron_expr="* * * * * *", launcher=HTTP))
        await office.registrar.pause_schedule("job", True)
        await office.until(office.clock.now() + timedelta(hours=2))
        await office.registrar.pause_schedule("job", False)
        await office.until(office.clock.now() + SECOND)
        now = office.registrar.now()
        pages = pages_of(office.registrar)
        present, past = [await pages.page(Zoom.HOUR, at, None) for at in (None, now - 30 * HOUR)]
        assert [(each.name, each.look) for each in present.problems] == [("job", "miss")]
        assert (past.problems, past.timeline.lanes[0].summary) == ([], "nothing in view")
    await store.close()


async def test_viewers_share_a_young_picture_and_an_error_is_not_shared() -> None:
    clock, made = SimulatedClock(NOON), 0
    shared: Shared[int] = Shared(clock)

    async def make() -> int:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        if made == 2:
            raise RuntimeError("first")
        return made

    assert await asyncio.gather(*(shared.get("a", make) for _ in range(100))) == [1] * 100
    await clock.advance_to(datetime(2026, 6, 1, 12, 0, 10, tzinfo=UTC))
    with pytest.raises(RuntimeError, match="first"):
        await shared.get("a", make)
    assert await shared.get("a", make) == 3
    assert await shared.get("b", make) == 4


async def test_a_cancelled_viewer_does_not_cancel_the_others() -> None:
    shared: Shared[int] = Shared(SimulatedClock(NOON))
    gate = asyncio.Event()

    async def make() -> int:
        await gate.wait()
        return 1

    first, second = (asyncio.create_task(shared.get("a", make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == 1
