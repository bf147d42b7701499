"""Debian's cron as values: the fields it reads, and its starts around clock changes, as observed on it.

The facts come from running Debian 12's cron (3.0pl1-162) with libfaketime, by bench/crons.py.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.dialect import MACROS, parse
from kron.core.cron.schedule import Schedule
from kron.core.cron.vixie import CronLine, cron_starts, parse_cron_line
from kron.core.errors import InvalidCronExpressionError
from kron.core.time.zone import zone_of
from tests.strategies import law, near_misses, strict_expressions

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0 0 1 * 1#2", "0 0 1 * 1"),
        ("5~10 * * * *", "5 * * * *"),
        ("5.5 * * * *", "5 * * * *"),
        ("1-5-7 * * * *", "1-5 * * * *"),
        ("*5 * * * *", "* * * * *"),
        ("*-5 * * * *", "* * * * *"),
        ("*/5/2 * * * *", "*/5 * * * *"),
        ("*,5 * * * *", "* * * * *"),
        ("*/61 * * * *", "*/60 * * * *"),
        ("007 * * * *", "7 * * * *"),
        ("* * * * 5-7", "* * * * 0,5,6"),
        ("* * * * 7", "* * * * 0"),
        ("0 0 * jan-mar MON,Fri", "0 0 * 1-3 1,5"),
        ("0-4/3,1 * * * *", "0,1,3 * * * *"),
        ("@hourly", "0 * * * *"),
        ("@midnight", "0 0 * * *"),
    ],
)
def test_cron_reads_a_text_as(text: str, meant: str) -> None:
    assert str(parse_cron_line(text)) == meant
    assert not parse_cron_line(text).never


@pytest.mark.parametrize(
    "text",
    [
        "5/10 * * * *", "0 0 0 * *", "0 0 * 0 *", "0 0 L * *", "0 0 * * 5L", "0 0 15W * *", "H 3 * * *",
        "0 0 ? * 1", "0 0 * * monday", "*/0 * * * *", "60 * * * *", "-1 * * * *", "1- * * * *", "1, * * * *",
        ",1 * * * *", "1,,2 * * * *", "1--5 * * * *", "1234567 * * * *", "5x * * * *", "5-7x * * * *",
        "mon * * * *", "@Daily", "@every_minute", "0 0 * *", "* * * * 8",
    ],
)  # fmt: skip
def test_cron_refuses(text: str) -> None:
    with pytest.raises(InvalidCronExpressionError):
        parse_cron_line(text)


@pytest.mark.parametrize("text", ["58-2 * * * *", "0 22-2 * * *", "* * * * sat-sun", "* * * 5-3 *"])
def test_a_reversed_range_is_accepted_and_never_starts(text: str) -> None:
    assert parse_cron_line(text).never


def test_a_reversed_day_leaves_the_other_day_field() -> None:
    line = parse_cron_line("0 0 9-3 * 1")
    assert not line.never
    assert [day for day in range(1, 8) if line.matches_day(datetime(2026, 6, day))] == [1]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0 0 9-3 * 1", "0 0 * * 1"),
        ("0 0 1 * fri-mon", "0 0 1 * *"),
        ("0 0 10-1*0 * 0", "0 0 * * 0"),
    ],
)
def test_a_day_field_without_values_is_written_so_that_the_other_one_decides(text: str, written: str) -> None:
    line = parse_cron_line(text)
    assert str(line) == written
    days = [datetime(2026, 6, 1) + timedelta(days=number) for number in range(60)]
    assert [parse_cron_line(written).matches_day(day) for day in days] == list(map(line.matches_day, days))


def starts(text: str, since: str, until: str) -> list[str]:
    first, last = (
        int(datetime.fromisoformat(each).replace(tzinfo=UTC).timestamp()) for each in (since, until)
    )
    found = cron_starts(parse_cron_line(text), zone_of("Europe/Berlin"), first, last)
    return [datetime.fromtimestamp(at, BERLIN).strftime("%H:%M %Z") for at in found]


@pytest.mark.parametrize(
    ("text", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00 CEST"], ["02:30 CEST"]),
        ("0,30 2 * * *", ["03:00 CEST", "03:00 CEST"], ["02:00 CEST", "02:30 CEST"]),
        ("*/30 2 * * *", [], ["02:00 CEST", "02:30 CEST", "02:00 CET", "02:30 CET"]),
        ("30 * * * *", [], ["02:30 CEST", "02:30 CET"]),
        ("15 2-3 * * *", ["03:00 CEST", "03:15 CEST"], ["02:15 CEST"]),
        ("0 3 * * *", ["03:00 CEST"], ["03:00 CET"]),
        ("@hourly", ["03:00 CEST"], ["02:00 CEST", "02:00 CET", "03:00 CET"]),
        ("59 1 * * *", ["01:59 CET"], ["01:59 CEST"]),
    ],
)
def test_clock_changes_are_followed_as_cron_does(text: str, spring: list[str], autumn: list[str]) -> None:
    assert starts(text, "2026-03-29T00:57", "2026-03-29T01:20") == spring
    assert starts(text, "2026-10-24T23:59", "2026-10-25T02:05") == autumn


@given(strict_expressions(), st.sampled_from(["UTC", "Asia/Kolkata"]), st.integers(0, 2**31))
@law(100)
def test_without_clock_changes_cron_starts_what_the_strict_dialect_names(
    text: str, zone: str, since: int
) -> None:
    line = parse_cron_line(text)
    until = since + 3 * 86_400
    expected = Schedule(text, zone, dialect="posix").between(
        datetime.fromtimestamp(since, UTC), datetime.fromtimestamp(until, UTC)
    )
    assert list(cron_starts(line, zone_of(zone), since, until)) == [int(at.timestamp()) for at in expected]


@given(near_misses())
@law(200)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        line = parse_cron_line(text)
    except InvalidCronExpressionError:
        return
    assert isinstance(line, CronLine)
    if not line.never:
        assert str(parse_cron_line(str(line))) == str(line)


def test_every_macro_means_in_kron_what_it_means_in_cron() -> None:
    for macro in MACROS:
        assert parse(macro).times == parse(str(parse_cron_line(macro))).times
