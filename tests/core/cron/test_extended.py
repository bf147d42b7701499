"""The extended dialect says what people mean by it, is the same everywhere it meets the strict one, and
refuses everything else with a remedy."""

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from itertools import islice

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kron.core.cron.dialect import MACROS
from kron.core.cron.schedule import Schedule
from kron.core.errors import InvalidOptionError, NeverMatchesError, UnknownTimezoneError
from kron.cron import InvalidCronExpressionError, parse, parse_field
from tests.extended_strategies import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    Meaning,
    Unit,
    cased,
    extended_expressions,
    extended_meanings,
    mutated,
    open_step,
)
from tests.strategies import instants, law, strict_expressions

UNITS = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "month": MONTH,
    "weekday": WEEKDAY,
}
# 2000 to 2027 begin with every weekday, as leap years and as common ones: every kind of year there is.
EVERY_KIND_OF_YEAR = [date(2000, 1, 1) + timedelta(n) for n in range(28 * 365 + 7)]

NO_YEARS = "there is no field for years: bound the schedule with start_at and end_at"


def days_of(text: str, *, year: int = 2026, month: int = 1) -> list[int]:
    """Return the days of a UTC month on which an expression matches."""
    start = datetime(year, month, 1, tzinfo=UTC)
    end = (start + timedelta(days=31)).replace(day=1)
    return sorted({occurrence.day for occurrence in Schedule(text).between(start, end)})


def refusal_of(text: str, identity: str | None = None) -> InvalidCronExpressionError:
    with pytest.raises(InvalidCronExpressionError) as caught:
        parse(text, identity=identity)
    return caught.value


# --- numbers, names, steps and ranges --------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        pytest.param("minute", "*/15", (0, 15, 30, 45), id="a step over everything"),
        pytest.param("minute", "10-50/20", (10, 30, 50), id="a step over a range"),
        pytest.param("minute", "10-49/20", (10, 30), id="a step that does not reach the end"),
        pytest.param("minute", "5/10", (5, 15, 25, 35, 45, 55), id="a step from a value to the end"),
        pytest.param("minute", "59/3", (59,), id="a step from the last value"),
        pytest.param("minute", "7-7/3", (7,), id="a step over one value"),
        pytest.param("minute", "*/60", (0,), id="a step as large as the field"),
        pytest.param("minute", "*/99999999999", (0,), id="a step larger than any field"),
        pytest.param("minute", "*/025", (0, 25, 50), id="a step with a leading zero"),
        pytest.param("hour", "*/7,1,22-23", (0, 1, 7, 14, 21, 22, 23), id="steps, values and ranges"),
        pytest.param("day", "*/10", (1, 11, 21, 31), id="days count from 1"),
        pytest.param("month", "*/5", (1, 6, 11), id="months count from 1"),
        pytest.param("hour", "22-2", (0, 1, 2, 22, 23), id="hours over midnight"),
        pytest.param("hour", "22-4/2", (0, 2, 4, 22), id="hours over midnight by steps"),
        pytest.param("hour", "23-4/2", (1, 3, 23), id="steps go on where the range wraps"),
        pytest.param("minute", "55-5/4", (3, 55, 59), id="minutes over the hour by steps"),
        pytest.param("day", "28-3", (1, 2, 3, 28, 29, 30, 31), id="days over the month"),
        pytest.param("day", "29-3/2", (2, 29, 31), id="days over the month by steps"),
        pytest.param("month", "nov-feb", (1, 2, 11, 12), id="months over the year"),
        pytest.param("month", "NOV-February/2", (1, 11), id="months over the year by steps"),
        pytest.param("minute", "1-0", tuple(range(60)), id="all the way round"),
        pytest.param("weekday", "7", (0,), id="7 is Sunday"),
        pytest.param("weekday", "0,7", (0,), id="Sunday twice"),
        pytest.param("weekday", "5-7", (0, 5, 6), id="Friday to Sunday"),
        pytest.param("weekday", "6-7", (0, 6), id="Saturday to Sunday"),
        pytest.param("weekday", "0-7", (0, 1, 2, 3, 4, 5, 6), id="Sunday to Sunday is every day"),
        pytest.param("weekday", "7-2", (0, 1, 2), id="Sunday to Tuesday"),
        pytest.param("weekday", "7-7", (0,), id="Sunday alone as a range"),
        pytest.param("weekday", "7-0", (0,), id="Sunday alone by both numbers"),
        pytest.param("weekday", "1-7/2", (0, 1, 3, 5), id="every second day, Sunday last"),
        pytest.param("weekday", "6-7/2", (6,), id="a step over the weekend"),
        pytest.param("weekday", "0/2", (0, 2, 4, 6), id="a step from Sunday"),
        pytest.param("weekday", "7/2", (0,), id="a step from the last day, which is Sunday"),
        pytest.param("weekday", "1/2", (1, 3, 5), id="a step from Monday ends with Saturday"),
        pytest.param("weekday", "fri-mon", (0, 1, 5, 6), id="a long weekend"),
        pytest.param("weekday", "sat-sun", (0, 6), id="the weekend"),
        pytest.param("weekday", "sun-sat", (0, 1, 2, 3, 4, 5, 6), id="the whole week"),
        pytest.param("weekday", "Fri-Mon/2", (0, 5), id="a long weekend by steps"),
        pytest.param("weekday", "mon-7", (0, 1, 2, 3, 4, 5, 6), id="a name and a number"),
        pytest.param("weekday", "TUESDAY,thu,Sat", (2, 4, 6), id="names in any case, short and long"),
        pytest.param("month", "january,Feb,MARCH,12", (1, 2, 3, 12), id="names and numbers"),
        pytest.param("month", "may/4", (5, 9), id="a step from a name"),
    ],
)
def test_a_field_holds_the_values_it_says(field: str, text: str, values: tuple[int, ...]) -> None:
    parsed = parse_field(text, field)
    assert parsed.values == values
    assert parsed.marks == ()


