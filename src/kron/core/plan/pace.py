"""The pace of catch-up: how many missed periods a worker starts in one tick, over all its jobs."""

from typing import NamedTuple


class Pace(NamedTuple):
    """The catch-up starts of one worker: at most `per_tick` of them in `tick_ms`; None is no bound.

    A tick starts with its first catch-up start and ends at `ends_at`; `started` counts its starts. Runs that
    have to wait are expected in later ticks: `line_at` is when the last of these ticks starts, `waiting` how
    many runs are expected in it.
    """

    per_tick: int | None = None
    tick_ms: int = 1_000
    ends_at: int = 0
    started: int = 0
    line_at: int = 0
    waiting: int = 0

    def has_room(self, now: int) -> bool:
        """Say whether another catch-up run may start now."""
        return self.per_tick is None or now >= self.ends_at or self.started < self.per_tick

    def after(self, now: int, *, starts: int, waits: int) -> "Pace":
        """Return the pace after catch-up starts of a job, and after its next runs were put in line."""
        pace = self
        if starts:
            # The first start after the end of a tick starts the next tick.
            if now >= pace.ends_at:
                pace = pace._replace(ends_at=now + pace.tick_ms, started=0)
            pace = pace._replace(started=pace.started + starts)
        return pace.with_line(waits) if waits else pace

    def with_line(self, count: int) -> "Pace":
        """Return the pace after the next runs of a job were put in line: the first may start at `line_at`."""
        assert self.per_tick is not None, "without a bound none waits"
        line_at, waiting = self.line_at, self.waiting
        if line_at < self.ends_at:
            line_at, waiting = self.ends_at, 0
        elif waiting >= self.per_tick:
            line_at, waiting = line_at + self.tick_ms, 0
        return self._replace(line_at=line_at, waiting=waiting + min(count, self.per_tick))
