"""A preview shows every occurrence, and says what a change of the clocks drops, doubles or moves."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.cron.preview import Effect, Line, Mark, changes_ahead, clock_text, effects, preview
from kron.core.cron.schedule import Schedule
from kron.core.time.instant import seconds_of
from kron.core.time.zone import Transition
from tests.reference import DAY, HOUR, MINUTES_A_DAY, Minutes, epoch, offset_changes
from tests.strategies import law, seconds, strict_expressions, zones

BERLIN = "Europe/Berlin"
LORD_HOWE = "Australia/Lord_Howe"
FORWARD, BACK = "clocks go forward 02:00 to 03:00", "clocks go back 03:00 to 02:00"


def schedule_of(text: str, zone: str = BERLIN, *, gap: str = "skip", repeat: str = "both") -> Schedule:
    return Schedule(text, zone, dst_gap=gap, dst_repeat=repeat)


def at(text: str) -> int:
    """Return an instant written as ``2024-03-31 01:00`` in UTC."""
    return seconds_of(datetime.fromisoformat(text).replace(tzinfo=UTC))


def rows(lines: list[Line]) -> list[tuple[str | None, str, str | None, str | None]]:
    """Return lines as (UTC, wall time with offset in hours, mark, note)."""
    return [
        (
            None if line.instant is None else f"{datetime.fromtimestamp(line.instant, UTC):%Y-%m-%d %H:%M}",
            f"{line.wall:%d %H:%M} {line.offset / HOUR:+g}",
            line.mark,
            line.note,
        )
        for line in lines
    ]


# --- preview ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        pytest.param(
            schedule_of("30 2 * * *"), "2024-03-30",
            [
                ("2024-03-30 01:30", "30 02:30 +1", None, None),
                (None, "31 02:30 +1", "skipped", f"02:30 skipped: {FORWARD}"),
                ("2024-04-01 00:30", "01 02:30 +2", None, None),
            ],
            id="skipped",
        ),
        pytest.param(
            schedule_of("*/20 2 * * *"), "2024-03-30 12:00",
            [
                (None, "31 02:00 +1", "skipped", f"02:00 to 02:40 (3 times) skipped: {FORWARD}"),
                ("2024-04-01 00:00", "01 02:00 +2", None, None),
            ],
            id="skipped, several",
        ),
        pytest.param(
            schedule_of("0 1-4 * * *"), "2024-03-31",
            [
                ("2024-03-31 00:00", "31 01:00 +1", None, None),
                (None, "31 02:00 +1", "skipped", f"02:00 skipped: {FORWARD}"),
                ("2024-03-31 01:00", "31 03:00 +2", None, None),
                ("2024-03-31 02:00", "31 04:00 +2", None, None),
            ],
            id="skipped, in its place between two that come",
        ),
        pytest.param(
            schedule_of("15,30,45 2 * * *", LORD_HOWE), "2024-10-05 12:00",
            [
                (None, "06 02:15 +10.5", "skipped", "02:15 skipped: clocks go forward 02:00 to 02:30"),
                ("2024-10-05 15:30", "06 02:30 +11", None, None),
                ("2024-10-05 15:45", "06 02:45 +11", None, None),
            ],
            id="skipped, half an hour, before what comes at its end",
        ),
        pytest.param(
            schedule_of("0 12 * * *", "Pacific/Apia"), "2011-12-29 12:00",
            [
                ("2011-12-29 22:00", "29 12:00 -10", None, None),
                (None, "30 12:00 -10", "skipped", "12:00 skipped: clocks go forward 00:00 to 31 Dec 00:00"),
                ("2011-12-30 22:00", "31 12:00 +14", None, None),
            ],
            id="skipped, a whole day",
        ),
        pytest.param(
            schedule_of("30 2 * * *", gap="next"), "2024-03-30",
            [
                ("2024-03-30 01:30", "30 02:30 +1", None, None),
                ("2024-03-31 01:00", "31 03:00 +2", "moved", f"02:30 moved here: {FORWARD}"),
                ("2024-04-01 00:30", "01 02:30 +2", None, None),
            ],
            id="moved",
        ),
        pytest.param(
            schedule_of("0,30 2,3 * * *", gap="next"), "2024-03-31",
            [
                ("2024-03-31 01:00", "31 03:00 +2", "moved",
                 f"02:00 to 02:30 (2 times) moved here: {FORWARD}"),
                ("2024-03-31 01:30", "31 03:30 +2", None, None),
            ],
            id="moved, merged with what comes there",
        ),
        pytest.param(
            schedule_of("0 3 * * *", gap="next"), "2024-03-31",
            [("2024-03-31 01:00", "31 03:00 +2", None, None)], id="not moved, but regular at the gap's end",
        ),
        pytest.param(
            schedule_of("30 2 * * *"), "2024-10-26",
            [
                ("2024-10-26 00:30", "26 02:30 +2", None, None),
                ("2024-10-27 00:30", "27 02:30 +2", "first_of_two", f"first of two: {BACK}"),
                ("2024-10-27 01:30", "27 02:30 +1", "second_of_two", f"second of two: {BACK}"),
                ("2024-10-28 01:30", "28 02:30 +1", None, None),
            ],
            id="first and second of two",
        ),
        pytest.param(
            schedule_of("0,59 1,2,3 * * *"), "2024-10-26 23:00",
            [
                ("2024-10-26 23:00", "27 01:00 +2", None, None),
                ("2024-10-26 23:59", "27 01:59 +2", None, None),
                ("2024-10-27 00:00", "27 02:00 +2", "first_of_two", f"first of two: {BACK}"),
                ("2024-10-27 00:59", "27 02:59 +2", "first_of_two", f"first of two: {BACK}"),
                ("2024-10-27 01:00", "27 02:00 +1", "second_of_two", f"second of two: {BACK}"),
                ("2024-10-27 01:59", "27 02:59 +1", "second_of_two", f"second of two: {BACK}"),
                ("2024-10-27 02:00", "27 03:00 +1", None, None),
            ],
            id="first and second of two, to the minute",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="first"), "2024-10-27",
            [
                ("2024-10-27 00:30", "27 02:30 +2", None, None),
                (None, "27 02:30 +1", "left_out", f"second 02:30 left out: {BACK}"),
                ("2024-10-28 01:30", "28 02:30 +1", None, None),
            ],
            id="left out, the second",
        ),
        pytest.param(
            schedule_of("0,30 2 * * *", repeat="last"), "2024-10-26 12:00",
            [
                (None, "27 02:00 +2", "left_out", f"first 02:00 to 02:30 (2 times) left out: {BACK}"),
                ("2024-10-27 01:00", "27 02:00 +1", None, None),
                ("2024-10-27 01:30", "27 02:30 +1", None, None),
            ],
            id="left out, the first, several",
        ),
        pytest.param(
            schedule_of("0 0 * * *", "America/Havana"), "2022-11-06",
            [
                ("2022-11-06 04:00", "06 00:00 -4", "first_of_two",
                 "first of two: clocks go back 01:00 to 00:00"),
                ("2022-11-06 05:00", "06 00:00 -5", "second_of_two",
                 "second of two: clocks go back 01:00 to 00:00"),
                ("2022-11-07 05:00", "07 00:00 -5", None, None),
            ],
            id="a midnight shown twice",
        ),
        pytest.param(
            schedule_of("30 23 * * *", "America/Santiago"), "2022-04-03",
            [
                ("2022-04-03 02:30", "02 23:30 -3", "first_of_two",
                 "first of two: clocks go back 00:00 to 02 Apr 23:00"),
                ("2022-04-03 03:30", "02 23:30 -4", "second_of_two",
                 "second of two: clocks go back 00:00 to 02 Apr 23:00"),
                ("2022-04-04 03:30", "03 23:30 -4", None, None),
            ],
            id="back over midnight",
        ),
        pytest.param(
            schedule_of("0 12 * * *"), "2024-03-30",
            [("2024-03-30 11:00", "30 12:00 +1", None, None),
             ("2024-03-31 10:00", "31 12:00 +2", None, None)],
            id="untouched",
        ),
    ],
)  # fmt: skip
def test_a_preview_says_what_the_clocks_do(
    schedule: Schedule, start: str, expected: list[tuple[str | None, str, str | None, str | None]]
) -> None:
    count = len([row for row in expected if row[0] is not None])
    assert rows(preview(schedule, at(start), count)) == expected


@pytest.mark.parametrize(
    ("schedule", "start", "count", "marks"),
    [
        pytest.param(schedule_of("30 2 * * *"), "2024-03-30", 1, [None], id="gap after the last one shown"),
        pytest.param(
            schedule_of("30 2 * * *"), "2024-03-31 01:00", 1, ["skipped", None], id="gap at the start",
        ),
        pytest.param(schedule_of("30 2 * * *"), "2024-03-31 01:01", 1, [None], id="gap before the start"),
        pytest.param(
            schedule_of("30 2 * * *", repeat="first"), "2024-10-27 01:10", 1, ["left_out", None],
            id="start in the second showing, before what is left out",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="first"), "2024-10-27 01:31", 1, [None],
            id="start in the second showing, after what is left out",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="first"), "2024-10-27", 1, [None],
            id="what is left out comes later",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="last"), "2024-10-27 00:30", 1, ["left_out", None],
            id="start at what is left out",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="last"), "2024-10-27 00:31", 1, [None],
            id="start after what is left out, before the change",
        ),
        pytest.param(
            schedule_of("30 2 * * *"), "2024-10-27 00:31", 2, ["second_of_two", None],
            id="the second of two, the first being over",
        ),
        pytest.param(
            schedule_of("30 2 * * *"), "2024-10-27", 1, ["first_of_two"],
            id="the first of two, the last line",
        ),
    ],
)  # fmt: skip
def test_only_what_lies_between_the_first_and_the_last_line_is_said(
    schedule: Schedule, start: str, count: int, marks: list[str | None]
) -> None:
    assert [line.mark for line in preview(schedule, at(start), count)] == marks


def test_a_day_that_came_twice_is_marked_from_its_first_second_to_its_last() -> None:
    """Juneau had 18 October 1867 twice: the largest change back there is."""
    (change,) = [change for change in offset_changes("America/Juneau", until=1868) if change.size == -DAY]
    schedule = schedule_of(f"{(change.at + change.before) % 60} * * * * *", "America/Juneau")
    marks = {
        start - change.at: preview(schedule, start, 1)[0].mark
        for start in (change.at + shift for shift in (-DAY - 60, -DAY, -60, 0, DAY - 60, DAY))
    }
    assert marks == {
        -DAY - 60: None,
        -DAY: Mark.FIRST_OF_TWO,
        -60: Mark.FIRST_OF_TWO,
        0: Mark.SECOND_OF_TWO,
        DAY - 60: Mark.SECOND_OF_TWO,
        DAY: None,
    }


def test_a_preview_ends_with_the_calendar() -> None:
    assert preview(schedule_of("0 0 1 1 *", "UTC"), at("9999-06-01"), 3) == []
    lines = preview(schedule_of("0 0 1 7,12 *", "UTC"), at("9999-06-01"), 3)
    assert [line.wall for line in lines] == [datetime(9999, 7, 1), datetime(9999, 12, 1)]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_preview_has_as_many_occurrences_as_asked_for(count: int) -> None:
    lines = preview(schedule_of("30 2 * * *"), at("2024-03-31"), count)
    assert len([line for line in lines if line.instant is not None]) == count


# --- the laws ---------------------------------------------------------------------------------------


@law(150)
@given(
    text=strict_expressions(),
    zone=zones(),
    start=seconds(1950, 2100),
    count=st.integers(1, 40),
    gap=st.sampled_from(("skip", "next")),
    repeat=st.sampled_from(("both", "first", "last")),
)
@example("0,30 * * * *", BERLIN, epoch(2024, 3, 30, 22), 12, "skip", "both")
@example("0,30 * * * *", BERLIN, epoch(2024, 3, 30, 22), 12, "next", "both")
@example("0,30 * * * *", BERLIN, epoch(2024, 10, 26, 22), 12, "skip", "first")
@example("0,30 * * * *", BERLIN, epoch(2024, 10, 26, 22), 12, "skip", "last")
@example("0,15,30,45 * * * *", LORD_HOWE, epoch(2024, 10, 5, 12), 24, "skip", "both")
@example("0,15,30,45 * * * *", LORD_HOWE, epoch(2024, 4, 6, 12), 24, "skip", "last")
def test_the_instants_shown_are_those_of_the_schedule(
    text: str, zone: str, start: int, count: int, gap: str, repeat: str
) -> None:
    schedule = schedule_of(text, zone, gap=gap, repeat=repeat)
    lines = preview(schedule, start, count)
    shown = [line.instant for line in lines if line.instant is not None]
    assert len(shown) == count
    begin, end = (datetime.fromtimestamp(second, UTC) for second in (start, shown[-1] + 1))
    assert shown == [seconds_of(instant) for instant in schedule.between(begin, end)]
    assert all(line.wall == datetime(1970, 1, 1) + timedelta(seconds=line.instant + line.offset)
               for line in lines if line.instant is not None)  # fmt: skip
    assert all((line.mark is None) == (line.note is None) for line in lines)
    assert all((line.instant is None) == (line.mark in (Mark.SKIPPED, Mark.LEFT_OUT)) for line in lines)


ZONES_WITH_CHANGES = [BERLIN, LORD_HOWE, "America/Havana", "America/Santiago", "Antarctica/Troll"]


@pytest.mark.parametrize("zone", ZONES_WITH_CHANGES)
@pytest.mark.parametrize("repeat", ["both", "first", "last"])
def test_marks_stand_where_looking_at_every_minute_finds_a_change(zone: str, repeat: str) -> None:
    """Every quarter of an hour around each change of three years, against the reference."""
    for change in offset_changes(zone, until=2024):
        if change.at < epoch(2022):
            continue
        start, end = change.at - 6 * HOUR, change.at + 6 * HOUR
        seen = Minutes(zone, start, end)
        first, again = seen.showings
        kept = seen.matches("0,15,30,45 * * * *", repeat=repeat)
        lines = preview(schedule_of("*/15 * * * *", zone, repeat=repeat), start, len(kept))
        marks = {line.instant: line.mark for line in lines if line.instant is not None}
        assert list(marks) == kept
        expected = {
            **{instant: Mark.FIRST_OF_TWO for instant in first if repeat == "both"},
            **{instant: Mark.SECOND_OF_TWO for instant in again if repeat == "both"},
        }
        assert marks == {instant: expected.get(instant) for instant in kept}
        lost = [line for line in lines if line.instant is None]
        if change.size > 0:
            (gap,) = seen.gaps
            assert [line.mark for line in lost] == [Mark.SKIPPED]
            assert lost[0].wall.hour * 60 + lost[0].wall.minute == min(gap.skipped) % MINUTES_A_DAY
        else:
            assert [line.mark for line in lost] == ([] if repeat == "both" else [Mark.LEFT_OUT])


# --- effects ----------------------------------------------------------------------------------------

SPRING = Transition(epoch(2024, 3, 31, 1), HOUR, 2 * HOUR)
AUTUMN = Transition(epoch(2024, 10, 27, 1), 2 * HOUR, HOUR)


def day(month: int, number: int, hour: int, minute: int) -> datetime:
    return datetime(2024, month, number, hour, minute)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0 12 * * *", [], id="none"),
        pytest.param("0 3 * * *", [], id="the end of the gap and of the fold is regular"),
        pytest.param("59 1 * * *", [], id="the minute before"),
        pytest.param("0 2 1 * *", [], id="not that day"),
        pytest.param(
            "0 2 * * *",
            [(SPRING, day(3, 31, 2, 0), day(3, 31, 2, 0), 1),
             (AUTUMN, day(10, 27, 2, 0), day(10, 27, 2, 0), 1)],
            id="the first minute",
        ),
        pytest.param("59 2 * 3 *", [(SPRING, day(3, 31, 2, 59), day(3, 31, 2, 59), 1)], id="the last minute"),
        pytest.param(
            "* * * 10 0", [(AUTUMN, day(10, 27, 2, 0), day(10, 27, 2, 59), 60)],
            id="every minute of the fold",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("gap", "repeat"), [("skip", "both"), ("next", "first"), ("skip", "last")])
def test_effects_are_the_changes_that_touch_a_wall_time(
    text: str, expected: list[tuple[Transition, datetime, datetime, int]], gap: str, repeat: str
) -> None:
    """They are the same whatever the options are: those decide what comes of them."""
    schedule = schedule_of(text, gap=gap, repeat=repeat)
    found = list(effects(schedule, epoch(2024), epoch(2025)))
    assert found == [
        Effect(change=change, first=first, last=last, count=count) for change, first, last, count in expected
    ]
    assert [effect.is_gap for effect in found] == [effect.change == SPRING for effect in found]


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        pytest.param(SPRING.at, SPRING.at + 1, 1, id="the change alone"),
        pytest.param(SPRING.at - 5, SPRING.at, 0, id="up to the change"),
        pytest.param(SPRING.at + 1, AUTUMN.at, 0, id="after one, up to the other"),
        pytest.param(SPRING.at, AUTUMN.at + 1, 2, id="both"),
    ],
)
def test_effects_and_changes_ahead_are_half_open(start: int, end: int, count: int) -> None:
    schedule = schedule_of("30 2 * * *", repeat="first")
    assert len(list(effects(schedule, start, end))) == count
    assert len(changes_ahead(schedule, start, end)) == count


# --- changes ahead -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(
            schedule_of("0,30 2 * * *"),
            [
                (None, "31 02:00 +1", "skipped", f"02:00 to 02:30 (2 times) skipped: {FORWARD}"),
                ("2024-10-27 00:00", "27 02:00 +2", "first_of_two", f"first of two: {BACK}"),
                ("2024-10-27 01:00", "27 02:00 +1", "second_of_two", f"second of two: {BACK}"),
            ],
            id="literal",
        ),
        pytest.param(
            schedule_of("0,30 2 * * *", gap="next", repeat="first"),
            [
                ("2024-03-31 01:00", "31 03:00 +2", "moved",
                 f"02:00 to 02:30 (2 times) moved here: {FORWARD}"),
                (None, "27 02:00 +1", "left_out", f"second 02:00 to 02:30 (2 times) left out: {BACK}"),
            ],
            id="moved, and the second left out",
        ),
        pytest.param(
            schedule_of("30 2 * * *", repeat="last"),
            [
                (None, "31 02:30 +1", "skipped", f"02:30 skipped: {FORWARD}"),
                (None, "27 02:30 +2", "left_out", f"first 02:30 left out: {BACK}"),
            ],
            id="skipped, and the first left out",
        ),
        pytest.param(
            schedule_of("30 1-3 27 10 *"),
            [
                ("2024-10-27 00:30", "27 02:30 +2", "first_of_two", f"first of two: {BACK}"),
                ("2024-10-27 01:30", "27 02:30 +1", "second_of_two", f"second of two: {BACK}"),
            ],
            id="not what comes before and after the repeated hour",
        ),
        pytest.param(schedule_of("0 3 * * *", gap="next", repeat="last"), [], id="nothing"),
        pytest.param(schedule_of("30 2 * * *", "UTC"), [], id="no change"),
    ],
)  # fmt: skip
def test_changes_ahead_have_one_or_two_lines_for_each_change(
    schedule: Schedule, expected: list[tuple[str | None, str, str | None, str | None]]
) -> None:
    assert rows(changes_ahead(schedule, epoch(2024), epoch(2025))) == expected


@law(60)
@given(
    text=strict_expressions(),
    zone=st.sampled_from(ZONES_WITH_CHANGES),
    year=st.integers(2000, 2040),
    gap=st.sampled_from(("skip", "next")),
    repeat=st.sampled_from(("both", "first", "last")),
)
@example("* * * * *", BERLIN, 2024, "skip", "both")
@example("* * * * *", "Antarctica/Troll", 2024, "next", "both")
def test_changes_ahead_are_what_a_preview_of_the_day_says(
    text: str, zone: str, year: int, gap: str, repeat: str
) -> None:
    schedule = schedule_of(text, zone, gap=gap, repeat=repeat)
    touched = list(effects(schedule, epoch(year), epoch(year + 1)))
    ahead = changes_ahead(schedule, epoch(year), epoch(year + 1))
    in_gap = [Mark.MOVED if gap == "next" else Mark.SKIPPED]
    in_fold = [Mark.FIRST_OF_TWO, Mark.SECOND_OF_TWO] if repeat == "both" else [Mark.LEFT_OUT]
    assert [line.mark for line in ahead] == [
        mark for effect in touched for mark in (in_gap if effect.is_gap else in_fold)
    ]
    said = [line for effect in touched for line in marked_around(schedule, effect)]
    assert all(line in said for line in ahead)


def marked_around(schedule: Schedule, effect: Effect) -> list[Line]:
    """Return the marked lines of a preview that begins just before a change and ends after it."""
    start, reach = effect.change.at - abs(effect.change.size), 2 * abs(effect.change.size)
    begin, end = (datetime.fromtimestamp(second, UTC) for second in (start, start + reach))
    lines = preview(schedule, start, len(list(schedule.between(begin, end))) + 1)
    return [line for line in lines if line.mark is not None]


# --- texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wall", "text"),
    [(datetime(2024, 1, 1, 2, 5), "02:05"), (datetime(2024, 1, 1, 2, 5, 30), "02:05:30")],
)
def test_a_time_of_day_has_seconds_only_where_there_are_any(wall: datetime, text: str) -> None:
    assert clock_text(wall) == text


def test_seconds_are_said_where_a_schedule_or_a_change_has_them() -> None:
    (line, _) = preview(schedule_of("30 30 2 * * *"), at("2024-03-31"), 1)
    assert line.note == f"02:30:30 skipped: {FORWARD}"
    (line, _) = preview(schedule_of("15 0 * * *", "Africa/Monrovia"), at("1972-01-07"), 1)
    assert line.note == "00:15 skipped: clocks go forward 00:00 to 00:44:30"
