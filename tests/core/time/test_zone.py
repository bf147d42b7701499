"""A zone is its changes of offset, all of them and no others, from the first year to the last."""

from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError, UnknownTimezoneError
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND
from kron.core.time.zone import (
    HOST_KEYS,
    PROBE,
    REPEATING_FROM,
    Span,
    Transition,
    year_bounds,
    year_of,
    zone_of,
)
from tests.reference import DAY, HOUR, OffsetChange, epoch, local_text, offset_changes
from tests.strategies import ZONE_KEYS

# One zone in twenty-four is checked in the fast tier.
PARTS = 24
FIRST_YEAR, LAST_YEAR = 1970, 2040


def expected(zone: str, first: int, last: int) -> list[OffsetChange]:
    """Return the changes of the years `first` to `last`, from the zone's own tables."""
    return [change for change in offset_changes(zone, until=last) if change.at >= epoch(first)]


def found(zone: str, first: int, last: int) -> list[OffsetChange]:
    """Return the changes of the years `first` to `last` as Kron sees them."""
    changes = zone_of(zone).changes(epoch(first), epoch(last, 12, 31) + DAY)
    return [OffsetChange(*change) for change in changes]


@cache
def names_of_each_zone() -> list[list[str]]:
    """Return all names, those together whose changes of offset are the same from 1970 to 2040."""
    names: dict[object, list[str]] = {}
    for key in ZONE_KEYS:
        offset = datetime(1970, 1, 1, tzinfo=UTC).astimezone(ZoneInfo(key)).utcoffset()
        names.setdefault((offset, *expected(key, FIRST_YEAR, LAST_YEAR)), []).append(key)
    return list(names.values())


# --- every zone ------------------------------------------------------------------------------------


@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_changes_of_every_zone_from_1970_to_2040_are_those_of_its_tables(some: bool) -> None:
    for key in ZONE_KEYS[::PARTS] if some else [names[0] for names in names_of_each_zone()]:
        assert found(key, FIRST_YEAR, LAST_YEAR) == expected(key, FIRST_YEAR, LAST_YEAR), key


def test_every_name_has_the_offsets_of_its_tables_just_before_and_at_each_change() -> None:
    for key in ZONE_KEYS:
        zone = zone_of(key)
        for at, before, after in expected(key, FIRST_YEAR, LAST_YEAR):
            assert (zone.offset_at(at - 1), zone.offset_at(at)) == (before, after), (key, at)


def test_no_zone_ever_kept_an_offset_for_less_than_the_time_between_two_looks() -> None:
    shortest = min(
        (later.at - change.at, key, local_text(change.at, "UTC"))
        for key in ZONE_KEYS
        for change, later in pairwise(offset_changes(key, until=2100))
    )
    assert shortest[0] > PROBE, shortest


@pytest.mark.slow
def test_from_one_year_on_every_zone_follows_a_rule_of_the_kind_of_year() -> None:
    """Years of one kind have their changes at the same times; and no span is shorter than a long probe."""
    for key in ZONE_KEYS:
        for year in (REPEATING_FROM, 2089, 2091, 2092, 2099, 2100):
            start, again = year_bounds(year)[0], year_bounds(year + 400)[0]
            changes = changes_probed_daily(key, year)
            assert changes == found(key, year, year), (key, year)
            assert [(at - start, *rest) for at, *rest in changes] == [
                (at - again, *rest) for at, *rest in found(key, year + 400, year + 400)
            ], (key, year)


def changes_probed_daily(key: str, year: int) -> list[tuple[int, int, int]]:
    """Return the changes of a year without the zone's own steps."""
    zone, (start, end) = zone_of(key), year_bounds(year)
    days = [zone.offset_at(at) for at in range(start, end, PROBE)]
    changes = []
    for number, (before, after) in enumerate(pairwise(days)):
        if before != after:
            low, high = start + number * PROBE, start + (number + 1) * PROBE
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if zone.offset_at(middle) == before else (low, middle)
            changes.append((high, before, after))
    return changes


