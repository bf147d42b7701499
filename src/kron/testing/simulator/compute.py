"""The compute model: how a simulated environment grants compute, by the theory's classes (SPEC 2)."""

from collections.abc import Iterable

from kron.testing.simulator.rng import Rng
from kron.theory.environment import EnvironmentClass

NEVER = 1 << 62
# The most points with idle compute in one pause; more would show nothing new.
MAX_UNUSED = 60
# The longest pause of a thawing environment, and of one with dense compute.
THAWS_WITHIN_MS, DENSE_WITHIN_MS = 10_000, 40
# Each pause of a freezing environment is longer than the last by this factor; the last is half a year.
FREEZING_GROWTH, FIRST_FREEZE_MS = 8, 1_000
BURST_MS = (5_000, 60_000)
# The most pauses: after the last one, all obligations can be fulfilled.
MAX_PAUSES = {EnvironmentClass.FREEZING: 9, EnvironmentClass.BURST: 60, EnvironmentClass.THAWING: 200}


class ComputeModel:
    """Determines after how many steps the environment pauses, for how long, and where compute is idle.

    Without a class it never pauses.
    """

    def __init__(self, kind: EnvironmentClass | None, seed: int | str) -> None:
        self.kind = kind
        self._rng = Rng(seed, f"weather {kind}")
        self._pauses = 0

    def next_pause(self) -> tuple[int, int]:
        """Return the number of steps until the next pause, and its length in milliseconds."""
        if self.kind is None or self._pauses == MAX_PAUSES.get(self.kind):
            return NEVER, 0
        self._pauses += 1
        return self._drawn(self.kind)

    def _drawn(self, kind: EnvironmentClass) -> tuple[int, int]:
        rng = self._rng
        match kind:
            case EnvironmentClass.FREEZING:
                freeze_ms = FIRST_FREEZE_MS * FREEZING_GROWTH ** (self._pauses - 1)
                return 100 + rng.below(2_000), freeze_ms + rng.below(1_000)
            case EnvironmentClass.THAWING:
                return 100 + rng.below(3_000), 1 + rng.below(THAWS_WITHIN_MS)
            case EnvironmentClass.LOWER_BOUNDED:
                return 10 + rng.below(50), 1 + rng.below(DENSE_WITHIN_MS)
            case EnvironmentClass.BURST:
                least, most = BURST_MS
                return 400 + rng.below(800), least + rng.below(most - least)

    def unused(self, span_ms: int) -> Iterable[int]:
        """Return the milliseconds of an idle span that have compute."""
        match self.kind:
            case None:
                spacing = max(1_000, span_ms // MAX_UNUSED)
            case EnvironmentClass.THAWING:
                spacing = THAWS_WITHIN_MS // 2
            case EnvironmentClass.LOWER_BOUNDED:
                spacing = DENSE_WITHIN_MS
            case _:
                return ()
        return range(0, span_ms, spacing)
