"""What a benchmark reports: rows of measurements, and goals that are met or not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

# Tells the person who waits what is being measured.
Say: TypeAlias = Callable[[str], None]


class Kind(StrEnum):
    """How a cost is shown: calls per second, or the time one call takes."""

    RATE = "rate"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one comparison.

    `seconds` is the cost of one call, None where there is none and the note says why. `ratio` says how
    many times as long as the reference (Kron) it took, so more than one means that Kron is quicker.
    """

    title: str
    contender: str
    kind: Kind
    seconds: float | None = None
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


def shown(kind: Kind, seconds: float | None) -> str:
    """Write a cost for people: as a rate with k or M, or as a time in the unit that fits."""
    if seconds is None:
        return "-"
    if kind is Kind.RATE:
        return _scaled(1 / seconds, ((1e6, " M/s"), (1e3, " k/s"), (1, " /s")))
    return _scaled(seconds, ((1, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")))


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{value / size:.3g}{name}"
