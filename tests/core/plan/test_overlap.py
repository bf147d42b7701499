"""What happens to a period while an earlier execution is active, policy by policy."""

from dataclasses import replace
from datetime import timedelta

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.job.policy import OnOrphan, Overlap
from kron.core.plan.backlog import MAX_PLANNED_PER_WAKE
from kron.core.plan.overlap import DID_NOT_END, REPLACED_RUNS_ON
from kron.core.plan.plan import plan
from kron.core.plan.record import Result, RunStatus, key_of
from kron.core.plan.registration import edit
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import Snapshot
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen, started
from tests.engine_world import SPACE, World, at_once, with_policy


def world(overlap: Overlap, **policy: object) -> World:
    """Return a job every minute from 12:01 on, without a deadline."""
    fields = {"deadline": None, "overlap": overlap} | policy
    made = World(with_policy(EVERY_MINUTE, **fields), 1000 * NOON + 1)
    made.wake()
    return made


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        pytest.param(Overlap.ALLOW, ["STARTED due", "STARTED due", "STARTED due"], id="allow"),
        pytest.param(Overlap.SKIP, ["STARTED due", "SKIPPED active", "SKIPPED active"], id="skip"),
        pytest.param(Overlap.QUEUE, ["STARTED due", "PENDING queued", "PENDING queued"], id="queue"),
        pytest.param(
            Overlap.BUFFER_ONE, ["STARTED due", "SKIPPED coalesced", "PENDING queued"], id="buffer_one"
        ),
        pytest.param(
            Overlap.REPLACE, ["STARTED replaced", "STARTED replaced", "PENDING replacing"], id="replace"
        ),
    ],
)
def test_periods_come_while_the_first_runs(overlap: Overlap, expected: list[str]) -> None:
    made = world(overlap)
    made.advance(3 * MINUTE)
    assert seen(made) == expected


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        pytest.param(Overlap.ALLOW, ["STARTED due", "STARTED due", "STARTED due"], id="allow: all"),
        pytest.param(
            Overlap.SKIP, ["STARTED due", "SKIPPED active", "SKIPPED active"], id="skip: the oldest"
        ),
        pytest.param(
            Overlap.QUEUE, ["STARTED due", "PENDING queued", "PENDING queued"], id="queue: in order"
        ),
        pytest.param(
            Overlap.BUFFER_ONE,
            ["SKIPPED coalesced", "SKIPPED coalesced", "STARTED due"],
            id="buffer_one: the newest",
        ),
    ],
)
def test_several_are_due_at_once_and_nothing_runs(overlap: Overlap, expected: list[str]) -> None:
    made = world(overlap)
    made.oversleep(3 * MINUTE)
    assert seen(made) == expected


def test_the_queue_starts_in_order_one_by_one() -> None:
    made = world(Overlap.QUEUE)
    made.advance(4 * MINUTE)
    for number in (1, 2, 3, 4):
        assert started(made) == list(range(1, number + 1))
        made.end_period(nth(number))
    assert seen(made) == ["SUCCESS due"] * 4


def test_a_full_queue_skips_the_newest() -> None:
    made = world(Overlap.QUEUE, queue_max=2)
    made.advance(5 * MINUTE)
    assert seen(made)[1:] == ["PENDING queued"] * 2 + ["SKIPPED queue_full"] * 2
    made.end_period(nth(1))
    made.advance(MINUTE)
    assert seen(made)[1:] == [
        "STARTED due", "PENDING queued", "SKIPPED queue_full", "SKIPPED queue_full", "PENDING queued",
    ]  # fmt: skip


def test_the_queue_holds_a_hundred_unless_told_otherwise() -> None:
    made = world(Overlap.QUEUE)
    made.oversleep(103 * MINUTE)
    assert seen(made) == ["STARTED due"] + ["PENDING queued"] * 100 + ["SKIPPED queue_full"] * 2


def test_the_buffered_period_starts_when_the_active_one_ends() -> None:
    made = world(Overlap.BUFFER_ONE)
    made.advance(3 * MINUTE + 500)
    made.end_period(nth(1))
    assert seen(made) == ["SUCCESS due", "SKIPPED coalesced", "STARTED due"]
    assert made.starts[-1][0] == made.now


