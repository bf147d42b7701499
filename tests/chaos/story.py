"""The story of a run: what was done to whom, and when."""

import time
from collections import Counter
from collections.abc import Callable, Iterable


def now_ms() -> int:
    """Return the machine's time in milliseconds."""
    return time.time_ns() // 1_000_000


class Story:
    """Lines, in the order in which things happened."""

    def __init__(self, say: Callable[[str], None] = lambda line: None) -> None:
        self._began_at = now_ms()
        self._say = say
        self.lines: list[str] = []
        # When a worker that was stopped no longer waited for what it had sent.
        self.broken_off: list[int] = []
        # When a worker that was frozen went on.
        self.thawed: list[int] = []
        self.counts: Counter[str] = Counter()

    def strikes(self, acts: Iterable[str]) -> int:
        """Return how many of these were done."""
        return sum(self.counts[act] for act in acts)

    def tell(self, what: str, more: str = "") -> None:
        """Note what was done."""
        self.counts[what] += 1
        line = f"{(now_ms() - self._began_at) / 1000:8.2f} s  {what} {more}".rstrip()
        self.lines.append(line)
        self._say(line)