@pytest.mark.parametrize(("field", "unit"), [("month", MONTH), ("weekday", WEEKDAY)])
def test_every_name_counts_in_any_case_short_and_long(field: str, unit: Unit) -> None:
    for value, name in enumerate(unit.names, unit.low):
        for word in (name, name[:3]):
            for text in (word, word.upper(), word.title(), word[:-1] + word[-1].upper()):
                assert parse_field(text, field).values == (value,)


@pytest.mark.parametrize(
    ("macro", "text"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_a_macro_stands_for_its_expression_in_any_case(macro: str, text: str) -> None:
    for written in (macro, macro.upper(), macro.title(), f" {macro}\t"):
        assert parse(written) == parse(text)


def test_every_macro_is_in_the_table_above() -> None:
    assert set(MACROS) == {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}


def test_of_six_fields_the_first_is_the_second() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    found = islice(Schedule("*/20,5 30 9 * * mon").between(start, start + timedelta(days=30)), 5)
    assert [instant.strftime("%d %H:%M:%S") for instant in found] == [
        "05 09:30:00",
        "05 09:30:05",
        "05 09:30:20",
        "05 09:30:40",
        "12 09:30:00",
    ]


def test_a_second_of_zero_is_the_same_as_five_fields() -> None:
    assert parse("0 30 9 * * *") == parse("30 9 * * *")
    assert str(parse("0 30 9 * * *")) == "30 9 * * *"
    assert str(parse("5 30 9 * * *")) == "5 30 9 * * *"


# --- days that depend on the month -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "month", "days"),
    [
        pytest.param("0 0 L * *", 1, [31], id="L"),
        pytest.param("0 0 l * *", 2, [28], id="l in February"),
        pytest.param("0 0 L-0 * *", 4, [30], id="L-0"),
        pytest.param("0 0 L-3 * *", 4, [27], id="L-3"),
        pytest.param("0 0 l-30 * *", 1, [1], id="L-30 in a long month"),
        pytest.param("0 0 L-30 * *", 4, [], id="L-30 in a short month"),
        pytest.param("0 0 LW * *", 1, [30], id="LW before a Saturday"),
        pytest.param("0 0 lw * *", 5, [29], id="LW before a Sunday"),
        pytest.param("0 0 LW * *", 3, [31], id="LW on a Tuesday"),
        pytest.param("0 0 15W * *", 1, [15], id="15W on a Thursday"),
        pytest.param("0 0 15w * *", 8, [14], id="15W on a Saturday"),
        pytest.param("0 0 15W * *", 2, [16], id="15W on a Sunday"),
        pytest.param("0 0 1W * *", 8, [3], id="1W on a Saturday stays in the month"),
        pytest.param("0 0 31W * *", 5, [29], id="31W on a Sunday stays in the month"),
        pytest.param("0 0 31W * *", 4, [], id="31W in a short month"),
        pytest.param("0 0 * * 5#2", 1, [9], id="the second Friday"),
        pytest.param("0 0 * * FRI#2", 1, [9], id="the second Friday by name"),
        pytest.param("0 0 * * friday#2", 1, [9], id="the second Friday by its long name"),
        pytest.param("0 0 * * 7#1", 1, [4], id="the first Sunday as 7"),
        pytest.param("0 0 * * 0#1", 1, [4], id="the first Sunday as 0"),
        pytest.param("0 0 * * 4#5", 1, [29], id="the fifth Thursday"),
        pytest.param("0 0 * * 4#5", 2, [], id="a fifth Thursday that is not there"),
        pytest.param("0 0 * * 5L", 1, [30], id="the last Friday"),
        pytest.param("0 0 * * friL", 1, [30], id="the last Friday by name"),
        pytest.param("0 0 * * FRIDAYl", 1, [30], id="the last Friday by its long name"),
        pytest.param("0 0 * * 7L", 1, [25], id="the last Sunday as 7"),
        pytest.param("0 0 1,15W,L-2,L * *", 1, [1, 15, 29, 31], id="a list of days and marks"),
        pytest.param("0 0 * * 1,5#2,wedL", 1, [5, 9, 12, 19, 26, 28], id="a list of weekdays and marks"),
        pytest.param("0 0 L * 1", 1, [5, 12, 19, 26, 31], id="the last day or a Monday"),
        pytest.param("0 0 13 * 5#2", 1, [9, 13], id="the 13th or the second Friday"),
        pytest.param("0 0 */2,L * 5L", 1, [], id="an even day that is the last Friday"),
        pytest.param("0 0 1-7,L 1 *", 1, [1, 2, 3, 4, 5, 6, 7, 31], id="a range and a mark"),
    ],
)
def test_the_days_of_a_month_of_2026(text: str, month: int, days: list[int]) -> None:
    assert days_of(text, month=month) == days


def test_a_fifth_monday_in_february_comes_in_the_leap_years_that_begin_so() -> None:
    found = Schedule("0 0 * 2 1#5").between(
        datetime(2000, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)
    )
    assert [f"{instant:%Y-%m-%d}" for instant in found] == ["2016-02-29", "2044-02-29", "2072-02-29"]


# --- Vixie's day rule ------------------------------------------------------------------------------

ODD_DAYS = list(range(1, 32, 2))
MONDAYS = [5, 12, 19, 26]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 */2 * 1", [5, 19], id="a day that begins with * and a weekday: both"),
        pytest.param("0 0 1-31/2 * 1", sorted({*ODD_DAYS, *MONDAYS}), id="the same days as a range: either"),
        pytest.param("0 0 */1 * 1", MONDAYS, id="every day written as a step: both"),
        pytest.param("0 0 1-31 * 1", list(range(1, 32)), id="every day written as a range: either"),
        pytest.param("0 0 *,13 * 1", MONDAYS, id="a list that begins with *: both"),
        pytest.param("0 0 13,* * 1", list(range(1, 32)), id="a list with * further on: either"),
        pytest.param("0 0 13 * */7", [], id="a weekday that begins with *: both"),
        pytest.param("0 0 4 * */7", [4], id="a weekday that begins with *, and it is a Sunday"),
        pytest.param("0 0 13 * 0-6/7", [4, 11, 13, 18, 25], id="the same weekday as a range: either"),
        pytest.param("0 0 13 * 1", sorted({13, *MONDAYS}), id="a day and a weekday: either"),
        pytest.param("0 0 13 * *", [13], id="a day alone"),
        pytest.param("0 0 * * 1", MONDAYS, id="a weekday alone"),
        pytest.param("0 0 */2 * */2", [1, 3, 11, 13, 15, 17, 25, 27, 29, 31], id="both begin with *"),
        pytest.param("0 0 */2,4 * 7", [4, 11, 25], id="a step in a list"),
        pytest.param("0 0 L * */2", [31], id="the last day, if its weekday is even"),
    ],
)
def test_the_days_of_january_2026_by_the_day_rule(text: str, days: list[int]) -> None:
    assert days_of(text) == days


