"""Load: every decided start is counted once, in its minute, and the figures follow from the minutes."""

import math
from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import seconds_between
from kron.core.job.decision import decide_at, is_plain, starts_between, upcoming_from
from kron.core.job.job import Job
from kron.core.job.load import MINUTE, Load, LoadCount, load_of, nominal_starts_in, starts_in
from kron.core.time.instant import DAY, FIRST_SECOND, LAST_SECOND
from tests.strategies import law

MONDAY = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
HOUR = 3600

WINDOWS: list[dict[str, object]] = [
    {},
    {"window": {"mode": "after", "duration": "45m"}},
    {"window": {"mode": "before", "duration": "3h"}, "distribution": {"name": "skewLate"}},
    {"window": {"mode": "around", "duration": "30h"}, "distribution": {"name": "normal"}},
    {"window": {"mode": "before", "duration": "0.5s"}},
    {"constraints": {"avoid": {"hours": [3]}}},
    {"window": {"mode": "after", "duration": "2h"}, "constraints": {"only": {"dow": ["tue"]}}},
    {"policy": {"suspend": True}},
]
SCHEDULES = ["0 * * * *", "*/7 * * * *", "30 2 * * *", "0 0 * * 1", "15 30 3 * * *"]


def job(identity: str = "a", schedule: str = "0 * * * *", **fields: object) -> Job:
    return Job.from_dict({"identity": identity, "schedule": schedule, **fields})


@st.composite
def fleets(draw: st.DrawFn) -> list[Job]:
    """Draw a few jobs, plain and not."""
    kinds = draw(st.lists(st.tuples(st.sampled_from(SCHEDULES), st.sampled_from(WINDOWS)), max_size=6))
    zones = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"])
    return [
        Job.from_dict({"identity": f"job/{number}", "schedule": schedule, "timezone": draw(zones), **fields})
        for number, (schedule, fields) in enumerate(kinds)
    ]


def expected_minutes(jobs: list[Job], start: int, end: int) -> Counter[int]:
    """Return the load counted the long way: decide every period from far before to far after."""
    return Counter(
        chosen // MINUTE
        for one in jobs
        if not one.policy.suspend
        for nominal in seconds_between(one.schedule.plan, start - 2 * DAY, end + 2 * DAY)
        if (chosen := decide_at(one, nominal).chosen_time) is not None and start <= chosen < end
    )


# --- starts of one job ---


@law(60)
@given(one=fleets(), start=st.integers(-DAY, DAY), length=st.integers(1, 2 * DAY))
def test_the_starts_between_are_what_upcoming_yields(one: list[Job], start: int, length: int) -> None:
    begin, end = MONDAY + start, MONDAY + start + length
    for found in one:
        coming = []
        for decision in upcoming_from(found, begin, unschedulable=True):
            at = decision.bounds.end if decision.chosen_time is None else decision.chosen_time
            if at >= end:
                break
            coming.append((decision.nominal_time, decision.chosen_time))
        assert list(starts_between(found, begin, end)) == sorted(coming)


@pytest.mark.parametrize("fields", WINDOWS, ids=str)
def test_only_a_job_with_nothing_to_decide_is_plain(fields: dict[str, object]) -> None:
    one = Job.from_dict({"identity": "a", "schedule": "0 * * * *", **fields})
    assert is_plain(one) is ("window" not in fields and "constraints" not in fields)


def test_a_window_of_less_than_a_second_after_the_nominal_time_is_none() -> None:
    assert is_plain(job(window={"mode": "after", "duration": "0.9s"}))


@pytest.mark.parametrize("mode", ["after", "before", "around"])
def test_windows_that_leave_the_calendar_have_no_start(mode: str) -> None:
    one = job(schedule="0 0 * * *", window={"mode": mode, "duration": "36h"})
    first = list(starts_between(one, FIRST_SECOND, FIRST_SECOND + 3 * DAY))
    last = list(starts_between(one, LAST_SECOND - 3 * DAY, LAST_SECOND))
    assert all(chosen is not None and FIRST_SECOND <= chosen <= LAST_SECOND for _, chosen in first + last)
    assert first
    assert last


# --- a fleet ---


@law(60)
@given(fleet=fleets(), start=st.integers(-DAY, DAY), length=st.integers(1, DAY))
def test_every_start_is_counted_once_in_its_minute(fleet: list[Job], start: int, length: int) -> None:
    begin, end = MONDAY + start, MONDAY + start + length
    load = load_of(fleet, begin, end)
    expected = expected_minutes(fleet, begin, end)
    first = begin // MINUTE
    assert load.decided.first_at == first * MINUTE
    assert list(load.decided.minutes) == [
        expected[minute] for minute in range(first, math.ceil(end / MINUTE))
    ]
    assert sum(tally.starts for tally in load.tallies.values()) == load.decided.starts == expected.total()


@law(60)
@given(fleet=fleets(), start=st.integers(-DAY, DAY), length=st.integers(1, DAY))
def test_without_windows_every_period_starts_at_its_nominal_time(
    fleet: list[Job], start: int, length: int
) -> None:
    begin, end = MONDAY + start, MONDAY + start + length
    bare = [job(one.identity, one.schedule.text, timezone=one.schedule.timezone) for one in fleet]
    awake = [one for one, real in zip(bare, fleet, strict=True) if not real.policy.suspend]
    assert load_of(fleet, begin, end).nominal == load_of(awake, begin, end).decided


