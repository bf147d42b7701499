"""A schedule answers with the instants at which its local wall clock matches, before and after any other."""

import sys
from calendar import isleap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule, next_times
from kron.core.cron.timeline import KINDS_WITHIN, Timeline
from kron.core.cron.walk import Walk, hour_table, sixtieth_table
from kron.core.errors import (
    CronCalculationError,
    InputError,
    InvalidCronExpressionError,
    InvalidInstantError,
    InvalidOptionError,
)
from kron.core.time.zone import REPEATING_FROM, Zone
from tests import reference
from tests.reference import DAY, HOUR, Minutes, epoch, minutes_of, neighbours
from tests.strategies import law, seconds, strict_expressions, zones
from tests.tiers import mostly_slow

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def posix(text: str, zone: str = "UTC", *, gap: str = "skip", repeat: str = "both") -> Schedule:
    return Schedule(text, zone, dialect="posix", dst_gap=gap, dst_repeat=repeat)


def utc(text: str) -> datetime:
    """Return an instant written as ``2024-03-31 01:00`` in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def minutes(instants: Iterator[datetime]) -> list[str]:
    """Write instants as ``2024-03-31 01:00``, and see that they are UTC."""
    found = list(instants)
    assert all(instant.tzinfo is UTC for instant in found)
    return [f"{instant:%Y-%m-%d %H:%M}" for instant in found]


def at(instant: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant)


# --- where the clocks change (SPEC 1: DST Transition Behavior) --------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        pytest.param(
            "30 2 * * *", "America/New_York", "2024-03-09", "2024-03-12",
            ["2024-03-09 07:30", "2024-03-11 06:30"], id="spring forward: 02:30 does not exist that day",
        ),
        pytest.param(
            "30 1 * * *", "America/New_York", "2024-11-02", "2024-11-05",
            ["2024-11-02 05:30", "2024-11-03 05:30", "2024-11-03 06:30", "2024-11-04 06:30"],
            id="fall back: 01:30 occurs twice",
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2024-10-26", "2024-10-29",
            ["2024-10-26 00:30", "2024-10-27 00:30", "2024-10-27 01:30", "2024-10-28 01:30"],
            id="fall back in Berlin",
        ),
        pytest.param(
            "0 2,3 * * *", "Europe/Berlin", "2024-10-26 12:00", "2024-10-27 12:00",
            ["2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00"],
            id="the end of the repeated hour is not repeated",
        ),
        pytest.param(
            "0 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00"], id="the end of the skipped hour is not skipped",
        ),
        pytest.param(
            "59 1,2 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 00:59"], id="the last minute of the skipped hour",
        ),
        pytest.param(
            "0 0 * * *", "Europe/Berlin", "2024-03-29", "2024-04-02",
            ["2024-03-29 23:00", "2024-03-30 23:00", "2024-03-31 22:00", "2024-04-01 22:00"],
            id="midnight is a civil day later, not 24 hours",
        ),
        pytest.param(
            "0 0 * * *", "America/Santiago", "2022-09-09 12:00", "2022-09-13",
            ["2022-09-10 04:00", "2022-09-12 03:00"], id="a midnight that is skipped",
        ),
        pytest.param(
            "0 0 * * *", "America/Havana", "2022-11-05", "2022-11-08",
            ["2022-11-05 04:00", "2022-11-06 04:00", "2022-11-06 05:00", "2022-11-07 05:00"],
            id="a midnight that is repeated",
        ),
        pytest.param(
            "30 23 * * *", "Asia/Beirut", "2022-10-28 12:00", "2022-10-31",
            ["2022-10-28 20:30", "2022-10-29 20:30", "2022-10-29 21:30", "2022-10-30 21:30"],
            id="the last hour of a day repeated",
        ),
        pytest.param(
            "0 0 30 10 *", "Asia/Beirut", "2022-10-28", "2022-11-01", ["2022-10-29 22:00"],
            id="midnight after a repeated hour comes once",
        ),
        pytest.param(
            "15,45 1 * * *", "Australia/Lord_Howe", "2024-04-06 12:00", "2024-04-06 20:00",
            ["2024-04-06 14:15", "2024-04-06 14:45", "2024-04-06 15:15"], id="half an hour repeated",
        ),
        pytest.param(
            "15,45 2 * * *", "Australia/Lord_Howe", "2024-10-05 12:00", "2024-10-05 20:00",
            ["2024-10-05 15:45"], id="half an hour skipped",
        ),
        pytest.param(
            "0 12 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01",
            ["2011-12-29 22:00", "2011-12-30 22:00", "2011-12-31 22:00"], id="a whole day skipped",
        ),
        pytest.param(
            "0 1 * * *", "Europe/Dublin", "2024-03-30", "2024-04-02",
            ["2024-03-30 01:00", "2024-04-01 00:00"], id="Dublin skips 01:00",
        ),
        pytest.param(
            "0 0,6,12,18 * * *", "Europe/London", "2024-10-26 20:00", "2024-10-27 20:00",
            ["2024-10-26 23:00", "2024-10-27 06:00", "2024-10-27 12:00", "2024-10-27 18:00"],
            id="hour lists follow the wall clock",
        ),
    ],
)  # fmt: skip
def test_occurrences_where_the_clocks_change(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert minutes(posix(text, zone).between(utc(start), utc(end))) == expected


def test_normal_occurrences_go_on_after_a_change_of_the_clocks() -> None:
    schedule = posix("0 9 * * 1-5", "America/New_York")
    found = list(schedule.between(utc("2024-01-01"), utc("2025-01-01")))
    assert len(found) == 262
    assert {instant.astimezone(ZoneInfo("America/New_York")).strftime("%H:%M") for instant in found} == {
        "09:00"
    }


# --- before and after ------------------------------------------------------------------------------

NOON = utc("2024-05-05 12:00")
DAILY = posix("0 12 * * *")


@pytest.mark.parametrize(
    ("instant", "following", "last"),
    [
        pytest.param(NOON, NOON + timedelta(1), NOON, id="at an occurrence"),
        pytest.param(NOON - timedelta(seconds=1), NOON, NOON - timedelta(1), id="a second before"),
        pytest.param(NOON - timedelta(microseconds=1), NOON, NOON - timedelta(1), id="a microsecond before"),
        pytest.param(NOON + timedelta(microseconds=1), NOON + timedelta(1), NOON, id="a microsecond after"),
        pytest.param(NOON + timedelta(seconds=59), NOON + timedelta(1), NOON, id="in the same minute"),
        pytest.param(NOON + timedelta(hours=5), NOON + timedelta(1), NOON, id="later"),
    ],
)
def test_next_is_strictly_later_and_prev_at_or_before(
    instant: datetime, following: datetime, last: datetime
) -> None:
    assert DAILY.next_after(instant) == following
    assert DAILY.prev_at_or_before(instant) == last


def test_microseconds_before_1970_count_the_same() -> None:
    noon = utc("1965-05-05 12:00")
    assert DAILY.next_after(noon - timedelta(microseconds=1)) == noon
    assert DAILY.prev_at_or_before(noon - timedelta(microseconds=1)) == noon - timedelta(1)
    assert DAILY.next_after(noon + timedelta(microseconds=1)) == noon + timedelta(1)
    assert DAILY.prev_at_or_before(noon + timedelta(microseconds=1)) == noon


@pytest.mark.parametrize(
    "zone",
    [
        UTC,
        timezone(timedelta(hours=5, minutes=45)),
        ZoneInfo("America/New_York"),
        ZoneInfo("Pacific/Kiritimati"),
    ],
    ids=str,
)
def test_an_instant_may_be_given_in_any_zone_and_the_answer_is_in_utc(zone: tzinfo) -> None:
    for answer in (
        DAILY.next_after(NOON.astimezone(zone) - timedelta(minutes=1)),
        DAILY.prev_at_or_before(NOON.astimezone(zone)),
        *DAILY.between(NOON.astimezone(zone), (NOON + timedelta(1)).astimezone(zone)),
    ):
        assert answer == NOON
        assert answer.tzinfo is UTC


def test_a_repeated_wall_time_is_told_apart_by_its_fold() -> None:
    schedule = posix("0,15,30,45 * * * *", "Europe/Berlin")
    wall = datetime(2024, 10, 27, 2, 20, tzinfo=ZoneInfo("Europe/Berlin"))
    assert schedule.next_after(wall) == utc("2024-10-27 00:30")
    assert schedule.next_after(wall.replace(fold=1)) == utc("2024-10-27 01:30")
    assert schedule.prev_at_or_before(wall) == utc("2024-10-27 00:15")
    assert schedule.prev_at_or_before(wall.replace(fold=1)) == utc("2024-10-27 01:15")


class Nowhere(tzinfo):
    """A time zone that does not know its offset, which makes a datetime naive."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, _: datetime | None) -> str | None:
        return None


