"""Choices from a seed: a stream of numbers that is the same on every platform and version."""

from collections.abc import Sequence
from typing import TypeVar

from kron.core.job.seed import seed_hash, splitmix64, state_of, unit_of

Choice = TypeVar("Choice")


class Rng:
    """A stream of choices; streams with the same seed and another purpose are independent of it."""

    def __init__(self, seed: int | str, purpose: str) -> None:
        self._state = state_of(seed_hash("simulator", str(seed), purpose))

    def below(self, bound: int) -> int:
        """Return a whole number from 0 to below the bound."""
        self._state, number = splitmix64(self._state)
        return number % bound

    def happens(self, odds: float) -> bool:
        """Return True with this probability."""
        self._state, number = splitmix64(self._state)
        return unit_of(number) < odds

    def one_of(self, choices: Sequence[Choice]) -> Choice:
        """Return one of the choices."""
        return choices[self.below(len(choices))]

    def some_of(self, choices: Sequence[Choice], most: int) -> tuple[Choice, ...]:
        """Return 0 to `most` of the choices, with repetition."""
        return tuple(self.one_of(choices) for _ in range(self.below(most + 1)))