def test_suspended_jobs_are_named_and_left_out() -> None:
    load = load_of([job("a"), job("b", policy={"suspend": True})], MONDAY, MONDAY + DAY)
    assert load.suspended == ("b",)
    assert load.tallies == {"a": LoadCount(24, 0)}
    assert (load.decided.starts, load.nominal.starts) == (24, 24)


def test_periods_without_a_time_are_counted_and_start_nowhere() -> None:
    barred = job("a", constraints={"avoid": {"hours": [3, 4]}})
    load = load_of([barred], MONDAY, MONDAY + DAY)
    assert load.tallies == {"a": LoadCount(22, 2)}
    assert (load.unschedulable, load.decided.starts, load.nominal.starts) == (2, 22, 24)


def test_jobs_on_one_plan_are_all_counted() -> None:
    load = load_of([job(name) for name in "abc"], MONDAY, MONDAY + DAY)
    assert load.decided.peak == 3
    assert set(load.tallies.values()) == {LoadCount(24, 0)}


def test_an_empty_fleet_has_no_load() -> None:
    load = load_of([], MONDAY, MONDAY + DAY)
    assert load.decided.minutes == (0,) * 1440
    assert (load.decided.worst_at, load.decided.p99, load.decided.mean) == (None, 0, 0.0)


def test_the_one_who_waits_is_told_of_every_job_up_to_the_last() -> None:
    told: list[float] = []
    windowed = [job(name, window={"mode": "after", "duration": "5m"}) for name in "abcd"]
    load_of(windowed, MONDAY, MONDAY + DAY, progress=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]


# --- the figures ---


@pytest.mark.parametrize(
    ("minutes", "p99"),
    [
        pytest.param([7], 7, id="one minute"),
        pytest.param([0] * 99 + [5], 0, id="one in a hundred"),
        pytest.param([0] * 98 + [4, 5], 4, id="two in a hundred"),
        pytest.param([9] * 2 + [0] * 198, 0, id="two in two hundred"),
        pytest.param([9, 1, 8] + [0] * 197, 1, id="three in two hundred, in any order"),
    ],
)
def test_p99_is_what_ninety_nine_minutes_in_a_hundred_do_not_exceed(minutes: list[int], p99: int) -> None:
    assert Load(first_at=0, minutes=tuple(minutes)).p99 == p99


@law(100)
@given(minutes=st.lists(st.integers(0, 9), min_size=1, max_size=500))
def test_p99_is_the_least_load_that_enough_minutes_do_not_exceed(minutes: list[int]) -> None:
    p99 = Load(first_at=0, minutes=tuple(minutes)).p99
    assert 100 * sum(load <= p99 for load in minutes) >= 99 * len(minutes)
    assert 100 * sum(load < p99 for load in minutes) < 99 * len(minutes)


@law(100)
@given(first=st.integers(-3000, 3000), minutes=st.lists(st.integers(0, 9), min_size=1, max_size=3000))
def test_hours_are_those_of_the_clock_wherever_the_interval_begins(first: int, minutes: list[int]) -> None:
    load = Load(first_at=first * MINUTE, minutes=tuple(minutes))
    peaks: dict[int, int] = {}
    for minute, count in enumerate(minutes, first):
        hour = minute // 60 % 24
        peaks[hour] = max(peaks.get(hour, 0), count)
    assert load.peaks_by_hour() == peaks
    assert load.on_the_hour == sum(count for minute, count in enumerate(minutes, first) if minute % 60 == 0)
    hour_at = first // 60 * HOUR
    assert load.hour_at(first * MINUTE) == [
        minutes[minute - first] if 0 <= minute - first < len(minutes) else 0
        for minute in range(hour_at // MINUTE, hour_at // MINUTE + 60)
    ]


def test_the_worst_minute_is_the_first_of_equals() -> None:
    assert Load(first_at=600, minutes=(0, 4, 1, 4)).worst_at == 660


# --- the starts of a minute ---


def test_the_starts_of_a_minute_come_in_order_with_their_nominal_times() -> None:
    fleet = [
        job("b"),
        job("a", "30 0 * * * *"),
        job("c", window={"mode": "after", "duration": "50s"}),
        job("d", policy={"suspend": True}),
    ]
    found = starts_in(fleet, MONDAY, MONDAY + MINUTE)
    assert sorted(start.identity for start in found) == ["a", "b", "c"]
    assert [start.start_at for start in found] == sorted(start.start_at for start in found)
    assert found[0][:2] == (MONDAY, "b")
    assert len(found) == load_of(fleet, MONDAY, MONDAY + MINUTE).decided.minutes[0]


def test_nominal_starts_are_at_their_nominal_times() -> None:
    fleet = [job("a", window={"mode": "after", "duration": "5h"}), job("b", policy={"suspend": True})]
    found = nominal_starts_in(fleet, MONDAY, MONDAY + HOUR)
    assert [start[:3] for start in found] == [(MONDAY, "a", MONDAY)]


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        pytest.param("0 0 * * *", "UTC", True, id="full hour"),
        pytest.param("1 0 * * *", "UTC", False, id="a minute later"),
        pytest.param("0 0 * * *", "Asia/Kolkata", True, id="full hour where UTC shows half past"),
        pytest.param("30 5 * * *", "Asia/Kolkata", False, id="half past where UTC shows a full hour"),
    ],
)
def test_on_the_hour_is_what_the_jobs_own_clock_shows(schedule: str, zone: str, expected: bool) -> None:
    (start,) = starts_in([job("a", schedule, timezone=zone)], MONDAY, MONDAY + DAY)
    assert start.on_the_hour is expected