NAIVE = "it has no time zone; pass an aware datetime, e.g. with tzinfo=datetime.UTC"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(datetime(2024, 5, 5), NAIVE, id="naive"),
        pytest.param(datetime(2024, 5, 5, tzinfo=Nowhere()), NAIVE, id="without an offset"),
        pytest.param(date(2024, 5, 5), "expected an aware datetime, got date", id="date"),
        pytest.param("2024-05-05T00:00:00Z", "expected an aware datetime, got str", id="str"),
        pytest.param(1_714_867_200, "expected an aware datetime, got int", id="int"),
        pytest.param(1_714_867_200.0, "expected an aware datetime, got float", id="float"),
        pytest.param(timedelta(1), "expected an aware datetime, got timedelta", id="timedelta"),
        pytest.param(None, "expected an aware datetime, got NoneType", id="None"),
        pytest.param([], "expected an aware datetime, got list", id="list"),
    ],
)
def test_what_names_no_instant_is_refused_at_once(value: Any, reason: str) -> None:
    for ask in (
        lambda: DAILY.next_after(value),
        lambda: DAILY.prev_at_or_before(value),
        lambda: DAILY.between(value, NOON),
        lambda: DAILY.between(NOON, value),
        lambda: next_times([DAILY], value),
    ):
        with pytest.raises(InvalidInstantError) as caught:
            ask()
        assert str(caught.value) == f'Invalid instant "{value}": {reason}'
        assert caught.value.details == {"value": value, "reason": reason}
        assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), id="before the year 1"),
        pytest.param(datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), id="after the year 9999"),
    ],
)
def test_an_instant_outside_the_calendar_in_utc_is_refused(value: datetime) -> None:
    for ask in (DAILY.next_after, DAILY.prev_at_or_before):
        with pytest.raises(InvalidInstantError, match="outside the years 1 to 9999 in UTC"):
            ask(value)


# --- between ---------------------------------------------------------------------------------------


