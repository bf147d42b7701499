"""What a benchmark reports: rows of measurements, and goals that are met or not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

# Tells the person who waits what is being measured.
Say: TypeAlias = Callable[[str], None]


class Kind(StrEnum):
    """How a cost is shown.

    Calls per second, the time one call takes, the bytes one thing takes, or the share of one processor.
    """

    RATE = "rate"
    TIME = "time"
    SIZE = "size"
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one comparison.

    `cost` is what one call takes, in seconds (or in bytes, or in seconds of a processor per second), None
    where there is none and the note says why. `ratio` says how many times as much as the reference (Kron)
    it took, so more than one means that Kron is quicker, or smaller.
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
    """One line of the targets: what was wanted and what was measured; `met` is None if nothing was."""

    what: str
    wanted: str
    measured: str
    met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that one part of the benchmark found."""

    rows: tuple[Row, ...]
    goals: tuple[Goal, ...]


UNITS: Mapping[Kind, tuple[tuple[float, str], ...]] = {
    Kind.RATE: ((1e6, " M/s"), (1e3, " k/s"), (1, " /s")),
    Kind.TIME: ((1, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")),
    Kind.SIZE: ((1e6, " MB"), (1e3, " kB"), (1, " bytes")),
    Kind.SHARE: ((1e-2, " %"),),
}


def shown(kind: Kind, cost: float | None) -> str:
    """Write a cost for people, in the unit that fits."""
    if cost is None:
        return "-"
    return _scaled(1 / cost if kind is Kind.RATE else cost, UNITS[kind])


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{value / size:.3g}{name}"
