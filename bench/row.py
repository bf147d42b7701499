"""The results of a benchmark: rows of measurements, and goals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

# Reports progress to the terminal.
Say: TypeAlias = Callable[[str], None]


class Kind(StrEnum):
    """The unit in which a cost is shown.

    Calls per second, time per call, bytes per item, or the share of one processor.
    """

    RATE = "rate"
    TIME = "time"
    SIZE = "size"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one comparison.

    `cost` is per call, in seconds (or in bytes, or in processor seconds per second), None if it is missing
    and the note has the reason. `ratio` is the cost divided by that of the reference (Kron), so more than
    one means that Kron is faster, or smaller.
    """

    title: str
    contender: str
    kind: Kind
    cost: float | None = None
    ratio: float | None = None
    note: str = ""
    details: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One target with its measurement; `met` is None if it was not measured."""

    what: str
    wanted: str
    measured: str
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one part of the benchmark."""

    rows: tuple[Row, ...]
    goals: tuple[Goal, ...]


UNITS: Mapping[Kind, tuple[tuple[float, str], ...]] = {
    Kind.RATE: ((1e6, " M/s"), (1e3, " k/s"), (1, " /s")),
    Kind.TIME: ((1, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")),
    Kind.SIZE: ((1e6, " MB"), (1e3, " kB"), (1, " bytes")),
    Kind.SHARE: ((1e-2, " %"),),
}


def shown(kind: Kind, cost: float | None) -> str:
    """Format a cost for people, in a suitable unit."""
    if cost is None:
        return "-"
    return _scaled(1 / cost if kind is Kind.RATE else cost, UNITS[kind])


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{value / size:.3g}{name}"