@pytest.mark.parametrize("is_active", [False, True], ids=["idle", "while a run is active"])
def test_of_more_periods_than_one_wake_plans_the_newest_alone_is_buffered(is_active: bool) -> None:
    job = replace(EVERY_MINUTE, schedule=Schedule("* * * * * *"))
    policy = {"deadline": None, "overlap": Overlap.BUFFER_ONE, "jitter_ms": 1}
    made = World(with_policy(job, **policy), 1000 * NOON + 1)
    made.wake()
    if is_active:
        made.ask()
    made.oversleep(1000 * (MAX_PLANNED_PER_WAKE + 500))
    newest = max(made.rows().values(), key=lambda run: run.nominal_time)
    assert newest.nominal_time >= NOON + MAX_PLANNED_PER_WAKE + 499
    status = RunStatus.PENDING if is_active else RunStatus.STARTED
    assert [run for run in made.rows().values() if run.status is not RunStatus.SKIPPED] == [newest]
    assert newest.status is status


def test_waiting_in_a_queue_counts_against_the_deadline() -> None:
    made = world(Overlap.QUEUE, deadline=timedelta(seconds=90))
    made.advance(3 * MINUTE + 31_000)
    made.end_period(nth(1))
    assert seen(made) == ["SUCCESS due", "MISSED deadline", "STARTED due"]


def test_skip_counts_a_run_asked_for_as_active() -> None:
    made = world(Overlap.SKIP)
    made.advance(30_000)
    made.ask()
    made.advance(MINUTE)
    assert seen(made) == ["SKIPPED active"]


def test_a_job_that_is_finished_lets_its_queue_go() -> None:
    made = world(Overlap.QUEUE, remaining=1)
    made.oversleep(3 * MINUTE)
    assert seen(made) == ["STARTED due", "PENDING queued", "PENDING queued"]
    made.end_period(nth(1))
    assert seen(made) == ["SUCCESS due", "SKIPPED finished", "SKIPPED finished"]


def test_what_is_skipped_because_the_job_is_finished_says_so() -> None:
    made = world(Overlap.ALLOW, remaining=2)
    made.oversleep(4 * MINUTE)
    assert seen(made) == ["STARTED due"] * 2 + ["SKIPPED finished"] * 2


# --- replace ---------------------------------------------------------------------------------------


def test_replace_asks_waits_and_starts_when_the_old_one_ends() -> None:
    made = world(Overlap.REPLACE)
    made.advance(2 * MINUTE + 3_000)
    assert made.asked_to_end == [key_of("world/job", nth(1))]
    assert seen(made) == ["STARTED replaced", "PENDING replacing"]
    made.end_period(nth(1), RunEvent.CANCELLED)
    assert seen(made) == ["CANCELLED replaced", "STARTED due"]
    old, new = made.rows()[nth(1)], made.rows()[nth(2)]
    assert (old.result, old.outcome, old.error) == (Result.REPLACED, "executed", None)
    assert (new.started_at, new.error) == (made.now, None)


@pytest.mark.parametrize("happened", [RunEvent.FAILED, RunEvent.LAUNCH_FAILED])
def test_what_fails_while_it_is_replaced_is_replaced_and_not_tried_again(happened: RunEvent) -> None:
    made = world(Overlap.REPLACE, retry_delay=timedelta(0))
    made.advance(2 * MINUTE)
    made.end_period(nth(1), happened)
    assert seen(made) == ["CANCELLED replaced", "STARTED due"]
    assert made.job.failures == 0


def test_what_succeeds_while_it_is_replaced_succeeded() -> None:
    made = world(Overlap.REPLACE)
    made.advance(2 * MINUTE)
    made.end_period(nth(1))
    assert made.rows()[nth(1)].result is Result.SUCCESS


def test_a_failed_termination_is_recorded_on_both() -> None:
    made = world(Overlap.REPLACE)
    made.advance(2 * MINUTE + 9_998)
    assert started(made) == [1]
    made.advance(1)
    assert made.starts[-1][:2] == (1000 * nth(2) + 10_000, nth(2))
    assert made.rows()[nth(1)].error == DID_NOT_END
    assert made.rows()[nth(2)].error == REPLACED_RUNS_ON
    made.end_period(nth(1), RunEvent.CANCELLED)
    made.end_period(nth(2))
    assert [run.error for _, run in sorted(made.rows().items())] == [DID_NOT_END, REPLACED_RUNS_ON]
    assert seen(made) == ["CANCELLED replaced", "SUCCESS due"]


def test_the_grace_does_not_count_against_the_deadline() -> None:
    made = world(Overlap.REPLACE, deadline=timedelta(0))
    made.advance(2 * MINUTE + 10_000)
    assert seen(made) == ["STARTED replaced", "STARTED due"]


