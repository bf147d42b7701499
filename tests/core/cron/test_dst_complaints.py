"""What users of other schedulers suffered where the clocks change, and what a Kron schedule does instead.

Each test is named after the suffering; the number in its ids is the row of our list of complaints. Zones and
instants are real, and every expected instant is written out, in UTC.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest

from kron.core.cron.preview import Mark, changes_ahead, effects, preview
from kron.core.cron.schedule import Schedule
from kron.core.job.decision import decide
from kron.core.job.job import Job
from kron.core.time.instant import seconds_of
from kron.core.time.zone import tzdata_version, wall_time

FOUR_HOURLY = "0 0,4,8,12,16,20 * * *"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def written(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"


def steps(schedule: Schedule, start: str, count: int) -> list[str]:
    """Return what comes of asking for the next instant, then for the one after the answer, and so on."""
    instant, found = utc(start), []
    for _ in range(count):
        instant = schedule.next_after(instant)
        found.append(written(instant))
    return found


def steps_back(schedule: Schedule, end: str, count: int) -> list[str]:
    """Return what comes of asking for the instant before, then for the one before it; oldest first."""
    instant, found = utc(end), []
    for _ in range(count):
        instant = schedule.prev_at_or_before(instant)
        found.append(written(instant))
        instant -= timedelta(seconds=1)
    return found[::-1]


def found_in(schedule: Schedule, start: str, end: str) -> list[str]:
    return [written(instant) for instant in schedule.between(utc(start), utc(end))]


# --- it answered the same instant for ever ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        pytest.param(
            "0 2 * * *", "Europe/Berlin", "2024-10-26 12:00",
            ["2024-10-27 00:00", "2024-10-27 01:00", "2024-10-28 01:00"], id="row 1: Berlin, 02:00",
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", "2024-10-26 12:00",
            ["2024-10-27 00:30", "2024-10-27 01:30", "2024-10-28 01:30"], id="row 1: Berlin, 02:30",
        ),
        pytest.param(
            "0,30 1 * * *", "America/New_York", "2025-11-01 12:00",
            ["2025-11-02 05:00", "2025-11-02 05:30", "2025-11-02 06:00",
             "2025-11-02 06:30", "2025-11-03 06:00"],
            id="row 1: New York, twice in the repeated hour",
        ),
        pytest.param(
            "59 23 * * *", "America/Santiago", "2022-04-02 12:00",
            ["2022-04-03 02:59", "2022-04-03 03:59", "2022-04-04 03:59"],
            id="row 1: Santiago, before midnight",
        ),
        pytest.param(
            "45 1 * * *", "Australia/Lord_Howe", "2024-04-06 12:00",
            ["2024-04-06 14:45", "2024-04-06 15:15", "2024-04-07 15:15"], id="row 1: Lord Howe, half an hour",
        ),
        pytest.param(
            "30 1,2 * * *", "Antarctica/Troll", "2024-10-26 12:00",
            ["2024-10-26 23:30", "2024-10-27 00:30", "2024-10-27 01:30",
             "2024-10-27 02:30", "2024-10-28 01:30"],
            id="row 1: Troll, two hours",
        ),
    ],
)  # fmt: skip
def test_the_same_instant_came_for_ever_at_the_autumn_change(
    text: str, zone: str, start: str, expected: list[str]
) -> None:
    assert steps(Schedule(text, zone), start, len(expected)) == expected


@pytest.mark.parametrize("zone", [pytest.param("Europe/Berlin", id="row 1: both folds of one wall time")])
def test_the_second_of_two_equal_wall_times_was_taken_for_the_first(zone: str) -> None:
    schedule = Schedule("*/10 * * * *", zone)
    first, second = (
        datetime(2024, 10, 27, 2, 20, fold=fold, tzinfo=schedule.plan.zone.tzinfo) for fold in (0, 1)
    )
    assert schedule.next_after(first) == utc("2024-10-27 00:30")
    assert schedule.next_after(second) == utc("2024-10-27 01:30")


# --- a day was lost ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [
        pytest.param(
            "Europe/Berlin", "2024-03-28 23:30",
            ["2024-03-29 23:00", "2024-03-30 23:00", "2024-03-31 22:00", "2024-04-01 22:00"],
            id="row 2: Berlin in spring",
        ),
        pytest.param(
            "Europe/Berlin", "2024-10-24 22:30",
            ["2024-10-25 22:00", "2024-10-26 22:00", "2024-10-27 23:00", "2024-10-28 23:00"],
            id="row 2: Berlin in autumn",
        ),
        pytest.param(
            "America/New_York", "2024-03-08 05:00",
            ["2024-03-09 05:00", "2024-03-10 05:00", "2024-03-11 04:00", "2024-03-12 04:00"],
            id="row 2: New York in spring",
        ),
        pytest.param(
            "Australia/Sydney", "2024-10-04 14:00",
            ["2024-10-05 14:00", "2024-10-06 13:00", "2024-10-07 13:00"], id="row 2: Sydney in spring",
        ),
    ],
)  # fmt: skip
def test_the_midnight_job_lost_a_day_after_the_spring_change(
    zone: str, start: str, expected: list[str]
) -> None:
    assert steps(Schedule("0 0 * * *", zone), start, len(expected)) == expected


# --- the specification is silent ---------------------------------------------------------------------

ONCE_IN_SPRING = {"skip": [], "next": ["2024-03-31 01:00"]}
IN_AUTUMN = {
    "both": ["2024-10-27 00:30", "2024-10-27 01:30"],
    "first": ["2024-10-27 00:30"],
    "last": ["2024-10-27 01:30"],
}


@pytest.mark.parametrize(
    ("gap", "repeat"),
    [
        pytest.param(gap, repeat, id=f"row 3: {gap}, {repeat}")
        for gap in ONCE_IN_SPRING
        for repeat in IN_AUTUMN
    ],
)
def test_nobody_said_what_happens_when_the_clocks_change(gap: str, repeat: str) -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin", dst_gap=gap, dst_repeat=repeat)
    assert found_in(schedule, "2024-03-30 12:00", "2024-03-31 12:00") == ONCE_IN_SPRING[gap]
    assert found_in(schedule, "2024-10-26 12:00", "2024-10-27 12:00") == IN_AUTUMN[repeat]
    said = [
        line.mark
        for line in changes_ahead(schedule, seconds_of(utc("2024-01-01")), seconds_of(utc("2025-01-01")))
    ]
    in_autumn = [Mark.FIRST_OF_TWO, Mark.SECOND_OF_TWO] if repeat == "both" else [Mark.LEFT_OUT]
    assert said == [Mark.SKIPPED if gap == "skip" else Mark.MOVED, *in_autumn]


@pytest.mark.parametrize("timezone", [pytest.param("Europe/Berlin", id="row 3: the default is literal")])
def test_nobody_said_what_the_default_is(timezone: str) -> None:
    schedule = Schedule("30 2 * * *", timezone)
    assert (schedule.dst_gap, schedule.dst_repeat) == ("skip", "both")
    assert schedule == Schedule("30 2 * * *", timezone, dst_gap="skip", dst_repeat="both")


# --- late, early or not at all on the day of the change ----------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "end", "expected"),
    [
        pytest.param(
            "Europe/Berlin", "2024-03-31 00:00", "2024-03-31 04:00",
            ["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 02:00", "2024-03-31 03:00"],
            id="row 4: Berlin, the hour before and after the gap",
        ),
        pytest.param(
            "Europe/Berlin", "2024-10-26 23:00", "2024-10-27 04:00",
            ["2024-10-26 23:00", "2024-10-27 00:00", "2024-10-27 01:00",
             "2024-10-27 02:00", "2024-10-27 03:00"],
            id="row 4: Berlin, the repeated hour",
        ),
        pytest.param(
            "Australia/Lord_Howe", "2024-04-06 13:00", "2024-04-06 17:00",
            ["2024-04-06 13:00", "2024-04-06 14:00", "2024-04-06 15:30", "2024-04-06 16:30"],
            id="row 4: Lord Howe, where an hour and a half lie between two full hours",
        ),
    ],
)  # fmt: skip
def test_the_hourly_job_skipped_a_run_at_the_change(
    zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert found_in(Schedule("0 * * * *", zone), start, end) == expected


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        pytest.param(
            "0 5 * * *", "Europe/Berlin", "2024-03-29 12:00",
            ["2024-03-30 04:00", "2024-03-31 03:00", "2024-04-01 03:00"], id="row 4: Berlin, 05:00 in spring",
        ),
        pytest.param(
            "0 5 * * *", "Europe/Berlin", "2024-10-25 12:00",
            ["2024-10-26 03:00", "2024-10-27 04:00", "2024-10-28 04:00"], id="row 4: Berlin, 05:00 in autumn",
        ),
        pytest.param(
            "0 8 * * *", "America/New_York", "2024-03-08 14:00",
            ["2024-03-09 13:00", "2024-03-10 12:00", "2024-03-11 12:00"],
            id="row 5: New York, 08:00 in spring",
        ),
        pytest.param(
            "0 8 * * *", "America/New_York", "2024-11-01 14:00",
            ["2024-11-02 12:00", "2024-11-03 13:00", "2024-11-04 13:00"],
            id="row 5: New York, 08:00 in autumn",
        ),
        pytest.param(
            "15 3 * * 0", "Europe/London", "2024-10-20 04:00",
            ["2024-10-27 03:15", "2024-11-03 03:15"],
            id="row 5: London, Sundays, the change between two runs",
        ),
    ],
)  # fmt: skip
def test_the_old_offset_was_used_on_the_day_of_the_change(
    text: str, zone: str, start: str, expected: list[str]
) -> None:
    schedule = Schedule(text, zone)
    assert steps(schedule, start, len(expected)) == expected
    assert steps_back(schedule, expected[-1], len(expected)) == expected


@pytest.mark.parametrize("years", [pytest.param(range(2020, 2031), id="row 5: eleven years on end")])
def test_the_old_offset_was_used_every_year_anew(years: range) -> None:
    schedule = Schedule("0 8 * * *", "America/New_York")
    hours = Counter(
        (instant.hour, instant.astimezone(schedule.plan.zone.tzinfo).hour)
        for year in years
        for instant in schedule.between(utc(f"{year}-01-01"), utc(f"{year + 1}-01-01"))
    )
    # New York keeps summer time for 238 days of every year.
    assert hours == {(12, 8): 11 * 238, (13, 8): 11 * 365 + 3 - 11 * 238}


# --- lists of hours ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        pytest.param(
            "0 1,2,3,14 * * *", "Europe/Berlin", "2024-03-30 22:00", "2024-03-31 22:00",
            ["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 12:00"], id="row 6: a list over the gap",
        ),
        pytest.param(
            "0 1,2,3,14 * * *", "Europe/Berlin", "2024-10-26 22:00", "2024-10-27 22:00",
            ["2024-10-26 23:00", "2024-10-27 00:00", "2024-10-27 01:00",
             "2024-10-27 02:00", "2024-10-27 13:00"],
            id="row 6: a list over the fold",
        ),
        pytest.param(
            "30 */6 * * *", "America/New_York", "2024-03-10 04:00", "2024-03-11 04:00",
            ["2024-03-10 05:30", "2024-03-10 10:30", "2024-03-10 16:30", "2024-03-10 22:30"],
            id="row 6: a step over the gap",
        ),
        pytest.param(
            "5 1-3,22 * * *", "America/New_York", "2024-11-03 04:00", "2024-11-04 05:00",
            ["2024-11-03 05:05", "2024-11-03 06:05", "2024-11-03 07:05",
             "2024-11-03 08:05", "2024-11-04 03:05"],
            id="row 6: ranges over the fold",
        ),
        pytest.param(
            "0 7,9,14,16 * * 1-5", "Europe/Paris", "2024-03-29", "2024-04-02",
            ["2024-03-29 06:00", "2024-03-29 08:00", "2024-03-29 13:00", "2024-03-29 15:00",
             "2024-04-01 05:00", "2024-04-01 07:00", "2024-04-01 12:00", "2024-04-01 14:00"],
            id="row 6: working hours on both sides of the change",
        ),
    ],
)  # fmt: skip
def test_a_list_of_hours_shifted_or_swung_to_and_fro(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    schedule = Schedule(text, zone)
    assert found_in(schedule, start, end) == expected
    assert steps_back(schedule, expected[-1], len(expected)) == expected


# --- floods and loops -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "day", "periods"),
    [
        pytest.param("0 2 * * *", "America/New_York", "2024-03-10", 0, id="row 7: 02:00 in the gap"),
        pytest.param("0 1 * * *", "America/New_York", "2024-11-03", 2, id="row 7: 01:00 in the fold"),
        pytest.param("*/15 * * * *", "America/New_York", "2024-11-03", 100, id="row 7: quarters in the fold"),
        pytest.param("* * * * *", "America/New_York", "2024-11-03", 1500, id="row 8: minutes of 25 hours"),
        pytest.param("* * * * *", "America/New_York", "2024-03-10", 1380, id="row 8: minutes of 23 hours"),
        pytest.param("* * * * *", "Australia/Lord_Howe", "2024-04-07", 1470, id="row 8: of 24 and a half"),
        pytest.param("*/20 * * * * *", "Europe/Berlin", "2024-10-27", 4500, id="row 8: every 20 seconds"),
    ],
)
def test_thousands_of_runs_started_within_the_change(text: str, zone: str, day: str, periods: int) -> None:
    schedule = Schedule(text, zone)
    midnight = datetime.fromisoformat(day).replace(tzinfo=schedule.plan.zone.tzinfo)
    found = list(schedule.between(midnight, midnight + timedelta(days=1)))
    assert len(found) == len(set(found)) == periods
    assert all(instant < later for instant, later in pairwise(found))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(
            "2025-03-08 12:00", ["2025-03-10 06:00", "2025-03-11 06:00"], id="row 7: the next spring",
        ),
        pytest.param(
            "2025-11-01 12:00", ["2025-11-02 07:00", "2025-11-03 07:00"], id="row 7: the next autumn",
        ),
    ],
)  # fmt: skip
def test_what_had_survived_one_change_was_stuck_at_the_next(start: str, expected: list[str]) -> None:
    schedule = Schedule("0 2 * * *", "America/New_York")
    year = list(schedule.between(utc("2024-01-01"), utc("2025-01-01")))
    assert len(year) == 365, "366 days, one of which has no 02:00"
    assert steps(schedule, start, 2) == expected


# --- systemd's timers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        pytest.param(
            "2024-03-30 22:00",
            ["2024-03-30 23:00", "2024-03-31 02:00", "2024-03-31 06:00", "2024-03-31 10:00"],
            id="row 9: Berlin in spring, three hours once",
        ),
        pytest.param(
            "2024-10-26 21:00",
            ["2024-10-26 22:00", "2024-10-27 03:00", "2024-10-27 07:00", "2024-10-27 11:00"],
            id="row 9: Berlin in autumn, five hours once",
        ),
    ],
)
def test_the_four_hourly_timer_paused_for_27_hours(start: str, expected: list[str]) -> None:
    schedule = Schedule(FOUR_HOURLY, "Europe/Berlin")
    assert steps(schedule, start, 4) == expected
    year = list(schedule.between(utc("2024-01-01"), utc("2025-01-01")))
    pauses = Counter(later - instant for instant, later in pairwise(year))
    assert pauses == {
        timedelta(hours=3): 1,
        timedelta(hours=4): len(year) - 3,
        timedelta(hours=5): 1,
    }


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        pytest.param("* * * * *", 1, id="row 9: every minute"),
        pytest.param("*/5 * * * *", 5, id="row 9: every five minutes"),
        pytest.param("0,15,30,45 * * * *", 15, id="row 9: every quarter of an hour"),
        pytest.param("0 * * * *", 60, id="row 9: every hour"),
    ],
)
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2024-10-27 01:00"),
        ("Europe/Berlin", "2024-03-31 01:00"),
        ("America/Santiago", "2022-04-03 03:00"),
    ],
)
def test_the_minutely_timer_was_silent_for_the_repeated_hour(
    text: str, minutes: int, zone: str, change: str
) -> None:
    start, step = utc(change) - timedelta(hours=3), timedelta(minutes=minutes)
    found = list(Schedule(text, zone).between(start, start + timedelta(hours=6)))
    assert found == [start + number * step for number in range(360 // minutes)]


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        pytest.param("skip", ["2024-03-30 01:00", "2024-04-01 00:00"], id="row 9: left out by default"),
        pytest.param(
            "next", ["2024-03-30 01:00", "2024-03-31 01:00", "2024-04-01 00:00"], id="row 9: moved if asked"
        ),
    ],
)
def test_the_timer_at_two_was_skipped_whatever_was_wanted(gap: str, expected: list[str]) -> None:
    schedule = Schedule("0 2 * * *", "Europe/Berlin", dst_gap=gap)
    assert found_in(schedule, "2024-03-29 12:00", "2024-04-01 12:00") == expected


# --- it vanished without a word ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "note"),
    [
        pytest.param(
            "0 2 * * *", "America/New_York", "2024-03-04", "02:00 skipped: clocks go forward 02:00 to 03:00",
            id="row 10: the bank's 02:00 in New York",
        ),
        pytest.param(
            "*/15 0 * * *", "America/Santiago", "2022-09-05",
            "00:00 to 00:45 (4 times) skipped: clocks go forward 00:00 to 01:00", id="row 10: Santiago",
        ),
        pytest.param(
            "0 12 * * *", "Pacific/Apia", "2011-12-25",
            "12:00 skipped: clocks go forward 00:00 to 31 Dec 00:00", id="row 10: a day in Apia",
        ),
    ],
)  # fmt: skip
def test_a_job_inside_the_gap_vanished_without_a_word(text: str, zone: str, start: str, note: str) -> None:
    """A week ahead the preview says it, at its place among the times that do come."""
    schedule, now = Schedule(text, zone), seconds_of(utc(start))
    assert len(list(effects(schedule, now, now + 7 * 86_400))) == 1
    lines = preview(schedule, now, 40)
    assert [line.note for line in lines if line.mark is Mark.SKIPPED] == [note]
    assert len([line for line in lines if line.instant is not None]) == 40


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        pytest.param(
            "0 2 * * *", "America/New_York", "2024-03-09 12:00", "2024-03-11 12:00",
            ["2024-03-10 07:00", "2024-03-11 06:00"], id="row 10: the bank's 02:00 at 03:00",
        ),
        pytest.param(
            "0 12 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01",
            ["2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00", "2011-12-31 22:00"],
            id="row 10: a day in Apia, once at its end",
        ),
    ],
)  # fmt: skip
def test_a_job_inside_the_gap_could_not_be_rescued(
    text: str, zone: str, start: str, end: str, expected: list[str]
) -> None:
    assert found_in(Schedule(text, zone, dst_gap="next"), start, end) == expected


# --- zones that change where others do not ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        pytest.param(
            "0 0 * * *", "America/Santiago", "2022-09-09 05:00",
            ["2022-09-10 04:00", "2022-09-12 03:00", "2022-09-13 03:00"], id="row 11: Santiago, no midnight",
        ),
        pytest.param(
            "0 0 * * *", "America/Santiago", "2022-04-01 12:00",
            ["2022-04-02 03:00", "2022-04-03 04:00", "2022-04-04 04:00"], id="row 11: Santiago, 23:00 twice",
        ),
        pytest.param(
            "0 0 * * *", "America/Sao_Paulo", "2018-11-02 12:00",
            ["2018-11-03 03:00", "2018-11-05 02:00"], id="row 11: Sao Paulo, no midnight",
        ),
        pytest.param(
            "0 0 * * *", "America/Havana", "2022-11-05 12:00",
            ["2022-11-06 04:00", "2022-11-06 05:00", "2022-11-07 05:00"], id="row 11: Havana, midnight twice",
        ),
        pytest.param(
            "30 0 * * *", "Asia/Beirut", "2022-03-25 12:00",
            ["2022-03-25 22:30", "2022-03-27 21:30"], id="row 11: Beirut, no half past midnight",
        ),
        pytest.param(
            "0 2 * * *", "Australia/Lord_Howe", "2024-10-04 12:00",
            ["2024-10-04 15:30", "2024-10-06 15:00"], id="row 11: Lord Howe, no two o'clock",
        ),
        pytest.param(
            "30 2 * * *", "Australia/Lord_Howe", "2024-10-04 12:00",
            ["2024-10-04 16:00", "2024-10-05 15:30", "2024-10-06 15:30"],
            id="row 11: Lord Howe, half past two",
        ),
        pytest.param(
            "0 9 * * *", "Pacific/Apia", "2011-12-28 12:00",
            ["2011-12-28 19:00", "2011-12-29 19:00", "2011-12-30 19:00"], id="row 11: Apia, no 30 December",
        ),
        pytest.param(
            "0 12 30 12 *", "Pacific/Apia", "2010-12-01",
            ["2010-12-30 22:00", "2012-12-29 22:00"], id="row 11: Apia, every 30 December",
        ),
        pytest.param(
            "30 2 * * *", "Africa/Casablanca", "2022-03-26 12:00",
            ["2022-03-27 01:30", "2022-03-27 02:30", "2022-03-28 02:30"],
            id="row 11: Casablanca, Ramadan begins",
        ),
    ],
)  # fmt: skip
def test_some_zones_looped_or_got_wrong_times(text: str, zone: str, start: str, expected: list[str]) -> None:
    schedule = Schedule(text, zone)
    assert steps(schedule, start, len(expected)) == expected
    assert steps_back(schedule, expected[-1], len(expected)) == expected


# --- in which zone does it run ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "instant", "wall"),
    [
        pytest.param(None, "2024-07-01 09:00", "2024-07-01 09:00", id="row 12: UTC, and it says so"),
        pytest.param("Europe/Berlin", "2024-07-01 07:00", "2024-07-01 09:00", id="row 12: Berlin"),
        pytest.param("Asia/Kolkata", "2024-07-01 03:30", "2024-07-01 09:00", id="row 12: Kolkata"),
        pytest.param("America/Los_Angeles", "2024-07-01 16:00", "2024-07-01 09:00", id="row 12: Los Angeles"),
    ],
)
def test_the_job_did_not_run_because_it_ran_in_gmt(zone: str | None, instant: str, wall: str) -> None:
    schedule = Schedule("0 9 * * *", zone)
    (line,) = preview(schedule, seconds_of(utc("2024-07-01")), 1)
    assert (line.instant, written(line.wall)) == (seconds_of(utc(instant)), wall)
    assert schedule.timezone == (zone or "UTC")
    assert schedule.timezone in schedule.describe()


@pytest.mark.parametrize(
    ("caller", "wall"),
    [
        pytest.param("America/New_York", "2024-03-15 04:00", id="row 12: before Berlin changes"),
        pytest.param("America/Sao_Paulo", "2024-03-15 05:00", id="row 12: where nothing changes any more"),
    ],
)
def test_nobody_could_see_the_times_of_another_zone(caller: str, wall: str) -> None:
    found = Schedule("0 9 * * *", "Europe/Berlin").next_after(utc("2024-03-15"))
    zone = Schedule("* * * * *", caller).plan.zone
    assert written(wall_time(seconds_of(found), zone.offset_at(seconds_of(found)))) == wall


# --- the rules changed after a time was stored ---------------------------------------------------------


@pytest.mark.parametrize("zone", [pytest.param("Europe/Berlin", id="row 13: with every decision")])
def test_nobody_knew_which_rules_a_stored_time_was_made_with(zone: str) -> None:
    version = tzdata_version(zone)
    assert version is None or version[:2] == "20"
    job = Job.from_dict({"identity": "prod/report", "schedule": "30 2 * * *", "timezone": zone})
    decision = decide(job, utc("2024-10-27 00:30")).to_dict()
    assert decision["tzdata_version"] == version
    assert decision["timezone"] == zone
    assert decision["period_id"] == "2024-10-27T00:30:00Z"


@pytest.mark.parametrize("repeat", [pytest.param("both", id="row 13: two instants, two periods")])
def test_nobody_knew_which_of_two_equal_wall_times_was_stored(repeat: str) -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin", dst_repeat=repeat)
    found = list(islice(schedule.between(utc("2024-10-27"), utc("2024-10-28")), 3))
    assert [instant.isoformat() for instant in found] == [
        "2024-10-27T00:30:00+00:00",
        "2024-10-27T01:30:00+00:00",
    ]
    walls = {written(instant.astimezone(schedule.plan.zone.tzinfo)) for instant in found}
    assert walls == {"2024-10-27 02:30"}
