"""What creating, changing, pausing and deleting a job does to its periods."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.errors import ConflictError
from kron.core.job.distribution import SkewLate
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, Overlap
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import Window, WindowMode
from kron.core.plan.compiled import compiled_job, definition_of
from kron.core.plan.record import RunKind
from kron.core.plan.registration import (
    MAX_PAST,
    create,
    delete,
    edit,
    is_period,
    look_ahead,
    request_run,
)
from kron.core.plan.report import RunEvent
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth
from tests.engine_model import fire_time_of
from tests.engine_world import SPACE, World, at_once, with_policy
from tests.strategies import law

HOUR = 60 * MINUTE


def every(text: str, *, window: Window | None = None, **policy: object) -> Job:
    job = Job(identity="world/job", schedule=Schedule(text), window=window or Window())
    return with_policy(job, **{"deadline": None, "overlap": Overlap.ALLOW, **policy})


def world(job: Job, at: int = 1000 * NOON + 1) -> World:
    made = World(job, at)
    made.wake()
    return made


def seen(world: World) -> dict[int, str]:
    """Return every period's status and reason by its minute after noon."""
    return {(nominal - NOON) // 60: " ".join(record) for nominal, record in sorted(world.records().items())}


# --- creation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_ms", "first"),
    [
        pytest.param(0, NOON, id="in the very millisecond: it is not past"),
        pytest.param(1, nth(1), id="a millisecond later: past"),
        pytest.param(-1, NOON, id="a millisecond before"),
    ],
)
def test_a_period_that_is_past_when_the_job_is_made_has_no_record(at_ms: int, first: int) -> None:
    made = world(every("* * * * *"), 1000 * NOON + at_ms)
    made.advance(MINUTE)
    assert min(made.records()) == first


@pytest.mark.parametrize(("at_ms", "first"), [(0, NOON), (1, nth(1))])
def test_neither_has_one_that_is_decided_one_by_one(at_ms: int, first: int) -> None:
    job = Job.from_dict(
        {"identity": "world/job", "schedule": "* * * * *", "constraints": {"only": {"hours": [12]}}}
    )
    made = world(with_policy(job, deadline=None), 1000 * NOON + at_ms)
    made.advance(MINUTE)
    assert min(made.records()) == first


def test_the_embedded_scheduler_does_not_count_the_current_minute_as_past() -> None:
    record = create(every("* * * * *"), now=1000 * NOON + 30_000, since=1000 * NOON)
    assert record.next_time == NOON


@law(60)
@given(mode=st.sampled_from(WindowMode), width=st.integers(0, 300), jitter_ms=st.integers(0, 20_000))
def test_only_fire_times_still_to_come_have_a_record(mode: WindowMode, width: int, jitter_ms: int) -> None:
    job = every("* * * * *", window=Window(mode, timedelta(seconds=width)), jitter_ms=jitter_ms)
    made = world(job)
    born = made.now
    made.advance(5 * MINUTE)
    for nominal in range(NOON - 3_600, NOON + 60, 60):
        fire = fire_time_of(job, nominal)
        assert fire is not None
        assert (nominal in made.records()) == (fire >= born)


@law(60)
@given(
    start_at=st.none() | st.sampled_from([NOON - 60, nth(3), nth(4) + 1]),
    end_at=st.none() | st.sampled_from([nth(5), nth(9)]),
    since=st.none() | st.integers(1000 * NOON, 1000 * nth(9)),
    remaining=st.none() | st.just(1),
    stopped=st.sampled_from(["", "suspend", "paused"]),
    jitter_ms=st.sampled_from([0, 20_000]),
)
def test_a_new_job_looks_ahead_as_one_that_has_been_planned(
    start_at: int | None,
    end_at: int | None,
    since: int | None,
    remaining: int | None,
    stopped: str,
    jitter_ms: int,
) -> None:
    limits: dict[str, Any] = {"start_at": start_at, "end_at": end_at, "remaining": remaining}
    job = every("* * * * *", suspend=stopped == "suspend", jitter_ms=jitter_ms, **limits)
    record = create(job, now=1000 * NOON, since=since, paused=stopped == "paused")
    assert record == look_ahead(record)


