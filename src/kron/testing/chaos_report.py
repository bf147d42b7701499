"""What chaos came to, as it is told to people and to programs."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Aftermath:
    """What the chaos came to: how much there was of it, how the periods ended, and what was not lawful."""

    seed: int
    years: float
    crashes: int = 0
    stops: int = 0
    store_faults: int = 0
    calls: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return what `kron simulate --chaos --json` prints."""
        return {
            "seed": self.seed,
            "years": self.years,
            "crashes": self.crashes,
            "stops": self.stops,
            "store_faults": self.store_faults,
            "calls": self.calls,
            "jobs": {name: dict(sorted(found.items())) for name, found in self.outcomes.items()},
            "violations": self.violations,
        }