def test_between_has_its_start_and_not_its_end() -> None:
    found = DAILY.between(NOON, NOON + timedelta(2))
    assert list(found) == [NOON, NOON + timedelta(1)]


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        pytest.param(timedelta(microseconds=1), timedelta(hours=1), 0, id="start a microsecond late"),
        pytest.param(timedelta(0), timedelta(microseconds=1), 1, id="end a microsecond after it"),
        pytest.param(timedelta(microseconds=-1), timedelta(0), 0, id="end at it"),
        pytest.param(timedelta(microseconds=-1), timedelta(microseconds=1), 1, id="around it"),
        pytest.param(timedelta(0), timedelta(0), 0, id="nothing"),
        pytest.param(timedelta(1), timedelta(0), 0, id="backwards"),
    ],
)
def test_between_counts_microseconds(start: timedelta, end: timedelta, count: int) -> None:
    assert len(list(DAILY.between(NOON + start, NOON + end))) == count


def test_between_yields_one_at_a_time_however_far_its_end() -> None:
    found = posix("* * * * *").between(FIRST, LAST)
    assert iter(found) is found
    assert list(islice(found, 3)) == [FIRST, FIRST + timedelta(minutes=1), FIRST + timedelta(minutes=2)]
    assert next(found) == FIRST + timedelta(minutes=3)


def test_between_ends_with_the_calendar() -> None:
    found = list(posix("0 0 * * *").between(utc("9999-12-30"), LAST))
    assert found == [utc("9999-12-30"), utc("9999-12-31")]


# --- schedules as values ---------------------------------------------------------------------------


def test_schedules_with_the_same_text_zone_and_options_share_one_plan() -> None:
    one, other = posix("5 4 * * *", "Europe/Berlin"), posix("5 4 * * *", "Europe/Berlin")
    assert one is not other
    assert one.plan is other.plan
    assert Schedule("5 4 * * *", identity="a").plan is Schedule("5 4 * * *", identity="b").plan


def test_schedules_in_other_zones_or_with_other_options_have_their_own_plan() -> None:
    text, zone = "5 4 * * *", "Europe/Berlin"
    plans = {
        posix(text, zone).plan,
        posix(text, "Europe/Paris").plan,
        posix("6 4 * * *", zone).plan,
        posix(text, zone, gap="next").plan,
        posix(text, zone, repeat="first").plan,
        posix(text, zone, repeat="last").plan,
    }
    assert len(plans) == 6


def test_schedules_with_h_have_the_plan_of_their_identity() -> None:
    for identity in ("backup", "report"):
        digest = sha256(f"{identity}\nH\nminute".encode()).digest()
        minute = int.from_bytes(digest[:8], "big") % 60
        schedule = Schedule("H 3 * * *", identity=identity)
        assert schedule.next_after(utc("2024-05-05")) == utc(f"2024-05-05 03:{minute:02}")
    assert Schedule("H 3 * * *", identity="backup").plan is not Schedule("H 3 * * *", identity="report").plan
    with pytest.raises(InvalidCronExpressionError):
        Schedule("H 3 * * *")


def test_a_shared_plan_answers_each_zone_on_its_own() -> None:
    zone_times = {
        zone: posix("0 0 * * *", zone).next_after(NOON) for zone in ("UTC", "Asia/Tokyo", "US/Hawaii")
    }
    assert {zone: f"{time:%d %H:%M}" for zone, time in zone_times.items()} == {
        "UTC": "06 00:00",
        "Asia/Tokyo": "05 15:00",
        "US/Hawaii": "06 10:00",
    }


def test_a_schedule_is_a_value() -> None:
    schedule = posix("0 0 * * *", "Europe/Berlin")
    assert schedule == posix("0 0 * * *", "Europe/Berlin")
    assert hash(schedule) == hash(posix("0 0 * * *", "Europe/Berlin"))
    assert schedule != posix("0 0 * * *", "Europe/Paris")
    assert schedule != posix("0 0 * * *", "Europe/Berlin", gap="next")
    assert (schedule.text, schedule.timezone, schedule.dialect) == ("0 0 * * *", "Europe/Berlin", "posix")
    assert str(schedule.expression) == "0 0 * * *"
    with pytest.raises(FrozenInstanceError):
        schedule.text = "1 1 * * *"  # type: ignore[misc]


