"""Distributions: from a number u in [0, 1) to a place x in the window, 0 its start and 1 its end.

The decision format (docs/reference/decision-format.md) is the contract. The formulas are written out, in the
order of their operations, so that a decision does not change with the library that computes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from math import erf, exp, log, sqrt
from typing import Protocol

from kron.core.fields import (
    FieldReader,
    FieldTable,
    Schema,
    ValueType,
    invalid_value,
    object_schema,
    parse_positive,
    row,
    suggestion,
    table_of,
)
from kron.core.job.window import Bounds, WindowMode
from kron.core.time.duration import parse_duration
from kron.core.value_types import DURATION, NULL, choice, names_of, nullable

# The bounds of a probability before its normal distribution is inverted.
LEAST, MOST = 2**-54, 1 - 2**-53
ROOT_2 = sqrt(2)

# A flatter exponential is uniform in floating point, and below this rate the formula loses its digits.
MIN_RATE = 1e-9


class Mu(StrEnum):
    """Where a normal distribution has its peak."""

    NOMINAL = "nominal"
    START = "start"
    MID = "mid"
    END = "end"


class Dir(StrEnum):
    """At which end an exponential distribution is dense."""

    EARLY = "early"
    LATE = "late"


def _parse_rate(value: object) -> float:
    rate = parse_positive(value)
    if rate < MIN_RATE:
        raise invalid_value(value, f"must be at least {MIN_RATE}; below it, use uniform")
    return rate


def _parse_sigma(value: object) -> timedelta | None:
    if value is None:
        return None
    sigma = parse_duration(value)
    if not sigma:
        raise invalid_value(value, "must be longer than 0")
    return sigma


SHAPE = ValueType(
    schema={"type": "number", "exclusiveMinimum": 0}, parse=parse_positive, check=parse_positive
)
RATE = ValueType(schema={"type": "number", "minimum": MIN_RATE}, parse=_parse_rate, check=_parse_rate)
SIGMA = ValueType(
    schema={"oneOf": [DURATION.schema, NULL], "not": {"enum": [0, 0.0, "0", "0s"]}},
    parse=_parse_sigma,
    check=lambda value: _parse_sigma(nullable(DURATION).check(value)),
    write=nullable(DURATION).write,
)


class Distribution(Protocol):
    """A way to choose a place in a window of at least one second."""

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the place a number in [0, 1) stands for; the caller clamps it to the window."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the name and the parameters beside it."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every second is equally likely."""

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return u itself."""
        return u

    def to_dict(self) -> dict[str, object]:
        """Return the name; there are no parameters."""
        return _written(self)


@dataclass(frozen=True, slots=True)
class SkewEarly:
    """Dense at the start of the window, the more so the larger `shape` is."""

    shape: float = field(default=2.0, metadata=row(SHAPE, "the larger, the earlier; above 0"))

    def __post_init__(self) -> None:
        """Check the parameters."""
        PARAMETERS[_NAMES[type(self)]].check(self)

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return u to the power of the shape."""
        return float(u**self.shape)

    def to_dict(self) -> dict[str, object]:
        """Return the name and the shape."""
        return _written(self)


