"""What users of other schedulers suffered from missed, doubled and late runs, and what Kron does instead.

Each test is named after what does not happen here; the row is that of our list of complaints. Engine, store
and file are real, time is virtual. Starts are counted in minutes after noon.
"""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kron.app.query import Query
from kron.core.errors import OwnedError, StoreError
from kron.core.job.job import Job
from kron.core.plan.record import key_of
from kron.core.plan.report import RunEvent
from kron.core.time.instant import datetime_of
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, Step
from tests.engine_stage import DAY, HOUR, MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "kron.db"))
    yield store
    await store.close()


@pytest.fixture
async def stage(file: SqliteStore) -> AsyncIterator[Stage]:
    async with stage_on(file, survives=True) as made:
        yield made


async def die(stage: Stage, file: SqliteStore, *, away: timedelta = timedelta(0)) -> None:
    """Die without a word, be away for a while, and begin again."""
    stage.engine.kill()
    file.drop_locks()
    await stage.advance(away)
    stage.engine = stage.make_engine()
    await stage.run()


async def dropped(stage: Stage) -> int:
    """Return how many periods share a counted record."""
    return sum(shared.periods for shared in await stage.store.ranges(SPACE, "job"))


# --- missed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("catchup", ["none", "once", "all"])
async def test_row_14_more_than_a_hundred_missed_periods_do_not_stop_a_job_for_ever(
    stage: Stage, file: SqliteStore, catchup: str
) -> None:
    await stage.add(job_of(catchup=catchup, max_catchup=3))
    await stage.run()
    await stage.until(NOON + MINUTE)
    await die(stage, file, away=30 * DAY)
    await stage.advance(3 * MINUTE)
    since = 30 * 24 * 60 + 1
    assert stage.starts()[-4:] == [since, since + 1, since + 2, since + 3]
    assert await dropped(stage) + len(await stage.runs()) == since + 3


async def test_row_14_a_long_pause_does_not_stop_a_job_either(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.pause()
    await stage.advance(30 * DAY)
    await stage.resume()
    await stage.advance(2 * MINUTE)
    assert len(stage.starts()) == 2


async def test_row_25_a_weekly_job_runs_although_every_day_brings_a_restart(stage: Stage) -> None:
    # 2026-01-01 is a Thursday.
    await stage.add(job_of(schedule="0 6 * * 0"))
    await stage.run()
    for _ in range(20):
        await stage.restart(after=5 * MINUTE)
        await stage.advance(DAY - 5 * MINUTE)
    sundays = [datetime(2026, 1, day, 6, tzinfo=NOON.tzinfo) for day in (4, 11, 18)]
    assert [datetime_of(start.nominal_time) for start in stage.launcher.started] == sundays


async def test_row_25_two_weeks_of_seconds_are_not_replayed(stage: Stage, file: SqliteStore) -> None:
    await stage.add(job_of(schedule="*/5 * * * * *", max_catchup=10))
    await stage.run()
    await die(stage, file, away=14 * DAY)
    await stage.advance(SECOND)
    # Ten that were missed, and those of the last minute, which are merely late.
    assert len(stage.launcher.started) <= 10 + 13
    assert await dropped(stage) == 14 * 24 * 3600 // 5 - len(stage.launcher.started)


async def test_row_28_nothing_is_dropped_without_a_trace(stage: Stage, file: SqliteStore) -> None:
    """Hours with an outage, a pause, skipped runs and a failure: each of their minutes has its outcome."""
    await stage.add(job_of(catchup="none", overlap="skip"), script=[Step.FAIL, Step.HANG])
    await stage.run()
    await stage.until(NOON + HOUR / 2)
    await stage.report(stage.launcher.running[0], RunEvent.SUCCESS)
    await die(stage, file, away=HOUR)
    await stage.advance(HOUR / 4)
    await stage.pause()
    await stage.advance(HOUR)
    await stage.resume()
    await stage.until(NOON + 3 * HOUR)
    outcomes: Counter[str | None] = Counter()
    for minute in range(1, 3 * 60 + 1):
        answer = await Query(stage.store, SPACE, now=lambda: stage.now).why("job", NOON + minute * MINUTE)
        outcomes[answer.outcome] += 1
    assert set(outcomes) == {"executed", "skipped", "missed"}


# --- in the past -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["0 12 * * *", "*/5 * * * *", "30 11 * * *", "* * * * *"], ids=lambda text: f"row 15: {text}"
)
async def test_row_15_a_changed_schedule_starts_nothing_in_the_past(stage: Stage, text: str) -> None:
    await stage.add(job_of(schedule="0 0 * * *", catchup="all"))
    await stage.run()
    await stage.until(NOON + 7 * MINUTE + 30 * SECOND)
    await stage.edit(job_of(schedule=text, catchup="all"))
    await stage.advance(10 * SECOND)
    assert stage.starts() == []
    await stage.until(NOON + 10 * MINUTE)
    assert all(minute > 7 for minute in stage.starts())


