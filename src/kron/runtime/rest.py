"""A rest for the garbage collector: a burst makes much that lives on for a moment, and nothing to collect."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class _Resting:
    """How many bursts are under way, and whether the collector worked before the first of them."""

    count = 0
    was_on = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the collector from searching the whole program again and again while thousands are started.

    Whoever switched it off before finds it off afterwards.
    """
    if _Resting.count == 0:
        _Resting.was_on = gc.isenabled()
        gc.disable()
    _Resting.count += 1
    try:
        yield
    finally:
        _Resting.count -= 1
        if _Resting.count == 0 and _Resting.was_on:
            gc.enable()