def test_a_job_made_suspended_waits() -> None:
    made = world(every("* * * * *", suspend=True))
    assert (made.job.suspended, made.job.paused, made.job.plan_at, made.wake_at) == (1, 0, None, None)
    made.oversleep(5 * MINUTE)
    assert seen(made) == {}


@pytest.mark.parametrize(("text", "hours"), [("0 0 * * *", 24), ("0 0 1 * *", 24 * 40), ("*/5 * * * *", 80)])
def test_a_window_may_be_as_long_as_its_own_schedule_allows(text: str, hours: int) -> None:
    job = every(text, window=Window(WindowMode.AFTER, timedelta(hours=hours)))
    made = world(job)
    assert compiled_job(made.job.definition, job.identity).job.window == job.window


# --- edits -----------------------------------------------------------------------------------------


def test_the_same_definition_again_is_no_edit() -> None:
    made = world(every("* * * * *"))
    before = made.job
    made.edit(every("* * * * *"))
    assert made.job == before._replace(revision=before.revision + 1)


def test_an_edit_holds_from_the_next_period_on() -> None:
    made = world(every("* * * * *"))
    made.advance(2 * MINUTE)
    made.edit(every("*/5 * * * *"))
    made.advance(8 * MINUTE)
    assert list(seen(made)) == [1, 2, 5, 10]
    assert (made.rows()[nth(2)].epoch, made.rows()[nth(5)].epoch, made.job.epoch) == (1, 2, 2)


@pytest.mark.parametrize("catchup", list(Catchup))
def test_an_edit_never_starts_anything_in_the_past(catchup: Catchup) -> None:
    made = world(every("0 * * * *", catchup=catchup))
    made.advance(30 * MINUTE + 30_000)
    made.edit(every("* * * * *", catchup=catchup))
    assert made.starts == []
    made.advance(MINUTE)
    assert seen(made) == {31: "STARTED due"}


def test_what_came_before_an_edit_is_judged_by_the_old_definition() -> None:
    """Away from 12:00 on, edited at 12:30:30: 12:10 to 12:30 are the old one's, 12:31 on the new one's."""
    made = world(every("*/10 * * * *", catchup=Catchup.ALL))
    made.crash()
    made.now += 30 * MINUTE + 30_000
    case = made.case
    change = edit(case.job, [], every("* * * * *", catchup=Catchup.NONE), now=made.now)
    at_once(made.store.put(SPACE, created=[], changed=[change], now=made.now))
    made.now += 3 * MINUTE
    made.take_over()
    old = {10: "STARTED caught_up", 20: "STARTED caught_up", 30: "STARTED caught_up"}
    assert seen(made) == old | {31: "MISSED catchup_none", 32: "MISSED catchup_none", 33: "STARTED due"}
    assert made.job.past is None


def test_earlier_definitions_that_have_periods_left_are_bounded() -> None:
    """A job that is paused may be edited any number of times, and is read and written with all of them."""

    def salted(number: int) -> Job:
        return replace(every("* * * * *", catchup=Catchup.ALL), salt=f"{number}".rjust(50_000))

    now = 1000 * NOON
    job = create(salted(0), now=now, paused=True)
    for number in range(1, 4):
        now += MINUTE
        job = edit(job, [], salted(number), now=now).job
    assert MAX_PAST < len(job.past or "") < 2 * MAX_PAST
    with pytest.raises(ConflictError, match="resume it, or wait for its worker, before another edit"):
        edit(job, [], salted(4), now=now + MINUTE)
    # The same definition is no edit, and a deleted job has nothing left to plan.
    edit(job, [], salted(3), now=now + MINUTE)
    deleted = delete(job, [], now=now).job
    assert edit(deleted, [], salted(4), now=now + MINUTE).job.past is None


def test_a_row_decided_before_an_edit_is_caught_up_with_by_its_own_policy() -> None:
    window = Window(WindowMode.AFTER, timedelta(minutes=10))
    for old, new, expected in (
        (Catchup.ALL, Catchup.NONE, "STARTED caught_up"),
        (Catchup.NONE, Catchup.ALL, "MISSED catchup_none"),
    ):
        made = world(every("30 * * * *", window=window, catchup=old))
        made.advance(30 * MINUTE)
        made.edit(every("45 * * * *", catchup=new))
        made.outage(13 * MINUTE)
        assert seen(made) == {30: expected}