# --- H ---------------------------------------------------------------------------------------------


def hash_of(identity: str, field: str) -> int:
    digest = sha256(f"{identity}\nH\n{field}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("H H H H H H", "57 26 8 8 11 6"),
        ("H/15 * * * *", "11,26,41,56 * * * *"),
        ("H(30-59) H(0-7) * * *", "56 0 * * *"),
        ("H(0-29)/10,45 * * * *", "6,16,26,45 * * * *"),
        ("0 0 H * H(1-5)", "0 0 8 * 3"),
        ("0 0 H(1-31)/7,L * *", "0 0 1,8,15,22,29,L * *"),
    ],
)
def test_what_h_stands_for_never_changes(text: str, expected: str) -> None:
    assert str(parse(text, identity="backup")) == expected


@given(st.sampled_from(sorted(UNITS)), st.text(), st.data())
@law(200)
def test_h_is_the_hash_of_the_identity_and_the_field(field: str, identity: str, data: st.DataObject) -> None:
    unit, number = UNITS[field], hash_of(identity, field)
    low, high = (1, 28) if unit is DAY else (unit.low, unit.high)
    first, last = sorted(data.draw(st.tuples(*[st.integers(unit.low, unit.high)] * 2)))
    step, near = data.draw(st.integers(1, high - low + 1)), data.draw(st.integers(1, last - first + 1))
    expected = {
        "H": [low + number % (high - low + 1)],
        f"h({first}-{last})": [first + number % (last - first + 1)],
        f"H/{step}": list(range(low + number % step, high + 1, step)),
        f"H({first}-{last})/{near}": list(range(first + number % near, last + 1, near)),
    }
    for text, values in expected.items():
        assert parse_field(text, field, identity=identity).values == tuple(values)


