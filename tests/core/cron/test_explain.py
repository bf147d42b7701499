"""Sentences say exactly what expressions mean: a reader that knows only English finds the same times."""

import re
from calendar import monthrange
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kron.core.cron.dialect import parse
from kron.core.cron.expression import EPOCH_ORDINAL, Expression
from kron.core.cron.field import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_NAMES,
    SECOND,
    WEEKDAY,
    Field,
    Unit,
    bits_of,
    mask_of,
)
from kron.core.cron.schedule import Schedule
from kron.core.errors import InvalidCronExpressionError
from tests.strategies import law, strict_expressions
from tests.tiers import mostly_slow

BOTH_DIALECTS = [
    ("* * * * *", "Every minute"),
    ("0-59 0-23 * 1-12 *", "Every minute"),
    ("0 * * * *", "Every hour"),
    ("0,15,30,45 * * * *", "Every 15 minutes"),
    ("0,30 * * * *", "Every 30 minutes"),
    ("30 * * * *", "At minute 30 past every hour"),
    ("5,20 * * * *", "At minutes 5 and 20 past every hour"),
    ("0-5 * * * 1", "At minutes 0 to 5 past every hour on Monday"),
    ("0,7,14,21,28,35,42,49,56 * * * *", "At minutes 0, 7, 14, ... 56 past every hour"),
    ("0 9 * * *", "At 09:00 every day"),
    ("0 9 * * 1-5", "At 09:00 on Monday to Friday"),
    ("0 9,17 * * 1,3", "At 09:00 and 17:00 on Monday and Wednesday"),
    ("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day"),
    ("0 8,12,16 * * *", "At 08:00, 12:00 and 16:00 every day"),
    ("0 6,10,14,18 * * *", "Every 4 hours from 06:00 to 18:00 every day"),
    ("30 8-18 * * *", "Every hour from 08:30 to 18:30 every day"),
    ("0 9-12,14-18 * * *", "Every hour from 09:00 to 12:00 and from 14:00 to 18:00 every day"),
    ("0-20 9,17 * * *", "Every minute from 09:00 to 09:20 and from 17:00 to 17:20 every day"),
    ("* 9 * * *", "Every minute from 09:00 to 09:59 every day"),
    ("7 1-3,5,8,13,21 * * *", "At minute 7 past hours 1 to 3, 5, 8, 13 and 21 every day"),
    ("0 0 1,15 * *", "At 00:00 on the 1st and 15th of the month"),
    ("0 0 1-7,15,22 * *", "At 00:00 on the 1st to 7th, 15th and 22nd of the month"),
    ("0 0 1 1 *", "At 00:00 on the 1st of January"),
    ("0 0 1 1,6 *", "At 00:00 on the 1st of the month in January and June"),
    ("0 9 * 6-8 *", "At 09:00 every day from June to August"),
    ("* * * 6 *", "Every minute in June"),
    ("0 9 * 6 0", "At 09:00 on Sunday in June"),
    ("0 0 1,15 * 1", "At 00:00 on the 1st and 15th of the month, and also every Monday"),
    ("0 0 1 5 1-5", "At 00:00 on the 1st of the month, and also every Monday to Friday, but only in May"),
    ("0 0 1-31 * 1", "At 00:00 every day"),
    ("0 0 1 * 0-6", "At 00:00 every day"),
    ("0 9 * 1,2,11,12 0-4", "At 09:00 on Sunday to Thursday from November to February"),
    ("0 9 * * 0,1,3", "At 09:00 on Monday, Wednesday and Sunday"),
]

