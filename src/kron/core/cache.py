"""Caches of what is read from texts: short texts are bounded by their number, long ones by their length.

Callers write texts of any permitted length, and what is read from one may need twenty times its memory. A
cache of so many entries alone would have no bound that a process could keep.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

# Longer texts are long ones; and how many characters the long ones of one cache have together.
LONG, MAX_LONG = 512, 4 << 20

P = ParamSpec("P")
Value = TypeVar("Value")
Text = TypeVar("Text", bound="str | None")


class LongTexts(Generic[Value]):
    """Values by text, as many as have `most` characters together; the least recently used is dropped.

    Threads share it without a lock: each step is one operation of a dictionary, and a value that another
    thread has just taken out is made again.
    """

    def __init__(self, most: int = MAX_LONG) -> None:
        self._most = most
        self._values: dict[Hashable, tuple[Value, int]] = {}

    def __len__(self) -> int:
        """Return how many values are held."""
        return len(self._values)

    def clear(self) -> None:
        """Forget every value."""
        self._values.clear()

    def get(self, key: Hashable, size: int, make: Callable[[], Value]) -> Value:
        """Return the value of a key whose text has a size, made if it is not held."""
        known = self._values.pop(key, None)
        if known is not None:
            # The last one is that which was used last.
            self._values[key] = known
            return known[0]
        value = make()
        self._values[key] = value, size
        self._trim()
        return value

    def _trim(self) -> None:
        entries = list(self._values.items())
        held = sum(size for _, (_, size) in entries)
        for key, (_, size) in entries:
            if held <= self._most:
                return
            if self._values.pop(key, None) is not None:
                held -= size


def cached_by_text(
    most: int, most_long: int = MAX_LONG
) -> Callable[[Callable[Concatenate[Text, P], Value]], Callable[Concatenate[Text, P], Value]]:
    """Return a decorator that caches a function of a text: `most` short texts, and long ones by their length.

    Further arguments belong to the key, and have to be hashable and small.
    """

    def decorated(function: Callable[Concatenate[Text, P], Value]) -> Callable[Concatenate[Text, P], Value]:
        short = lru_cache(maxsize=most)(function)
        long = LongTexts[Value](most_long)

        @wraps(function)
        def cached(text: Text, /, *args: P.args, **kwargs: P.kwargs) -> Value:
            if text is None or len(text) <= LONG:
                return short(text, *args, **kwargs)  # type: ignore[arg-type] # they are hashable
            key = (text, args, tuple(kwargs.items()))
            return long.get(key, len(text), lambda: function(text, *args, **kwargs))

        def cache_clear() -> None:
            short.cache_clear()
            long.clear()

        cached.cache_clear = cache_clear  # type: ignore[attr-defined] # as that of `lru_cache`
        return cached

    return decorated
