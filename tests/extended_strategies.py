"""Strategies for the extended dialect: each text comes with its meaning, defined without Kron.

A meaning is a set of numbers, or a predicate over calendar days, to compare with how Kron reads the text.
"""

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time
from functools import cache
from typing import TypeAlias

from hypothesis import strategies as st

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july",
    "august", "september", "october", "november", "december",
)  # fmt: skip
WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")

DayTest: TypeAlias = Callable[[date], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The values of a field: its lowest and highest number, and the names of some."""

    low: int
    high: int
    names: tuple[str, ...] = ()

    def ring(self, low: int, high: int, step: int = 1) -> frozenset[int]:
        """Return every `step`-th number from `low` to `high`, wrapping around at the end."""
        size = self.high - self.low + 1
        length = (high - low) % size + 1
        return frozenset(self.low + (low - self.low + i) % size for i in range(0, length, step))


SECOND = MINUTE = Unit(low=0, high=59)
HOUR = Unit(low=0, high=23)
DAY = Unit(low=1, high=31)
MONTH = Unit(low=1, high=12, names=MONTHS)
WEEKDAY = Unit(low=0, high=6, names=WEEKDAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a list: its text, the numbers it stands for, and the predicate of a calendar mark."""

    text: str
    values: frozenset[int] = frozenset()
    test: DayTest | None = None


# Draws the items that only one field has.
Marks: TypeAlias = Callable[[Unit], st.SearchStrategy[Item]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMeaning:
    """A field's text and its meaning."""

    text: str
    items: tuple[Item, ...]

    @property
    def values(self) -> frozenset[int]:
        """Return the numbers of all items."""
        return frozenset().union(*(item.values for item in self.items))

    def says(self, number: int, day: date) -> bool:
        """Return whether a day matches, given its number in this field."""
        return number in self.values or any(item.test(day) for item in self.items if item.test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """An expression's text and its meaning."""

    second: FieldMeaning | None
    minute: FieldMeaning
    hour: FieldMeaning
    day: FieldMeaning
    month: FieldMeaning
    weekday: FieldMeaning

    @property
    def text(self) -> str:
        """Return the expression."""
        fields = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields if field)

    @property
    def times(self) -> list[time]:
        """Return the times of a matching day, ascending."""
        seconds = self.second.values if self.second else {0}
        walls = ((h, m, s) for h in self.hour.values for m in self.minute.values for s in seconds)
        return [time(*wall) for wall in sorted(walls)]

    def matches(self, day: date) -> bool:
        """Return whether a day matches, by Vixie's rule."""
        by_day = self.day.says(day.day, day)
        by_weekday = self.weekday.says(day.isoweekday() % 7, day)
        both = self.day.text.startswith("*") or self.weekday.text.startswith("*")
        return day.month in self.month.values and (by_day and by_weekday if both else by_day or by_weekday)


# --- predicates over calendar days -----------------------------------------------------------------


def length_of(day: date) -> int:
    """Return the number of days in the month of a day."""
    return monthrange(day.year, day.month)[1]


def is_from_end(day: date, back: int) -> bool:
    """Return whether a day is `back` days before the last of its month."""
    return length_of(day) - day.day == back


def is_workday(day: date) -> bool:
    """Return whether a day is one of Monday to Friday."""
    return day.isoweekday() <= 5


def workdays_of(day: date) -> list[int]:
    """Return the numbers of all Mondays to Fridays in the month of a day."""
    return _workdays_in(day.year, day.month)


@cache
def _workdays_in(year: int, month: int) -> list[int]:
    days = range(1, monthrange(year, month)[1] + 1)
    return [n for n in days if is_workday(date(year, month, n))]


def is_last_workday(day: date) -> bool:
    """Return whether a day is the last Monday to Friday of its month."""
    return day.day == workdays_of(day)[-1]


def is_nearest_workday(day: date, wanted: int) -> bool:
    """Return whether no other Monday to Friday of the month is nearer to the day wanted, if there is one."""
    nearest = min(workdays_of(day), key=lambda n: abs(n - wanted))
    return wanted <= length_of(day) and day.day == nearest


def is_nth_weekday(day: date, weekday: int, nth: int) -> bool:
    """Return whether a day is the n-th such weekday of its month; 0 is Sunday."""
    if day.isoweekday() % 7 != weekday:
        return False
    same = [n for n in range(1, day.day + 1) if day.replace(day=n).isoweekday() % 7 == weekday]
    return len(same) == nth


def is_last_weekday(day: date, weekday: int) -> bool:
    """Return whether a day is the last such weekday of its month; 0 is Sunday."""
    return day.isoweekday() % 7 == weekday and day.day + 7 > length_of(day)


# --- items -----------------------------------------------------------------------------------------

KINDS = ("value", "value", "range", "stepped range", "open step", "step")
SEVEN = ("7", "07")


def cased(text: str) -> st.SearchStrategy[str]:
    """Draw a text in one of the cases people write."""
    return st.sampled_from([text.lower(), text.upper(), text.title()])


@cache
def words(unit: Unit) -> st.SearchStrategy[tuple[str, int]]:
    """Draw a value and a word for it: a number or a name; Sunday may be 7."""
    spelled = [(zero + str(value), value) for value in range(unit.low, unit.high + 1) for zero in ("", "0")]
    for value, name in enumerate(unit.names, unit.low):
        for word in (name, name[:3]):
            spelled += [(word, value), (word.upper(), value), (word.title(), value)]
    if unit is WEEKDAY:
        spelled += [(word, 0) for word in SEVEN]
    return st.sampled_from(spelled)


def open_step(word: str, low: int, step: int, unit: Unit) -> Item:
    """Return a step without an end: up to the field's highest number, and from 7 that one day alone."""
    values = frozenset([low]) if unit is WEEKDAY and word in SEVEN else unit.ring(low, unit.high, step)
    return Item(text=f"{word}/{step}", values=values)


@st.composite
def simple_items(draw: st.DrawFn, unit: Unit) -> Item:
    """Draw a number, a range or a step, wrap-around included."""
    kind = draw(st.sampled_from(KINDS))
    step = draw(st.integers(1, 70)) if "step" in kind else 1
    if kind == "step":
        return Item(text=f"*/{step}", values=unit.ring(unit.low, unit.high, step))
    first, low = draw(words(unit))
    if kind == "value":
        return Item(text=first, values=frozenset([low]))
    if kind == "open step":
        return open_step(first, low, step, unit)
    last, high = draw(words(unit))
    text = f"{first}-{last}" + (f"/{step}" if kind == "stepped range" else "")
    if unit is WEEKDAY and last in SEVEN:
        # A range that ends with 7 does not wrap around: its end is the day after Saturday.
        start = 7 if first in SEVEN else low
        return Item(text=text, values=frozenset(value % 7 for value in range(start, 8, step)))
    return Item(text=text, values=unit.ring(low, high, step))


@st.composite
def day_marks(draw: st.DrawFn, unit: Unit) -> Item:
    """Draw `L`, `L-n`, `LW` or `nW`."""
    assert unit is DAY
    n = draw(st.integers(0, 31))
    marks = [
        Item(text="L", test=lambda day: is_from_end(day, 0)),
        Item(text=f"L-{n}" if n < 31 else "l", test=lambda day: is_from_end(day, n % 31)),
        Item(text="LW" if n < 16 else "lw", test=is_last_workday),
        Item(text=f"{n or 1}W", test=lambda day: is_nearest_workday(day, n or 1)),
    ]
    return draw(st.sampled_from(marks))


@st.composite
def weekday_marks(draw: st.DrawFn, unit: Unit) -> Item:
    """Draw `d#n` or `dL`."""
    word, weekday = draw(words(unit))
    if nth := draw(st.integers(0, 5)):
        return Item(text=f"{word}#{nth}", test=lambda day: is_nth_weekday(day, weekday, nth))
    return Item(text=f"{word}L", test=lambda day: is_last_weekday(day, weekday))


# --- fields and expressions ------------------------------------------------------------------------


@st.composite
def extended_fields(draw: st.DrawFn, unit: Unit, marks: Marks | None = None) -> FieldMeaning:
    """Draw a field: `*`, or a list of up to three items, which may start with `*`."""
    shape = draw(st.integers(0, 7))
    items = [] if shape % 4 else [Item(text="*", values=unit.ring(unit.low, unit.high))]
    for _ in range((0, 1, 2, 3, 1, 1, 1, 1)[shape]):
        source = marks if marks and draw(st.booleans()) else simple_items
        items.append(draw(source(unit)))
    return FieldMeaning(text=",".join(item.text for item in items), items=tuple(items))


@st.composite
def extended_meanings(draw: st.DrawFn) -> Meaning:
    """Draw an expression that follows the grammar; it may still be one that never matches."""
    return Meaning(
        second=draw(extended_fields(SECOND)) if draw(st.integers(0, 4)) == 4 else None,
        minute=draw(extended_fields(MINUTE)),
        hour=draw(extended_fields(HOUR)),
        day=draw(extended_fields(DAY, day_marks)),
        month=draw(extended_fields(MONTH)),
        weekday=draw(extended_fields(WEEKDAY, weekday_marks)),
    )


def extended_expressions() -> st.SearchStrategy[str]:
    """Draw the text of an expression that follows the grammar, sometimes with a zone before it."""
    prefix = st.sampled_from(["", "", "", "CRON_TZ=Europe/Berlin ", "TZ=America/St_Johns "])
    return st.builds(lambda zone, meaning: zone + meaning.text, prefix, extended_meanings())


@st.composite
def mutated(draw: st.DrawFn, texts: st.SearchStrategy[str], characters: str) -> str:
    """Draw a text with one to three characters removed, replaced or inserted."""
    text = draw(texts)
    for _ in range(draw(st.integers(1, 3))):
        at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 1))
        text = text[:at] + draw(st.sampled_from(["", *characters])) + text[at + cut :]
    return text
