"""Runs of the service: by hand, backfilled, reported of by executors, looked through (SPEC 3: 3, 7, 9)."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from kron.app.backfill import Only, PeriodRange
from kron.core.errors import ConflictError, InvalidInstantError, InvalidOptionError, UnknownRunError
from kron.core.plan.query import RunCursor
from kron.core.plan.record import RunKind, key_of
from kron.core.plan.step import JobState
from kron.fronts.service.errors import UnknownScheduleError
from kron.fronts.service.runs import (
    Feedback,
    backfill_schedule,
    latest_page,
    run_now,
    runs_page,
    take_feedback,
    why,
)
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.registrar_rig import HOURLY, MINUTE, MINUTELY, NOON, SECOND, Office, office_on

NOON_S = int(NOON.timestamp())
REMOTE = {"kind": "http", "url": "http://127.0.0.1:9/start", "reports": True}


async def test_a_run_by_hand_is_its_own_and_the_same_request_runs_once(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(HOURLY)
        await office.work()
        first = await run_now(office.registrar, "hourly", "r1")
        await office.until(NOON + SECOND)
        again = await run_now(office.registrar, "hourly", "r1")
        other = await run_now(office.registrar, "hourly")
        await office.until(NOON + 2 * SECOND)
        assert first["idempotency_key"] == again["idempotency_key"] != other["idempotency_key"]
        assert (first["status"], again["status"], again["kind"]) == ("PENDING", "SUCCESS", "manual")
        assert len(office.launchers["workflow"].started) == 2
        with pytest.raises(UnknownScheduleError):
            await run_now(office.registrar, "nobody")


async def failing_history(office: Office) -> None:
    """Let minutes 1 to 4 succeed, fail, be skipped, and be missed in a pause; then two more succeed."""
    launcher = office.launchers["workflow"]
    launcher.then("minutely", Step.SUCCEED, Step.FAIL, Step.HANG)
    await office.registrar.upsert_schedule(MINUTELY)
    await office.work()
    await office.until(NOON + 4 * MINUTE)
    assert await office.seen("minutely") == ["SUCCESS due", "FAILED due", "STARTED due", "SKIPPED active"]
    launcher.end(launcher.running[0])
    await office.until(NOON + 4 * MINUTE + SECOND)


@pytest.mark.parametrize(
    ("only", "minutes"),
    [
        pytest.param(Only.MISSING, [-2, -1, 0, 3, 4], id="missing"),
        pytest.param(Only.FAILED, [2], id="failed"),
        pytest.param(Only.ALL, [-2, -1, 0, 1, 2, 3, 4], id="all"),
    ],
)
async def test_a_backfill_runs_what_is_meant_and_a_dry_run_only_counts(
    store: Store, only: Only, minutes: list[int]
) -> None:
    async with office_on(store) as office:
        await failing_history(office)
        before, started = await office.runs("minutely"), len(office.launchers["workflow"].started)
        wanted = PeriodRange(start=NOON_S - 120, end=NOON_S + 600, only=only)
        foreseen = await backfill_schedule(office.registrar, "minutely", wanted, request_id="b", dry_run=True)
        assert await office.runs("minutely") == before
        done = await backfill_schedule(office.registrar, "minutely", wanted, request_id="b")
        assert (done["runs"], done["count"]) == (foreseen["runs"], len(minutes))
        await office.until(NOON + 4 * MINUTE + 2 * SECOND)
        new = office.launchers["workflow"].started[started:]
        assert sorted((start.nominal_time - NOON_S) // 60 for start in new) == minutes
        own = [run for run in await office.runs("minutely") if run.kind is RunKind.PERIOD]
        # A handled period keeps its outcome; one from before the schedule's creation gets its own row.
        assert [run for run in own if run.nominal_time > NOON_S] == before
        again = await backfill_schedule(office.registrar, "minutely", wanted, request_id="b")
        assert (again["count"], again["already_asked"]) == (0, len(minutes))


async def test_a_backfill_of_all_periods_says_how_many_were_requested_before(store: Store) -> None:
    async with office_on(store) as office:
        await failing_history(office)
        wanted = PeriodRange(start=NOON_S - 120, end=NOON_S + 600, only=Only.ALL)
        first = await backfill_schedule(office.registrar, "minutely", wanted, request_id="b")
        await office.until(NOON + 4 * MINUTE + 2 * SECOND)
        for dry_run in (True, False):
            again = await backfill_schedule(
                office.registrar, "minutely", wanted, request_id="c", dry_run=dry_run
            )
            assert (first["already_asked"], again["already_asked"]) == (0, first["count"])
            assert again["count"] == first["count"], "another request runs all periods again"


async def test_a_backfill_leaves_what_is_still_to_be_judged_alone(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "paused": True})
        await office.work()
        await office.until(NOON + 3 * MINUTE + SECOND)
        wanted = PeriodRange(start=NOON_S, end=NOON_S + 300)
        done = await backfill_schedule(office.registrar, "minutely", wanted)
        assert (done["count"], done["still_to_be_judged"]) == (1, 4)
        assert done["starts"] == "on_resume"


@pytest.mark.parametrize(
    "fields", [{"paused": True}, {"policy": {"suspend": True}}], ids=["paused", "suspended"]
)
async def test_a_stopped_schedule_runs_manual_runs_at_once_and_backfills_when_it_is_resumed(
    store: Store, fields: dict[str, object]
) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        await office.work()
        wanted = PeriodRange(start=NOON_S - 120, end=NOON_S)
        for dry_run in (True, False):
            done = await backfill_schedule(office.registrar, "minutely", wanted, dry_run=dry_run)
            assert (done["count"], done["starts"]) == (2, "on_resume")
        requested = await run_now(office.registrar, "minutely")
        assert "a manual run still starts" in str(requested["note"])
        await office.until(NOON + 5 * SECOND)
        assert await office.seen("minutely") == ["PENDING asked", "PENDING asked", "SUCCESS asked"]
        await office.registrar.upsert_schedule({**MINUTELY, "paused": False})
        await office.until(NOON + 6 * SECOND)
        assert await office.seen("minutely") == ["SUCCESS asked"] * 3
        again = await backfill_schedule(office.registrar, "minutely", wanted)
        assert (again["count"], again["already_asked"], again["starts"]) == (0, 2, "now")
        assert (await run_now(office.registrar, "minutely"))["note"] is None


async def test_a_backfill_of_too_much_or_of_nothing_is_refused(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        wanted = PeriodRange(start=NOON_S - 86_400, end=NOON_S)
        with pytest.raises(InvalidOptionError, match="more than 1000 periods"):
            await backfill_schedule(office.registrar, "minutely", wanted)
        with pytest.raises(InvalidOptionError, match="later than from"):
            PeriodRange(start=NOON_S, end=NOON_S)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(["STARTED"], ("STARTED", None), id="started"),
        pytest.param(["STARTED", "SUCCESS"], ("SUCCESS", "success"), id="succeeded"),
        pytest.param(["SUCCESS", "SUCCESS"], ("SUCCESS", "success"), id="said twice"),
        pytest.param(["FAILED", "SUCCESS", "STARTED"], ("FAILED", "failed"), id="contradicted"),
    ],
)
async def test_an_executor_says_what_became_of_a_run(
    store: Store, said: list[str], expected: tuple[str, str | None]
) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "launcher": REMOTE})
        office.launchers["http:reports"].then("minutely", Step.HANG)
        await office.work()
        await office.until(NOON + MINUTE)
        assert await office.seen("minutely") == ["ENQUEUED due"]
        key = key_of("minutely", NOON_S + 60)
        for status in said:
            answer = await take_feedback(office.registrar, key, Feedback(status, run_id="exec-7"))
        assert (answer["status"], answer["result"], answer["run_id"]) == (*expected, "exec-7")
        await office.until(NOON + MINUTE + SECOND)
        (run,) = await office.runs("minutely")
        assert (run.status, run.run_id) == (expected[0], "exec-7")


class Interrupted(SqliteStore):
    """A store in which something happens just before the next time that jobs are read."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()
        return await super().cases(namespace, identities)


