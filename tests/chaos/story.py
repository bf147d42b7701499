"""The history of an experiment: each fault, its target and its time."""

import time
from collections import Counter
from collections.abc import Callable, Iterable


def now_ms() -> int:
    """Return the machine's time in milliseconds."""
    return time.time_ns() // 1_000_000


class Story:
    """The events of an experiment, in order."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self._began_at = now_ms()
        self._say = say
        self.lines: list[str] = []
        # The times at which a drain was cut short.
        self.broken_off: list[int] = []
        # When each process was killed or frozen, by its id, and when the database was cut off or away.
        self.struck: list[tuple[int, int]] = []
        self.outages: list[int] = []
        self.counts: Counter[str] = Counter()

    def strikes(self, acts: Iterable[str]) -> int:
        """Return the number of these events."""
        return sum(self.counts[act] for act in acts)

    def tell(self, what: str, more: str = "") -> None:
        """Record an event."""
        self.counts[what] += 1
        line = f"{(now_ms() - self._began_at) / 1000:8.2f} s  {what} {more}".rstrip()
        self.lines.append(line)
        self._say(line)