def test_without_a_grace_the_new_one_starts_at_once() -> None:
    made = world(Overlap.REPLACE, replace_grace=timedelta(0))
    made.advance(2 * MINUTE)
    assert started(made) == [1, 2]
    assert made.asked_to_end == [key_of("world/job", nth(1))]


def test_an_execution_is_asked_to_end_once() -> None:
    made = world(Overlap.REPLACE, replace_grace=timedelta(minutes=5))
    made.advance(4 * MINUTE)
    assert made.asked_to_end == [key_of("world/job", nth(1))]
    assert seen(made) == ["STARTED replaced"] + ["PENDING replacing"] * 3


def test_several_due_at_once_replace_one_another() -> None:
    made = world(Overlap.REPLACE)
    made.oversleep(3 * MINUTE)
    assert seen(made) == ["STARTED replaced", "PENDING replacing", "PENDING replacing"]
    made.end_period(nth(1), RunEvent.CANCELLED)
    made.end_period(nth(2), RunEvent.CANCELLED)
    assert seen(made) == ["CANCELLED replaced", "CANCELLED replaced", "STARTED due"]


# --- retries and orphans ---------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", list(Overlap))
def test_the_next_period_pre_empts_a_retry_that_waits(overlap: Overlap) -> None:
    made = world(overlap, retry_delay=timedelta(seconds=90))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    assert seen(made) == ["FAILED retry"]
    made.advance(MINUTE)
    assert seen(made) == ["FAILED retry_preempted", "STARTED due"]
    made.end_period(nth(2))
    made.advance(MINUTE - 2)
    assert started(made) == [1, 2]


def test_a_retry_due_with_the_next_period_is_pre_empted() -> None:
    made = world(Overlap.SKIP, retry_delay=timedelta(seconds=60))
    made.advance(MINUTE)
    made.now = 1000 * nth(1)
    made.end_period(nth(1), RunEvent.FAILED)
    made.advance(MINUTE)
    assert seen(made) == ["FAILED retry_preempted", "STARTED due"]


@pytest.mark.parametrize(
    ("delay", "waits_ms"),
    [
        pytest.param(timedelta(0), 0, id="at once"),
        pytest.param(timedelta(microseconds=1), 1, id="below a millisecond, rounded up"),
        pytest.param(timedelta(microseconds=1_001), 2, id="a little more than one"),
        pytest.param(timedelta(milliseconds=1), 1, id="one millisecond"),
        pytest.param(timedelta(seconds=5), 5_000, id="seconds"),
    ],
)
def test_a_failed_attempt_is_tried_again_after_its_delay(delay: timedelta, waits_ms: int) -> None:
    made = world(Overlap.SKIP, retry_delay=delay)
    made.advance(MINUTE + 7_000)
    made.end_period(nth(1), RunEvent.FAILED)
    ended = made.now
    if waits_ms:
        assert started(made) == [1]
        made.advance(waits_ms - 1)
        assert started(made) == [1]
        made.advance(1)
    assert made.starts[-1] == (ended + waits_ms, nth(1), 2)
    assert seen(made) == ["STARTED retry"]
    (first,) = made.attempts(nth(1))
    assert (first.attempt, first.result, first.ended_at) == (1, Result.FAILED, ended)


def test_every_attempt_has_a_record() -> None:
    made = world(Overlap.SKIP, retry_delay=timedelta(0))
    made.advance(MINUTE)
    for _ in range(4):
        made.end_period(nth(1), RunEvent.FAILED)
    made.end_period(nth(1))
    assert [(attempt.attempt, attempt.result) for attempt in made.attempts(nth(1))] == [
        (number, Result.FAILED) for number in (1, 2, 3, 4)
    ]
    run = made.rows()[nth(1)]
    assert (run.attempt, run.result, run.status) == (5, Result.SUCCESS, "SUCCESS")


def test_without_a_retry_delay_a_failure_is_the_end() -> None:
    made = world(Overlap.SKIP)
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.advance(30_000)
    assert seen(made) == ["FAILED due"]


def test_a_retry_does_not_overlap_what_was_asked_for() -> None:
    made = world(Overlap.SKIP, retry_delay=timedelta(seconds=5))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.ask()
    made.advance(10_000)
    assert started(made) == [1, 1]
    manual = next(key for key in made.running)
    made.end(manual)
    assert made.starts[-1] == (made.now, nth(1), 2)