def test_the_new_definition_has_no_periods_before_the_edit_even_with_a_window() -> None:
    """The old one's last period is long past, so nothing but the edit itself bounds the new one."""
    window = Window(WindowMode.AFTER, timedelta(minutes=20))
    made = world(every("30 * * * *", window=window, catchup=Catchup.ALL))
    made.pause()
    made.now += 45 * MINUTE
    made.edit(every("* * * * *", window=window))
    made.resume()
    made.advance(HOUR)
    minutes = list(seen(made))
    assert minutes[:2] == [30, 46]


def test_a_pending_row_that_the_new_definition_does_not_have_is_cancelled() -> None:
    window = Window(WindowMode.BEFORE, timedelta(minutes=10))
    made = world(every("0 * * * *", window=window))
    made.advance(50 * MINUTE)
    assert seen(made) == {60: "PENDING planned"}
    made.edit(every("30 * * * *", window=window))
    assert seen(made)[60] == "CANCELLED edited"
    assert made.rows()[nth(60)].outcome == "skipped"


def test_an_unchanged_decision_keeps_its_row() -> None:
    window = Window(WindowMode.BEFORE, timedelta(minutes=10))
    made = world(every("0 * * * *", window=window))
    made.advance(50 * MINUTE)
    before = made.rows()[nth(60)]
    made.edit(every("0 * * * *", window=window, remaining=5))
    after = made.rows()[nth(60)]
    assert after == before._replace(epoch=2)
    made.advance(10 * MINUTE)
    assert [(at, nominal) for at, nominal, _ in made.starts] == [(before.fire_time, nth(60))]


def test_a_changed_decision_moves_its_row() -> None:
    made = world(every("0 * * * *", window=Window(WindowMode.BEFORE, timedelta(minutes=10))))
    made.advance(50 * MINUTE)
    edited = every("0 * * * *", window=Window(WindowMode.AFTER, timedelta(minutes=10)))
    made.edit(edited)
    run = made.rows()[nth(60)]
    assert (run.status, run.fire_time, run.due_at) == (
        "PENDING",
        fire_time_of(edited, nth(60)),
        run.fire_time,
    )
    made.advance(30 * MINUTE)
    assert [(at, nominal) for at, nominal, _ in made.starts] == [(run.fire_time, nth(60))]


def test_a_new_fire_time_that_is_already_past_ends_the_period() -> None:
    made = world(every("0 * * * *", window=Window(WindowMode.BEFORE, timedelta(minutes=10))))
    while made.rows().get(nth(60)) is None:
        made.advance(MINUTE)
    early = every("0 * * * *", window=Window(WindowMode.BEFORE, timedelta(minutes=50)))
    fire = fire_time_of(early, nth(60))
    assert fire is not None
    made.edit(early)
    expected = "CANCELLED edited" if fire <= made.now else "PENDING planned"
    assert seen(made)[60] == expected
    assert fire <= made.now, "the example is one where it matters"