@pytest.mark.parametrize("policy", [{}, {"queue_max": 7}], ids=["the same definition", "another policy"])
async def test_row_16_an_edit_does_not_lose_a_run_that_waits_for_its_chosen_time(
    stage: Stage, policy: dict[str, object]
) -> None:
    fields = {
        "identity": "job",
        "schedule": "0 13 * * *",
        "window": {"mode": "after", "duration": "30m"},
        "distribution": {"name": "skewLate", "shape": 4.0},
    }
    await stage.add(Job.from_dict(fields))
    await stage.run()
    await stage.until(NOON + HOUR + MINUTE)
    (planned,) = await stage.runs()
    assert planned.status == "PENDING"
    await stage.edit(Job.from_dict({**fields, "policy": policy}))
    await stage.until(NOON + 2 * HOUR)
    (run,) = await stage.runs()
    assert (run.status, run.fire_time, run.started_at) == ("SUCCESS", planned.fire_time, planned.fire_time)


async def test_row_17_no_surprise_run_when_a_job_without_catchup_is_resumed(stage: Stage) -> None:
    await stage.add(job_of(schedule="0 * * * *", catchup="none"))
    await stage.run()
    await stage.pause()
    await stage.advance(5 * HOUR + 30 * MINUTE)
    await stage.resume()
    await stage.advance(MINUTE)
    assert stage.starts() == []
    await stage.advance(29 * MINUTE)
    assert stage.starts() == [6 * 60]


@pytest.mark.parametrize(
    ("catchup", "expected"),
    [("none", []), ("once", [59]), ("all", list(range(1, 60)))],
)
async def test_row_18_what_a_pause_left_is_judged_by_the_policy_and_replayed_only_if_it_says_so(
    stage: Stage, catchup: str, expected: list[int]
) -> None:
    await stage.add(job_of(catchup=catchup))
    await stage.run()
    await stage.pause()
    await stage.until(NOON + 59 * MINUTE + 30 * SECOND)
    assert stage.starts() == []
    await stage.resume()
    await stage.advance(SECOND)
    assert stage.starts() == expected
    assert await dropped(stage) + len(await stage.runs()) == 59


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param({"catchup": "once", "overlap": "buffer_one"}, [600], id="only the latest"),
        pytest.param({"catchup": "none"}, [600], id="none of the missed; one is merely late"),
        pytest.param({"catchup": "all", "deadline": "10s"}, [], id="too late is too late"),
        pytest.param({"catchup": "all", "max_catchup": 3}, [597, 598, 599, 600], id="the newest few"),
    ],
)
async def test_row_19_hundreds_of_late_runs_do_not_have_to_run(
    stage: Stage, file: SqliteStore, policy: dict[str, object], expected: list[int]
) -> None:
    await stage.add(job_of("job", "* * * * *", **policy))
    await stage.run()
    await die(stage, file, away=10 * HOUR + 30 * SECOND)
    await stage.advance(SECOND)
    assert stage.starts() == expected


# --- twice -----------------------------------------------------------------------------------------