EXTENDED_ONLY = [
    ("*/15 * * * *", "Every 15 minutes"),
    ("*/7 * * * *", "At minutes 0, 7, 14, ... 56 past every hour"),
    ("*/7 9 * * *", "At 09:00, 09:07, 09:14, ... 09:56 every day"),
    ("*/7 9,17 * * *", "At minutes 0, 7, 14, ... 56 past hours 9 and 17 every day"),
    ("5/15 * * * *", "At minutes 5, 20, 35 and 50 past every hour"),
    ("*/10 8-18 * * *", "Every 10 minutes from 08:00 to 18:50 every day"),
    ("*/10 22-1 * * *", "Every 10 minutes from 22:00 to 01:50 every day"),
    ("0 22-5 * * *", "Every hour from 22:00 to 05:00 every day"),
    ("0 22-5,9-12 * * *", "Every hour from 09:00 to 12:00 and from 22:00 to 05:00 every day"),
    # On single days it does not continue into the next: Monday has two stretches.
    ("0 22-5 * * 1", "Every hour from 00:00 to 05:00 and from 22:00 to 23:00 on Monday"),
    ("0 22-5 * 6 *", "Every hour from 00:00 to 05:00 and from 22:00 to 23:00 every day in June"),
    ("0 * * 6-8 *", "Every hour from June to August"),
    ("0 0 1 6-8 1", "At 00:00 on the 1st of the month, and also every Monday, but only from June to August"),
    ("0 0 1 6-8 *", "At 00:00 on the 1st of the month from June to August"),
    ("0 0 1 1,6-8 *", "At 00:00 on the 1st of the month in January and June to August"),
    ("*/15 */2 * * *", "Every 15 minutes during hours 0, 2, 4, ... 22 every day"),
    ("0 */2 * * *", "Every 2 hours from 00:00 to 22:00 every day"),
    ("0 */5 * * *", "At 00:00, 05:00, 10:00, 15:00 and 20:00 every day"),
    ("@weekly", "At 00:00 on Sunday"),
    ("@yearly", "At 00:00 on the 1st of January"),
    ("* * * * * *", "Every second"),
    ("*/10 * * * * *", "Every 10 seconds"),
    ("30 * * * * *", "At 30 seconds past every minute"),
    ("1 */20 * * * *", "At 1 second past minutes 0, 20 and 40 of every hour"),
    ("*/10 5,20 * * * *", "Every 10 seconds during minutes 5 and 20 of every hour"),
    ("* * */2 * * *", "Every second during hours 0, 2, 4, ... 22 every day"),
    ("*/7 * 1,4,5,9 * * *", "At 0, 7, 14, ... 56 seconds past every minute of hours 1, 4, 5 and 9 every day"),
    ("30 0 9 * * *", "At 09:00:30 every day"),
    ("*/30 0 9 * * *", "At 09:00:00 and 09:00:30 every day"),
    ("*/10 * 9-17 * * MON-FRI", "Every 10 seconds from 09:00:00 to 17:59:50 on Monday to Friday"),
    ("0 0 L * *", "At 00:00 on the last day of the month"),
    ("0 0 L-2 * *", "At 00:00 on the 3rd-to-last day of the month"),
    ("0 0 1,L 2 *", "At 00:00 on the 1st and the last day of February"),
    ("0 0 15W * *", "At 00:00 on the weekday (Monday to Friday) nearest to the 15th of the month"),
    ("0 0 LW * *", "At 00:00 on the last weekday (Monday to Friday) of the month"),
    (
        "0 0 1W,L * *",
        "At 00:00 on the last day and the weekday (Monday to Friday) nearest to the 1st of the month",
    ),
    ("0 0 * * FRI#2", "At 00:00 on the second Friday of the month"),
    ("0 0 * * 5L", "At 00:00 on the last Friday of the month"),
    ("0 0 * * 5,5L", "At 00:00 on Friday"),
    ("0 0 * 11 4#4", "At 00:00 on the fourth Thursday of November"),
    ("0 0 * 5 1,5L", "At 00:00 on Monday and on the last Friday of the month, but only in May"),
    ("0 0 13 * 5L", "At 00:00 on the 13th of the month, and also on the last Friday of the month"),
    ("0 0 */2 * 1", "At 00:00 on the 1st, 3rd, 5th, ... 31st of the month, but only if it falls on Monday"),
    (
        "0 0 1 6 */2",
        "At 00:00 on the 1st of June, but only if it falls on Tuesday, Thursday, Saturday or Sunday",
    ),
    ("CRON_TZ=Asia/Tokyo 0 9 * * *", "At 09:00 every day, Asia/Tokyo time"),
]

ROWS = [(text, dialect, sentence) for text, sentence in BOTH_DIALECTS for dialect in ("posix", "extended")]
ROWS += [(text, "extended", sentence) for text, sentence in EXTENDED_ONLY]


@pytest.mark.parametrize(("text", "dialect", "sentence"), ROWS)
def test_sentence(text: str, dialect: str, sentence: str) -> None:
    assert parse(text, dialect).describe() == sentence


MOVED = "; times skipped by a clock change run once, right after it"