@pytest.mark.parametrize(
    "changes",
    [
        {"salt": "another"},
        {"seed_strategy": SeedStrategy.DAILY},
        {"window": Window()},
        {"distribution": SkewLate(shape=3.0)},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("mode", [WindowMode.AFTER, WindowMode.BEFORE])
def test_an_edit_decides_anew_what_is_not_handled_and_nothing_that_is(
    changes: dict[str, Any], mode: WindowMode
) -> None:
    """With a window before the nominal time, a period that is recorded already is decided anew as well."""
    job = every("0 * * * *", window=Window(mode, timedelta(minutes=40)))
    made = world(job)
    made.advance(141 * MINUTE)
    handled = {nominal: run.fire_time for nominal, run in made.rows().items() if run.status != "PENDING"}
    edited = replace(job, **changes)
    if "window" in changes:
        edited = replace(job, window=Window(mode, timedelta(minutes=50)))
    made.edit(edited)
    made.advance(180 * MINUTE)
    later = 0
    for nominal, run in made.rows().items():
        old, new = fire_time_of(job, nominal), fire_time_of(edited, nominal)
        if nominal in handled:
            assert run.fire_time == handled[nominal] == old
        elif nominal > NOON + 141 * 60 and run.status != "CANCELLED":
            later += old != new
            assert run.fire_time == new
    assert handled
    assert later, "the edit moves some period"


@pytest.mark.parametrize(("before_ms", "expected"), [(0, "CANCELLED edited"), (1, "STARTED due")])
def test_a_fire_time_must_be_later_than_the_edit(before_ms: int, expected: str) -> None:
    edited = every("0 * * * *", window=Window(WindowMode.BEFORE, timedelta(minutes=30)))
    fire = fire_time_of(edited, nth(60))
    assert fire is not None
    made = world(every("0 0 * * *"))
    made.advance(fire - before_ms - made.now)
    made.edit(edited)
    made.advance(1)
    assert seen(made) == {60: expected}


def test_an_early_start_is_not_repeated_after_an_edit() -> None:
    """12:00 ran ahead of its nominal time; the edit comes in between, and its row decides."""
    job = every("0 * * * *", window=Window(WindowMode.BEFORE, timedelta(minutes=30)))
    made = world(job)
    fire = fire_time_of(job, nth(60))
    assert fire is not None
    made.advance(fire - made.now)
    made.end_period(nth(60))
    made.edit(every("0 * * * *", window=Window(WindowMode.AFTER, timedelta(minutes=30))))
    made.advance(HOUR)
    assert [nominal for _, nominal, _ in made.starts].count(nth(60)) == 1
    assert seen(made)[60] == "SUCCESS due"


def test_a_row_that_waits_follows_the_new_policy_at_once() -> None:
    made = world(every("* * * * *", overlap=Overlap.QUEUE))
    made.advance(2 * MINUTE)
    assert seen(made) == {1: "STARTED due", 2: "PENDING queued"}
    made.edit(every("* * * * *", overlap=Overlap.ALLOW))
    assert seen(made) == {1: "STARTED due", 2: "STARTED due"}


def test_more_runs_for_a_finished_job_do_not_start_its_past() -> None:
    made = world(every("* * * * *", remaining=1))
    made.advance(10 * MINUTE)
    made.edit(every("* * * * *", remaining=2))
    assert seen(made) == {1: "STARTED due"}
    made.advance(5 * MINUTE)
    assert seen(made) == {1: "STARTED due", 11: "STARTED due", 12: "STARTED due"}


def test_an_edit_keeps_what_remains_unless_it_says_otherwise() -> None:
    made = world(every("* * * * *", remaining=5))
    made.advance(2 * MINUTE)
    made.edit(every("*/2 * * * *", remaining=5))
    assert made.job.remaining == 3
    made.edit(every("*/2 * * * *", remaining=9))
    assert made.job.remaining == 9


def test_an_edit_keeps_a_pause() -> None:
    made = world(every("* * * * *"))
    made.pause()
    made.edit(every("*/2 * * * *"))
    assert (made.job.paused, made.job.plan_at) == (1, None)


def test_two_edits_while_nobody_looks_leave_three_definitions() -> None:
    made = world(every("*/10 * * * *", catchup=Catchup.ALL))
    made.pause()
    made.now += 15 * MINUTE
    made.edit(every("*/4 * * * *", catchup=Catchup.ALL))
    made.now += 15 * MINUTE
    made.edit(every("*/15 * * * *", catchup=Catchup.ALL))
    made.now += 16 * MINUTE
    made.resume()
    assert list(seen(made)) == [10, 16, 20, 24, 28, 45]


# --- pausing ---------------------------------------------------------------------------------------


def test_a_planned_row_is_held_by_a_pause_and_judged_at_the_resume() -> None:
    window = Window(WindowMode.AFTER, timedelta(minutes=10))
    for catchup, expected in ((Catchup.NONE, "MISSED catchup_none"), (Catchup.ONCE, "STARTED caught_up")):
        made = world(every("30 * * * *", window=window, catchup=catchup))
        made.advance(30 * MINUTE)
        made.pause()
        made.advance(20 * MINUTE)
        assert seen(made) == {30: "PENDING planned"}
        made.resume()
        assert seen(made) == {30: expected}


def test_a_pause_shorter_than_the_wait_changes_nothing() -> None:
    window = Window(WindowMode.AFTER, timedelta(minutes=20))
    job = every("30 * * * *", window=window)
    made = world(job)
    made.advance(30 * MINUTE)
    made.pause()
    made.resume()
    made.advance(20 * MINUTE)
    assert made.starts == [(fire_time_of(job, nth(30)), nth(30), 1)]


def test_resuming_a_job_that_is_not_paused_makes_nothing_missed() -> None:
    made = world(every("* * * * *", catchup=Catchup.NONE))
    made.now += 5 * MINUTE
    made.resume()
    assert set(seen(made).values()) == {"STARTED due"}
    assert made.job.resumed_at is None


def test_what_runs_goes_on_while_the_job_is_paused() -> None:
    made = world(every("* * * * *"))
    made.advance(MINUTE)
    made.pause()
    made.end_period(nth(1))
    assert seen(made) == {1: "SUCCESS due"}


# --- deleting --------------------------------------------------------------------------------------


def test_deleting_cancels_what_waits_and_lets_what_runs_end() -> None:
    made = world(every("* * * * *", overlap=Overlap.QUEUE))
    made.advance(3 * MINUTE)
    made.delete()
    assert seen(made) == {1: "STARTED due", 2: "CANCELLED deleted", 3: "CANCELLED deleted"}
    made.end_period(nth(1))
    made.advance(5 * MINUTE)
    assert seen(made)[1] == "SUCCESS due"
    assert (len(made.starts), made.job.plan_at, made.wake_at) == (1, None, None)


def test_an_execution_of_a_deleted_job_is_not_tried_again() -> None:
    made = world(every("* * * * *", retry_delay=timedelta(seconds=5)))
    made.advance(MINUTE)
    made.delete()
    made.end_period(nth(1), RunEvent.FAILED)
    assert made.case.runs == ()
    made.advance(10_000)
    made.edit(every("* * * * *", retry_delay=timedelta(seconds=5)))
    assert len(made.starts) == 1


def test_a_retry_that_waits_is_given_up_when_the_job_is_deleted() -> None:
    made = world(every("* * * * *", retry_delay=timedelta(seconds=5)))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.delete()
    made.advance(10_000)
    assert len(made.starts) == 1


def test_a_job_deleted_and_made_again_starts_no_period_twice() -> None:
    made = world(every("* * * * *"))
    made.advance(2 * MINUTE)
    made.delete()
    made.advance(2 * MINUTE + 500)
    made.edit(every("* * * * *"))
    made.advance(2 * MINUTE)
    assert list(seen(made)) == [1, 2, 5, 6]
    assert len({nominal for _, nominal, _ in made.starts}) == len(made.starts) == 4


def test_a_deleted_job_that_is_resumed_stays_at_rest() -> None:
    made = world(every("* * * * *"))
    made.pause()
    made.delete()
    made.resume()
    assert (made.job.plan_at, made.wake_at) == (None, None)


def test_a_deleted_job_cannot_be_asked_for_a_run() -> None:
    made = world(every("* * * * *"))
    made.delete()
    with pytest.raises(ConflictError, match="is deleted"):
        request_run(made.job, request="1", now=made.now)


# --- asking ----------------------------------------------------------------------------------------


def test_the_same_request_has_the_same_key() -> None:
    record = create(every("* * * * *"), now=1000 * NOON)
    keys = {
        request_run(record, request=request, now=now, kind=kind).inserts[0].key
        for request in ("a", "b")
        for now in (1, 2)
        for kind in (RunKind.MANUAL, RunKind.BACKFILL)
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("nominal_time", "expected"),
    [(nth(5), True), (nth(5) + 1, False), (nth(4), False), (nth(10), False), (nth(0), False)],
)
def test_which_times_are_periods(nominal_time: int, expected: bool) -> None:
    terms = compiled_job(definition_of(every("*/5 * * * *", start_at=nth(1), end_at=nth(9))), "world/job")
    assert is_period(terms, nominal_time) is expected


def test_a_retry_that_waits_keeps_its_delay_through_a_pause_and_an_edit() -> None:
    def job(delay: timedelta | None) -> Job:
        return with_policy(EVERY_MINUTE, deadline=None, retry_delay=delay)

    made = World(job(timedelta(seconds=30)), 1000 * NOON + 1)
    made.wake()
    made.advance(60_000)
    made.end_period(NOON + 60, RunEvent.FAILED)
    ended = made.now
    made.pause()
    made.edit(job(None))
    made.resume()
    (run,) = made.case.runs
    assert (run.attempt, run.due_at) == (1, ended + 30_000)