def test_the_zone_is_utc_unless_given() -> None:
    assert Schedule("0 0 * * *", dialect="posix").timezone == "UTC"
    assert Schedule("0 0 * * *", None, dialect="posix") == posix("0 0 * * *", "UTC")


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("dst_gap", "later", "skip, next"),
        ("dst_gap", "NEXT", "skip, next"),
        ("dst_gap", "", "skip, next"),
        ("dst_gap", None, "skip, next"),
        ("dst_gap", ["next"], "skip, next"),
        ("dst_repeat", "second", "both, first, last"),
        ("dst_repeat", "First", "both, first, last"),
        ("dst_repeat", 1, "both, first, last"),
        ("dialect", "quartz", "posix, extended"),
        ("dialect", "POSIX", "posix, extended"),
        ("dialect", None, "posix, extended"),
    ],
)
def test_an_option_with_a_value_it_cannot_take_is_refused(option: str, value: Any, choices: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        Schedule("0 0 * * *", **{option: value})
    reason = f"use one of {choices}"
    assert str(caught.value) == f'Invalid {option} "{value}": {reason}'
    assert caught.value.details == {"option": option, "value": value, "reason": reason}


def test_a_zone_prefix_gives_the_zone_and_may_not_contradict_the_option() -> None:
    text = "CRON_TZ=Europe/Berlin 0 0 * * *"
    assert Schedule(text).timezone == "Europe/Berlin"
    assert Schedule(text).next_after(NOON) == utc("2024-05-05 22:00")
    assert Schedule(text, "Europe/Berlin").plan.zone is Schedule(text).plan.zone
    with pytest.raises(InvalidOptionError) as caught:
        Schedule(text, "America/New_York")
    reason = "the expression says CRON_TZ=Europe/Berlin; remove one of the two"
    assert str(caught.value) == f'Invalid timezone "America/New_York": {reason}'
    assert caught.value.details == {"option": "timezone", "value": "America/New_York", "reason": reason}
    with pytest.raises(InvalidOptionError):
        Schedule(text, "UTC")


def test_the_strict_dialect_has_no_zone_prefix() -> None:
    with pytest.raises(InvalidCronExpressionError, match="use the timezone option"):
        Schedule("CRON_TZ=Europe/Berlin 0 0 * * *", "Europe/Berlin", dialect="posix")


# --- many at once ----------------------------------------------------------------------------------


@law(60)
@given(
    pairs=st.lists(st.tuples(strict_expressions(), zones()), max_size=12),
    after=seconds(1970, 2060),
    order=st.randoms(use_true_random=False),
)
def test_the_next_times_of_many_are_those_of_each(
    pairs: list[tuple[str, str]], after: int, order: Random
) -> None:
    schedules = [posix(text, zone) for text, zone in pairs] * 2
    order.shuffle(schedules)
    assert next_times(schedules, at(after)) == [schedule.next_after(at(after)) for schedule in schedules]


def test_a_schedule_that_has_ended_has_no_next_time_among_many() -> None:
    after = utc("9999-06-01")
    schedules = [posix("0 0 1 1 *"), posix("0 0 1 7 *"), posix("0 0 1 1 *")]
    assert next_times(schedules, after) == [None, utc("9999-07-01"), None]
    assert next_times([], after) == []


# --- rare occurrences ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        pytest.param("0 0 29 2 *", "UTC", "2024-02-29", "2028-02-29", id="four years"),
        pytest.param("0 0 29 2 *", "UTC", "2096-02-29", "2104-02-29", id="eight years over 2100"),
        pytest.param("0 0 29 2 *", "UTC", "1896-03-01", "1904-02-29", id="eight years over 1900"),
        pytest.param("0 0 29 2 *", "UTC", "1996-03-01", "2000-02-29", id="2000 is a leap year"),
        pytest.param("0 0 29 2 *", "Asia/Tokyo", "2096-03-01", "2104-02-28 15:00", id="in Tokyo"),
        pytest.param("0 0 29 2 *", "America/New_York", "2096-03-01", "2104-02-29 05:00", id="in New York"),
        pytest.param("0 0 29 2 1", "UTC", "2023-02-01", "2023-02-06", id="either: a Monday of February"),
        pytest.param("0 0 29 2 1", "UTC", "2024-02-26", "2024-02-29", id="either: a Thursday"),
        pytest.param("0 0 29 2 1", "UTC", "2024-02-29", "2025-02-03", id="either: next February"),
        pytest.param("59 23 31 12 *", "Pacific/Kiritimati", "2023-12-31 09:59", "2024-12-31 09:59", id="y"),
        pytest.param("0 12 30 12 *", "Pacific/Apia", "2011-12-01", "2012-12-29 22:00", id="a day skipped"),
        pytest.param("0 0 21 8 *", "Pacific/Kwajalein", "1993-08-01", "1994-08-20 12:00", id="another"),
        pytest.param("30 2 31 3 *", "Europe/Berlin", "2024-03-30", "2025-03-31 00:30", id="an hour skipped"),
        pytest.param("30 1 27 10 *", "Antarctica/Troll", "2024-10-26 23:30", "2024-10-27 01:30", id="2 h"),
        pytest.param("0 12 30 9 *", "Pacific/Kwajalein", "1969-09-30 01:00", "1969-10-01", id="day repeated"),
        pytest.param("0 0 31 5,7 *", "UTC", "2024-06-01", "2024-07-31", id="months with 31 days"),
        pytest.param("0 0 1 1 *", "UTC", "2499-06-01", "2500-01-01", id="far future"),
        pytest.param("0 0 1 7 *", "America/New_York", "2499-12-01", "2500-07-01 04:00", id="far summer"),
        pytest.param("0 0 1 1 *", "Africa/Monrovia", "1960-06-01", "1961-01-01 00:44:30", id="odd offset"),
    ],
)  # fmt: skip
def test_a_rare_occurrence_is_found_in_both_directions(
    text: str, zone: str, after: str, expected: str
) -> None:
    schedule = posix(text, zone)
    assert schedule.next_after(utc(after)) == utc(expected)
    assert schedule.prev_at_or_before(utc(expected)) == utc(expected)
    assert schedule.prev_at_or_before(utc(expected) - timedelta(seconds=1)) <= utc(after)


