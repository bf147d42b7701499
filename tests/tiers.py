"""Parametrized tests of which only a few cases run in the fast tier."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[object], *, fast: int = 1) -> list[Any]:
    """Return parameters of which all but `fast`, spread evenly, are slow; a tuple is several arguments."""
    listed = [value if isinstance(value, tuple) else (value,) for value in values]
    chosen = {number * len(listed) // fast for number in range(fast)}
    return [
        pytest.param(*value, marks=() if number in chosen else pytest.mark.slow)
        for number, value in enumerate(listed)
    ]
