"""iCalendar files as calendars: their whole days, their yearly rules, and every line that cannot be one."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.icalendar import LAST_YEAR, InvalidCalendarError, parse_icalendar
from tests.strategies import law


def calendar_of(*lines: str) -> str:
    """Return a calendar with one event that has these lines."""
    event = ["BEGIN:VEVENT", "UID:1@example.org", "DTSTAMP:20260101T000000Z", *lines, "END:VEVENT"]
    return "\r\n".join(
        ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//example//EN", *event, "END:VCALENDAR", ""]
    )


def days_of(*lines: str) -> list[str]:
    return [str(days) for days in parse_icalendar(calendar_of(*lines))]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(["DTSTART;VALUE=DATE:20261224"], ["2026-12-24"], id="a day"),
        pytest.param(
            ["DTSTART;VALUE=DATE:20261224", "DTEND;VALUE=DATE:20261227"],
            ["2026-12-24..2026-12-26"],
            id="the end is the day after",
        ),
        pytest.param(
            ["DTSTART;VALUE=DATE:20261224", "DURATION:P2W"], ["2026-12-24..2027-01-06"], id="duration"
        ),
        pytest.param(
            ["DTSTART;TZID=Europe/Berlin:20261224T000000", "DTEND;TZID=Europe/Berlin:20261225T000000"],
            ["2026-12-24"],
            id="midnight to midnight",
        ),
        pytest.param(["DTSTART:20261224", "DTEND:20261224"], ["2026-12-24"], id="an end on the same day"),
        pytest.param(
            ["DTSTART:20261224", "RDATE;VALUE=DATE:20270105,20270203"],
            ["2026-12-24", "2027-01-05", "2027-02-03"],
            id="further days",
        ),
        pytest.param(
            ["DTSTART:20261225", "RRULE:FREQ=YEARLY;COUNT=3", "EXDATE;VALUE=DATE:20271225"],
            ["2026-12-25", "2028-12-25"],
            id="a year without it",
        ),
        pytest.param(
            ["DTSTART:20260525", "RRULE:FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO;UNTIL=20280601T000000Z"],
            ["2026-05-25", "2027-05-31", "2028-05-29"],
            id="the last Monday in May",
        ),
        pytest.param(
            ["DTSTART:20261126", "RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;COUNT=4"],
            ["2026-11-26", "2027-11-25", "2028-11-23", "2029-11-22"],
            id="the fourth Thursday in November",
        ),
        pytest.param(
            ["DTSTART:20240229", "RRULE:FREQ=YEARLY;COUNT=3"],
            ["2024-02-29", "2028-02-29", "2032-02-29"],
            id="29 February",
        ),
        pytest.param(
            ["DTSTART:20260101", "RRULE:FREQ=YEARLY;INTERVAL=2;BYMONTHDAY=1,-1;BYMONTH=1,6;COUNT=5"],
            ["2026-01-01", "2026-01-31", "2026-06-01", "2026-06-30", "2028-01-01"],
            id="every second year",
        ),
        pytest.param(
            ["SUMMARY:a long", "  title: with a colon", 'DTSTART;X-NOTE="a:b":2026', " 1224"],
            ["2026-12-24"],
            id="folded lines",
        ),
    ],
)
def test_the_days_of_an_event(lines: list[str], expected: list[str]) -> None:
    assert days_of(*lines) == expected


def test_a_rule_without_an_end_is_written_out_for_fixed_years() -> None:
    every = days_of("DTSTART:19700101", "RRULE:FREQ=YEARLY")
    assert every == ["1970-01-01", *(f"{year}-01-01" for year in range(2000, LAST_YEAR + 1))]


def test_cancelled_events_alarms_and_other_components_have_no_days() -> None:
    text = (
        "BEGIN:VCALENDAR\nBEGIN:VTIMEZONE\nTZID:x\nBEGIN:STANDARD\nDTSTART:19701025T030000\nEND:STANDARD\n"
        "END:VTIMEZONE\nBEGIN:VEVENT\nDTSTART:20260101\nSTATUS:CANCELLED\nEND:VEVENT\n"
        "BEGIN:VEVENT\nDTSTART:20260202\nBEGIN:VALARM\nDURATION:PT5M\nEND:VALARM\nEND:VEVENT\n"
        "BEGIN:VEVENT\nDTSTART:20260202\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    assert [str(days) for days in parse_icalendar(text)] == ["2026-02-02"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            ["SUMMARY:stand-up", "DTSTART:20261224T093000Z"],
            'line 8: the event "stand-up" has a time of day; a calendar has whole days '
            "(DTSTART;VALUE=DATE:20261224)",
            id="a time of day",
        ),
        pytest.param(["SUMMARY:x"], 'line 4: the event "x" has no DTSTART', id="no start"),
        pytest.param(
            ["DTSTART:20260230"], "line 7: DTSTART 20260230 is not a day of the calendar", id="no day"
        ),
        pytest.param(["DTSTART:soon"], 'line 7: DTSTART "soon" is not a day; write 20261224', id="no date"),
        pytest.param(
            ["DTSTART:20261224", "DTEND:20261223"], "line 8: the event ends before it starts", id="reversed"
        ),
        pytest.param(
            ["DTSTART:20261224", "DURATION:PT1H"],
            'line 8: DURATION "PT1H" is not a number of days; write P1D',
            id="hours",
        ),
        pytest.param(
            ["DTSTART:20261224", "RRULE:FREQ=WEEKLY"],
            "line 8: RRULE repeats WEEKLY; a calendar reads FREQ=YEARLY only; use dow, dom or months of the "
            "constraints, or list the days",
            id="weekly",
        ),
        pytest.param(
            ["DTSTART:20261224", "RRULE:FREQ=YEARLY;BYEASTER=0"],
            "line 8: RRULE has BYEASTER; a calendar reads yearly rules by month, day and weekday",
            id="unknown part",
        ),
        pytest.param(
            ["DTSTART:20261224", "RRULE:FREQ=YEARLY;BYDAY=MO"],
            "line 8: RRULE has BYDAY without BYMONTH; name the month",
            id="weekday of a year",
        ),
        pytest.param(
            ["DTSTART:20261224", "RRULE:FREQ=YEARLY;BYMONTH=13"],
            'line 8: RRULE has BYMONTH "13"; use 1 to 12',
            id="month 13",
        ),
        pytest.param(
            ["DTSTART:20261224", "RECURRENCE-ID:20261225"],
            "line 8: moves one occurrence; write it as an EXDATE and an event of its own",
            id="moved",
        ),
        pytest.param(
            ["DTSTART 2026"],
            'line 7: "DTSTART 2026" is not a line of an iCalendar file; it has the form NAME:VALUE',
            id="no line",
        ),
    ],
)
def test_what_would_need_a_guess_is_an_error_with_its_line(lines: list[str], expected: str) -> None:
    with pytest.raises(InvalidCalendarError) as caught:
        days_of(*lines)
    # The first of these lines is the seventh of the file.
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "line 1: is not an iCalendar file, which begins with BEGIN:VCALENDAR", id="empty"),
        pytest.param("2026-12-24\n", 'line 1: "2026-12-24" is not a line of an iCalendar file', id="a list"),
        pytest.param("BEGIN:VCALENDAR\nEND:VCALENDAR\n", "line 1: has no events", id="no events"),
        pytest.param("BEGIN:VCALENDAR\nEND:VEVENT\n", "line 2: END:VEVENT ends nothing that began", id="end"),
        pytest.param("BEGIN:VCALENDAR\nBEGIN:VEVENT\n", "line 2: the file ends within VEVENT", id="cut off"),
    ],
)
def test_a_file_that_is_no_calendar_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidCalendarError) as caught:
        parse_icalendar(text)
    assert str(caught.value).startswith(expected)


@law(200)
@given(
    starts=st.lists(st.dates(date(1990, 1, 1), date(2090, 1, 1)), min_size=1, max_size=5),
    length=st.integers(1, 40),
)
def test_every_day_of_every_event_is_there_and_no_other(starts: list[date], length: int) -> None:
    events = [
        f"BEGIN:VEVENT\nDTSTART:{start:%Y%m%d}\nDTEND:{start + timedelta(days=length):%Y%m%d}\nEND:VEVENT"
        for start in starts
    ]
    found = parse_icalendar("\n".join(["BEGIN:VCALENDAR", *events, "END:VCALENDAR"]))
    covered = {each.first + timedelta(n) for each in found for n in range((each.last - each.first).days + 1)}
    assert covered == {start + timedelta(n) for start in starts for n in range(length)}
    assert list(found) == sorted(set(found))


@law(200)
@given(st.text(st.sampled_from('BEGIN:VCALENDAR\nVEVT;=0123456789DSRUFQ,-\r "'), max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse_icalendar("BEGIN:VCALENDAR\n" + text)
    except InvalidCalendarError:
        return
