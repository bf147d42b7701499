"""Debian's cron (Vixie cron 3.0): what its five fields mean, and when it starts a line around clock changes.

It reads some texts as no other cron does: text after a number that it does not know is dropped, and a
reversed range has no values. These rules were observed on the program itself.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

from kron.core.cron.dialect import MACROS
from kron.core.cron.field import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Field, Unit, mask_of
from kron.core.errors import InvalidCronExpressionError
from kron.core.time.instant import DAY as DAY_SECONDS
from kron.core.time.instant import EpochSeconds
from kron.core.time.zone import UNIX_EPOCH_ORDINAL, Transition, Zone

CRON_UNITS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
# A clock that moves by more than this was corrected: cron then follows it without a special rule.
CORRECTION = 3 * 3600
# One item of a field, and the text after it that cron skips up to the next blank.
_WORD = "[0-9A-Za-z]+"
_ITEM = re.compile(rf"(\*|({_WORD})(?:-({_WORD}))?)(?:/({_WORD}))?")
# Cron reads at most this many characters of a number.
MAX_WORD = 99


@dataclass(frozen=True, slots=True)
class CronLine:
    """The times of one line as cron reads them.

    A line is `wild` if its minute or hour starts with `*`: cron starts it by the clock's own minutes. Any
    other line is started once for each minute that the clock skips, and not again in a repeated hour.
    """

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def fields(self) -> tuple[Field, Field, Field, Field, Field]:
        """Return the five fields in order."""
        return self.minute, self.hour, self.day, self.month, self.weekday

    @property
    def wild(self) -> bool:
        """Return whether the line follows the clock at once when it changes."""
        return self.minute.star or self.hour.star

    @property
    def never(self) -> bool:
        """Return whether a field has no values, which cron accepts; such a line never starts."""
        dayless = not self.day.mask or not self.weekday.mask
        both = self.day.star or self.weekday.star
        days = dayless if both else not (self.day.mask or self.weekday.mask)
        return days or not (self.minute.mask and self.hour.mask and self.month.mask)

    def matches_day(self, day: date) -> bool:
        """Return whether a local day matches: both day fields if one starts with `*`, else either."""
        in_month = self.day.mask >> day.day & 1 == 1
        in_week = self.weekday.mask >> day.isoweekday() % 7 & 1 == 1
        both = self.day.star or self.weekday.star
        of_days = (in_month and in_week) if both else (in_month or in_week)
        return of_days and self.month.mask >> day.month & 1 == 1

    def __str__(self) -> str:
        """Return five fields that mean these times in every cron."""
        minute, hour, day, month, weekday = map(str, self.fields)
        # Where either day field may match, one without values leaves the other alone.
        return " ".join((minute, hour, day or "*", month, weekday or "*"))


def parse_cron_line(expression: str) -> CronLine:
    """Return the times of five fields or a macro as cron reads them, or raise as cron refuses them."""
    five = MACROS.get(expression, expression)
    words = five.split()
    if expression.startswith("@") and expression not in MACROS:
        raise InvalidCronExpressionError(
            expression=expression, field="expression", reason=f"{words[0]} is not a macro of Debian's cron"
        )
    if len(words) != len(CRON_UNITS):
        reason = f"must have exactly 5 fields, got {len(words)}"
        raise InvalidCronExpressionError(expression=expression, field="expression", reason=reason)
    fields = [_field_of(word, unit, expression) for word, unit in zip(words, CRON_UNITS, strict=True)]
    return CronLine(*fields)


def _field_of(word: str, unit: Unit, expression: str) -> Field:
    mask, place = 0, 0
    while True:  # each item is at least one character
        match = _ITEM.match(word, place)
        values = None if match is None else _values_of(match, unit)
        if match is None or values is None:
            reason = f'"{word}" is refused by Debian\'s cron'
            raise InvalidCronExpressionError(expression=expression, field=unit.name, reason=reason)
        mask |= mask_of(values)
        place = match.end()
        if word[place : place + 1] != ",":
            break
        place += 1
    if unit is WEEKDAY and mask >> 7:
        mask = mask & unit.full | 1
    return Field(unit, mask, star=word.startswith("*"))


def _values_of(match: "re.Match[str]", unit: Unit) -> Iterable[int] | None:
    """Return the values of one item, or None if cron refuses it."""
    text, low_word, high_word, step_word = match.groups()
    high = 7 if unit is WEEKDAY else unit.high
    rest = match.string[match.end() :]
    if text == "*":
        first, last = unit.low, unit.high
    else:
        numbers = [_number_of(each, unit) for each in (low_word, high_word or low_word)]
        if any(number is None or not unit.low <= number <= high for number in numbers):
            return None
        first, last = (number for number in numbers if number is not None)
    if text != "*" and high_word is None and (step_word is not None or rest.startswith(("/", "-"))):
        return None  # a step after a single number, or a range without an end
    if step_word is None:
        return None if rest.startswith("/") else range(first, last + 1)
    if not step_word.isdigit() or not int(step_word[:MAX_WORD]):
        return None
    return range(first, last + 1, int(step_word[:MAX_WORD]))


def _number_of(word: str, unit: Unit) -> int | None:
    """Return a number or the value of a name of three letters."""
    if word.isdigit():
        return int(word[:MAX_WORD])
    short = [name[:3] for name in unit.names]
    return short.index(word.lower()) + unit.low if word.lower() in short else None


# --- starts --------------------------------------------------------------------------------------


def cron_starts(line: CronLine, zone: Zone, start: EpochSeconds, end: EpochSeconds) -> Iterator[EpochSeconds]:
    """Yield when cron starts a line in `[start, end)`, once for each start at an instant."""
    changes = list(zone.changes(start - DAY_SECONDS, end + DAY_SECONDS))
    bounds = [start, *(change.at for change in changes if start < change.at < end), end]
    for since, until in pairwise(bounds):
        offset = zone.offset_at(since)
        change = next((each for each in changes if each.at == since), None)
        if change is not None and not line.wild and 0 < change.size < CORRECTION:
            yield from (since for _ in _walls(line, since + change.before, since + change.after))
        for wall in _walls(line, since + offset, until + offset):
            if line.wild or not _is_repeated(wall, wall - offset, changes):
                yield wall - offset


def _is_repeated(wall: int, instant: EpochSeconds, changes: Iterable[Transition]) -> bool:
    """Return whether the clock showed a wall time already, before it was set back."""
    return any(
        -CORRECTION <= change.size < 0 and change.at <= instant and wall < change.at + change.before
        for change in changes
    )


def _walls(line: CronLine, start: int, end: int) -> Iterator[int]:
    """Yield the matching wall times in `[start, end)`, in seconds since 1970 on the wall clock."""
    minutes = [3600 * hour + 60 * minute for hour in line.hour.values for minute in line.minute.values]
    for number in range(start // DAY_SECONDS, -(-end // DAY_SECONDS)):
        if line.matches_day(date.fromordinal(number + UNIX_EPOCH_ORDINAL)):
            for second in minutes:
                wall = number * DAY_SECONDS + second
                if start <= wall < end:
                    yield wall
