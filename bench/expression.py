"""The workload of every contender: one mixed set of expressions, in three zones.

All texts are strict POSIX, the only dialect that every contender supports. Where both day fields are
restricted, they disagree about the meaning; the report counts which ones agree with Kron.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from random import Random

from kron.core.cron.schedule import Schedule
from kron.core.time.instant import DAY

EXPRESSIONS = (
    "* * * * *",
    "0,15,30,45 * * * *",
    "0,5,10,15,20,25,30,35,40,45,50,55 * * * *",
    "0 * * * *",
    "30 * * * *",
    "17 0,6,12,18 * * *",
    "0-29 9-17 * * *",
    "0 0 * * *",
    "30 2 * * *",
    "15 3 * * *",
    "59 23 * * *",
    "0 9 * * 1-5",
    "0,30 9-17 * * 1-5",
    "0 8,20 * * 0,6",
    "0 4 * * 0",
    "45 22 * * 5",
    "0 0 1 * *",
    "0 0 15 * *",
    "0 12 1,15 * *",
    "30 6 31 * *",
    "0 7 28-31 * *",
    "0 3 * 6-8 *",
    "5 4 * 11 0",
    "0 0 1 1,4,7,10 *",
    "0 0 1 1 *",
    "0 0 25 12 *",
    "0 0 29 2 *",
    "0 0 13 * 5",
    "0 9 1-7 * 1",
)
ZONES = ("Europe/Berlin", "America/New_York", "UTC")

# Fields as in real crontabs, days with their weekdays; combined they make about 100,000 texts.
COMMON_MINUTES = ("*", "0,30", "0,15,30,45", "0,10,20,30,40,50", "0-29", *map(str, range(60)))
COMMON_HOURS = ("*", "*", "*", "9-17", "8-18", "0,12", "8,20", "0,6,12,18", "22-23", *map(str, range(24)))
COMMON_DAYS = (
    *[("*", "*")] * 6,
    *[("*", weekday) for weekday in ("1-5", "1-5", "0", "1", "5", "0,6", "1,3,5")],
    *[(day, "*") for day in ("1", "15", "1,15", "28", "1-7")],
)
COMMON_MONTHS = ("*", "*", "*", "*", "1", "6-8", "1,4,7,10")

START = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
# cronstable supports the years 1970 to 2099 only, and reads "0 0 13 * 5" as Friday the 13th, which
# occurs about every seven months.
LAST = int(datetime(2090, 1, 1, tzinfo=UTC).timestamp())
FIRST = int(datetime(1975, 1, 1, tzinfo=UTC).timestamp())
MOST_OF_TWO_DAY_FIELDS = 60
# The instants for comparing results: over the year, at the ends of days, months and years.
PLAIN_STARTS = tuple(
    int(datetime.fromisoformat(f"{text}+00:00").timestamp())
    for text in ("2026-01-15T00:00:00", "2026-06-30T21:59:59", "2027-08-10T12:34:56", "2028-02-28T23:59:30")
)


@dataclass(frozen=True, slots=True)
class Case:
    """One case: `count` consecutive occurrences of an expression in a zone, after `start`."""

    text: str
    zone: str
    start: int
    count: int


def cases(most: int, *, backwards: bool = False) -> list[Case]:
    """Return every expression in every zone, with up to `most` occurrences, fewer if they are rare."""
    return [
        Case(text, zone, START, _count(text, zone, most, backwards=backwards))
        for zone, text in product(ZONES, EXPRESSIONS)
    ]


def plain_questions(*, backwards: bool = False) -> list[Case]:
    """Return single cases on which all contenders should agree: no clock change is near."""
    return [
        case
        for case in (
            Case(text, zone, start, 1) for zone, text, start in product(ZONES, EXPRESSIONS, PLAIN_STARTS)
        )
        if not _near_a_change(case, backwards=backwards)
    ]


def batches(number: int, size: int, *, common: bool) -> list[list[Case]]:
    """Return batches of single cases; no two have the same text."""
    every = texts(number * size, common=common)
    asked = [Case(text, ZONES[n % len(ZONES)], START, 1) for n, text in enumerate(every)]
    return [asked[first : first + size] for first in range(0, len(asked), size)]


@lru_cache(maxsize=8)
def texts(number: int, *, common: bool = False) -> tuple[str, ...]:
    """Return a number of distinct expressions, deterministic, each with a match in most years.

    They consist of typical fields, which recur, or else of random fields.
    """
    chance = Random(number)
    found: dict[str, None] = {}
    while len(found) < number:
        found[_common_text(chance) if common else _random_text(chance)] = None
    return tuple(found)


def _near_a_change(case: Case, *, backwards: bool) -> bool:
    """Return whether the clocks change within a day of the case or of its result."""
    plan = Schedule(case.text, case.zone).plan
    found = plan.prev_at_or_before(case.start - 1) if backwards else plan.next_after(case.start)
    assert found is not None
    return any(
        next(plan.zone.changes(instant - DAY, instant + DAY), None) is not None
        for instant in (case.start, found)
    )


def _count(text: str, zone: str, most: int, *, backwards: bool) -> int:
    plan = Schedule(text, zone).plan
    if not plan.expression.day.star and not plan.expression.weekday.star:
        most = min(most, MOST_OF_TWO_DAY_FIELDS)
    at = START
    for number in range(most):
        found = plan.prev_at_or_before(at - 1) if backwards else plan.next_after(at)
        if found is None or not FIRST < found < LAST:
            return number
        at = found
    return most


def _common_text(chance: Random) -> str:
    minute, hour, month = (chance.choice(fields) for fields in (COMMON_MINUTES, COMMON_HOURS, COMMON_MONTHS))
    return f"{minute} {hour} {{}} {month} {{}}".format(*chance.choice(COMMON_DAYS))


def _random_text(chance: Random) -> str:
    minute = chance.choice((_one(chance, 0, 59), _list(chance, 0, 59), _range(chance, 0, 59)))
    hour = chance.choice(("*", _one(chance, 0, 23), _list(chance, 0, 23), _range(chance, 0, 23)))
    day = chance.choice(("*", "*", _one(chance, 1, 28), _list(chance, 1, 28)))
    month = chance.choice(("*", "*", "*", _range(chance, 1, 12)))
    weekday = chance.choice(("*", "1-5", _list(chance, 0, 6))) if day == "*" else "*"
    return f"{minute} {hour} {day} {month} {weekday}"


def _one(chance: Random, low: int, high: int) -> str:
    return str(chance.randint(low, high))


def _list(chance: Random, low: int, high: int) -> str:
    return ",".join(map(str, sorted(chance.sample(range(low, high + 1), chance.randint(2, 4)))))


def _range(chance: Random, low: int, high: int) -> str:
    first = chance.randint(low, high - 1)
    return f"{first}-{chance.randint(first + 1, high)}"