@pytest.mark.parametrize(
    ("gap", "repeat", "ending"),
    [
        ("skip", "both", ""),
        ("next", "both", MOVED),
        ("skip", "first", "; of a repeated time only the first runs"),
        ("next", "last", f"{MOVED}; of a repeated time only the last runs"),
    ],
)
def test_a_schedule_names_its_zone_and_what_clock_changes_do(gap: str, repeat: str, ending: str) -> None:
    schedule = Schedule("30 2 * * *", "Europe/Berlin", dst_gap=gap, dst_repeat=repeat)
    assert schedule.describe() == f"At 02:30 every day, Europe/Berlin time{ending}"


def test_a_schedule_names_its_zone_once() -> None:
    assert Schedule("CRON_TZ=Asia/Tokyo 0 9 * * *").describe() == "At 09:00 every day, Asia/Tokyo time"
    assert Schedule("0 9 * * *").describe() == "At 09:00 every day, UTC"


def test_a_hashed_value_is_described_as_what_it_stands_for() -> None:
    expression = parse("H H * * *", identity="backup")
    minute, hour = expression.minute.values[0], expression.hour.values[0]
    assert expression.describe() == f"At {hour:02}:{minute:02} every day"


# --- a reader of sentences, which knows nothing of Kron --------------------------------------------

Days: TypeAlias = Callable[[date], bool]

NTH = ["first", "second", "third", "fourth", "fifth"]
WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
YEAR = [name.title() for name in MONTH_NAMES]
SIZES = {"second": 1, "minute": 60, "hour": 3600}


def read_list(words: str, number: Callable[[str], int], ring: int = 10**6) -> set[int]:
    if "..." in words:
        first, second, third, last = map(number, re.split(", (?:[.]{3} )?", words))
        assert second - first == third - second
        return set(range(first, last + 1, second - first))
    found: set[int] = set()
    for item in re.split(", | and | or ", words):
        start, _, end = item.partition(" to ")
        length = (number(end or start) - number(start)) % ring
        found |= {(number(start) + offset) % ring for offset in range(length + 1)}
    return found


def read_clock(text: str) -> int:
    hours, minutes, seconds = map(int, (text + ":00").split(":")[:3])
    return hours * 3600 + minutes * 60 + seconds


def read_period(text: str) -> int:
    number, _, unit = text.rpartition(" ")
    return int(number or 1) * SIZES[unit.removesuffix("s") if number else unit]


def read_stretch(text: str, step: int) -> range:
    start, end = map(read_clock, text.split(" to "))
    end += 86_400 if end < start else 0
    assert (end - start) % step == 0
    return range(start, end + 1, step)


def read_place(text: str) -> set[int]:
    """Return the seconds of the day in such as `minutes 5 and 20 of hours 1 to 3`."""
    minutes, _, hours = text.rpartition(" of ")
    if hours == "every minute":
        minutes, hours = hours, "every hour"
    minute = range(60) if minutes in ("", "every minute") else read_numbers(minutes, "minute")
    hour = range(24) if hours == "every hour" else read_numbers(hours, "hour")
    return {h * 3600 + m * 60 + s for h in hour for m in minute for s in range(60)}


def read_numbers(text: str, name: str) -> set[int]:
    found = re.fullmatch(f"{name}(s?) (.*)", text)
    assert found is not None, text
    numbers = read_list(found[2], int)
    assert bool(found[1]) == (len(numbers) > 1)
    return numbers


@lru_cache(maxsize=1024)
def read_times(text: str) -> frozenset[int]:
    """Return the seconds of the day a phrase names."""
    verb, _, rest = text.partition(" ")
    if verb == "Every":
        period, _, place = rest.partition(" during ")
        period, *bounds = re.split(" from |, from | and from ", period)
        step = read_period(period)
        if place:
            return frozenset(time for time in read_place(place) if time % step == 0)
        if not bounds:
            return frozenset(range(0, 86_400, step))
        return frozenset(time % 86_400 for bound in bounds for time in read_stretch(bound, step))
    assert verb == "At", text
    what, _, place = rest.partition(" past ")
    if not place:
        return frozenset(read_list(what, read_clock))
    if what.startswith("minute"):
        return frozenset(t for t in read_place(f"{what} of {place}") if t % 60 == 0)
    seconds = read_list(re.sub(" seconds?$", "", what), int)
    return frozenset(t for t in read_place(place) if t % 60 in seconds)


