"""Seeds: from a job and a period to a reproducible stream of numbers (SPEC 4: Seed Semantics)."""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from kron.core.fields import FieldReader, ValueType, parse_text, row, table_of
from kron.core.time.instant import EpochSeconds
from kron.core.time.zone import Zone, wall_time
from kron.core.value_types import choice, names_of

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
# Scales 53 bits to a number in [0, 1).
UNIT = 1 / (1 << 53)


class SeedStrategy(StrEnum):
    """Which periods share a seed: none, those of a day, or those of an ISO week."""

    STABLE = "stable"
    DAILY = "daily"
    WEEKLY = "weekly"


@dataclass(frozen=True, slots=True)
class Seed:
    """The part of a definition that seeds its decisions, beside the identity."""

    strategy: SeedStrategy = field(
        default=SeedStrategy.STABLE,
        metadata=row(
            choice(names_of(SeedStrategy)),
            "which periods share a seed: none (`stable`), those of one local day (`daily`), those of one ISO "
            "week (`weekly`)",
        ),
    )
    salt: str = field(
        default="",
        metadata=row(
            ValueType(schema={"type": "string"}, parse=parse_text),
            "any text; another salt draws other times for the same job",
        ),
    )

    def to_dict(self) -> dict[str, object]:
        """Return strategy and salt."""
        return SEED.write(self)


SEED = table_of(Seed)


def read_seed(reader: FieldReader) -> Seed:
    """Return the seed of a definition."""
    return SEED.build(reader, Seed)


def period_key(strategy: SeedStrategy, period_id: str, nominal_time: EpochSeconds, zone: Zone) -> str:
    """Return the period's part of its seed; days and weeks are those of the job's zone."""
    if strategy is SeedStrategy.STABLE:
        return period_id
    local = wall_time(nominal_time, zone.offset_at(nominal_time))
    if strategy is SeedStrategy.DAILY:
        return local.date().isoformat()
    year, week, _ = local.isocalendar()
    return f"{year:04}-W{week:02}"


def seed_hash(identity: str, key: str, salt: str) -> str:
    """Return the canonical seed: hexadecimal SHA-256 over identity, key and salt."""
    return sha256(f"{identity}\n{key}\n{salt}".encode()).hexdigest()


def state_of(seed: str) -> int:
    """Return the generator's first state: the first eight bytes of the seed, big-endian."""
    return int(seed[:16], 16)


def splitmix64(state: int) -> tuple[int, int]:
    """Return the generator's next state and next number (SplitMix64)."""
    state = (state + GAMMA) & MASK
    number = state
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return state, number ^ number >> 31


def unit_of(number: int) -> float:
    """Return a generated number as one in [0, 1), from its upper 53 bits."""
    return (number >> 11) * UNIT


def jitter_of(identity: str, period_id: str, jitter_ms: int) -> int:
    """Return a period's own offset in [-jitter_ms, +jitter_ms]: seeded, not random."""
    if jitter_ms == 0:
        return 0
    _, number = splitmix64(state_of(sha256(f"{identity}\n{period_id}\njitter".encode()).hexdigest()))
    return min(int(unit_of(number) * (2 * jitter_ms + 1)), 2 * jitter_ms) - jitter_ms
