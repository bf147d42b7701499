"""The hand: executions that are under way in this program, and that nobody else could look after."""

from collections.abc import Callable, Iterable, Sequence

from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunReport
from kron.core.plan.step import Change
from kron.core.shard import shard_of


class LocalRuns:
    """What was started here and whose end is not on record yet. Its shards are not given to others."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}

    def take(self, run: RunRecord) -> None:
        """Note a start."""
        self._held[run.key] = run.identity

    def let_go(self, changes: Iterable[Change]) -> None:
        """Note what was written: what is no longer in flight is over."""
        for change in changes:
            for run in change.updates:
                if not run.in_flight:
                    self._held.pop(run.key, None)

    def forget(self, reports: Sequence[RunReport], known: Iterable[str]) -> None:
        """Note what is said of jobs that are gone."""
        names = frozenset(known)
        for report in reports:
            if report.identity not in names:
                self._held.pop(report.key, None)

    def keep_only(self, is_mine: Callable[[str], bool]) -> None:
        """Forget jobs that others look after by now."""
        self._held = {key: name for key, name in self._held.items() if is_mine(name)}

    def shards(self) -> frozenset[int]:
        """Return the shards that something is held of."""
        return frozenset(map(shard_of, set(self._held.values())))
