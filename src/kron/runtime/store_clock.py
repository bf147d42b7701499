"""The store's clock: where workers share a database, its clock shows which of theirs is wrong."""

from datetime import timedelta

from kron.core.time.steady import offset_of
from kron.ports import Journal
from kron.runtime.health import Health
from kron.runtime.wakeup import EngineClock

# How soon the loop looks again while nothing is planned.
LOOK_AGAIN_MS = 1_000


class StoreClock:
    """Compares the host's clock with the store's, whenever a lease is granted.

    A worker that is ahead would start runs before their time. It plans nothing and lets its lease lapse, so
    that a worker whose clock agrees takes over. If none has within the lookahead, the host's clock counts:
    the store's may be the wrong one, and a scheduler must not stand still for it.
    """

    def __init__(self, time: EngineClock, journal: Journal, health: Health, namespace: str) -> None:
        self._time = time
        self._journal = journal
        self._health = health
        self._namespace = namespace
        # When the host's clock was found ahead, by the monotonic clock, in seconds.
        self._found_at: float | None = None
        # Whether the clock was set since the last comparison.
        self._was_set = False

    @property
    def is_ahead(self) -> bool:
        """Say whether the lease is to lapse, because the host's clock is ahead and another may agree."""
        if self._found_at is None or self._was_set:
            return False
        return 1000 * (self._time.clock.monotonic() - self._found_at) < self._time.lookahead_ms

    @property
    def holds(self) -> bool:
        """Say whether nothing is planned: the host's clock is ahead, or has to be compared first."""
        return self._was_set or self.is_ahead

    @property
    def wake_at(self) -> int:
        """Return when the loop looks again."""
        return self._time.wall() + LOOK_AGAIN_MS

    def doubt(self) -> None:
        """Plan nothing until the next comparison: the host's clock was set."""
        self._was_set = True

    def compare(self, asked_at: int, granted_at: int) -> None:
        """Compare the store's clock with the host's, which showed `asked_at` before the store was asked."""
        self._was_set = False
        off = offset_of(asked_at, self._time.wall(), granted_at, lookahead_ms=self._time.lookahead_ms)
        before, self._health.clock_off_ms = self._health.clock_off_ms, off
        if off <= 0:
            self._found_at = None
        elif self._found_at is None:
            self._found_at = self._time.clock.monotonic()
        fields = {"namespace": self._namespace, "by_ms": off, "clock": asked_at, "reference": granted_at}
        if off and not before:
            self._journal.note("clock_off", {**fields, "why": sentence_of(off)})
        elif before and not off:
            self._journal.note("clock_agrees", fields)


def sentence_of(off_ms: int) -> str:
    """Return what is wrong with the host's clock, and what to do."""
    by = timedelta(seconds=abs(off_ms) // 1000)
    how = "ahead of" if off_ms > 0 else "behind"
    return f"this host's clock is {by} {how} the database's; set the wrong one of them"
