"""A period: one scheduling opportunity, known by its nominal time and by nothing else."""

from dataclasses import dataclass

from kron.core.time.instant import EpochSeconds, rfc3339


@dataclass(frozen=True, slots=True)
class Period:
    """One scheduling opportunity; the same instant is the same period in whatever zone it was given."""

    nominal_time: EpochSeconds

    @property
    def period_id(self) -> str:
        """Return the canonical identifier, e.g. ``2026-03-29T01:00:00Z``."""
        return rfc3339(self.nominal_time)