def test_no_offset_is_as_large_as_a_day_and_no_change_larger() -> None:
    for key in ZONE_KEYS:
        for change in offset_changes(key, until=2100):
            assert abs(change.before) < DAY, key
            assert abs(change.after) < DAY, key
            assert abs(change.size) <= DAY, key


# --- zones worth a name ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "at", "before", "after"),
    [
        pytest.param("Europe/Berlin", epoch(2024, 3, 31, 1), 1, 2, id="Berlin, gap at 02:00"),
        pytest.param("Europe/Berlin", epoch(2024, 10, 27, 1), 2, 1, id="Berlin, fold at 03:00"),
        pytest.param("America/New_York", epoch(2024, 3, 10, 7), -5, -4, id="New York, gap at 02:00"),
        pytest.param("America/Santiago", epoch(2022, 9, 11, 4), -4, -3, id="Santiago, gap at midnight"),
        pytest.param("America/Santiago", epoch(2022, 4, 3, 3), -3, -4, id="Santiago, fold at midnight"),
        pytest.param("Asia/Beirut", epoch(2022, 3, 26, 22), 2, 3, id="Beirut, gap at midnight"),
        pytest.param("Asia/Beirut", epoch(2022, 10, 29, 21), 3, 2, id="Beirut, fold at midnight"),
        pytest.param("America/Havana", epoch(2022, 3, 13, 5), -5, -4, id="Havana, gap at midnight"),
        pytest.param("America/Havana", epoch(2022, 11, 6, 5), -4, -5, id="Havana, fold at 01:00"),
        pytest.param("Africa/Cairo", epoch(2014, 5, 15, 22), 2, 3, id="Cairo, gap at midnight"),
        pytest.param("Africa/Cairo", epoch(2014, 6, 26, 21), 3, 2, id="Cairo, fold at midnight, Ramadan"),
        pytest.param("Africa/Cairo", epoch(2014, 7, 31, 22), 2, 3, id="Cairo, second gap of a year"),
        pytest.param("Africa/Cairo", epoch(2014, 9, 25, 21), 3, 2, id="Cairo, second fold of a year"),
        pytest.param("Australia/Lord_Howe", epoch(2024, 10, 5, 15, 30), 10.5, 11, id="Lord Howe, half hour"),
        pytest.param("Australia/Lord_Howe", epoch(2024, 4, 6, 15), 11, 10.5, id="Lord Howe, half back"),
        pytest.param("Antarctica/Troll", epoch(2024, 3, 31, 1), 0, 2, id="Troll, two hours"),
        pytest.param("Pacific/Apia", epoch(2011, 12, 30, 10), -10, 14, id="Apia, no 30 December"),
        pytest.param("Pacific/Kwajalein", epoch(1993, 8, 21, 12), -12, 12, id="Kwajalein, no 21 August"),
        pytest.param("Europe/Dublin", epoch(2024, 3, 31, 1), 0, 1, id="Dublin, winter is the exception"),
        pytest.param("Europe/Dublin", epoch(2024, 10, 27, 1), 1, 0, id="Dublin, negative saving begins"),
        pytest.param("Africa/Casablanca", epoch(2022, 3, 27, 2), 1, 0, id="Casablanca, Ramadan begins"),
        pytest.param("Africa/Casablanca", epoch(2022, 5, 8, 2), 0, 1, id="Casablanca, Ramadan ends"),
        pytest.param("Asia/Pyongyang", epoch(2018, 5, 4, 15), 8.5, 9, id="Pyongyang, for good"),
        pytest.param("America/Caracas", epoch(2007, 12, 9, 7), -4, -4.5, id="Caracas, for good, back"),
        pytest.param("Africa/Monrovia", epoch(1972, 1, 7, 0, 44, 30), -2670 / HOUR, 0, id="Monrovia"),
    ],
)  # fmt: skip
def test_a_change_is_found_to_the_second(zone: str, at: int, before: float, after: float) -> None:
    change = Transition(at, round(before * HOUR), round(after * HOUR))
    assert list(zone_of(zone).changes(at, at + 1)) == [change]
    assert list(zone_of(zone).changes(at - DAY, at)) == []
    assert list(zone_of(zone).changes(at + 1, at + DAY)) == []
    assert change.size == round((after - before) * HOUR)
    assert zone_of(zone).span_at(at - 1)[1:] == (at, change.before)
    assert (zone_of(zone).span_at(at).start, zone_of(zone).span_at(at).offset) == (at, change.after)


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        pytest.param("Africa/Casablanca", 2012, 2095, id="Casablanca, Ramadan until 2087 and a time after"),
        pytest.param("Africa/El_Aaiun", 2012, 2095, id="El Aaiun likewise"),
        pytest.param("Asia/Gaza", 2000, 2095, id="Gaza, two pairs a year"),
        pytest.param("Europe/Dublin", 1840, 1980, id="Dublin, from local mean time"),
        pytest.param("Europe/Amsterdam", 1800, 1950, id="Amsterdam, offsets with seconds"),
        pytest.param("Europe/Paris", 1800, 1950, id="Paris"),
        pytest.param("America/New_York", 1800, 1970, id="New York"),
        pytest.param("America/Juneau", 1800, 1970, id="Juneau, a day repeated in 1867"),
        pytest.param("Asia/Manila", 1800, 1970, id="Manila, a day skipped in 1844"),
        pytest.param("Africa/Freetown", 1900, 1970, id="Freetown, the shortest span"),
        pytest.param("Africa/Monrovia", 1850, 1980, id="Monrovia"),
        pytest.param("Pacific/Kwajalein", 1890, 2000, id="Kwajalein, 23 hours back and 24 forward"),
        pytest.param("Pacific/Kiritimati", 1890, 2000, id="Kiritimati"),
        pytest.param("Asia/Tokyo", 1800, 1960, id="Tokyo"),
        pytest.param("America/New_York", 2495, 2505, id="the year 2500, New York"),
        pytest.param("Europe/Dublin", 2495, 2505, id="the year 2500, Dublin"),
        pytest.param("Australia/Lord_Howe", 2495, 2505, id="the year 2500, Lord Howe"),
        pytest.param("America/Santiago", 2495, 2505, id="the year 2500, Santiago"),
        pytest.param("Europe/Berlin", 9990, 9999, id="the last years, Berlin"),
        pytest.param("Pacific/Auckland", 9990, 9999, id="the last years, Auckland"),
        pytest.param("Europe/Berlin", 1, 5, id="the first years"),
        pytest.param("UTC", 1960, 1980, id="UTC has none"),
        pytest.param("Etc/GMT+12", 1960, 1980, id="nor has a fixed offset"),
    ],
)
def test_the_changes_of_other_times_are_those_of_the_tables(zone: str, first: int, last: int) -> None:
    assert found(zone, first, last) == expected(zone, first, last)


