"""One field of a cron expression: the values it allows, in either dialect."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias


def mask_of(values: Iterable[int]) -> int:
    """Return the mask with these bits set."""
    mask = 0
    for value in values:
        mask |= 1 << value
    return mask


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a field: its name, its range, and the names of its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = field(default=(), compare=False)
    # The number of values, the mask of all, and each value by its plain digits, the usual spelling.
    size: int = field(init=False, compare=False, repr=False)
    full: int = field(init=False, compare=False, repr=False)
    plain: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Precompute the values that parsing needs."""
        values = range(self.low, self.high + 1)
        object.__setattr__(self, "size", len(values))
        object.__setattr__(self, "full", mask_of(values))
        object.__setattr__(self, "plain", {str(value): value for value in values})

    def value_of(self, name: str) -> int | None:
        """Return the value of a name in any case, short or long."""
        folded = lowered(name)
        for value, known in enumerate(self.names, self.low):
            if folded in (known, known[:3]):
                return value
        return None


MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july",
    "august", "september", "october", "november", "december",
)  # fmt: skip
WEEKDAY_NAMES = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")

SECOND = Unit("second", 0, 59)
MINUTE = Unit("minute", 0, 59)
HOUR = Unit("hour", 0, 23)
DAY = Unit("day", 1, 31)
MONTH = Unit("month", 1, 12, MONTH_NAMES)
WEEKDAY = Unit("weekday", 0, 6, WEEKDAY_NAMES)
UNITS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L` and `L-n`: the last day of the month, or n days before it."""

    back: int

    def __str__(self) -> str:
        return f"L-{self.back}" if self.back else "L"


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """`nW`: the Monday to Friday nearest to a day, in the same month; `LW` without a day."""

    day: int | None

    def __str__(self) -> str:
        return f"{self.day or 'L'}W"


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`d#n`: the n-th such weekday of the month; `dL`, the last, without a number."""

    weekday: int
    nth: int | None

    def __str__(self) -> str:
        return f"{self.weekday}#{self.nth}" if self.nth else f"{self.weekday}L"


Mark: TypeAlias = LastDay | NearestWorkday | NthWeekday


@dataclass(frozen=True, slots=True)
class Field:
    """The values of one field: bit v of `mask` is set when v is allowed.

    `star` says that the text starts with `*`, which only the day rule uses. `marks` are the days that
    depend on the month.
    """

    unit: Unit
    mask: int
    star: bool = False
    marks: tuple[Mark, ...] = ()

    @property
    def values(self) -> tuple[int, ...]:
        """Return the plain values in ascending order."""
        return tuple(bits_of(self.mask))

    def __str__(self) -> str:
        """Return the canonical text, from which an equal field can be parsed."""
        parts: list[str] = []
        rest = self.mask
        if self.star and rest == self.unit.full:
            parts.append("*")
            rest = 0
        elif self.star:
            step = next(n for n in range(2, 2 * self.unit.size) if _stepped(self.unit, n) & ~rest == 0)
            parts.append(f"*/{step}")
            rest &= ~_stepped(self.unit, step)
        parts += runs_of(bits_of(rest))
        return ",".join(parts + [str(mark) for mark in self.marks])


def lowered(word: str) -> str:
    """Return a word in lower case; non-ASCII words are unchanged, because some fold to ASCII."""
    return word.lower() if word.isascii() else word


def bits_of(mask: int) -> Iterable[int]:
    """Return the positions of the set bits, lowest first."""
    low = mask & -mask
    one_run = mask and not mask & mask + low
    return range(low.bit_length() - 1, mask.bit_length()) if one_run else _scattered_bits(mask)


def _scattered_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@lru_cache(maxsize=4096)
def mirrored(mask: int, size: int) -> int:
    """Return a mask of `size` bits in the opposite order."""
    return int(f"{mask:0{size}b}"[::-1], 2)


def runs_of(values: Iterable[int]) -> list[str]:
    """Format ascending values as cron items: three or more in a row become a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return parts


def _stepped(unit: Unit, step: int) -> int:
    return mask_of(range(unit.low, unit.high + 1, step))
