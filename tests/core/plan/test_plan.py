"""One step of the engine: deadlines, timeouts, counts, bounds, windows; and that it is a pure function."""

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, OnOrphan, Overlap
from kron.core.job.window import Window, WindowMode
from kron.core.plan.compiled import segment_of
from kron.core.plan.plan import BY_TIMEOUT, plan, take_step
from kron.core.plan.record import Result, RunKind, key_of
from kron.core.plan.registration import create
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.step import JobState, JobStep, Snapshot
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen, started
from tests.engine_model import fire_time_of
from tests.engine_world import SPACE, World, at_once, with_policy
from tests.strategies import law

TRAITS = {"callback": Traits()}
KINDS = {**TRAITS, "http": Traits(reports=False), "queue": Traits(enqueues=True, remote=True)}


def world(job: Job = EVERY_MINUTE, *, at: int = 1000 * NOON + 1, **policy: object) -> World:
    """Return a job that was made at noon and a millisecond; nothing is ever too late for it."""
    made = World(with_policy(job, **{"deadline": None, "overlap": Overlap.ALLOW, **policy}), at)
    made.wake()
    return made


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


# --- a period on time ------------------------------------------------------------------------------


def test_a_period_starts_in_the_millisecond_of_its_time() -> None:
    made = world()
    assert made.wake_at == 1000 * nth(1)
    made.advance(3 * MINUTE)
    assert made.starts == [(1000 * nth(number), nth(number), 1) for number in (1, 2, 3)]
    run = made.rows()[nth(1)]
    assert (run.key, run.fire_time, run.created_at, run.started_at) == (
        key_of("world/job", nth(1)), 1000 * nth(1), 1000 * nth(1), 1000 * nth(1),
    )  # fmt: skip
    assert (run.attempt, run.token, run.kind, run.epoch) == (1, made.ownership.token, RunKind.PERIOD, 1)


def test_a_plain_period_has_no_row_before_its_time() -> None:
    made = world()
    made.advance(MINUTE - 2)
    made.oversleep(0)
    assert seen(made) == []
    assert made.job.next_time == nth(1)


def test_the_next_wake_is_the_next_period() -> None:
    made = world()
    made.advance(MINUTE)
    assert (made.wake_at, made.job.cursor, made.job.next_time) == (1000 * nth(2), nth(1), nth(2))


# --- the deadline ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline", "late_ms", "expected"),
    [
        pytest.param(timedelta(0), 0, "STARTED due", id="no deadline: at its millisecond"),
        pytest.param(timedelta(0), 999, "STARTED due", id="no deadline: in its second"),
        pytest.param(timedelta(0), 1_000, "MISSED deadline", id="no deadline: a second later"),
        pytest.param(timedelta(milliseconds=500), 1_000, "MISSED deadline", id="half a second"),
        pytest.param(timedelta(seconds=30), 30_999, "STARTED due", id="in its last second"),
        pytest.param(timedelta(seconds=30), 31_000, "MISSED deadline", id="after its last second"),
        pytest.param(None, 59_000, "STARTED due", id="none is never too late"),
    ],
)
def test_the_deadline_counts_in_whole_seconds(
    deadline: timedelta | None, late_ms: int, expected: str
) -> None:
    made = world(deadline=deadline)
    made.oversleep(1000 * nth(1) + late_ms - made.now)
    assert seen(made) == [expected]


def test_what_is_late_together_is_one_record() -> None:
    made = world(deadline=timedelta(seconds=90))
    made.oversleep(100 * MINUTE)
    assert seen(made) == ["MISSED deadline"] * 98 + ["STARTED due"] * 2
    assert [shared.periods for shared in made.ranges()] == [98]


