"""Lists in another order than by name, and the runs of a schedule by status, each within its bound."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from kron.app.query import HistoryPage, PageStart
from kron.core.errors import InvalidOptionError
from kron.core.plan.query import JobFilter
from kron.core.plan.record import RunStatus
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.web.schedule_pages import SCHEDULES, Pages, SortKey, listed_schedules
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from kron.testing.store_contract import NOW, a_change, a_run
from tests.service.auth.test_tenancy import a_schedule

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
ALL = JobFilter()
SPACE = "service"


@pytest.fixture
async def store() -> AsyncIterator[SqliteStore]:
    store = SqliteStore()
    yield store
    await store.close()


@pytest.fixture
async def registrar(store: SqliteStore) -> Registrar:
    return Registrar(store, SimulatedClock(NOON))


async def names_of(registrar: Registrar, sort: SortKey, cursor: str | None = None) -> list[str]:
    listed, _ = await listed_schedules(Pages(registrar), ALL, sort, cursor)
    return [row.name for row in listed.rows]


async def test_schedules_are_sorted_by_their_next_start_and_paused_ones_are_last(
    registrar: Registrar,
) -> None:
    for name, hour in (("a", 18), ("b", 13), ("c", 15), ("d", 14)):
        await registrar.upsert_schedule(a_schedule(name, cron_expr=f"0 {hour} * * *", timezone="UTC"))
    await registrar.pause_schedule("d", True)
    assert await names_of(registrar, SortKey.NEXT) == ["b", "c", "a", "d"]


async def test_schedules_are_sorted_by_failures_in_a_row(store: SqliteStore, registrar: Registrar) -> None:
    for name in "abc":
        await registrar.upsert_schedule(a_schedule(name))
    for state in await store.cases(SPACE):
        count = {"a": 0, "b": 2, "c": 5}[state.job.identity]
        change = a_change(state.job, failures=count, last_failure_at=1)
        await store.put(SPACE, created=[], changed=[change], now=NOW)
    assert await names_of(registrar, SortKey.FAILURES) == ["c", "b", "a"]


async def test_schedules_are_sorted_by_the_duration_of_their_last_ended_run(
    store: SqliteStore, registrar: Registrar
) -> None:
    for name in "abcd":
        await registrar.upsert_schedule(a_schedule(name))
    for state in await store.cases(SPACE):
        change = a_change(state.job)
        name = state.job.identity
        took = {"a": 5, "b": 70, "c": 30}.get(name)
        if took is not None:
            ended = {"status": RunStatus.SUCCESS, "is_open": 0, "ended_at": NOW + took}
            change.inserts += [a_run(name, 60, **ended), a_run(name, 120)]
        await store.put(SPACE, created=[], changed=[change], now=NOW)
    assert await names_of(registrar, SortKey.DURATION) == ["b", "c", "a", "d"]


async def test_sorted_schedules_have_pages_without_gap_or_repetition(registrar: Registrar) -> None:
    names = [f"job{number:03}" for number in range(SCHEDULES + 5)]
    for name in names:
        await registrar.upsert_schedule(a_schedule(name))
    first, refused = await listed_schedules(Pages(registrar), ALL, SortKey.FAILURES, None)
    assert not refused
    assert (first.after, first.total) == (SCHEDULES, len(names))
    rest = await Pages(registrar).sorted_overview(ALL, SortKey.FAILURES, SCHEDULES)
    assert [row.name for row in (*first.rows, *rest.rows)] == names
    assert rest.after is None
    with pytest.raises(InvalidOptionError):
        await names_of(registrar, SortKey.NEXT, "WyJhIl0")


@pytest.mark.parametrize("order", [SortKey.NEXT, SortKey.DURATION, SortKey.FAILURES])
async def test_too_many_schedules_are_listed_by_name(registrar: Registrar, order: SortKey) -> None:
    for name in ("a", "b"):
        await registrar.upsert_schedule(a_schedule(name, cron_expr="* * * * *"))
    pages = Pages(registrar)
    pages.max_sorted = 1
    listed, refused = await listed_schedules(pages, ALL, order, None)
    assert refused
    assert [row.name for row in listed.rows] == ["a", "b"]


async def test_of_too_many_schedules_those_are_sorted_that_start_first(registrar: Registrar) -> None:
    times = {"a": "0 18 * * *", "b": "0 13 * * *", "c": "0 9 5 * *", "d": "0 9 1 1 *", "e": "30 12 * * *"}
    for name, expression in times.items():
        await registrar.upsert_schedule(a_schedule(name, cron_expr=expression, timezone="UTC"))
    await registrar.pause_schedule("e", True)
    pages = Pages(registrar)
    for most, names, words in (
        (3, ["b", "a", "c"], "the 3 schedules with a period within a month"),
        (2, ["b", "a"], "the 2 schedules with a period within a day"),
        (1, ["b"], "the 1 schedule with a period within an hour"),
    ):
        pages.max_sorted = most
        listed, refused = await listed_schedules(pages, ALL, SortKey.NEXT, None)
        assert not refused
        assert [row.name for row in listed.rows] == names
        assert listed.note == f"Sorted: {words}, of 5 that match."
    _, refused = await listed_schedules(pages, JobFilter(tag="none"), SortKey.NEXT, None)
    assert not refused


async def test_of_too_many_schedules_the_failing_ones_are_sorted(
    store: SqliteStore, registrar: Registrar
) -> None:
    for name in "abcd":
        await registrar.upsert_schedule(a_schedule(name))
    for state in await store.cases(SPACE):
        count = {"b": 2, "c": 5}.get(state.job.identity, 0)
        change = a_change(state.job, failures=count, last_failure_at=1)
        await store.put(SPACE, created=[], changed=[change], now=NOW)
    pages = Pages(registrar)
    pages.max_sorted = 2
    listed, refused = await listed_schedules(pages, ALL, SortKey.FAILURES, None)
    assert not refused
    assert [row.name for row in listed.rows] == ["c", "b"]
    assert listed.note == "Sorted: the 2 schedules that are failing, of 4 that match."


async def test_of_too_many_schedules_those_with_the_newest_runs_are_sorted_by_duration(
    store: SqliteStore, registrar: Registrar
) -> None:
    for name in "abcd":
        await registrar.upsert_schedule(a_schedule(name))
    for state in await store.cases(SPACE):
        name, change = state.job.identity, a_change(state.job)
        at, took = {"a": (4, 5), "b": (3, 70), "c": (2, 900), "d": (1, 9)}[name]
        ended = {"status": RunStatus.SUCCESS, "is_open": 0, "ended_at": NOW + took}
        change.inserts += [a_run(name, 60 * at, created_at=NOW + at, **ended)]
        await store.put(SPACE, created=[], changed=[change], now=NOW)
    pages = Pages(registrar)
    pages.max_sorted = 2
    listed, refused = await listed_schedules(pages, ALL, SortKey.DURATION, None)
    assert not refused
    assert [row.name for row in listed.rows] == ["b", "a"]
    assert listed.note == "Sorted: the 2 schedules with one of the newest 2 runs, of 4 that match."


async def test_the_runs_of_a_schedule_with_a_status_have_pages_without_gap(
    store: SqliteStore, registrar: Registrar
) -> None:
    await registrar.upsert_schedule(a_schedule("a"))
    (state,) = await store.cases(SPACE)
    change = a_change(state.job)
    change.inserts += [
        a_run("a", 60 * number, status=RunStatus.FAILED if number % 3 == 0 else RunStatus.SUCCESS, is_open=0)
        for number in range(1, 31)
    ]
    await store.put(SPACE, created=[], changed=[change], now=NOW)
    query = registrar.catalog.query

    async def page(limit: int, start: PageStart | None = None) -> HistoryPage:
        return await query.run_page("a", limit=limit, start=start, status=RunStatus.FAILED)

    times: list[int] = []
    start: PageStart | None = None
    for _ in range(4):
        listed = await page(3, start)
        times += [run.nominal_time for run in listed.runs]
        start = listed.following
    assert start is None
    assert times == [60 * number for number in range(30, 0, -3)]
    assert (await query.run_page("a", limit=9, status=RunStatus.MISSED)).runs == []
    detail = await Pages(registrar).schedule("a", status=RunStatus.FAILED)
    assert {entry.mark.look for entry in detail.history} == {"bad"}