@dataclass(frozen=True, slots=True)
class SkewLate:
    """Dense at the end of the window, the more so the larger `shape` is."""

    shape: float = field(default=2.0, metadata=row(SHAPE, "the larger, the later; above 0"))

    def __post_init__(self) -> None:
        """Check the parameters."""
        PARAMETERS[_NAMES[type(self)]].check(self)

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the mirror image of SkewEarly."""
        return float(1 - (1 - u) ** self.shape)

    def to_dict(self) -> dict[str, object]:
        """Return the name and the shape."""
        return _written(self)


@dataclass(frozen=True, slots=True)
class Normal:
    """A bell around `mu`, cut off at the window's bounds; `sigma` is a sixth of the window unless given."""

    mu: Mu = field(
        metadata=row(
            choice(names_of(Mu)),
            "the peak: `nominal`, `start`, `mid` or `end`; by default `nominal` for a window `around`, "
            "else `mid`",
        )
    )
    sigma: timedelta | None = field(
        default=None,
        metadata=row(SIGMA, "the standard deviation; `null`: a sixth of the window", sparse=True),
    )

    def __post_init__(self) -> None:
        """Check the parameters."""
        PARAMETERS[_NAMES[type(self)]].check(self)

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the inverse of the cut-off bell's distribution function."""
        width = bounds.end - bounds.start
        peak = self._peak(bounds, nominal_time)
        sigma = width / 6 if self.sigma is None else self.sigma.total_seconds()
        low, high = _phi((0 - peak) / sigma), _phi((width - peak) / sigma)
        probability = min(max(low + u * (high - low), LEAST), MOST)
        return (peak + sigma * _inverse_normal(probability)) / width

    def _peak(self, bounds: Bounds, nominal_time: int) -> float:
        """Return the seconds from the window's start to the peak."""
        match self.mu:
            case Mu.NOMINAL:
                return nominal_time - bounds.start
            case Mu.START:
                return 0
            case Mu.MID:
                return (bounds.end - bounds.start) / 2
            case Mu.END:
                return bounds.end - bounds.start

    def to_dict(self) -> dict[str, object]:
        """Return the name, the peak, and the standard deviation where it is given."""
        return _written(self)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Dense at one end and thinning out towards the other, the more so the larger `rate` is."""

    rate: float = field(
        default=1.0,
        metadata=row(RATE, f"the larger, the denser; at least {MIN_RATE}", words=("lambda",)),
    )
    dir: Dir = field(
        default=Dir.EARLY, metadata=row(choice(names_of(Dir)), "the dense end: `early` or `late`")
    )

    def __post_init__(self) -> None:
        """Check the parameters."""
        PARAMETERS[_NAMES[type(self)]].check(self)

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the inverse of the cut-off exponential's distribution function."""
        x = -log(1 - u * (1 - exp(-self.rate))) / self.rate
        return x if self.dir is Dir.EARLY else 1 - x

    def to_dict(self) -> dict[str, object]:
        """Return the name, the rate as `lambda`, and the direction."""
        return _written(self)


def _inverse_normal(probability: float) -> float:
    # Few jobs have this distribution, and the module takes half a megabyte.
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)


def _phi(z: float) -> float:
    return 0.5 * (1.0 + erf(z / ROOT_2))


# --- reading and writing -------------------------------------------------------------------------

KINDS: dict[str, type] = {
    "uniform": Uniform,
    "skewEarly": SkewEarly,
    "skewLate": SkewLate,
    "normal": Normal,
    "exponential": Exponential,
}
# The parameters of each distribution, flat beside its name.
PARAMETERS: dict[str, FieldTable] = {name: table_of(kind) for name, kind in KINDS.items()}
_NAMES = {kind: name for name, kind in KINDS.items()}
_EVERY_PARAMETER = tuple(sorted({word for table in PARAMETERS.values() for word in table.words}))


def _written(distribution: Distribution) -> dict[str, object]:
    name = _NAMES[type(distribution)]
    return {"name": name, **PARAMETERS[name].write(distribution)}


def read_distribution(parent: FieldReader, mode: WindowMode) -> Distribution:
    """Return the distribution of a definition: a name, or an object with a name and its parameters."""
    value = parent.get("distribution")
    if isinstance(value, str):
        value = {"name": value}
    given = value.get("name") if isinstance(value, Mapping) else None
    name = given if isinstance(given, str) and given in PARAMETERS else None
    known = PARAMETERS[name].words if name else _EVERY_PARAMETER
    reader = FieldReader(value, parent.path_of("distribution"), parent.problems, known=("name", *known))
    if name is None:
        if isinstance(value, Mapping):
            reader.problem("name", given, suggestion(given, PARAMETERS))
        return Uniform()
    parameters = PARAMETERS[name].read(reader)
    if name == "normal":
        parameters.setdefault("mu", Mu.NOMINAL if mode is WindowMode.AROUND else Mu.MID)
    made: Distribution = KINDS[name](**parameters)
    return made


def parse_distribution(value: object) -> Distribution:
    """Return a distribution in a window after its nominal time, or raise with every problem."""
    reader = FieldReader({"distribution": value}, "", [], known=("distribution",))
    distribution = read_distribution(reader, WindowMode.AFTER)
    if reader.problems:
        raise invalid_value(value, "; ".join(map(str, reader.problems)))
    return distribution


def distribution_schema() -> Schema:
    """Return the JSON Schema of a distribution."""
    objects = [_kind_schema(name, table) for name, table in PARAMETERS.items()]
    return {"oneOf": [{"enum": list(PARAMETERS)}, *objects]}


def _kind_schema(name: str, table: FieldTable) -> Schema:
    parameters = {word: row.schema_of(word) for row in table.rows for word in row.words}
    return object_schema({"name": {"const": name}, **parameters}, required=("name",))