@law(60)
@given(
    late_ms=st.integers(0, 10 * MINUTE),
    deadline_ms=st.integers(0, 5 * MINUTE),
    mode=st.sampled_from(WindowMode),
    width=st.integers(0, 120),
    jitter_ms=st.integers(0, 9_000),
)
def test_nothing_starts_after_its_deadline_and_nothing_else_is_missed(
    late_ms: int, deadline_ms: int, mode: WindowMode, width: int, jitter_ms: int
) -> None:
    job = Job(
        identity="world/job", schedule=Schedule("* * * * *"), window=Window(mode, timedelta(seconds=width))
    )
    deadline = timedelta(milliseconds=deadline_ms)
    made = world(job, deadline=deadline, jitter_ms=jitter_ms)
    made.oversleep(late_ms)
    job = with_policy(job, jitter_ms=jitter_ms)
    for nominal, (status, _) in made.records().items():
        fire = fire_time_of(job, nominal)
        assert fire is not None
        late = timedelta(seconds=made.now // 1000 - fire // 1000)
        expected = "PENDING" if fire > made.now else "MISSED" if late > deadline else "STARTED"
        assert status == expected


def test_a_burst_does_not_make_itself_late() -> None:
    made = world(deadline=timedelta(0), at=1000 * NOON + 1)
    made.oversleep(1000 * nth(1) + 999 - made.now)
    assert seen(made) == ["STARTED due"]


# --- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(WindowMode))
def test_each_period_of_overlapping_windows_starts_at_its_own_time(mode: WindowMode) -> None:
    job = Job(identity="world/job", schedule=Schedule("* * * * *"), window=Window(mode, timedelta(minutes=5)))
    made = world(job)
    made.advance(20 * MINUTE)
    expected = []
    for nominal in range(NOON - 600, NOON + 2_400, 60):
        fire = fire_time_of(job, nominal)
        assert fire is not None
        if 1000 * NOON + 1 <= fire <= made.now:
            expected.append((fire, nominal, 1))
    assert sorted(made.starts) == sorted(expected)
    assert [at for at, _, _ in made.starts] == sorted(at for at, _, _ in expected)


def test_a_row_is_written_when_its_window_begins() -> None:
    job = Job(
        identity="world/job",
        schedule=Schedule("0 * * * *"),
        window=Window(WindowMode.BEFORE, timedelta(minutes=10)),
    )
    made = world(job, jitter_ms=1_000)
    begins = 1000 * (NOON + 3_600 - 600) - 1_000
    assert made.job.plan_at == begins
    made.advance(begins - 1 - made.now)
    assert seen(made) == []
    made.advance(1)
    assert seen(made) == ["PENDING planned"]
    assert made.rows()[NOON + 3_600].fire_time == fire_time_of(
        with_policy(job, jitter_ms=1_000), NOON + 3_600
    )


def test_a_period_without_a_possible_time_is_unschedulable() -> None:
    job = Job.from_dict(
        {
            "identity": "world/job",
            "schedule": "* * * * *",
            "constraints": {"avoid": {"between": ["12:02-12:02"]}},
        }
    )
    made = world(job)
    made.advance(3 * MINUTE)
    assert seen(made) == ["STARTED due", "UNSCHEDULABLE no_candidate", "STARTED due"]
    assert made.rows()[nth(2)].outcome == "unschedulable"


# --- days on which clocks change ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "options", "expected"),
    [
        pytest.param("2026-03-28T12:00", {}, ["2026-03-30T00:30"], id="a skipped time has no period"),
        pytest.param(
            "2026-03-28T12:00",
            {"dst_gap": "next"},
            ["2026-03-29T01:00", "2026-03-30T00:30"],
            id="or one at the gap's end",
        ),
        pytest.param(
            "2026-10-24T12:00",
            {},
            ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-26T01:30"],
            id="a repeated time has two",
        ),
        pytest.param(
            "2026-10-24T12:00",
            {"dst_repeat": "first"},
            ["2026-10-25T00:30", "2026-10-26T01:30"],
            id="or the first of them",
        ),
    ],
)
def test_days_on_which_the_clocks_change(begin: str, options: dict[str, str], expected: list[str]) -> None:
    job = Job(identity="world/job", schedule=Schedule("30 2 * * *", "Europe/Berlin", **options))
    made = world(job, at=1000 * at(begin))
    made.advance(44 * 60 * MINUTE)
    assert [(start, nominal) for start, nominal, _ in made.starts] == [
        (1000 * at(text), at(text)) for text in expected
    ]


# --- bounds and counts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param({"start_at": nth(3)}, [3, 4, 5], id="start_at is included"),
        pytest.param({"start_at": nth(3) + 1}, [4, 5], id="a second later is not"),
        pytest.param({"end_at": nth(3)}, [1, 2, 3], id="end_at is included"),
        pytest.param({"end_at": nth(3) - 1}, [1, 2], id="a second earlier is not"),
        pytest.param({"start_at": nth(2), "end_at": nth(2)}, [2], id="both at once"),
        pytest.param({"end_at": NOON}, [], id="over before it began"),
    ],
)
def test_start_at_and_end_at_bound_the_nominal_times(bounds: dict[str, int], expected: list[int]) -> None:
    made = world(with_policy(EVERY_MINUTE, **bounds))
    made.advance(5 * MINUTE + 30_000)
    assert started(made) == expected
    if "end_at" in bounds:
        assert (made.job.next_time, made.job.plan_at, made.wake_at) == (None, None, None)


