"""The bound of a promise: compute-bounded modalities with witnesses, or a span of wall time."""

from collections.abc import Iterable
from dataclasses import dataclass

from kron.core.errors import InvalidOptionError
from kron.theory.encoding import bits_of_time


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The numbers (a, b, t_lag) of a scheduler: a bound is a times the length of its arguments plus b.

    Compute and lag trade one for one (reading 19): `F!<=C (P)` holds if and only if P holds before more
    than C + t_lag compute has passed.
    """

    a: int = 0
    b: int = 0
    t_lag: int = 0

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b), ("t_lag", self.t_lag)):
            if type(value) is not int or value < 0:
                raise InvalidOptionError(option=name, value=value, reason="use a whole number from 0")

    def allowed(self, size: int) -> int:
        """Return the compute allowed for arguments of this size."""
        return self.a * size + self.b + self.t_lag


def size_of(list_bits: int, t: int) -> int:
    """Return |<R, t>|."""
    return list_bits + bits_of_time(t)


def compute_in(points: Iterable[int], start: int, end: int) -> int:
    """Return compute([start, end]): the number of time points in it, ends included, with a Compute."""
    return sum(start <= point <= end for point in set(points))