def test_a_change_at_the_very_start_of_a_year_is_found_once() -> None:
    at_new_year = [
        (key, change)
        for key in ZONE_KEYS
        for change in offset_changes(key, until=2100)
        if change.at == epoch(year_of(change.at))
    ]
    assert at_new_year, "no zone changes at a UTC new year: look for another example"
    for key, (at, before, after) in at_new_year:
        assert list(zone_of(key).changes(at - DAY, at + DAY)) == [Transition(at, before, after)], key
        assert list(zone_of(key).changes(at, at + DAY)) == [Transition(at, before, after)], key
        assert zone_of(key).spans_of(year_of(at - 1))[-1][1:] == (at, before), key
        assert zone_of(key).spans_of(year_of(at))[0][::2] == (at, after), key


# --- spans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Africa/Cairo", "Pacific/Apia", "Asia/Gaza", "UTC"])
@pytest.mark.parametrize("year", [1, 2, 1893, 1970, 2000, 2011, 2014, 2024, 2500, 9998, 9999])
def test_the_spans_of_a_year_cover_it_without_gap_or_overlap(zone: str, year: int) -> None:
    spans = zone_of(zone).spans_of(year)
    start, end = year_bounds(year)
    assert (spans[0].start, spans[-1].end) == (start, end)
    for span, later in pairwise(spans):
        assert span.end == later.start
        assert span.offset != later.offset
    for span in spans:
        assert span.start < span.end
        for instant in (span.start, (span.start + span.end) // 2, span.end - 1):
            assert zone_of(zone).offset_at(instant) == span.offset
            assert zone_of(zone).span_at(instant) == span


def test_the_spans_of_berlin_in_2024_are_winter_summer_and_winter() -> None:
    spring, autumn = epoch(2024, 3, 31, 1), epoch(2024, 10, 27, 1)
    assert zone_of("Europe/Berlin").spans_of(2024) == (
        Span(epoch(2024), spring, HOUR),
        Span(spring, autumn, 2 * HOUR),
        Span(autumn, epoch(2025), HOUR),
    )


@pytest.mark.parametrize(
    ("year", "days"), [(1, 365), (4, 366), (1900, 365), (2000, 366), (2024, 366), (9999, 365)]
)
def test_a_year_begins_and_ends_at_its_new_years(year: int, days: int) -> None:
    start, end = year_bounds(year)
    assert (start, end - start) == (epoch(year), days * DAY)
    assert (year_of(start), year_of(end - 1)) == (year, year)


# --- the ends of the calendar ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "first", "last"),
    [
        pytest.param("UTC", 0, 0, id="UTC"),
        pytest.param("Europe/Berlin", 3208, 3600, id="Berlin"),
        pytest.param("America/New_York", -17762, -18000, id="New York"),
        pytest.param("Pacific/Auckland", 41944, 46800, id="Auckland, summer at new year"),
    ],
)
def test_offsets_are_known_at_both_ends_of_the_calendar(zone: str, first: int, last: int) -> None:
    assert [zone_of(zone).offset_at(FIRST_SECOND + second) for second in (0, 1, DAY)] == [first] * 3
    assert [zone_of(zone).offset_at(LAST_SECOND - second) for second in (0, 1, DAY)] == [last] * 3
    assert zone_of(zone).span_at(FIRST_SECOND).start == FIRST_SECOND == epoch(1)
    assert zone_of(zone).span_at(LAST_SECOND).end == LAST_SECOND + 1