@given(st.text(st.characters(exclude_categories=())))
@example("\ud800")
@example("\x00")
@law(50)
def test_every_identity_has_its_h(identity: str) -> None:
    assert parse("H H H H H H", identity=identity) == parse("h h h h h h", identity=identity)


def test_identities_are_spread() -> None:
    minutes = {parse("H * * * *", identity=f"job {n}").minute.values for n in range(1000)}
    assert len(minutes) == 60


@pytest.mark.parametrize("text", ["H * * * *", "0 0 h * *", "0 0 * * H(1-5)", "0,H/7 * * * *", "H 0 0 * * *"])
def test_h_without_an_identity_is_an_error(text: str) -> None:
    assert (
        refusal_of(text).reason
        == 'uses "H", which is derived from an identity; pass one (identity=, --identity)'
    )


@given(extended_expressions(), st.text())
@law(50)
def test_without_h_the_identity_changes_nothing(text: str, identity: str) -> None:
    try:
        expression = parse(text)
    except NeverMatchesError:
        return
    assert parse(text, identity=identity) == expression


# --- time zones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["CRON_TZ=", "TZ=", "cron_tz=", "tz="])
@pytest.mark.parametrize("rest", ["0 6 * * *", "0 0 6 * * *"])
def test_a_prefix_says_the_time_zone(prefix: str, rest: str) -> None:
    schedule = Schedule(f"{prefix}Europe/Berlin {rest}")
    assert schedule.timezone == "Europe/Berlin"
    assert schedule.next_after(datetime(2026, 7, 1, tzinfo=UTC)) == datetime(2026, 7, 1, 4, tzinfo=UTC)


def test_a_prefix_may_stand_before_a_macro() -> None:
    assert str(parse("TZ=Asia/Tokyo @daily")) == "CRON_TZ=Asia/Tokyo 0 0 * * *"


def test_a_prefix_that_differs_from_the_time_zone_is_an_error() -> None:
    text = "CRON_TZ=Europe/Berlin 0 6 * * *"
    assert Schedule(text, "Europe/Berlin") == Schedule(text)
    with pytest.raises(InvalidOptionError, match="the expression says CRON_TZ=Europe/Berlin"):
        Schedule(text, "Europe/Paris")