def test_a_retry_of_no_delay_comes_after_the_other_due_work() -> None:
    made = world(Overlap.QUEUE, retry_delay=timedelta(0))
    made.advance(2 * MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    assert seen(made) == ["FAILED retry_preempted", "STARTED due"]


def test_a_retry_does_not_slip_in_before_what_is_due_with_it() -> None:
    """What was missed is too late by now; the period that is due at the same instant pre-empts the retry."""
    made = world(Overlap.SKIP, retry_delay=timedelta(seconds=10), deadline=timedelta(seconds=30))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.outage(3 * MINUTE)
    assert seen(made) == ["FAILED retry_preempted", "MISSED deadline", "MISSED deadline", "STARTED due"]


@pytest.mark.parametrize(
    ("on_orphan", "away_ms", "expected"),
    [
        pytest.param("restart", 1_000, ["STARTED restarted"], id="restarted as the next attempt"),
        pytest.param("fail", 1_000, ["FAILED due"], id="failed"),
        pytest.param(
            "restart", MINUTE, ["FAILED retry_preempted", "STARTED due"], id="restart, and one is due"
        ),
        pytest.param("fail", MINUTE, ["FAILED due", "STARTED due"], id="fail, and one is due"),
    ],
)
def test_an_orphan(on_orphan: str, away_ms: int, expected: list[str]) -> None:

    made = world(Overlap.SKIP, on_orphan=OnOrphan(on_orphan))
    made.advance(MINUTE)
    made.outage(away_ms)
    assert seen(made) == expected
    orphan = made.rows()[nth(1)]
    attempts = made.attempts(nth(1))
    result = attempts[0].result if attempts else orphan.result
    assert result is Result.ORPHANED
    assert orphan.attempt == 1 + len(attempts)


def test_an_orphan_is_not_retried_when_the_policy_is_fail() -> None:
    made = world(Overlap.SKIP, retry_delay=timedelta(0))
    made.advance(MINUTE)
    made.outage(1_000)
    assert seen(made) == ["FAILED due"]
    made.advance(30_000)
    assert started(made) == [1]


def test_a_retry_gives_way_to_a_period_that_only_the_new_definition_has() -> None:
    """What an edit left over is looked at first; the period that follows at the same instant counts too."""
    made = world(Overlap.ALLOW, deadline=timedelta(0), retry_delay=timedelta(minutes=1))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    # It wakes at 12:03. At 12:02:30 the job is changed; the period of 12:02 is left over, and late.
    case, edited_at = made.case, 1000 * NOON + 5 * MINUTE // 2
    job = with_policy(
        EVERY_MINUTE, deadline=timedelta(0), overlap=Overlap.ALLOW, retry_delay=timedelta(seconds=59)
    )
    change = edit(case.job, list(case.runs), job, now=edited_at)
    assert change.job.past is not None
    at_once(made.store.put(SPACE, created=[], changed=[change], now=edited_at))
    made.now = 1000 * nth(3)
    made.wake()
    assert seen(made) == ["FAILED retry_preempted", "MISSED deadline", "STARTED due"]
    assert started(made) == [1, 3]


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.SKIP, Overlap.BUFFER_ONE])
@pytest.mark.parametrize("happened", [RunEvent.SUCCESS, RunEvent.FAILED])
def test_a_run_starts_no_earlier_than_the_one_before_it_ended(overlap: Overlap, happened: RunEvent) -> None:
    """Another process records the end after the wake began that starts the next period."""
    made = world(overlap)
    made.advance(2 * MINUTE - 2)
    made.now += 1
    record_end(made, happened, at=made.now + 7)
    made.wake()
    first, second = made.rows()[nth(1)], made.rows()[nth(2)]
    assert (second.status, second.started_at, first.ended_at) == ("STARTED", made.now + 7, made.now + 7)


def test_an_end_by_a_clock_that_is_far_ahead_delays_no_start() -> None:
    made = world(Overlap.QUEUE)
    made.advance(2 * MINUTE - 2)
    made.now += 1
    record_end(made, RunEvent.SUCCESS, at=made.now + 60 * MINUTE)
    made.wake()
    assert made.rows()[nth(2)].started_at == made.now


def record_end(made: World, happened: RunEvent, *, at: int) -> None:
    """Record the end of the first period as the API does, which starts nothing."""
    (run,) = made.case.runs
    state = made.case._replace(reports=[RunReport(run.identity, run.key, run.attempt, happened, at)])
    ((change,), _) = plan(Snapshot([state], at, run.token, made.traits, draining=True), at)
    at_once(made.store.put(SPACE, created=[], changed=[change], now=at))
