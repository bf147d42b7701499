"""Override resolution: what a list does to what is stored, against a plain reading of the theory."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import JobRecord, Result, RunKind, RunRecord, RunStatus, key_of
from kron.core.plan.registration import create
from kron.core.plan.step import JobState, WriteScope
from kron.core.task.reconcile import Standing, minute_of, override, resolve
from kron.core.task.task import TaskConfig, definition_for, job_of
from kron.core.time.instant import datetime_of

NOON = 1_767_268_800
MINUTE = timedelta(minutes=1)
TEXTS = ("* * * * *", "0 * * * *", "5,10 * * * *", "*  * * * *", "30 12 * * *", "0 0 1 1 *", "59 11 * * *")


def stored(text: str = "0 * * * *", *, at: int = NOON, delay: timedelta = MINUTE) -> JobRecord:
    """Return the record of a task that was first registered then."""
    job = job_of(TaskConfig("a", text, delay), "UTC")
    return create(job, now=1000 * at, since=1000 * minute_of("UTC", at))


def a_run(**fields: object) -> RunRecord:
    run = RunRecord(
        key_of("a", NOON), "a", NOON, 1000 * NOON, RunStatus.FAILED, Reason.RETRY, 0, 1, is_open=1, attempt=1
    )
    failed = run._replace(ended_at=1000 * NOON, result=Result.FAILED)
    return failed._replace(**fields)  # type: ignore[arg-type]


def matches(text: str, after_ms: int, until_ms: int) -> bool:
    """Say whether a minute in `(after, until]` matches, by looking at each match of the days around."""
    schedule = Schedule(text, dialect="posix")
    first, last = datetime_of(after_ms // 1000), datetime_of(until_ms // 1000 + 1)
    times = [1000 * int(time.timestamp()) for time in schedule.between(first, last)]
    return any(after_ms < time <= until_ms for time in times)


@given(
    old=st.sampled_from(TEXTS),
    new=st.sampled_from(TEXTS),
    registered=st.integers(0, 7_200_000),
    started=st.none() | st.integers(0, 7_200_000),
    passed=st.integers(0, 10_000_000),
)
def test_after_an_override_a_task_is_due_iff_its_new_expression_matched_since(
    old: str, new: str, registered: int, started: int | None, passed: int
) -> None:
    registered_at = 1000 * NOON + registered
    since = registered_at if started is None else registered_at + started
    now = since + passed
    job = job_of(TaskConfig("a", old, MINUTE), "UTC")
    record = create(job, now=registered_at, since=1000 * minute_of("UTC", registered_at // 1000))
    if started is not None:
        record = record._replace(last_start_at=since, cursor=since // 1000)
    change = override(JobState(record), definition_for(new, MINUTE, "UTC"), now=now)
    assert bool(change.inserts) == matches(new, since, now)
    assert all(run.kind is RunKind.OVERRIDE and 1000 * run.nominal_time <= now for run in change.inserts)
    assert change.job.next_time is not None
    assert 1000 * change.job.next_time > now
    assert change.job.born_at == registered_at + 1
    assert (change.job.epoch, change.job.edited_at) == (2, now)


@given(
    old=st.sampled_from(TEXTS),
    new=st.sampled_from(TEXTS),
    passed=st.integers(0, 10_000_000),
    more=st.sampled_from([{}, {"replay_count": 1}, {"paused": 1, "plan_at": None}]),
)
def test_an_ordinary_edit_touches_what_its_scope_names_and_nothing_else(
    old: str, new: str, passed: int, more: dict[str, object]
) -> None:
    record = stored(old)._replace(**more)  # type: ignore[arg-type]
    change = override(JobState(record), definition_for(new, 2 * MINUTE, "UTC"), now=1000 * NOON + passed)
    named = {field: getattr(change.job, field) for field in WriteScope.EDIT.value}
    assert (change.scope is WriteScope.EDIT) == (record._replace(**named) == change.job)


def test_another_delay_alone_is_an_ordinary_edit() -> None:
    change = override(
        JobState(stored("30 12 * * *")), definition_for("30 12 * * *", 2 * MINUTE, "UTC"), now=1000 * NOON + 1
    )
    assert change.scope is WriteScope.EDIT


@given(delay=st.integers(0, 3_600_000_000), new=st.integers(0, 3_600_000_000))
def test_a_retry_waits_for_the_new_delay_from_its_failure(delay: int, new: int) -> None:
    before, after = timedelta(microseconds=delay), timedelta(microseconds=new)
    record = stored(delay=before)._replace(last_start_at=1000 * NOON)
    run = a_run(due_at=1000 * NOON - (-before // timedelta(milliseconds=1)))
    change = override(JobState(record, [run]), definition_for("0 * * * *", after, "UTC"), now=1000 * NOON + 1)
    (retry,) = change.updates or [run]
    assert retry.due_at == 1000 * NOON + -(-new // 1000)


def test_minutes_of_the_old_expression_that_nobody_saw_are_on_record_as_edited() -> None:
    record = stored("*  * * * *")._replace(last_start_at=1000 * NOON, cursor=NOON)
    change = override(JobState(record), definition_for("0 0 1 1 *", MINUTE, "UTC"), now=1000 * (NOON + 600))
    (dropped,) = change.ranges
    assert (dropped.first, dropped.last, dropped.periods) == (NOON + 60, NOON + 600, 10)
    assert (dropped.outcome, dropped.reason, dropped.epoch) == (Outcome.SKIPPED, Reason.EDITED, 1)


def test_what_waits_under_the_old_expression_is_given_up_and_an_orphan_is_left_alone() -> None:
    waiting = a_run(status=RunStatus.PENDING, reason=Reason.QUEUED, ended_at=None, result=None)
    running = a_run(key="other", status=RunStatus.STARTED, reason=Reason.DUE, ended_at=None, result=None)
    case = JobState(stored()._replace(last_start_at=1000 * NOON, cursor=NOON), [waiting, running])
    found = resolve([TaskConfig("a", "1 * * * *", MINUTE)], [case], timezone="UTC", now=1000 * NOON + 5)
    assert found.standings == {"a": Standing.ORPHANED}
    ((change,), created, forgotten) = (found.changed, found.created, found.forgotten)
    assert [(run.status, run.reason) for run in change.updates] == [(RunStatus.CANCELLED, Reason.EDITED)]
    assert (created, forgotten) == ([], [])


@pytest.mark.parametrize(
    ("tasks", "standings", "forgotten"),
    [
        pytest.param([TaskConfig("a", "0 * * * *", MINUTE)], {"a": "preserved"}, [], id="the same"),
        pytest.param([TaskConfig("a", "0  * * * *", MINUTE)], {"a": "overridden"}, [], id="another spelling"),
        pytest.param([TaskConfig("a", "0 * * * *", MINUTE * 2)], {"a": "overridden"}, [], id="another delay"),
        pytest.param([TaskConfig("A", "0 * * * *", MINUTE)], {"A": "new"}, ["a"], id="another case"),
        pytest.param([TaskConfig(" a", "0 * * * *", MINUTE)], {" a": "new"}, ["a"], id="a blank more"),
        pytest.param([], {}, ["a"], id="nothing"),
    ],
)
def test_names_expressions_and_delays_are_compared_exactly(
    tasks: list[TaskConfig], standings: dict[str, str], forgotten: list[str]
) -> None:
    found = resolve(tasks, [JobState(stored())], timezone="UTC", now=1000 * NOON + 5)
    assert found.standings == standings
    assert found.forgotten == forgotten


def test_a_preserved_task_that_has_nothing_to_withdraw_is_not_written() -> None:
    record = stored()._replace(last_start_at=1000 * NOON, cursor=NOON)
    found = resolve(
        [TaskConfig("a", "0 * * * *", MINUTE)], [JobState(record)], timezone="UTC", now=1000 * NOON + 5
    )
    assert (found.created, found.changed, found.forgotten) == ([], [], [])


def test_a_deleted_task_is_new_when_it_is_registered_again() -> None:
    record = stored()._replace(deleted_at=1000 * NOON)
    found = resolve(
        [TaskConfig("a", "0 * * * *", MINUTE)], [JobState(record)], timezone="UTC", now=1000 * NOON + 5
    )
    assert (found.standings, found.forgotten) == ({"a": Standing.NEW}, ["a"])
    assert len(found.created) == 1


@given(
    seconds=st.integers(-3_000_000_000, 3_000_000_000),
    zone=st.sampled_from(["UTC", "Asia/Kathmandu", "Africa/Monrovia"]),
)
def test_the_minute_around_an_instant_begins_at_second_zero_of_the_local_clock(
    seconds: int, zone: str
) -> None:
    start = minute_of(zone, seconds)
    assert start <= seconds < start + 60
    # Monrovia's clocks were 44 minutes and 30 seconds behind until 1972.
    if zone != "Africa/Monrovia":
        assert Schedule("* * * * *", zone).prev_at_or_before(datetime_of(seconds)) == datetime_of(start)


@st.composite
def stored_tasks(draw: st.DrawFn) -> tuple[list[TaskConfig], list[JobState]]:
    """Return a list of tasks, and what is stored of some of them; many are alike but for their names."""
    tasks, cases = [], []
    for number in range(draw(st.integers(0, 8))):
        name = f"task {number}"
        tasks.append(
            TaskConfig(name, draw(st.sampled_from(TEXTS[:3])), draw(st.sampled_from((MINUTE, 2 * MINUTE))))
        )
        if draw(st.booleans()):
            record = stored(draw(st.sampled_from(TEXTS[:3])))._replace(identity=name, number=1 + number)
            changes: dict[str, int | str | None] = draw(st.sampled_from(CHANGES))
            runs = [a_run(identity=name)] if draw(st.integers(0, 3)) == 0 else []
            cases.append(JobState(record._replace(**changes), runs))  # type: ignore[arg-type]
    return tasks, cases


# What may differ between tasks: nothing, a start, an earlier minute that was not polled, and damage.
CHANGES: tuple[dict[str, int | str | None], ...] = (
    {},
    {},
    {"last_start_at": 1000 * NOON, "cursor": NOON},
    {"last_start_at": 1000 * NOON - 120_000, "cursor": NOON - 120},
    {"deleted_at": 1000 * NOON},
    {"revision": 0},
    {"definition": "{"},
)


@given(given=stored_tasks(), passed=st.integers(0, 600_000))
def test_many_tasks_come_to_what_each_would_come_to_alone(
    given: tuple[list[TaskConfig], list[JobState]], passed: int
) -> None:
    tasks, cases = given
    now = 1000 * NOON + passed
    together = resolve(tasks, cases, timezone="UTC", now=now)
    known = {case.job.identity: [case] for case in cases}
    alone = [resolve([task], known.get(task.name, []), timezone="UTC", now=now) for task in tasks]
    assert together.standings == {name: kind for one in alone for name, kind in one.standings.items()}
    assert together.created == [record for one in alone for record in one.created]
    assert together.changed == [change for one in alone for change in one.changed]
    assert together.forgotten == [name for one in alone for name in one.forgotten]
    assert together.faults.keys() == {name for one in alone for name in one.faults}