def test_a_search_without_a_result_looks_at_a_bounded_number_of_years() -> None:
    """All 14 kinds of year after the zone's last irregular one, and no more."""
    schedule = Schedule("30 2 * 3 0L", "Europe/Berlin")
    zone = Zone("Europe/Berlin", ZoneInfo("Europe/Berlin"))
    walk = Walk(
        hour_table(schedule.expression.hour.mask),
        sixtieth_table(schedule.expression.minute.mask),
        sixtieth_table(schedule.expression.second.mask),
        schedule.expression.days,
        Timeline(zone, "skip", "both", mirrored=False),
    )
    assert walk.next_after(int(utc("2026-01-01").timestamp())) is None
    assert max(zone._years) < REPEATING_FROM + 2 * KINDS_WITHIN
    assert len(zone._years) < 120


@pytest.mark.parametrize("text", ["0 0 29 2 */7", "30 2 29 2 */7", "0 0 29 2 */3"])
@pytest.mark.parametrize("year", [2026, 2096, 2101, 2500, 9940])
def test_a_rare_day_is_found_however_far_it_is(text: str, year: int) -> None:
    """Leap days on a Sunday come every 28 or 40 years."""
    schedule = Schedule(text, "Europe/Berlin")
    after = datetime(year, 3, 1, tzinfo=UTC)
    weekdays = set(schedule.expression.weekday.values)
    leap = (y for y in range(year + 1, 9999) if isleap(y) and date(y, 2, 29).isoweekday() % 7 in weekdays)
    found = schedule.next_after(after).astimezone(ZoneInfo("Europe/Berlin"))
    assert (found.date(), found.hour) == (date(next(leap), 2, 29), schedule.expression.hour.values[0])


def test_a_time_that_its_zone_skips_every_year_is_given_up_with_an_error_that_says_so() -> None:
    """Berlin goes forward at 02:00 on the last Sunday of March since 1981, and no rule ends that."""
    text = "30 2 * 3 0L"
    schedule = Schedule(text, "Europe/Berlin")
    with pytest.raises(CronCalculationError) as caught:
        schedule.next_after(utc("2024-01-01"))
    cause = f'"{text}" has no next occurrence in Europe/Berlin within the calendar'
    assert str(caught.value) == f"Failed to calculate next occurrence: {cause}"
    assert schedule.prev_at_or_before(utc("2024-01-01")) == utc("1980-03-30 01:30")
    assert list(schedule.between(utc("1981-01-01"), utc("2400-01-01"))) == []
    for later in ("2100-01-01", "2399-07-01", "9000-01-01", "9999-12-30"):
        with pytest.raises(CronCalculationError):
            schedule.next_after(utc(later))
        assert schedule.prev_at_or_before(utc(later)) == utc("1980-03-30 01:30")
    moved = Schedule(text, "Europe/Berlin", dst_gap="next")
    assert moved.next_after(utc("2024-01-01")) == utc("2024-03-31 01:00")
    assert moved.prev_at_or_before(utc("2024-01-01")) == utc("2023-03-26 01:00")


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        pytest.param("0 0 29 2 */7", "2024-03-01", "2032-02-29", id="29 February, a Sunday"),
        pytest.param("0 0 * 2 1#5", "2024-03-01", "2044-02-29", id="a fifth Monday of February"),
        pytest.param("0 0 * 2 1#5", "2072-03-01", "2112-02-29", id="another, 40 years over 2100"),
        pytest.param("59 59 23 29 2 */6", "2024-03-01", "2032-02-29 23:59:59", id="with seconds"),
    ],
)
def test_the_rarest_days_there_are_come_after_decades(text: str, after: str, expected: str) -> None:
    schedule = Schedule(text)
    assert schedule.next_after(utc(after)) == utc(expected)
    assert schedule.prev_at_or_before(utc(expected) - timedelta(seconds=1)) < utc(after)
    assert schedule.prev_at_or_before(utc(expected) + timedelta(days=300)) == utc(expected)


@law(250)
@given(text=strict_expressions(), zone=zones(), instant=seconds(1973, 2060))
def test_next_and_prev_are_those_found_by_looking_at_the_days_around(
    text: str, zone: str, instant: int
) -> None:
    plan = posix(text, zone).plan
    start, end = (instant - 2 * DAY) // 60 * 60, instant + 2 * DAY
    prev, following = neighbours(Minutes(zone, start, end).matches(text), instant)
    found, found_before = plan.next_after(instant), plan.prev_at_or_before(instant)
    assert found is not None
    assert found_before is not None
    assert found == following or (following is None and found >= end)
    assert found_before == prev or (prev is None and found_before < start)


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_a_year_of_occurrences_is_that_found_by_looking_at_every_minute(seed: int) -> None:
    random = Random(seed)
    zone = random.choice(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"])
    year = random.randrange(2000, 2030)
    start, end = epoch(year), epoch(year + 1)
    for text in ("0,30 1-3 * * *", "17 5 1,15 * 1", "0 0 31 * *", "45 23 * 2,3,10,11 0"):
        found = [int(instant.timestamp()) for instant in posix(text, zone).between(at(start), at(end))]
        assert found == minutes_of(zone, start, end).matches(text), (seed, zone, year, text)


def test_the_reference_answers_as_the_schedule_does() -> None:
    schedule, instant = posix("30 2 * * *", "Europe/Berlin"), epoch(2024, 3, 30, 12)
    assert reference.next_after("30 2 * * *", "Europe/Berlin", instant, horizon=DAY) is None
    following = reference.next_after("30 2 * * *", "Europe/Berlin", instant, horizon=3 * DAY)
    prev = reference.prev_at_or_before("30 2 * * *", "Europe/Berlin", instant, horizon=DAY)
    assert (following, prev) == (epoch(2024, 4, 1, 0, 30), epoch(2024, 3, 30, 1, 30))
    assert (schedule.next_after(at(instant)), schedule.prev_at_or_before(at(instant))) == (
        utc("2024-04-01 00:30"),
        utc("2024-03-30 01:30"),
    )


# --- the ends of the calendar ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "instant", "current"),
    [
        ("0 0 1 1 *", "UTC", "9999-01-01", "9999-01-01T00:00:00Z"),
        ("0 0 1 1 *", "Europe/Berlin", "9999-06-01 12:34:56", "9999-06-01T12:34:56Z"),
        ("* * * * *", "UTC", "9999-12-31 23:59:00", "9999-12-31T23:59:00Z"),
        ("0 0 29 2 *", "UTC", "9996-02-29", "9996-02-29T00:00:00Z"),
    ],
)
def test_there_is_no_next_occurrence_after_the_last_year(
    text: str, zone: str, instant: str, current: str
) -> None:
    with pytest.raises(CronCalculationError) as caught:
        posix(text, zone).next_after(utc(instant))
    cause = f'"{text}" has no next occurrence in {zone} within the calendar'
    assert str(caught.value) == f"Failed to calculate next occurrence: {cause}"
    error = caught.value
    assert str(error) == f"Failed to calculate next occurrence: {cause}"
    assert error.details == {"expression": text, "currentTime": current, "cause": error.__cause__}
    assert (type(error.__cause__), str(error.__cause__)) == (LookupError, cause)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "cron_calculation"


