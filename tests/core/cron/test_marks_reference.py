"""The days that depend on the month, checked day by day against the standard library's calendar.

Every mark there is, for every month of 1996 to 2032, which hold all kinds of years, and for years at
the edges: 1900 and 2100 are no leap years, 2000 is one, and 9999 is the calendar's last.
"""

from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.errors import CronCalculationError, NeverMatchesError
from kron.core.time.instant import DAY
from tests.extended_strategies import (
    DayTest,
    is_from_end,
    is_last_weekday,
    is_last_workday,
    is_nearest_workday,
    is_nth_weekday,
)
from tests.strategies import law
from tests.tiers import mostly_slow

pytestmark = pytest.mark.slow

YEARS = (1900, *range(1996, 2033), 2100, 9999)
# Among 28 years in a row is every kind: each first weekday, with a leap day and without.
EVERY_KIND = range(2000, 2028)
EPOCH = date(1970, 1, 1).toordinal()
SHORT_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
LAST_DAY = date(9999, 12, 31)

DAY_MARKS: dict[str, DayTest] = {
    "L": partial(is_from_end, back=0),
    "LW": is_last_workday,
    **{f"L-{back}": partial(is_from_end, back=back) for back in range(31)},
    **{f"{wanted}W": partial(is_nearest_workday, wanted=wanted) for wanted in range(1, 32)},
}
WEEKDAY_MARKS: dict[str, DayTest] = {}
for number in range(8):
    for word in (str(number), SHORT_NAMES[number % 7]):
        WEEKDAY_MARKS[f"{word}L"] = partial(is_last_weekday, weekday=number % 7)
        for nth in range(1, 6):
            WEEKDAY_MARKS[f"{word}#{nth}"] = partial(is_nth_weekday, weekday=number % 7, nth=nth)
MARKS = DAY_MARKS | WEEKDAY_MARKS
# One eighth of the marks is checked in the fast tier.
PARTS = 8


def text_of(mark: str, month: int | str = "*") -> str:
    return f"0 0 {mark} {month} *" if mark in DAY_MARKS else f"0 0 * {month} {mark}"


@cache
def calendar_days(year: int) -> tuple[date, ...]:
    first = date(year, 1, 1)
    return tuple(
        first + timedelta(n)
        for n in range(366)
        if n < 365 or first.replace(month=12, day=31) - first == timedelta(365)
    )


@cache
def wanted(mark: str, year: int) -> list[date]:
    return [day for day in calendar_days(year) if MARKS[mark](day)]