def test_a_prefix_with_an_unknown_zone_is_an_error() -> None:
    with pytest.raises(UnknownTimezoneError, match="did you mean Europe/Berlin"):
        Schedule("CRON_TZ=Europe/Berlim 0 6 * * *")


# --- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 7])
@pytest.mark.parametrize(("word", "low"), [("0", 0), ("sun", 0), ("3", 3), ("6", 6), ("7", 0), ("07", 0)])
def test_a_weekday_with_an_open_step_means_what_the_strategies_draw_for_it(
    word: str, low: int, step: int
) -> None:
    drawn = open_step(word, low, step, WEEKDAY)
    assert frozenset(parse_field(drawn.text, "weekday").values) == drawn.values


@given(extended_meanings(), st.dates(date(1900, 1, 1), date(2100, 1, 1)))
@law(250)
def test_an_expression_matches_the_times_it_was_written_to_say(meaning: Meaning, first: date) -> None:
    try:
        schedule = Schedule(meaning.text)
    except NeverMatchesError:
        assert not any(map(meaning.matches, EVERY_KIND_OF_YEAR))
        return
    times = meaning.times
    days = [day for day in (first + timedelta(n) for n in range(70)) if meaning.matches(day)]
    midnight = datetime.combine(first, time(), UTC)
    for day in days:
        midnight = schedule.next_after(midnight - timedelta(seconds=1))
        assert midnight == datetime.combine(day, times[0], UTC)
        midnight = datetime.combine(day, time(), UTC) + timedelta(days=1)
    for day in days[:1]:
        start = datetime.combine(day, time(), UTC)
        found = islice(schedule.between(start, start + timedelta(days=1)), 2000)
        assert [instant.time() for instant in found] == times[:2000]
    after = schedule.next_after(midnight - timedelta(seconds=1))
    assert after.date() >= first + timedelta(days=70)


def hides_a_mark(meaning: Meaning) -> bool:
    """Say whether a day field begins with `*`, holds every day, and has a mark besides."""
    fields = ((meaning.day, DAY), (meaning.weekday, WEEKDAY))
    return any(
        field.text.startswith("*")
        and field.values == unit.ring(unit.low, unit.high)
        and any(item.test for item in field.items)
        for field, unit in fields
    )


@given(extended_meanings(), st.sampled_from(["", "TZ=Asia/Tokyo "]))
@law(300)
def test_from_the_canonical_text_an_equal_expression_is_parsed(meaning: Meaning, prefix: str) -> None:
    assume(not hides_a_mark(meaning))
    try:
        expression = parse(prefix + meaning.text)
    except NeverMatchesError:
        return
    assert parse(str(expression)) == expression
    assert str(parse(str(expression))) == str(expression)


@pytest.mark.parametrize("text", ["0 0 *,L * *", "0 0 * * *,5#2", "0 0 */2,1-31,15W * *"])
def test_the_canonical_text_keeps_a_mark_beside_every_day(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)


@given(strict_expressions(), instants(), st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]))
@law(150)
def test_a_strict_expression_means_the_same_in_both_dialects(text: str, start: datetime, zone: str) -> None:
    assert parse(text, "extended") == parse(text, "posix")
    strict, extended = Schedule(text, zone, dialect="posix"), Schedule(text, zone, dialect="extended")
    instant = start
    for _ in range(10):
        found = strict.next_after(instant)
        assert extended.next_after(instant) == found
        instant = found
    assert strict.prev_at_or_before(start) == extended.prev_at_or_before(start)