@pytest.mark.parametrize(
    ("text", "zone", "instant", "current"),
    [
        ("0 0 2 1 *", "UTC", "0001-01-01 12:00", "0001-01-01T12:00:00Z"),
        ("0 0 29 2 *", "UTC", "0004-02-28 23:59:59", "0004-02-28T23:59:59Z"),
        ("0 0 1 1 *", "Asia/Tokyo", "0001-06-01", "0001-06-01T00:00:00Z"),
    ],
)
def test_there_is_no_previous_occurrence_before_the_first_year(
    text: str, zone: str, instant: str, current: str
) -> None:
    with pytest.raises(CronCalculationError) as caught:
        posix(text, zone).prev_at_or_before(utc(instant))
    cause = f'"{text}" has no previous occurrence in {zone} within the calendar'
    assert str(caught.value) == f"Failed to calculate next occurrence: {cause}"
    error = caught.value
    assert str(error) == f"Failed to calculate next occurrence: {cause}"
    assert error.details == {"expression": text, "currentTime": current, "cause": error.__cause__}
    assert (type(error.__cause__), str(error.__cause__)) == (LookupError, cause)


def test_the_first_and_the_last_minute_of_the_calendar_are_found() -> None:
    every_minute = posix("* * * * *")
    assert every_minute.prev_at_or_before(FIRST) == FIRST
    assert every_minute.next_after(FIRST) == FIRST + timedelta(minutes=1)
    assert every_minute.prev_at_or_before(LAST) == utc("9999-12-31 23:59")
    assert every_minute.next_after(utc("9999-12-31 23:58:59")) == utc("9999-12-31 23:59")


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "Pacific/Auckland", "Europe/Berlin"])
def test_the_calendar_can_be_entered_from_both_ends_in_every_zone(zone: str) -> None:
    """Local time is in the year 0 or 10000 there for some hours; what lies beyond them is found."""
    every_minute = posix("* * * * *", zone)
    following, prev = every_minute.next_after(FIRST), every_minute.prev_at_or_before(LAST)
    assert FIRST < following < FIRST + timedelta(days=1)
    assert LAST - timedelta(days=1) < prev <= LAST
    assert (following + (following.astimezone(ZoneInfo(zone)).utcoffset() or timedelta(0))).second == 0
    assert next(every_minute.between(FIRST, LAST)) - FIRST < timedelta(days=1)
    assert posix("0 12 * * *", zone).next_after(FIRST) < FIRST + timedelta(days=2)
    assert posix("0 12 * * *", zone).prev_at_or_before(LAST) > LAST - timedelta(days=2)