def days_of(text: str, year: int) -> list[date]:
    """Return the days of a year on which Kron says a schedule has its one time, midnight in UTC."""
    start = datetime(year, 1, 1, tzinfo=UTC)
    plan = Schedule(text).plan
    first, end = int(start.timestamp()), int(start.timestamp()) + len(calendar_days(year)) * DAY
    return [date.fromordinal(EPOCH + second // DAY) for second in seconds_between(plan, first, end)]


def days_back_of(text: str, year: int) -> list[date]:
    """Return the same days, found by going back from the year's end."""
    plan = Schedule(text).plan
    first = (date(year, 1, 1).toordinal() - EPOCH) * DAY
    found: list[date] = []
    second = plan.prev_at_or_before(first + len(calendar_days(year)) * DAY - 1)
    while second is not None and second >= first:
        found.append(date.fromordinal(EPOCH + second // DAY))
        second = plan.prev_at_or_before(second - 1)
    return found[::-1]


def test_the_reference_knows_the_calendar_of_one_month() -> None:
    """August 2026 begins on a Saturday and ends on a Monday; these are read off a printed calendar."""
    august = {
        "L": 31, "L-1": 30, "L-30": 1, "LW": 31, "1W": 3, "2W": 3, "15W": 14, "16W": 17, "30W": 31, "31W": 31,
        "6#1": 1, "6#5": 29, "0#5": 30, "1#5": 31, "5L": 28, "satL": 29, "7L": 30, "sun#1": 2,
    }  # fmt: skip
    found = {mark: [day.day for day in wanted(mark, 2026) if day.month == 8] for mark in august}
    assert found == {mark: [day] for mark, day in august.items()}


@pytest.mark.parametrize("first", mostly_slow(range(PARTS)))
def test_a_mark_names_the_days_of_every_year(first: int) -> None:
    for mark, year in product(list(MARKS)[first::PARTS], YEARS):
        assert days_of(text_of(mark), year) == wanted(mark, year), (mark, year)


def test_a_mark_names_the_same_days_going_back() -> None:
    for mark, year in product(MARKS, (1900, 2000, 2026, 2028, 9999)):
        assert days_back_of(text_of(mark), year) == wanted(mark, year), (mark, year)


def test_a_mark_in_one_month_names_its_days_or_never_matches() -> None:
    """There are fourteen kinds of year, so those say whether it ever matches."""
    for mark, month in product(MARKS, range(1, 13)):
        ever = [day for year in EVERY_KIND for day in wanted(mark, year) if day.month == month]
        if not ever:
            with pytest.raises(NeverMatchesError):
                Schedule(text_of(mark, month))
            continue
        for year in (2024, 2026):
            expected = [day for day in wanted(mark, year) if day.month == month]
            assert days_of(text_of(mark, month), year) == expected, (mark, month, year)


def test_the_calendar_ends_with_its_last_marked_day() -> None:
    last = {mark: Schedule(text_of(mark)) for mark in ("L", "LW", "31W", "5L", "fri#5")}
    for mark, schedule in last.items():
        assert wanted(mark, 9999)[-1] == LAST_DAY, "31 December 9999 is a Friday, the fifth of its month"
        with pytest.raises(CronCalculationError):
            schedule.next_after(datetime(9999, 12, 31, tzinfo=UTC))
        assert schedule.prev_at_or_before(datetime(9999, 12, 31, 9, tzinfo=UTC)).date() == LAST_DAY


# --- both day rules, generated ---------------------------------------------------------------------


@st.composite
def day_fields(draw: st.DrawFn, marks: dict[str, DayTest], low: int, high: int) -> tuple[str, DayTest, bool]:
    """Draw a field with at least one mark: its text, the days it names, whether it begins with `*`."""
    names = draw(st.lists(st.sampled_from(sorted(marks)), min_size=1, max_size=3))
    numbers = draw(st.sets(st.integers(low, high), max_size=2))
    step = draw(st.none() | st.integers(2, 9))
    values = set(numbers) | (set(range(low, high + 1, step)) if step else set())
    head = [f"*/{step}"] if step else []
    text = ",".join([*head, *draw(st.permutations([*names, *map(str, sorted(numbers))]))])

    def says(day: date) -> bool:
        number = day.day if low else day.isoweekday() % 7
        return number in values or any(marks[name](day) for name in names)

    return text, says, step is not None


plain_days = st.integers(1, 31).map(lambda n: (str(n), lambda day: day.day == n, False))
plain_weekdays = st.integers(0, 6).map(lambda n: (str(n), lambda day: day.isoweekday() % 7 == n, False))


@given(
    day_fields(DAY_MARKS, 1, 31) | plain_days,
    day_fields(WEEKDAY_MARKS, 0, 6) | plain_weekdays,
    st.sets(st.integers(1, 12), min_size=1, max_size=4),
    st.sampled_from(YEARS),
)
@law(400)
def test_two_day_fields_with_marks_are_joined_by_the_day_rule(
    day: tuple[str, DayTest, bool], weekday: tuple[str, DayTest, bool], months: set[int], year: int
) -> None:
    """Either is enough, unless one begins with `*`: then both must match (Vixie's rule)."""
    text = f"0 0 {day[0]} {','.join(map(str, sorted(months)))} {weekday[0]}"
    join = all if day[2] or weekday[2] else any

    def says(each: date) -> bool:
        return each.month in months and join((day[1](each), weekday[1](each)))

    try:
        found = days_of(text, year)
    except NeverMatchesError:
        assert not any(says(each) for kind in EVERY_KIND for each in calendar_days(kind)), text
        return
    assert found == [each for each in calendar_days(year) if says(each)], text


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 13 1-3 fri#2", ["01-09", "01-13", "02-13", "03-13"], id="either"),
        pytest.param("0 0 */13 1-3 friL", ["02-27", "03-27"], id="both, as the day begins with *"),
        pytest.param("0 0 L 1-6 */6", ["01-31", "02-28", "05-31"], id="both, as the weekday begins with *"),
        pytest.param("0 0 LW 5,8 0L", ["05-29", "05-31", "08-30", "08-31"], id="either, marks in both"),
    ],
)
def test_the_day_rule_with_marks(text: str, days: list[str]) -> None:
    assert [f"{day:%m-%d}" for day in days_of(text, 2026)] == days