async def test_two_reports_of_one_run_at_a_time_do_not_overwrite_each_other() -> None:
    store = Interrupted()
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "launcher": REMOTE})
        office.launchers["http:reports"].then("minutely", Step.HANG)
        await office.work()
        await office.until(NOON + MINUTE)
        key = key_of("minutely", NOON_S + 60)
        store.meanwhile = lambda: take_feedback(office.registrar, key, Feedback("SUCCESS"))
        late = await take_feedback(office.registrar, key, Feedback("FAILED"))
        assert (late["status"], await office.seen("minutely")) == ("SUCCESS", ["SUCCESS due"])
    await store.close()


async def test_what_waits_for_an_end_starts_when_it_is_reported(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "launcher": REMOTE, "overlap_policy": "queue"})
        office.launchers["http:reports"].then("minutely", Step.HANG, Step.HANG)
        await office.work()
        await office.until(NOON + 2 * MINUTE + SECOND)
        assert await office.seen("minutely") == ["ENQUEUED due", "PENDING queued"]
        await take_feedback(office.registrar, key_of("minutely", NOON_S + 60), Feedback("SUCCESS"))
        await office.until(NOON + 2 * MINUTE + 2 * SECOND)
        assert await office.seen("minutely") == ["SUCCESS due", "ENQUEUED due"]