def test_a_window_may_reach_past_end_at() -> None:
    job = Job(
        identity="world/job",
        schedule=Schedule("* * * * *"),
        window=Window(WindowMode.AFTER, timedelta(hours=1)),
    )
    made = world(job, start_at=nth(1), end_at=nth(3))
    made.advance(70 * MINUTE)
    assert sorted(started(made)) == [1, 2, 3]
    assert max(at for at, _, _ in made.starts) > 1000 * nth(3)


def test_remaining_counts_executed_periods() -> None:
    made = world(remaining=2, overlap=Overlap.SKIP)
    made.advance(2 * MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.advance(5 * MINUTE)
    assert seen(made)[:3] == ["FAILED due", "SKIPPED active", "STARTED due"]
    assert (made.job.remaining, made.job.next_time, made.job.plan_at) == (0, None, None)


def test_what_ends_after_the_last_run_leaves_no_trace_of_later_periods() -> None:
    made = world(remaining=1)
    made.advance(5 * MINUTE)
    made.end_period(nth(1))
    assert seen(made) == ["SUCCESS due"]


def test_neither_a_retry_nor_a_run_asked_for_counts_against_remaining() -> None:
    made = world(remaining=2, retry_delay=timedelta(0))
    made.ask()
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    assert made.job.remaining == 1
    assert [(nominal, attempt) for _, nominal, attempt in made.starts][1:] == [(nth(1), 1), (nth(1), 2)]


# --- failures --------------------------------------------------------------------------------------


def test_failures_in_a_row_pause_the_job() -> None:
    made = world(pause_after_failures=2)
    for number, happened in enumerate(
        (RunEvent.FAILED, RunEvent.SUCCESS, RunEvent.FAILED, RunEvent.FAILED), 1
    ):
        made.advance(MINUTE)
        made.end_period(nth(number), happened)
    assert (made.job.paused, made.job.paused_because, made.job.plan_at) == (1, "2 failures in a row", None)
    made.advance(5 * MINUTE)
    made.oversleep(0)
    assert started(made) == [1, 2, 3, 4]
    made.resume()
    assert (made.job.paused, made.job.failures) == (0, 0)


def test_the_retry_of_a_job_that_is_paused_waits_for_its_resume() -> None:
    made = world(pause_after_failures=1, retry_delay=timedelta(seconds=5))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.advance(20_000)
    assert started(made) == [1]
    made.resume()
    assert made.starts[-1] == (made.now, nth(1), 2)


@pytest.mark.parametrize("happened", [RunEvent.FAILED, RunEvent.LAUNCH_FAILED])
def test_a_failure_is_an_executed_period(happened: RunEvent) -> None:
    made = world()
    made.advance(MINUTE)
    made.end_period(nth(1), happened)
    run = made.rows()[nth(1)]
    assert (run.outcome, run.result) == ("executed", happened.value)


# --- the run timeout -------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [1, 1_001, 4_035, 90_000])
def test_an_execution_that_never_ends_is_lost(timeout_ms: int) -> None:
    made = world(
        Job(identity="world/job", schedule=Schedule("0 * * * *")),
        run_timeout=timedelta(milliseconds=timeout_ms),
    )
    hour = NOON + 3_600
    made.advance(1000 * hour + timeout_ms - 1 - made.now)
    assert seen(made) == ["STARTED due"]
    made.advance(1)
    run = made.rows()[hour]
    assert (run.status, run.result, run.error, run.ended_at) == ("FAILED", Result.LOST, BY_TIMEOUT, made.now)
    assert made.asked_to_end == [run.key]
    made.end(run.key)
    assert made.rows()[hour].result is Result.LOST


def test_what_is_lost_is_tried_again_and_does_not_block_the_job() -> None:
    made = world(run_timeout=timedelta(seconds=10), retry_delay=timedelta(seconds=5), overlap=Overlap.SKIP)
    made.advance(MINUTE + 15_000)
    assert made.starts == [(1000 * nth(1), nth(1), 1), (1000 * nth(1) + 15_000, nth(1), 2)]


def test_a_paused_job_still_loses_what_never_ends() -> None:
    made = world(run_timeout=timedelta(seconds=10))
    made.advance(MINUTE)
    made.pause()
    made.advance(10_000)
    assert made.rows()[nth(1)].result is Result.LOST


def test_a_target_that_does_not_report_is_not_in_flight_and_never_times_out() -> None:
    job = with_policy(EVERY_MINUTE, deadline=None, overlap=Overlap.SKIP, run_timeout=timedelta(seconds=30))
    made = World(job, 1000 * NOON + 1, traits={"callback": Traits(reports=False, enqueues=True)})
    made.wake()
    for number in (1, 2):
        made.advance(MINUTE)
        key = key_of("world/job", nth(number))
        made.wake(RunReport("world/job", key, 1, RunEvent.ACCEPTED, made.now, run_id="r"))
    made.advance(50_000)
    assert seen(made) == ["ENQUEUED due"] * 2
    assert made.case.runs == ()


# --- taking over -----------------------------------------------------------------------------------


def test_a_start_nobody_acknowledged_is_launched_again_under_the_same_key_and_attempt() -> None:
    made = world(overlap=Overlap.SKIP)
    made.traits = {"callback": Traits(idempotent=True)}
    made.advance(MINUTE)
    made.crash()
    made.launched.clear()
    run = made.rows()[nth(1)]
    made.now += 1_000
    before = made.ownership.token
    made.ownership = at_once(made.store.acquire(SPACE, "other"))
    made.wake(RunReport("world/job", run.key, 1, RunEvent.ORPHANED, made.now))
    assert made.starts[-1] == (made.now, nth(1), 1)
    assert made.rows()[nth(1)].token == before + 1
    # Heard again, as after a commit whose answer was lost: it is this owner's own by now.
    starts = list(made.starts)
    made.wake(RunReport("world/job", run.key, 1, RunEvent.ORPHANED, made.now))
    assert made.starts == starts


def test_an_orphan_keeps_its_period() -> None:
    made = world(on_orphan=OnOrphan.RESTART)
    made.advance(MINUTE)
    made.outage(1_000)
    assert made.starts == [(1000 * nth(1), nth(1), 1), (made.now, nth(1), 2)]


# --- manual runs -----------------------------------------------------------------------------------


def test_a_run_asked_for_starts_at_once_whatever_runs_and_changes_no_period() -> None:
    made = world(overlap=Overlap.SKIP, deadline=timedelta(0))
    made.advance(MINUTE + 5_000)
    made.ask()
    made.ask()
    manual = [run for run in made.running.values() if run.kind is RunKind.MANUAL]
    assert [run.reason for run in manual] == ["asked"] * 2
    assert len({run.key for run in manual}) == 2
    assert seen(made) == ["STARTED due"]


def test_a_run_asked_for_is_not_tried_again() -> None:
    made = world(retry_delay=timedelta(0))
    made.ask()
    (key,) = made.running
    made.end(key, RunEvent.FAILED)
    assert len(made.starts) == 1


# --- reports ---------------------------------------------------------------------------------------


def test_a_late_report_does_not_end_another_run() -> None:
    """The one open run is not the one the report is about."""
    made = world(run_timeout=timedelta(seconds=90), overlap=Overlap.ALLOW)
    made.advance(2 * MINUTE + 45_000)
    assert seen(made) == ["FAILED due", "STARTED due"]
    made.end_period(nth(1))
    assert seen(made) == ["FAILED due", "STARTED due"]


def test_a_report_about_nothing_changes_nothing() -> None:
    made = world()
    made.wake(RunReport("world/job", "unknown", 1, RunEvent.SUCCESS, made.now))
    assert seen(made) == []


# --- stopping --------------------------------------------------------------------------------------


def test_an_owner_that_is_stopping_notes_ends_and_starts_nothing() -> None:
    made = world(retry_delay=timedelta(0))
    made.advance(MINUTE)
    case = made.case
    later = made.now + 5 * MINUTE
    report = RunReport("world/job", case.runs[0].key, 1, RunEvent.FAILED, later)
    snapshot = Snapshot([case._replace(reports=[report])], made.taken_over_at, 1, TRAITS, draining=True)
    ((change,), _) = plan(snapshot, later)
    assert change.starts == []
    assert [(run.status, run.reason) for run in change.updates] == [("FAILED", "retry")]
    assert (change.job.cursor, change.inserts) == (case.job.cursor, [])


# --- a step is a pure function -----------------------------------------------------------------------


@law(80)
@given(
    naps=st.lists(st.integers(0, 200_000), max_size=5),
    overlap=st.sampled_from(Overlap),
    catchup=st.sampled_from(Catchup),
    late=st.integers(0, 500_000),
    taken=st.integers(0, 500_000),
)
def test_plan_is_deterministic_and_leaves_its_input_alone(
    naps: list[int], overlap: Overlap, catchup: Catchup, late: int, taken: int
) -> None:
    made = world(overlap=overlap, catchup=catchup, retry_delay=timedelta(seconds=7))
    for nap in naps:
        made.oversleep(nap)
    now = made.now + late
    reports = [
        RunReport("world/job", run.key, run.attempt, RunEvent.FAILED, now) for run in made.case.runs[:1]
    ]
    snapshot = Snapshot([made.case._replace(reports=reports)], made.taken_over_at + taken, 1, TRAITS)
    before = copy.deepcopy(snapshot)
    assert plan(snapshot, now) == plan(snapshot, now)
    assert snapshot == before


@law(240)
@given(
    late=st.integers(0, 900) | st.integers(0, 200_000),
    deadline=st.sampled_from([None, 0, 5, 100]),
    timeout=st.sampled_from([None, 1001]),
    kind=st.sampled_from(list(KINDS)),
    event=st.sampled_from([RunEvent.ACCEPTED, RunEvent.SUCCESS, *RunEvent]),
    after=st.sampled_from([0, 1000, 1001, 20_000, 70_000]),
    draining=st.booleans(),
)
def test_the_fast_path_gives_what_the_full_step_gives(
    late: int,
    deadline: int | None,
    timeout: int | None,
    kind: str,
    event: RunEvent,
    after: int,
    draining: bool,
) -> None:
    """Most steps are one plain period on time, its acknowledgement or its success; all have a fast path."""
    job = with_policy(
        EVERY_MINUTE,
        deadline=None if deadline is None else timedelta(seconds=deadline),
        run_timeout=None if timeout is None else timedelta(milliseconds=timeout),
    )
    record = create(job, now=1000 * NOON + 1)._replace(launcher_kind=kind)
    now = 1000 * nth(1) + late
    snapshot = Snapshot([JobState(record)], 1000 * NOON, 1, KINDS)
    ((fast,), _) = plan(snapshot, now)
    full = take_step(JobStep(JobState(record), snapshot, now), JobState(record), draining=False)
    assert replace(fast, scope=full.scope, cohort=None) == full
    for run in fast.starts:
        report = RunReport(run.identity, run.key, run.attempt, event, now + after, run_id="7")
        case = JobState(fast.job, [run], [report])
        snapshot = Snapshot([case], 1000 * NOON, 1, KINDS, draining=draining)
        ((reported,), _) = plan(snapshot, now + after)
        full = take_step(JobStep(case, snapshot, now + after), case, draining=draining)
        assert replace(reported, scope=full.scope, cohort=None) == full


def test_jobs_that_only_h_tells_apart_start_together_and_go_on_each_at_its_own_time() -> None:
    """They share a definition's text, and so the way of a start, but not their times."""
    jobs = [Job.from_dict({"identity": name, "schedule": "0,H * * * *"}) for name in "abcdef"]
    records = [create(job, now=1000 * NOON + 1) for job in jobs]
    hour = NOON + 3600
    due = [record._replace(cursor=hour - 1, next_time=hour, plan_at=1000 * hour) for record in records]
    snapshot = Snapshot([JobState(record) for record in due], 1000 * hour, 1, TRAITS)
    changes, _ = plan(snapshot, 1000 * hour)
    following = [change.job.next_time for change in changes]
    assert following == [segment_of(record).next_after(hour) for record in due]
    assert len(set(following)) > 1


@law(60)
@given(
    naps=st.lists(st.integers(0, 300_000), max_size=8),
    overlap=st.sampled_from(Overlap),
    width=st.sampled_from([0, 90]),
    jitter_ms=st.sampled_from([0, 5_000]),
)
def test_a_wake_at_the_time_it_asked_for_gets_on(
    naps: list[int], overlap: Overlap, width: int, jitter_ms: int
) -> None:
    job = Job(
        identity="world/job",
        schedule=Schedule("* * * * *"),
        window=Window(WindowMode.AROUND, timedelta(seconds=width)),
    )
    made = world(job, overlap=overlap, jitter_ms=jitter_ms, retry_delay=timedelta(seconds=7))
    for number, nap in enumerate(naps):
        made.oversleep(nap)
        if made.running and number % 2:
            made.end(next(iter(made.running)), RunEvent.FAILED)
        assert made.wake_at is not None
        asked, wakes = made.wake_at, made.wakes
        assert asked > made.now
        made.now = asked
        made.wake()
        assert made.wake_at > asked
        assert made.wakes - wakes <= 4


def test_a_paused_job_whose_record_says_that_it_is_due_does_not_come_up_again_and_again() -> None:
    """Pausing leaves nothing to look at; a record that says otherwise is put right."""
    job = create(EVERY_MINUTE, now=1000 * NOON)._replace(
        paused=1, paused_because="by hand", plan_at=1000 * NOON
    )
    (change,), wake_at = plan(Snapshot([JobState(job)], 1000 * NOON, 1, {}), 1000 * NOON + 5)
    assert (change.job.plan_at, change.starts, wake_at) == (None, [], None)
