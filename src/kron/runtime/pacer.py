"""The pacer: the catch-up that an engine has written in a tick, and what it has planned but not written."""

from collections.abc import Sequence

from kron.core.plan.pace import Pace
from kron.core.plan.step import Change, Limits


class Pacer:
    """Counts catch-up once: a change counts while it is planned, and afterwards if it was written.

    A change that the store refused is planned again, and one whose fate is unknown counts until it is known.
    """

    def __init__(self, limits: Limits) -> None:
        self._written = Pace(limits.catchup_per_tick, limits.tick_ms)
        self._planned: list[tuple[int, Change]] = []

    @property
    def pace(self) -> Pace:
        """Return the pace at which the next changes are planned."""
        pace = self._written
        for now, change in self._planned:
            pace = _after(pace, now, change)
        return pace

    def plan(self, changes: Sequence[Change], now: int) -> None:
        """Count the catch-up of changes that were planned at an instant."""
        self._planned += [(now, change) for change in changes if change.caught_up or change.waiting]

    def settle(self, changes: Sequence[Change], stale_jobs: frozenset[str]) -> None:
        """Keep what was written of some planned changes, and forget what was refused."""
        if self._planned:
            settled = set(map(id, changes))
            self._keep([each for each in changes if each.job.identity not in stale_jobs])
            self._planned = [(now, change) for now, change in self._planned if id(change) not in settled]

    def resolve(self, written: Sequence[Change]) -> None:
        """Keep these planned changes, and forget all others: nothing else was written."""
        if self._planned:
            self._keep(written)
            self._planned = []

    def _keep(self, written: Sequence[Change]) -> None:
        kept = set(map(id, written))
        for now, change in self._planned:
            if id(change) in kept:
                self._written = _after(self._written, now, change)


def _after(pace: Pace, now: int, change: Change) -> Pace:
    return pace.after(now, starts=change.caught_up, waits=change.waiting)