# --- expressions that never match ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 L-30 2 *",
        "0 0 L-29 2 *",
        "0 0 L-30 apr *",
        "0 0 30W 2 *",
        "0 0 31W jun *",
        "0 0 31 2 */2",
        "0 0 */30 2 1#2",
        "0 0 */14 * 2#2,5#4",
    ],
)
def test_an_expression_that_never_matches_is_refused(text: str) -> None:
    with pytest.raises(NeverMatchesError, match=r"can never match: no (year|month) has a day"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("0 0 29 2 *", "2028-02-29", id="a leap day"),
        pytest.param("0 0 L-28 2 *", "2028-02-01", id="28 days before a leap day"),
        pytest.param("0 0 29W 2 *", "2028-02-29", id="the workday nearest to a leap day"),
        pytest.param("0 0 * 2 1#5", "2044-02-29", id="a fifth Monday in February"),
        pytest.param("0 0 31 2 1", "2026-02-02", id="a day that never comes or a Monday"),
        pytest.param("0 0 */28 2 0#5", "2032-02-29", id="the 29th and a fifth Sunday"),
        pytest.param("0 0 31 2-4 *", "2026-03-31", id="one month of three has the day"),
    ],
)
def test_an_expression_that_seldom_matches_is_accepted(text: str, first: str) -> None:
    assert f"{Schedule(text).next_after(datetime(2026, 1, 1, tzinfo=UTC)):%Y-%m-%d}" == first


# --- errors ----------------------------------------------------------------------------------------

