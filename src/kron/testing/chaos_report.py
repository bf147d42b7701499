"""The report of a chaos simulation, for people and for programs."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ChaosReport:
    """The report of a chaos simulation: the faults injected, the outcomes, and the violations."""

    seed: int
    years: float
    crashes: int = 0
    stops: int = 0
    store_faults: int = 0
    calls: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of `kron simulate --chaos --json`."""
        return {
            "seed": self.seed,
            "years": self.years,
            "crashes": self.crashes,
            "stops": self.stops,
            "store_faults": self.store_faults,
            "calls": self.calls,
            "jobs": {name: dict(sorted(counts.items())) for name, counts in self.outcomes.items()},
            "violations": self.violations,
        }
