"""The pace of catch-up: how many missed periods a worker starts in one tick, over all its jobs."""

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
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

    def start(self, now: int, count: int = 1) -> None:
        """Count catch-up starts; the first after the end of a tick starts the next tick."""
        if now >= self.ends_at:
            self.ends_at, self.started = now + self.tick_ms, 0
        self.started += count

    def wait(self, count: int) -> int:
        """Put the next runs of a job in line, and return when the first of them may start."""
        assert self.per_tick is not None, "without a bound none waits"
        if self.line_at < self.ends_at:
            self.line_at, self.waiting = self.ends_at, 0
        elif self.waiting >= self.per_tick:
            self.line_at, self.waiting = self.line_at + self.tick_ms, 0
        self.waiting += min(count, self.per_tick)
        return self.line_at
