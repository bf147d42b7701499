"""Choices from a seed: a stream of numbers that is the same everywhere and for ever."""

from collections.abc import Sequence
from typing import TypeVar

from kron.core.job.seed import seed_hash, splitmix64, state_of, unit_of

Choice = TypeVar("Choice")


class Draw:
    """A stream of choices; streams of other purposes with the same seed are independent of it."""

    def __init__(self, seed: int | str, purpose: str) -> None:
        self._state = state_of(seed_hash("simulator", str(seed), purpose))

    def below(self, bound: int) -> int:
        """Return a whole number from 0 on, less than the bound."""
        self._state, number = splitmix64(self._state)
        return number % bound

    def happens(self, odds: float) -> bool:
        """Say whether something of these odds happens."""
        self._state, number = splitmix64(self._state)
        return unit_of(number) < odds

    def one_of(self, choices: Sequence[Choice]) -> Choice:
        """Return one of several."""
        return choices[self.below(len(choices))]

    def some_of(self, choices: Sequence[Choice], most: int) -> tuple[Choice, ...]:
        """Return none to `most` of several, each as often as it comes."""
        return tuple(self.one_of(choices) for _ in range(self.below(most + 1)))