async def test_a_failure_an_executor_reports_counts_and_is_tried_again(store: Store) -> None:
    async with office_on(store) as office:
        fields = {"launcher": REMOTE, "retry_delay": "10s", "pause_after_failures": 2}
        await office.registrar.upsert_schedule({**HOURLY, **fields})
        office.launchers["http:reports"].then("hourly", Step.HANG, Step.HANG)
        await office.work()
        await office.until(NOON + timedelta(hours=1))
        key = key_of("hourly", NOON_S + 3_600)
        failed = await take_feedback(office.registrar, key, Feedback("FAILED", error="no space left"))
        assert failed["error"] == "no space left"
        await office.until(NOON + timedelta(hours=1, seconds=11))
        late = await take_feedback(office.registrar, key, Feedback("SUCCESS", attempt=1))
        assert (late["status"], late["attempt"]) == ("ENQUEUED", 2)
        await take_feedback(office.registrar, key, Feedback("FAILED", attempt=2))
        found = await office.registrar.get_schedule("hourly")
        assert (found["paused"], found["paused_because"]) == (True, "2 failures in a row")


async def test_feedback_about_what_nobody_sent_out_is_refused(store: Store) -> None:
    async with office_on(store) as office:
        with pytest.raises(UnknownRunError):
            await take_feedback(office.registrar, "f" * 64, Feedback("SUCCESS"))
        await office.registrar.upsert_schedule(HOURLY)
        asked = await run_now(office.registrar, "hourly")
        with pytest.raises(ConflictError):
            await take_feedback(office.registrar, str(asked["idempotency_key"]), Feedback("SUCCESS"))


async def test_runs_are_looked_through_newest_first_and_none_is_shown_twice_or_left_out(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        await office.until(NOON + 3 * MINUTE)
        for number in range(4):
            await run_now(office.registrar, "minutely", str(number))
        await office.until(NOON + 5 * MINUTE)
        whole = await runs_page(office.registrar, "minutely", limit=100)
        assert (len(whole.runs), whole.following) == (9, None)
        for limit in (1, 2, 3):
            shown, place = [], None
            for _ in range(9):
                page = await runs_page(office.registrar, "minutely", limit=limit, place=place)
                shown += page.runs
                place = page.following
                if place is None:
                    break
            assert shown == whole.runs
        first = whole.runs[-1]
        assert (first["run_at"], first["status"], first["reason"]) == (
            "2026-01-01T12:01:00Z",
            "SUCCESS",
            "due",
        )
        assert first["sentence"] == "started on schedule"
        with pytest.raises(UnknownScheduleError):
            await runs_page(office.registrar, "nobody", limit=1)


async def test_what_was_dropped_together_is_shown_beside_the_runs(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "paused": True})
        await office.work()
        await office.until(NOON + 100 * MINUTE + SECOND)
        await office.registrar.pause_schedule("minutely", False)
        await office.until(NOON + 102 * MINUTE)
        newest = await runs_page(office.registrar, "minutely", limit=1)
        assert (len(newest.runs), newest.dropped) == (1, [])
        rest = await runs_page(office.registrar, "minutely", limit=1, place=newest.following)
        (dropped,) = rest.dropped
        assert (dropped["periods"], dropped["reason"]) == (100, "catchup_none")


async def test_the_runs_of_all_schedules_are_looked_through(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.registrar.upsert_schedule({**MINUTELY, "schedule_id": "other"})
        office.launchers["workflow"].then("other", Step.FAIL)
        await office.work()
        await office.until(NOON + 3 * MINUTE)
        shown: list[object] = []
        place: RunCursor | None = None
        for _ in range(3):
            runs, place = await latest_page(office.registrar, limit=2, before=place)
            shown += [run["run_at"] for run in runs]
        assert shown == [f"2026-01-01T12:0{minute}:00Z" for minute in (3, 3, 2, 2, 1, 1)]
        assert place is None


async def test_why_answers_in_the_words_of_the_service(store: Store) -> None:
    async with office_on(store) as office:
        await failing_history(office)
        answer = await why(office.registrar, "minutely", "2026-01-01T12:04:00Z")
        assert (answer["schedule_id"], answer["outcome"], answer["code"]) == ("minutely", "skipped", "active")
        with pytest.raises(UnknownScheduleError):
            await why(office.registrar, "nobody", "2026-01-01T12:04:00Z")
        with pytest.raises(InvalidInstantError):
            await why(office.registrar, "minutely", "at noon")