def read_ordinal(text: str) -> int:
    number = int(text[:-2])
    usual = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
    assert text[-2:] == usual.get(number, "th")
    return number


def read_item(text: str) -> Days:
    """Return the days of such as `1st, 5th to 7th`, `last day` or `second Friday`."""
    if text.startswith("weekday nearest to the "):
        wanted = read_ordinal(text.removeprefix("weekday nearest to the "))
        return lambda day: day.day == nearest(day.year, day.month, wanted)
    if text == "last weekday":
        return lambda day: day.day == nearest(day.year, day.month, days_in(day))
    if text.endswith(" day"):
        back = 0 if text == "last day" else read_ordinal(text.removesuffix("-to-last day")) - 1
        return lambda day: day.day == days_in(day) - back
    if text.endswith(tuple(WEEK)):
        nth, weekday = text.split()
        return lambda day: (
            day.weekday() == WEEK.index(weekday) and nth in (NTH[(day.day - 1) // 7], last(day))
        )
    numbers = read_list(text, read_ordinal)
    return lambda day: day.day in numbers


def days_in(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def last(day: date) -> str:
    return "last" if day.day + 7 > days_in(day) else ""


@lru_cache(maxsize=1024)
def nearest(year: int, month: int, wanted: int) -> int | None:
    days = range(1, monthrange(year, month)[1] + 1)
    workdays = [day for day in days if date(year, month, day).weekday() < 5]
    return min(workdays, key=lambda day: abs(day - wanted)) if wanted in days else None


def read_items(text: str) -> Days:
    plain = text.replace(" (Monday to Friday)", "")
    items = [read_item(item) for item in re.split("(?:^|, | and | or )the ", plain)[1:]]
    return lambda day: any(item(day) for item in items)


def read_months(text: str) -> Days:
    months = read_list(text, YEAR.index, 12)
    return lambda day: day.month - 1 in months


def read_weekdays(text: str) -> Days:
    weekdays = read_list(text, WEEK.index, 7)
    return lambda day: day.weekday() in weekdays


def read_of(text: str) -> Days:
    """Return the days of such as `the 1st and the last day of the month in May and June`."""
    items, _, place = text.rpartition(" of ")
    months = re.sub("^the month(?: in | from )?", "", place)
    return both(read_items(items), read_months(months)) if months else read_items(items)


def both(*rules: Days) -> Days:
    return lambda day: all(rule(day) for rule in rules)


def either(*rules: Days) -> Days:
    return lambda day: any(rule(day) for rule in rules)


def read_days(text: str) -> Days:
    """Return whether a day is one a phrase names."""
    only_months = [(f", but only {word} ", read_months) for word in ("in", "from")]
    for clause, joined in (*only_months, (", but only if it falls on ", read_one_of)):
        front, found, rest = text.partition(clause)
        if found:
            return both(read_days(front), joined(rest))
    front, found, rest = text.partition(", and also ")
    if found:
        return either(read_days(front), read_days(rest))
    if text in ("", "every day"):
        return lambda day: True
    if months := re.fullmatch("(?:every day )?(?:in|from) (.*)", text):
        return read_months(months[1])
    plain, found, marks = text.removeprefix("every ").removeprefix("on ").partition(" and on ")
    if found:
        return either(read_weekdays(plain), read_of(marks))
    if plain.startswith("the "):
        return read_of(plain)
    names, *place = re.split(" in | from ", plain, maxsplit=1)
    return both(read_weekdays(names), read_months(*place)) if place else read_weekdays(names)


def read_one_of(text: str) -> Days:
    weekdays, found, marks = text.partition("the ")
    rules = [read_weekdays(weekdays.removesuffix(" or "))] if weekdays else []
    return either(*rules, *([read_of("the " + marks)] if found else []))


def parts_of(sentence: str) -> tuple[str, str]:
    """Return the words about times and those about days."""
    found = re.fullmatch("(.+?)(?: ((?:every day|on |in |from [A-Z]).*))?", sentence)
    assert found is not None
    return found[1], found[2] or ""


# --- the laws --------------------------------------------------------------------------------------

# Every one of the fourteen kinds of year is among 28 years in a row.
YEARS = range(2000, 2028)
# What the reader is asked about: a leap year and one that is none.
READ_YEARS = (2024, 2026)


def year_mask(expression: Expression, year: int) -> int:
    start = date(year, 1, 1).toordinal() - EPOCH_ORDINAL
    found = expression.days.year_from(start)
    return found.mask if found and found.start == start else 0


def meaning(expression: Expression) -> tuple[int, ...]:
    """Return what decides every occurrence: equal exactly where all occurrences are."""
    times = expression.second.mask, expression.minute.mask, expression.hour.mask
    return *times, *(year_mask(expression, year) for year in YEARS)


@lru_cache(maxsize=4096)
def read_year(text: str, year: int) -> int:
    """Return the days of a year a phrase names, bit 0 being 1 January."""
    on, first = read_days(text), date(year, 1, 1)
    days = (first + timedelta(number) for number in range((date(year + 1, 1, 1) - first).days))
    return mask_of(number for number, day in enumerate(days) if on(day))


@lru_cache(maxsize=1024)
def times_of(second: Field, minute: Field, hour: Field) -> set[int]:
    return {h * 3600 + m * 60 + s for h in hour.values for m in minute.values for s in second.values}


def check_sentence(expression: Expression) -> None:
    """Hold what the sentence says against what the expression matches."""
    sentence = expression.describe()
    assert sentence.isprintable()
    assert "  " not in sentence
    assert "None" not in sentence
    assert sentence[0].isupper()
    assert not sentence.endswith((".", ",", " "))
    times, days = parts_of(sentence)
    assert read_times(times) == times_of(expression.second, expression.minute, expression.hour), sentence
    for year in READ_YEARS:
        assert read_year(days, year) == year_mask(expression, year), sentence


def fields(unit: Unit) -> st.SearchStrategy[str]:
    """Draw one extended field: lists of values, ranges that may wrap, and steps of all three shapes."""
    value, step = st.integers(unit.low, unit.high), st.integers(1, unit.size + 1)
    ranges = st.builds("{}-{}".format, value, value)
    item = st.builds(str, value) | ranges | st.builds("{}/{}".format, ranges | value | st.just("*"), step)
    if unit is DAY:
        item |= st.sampled_from(["L", "LW"]) | st.builds("L-{}".format, st.integers(0, 30))
        item |= st.builds("{}W".format, value)
    if unit is WEEKDAY:
        item |= st.builds("{}#{}".format, value, st.integers(1, 5)) | st.builds("{}L".format, value)
    return st.just("*") | st.lists(item, min_size=1, max_size=4).map(",".join)


def parsed(text: str, dialect: str) -> Expression | None:
    """Return an expression, or None where no day matches it."""
    try:
        return parse(text, dialect)
    except InvalidCronExpressionError:
        return None


EXTENDED_FIELDS = [fields(unit) for unit in (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)]


@st.composite
def extended_expressions(draw: st.DrawFn) -> Expression:
    """Draw an expression of the extended dialect, with seconds or without."""
    with_seconds = draw(st.integers(0, 4)) == 0
    words = [draw(field) for field in EXTENDED_FIELDS[not with_seconds :]]
    expression = parsed(" ".join(words), "extended")
    assume(expression is not None)
    assert expression is not None
    return expression


@law(400)
@given(strict_expressions())
def test_a_strict_sentence_says_exactly_when(text: str) -> None:
    check_sentence(parse(text, "posix"))


@law(400)
@given(extended_expressions())
def test_an_extended_sentence_says_exactly_when(expression: Expression) -> None:
    check_sentence(expression)


@law(300)
@given(strict_expressions(), strict_expressions(), st.integers(0, 4))
@example("0 0 1 * 1", "0 0 1 * *", 4)
@example("0 0 1-31 * 1", "0 0 * * 1", 2)
def test_different_occurrences_in_a_year_have_different_sentences(text: str, other: str, place: int) -> None:
    """Two strict expressions that differ in one field are told apart, and so are any two."""
    words, others = text.split(), other.split()
    near = parsed(" ".join([*words[:place], others[place], *words[place + 1 :]]), "posix")
    first = parse(text, "posix")
    for second in filter(None, (near, parse(other, "posix"))):
        if meaning(first) != meaning(second):
            assert first.describe() != second.describe()


STRICT_UNITS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@law(400)
@given(strict_expressions(), st.integers(0, 4), st.data())
def test_one_value_more_or_less_makes_another_sentence(text: str, place: int, data: st.DataObject) -> None:
    """The closest neighbour there is: one field gains or loses one value."""
    first, words, unit = parse(text, "posix"), text.split(), STRICT_UNITS[place]
    values = set(first.fields[-5:][place].values) ^ {data.draw(st.integers(unit.low, unit.high))}
    assume(values)
    words[place] = ",".join(map(str, sorted(values)))
    second = parsed(" ".join(words), "posix")
    if second is not None and meaning(first) != meaning(second):
        assert first.describe() != second.describe()


POOLS = {
    SECOND: ["0", "*", "30", "1", "*/10", "0-59/10", "*/7", "5,20", "0-5", "0,30", "15,45", "0-40/10", "59"],
    MINUTE: [
        "0", "*", "30", "*/15", "0,15,30,45", "*/7", "5/15", "5,20", "0-5", "1-59/2", "*/2", "0,30", "0-58/2",
        "0-40/7", "0-45/15", "0,20", "7,14,21", "10-50/20", "15,45", "*/20", "*/30", "0-59/59", "58,59",
    ],
    HOUR: [
        "*", "0", "9", "9,17", "8-18", "*/2", "1-23/2", "*/5", "22-3/1", "0-22", "9-12,14-18", "0-23/12",
        "8-9", "0,6,12,18", "6-18/6", "1-3,5,8,13,21", "*/3", "0,12", "23", "1-23", "*/4", "8-16/4",
    ],
    DAY: [
        "*", "1", "1,15", "1-31", "*/2", "1-31/2", "L", "L-2", "15W", "1W", "LW", "1,L", "*/10", "1-7", "31",
        "*/2,L", "L,LW,15W", "1,8,15,22,29", "2-30/2", "1W,15W", "30,31", "L-30",
    ],
    MONTH: ["*", "*", "*", "1", "1,6", "6-8", "NOV-FEB", "2", "*/2", "1-12", "*/3", "12,1", "2,4-6,9"],
    WEEKDAY: [
        "*", "*", "1", "1-5", "0", "0-6", "*/2", "0-4", "FRI-MON", "6,0", "5L", "5#2", "1,5L", "5#5",
        "1#1,1#3", "5,5L", "*/3", "1,3,5", "*/2,5L", "0,1,3", "0L,0#1",
    ],
}  # fmt: skip
STRICT = re.compile("[*]|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def texts(dialect: str, number: int) -> list[str]:
    """Return expressions of few words, so that many have the same meaning or nearly the same."""
    random = Random(20260301)
    pools = {
        unit: [word for word in words if dialect == "extended" or STRICT.fullmatch(word)]
        for unit, words in POOLS.items()
    }
    found: list[str] = []
    while len(found) < number:
        words = [random.choice(pool) for pool in pools.values()]
        found.append(" ".join(words[dialect == "posix" or random.random() < 0.6 :]))
    return found


@pytest.mark.parametrize("dialect", mostly_slow(["posix", "extended"]))
def test_one_sentence_has_one_meaning(dialect: str) -> None:
    by_sentence, by_value = defaultdict(set), defaultdict(set)
    for text in texts(dialect, 6000):
        expression = parsed(text, dialect)
        if expression:
            sentence = expression.describe()
            by_sentence[sentence].add(meaning(expression))
            by_value[expression].add(sentence)
    assert len(by_value) > 2000
    assert {sentence: len(found) for sentence, found in by_sentence.items() if len(found) > 1} == {}
    assert [found for found in by_value.values() if len(found) > 1] == []


@pytest.mark.parametrize("dialect", ["posix", "extended"])
@pytest.mark.slow
def test_common_words_are_read_as_they_were_meant(dialect: str) -> None:
    for text in texts(dialect, 1000):
        if expression := parsed(text, dialect):
            check_sentence(expression)


@pytest.mark.parametrize(("text", "dialect", "sentence"), [row for row in ROWS if "=" not in row[0]])
def test_a_sentence_names_the_occurrences_of_a_year(text: str, dialect: str, sentence: str) -> None:
    """The same through the schedule: its occurrences in UTC, or the first of many, are those it names."""
    times, days = parts_of(sentence)
    start, end = datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    noted = [timedelta(seconds=time) for time in sorted(read_times(times))]
    said = (start + timedelta(day) + time for day in bits_of(read_year(days, 2024)) for time in noted)
    found = Schedule(text, dialect=dialect).between(start, end)
    assert list(islice(found, 5000)) == list(islice(said, 5000))
