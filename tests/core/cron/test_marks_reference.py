"""The days that depend on the month, checked day by day against the standard library's calendar.

Every mark there is, for every month of 1996 to 2032, which hold all kinds of years, and for years at
the edges: 1900 and 2100 are no leap years, 2000 is one, and 9999 is the calendar's last.
"""

from datetime import date, timedelta
from functools import cache, partial

from tests.extended_strategies import (
    DayTest,
    is_from_end,
    is_last_weekday,
    is_last_workday,
    is_nearest_workday,
    is_nth_weekday,
)

YEARS = (1900, *range(1996, 2033), 2100, 9999)
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
    for word in {str(number), SHORT_NAMES[number % 7]}:
        WEEKDAY_MARKS[f"{word}L"] = partial(is_last_weekday, weekday=number % 7)
        for nth in range(1, 6):
            WEEKDAY_MARKS[f"{word}#{nth}"] = partial(is_nth_weekday, weekday=number % 7, nth=nth)
MARKS = DAY_MARKS | WEEKDAY_MARKS


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


def wanted(mark: str, year: int) -> list[date]:
    return [day for day in calendar_days(year) if MARKS[mark](day)]
