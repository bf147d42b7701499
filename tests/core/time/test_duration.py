"""Durations: the ways to write one, and what is none."""

import decimal
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InvalidOptionError
from kron.core.time.duration import MAX_LENGTH, format_duration, parse_duration
from tests.strategies import law

MICROS = 1_000_000


@pytest.mark.parametrize(
    ("given_", "micros"),
    [
        pytest.param("90s", 90 * MICROS, id="seconds"),
        pytest.param("1h30m", 5400 * MICROS, id="hours and minutes"),
        pytest.param("1w2d3h4m5s", 788_645 * MICROS, id="all units"),
        pytest.param("30m1h", 5400 * MICROS, id="in any order"),
        pytest.param("1.5h", 5400 * MICROS, id="a fraction of an hour"),
        pytest.param("250ms", 250_000, id="milliseconds"),
        pytest.param("7us", 7, id="microseconds"),
        pytest.param("1s500ms", 1_500_000, id="seconds and milliseconds"),
        pytest.param("1H30M", 5400 * MICROS, id="capitals"),
        pytest.param(" 10m ", 600 * MICROS, id="blanks around"),
        pytest.param("PT90M", 5400 * MICROS, id="ISO minutes"),
        pytest.param("P1DT12H", 129_600 * MICROS, id="ISO days and hours"),
        pytest.param("P2W", 1_209_600 * MICROS, id="ISO weeks"),
        pytest.param("PT0.5S", 500_000, id="ISO fraction"),
        pytest.param("pt1s", MICROS, id="ISO in small letters"),
        pytest.param("0s", 0, id="zero"),
        pytest.param("0", 0, id="zero as a text"),
        pytest.param("90", 90 * MICROS, id="a number in a text"),
        pytest.param("1.25", 1_250_000, id="a fraction in a text"),
        pytest.param(90, 90 * MICROS, id="a number"),
        pytest.param(0, 0, id="zero as a number"),
        pytest.param(0.3, 300_000, id="a fraction as it is written"),
        pytest.param(1e-7, 0, id="less than a microsecond"),
        pytest.param(1e9, 10**9 * MICROS, id="a large fraction"),
        pytest.param(-0.0, 0, id="minus zero"),
        pytest.param(timedelta(minutes=5), 300 * MICROS, id="a timedelta"),
        pytest.param("0.9999999s", 999_999, id="rounded down"),
        pytest.param(
            "12345678901.99999999999999999999s", 12_345_678_901_999_999, id="rounded down, many digits"
        ),
    ],
)
def test_a_duration_can_be_written_in_many_ways(given_: Any, micros: int) -> None:
    assert parse_duration(given_) == timedelta(microseconds=micros)


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "h", "1x", "1 h", "1h 30m", "1h1h", "one hour", "1h30", "1e3s", "+5s", "1,5s", ".5s", "5.s",
        "P", "PT", "P1DT", "P1Y", "P1M", "PTS", "PT1H30", "1:30", "٣s", "PT5\u017f", "5\u017f", "0x10",
        "1_000", "inf", "nan", float("inf"), float("nan"), True, False, None, [], {}, b"1s", 1 + 2j,
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_duration_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="write 90s, 1h30m, PT90M"):
        parse_duration(bad)


@pytest.mark.parametrize(
    "bad", ["-1s", "-1h30m", "-PT5M", "-0.000001s", -1, -0.5, timedelta(microseconds=-1)], ids=repr
)
def test_a_negative_duration_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="must not be negative"):
        parse_duration(bad)


@pytest.mark.parametrize(
    "bad", ["999999999d", "99999999999999999999w", 10**20, 1e300, timedelta.max], ids=repr
)
def test_a_duration_too_long_to_count_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="too long"):
        parse_duration(bad)


def test_a_text_longer_than_any_duration_is_not_even_read() -> None:
    assert parse_duration("1s".rjust(MAX_LENGTH)) == timedelta(seconds=1)
    with pytest.raises(InvalidOptionError):
        parse_duration("1s".rjust(MAX_LENGTH + 1))


def test_a_number_with_thousands_of_digits_is_not_even_read() -> None:
    with pytest.raises(InvalidOptionError):
        parse_duration("9" * 5000 + "s")


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0s"),
        (1, "0.000001s"),
        (1_500_000, "1.5s"),
        (60 * MICROS, "1m"),
        (3600 * MICROS, "1h"),
        (3661 * MICROS, "1h1m1s"),
        (3600 * MICROS + 1, "1h0.000001s"),
        (90_000 * MICROS, "25h"),
        (10**15 * MICROS // 100, "2777777777h46m40s"),
    ],
)
def test_the_canonical_form_is_short(micros: int, text: str) -> None:
    assert format_duration(timedelta(microseconds=micros)) == text


@law(300)
@given(st.integers(0, 10**17))
def test_the_canonical_form_is_read_back_exactly(micros: int) -> None:
    duration = timedelta(microseconds=micros)
    assert parse_duration(format_duration(duration)) == duration
    assert parse_duration(duration) == duration


@law(100)
@given(st.integers(0, 10**9), st.integers(0, 999_999))
def test_a_text_is_read_exactly_to_the_microsecond(seconds: int, micros: int) -> None:
    duration = timedelta(seconds=seconds, microseconds=micros)
    assert parse_duration(f"{seconds}.{micros:06}s") == duration
    assert parse_duration(f"PT{seconds}.{micros:06}S") == duration
    assert parse_duration(f"{seconds * MICROS + micros}us") == duration


def test_what_the_program_around_sets_for_its_own_decimals_changes_nothing() -> None:
    with decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact, decimal.Rounded])):
        assert parse_duration("1h30m15.25s") == timedelta(seconds=5415, microseconds=250_000)
        assert parse_duration(12345.678901) == timedelta(seconds=12_345, microseconds=678_901)
        assert parse_duration(timedelta(days=400, microseconds=1)) == timedelta(days=400, microseconds=1)


@law(300)
@given(st.text(max_size=12) | st.text("0123456789.hmswdPT-us", max_size=12))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    with suppress(InvalidOptionError):
        assert parse_duration(text) >= timedelta(0)