async def test_row_20_of_many_workers_on_one_file_one_runs_the_job(stage: Stage, tmp_path: Path) -> None:
    await stage.add(job_of())
    await stage.run()
    for number in range(4):
        other = SqliteStore(str(tmp_path / "kron.db"))
        with pytest.raises(OwnedError):
            await stage.make_engine(f"worker {number}", other).acquire()
        await other.close()
    await stage.until(NOON + 3 * MINUTE)
    assert stage.starts() == [1, 2, 3]


async def test_row_21_two_instances_that_both_believe_in_themselves_start_each_period_once(
    stage: Stage, file: SqliteStore
) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + MINUTE)
    # The lock is gone and another instance takes over, while the first one goes on as if nothing were.
    file.drop_locks()
    other = stage.make_engine("other")
    await other.acquire()
    other.run()
    await stage.until(NOON + 4 * MINUTE)
    assert stage.starts() == [1, 2, 3, 4]
    assert stage.launcher.effects == Counter(key_of("job", NOON_S + 60 * minute) for minute in (1, 2, 3, 4))
    assert (stage.engine.health.state, other.health.state) == ("lost", "running")
    await other.stop()


async def test_row_22_who_cannot_take_the_lock_starts_nothing(stage: Stage, file: SqliteStore) -> None:
    await stage.add(job_of())
    store = FaultyStore(file, stage.clock)
    store.then("acquire", Fault.BEFORE)
    engine = stage.make_engine("other", store)
    with pytest.raises(StoreError):
        await engine.acquire()
    await stage.until(NOON + 3 * MINUTE)
    assert stage.starts() == []


async def test_row_22_a_lost_lock_is_noticed_before_the_next_start(stage: Stage, file: SqliteStore) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + MINUTE)
    file.drop_locks()
    await file.acquire(SPACE, "thief")
    await stage.until(NOON + 3 * MINUTE)
    assert stage.starts() == [1]
    assert stage.engine.health.state == "lost"


async def test_row_23_a_job_that_must_not_overlap_does_not_run_on_two_nodes_after_a_take_over(
    stage: Stage, file: SqliteStore
) -> None:
    await stage.add(job_of(overlap="skip", catchup="once"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + MINUTE)
    await die(stage, file, away=10 * MINUTE)
    await stage.advance(2 * MINUTE)
    # What the first node started still runs, and the second one knows.
    assert stage.starts() == [1]
    assert {run.reason for run in (await stage.runs())[1:]} == {"active"}


@pytest.mark.parametrize("by", [SECOND, MINUTE, HOUR], ids=str)
async def test_row_23_a_clock_that_is_set_back_starts_nothing_twice(stage: Stage, by: timedelta) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 2 * MINUTE + MILLISECOND)
    stage.clock.jump_to(NOON + 2 * MINUTE - by)
    await stage.until(NOON + 4 * MINUTE)
    # An hour is more than a clock may be set back: it was wrong before, and is right again.
    assert stage.starts() == [1, 2, *(range(-58, 1) if by == HOUR else ()), 3, 4]


@pytest.mark.parametrize("moment_s", [59, 60, 61, 90, 119, 120], ids=lambda s: f"after {s} s")
async def test_row_24_a_change_of_leaders_loses_nothing_and_doubles_nothing(
    stage: Stage, file: SqliteStore, moment_s: int
) -> None:
    await stage.add(*(job_of(name) for name in ("job", "two", "three")))
    await stage.run()
    await stage.until(NOON + timedelta(seconds=moment_s))
    for _ in range(3):
        await die(stage, file, away=20 * SECOND)
    await stage.until(NOON + 5 * MINUTE)
    for name in ("job", "two", "three"):
        assert sorted(stage.starts(name)) == [1, 2, 3, 4, 5]


