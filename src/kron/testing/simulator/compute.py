"""The weather: how an environment grants compute. The classes of the theory, made on purpose (SPEC 2)."""

from collections.abc import Iterable

from kron.testing.simulator.rng import Draw
from kron.theory.environment import EnvironmentClass

NEVER = 1 << 62
# Idle compute beyond so many points of one pause says nothing new.
MAX_UNUSED = 60
# A world that thaws is never frozen for longer; one whose compute is dense, not even for this long.
THAWS_WITHIN_MS, DENSE_WITHIN_MS = 10_000, 40
# Each pause of a world that freezes is so many times as long as the one before it; the last has half a year.
FREEZING_GROWTH, FIRST_FREEZE_MS = 8, 1_000
BURST_MS = (5_000, 60_000)
# So often the world stands still: one that did so for ever would leave no time in which all is done.
MAX_PAUSES = {EnvironmentClass.FREEZING: 9, EnvironmentClass.BURST: 60, EnvironmentClass.THAWING: 200}


class Weather:
    """Says after how many steps the world stands still, for how long, and what is granted to no purpose.

    Fair weather, without a class, never freezes.
    """

    def __init__(self, kind: EnvironmentClass | None, seed: int | str) -> None:
        self.kind = kind
        self._draw = Draw(seed, f"weather {kind}")
        self._pauses = 0

    def next_pause(self) -> tuple[int, int]:
        """Return how many steps are taken until the next pause, and its length in milliseconds."""
        if self.kind is None or self._pauses == MAX_PAUSES.get(self.kind):
            return NEVER, 0
        self._pauses += 1
        return self._drawn(self.kind)

    def _drawn(self, kind: EnvironmentClass) -> tuple[int, int]:
        draw = self._draw
        match kind:
            case EnvironmentClass.FREEZING:
                freeze_ms = FIRST_FREEZE_MS * FREEZING_GROWTH ** (self._pauses - 1)
                return 100 + draw.below(2_000), freeze_ms + draw.below(1_000)
            case EnvironmentClass.THAWING:
                return 100 + draw.below(3_000), 1 + draw.below(THAWS_WITHIN_MS)
            case EnvironmentClass.LOWER_BOUNDED:
                return 10 + draw.below(50), 1 + draw.below(DENSE_WITHIN_MS)
            case EnvironmentClass.BURST:
                least, most = BURST_MS
                return 400 + draw.below(800), least + draw.below(most - least)

    def unused(self, span_ms: int) -> Iterable[int]:
        """Return which of the milliseconds that pass while nobody has anything to do have compute."""
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
