"""Which past periods a backfill runs, how a history is paged, and which starts a preview promises."""

from datetime import UTC, datetime, timedelta

import pytest

from kron.app.backfill import MAX_PERIODS, Only, PeriodRange
from kron.core.errors import InvalidOptionError
from kron.core.plan.record import RunKind, RunStatus, key_of
from kron.fronts.service.runs import Feedback, Page, backfill_schedule, runs_page, take_feedback
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.registrar_rig import HOURLY, MINUTE, MINUTELY, NOON, SECOND, Office, office_on

NOON_S = int(NOON.timestamp())
REMOTE = {"kind": "http", "url": "http://127.0.0.1:9/start", "reports": True}
HOUR = timedelta(hours=1)


async def minutes_of(office: Office, only: Only, *, request: str) -> list[int]:
    """Return the minutes after noon that a backfill of the first hour adds."""
    wanted = PeriodRange(start=NOON_S + 60, end=NOON_S + 3_600, only=only)
    done = await backfill_schedule(office.registrar, "minutely", wanted, request_id=request)
    runs = done["runs"]
    assert isinstance(runs, list)
    return [(int(datetime.fromisoformat(run["run_at"]).timestamp()) - NOON_S) // 60 for run in runs]


# --- backfills -------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", [Only.MISSING, Only.FAILED])
async def test_a_backfill_does_not_repeat_periods_that_run_or_wait(store: Store, only: Only) -> None:
    """Minute 1 runs at its executor, 2 and 3 wait in the queue, 0 has never run."""
    async with office_on(store) as office:
        fields = {"launcher": REMOTE, "overlap_policy": "queue"}
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        office.launchers["http:reports"].then("minutely", Step.HANG)
        await office.work()
        await office.until(NOON + 3 * MINUTE + SECOND)
        assert await office.seen("minutely") == ["ENQUEUED due", "PENDING queued", "PENDING queued"]
        assert await minutes_of(office, only, request="queued") == []
        (running, *_) = await office.runs("minutely")
        await take_feedback(office.registrar, running.key, Feedback("STARTED"))
        assert await minutes_of(office, only, request="started") == []


async def test_a_backfill_of_failures_does_not_repeat_one_that_is_being_repeated(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        office.launchers["workflow"].then("minutely", Step.FAIL, Step.HANG)
        await office.work()
        await office.until(NOON + MINUTE + SECOND)
        assert await minutes_of(office, Only.FAILED, request="first") == [1]
        await office.until(NOON + MINUTE + 2 * SECOND)
        own, repeated = sorted(await office.runs("minutely"), key=lambda run: run.kind is RunKind.BACKFILL)
        assert (own.status, repeated.status) == (RunStatus.FAILED, RunStatus.STARTED)
        assert await minutes_of(office, Only.FAILED, request="second") == []


async def test_a_backfill_covers_as_many_periods_as_its_bound_and_not_one_more(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        first = NOON_S - 60 * MAX_PERIODS
        most = PeriodRange(start=first, end=NOON_S)
        done = await backfill_schedule(office.registrar, "minutely", most, dry_run=True)
        assert done["count"] == MAX_PERIODS
        one_more = PeriodRange(start=first - 60, end=NOON_S)
        with pytest.raises(InvalidOptionError, match="more than 1000 periods"):
            await backfill_schedule(office.registrar, "minutely", one_more, dry_run=True)


async def test_a_period_without_a_record_is_backfilled_in_its_own_row_and_a_recorded_one_beside_it(
    store: Store,
) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        await office.until(NOON + MINUTE + SECOND)
        wanted = PeriodRange(start=NOON_S - 60, end=NOON_S + 120, only=Only.ALL)
        done = await backfill_schedule(office.registrar, "minutely", wanted, request_id="b")
        keys = [run["idempotency_key"] for run in done["runs"]]
        # Two periods before the creation, and the first one after it, which ran.
        assert keys[:2] == [key_of("minutely", NOON_S - 60), key_of("minutely", NOON_S)]
        assert keys[2] != key_of("minutely", NOON_S + 60)
        await office.until(NOON + MINUTE + 2 * SECOND)
        kinds = {run.key: run.kind for run in await office.runs("minutely")}
        assert [kinds[key] for key in keys] == [RunKind.PERIOD, RunKind.PERIOD, RunKind.BACKFILL]


# --- pages -----------------------------------------------------------------------------------------


async def pages_of(office: Office, limit: int) -> list[Page]:
    """Return all pages of a schedule's history."""
    pages = [await runs_page(office.registrar, "minutely", limit=limit)]
    while pages[-1].following is not None:
        pages.append(await runs_page(office.registrar, "minutely", limit=limit, place=pages[-1].following))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_periods_dropped_together_are_shown_on_exactly_one_page(limit: int) -> None:
    """Two pauses drop periods between runs; the newest dropped period of each is backfilled."""
    async with office_on(SqliteStore()) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        for hour in range(2):
            await office.until(NOON + hour * HOUR + 2 * MINUTE)
            await office.registrar.pause_schedule("minutely", True)
            await office.until(NOON + hour * HOUR + 50 * MINUTE + SECOND)
            await office.registrar.pause_schedule("minutely", False)
            await office.until(NOON + hour * HOUR + 50 * MINUTE + 2 * SECOND)
            newest = NOON_S + 3_600 * hour + 50 * 60
            wanted = PeriodRange(start=newest, end=newest + 1, only=Only.ALL)
            await backfill_schedule(office.registrar, "minutely", wanted)
        await office.until(NOON + 2 * HOUR)
        (whole,) = await pages_of(office, 1_000)
        assert [dropped["last_run_at"] for dropped in whole.dropped] == [
            "2026-01-01T13:50:00Z",
            "2026-01-01T12:50:00Z",
        ]
        pages = await pages_of(office, limit)
        assert [dropped for page in pages for dropped in page.dropped] == whole.dropped
        assert [run for page in pages for run in page.runs] == whole.runs
        # Each is shown where it belongs: after every newer run, and before every older one.
        for page in pages:
            for dropped in page.dropped:
                last = dropped["last_run_at"]
                assert page is pages[-1] or last >= page.runs[-1]["run_at"]
                assert page is pages[0] or last < pages[pages.index(page) - 1].runs[-1]["run_at"]


# --- previews --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"window": {"mode": "after", "duration": "30m"}}, id="a window"),
        pytest.param({"jitter_ms": 60_000}, id="jitter"),
        pytest.param({"window": {"mode": "around", "duration": "20m"}, "jitter_ms": 30_000}, id="both"),
    ],
)
async def test_a_schedules_preview_shows_the_instants_at_which_it_then_starts(
    fields: dict[str, object],
) -> None:
    async with office_on(SqliteStore()) as office:
        await office.registrar.upsert_schedule({**HOURLY, **fields})
        shown = (await office.registrar.get_schedule("hourly"))["preview"]
        assert isinstance(shown, list)
        promised = [datetime.fromisoformat(time) for time in shown]
        await office.work()
        for hour in range(1, 7):
            await office.until(NOON + hour * HOUR)
        runs = await office.runs("hourly")
        started = sorted(run.started_at for run in runs if run.started_at is not None)
        instants = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at) for at in started]
        assert len(promised) == 5
        assert instants[:5] == promised
        # Seeded, so the same on every machine: no start is at its full hour.
        assert all(at.minute or at.second for at in promised)