MONTH_LIST = "jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec"
DECIMAL = "which is not a decimal number (digits 0-9 only)"
REFUSED: dict[str, tuple[str, str]] = {
    # how many fields
    "": ("expression", "must have 5 fields, or 6 with seconds first, got 0"),
    " \t ": ("expression", "must have 5 fields, or 6 with seconds first, got 0"),
    "* * * *": ("expression", "must have 5 fields, or 6 with seconds first, got 4"),
    "0 0 1 1 * * 2030": (
        "expression",
        f"must have 5 fields, or 6 with seconds first, got 7; {NO_YEARS}",
    ),
    "0 0 1 1 * 2030": (
        "weekday",
        f"has the value 2030, outside 0-7; {NO_YEARS}",
    ),
    # what excludes each other, as it was written
    "0 0 LW * */6": ("expression", "can never match: no month has a day LW on weekday */6"),
    "0 0 31 2 */100": ("expression", "can never match: no year has a day 31 in month 2 on weekday */100"),
    "0 0 31 april ?": ("expression", "can never match: no year has a day 31 in month april"),
    # notations of other libraries
    "0 0 * * L5": ("weekday", 'has "L5"; write 5L for the last Friday of the month'),
    "0 0 L5 * *": ("day", 'has "L5"; write L-5 to count back from the last day of the month'),
    "0 0 W15 * *": ("day", 'has "W15"; write 15W for the workday nearest to day 15'),
    "R 0 * * *": (
        "minute",
        'has "R"; a random value has no fixed times; use H, which is derived from the identity',
    ),
    "0 R(1-5) * * *": (
        "hour",
        'has "R(1-5)"; a random value has no fixed times; use H, which is derived from the identity',
    ),
    "TZ=UTC": ("expression", "must have 5 fields, or 6 with seconds first, got 0"),
    "CRON_TZ= 0 0 * * *": ("expression", "has an empty time zone prefix; write CRON_TZ=Europe/Berlin"),
    # blanks
    "0 0 * * *\n": ("expression", "contains '\\n'; only spaces and tabs may separate fields"),
    "0\xa00 * * *": ("expression", "contains '\\xa0'; only spaces and tabs may separate fields"),
    # macros
    "@dayly": ("expression", 'has the macro "@dayly"; did you mean @daily?'),
    "@daily 5": ("expression", 'has the macro "@daily 5"; did you mean @daily?'),
    "@": ("expression", f'has the macro "@"; use one of {", ".join(MACROS)}'),
    "@reboot": ("expression", "has @reboot, which is not a time"),
    "@every 5m": ("expression", "has @every; write a step instead, such as */5 * * * *"),
    # steps
    "/15 * * * *": ("minute", 'has the step "/15" without a range; did you mean */15?'),
    "*/0 * * * *": ("minute", 'has the step 0 in "*/0"; a step is 1 or more'),
    "5-9/00 * * * *": ("minute", 'has the step 0 in "5-9/00"; a step is 1 or more'),
    "*/ * * * *": ("minute", 'has "*/", whose step is not a decimal number'),
    "*/x * * * *": ("minute", 'has "*/x", whose step is not a decimal number'),
    "*/15/2 * * * *": ("minute", 'has "*/15/2", whose step is not a decimal number'),
    "*15 * * * *": ("minute", 'has "*15", but "*" stands alone or before a step, as in */15'),
    "* *-5 * * *": ("hour", 'has "*-5", but "*" stands alone or before a step, as in */15'),
    # numbers and ranges
    "60 * * * *": ("minute", "has the value 60, outside 0-59"),
    "60 * * * * *": ("second", "has the value 60, outside 0-59"),
    "0 24 * * *": ("hour", "has the value 24, outside 0-23"),
    "0 0 0 * *": ("day", "has the value 0, outside 1-31"),
    "0 0 32 * *": ("day", "has the value 32, outside 1-31"),
    "0 0 1-32 * *": ("day", "has the value 32, outside 1-31"),
    "0 0 * 13 *": ("month", "has the value 13, outside 1-12"),
    "0 0 * * 8": ("weekday", "has the value 8, outside 0-7; Sunday is 0 or 7"),
    "0 0 * * 1-8": ("weekday", "has the value 8, outside 0-7; Sunday is 0 or 7"),
    "0 0 * * 8#1": ("weekday", "has the value 8, outside 0-7; Sunday is 0 or 7"),
    f"{'9' * 99} * * * *": ("minute", f"has the value {'9' * 40}..., outside 0-59"),
    "1- * * * *": ("minute", 'has "1-": a range needs an end'),
    "-1 * * * *": ("minute", 'has "-1": signs are not allowed, and a range needs a start'),
    "1-2-3 * * * *": ("minute", 'has "1-2-3", which is not a range of two numbers'),
    "1, * * * *": ("minute", 'has an empty list item in "1,"'),
    "+1 * * * *": ("minute", f'has "+1", {DECIMAL}'),
    "1.5 * * * *": ("minute", f'has "1.5", {DECIMAL}'),
    "\u0663 * * * *": ("minute", f'has "\u0663", {DECIMAL}'),
    # names
    "0 0 * foo *": ("month", f'has the unknown name "foo"; names are {MONTH_LIST}'),
    "0 0 * sept *": ("month", 'has the unknown name "sept"; did you mean sep?'),
    "0 0 * mon *": ("month", f'has the unknown name "mon"; names are {MONTH_LIST}'),
    "0 0 * * tues": ("weekday", 'has the unknown name "tues"; did you mean tue?'),
    "0 0 * * wendesday": ("weekday", 'has the unknown name "wendesday"; did you mean wednesday?'),
    "mon * * * *": ("minute", f'has "mon", {DECIMAL}'),
    # the question mark
    "? 0 * * *": ("minute", 'has "?"; use * for any minute'),
    "0 0 ?,1 * 1": ("day", 'has "?"; use * for any day'),
    "0 0 1 * ?/2": ("weekday", 'has "?"; use * for any weekday'),
    # marks in the wrong field, or out of range
    "0 L * * *": ("hour", 'has "L"; L and W belong in the day field'),
    "0 0 * LW *": ("month", 'has "LW"; L and W belong in the day field'),
    "15W 0 * * *": ("minute", 'has "15W"; L and W belong in the day field'),
    "0 0 * * LW": ("weekday", 'has "LW"; L and W belong in the day field'),
    "0 0 * * L": ("weekday", 'has "L" without a weekday; write 5L for the last Friday of the month'),
    "0 5#2 * * *": ("hour", 'has "5#2"; # belongs in the weekday field, e.g. 5#2'),
    "0 0 5#2 * *": ("day", 'has "5#2"; # belongs in the weekday field, e.g. 5#2'),
    "0 0 L-31 * *": ("day", 'has "L-31"; a month has at most 30 days before its last'),
    "0 0 0W * *": ("day", "has the value 0, outside 1-31"),
    "0 0 32W * *": ("day", "has the value 32, outside 1-31"),
    "0 0 * * 5#6": ("weekday", 'has "5#6"; the number after # is 1 to 5'),
    "0 0 * * fri#0": ("weekday", 'has "fri#0"; the number after # is 1 to 5'),
    "0 0 * * fri#": ("weekday", 'has "fri#"; the number after # is 1 to 5'),
    # H
    "H(5) * * * *": ("minute", 'has "H(5)"; write H(a-b) with two numbers'),
    "H(9-5) * * * *": ("minute", 'has "H(9-5)", whose start is after its end'),
    "H(0-60) * * * *": ("minute", "has the value 60, outside 0-59"),
    "H/0 * * * *": ("minute", 'has the step 0 in "H/0"; a step is 1 or more'),
    "H/61 * * * *": ("minute", "has the step 61, larger than its range 0-59"),
    "H(0-9)/11 * * * *": ("minute", "has the step 11, larger than its range 0-9"),
    "0 0 H/29 * *": ("day", "has the step 29, larger than its range 1-28"),
    "H-5 * * * *": ("minute", f'has "H", {DECIMAL}'),
    # days that never come
    "0 0 30 2 *": ("expression", "can never match: no year has a day 30 in month 2"),
    "0 0 */30 2 1#2": ("expression", "can never match: no year has a day */30 in month 2 on weekday 1#2"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_an_error_says_where_and_what_to_write_instead(text: str) -> None:
    error = refusal_of(text, identity="backup")
    assert (error.field, error.reason) == REFUSED[text]
    assert str(error) == f'Invalid cron expression "{text}": {error.field} field {error.reason}'


@pytest.mark.parametrize(
    "text", ["0 0 1-L * *", "0 0 L/2 * *", "0 0 L-3W * *", "0 0 * * 1-5#2", "0 0 * * #2"]
)
def test_a_remedy_never_names_the_field_the_mistake_is_in(text: str) -> None:
    error = refusal_of(text)
    assert f"in the {error.field} field" not in error.reason


@pytest.mark.parametrize("text", ["0 0 * * \u017fun", "0 0 * augu\ufb06 *", "@wee\u212aly"])
def test_letters_that_only_fold_to_ascii_are_refused(text: str) -> None:
    refusal_of(text)


# --- anything at all -------------------------------------------------------------------------------

# What a message quotes is cut, so that it stays readable however long the text is.
LONGEST_REASON = 400
SIGNS = "0123456789*/-,LWH#()?@=TZ \tjanfri\n\x00\xa0\u0663\u017f\ud800"
anything = st.one_of(
    st.text(st.characters(exclude_categories=())),
    st.text(st.sampled_from(SIGNS), max_size=40),
    st.lists(st.text(st.sampled_from(SIGNS), max_size=6), min_size=5, max_size=6).map(" ".join),
    mutated(extended_expressions(), SIGNS),
    mutated(st.sampled_from(["H H(1-9) H/5 H(2-7)/3 h", *MACROS]).flatmap(cased), SIGNS),
)


@given(anything, st.none() | st.text(max_size=3))
@example("9" * 10_000 + " * * * *", None)
@example("*/" + "9" * 10_000 + " * * * *", None)
@example("0 0 L-" + "9" * 10_000 + " * *", None)
@example("0 0 " + "0" * 10_000 + "1W * *", None)
@example("0 0 * * 1#" + "9" * 10_000, None)
@example("H(0-" + "9" * 10_000 + ") * * * *", "x")
@example("H/" + "9" * 10_000 + " * * * *", "x")
@example("," * 10_000 + " * * * *", None)
@example("0 0 * " + "janu" * 10_000 + " *", None)
@example("TZ=\ud800\x00 * * * * *", None)
@law(600)
def test_any_text_is_accepted_or_refused_with_the_one_error(text: str, identity: str | None) -> None:
    try:
        assert parse(text, identity=identity).text == text
        return
    except InvalidCronExpressionError as refused:
        error = refused
    assert error.expression == text
    assert error.field in {*UNITS, "expression"}
    assert len(error.reason) < LONGEST_REASON


@given(st.text(st.characters(exclude_categories=()), min_size=1))
@example("\ud800")
@example("\x00")
@example("../../etc/passwd")
@example("x" * 10_000)
@law(50)
def test_a_prefix_may_say_anything(zone: str) -> None:
    with suppress(InvalidCronExpressionError, UnknownTimezoneError):
        Schedule(f"TZ={zone} 0 0 * * *")


@pytest.mark.parametrize(
    ("text", "same"), [("0 0 ? * 1", "0 0 * * 1"), ("0 0 1 * ?", "0 0 1 * *"), ("0 0 ? * ?", "0 0 * * *")]
)
def test_a_lone_question_mark_in_a_day_field_is_a_star(text: str, same: str) -> None:
    assert parse(text) == parse(same)
    assert str(parse(text)) == same