# --- the options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-04-01 12:00",
            ["2024-03-31 01:00", "2024-04-01 00:30"], id="at the end of the gap",
        ),
        pytest.param(
            "0,15,30,45 2 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00"], id="once, however many were skipped",
        ),
        pytest.param(
            "30 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00", "2024-03-31 01:30"], id="beside a regular match soon after",
        ),
        pytest.param(
            "0,30 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00", "2024-03-31 01:30"], id="merged with a regular match at the gap's end",
        ),
        pytest.param(
            "0 1,3 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 00:00", "2024-03-31 01:00"], id="nothing skipped, nothing added",
        ),
        pytest.param(
            "0 4 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 02:00"], id="nothing added where nothing matched",
        ),
        pytest.param(
            "59 2 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00"], id="the last skipped minute",
        ),
        pytest.param(
            "0 2 * * *", "Europe/Berlin", "2024-03-30 12:00", "2024-03-31 12:00",
            ["2024-03-31 01:00"], id="the first skipped minute",
        ),
        pytest.param(
            "15 2 * * *", "Australia/Lord_Howe", "2024-10-05", "2024-10-06",
            ["2024-10-05 15:30"], id="half an hour: skipped",
        ),
        pytest.param(
            "30,45 2 * * *", "Australia/Lord_Howe", "2024-10-05", "2024-10-06",
            ["2024-10-05 15:30", "2024-10-05 15:45"], id="half an hour: its end is regular",
        ),
        pytest.param(
            "0 12 30 12 *", "Pacific/Apia", "2011-12-01", "2012-12-01",
            ["2011-12-30 10:00"], id="a day: once, at its end",
        ),
        pytest.param(
            "0 0,6,12,18 * * *", "Pacific/Apia", "2011-12-30 03:00", "2011-12-30 20:00",
            ["2011-12-30 04:00", "2011-12-30 10:00", "2011-12-30 16:00"], id="a day: four skipped are one",
        ),
        pytest.param(
            "0 0 * * *", "America/Santiago", "2022-09-10", "2022-09-13",
            ["2022-09-10 04:00", "2022-09-11 04:00", "2022-09-12 03:00"], id="midnight",
        ),
        pytest.param(
            "0 0 11 9 *", "America/Santiago", "2022-01-01", "2023-01-01",
            ["2022-09-11 04:00"], id="midnight: a day that is asked for by number",
        ),
        pytest.param(
            "30 1 * * *", "Europe/Berlin", "2024-10-26", "2024-10-28",
            ["2024-10-26 23:30"], id="a fold is not a gap",
        ),
    ],
)  # fmt: skip
def test_a_skipped_time_may_move_to_the_end_of_the_gap(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert minutes(posix(text, zone, gap="next").between(utc(start), utc(end))) == expected


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "first", "last"),
    [
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2024-10-26 12:00", "2024-10-27 12:00",
            ["2024-10-27 00:30"], ["2024-10-27 01:30"], id="one of two",
        ),
        pytest.param(
            "0 2,3 * * *", "Europe/Berlin", "2024-10-26 12:00", "2024-10-27 12:00",
            ["2024-10-27 00:00", "2024-10-27 02:00"], ["2024-10-27 01:00", "2024-10-27 02:00"],
            id="the end of the repeated hour stays",
        ),
        pytest.param(
            "59 1,2 * * *", "Europe/Berlin", "2024-10-26 12:00", "2024-10-27 12:00",
            ["2024-10-26 23:59", "2024-10-27 00:59"], ["2024-10-26 23:59", "2024-10-27 01:59"],
            id="what comes before the repeated hour stays",
        ),
        pytest.param(
            "15,45 1 * * *", "Australia/Lord_Howe", "2024-04-06", "2024-04-07",
            ["2024-04-06 14:15", "2024-04-06 14:45"], ["2024-04-06 14:15", "2024-04-06 15:15"],
            id="half an hour",
        ),
        pytest.param(
            "0 0 * * *", "America/Havana", "2022-11-06", "2022-11-07",
            ["2022-11-06 04:00"], ["2022-11-06 05:00"], id="a repeated midnight",
        ),
        pytest.param(
            "30 23 * * *", "Asia/Beirut", "2022-10-29", "2022-10-30",
            ["2022-10-29 20:30"], ["2022-10-29 21:30"], id="the last hour of a day",
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2024-03-29 12:00", "2024-04-01 12:00",
            ["2024-03-30 01:30", "2024-04-01 00:30"], ["2024-03-30 01:30", "2024-04-01 00:30"],
            id="a gap is not a fold",
        ),
    ],
)  # fmt: skip
def test_of_a_repeated_time_the_first_or_the_last_may_be_kept(
    text: str, zone: str, start: str, end: str, first: list[str], last: list[str]
) -> None:
    assert minutes(posix(text, zone, repeat="first").between(utc(start), utc(end))) == first
    assert minutes(posix(text, zone, repeat="last").between(utc(start), utc(end))) == last


GAP_END, FOLD = utc("2024-03-31 01:00"), utc("2024-10-27 01:00")


@pytest.mark.parametrize(
    ("text", "gap", "repeat", "change", "shifts"),
    [
        pytest.param("59 59 1 * * *", "next", "both", GAP_END, [-1], id="the second before a gap"),
        pytest.param("0 0 2 * * *", "next", "both", GAP_END, [0], id="the first second skipped"),
        pytest.param("59 59 2 * * *", "next", "both", GAP_END, [0], id="the last second skipped"),
        pytest.param("0 0 3 * * *", "next", "both", GAP_END, [0], id="the second at a gap's end"),
        pytest.param("1 0 3 * * *", "next", "both", GAP_END, [1], id="the second after a gap's end"),
        pytest.param("0,1 0 2,3 * * *", "next", "both", GAP_END, [0, 1], id="skipped, at and after the end"),
        pytest.param("59 59 1 * * *", "skip", "first", FOLD, [-3601], id="before a fold, first"),
        pytest.param("59 59 1 * * *", "skip", "last", FOLD, [-3601], id="before a fold, last"),
        pytest.param("0 0 2 * * *", "skip", "first", FOLD, [-3600], id="the first second repeated, first"),
        pytest.param("0 0 2 * * *", "skip", "last", FOLD, [0], id="the first second repeated, last"),
        pytest.param("59 59 2 * * *", "skip", "first", FOLD, [-1], id="the last second repeated, first"),
        pytest.param("59 59 2 * * *", "skip", "last", FOLD, [3599], id="the last second repeated, last"),
        pytest.param("0 0 3 * * *", "skip", "first", FOLD, [3600], id="after a fold, first"),
        pytest.param("0 0 3 * * *", "skip", "last", FOLD, [3600], id="after a fold, last"),
    ],
)
def test_the_options_are_exact_to_the_second_in_both_directions(
    text: str, gap: str, repeat: str, change: datetime, shifts: list[int]
) -> None:
    schedule = Schedule(text, "Europe/Berlin", dst_gap=gap, dst_repeat=repeat)
    start, end = change - timedelta(minutes=90), change + timedelta(minutes=90)
    expected = [change + timedelta(seconds=shift) for shift in shifts]
    assert list(schedule.between(start, end)) == expected
    back = [schedule.prev_at_or_before(end - timedelta(seconds=1))]
    while back[-1] >= start:
        back.append(schedule.prev_at_or_before(back[-1] - timedelta(seconds=1)))
    assert back[-2::-1] == expected