async def test_row_26_a_restart_does_not_replace_what_runs(stage: Stage, file: SqliteStore) -> None:
    await stage.add(job_of(schedule="1 * * * *", overlap="replace"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + MINUTE)
    for _ in range(3):
        await die(stage, file, away=MINUTE)
    assert stage.starts() == [1]
    assert stage.launcher.asked_to_end == []
    assert await stage.seen() == ["STARTED due"]


async def test_row_26_what_was_to_be_replaced_ends_although_its_owner_died_before_it_could_end_it(
    stage: Stage, file: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.add(job_of(overlap="replace"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + MINUTE)
    with monkeypatch.context() as owner:
        owner.setattr(stage.launcher, "end", lambda run: None)
        await stage.until(NOON + 2 * MINUTE)
    await die(stage, file, away=2 * SECOND)
    await stage.advance(SECOND)
    assert len(stage.launcher.asked_to_end) == 1
    assert await stage.seen() == ["CANCELLED replaced", "SUCCESS due"]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER, Fault.LOSE, Fault.DELAY], ids=str)
async def test_row_27_a_slot_has_one_run_although_the_store_is_slow_or_fails(
    file: SqliteStore, fault: Fault
) -> None:
    async with stage_on(file) as stage:
        faulty = FaultyStore(file, stage.clock, delay=20 * SECOND)
        stage.engine = stage.make_engine(store=faulty)
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 30 * SECOND)
        faulty.then("settle", fault, fault, fault)
        await stage.until(NOON + 5 * MINUTE)
        assert stage.starts() == [1, 2, 3, 4, 5]
        assert stage.launcher.effects.most_common(1)[0][1] == 1
        assert await stage.seen() == ["SUCCESS due"] * 5


# --- clocks ----------------------------------------------------------------------------------------


async def test_row_29_after_the_clock_was_set_back_runs_come_at_their_time_by_the_new_clock(
    stage: Stage,
) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 10 * MINUTE)
    stage.clock.jump_to(NOON + 9 * MINUTE + 30 * SECOND)
    await stage.until(NOON + 12 * MINUTE)
    assert stage.starts() == list(range(1, 13))
    (run,) = [run for run in await stage.runs() if run.nominal_time == NOON_S + 660]
    assert run.started_at == 1000 * run.nominal_time
    assert stage.engine.health.jumps == 1


async def test_row_29_after_a_suspend_the_engine_looks_at_once(stage: Stage) -> None:
    await stage.add(job_of(catchup="once"))
    await stage.run()
    await stage.until(NOON + 30 * SECOND)
    await stage.suspend(HOUR)
    assert stage.starts()[-1] == 60
    assert stage.engine.health.jumps == 1


async def test_row_30_ten_years_forward_are_one_record_and_not_a_list(stage: Stage) -> None:
    await stage.add(job_of(schedule="* * * * * *", catchup="once"))
    await stage.run()
    await stage.until(NOON + 3 * SECOND)
    await stage.suspend(3652 * DAY)
    assert await dropped(stage) > 315_000_000
    assert len(await stage.runs()) + len(await stage.store.ranges(SPACE, "job")) < 80


# --- for ever --------------------------------------------------------------------------------------


async def test_row_37_a_run_that_hangs_does_not_keep_its_job_from_running_for_ever(stage: Stage) -> None:
    await stage.add(job_of(overlap="skip", run_timeout="150s"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + 5 * MINUTE)
    assert stage.starts() == [1, 4, 5]
    assert await stage.seen() == ["FAILED due", "SKIPPED active", "SKIPPED active", *["SUCCESS due"] * 2]
    answer = await Query(stage.store, SPACE, now=lambda: stage.now).why("job", NOON + 2 * MINUTE)
    assert answer.sentences[-1] == "skipped: another run of the job was active"


async def test_row_40_a_database_that_blinks_does_not_end_the_scheduler(file: SqliteStore) -> None:
    async with stage_on(file) as stage:
        faulty = FaultyStore(file, stage.clock)
        stage.engine = stage.make_engine(store=faulty)
        await stage.add(job_of(), job_of("other"))
        await stage.run()
        await stage.until(NOON + 30 * SECOND)
        faulty.then("load", *[Fault.BEFORE] * 10)
        await stage.until(NOON + MINUTE)
        assert stage.engine.health.state == "degraded"
        await stage.until(NOON + 3 * MINUTE)
        assert stage.engine.health.state == "running"
        assert (stage.starts(), stage.starts("other")) == ([1, 2, 3], [1, 2, 3])
