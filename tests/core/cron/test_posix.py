"""The strict dialect accepts SPEC 1's grammar, nothing more, and says what is wrong with everything else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError
from kron.cron import Expression, FieldParseError, InvalidCronExpressionError, parse, parse_field
from tests.reference import LIMITS, LONGEST_MONTHS, read
from tests.strategies import instants, law, near_misses, strict_expressions, strict_fields

NAMES = ("minute", "hour", "day", "month", "weekday")
START = datetime(2024, 1, 1, tzinfo=UTC)
LONG = 150


def values_of(expression: Expression) -> tuple[tuple[int, ...], ...]:
    return tuple(field.values for field in expression.fields)


def days_of(text: str, *, month: int, year: int = 2024) -> list[int]:
    """Return the days of a UTC month on which an expression matches."""
    schedule = Schedule(text, dialect="posix")
    start = datetime(year, month, 1, tzinfo=UTC)
    end = (start + timedelta(days=31)).replace(day=1)
    return sorted({occurrence.day for occurrence in schedule.between(start, end)})


def refusal_of(text: Any) -> InvalidCronExpressionError:
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse(text, dialect="posix")
    return caught.value


# --- what is accepted ------------------------------------------------------------------------------

ALL = tuple(tuple(range(low, high + 1)) for low, high in LIMITS)
_, HOURS, DAYS, MONTHS, WEEKDAYS = ALL


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("0 0 * * *", ((0,), (0,), DAYS, MONTHS, WEEKDAYS), id="daily at midnight"),
        pytest.param("15 3 * * 1-5", ((15,), (3,), DAYS, MONTHS, (1, 2, 3, 4, 5)), id="3:15 AM on weekdays"),
        pytest.param("0,30 * * * *", ((0, 30), HOURS, DAYS, MONTHS, WEEKDAYS), id="every 30 minutes"),
        pytest.param("0 12 14 2 *", ((0,), (12,), (14,), (2,), WEEKDAYS), id="noon on February 14th"),
        pytest.param("15,30,45,0 * * * *", ((0, 15, 30, 45), *ALL[1:]), id="every 15 minutes, unordered"),
        pytest.param("* * * * *", ALL, id="every minute"),
        pytest.param("0-59 0-23 1-31 1-12 0-6", ALL, id="every value as a range"),
        pytest.param("59 23 31 12 6", ((59,), (23,), (31,), (12,), (6,)), id="the largest values"),
        pytest.param("0 0 1 1 0", ((0,), (0,), (1,), (1,), (0,)), id="the smallest values"),
        pytest.param("1-1 2-2 3-3 4-4 5-5", ((1,), (2,), (3,), (4,), (5,)), id="ranges of one value"),
        pytest.param("1,3-5,9 * * * *", ((1, 3, 4, 5, 9), *ALL[1:]), id="numbers and ranges in one list"),
        pytest.param("00 012 0001-05 02 000", ((0,), (12,), (1, 2, 3, 4, 5), (2,), (0,)), id="leading zeros"),
        pytest.param(
            "5,5,5 1,1 2,1-3,2 * *", ((5,), (1,), (1, 2, 3), MONTHS, WEEKDAYS), id="repeated values"
        ),
    ],
)
def test_a_valid_expression_allows_exactly_the_values_it_names(
    text: str, values: tuple[tuple[int, ...], ...]
) -> None:
    assert values_of(parse(text, dialect="posix")) == values


@pytest.mark.parametrize(
    "text",
    [
        " 0 9 * * 1-5",
        "0 9 * * 1-5 ",
        "\t0\t9\t*\t*\t1-5\t",
        "0  9   *    *     1-5",
        " \t 0 \t 9\t *  * \t\t1-5 \t ",
    ],
)
def test_blanks_and_tabs_may_stand_around_and_between_fields(text: str) -> None:
    assert parse(text, dialect="posix") == parse("0 9 * * 1-5", dialect="posix")


def test_expressions_are_equal_when_they_mean_the_same_and_keep_their_own_text() -> None:
    one, other = parse("00,0 9-9 * 1-12 1,2,3", dialect="posix"), parse("0 9 * * 1-3", dialect="posix")
    assert one == other
    assert hash(one) == hash(other)
    assert (one.text, str(one)) == ("00,0 9-9 * 1-12 1,2,3", "0 9 * * 1-3")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("* * * * *", "* * * * *"),
        ("0-59 0-23 * 1-12 *", "* * * * *"),
        ("0 0 1-31 * 0-6", "0 0 1-31 * 0-6"),
        ("0 0 * * 0-6", "0 0 * * 0-6"),
        ("05,06,07 1,2 * * *", "5-7 1,2 * * *"),
        (" 59-59\t0,23 28-31 2 0,2,4,6 ", "59 0,23 28-31 2 0,2,4,6"),
    ],
)
def test_the_canonical_text_is_short_and_keeps_a_restricted_day_restricted(text: str, canonical: str) -> None:
    assert str(parse(text, dialect="posix")) == canonical


# --- the nine reasons to refuse (SPEC 1: Validation Rules) -----------------------------------------


def steps(item: str, remedy: str) -> str:
    return f'uses step syntax "{item}", which POSIX cron does not have; {remedy}'


def name(word: str, remedy: str) -> str:
    return f'uses the name "{word}", which POSIX cron does not have; {remedy}'


def macro(word: str, remedy: str = "") -> str:
    return f'uses the macro "{word}", which POSIX cron does not have{remedy}'


def token(sign: str, remedy: str = "list the days") -> str:
    return f'uses the token "{sign}", which POSIX cron does not have; {remedy}'


def number(word: str) -> str:
    return f'has "{word}", which is not a decimal number (digits 0-9 only)'


def sign(word: str) -> str:
    return f'has "{word}": signs are not allowed, and a range needs a start'


RULE_1_FIVE_FIELDS = [
    ("", "expression", "must have exactly 5 fields, got 0"),
    (" \t ", "expression", "must have exactly 5 fields, got 0"),
    ("*", "expression", "must have exactly 5 fields, got 1"),
    ("0 0 * *", "expression", "must have exactly 5 fields, got 4"),
    ("0 0 * * * *", "expression", "must have exactly 5 fields, got 6"),
    ("0 0 * * * 2024", "expression", "must have exactly 5 fields, got 6"),
    ("0 0 1, 15 * *", "expression", "must have exactly 5 fields, got 6"),
    ("0 0 1 - 5 * *", "expression", "must have exactly 5 fields, got 7"),
]
RULE_2_NO_STEPS = [
    ("*/15 * * * *", "minute", steps("*/15", "write 0,15,30,45")),
    ("* */6 * * *", "hour", steps("*/6", "write 0,6,12,18")),
    ("* * 1-10/3 * *", "day", steps("1-10/3", "write 1,4,7,10")),
    ("* * * 5/4 *", "month", steps("5/4", "write 5,9")),
    ("* * * * */2", "weekday", steps("*/2", "write 0,2,4,6")),
    ("*/1 * * * *", "minute", steps("*/1", "write 0-59")),
    ("*/0 * * * *", "minute", steps("*/0", "list the values")),
    ("*/ * * * *", "minute", steps("*/", "list the values")),
    ("0,30/5 * * * *", "minute", steps("30/5", "write 30,35,40,45,50,55")),
    ("0 0-30/2 * * *", "hour", steps("0-30/2", "list the values")),
]
RULE_3_NO_NAMES = [
    ("0 0 * * mon", "weekday", name("mon", "write 1")),
    ("0 0 * * sunday", "weekday", name("sunday", "write 0")),
    ("0 0 * * SAT", "weekday", name("SAT", "write 6")),
    ("0 0 * * mon-fri", "weekday", name("mon", "write 1")),
    ("0 0 * * 1-Fri", "weekday", name("Fri", "write 5")),
    ("0 0 * jan *", "month", name("jan", "write 1")),
    ("0 0 * December *", "month", name("December", "write 12")),
    ("0 0 * 1,feb *", "month", name("feb", "write 2")),
    ("0 0 * mon *", "month", name("mon", "a weekday name does not belong here")),
    ("0 0 jan * *", "day", name("jan", "a month name does not belong here")),
]
RULE_4_NO_MACROS = [
    ("@daily", "expression", macro("@daily", "; write 0 0 * * *")),
    ("@hourly", "expression", macro("@hourly", "; write 0 * * * *")),
    (" @Weekly\t", "expression", macro("@weekly", "; write 0 0 * * 0")),
    ("@yearly", "expression", macro("@yearly", "; write 0 0 1 1 *")),
    ("@monthly", "expression", macro("@monthly", "; write 0 0 1 * *")),
    ("@reboot", "expression", macro("@reboot")),
    ("@every 5m", "expression", macro("@every 5m")),
    ("@daily * * * *", "minute", macro("@daily")),
]
RULE_5_NO_QUARTZ = [
    ("0 0 ? * *", "day", token("?", "use * for any day")),
    ("0 0 * * ?", "weekday", token("?", "use * for any day")),
    ("0 0 L * *", "day", token("L")),
    ("0 0 l * *", "day", token("L")),
    ("0 0 L-3 * *", "day", token("L")),
    ("0 0 LW * *", "day", token("LW")),
    ("0 0 15W * *", "day", token("W")),
    ("0 0 1,W * *", "day", token("W")),
    ("0 0 * * 5L", "weekday", token("L")),
    ("0 0 * * 5#2", "weekday", token("#")),
    ("H 0 * * *", "minute", token("H", "write a number")),
]
RULE_6_NO_SEVEN = [
    (f"0 0 * * {weekday}", "weekday", "has the value 7, outside 0-6; use 0 for Sunday")
    for weekday in ("7", "07", "5-7", "7-7", "0,7", "7-1")
]
RULE_7_NO_WRAPPING = [
    ("50-10 * * * *", "minute", "has the range 50-10, which wraps around; write 0-10,50-59"),
    ("0 22-2 * * *", "hour", "has the range 22-2, which wraps around; write 0-2,22,23"),
    ("0 0 28-3 * *", "day", "has the range 28-3, which wraps around; write 1-3,28-31"),
    ("0 0 * 11-2 *", "month", "has the range 11-2, which wraps around; write 1,2,11,12"),
    ("0 0 * * 5-1", "weekday", "has the range 5-1, which wraps around; write 0,1,5,6"),
    ("0 0 * * 6-0", "weekday", "has the range 6-0, which wraps around; write 0,6"),
    ("0 0 * * 1,006-05", "weekday", "has the range 6-5, which wraps around; write 0-6"),
]
RULE_8_IN_RANGE = [
    ("60 * * * *", "minute", "has the value 60, outside 0-59"),
    ("0,60 * * * *", "minute", "has the value 60, outside 0-59"),
    ("0-60 * * * *", "minute", "has the value 60, outside 0-59"),
    ("* 24 * * *", "hour", "has the value 24, outside 0-23"),
    ("* 024 * * *", "hour", "has the value 24, outside 0-23"),
    ("* * 0 * *", "day", "has the value 0, outside 1-31"),
    ("* * 000 * *", "day", "has the value 0, outside 1-31"),
    ("* * 32 * *", "day", "has the value 32, outside 1-31"),
    ("* * 0-5 * *", "day", "has the value 0, outside 1-31"),
    ("* * * 0 *", "month", "has the value 0, outside 1-12"),
    ("* * * 13 *", "month", "has the value 13, outside 1-12"),
    ("* * * * 8", "weekday", "has the value 8, outside 0-6"),
    ("99999999999999999999 * * * *", "minute", "has the value 99999999999999999999, outside 0-59"),
]
RULE_9_DECIMAL = [
    ("1e1 * * * *", "minute", number("1e1")),
    ("1E1 * * * *", "minute", number("1E1")),
    ("0x1F * * * *", "minute", number("0x1F")),
    ("0b1 * * * *", "minute", number("0b1")),
    ("1.0 * * * *", "minute", number("1.0")),
    ("1_0 * * * *", "minute", number("1_0")),
    ("+5 * * * *", "minute", number("+5")),
    ("-5 * * * *", "minute", sign("-5")),
    ("* * * * -1", "weekday", sign("-1")),
    ("1-+5 * * * *", "minute", number("+5")),
    ("1--5 * * * *", "minute", 'has "1--5", which is not a range of two numbers'),
    ("5- * * * *", "minute", 'has "5-": a range needs an end'),
    ("- * * * *", "minute", sign("-")),
    ("1-2-3 * * * *", "minute", 'has "1-2-3", which is not a range of two numbers'),
    ("\u0663 * * * *", "minute", number("\u0663")),
    ("\uff11 * * * *", "minute", number("\uff11")),
    ("\u00b2 * * * *", "minute", number("\u00b2")),
    ("1-\u0665 * * * *", "minute", number("\u0665")),
    ("x * * * *", "minute", number("x")),
]
# What the grammar itself rules out, beyond the nine.
THE_GRAMMAR = [
    ("*,5 * * * *", "minute", 'has "*,5", but "*" must stand alone in its field'),
    ("5,* * * * *", "minute", 'has "5,*", but "*" must stand alone in its field'),
    ("** * * * *", "minute", 'has "**", but "*" must stand alone in its field'),
    ("0 *-5 * * *", "hour", 'has "*-5", but "*" must stand alone in its field'),
    ("1,,2 * * * *", "minute", 'has an empty list item in "1,,2"'),
    (",1 * * * *", "minute", 'has an empty list item in ",1"'),
    ("* 1, * * *", "hour", 'has an empty list item in "1,"'),
    (", * * * *", "minute", 'has an empty list item in ","'),
    (
        "CRON_TZ=Europe/Berlin 0 0 * * *",
        "expression",
        "has a time zone prefix, which POSIX cron does not have; use the timezone option",
    ),
]
OTHER_WHITE_SPACE = [
    (text, "expression", f"contains {blank!r}; only spaces and tabs may separate fields")
    for blank in ("\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u00a0", "\u2003", "\u2028", "\u3000")
    for text in (f"0 0 *{blank}* *", f"0 0 * * *{blank}", f"{blank}0 0 * * *", f"0 0 * *{blank} *")
]
NEVER = [
    ("0 0 30 2 *", "expression", "can never match: no year has a day 30 in month 2"),
    ("0 0 31 2 *", "expression", "can never match: no year has a day 31 in month 2"),
    ("0 0 30,31 2 *", "expression", "can never match: no year has a day 30,31 in month 2"),
    ("0 0 31 4 *", "expression", "can never match: no year has a day 31 in month 4"),
    ("0 0 31 2,4,6,9,11 *", "expression", "can never match: no year has a day 31 in month 2,4,6,9,11"),
    ("* * 031 02,2 *", "expression", "can never match: no year has a day 031 in month 02,2"),
]
GROUPS = {
    "rule 1": RULE_1_FIVE_FIELDS,
    "rule 2": RULE_2_NO_STEPS,
    "rule 3": RULE_3_NO_NAMES,
    "rule 4": RULE_4_NO_MACROS,
    "rule 5": RULE_5_NO_QUARTZ,
    "rule 6": RULE_6_NO_SEVEN,
    "rule 7": RULE_7_NO_WRAPPING,
    "rule 8": RULE_8_IN_RANGE,
    "rule 9": RULE_9_DECIMAL,
    "grammar": THE_GRAMMAR,
    "white space": OTHER_WHITE_SPACE,
    "never": NEVER,
}
REFUSED = [
    pytest.param(text, field, reason, id=f"{group}: {text!a}")
    for group, cases in GROUPS.items()
    for text, field, reason in cases
]


@pytest.mark.parametrize(("text", "field", "reason"), REFUSED)
def test_an_invalid_expression_is_refused_with_its_field_and_the_reason(
    text: str, field: str, reason: str
) -> None:
    error = refusal_of(text)
    assert str(error) == f'Invalid cron expression "{text}": {field} field {reason}'
    assert error.details == {"expression": text, "field": field, "reason": reason}
    assert (error.expression, error.field, error.reason) == (text, field, reason)
    assert isinstance(error, InputError)
    assert error.code == "invalid_cron_expression"


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize(
    "word", ["*/2", "x", "1e0", "+1", "?", "L", "W", "#", "99", "3-2", "1,", "1-", "@daily"]
)
def test_a_mistake_is_found_in_every_field_and_named_after_it(place: int, word: str) -> None:
    words = ["*"] * 5
    words[place] = word
    assert refusal_of(" ".join(words)).field == NAMES[place]


def test_of_several_mistakes_the_first_field_is_named() -> None:
    assert refusal_of("60 24 32 13 7").field == "minute"
    assert refusal_of("0 24 32 13 7").field == "hour"
    assert refusal_of("0 0 32 13 7").field == "day"


@pytest.mark.parametrize(
    ("value", "shown", "kind"),
    [
        pytest.param(None, "None", "NoneType", id="None"),
        pytest.param(b"0 0 * * *", "b'0 0 * * *'", "bytes", id="bytes"),
        pytest.param(5, "5", "int", id="int"),
        pytest.param(["0", "0", "*", "*", "*"], "['0', '0', '*', '*', '*']", "list", id="list"),
        pytest.param({"minute": "0"}, "{'minute': '0'}", "dict", id="dict"),
        pytest.param(True, "True", "bool", id="bool"),
    ],
)
def test_what_is_not_a_string_is_refused_in_the_same_form(value: Any, shown: str, kind: str) -> None:
    reason = f"must be a string, got {kind}"
    error = refusal_of(value)
    assert str(error) == f'Invalid cron expression "{shown}": expression field {reason}'
    assert error.details == {"expression": shown, "field": "expression", "reason": reason}
    with pytest.raises(InvalidCronExpressionError) as caught:
        Schedule(value, dialect="posix")
    assert str(caught.value) == str(error)


# --- one field -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("60", "minute", "has the value 60, outside 0-59"),
        ("*/5", "hour", 'uses step syntax "*/5", which POSIX cron does not have; write 0,5,10,15,20'),
        ("L", "day", token("L")),
        ("13", "month", "has the value 13, outside 1-12"),
        ("7", "weekday", "has the value 7, outside 0-6; use 0 for Sunday"),
        ("", "minute", "is empty"),
        ("1, 2", "minute", number(" 2")),
        (" 1", "minute", number(" 1")),
    ],
)
def test_a_field_that_is_wrong_is_refused_with_its_value_and_its_name(
    text: str, field: str, reason: str
) -> None:
    with pytest.raises(FieldParseError) as caught:
        parse_field(text, field, "posix")
    assert str(caught.value) == f"{field} field {reason}"
    assert caught.value.details == {"fieldValue": text, "fieldName": field}
    assert caught.value.code == "invalid_cron_field"


def test_the_error_of_an_expression_is_caused_by_that_of_its_field() -> None:
    cause = refusal_of("0 0 * * 7").__cause__
    assert isinstance(cause, FieldParseError)
    assert cause.details == {"fieldValue": "7", "fieldName": "weekday"}


@pytest.mark.parametrize("value", [None, b"1", 1, ["1"]])
def test_a_field_that_is_not_a_string_is_refused(value: Any) -> None:
    with pytest.raises(FieldParseError) as caught:
        parse_field(value, "minute", "posix")
    assert caught.value.details == {"fieldValue": str(value), "fieldName": "minute"}


@law(300)
@given(data=st.data(), place=st.integers(0, 4))
def test_a_field_allows_the_same_values_alone_as_in_an_expression(data: st.DataObject, place: int) -> None:
    text = data.draw(strict_fields(*LIMITS[place]))
    words = ["*"] * 5
    words[place] = text
    assert parse(" ".join(words), dialect="posix").fields[place] == parse_field(text, NAMES[place], "posix")


# --- the day rule (SPEC 1: Day-of-Month/Day-of-Week Semantics) -------------------------------------

MONDAYS = [1, 8, 15, 22, 29]  # of January 2024


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 * * *", list(range(1, 32)), id="* and *: every day"),
        pytest.param("0 0 * * 1", MONDAYS, id="* and restricted: every Monday"),
        pytest.param("0 0 15 * *", [15], id="restricted and *: the 15th"),
        pytest.param("0 0 1,15 * 1", MONDAYS, id="restricted and restricted: either, both Mondays"),
        pytest.param("0 0 2,16 * 1", sorted([*MONDAYS, 2, 16]), id="restricted and restricted: either"),
        pytest.param("0 0 13 * 5", [5, 12, 13, 19, 26], id="not only Friday the 13th"),
        pytest.param("0 0 * * 0-6", list(range(1, 32)), id="every weekday written out, any day"),
        pytest.param("0 0 1-31 * *", list(range(1, 32)), id="every day written out, any weekday"),
        pytest.param("0 0 1-31 * 1", list(range(1, 32)), id="1-31 counts as restricted"),
        pytest.param("0 0 5 * 0-6", list(range(1, 32)), id="0-6 counts as restricted"),
        pytest.param("0 0 1-7 * 1", [1, 2, 3, 4, 5, 6, 7, 8, 15, 22, 29], id="not the first Monday"),
        pytest.param("0 0 15 2 1", [], id="another month"),
    ],
)
def test_the_day_rule_names_these_days_of_january_2024(text: str, days: list[int]) -> None:
    assert days_of(text, month=1) == days


@pytest.mark.parametrize(
    ("text", "year", "days"),
    [
        pytest.param("0 0 30 2 1", 2024, [5, 12, 19, 26], id="no 30 February, but Mondays"),
        pytest.param("0 0 30,31 2 0-1", 2023, [5, 6, 12, 13, 19, 20, 26, 27], id="Sundays and Mondays"),
        pytest.param("0 0 29 2 *", 2024, [29], id="29 February in a leap year"),
        pytest.param("0 0 29 2 *", 2023, [], id="29 February in another year"),
        pytest.param("0 0 29 2 1", 2023, [6, 13, 20, 27], id="29 February or Monday"),
    ],
)
def test_a_day_that_february_lacks_leaves_the_weekday(text: str, year: int, days: list[int]) -> None:
    assert days_of(text, month=2, year=year) == days


@pytest.mark.parametrize("month", range(1, 13))
def test_the_last_possible_day_of_each_month_is_accepted_and_one_more_refused(month: int) -> None:
    longest = LONGEST_MONTHS[month - 1]
    assert parse(f"0 0 {longest} {month} *", dialect="posix").day.values == (longest,)
    if longest < 31:
        assert refusal_of(f"0 0 {longest + 1} {month} *").reason.startswith("can never match")


@pytest.mark.parametrize(
    "text", ["0 0 31 * *", "0 0 31 2,3 *", "0 0 29,30 2 *", "0 0 31 4 0", "0 0 30 2 0-6"]
)
def test_an_expression_that_some_day_matches_is_accepted(text: str) -> None:
    assert str(parse(text, dialect="posix")) == text


# --- laws ------------------------------------------------------------------------------------------


@law(400)
@given(text=strict_expressions())
@example("0 0 1-31 * 1")
@example("0 0 1 * 0-6")
@example("0-59 0-23 1-31 1-12 0-6")
def test_the_canonical_text_reads_back_as_an_equal_expression(text: str) -> None:
    once = parse(text, dialect="posix")
    again = parse(str(once), dialect="posix")
    assert again == once
    assert str(again) == str(once)
    assert (again.either, hash(again)) == (once.either, hash(once))


@law(300)
@given(text=strict_expressions(), start=instants())
def test_the_canonical_text_has_the_same_occurrences(text: str, start: datetime) -> None:
    given_text = Schedule(text, dialect="posix")
    canonical = Schedule(str(given_text.expression), dialect="posix")
    instant = start
    for _ in range(5):
        assert canonical.next_after(instant) == given_text.next_after(instant)
        instant = given_text.next_after(instant)
    assert canonical.prev_at_or_before(start) == given_text.prev_at_or_before(start)


@law(400)
@given(text=strict_expressions())
def test_an_expression_allows_the_values_an_independent_parser_reads(text: str) -> None:
    expression = parse(text, dialect="posix")
    wanted = read(text)
    assert wanted is not None
    minutes, hours, days, months, weekdays = values_of(expression)
    assert {hour * 60 + minute for hour in hours for minute in minutes} == wanted.times
    assert (frozenset(days), frozenset(months), frozenset(weekdays)) == wanted[1:4]
    assert expression.either == wanted.either


def assert_accepted_exactly_if_strict(text: str) -> None:
    wanted = read(text)
    if wanted is not None and wanted.possible:
        assert parse(text, dialect="posix").text == text
    else:
        error = refusal_of(text)
        assert str(error).startswith(f'Invalid cron expression "{text}": {error.field} field ')
        assert error.field in (*NAMES, "expression")
        assert error.reason


@law(1000)
@given(text=near_misses())
def test_text_that_is_nearly_an_expression_is_accepted_exactly_if_the_grammar_says_so(text: str) -> None:
    assert_accepted_exactly_if_strict(text)


# Any text at all: with halves of characters, which no encoding has, and with much that looks like cron.
ANY_TEXT = (
    st.text(st.characters(exclude_categories=()))
    | st.text("0123456789*,-/ \t@LW#?")
    | st.lists(st.text(max_size=4)).map(" ".join)
)


@law(800)
@given(text=ANY_TEXT)
def test_any_text_is_accepted_exactly_if_the_grammar_says_so(text: str) -> None:
    assert_accepted_exactly_if_strict(text)


@law(400)
@given(words=st.lists(st.text("0123456789*,-", min_size=1, max_size=6), min_size=5, max_size=5))
def test_five_words_of_cron_signs_are_accepted_exactly_if_the_grammar_says_so(words: list[str]) -> None:
    assert_accepted_exactly_if_strict(" ".join(words))


@law(300)
@given(text=ANY_TEXT | near_misses())
@example("H H H H H")
@example("\ud800 * * * *")
@example("CRON_TZ=\ud800 * * * * *")
def test_any_text_makes_a_schedule_or_is_refused_in_the_same_words(text: str) -> None:
    wanted = read(text)
    if wanted is not None and wanted.possible:
        assert Schedule(text, dialect="posix").text == text
        return
    with pytest.raises(InvalidCronExpressionError) as caught:
        Schedule(text, dialect="posix")
    assert str(caught.value) == str(refusal_of(text))


@law(300)
@given(text=ANY_TEXT, place=st.integers(0, 4))
def test_any_text_is_a_field_exactly_if_it_is_one_in_an_expression(text: str, place: int) -> None:
    words = ["*"] * 5
    words[place] = text
    if " " not in text and "\t" not in text and read(" ".join(words)) is not None:
        assert parse_field(text, NAMES[place], "posix").unit.name == NAMES[place]
    else:
        with pytest.raises(FieldParseError) as caught:
            parse_field(text, NAMES[place], "posix")
        assert caught.value.field_name == NAMES[place]


@law(300)
@given(
    value=st.none() | st.integers() | st.floats() | st.binary() | st.lists(st.text()) | st.tuples(st.text())
)
def test_any_value_that_is_no_string_is_refused(value: Any) -> None:
    assert refusal_of(value).reason == f"must be a string, got {type(value).__name__}"


# --- very long input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        pytest.param("0" * LONG + "5 * * * *", (5,), id="leading zeros"),
        pytest.param("0" * LONG + " * * * *", (0,), id="nothing but zeros"),
        pytest.param(
            "0" * LONG + "1-" + "0" * LONG + "3 * * * *", (1, 2, 3), id="a range with leading zeros"
        ),
        pytest.param(",".join(["7"] * LONG) + " * * * *", (7,), id="a long list"),
        pytest.param(",".join(["0-59"] * LONG) + " * * * *", tuple(range(60)), id="a long list of ranges"),
        pytest.param(" " * LONG + "7" + "\t" * LONG + "* * * *" + " " * LONG, (7,), id="blanks"),
    ],
)
def test_a_very_long_expression_is_read(text: str, minutes: tuple[int, ...]) -> None:
    assert parse(text, dialect="posix").minute.values == minutes


@pytest.mark.parametrize("dialect", ["posix", "extended"])
def test_an_expression_has_at_most_a_thousand_characters(dialect: str) -> None:
    assert parse("7" + "," + "07," * 329 + "7 * * * *", dialect=dialect).minute.values == (7,)
    assert parse(" " * 991 + "7 * * * *", dialect=dialect).minute.values == (7,)
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse(" " * 992 + "7 * * * *", dialect=dialect)
    assert caught.value.reason == "must have at most 1,000 characters, got 1,001"


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        pytest.param(
            "1" * LONG + " * * * *", "minute", f"has the value {'1' * 40}..., outside 0-59", id="digits"
        ),
        pytest.param("1,6" * LONG + " * * * *", "minute", "has the value 61, outside 0-59", id="list"),
        pytest.param("* " * LONG, "expression", f"must have exactly 5 fields, got {LONG}", id="fields"),
        pytest.param("*" * LONG, "expression", "must have exactly 5 fields, got 1", id="stars"),
        pytest.param(
            "," * LONG + " * * * *", "minute", f'has an empty list item in "{"," * 40}..."', id="commas"
        ),
        pytest.param(
            "1-" * LONG + " * * * *",
            "minute",
            f'has "{"1-" * 20}...", which is not a range of two numbers',
            id="dashes",
        ),
        pytest.param("x" * LONG + " * * * *", "minute", number("x" * 40 + "..."), id="letters"),
        pytest.param("l1" * LONG + " * * * *", "minute", token("L"), id="tokens"),
        pytest.param("qq1" * LONG + " * * * *", "minute", number("qq1" * 13 + "q..."), id="words"),
        pytest.param(
            "*/" + "9" * LONG + " * * * *",
            "minute",
            steps("*/" + "9" * 38 + "...", "list the values"),
            id="step",
        ),
        pytest.param("@" + "x" * LONG, "expression", macro("@" + "x" * 39 + "..."), id="macro"),
    ],
)
def test_a_very_long_mistake_is_refused_with_a_short_reason(text: str, field: str, reason: str) -> None:
    error = refusal_of(text)
    assert (error.field, error.reason) == (field, reason)
    assert error.expression == text