@pytest.mark.parametrize(
    ("repeat", "left_out"),
    [("both", range(0)), ("first", range(3600)), ("last", range(-3600, 0))],
)
def test_every_second_runs_except_those_left_out(repeat: str, left_out: range) -> None:
    schedule = Schedule("* * * * * *", "Europe/Berlin", dst_repeat=repeat)
    found = schedule.between(FOLD - timedelta(hours=2), FOLD + timedelta(hours=2))
    seconds_around = [int((instant - FOLD).total_seconds()) for instant in found]
    assert seconds_around == [second for second in range(-7200, 7200) if second not in left_out]


# Around a change: the zone, its instant, and how far to look at every second.
OLD_CHANGES = [
    pytest.param("America/New_York", epoch(1883, 11, 18, 17), 2, id="New York 1883, 3:58 repeated"),
    pytest.param("Africa/Monrovia", epoch(1972, 1, 7, 0, 44, 30), 2, id="Monrovia 1972, 44:30 skipped"),
    pytest.param("Asia/Manila", epoch(1844, 12, 31, 15, 56), 26, id="Manila 1844, a day skipped"),
    pytest.param("America/Juneau", epoch(1867, 10, 19, 0, 31), 26, id="Juneau 1867, a day repeated"),
    pytest.param("Pacific/Kwajalein", epoch(1969, 9, 30, 13), 26, id="Kwajalein 1969, 23 hours repeated"),
    pytest.param("Africa/Casablanca", epoch(1985, 12, 31, 23), 2, id="Casablanca, a UTC year ends with it"),
    pytest.param("Africa/Sao_Tome", epoch(1883, 12, 31, 23, 33, 4), 2, id="Sao Tome 1883, over a new year"),
    pytest.param("Africa/Sao_Tome", epoch(2019, 1, 1, 1), 2, id="Sao Tome 2019, a UTC year begins with it"),
    pytest.param("Antarctica/Palmer", epoch(1965), 4, id="Palmer 1965, back at a UTC new year"),
]


@pytest.mark.parametrize(("zone", "change", "hours"), OLD_CHANGES)
@pytest.mark.parametrize("gap", ["skip", "next"])
@pytest.mark.parametrize("repeat", ["both", "first", "last"])
def test_the_options_mean_the_same_for_large_changes_and_offsets_with_seconds(
    zone: str, change: int, hours: int, gap: str, repeat: str
) -> None:
    start, end = change - hours * HOUR, change + hours * HOUR
    seen = minutes_of(zone, start, end, step=1)
    for text in (
        "* * * * *",
        "0 * * * *",
        "30 0,12 * * *",
        "0,15,30,45 0-1,23 * * *",
        "17 3,7,11,16 * 1,10 *",
    ):
        plan = posix(text, zone, gap=gap, repeat=repeat).plan
        expected = seen.matches(text, gap=gap, repeat=repeat)
        found = [plan.next_after(start - 1)]
        while found[-1] is not None and found[-1] < end:
            found.append(plan.next_after(found[-1]))
        assert found[:-1] == expected, text
        back = [plan.prev_at_or_before(end - 1)]
        while back[-1] is not None and back[-1] >= start:
            back.append(plan.prev_at_or_before(back[-1] - 1))
        assert back[-2::-1] == expected, text


# --- threads ---------------------------------------------------------------------------------------


@pytest.fixture
def busy_threads() -> Iterator[ThreadPoolExecutor]:
    """Give threads that take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            yield threads
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_share_a_plan_get_the_answers_they_asked_for(
    busy_threads: ThreadPoolExecutor, seed: int
) -> None:
    start, end = epoch(2000), epoch(2030)
    plan = posix("30 2 28-31 * 0", "Europe/Berlin", repeat="last").plan
    lonely = posix(" 30 2 28-31 * 0", "Europe/Berlin", repeat="last")
    assert lonely.plan is not plan
    known = [int(instant.timestamp()) for instant in lonely.between(at(start), at(end))]

    def wrong_answers(part: int) -> list[int]:
        random = Random(f"{seed}:{part}")
        asked = [random.randrange(known[0], known[-1]) for _ in range(2_000)]
        return [
            instant
            for instant in asked
            if (plan.prev_at_or_before(instant), plan.next_after(instant)) != neighbours(known, instant)
        ]

    assert list(busy_threads.map(wrong_answers, range(8))) == [[]] * 8, seed


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ("", "must not be empty"),
        (" ", "must not be empty"),
        ("a\nb", "must not contain a line break"),
        ("a\0b", "must not contain a NUL"),
        ("\ud800", "must be valid Unicode"),
        (5, "must be a string, got int"),
    ],
)
@pytest.mark.parametrize("text", ["H 1 * * *", "0 1 * * *"])
def test_an_identity_that_no_job_can_have_is_refused(text: str, identity: Any, reason: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"Invalid identity .*{reason}"):
        Schedule(text, identity=identity)