def test_changes_may_be_asked_for_beyond_the_calendar() -> None:
    berlin = zone_of("Europe/Berlin")
    assert list(berlin.changes(FIRST_SECOND - DAY, FIRST_SECOND + DAY)) == []
    last = [OffsetChange(*change) for change in berlin.changes(epoch(9999), LAST_SECOND + DAY)]
    assert last == expected("Europe/Berlin", 9999, 9999)
    assert list(berlin.changes(LAST_SECOND + 1, LAST_SECOND + DAY)) == []
    assert list(berlin.changes(5, 5)) == []
    assert list(berlin.changes(epoch(2025), epoch(2024))) == []


# --- names -----------------------------------------------------------------------------------------


def test_zones_are_shared() -> None:
    assert zone_of("Europe/Berlin") is zone_of("Europe/Berlin")
    assert zone_of("Europe/Berlin") is not zone_of("Europe/Paris")
    assert zone_of("Europe/Berlin").key == "Europe/Berlin"


@pytest.mark.parametrize(
    "key", ["UTC", "America/Argentina/Buenos_Aires", "Etc/GMT-14", "US/Eastern", "EST5EDT"]
)
def test_every_kind_of_iana_name_is_known(key: str) -> None:
    assert zone_of(key).key == key


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        pytest.param("europe/berlin", "did you mean Europe/Berlin?", id="lower case"),
        pytest.param("EUROPE/BERLIN", "did you mean Europe/Berlin?", id="upper case"),
        pytest.param("utc", "did you mean UTC?", id="utc"),
        pytest.param("America/New York", "did you mean America/New_York?", id="a blank for a line"),
        pytest.param(" UTC", "did you mean UTC?", id="a blank before it"),
        pytest.param("Mars/Olympus_Mons", 'use an IANA name such as "Europe/Berlin"', id="unlike any"),
        pytest.param("", 'use an IANA name such as "Europe/Berlin"', id="empty"),
        pytest.param("Europe", 'use an IANA name such as "Europe/Berlin"', id="a folder"),
        pytest.param("../etc/passwd", 'use an IANA name such as "Europe/Berlin"', id="a way out"),
        pytest.param("/etc/passwd", 'use an IANA name such as "Europe/Berlin"', id="a file"),
        pytest.param("zone.tab", 'use an IANA name such as "Europe/Berlin"', id="a file beside the zones"),
        pytest.param("\x00", 'use an IANA name such as "Europe/Berlin"', id="a zero byte"),
        pytest.param("\ud800", 'use an IANA name such as "Europe/Berlin"', id="half a character"),
        pytest.param("x" * 5000, 'use an IANA name such as "Europe/Berlin"', id="very long"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_suggestion(key: str, hint: str) -> None:
    with pytest.raises(UnknownTimezoneError) as caught:
        zone_of(key)
    shown = {"\x00": r"\x00", "\ud800": r"\ud800", "x" * 5000: 60 * "x" + "..."}.get(key, key)
    assert str(caught.value) == f'Unknown timezone "{shown}": {hint}'
    assert caught.value.details["timezone"] == key
    assert set(caught.value.details) == {"timezone", "suggestions"}
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "unknown_timezone"
    with pytest.raises(UnknownTimezoneError):
        Schedule("* * * * *", key, dialect="posix")


def test_suggestions_are_zones_that_exist() -> None:
    with pytest.raises(UnknownTimezoneError) as caught:
        zone_of("Europe/Berln")
    suggestions = caught.value.details["suggestions"]
    assert isinstance(suggestions, tuple)
    assert suggestions[0] == "Europe/Berlin"
    assert set(suggestions) <= available_timezones()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "5"),
        (5.0, "5.0"),
        (True, "true"),
        (b"UTC", "b'UTC'"),
        (["UTC"], "[UTC]"),
        ({"zone": "UTC"}, "{zone: UTC}"),
        (object, "<class 'object'>"),
    ],
)
def test_a_zone_that_is_not_a_string_is_refused(value: Any, shown: str) -> None:
    with pytest.raises(UnknownTimezoneError) as caught:
        Schedule("* * * * *", value, dialect="posix")
    assert str(caught.value) == f'Unknown timezone "{shown}": use an IANA name such as "Europe/Berlin"'
    assert caught.value.details == {"timezone": value, "suggestions": ()}


@pytest.mark.parametrize("value", [None, 5, b"UTC"])
def test_zone_of_refuses_what_is_not_a_string(value: Any) -> None:
    with pytest.raises(UnknownTimezoneError):
        zone_of(value)


@pytest.mark.parametrize("key", ["localtime", "posixrules", "right/UTC", "posix/Europe/Berlin"])
def test_a_file_of_the_database_that_is_no_iana_zone_is_refused(key: str) -> None:
    with pytest.raises(UnknownTimezoneError) as caught:
        zone_of(key)
    suggestions = caught.value.details["suggestions"]
    assert isinstance(suggestions, tuple)
    assert HOST_KEYS.isdisjoint(suggestions)
