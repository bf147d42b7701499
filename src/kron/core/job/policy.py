"""Policies: what happens to a period that is due, and to a run that has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache

from kron.core.errors import InvalidOptionError
from kron.core.fields import row, table_of
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.value_types import DURATION, FLAG, INSTANT, choice, names_of, nullable, whole_number

# How far ahead due schedules are loaded, the width of `spread`, and the grace of a take-over.
LOOKAHEAD_MS = 60_000
# The longest lookahead that can be configured; the jitter of a job is at most the configured one.
MAX_LOOKAHEAD_MS = 3_600_000
# The run timeout of a run that reports its end from outside the worker, where its policy has none.
REMOTE_TIMEOUT = timedelta(hours=24)
# Upper bounds of numbers: more would let one job fill the store or the memory.
MAX_QUEUE, MAX_CATCHUP, MAX_COUNT = 10_000, 10_000, 1_000_000_000
# How many different policies are kept ready; many jobs share few.
MAX_POLICIES = 1_000


class Overlap(StrEnum):
    """What happens to a period that is due while an earlier run of the job is active."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    BUFFER_ONE = "buffer_one"
    REPLACE = "replace"


class Catchup(StrEnum):
    """Which periods still run that were missed while no worker was running."""

    NONE = "none"
    ONCE = "once"
    ALL = "all"
    SPREAD = "spread"


class OnOrphan(StrEnum):
    """What happens to a run whose worker died and that no other worker can adopt."""

    RESTART = "restart"
    FAIL = "fail"


# SPEC 4 says `forbid` for what SPEC 3 calls `skip`; each is accepted, and SPEC 4's word is written.
OVERLAP_NAMES = {overlap.value: overlap for overlap in Overlap} | {"forbid": Overlap.SKIP}
# SPEC 3's word for `all`.
CATCHUP_NAMES = {catchup.value: catchup for catchup in Catchup} | {"fire_immediately": Catchup.ALL}
COUNT = nullable(whole_number(1, MAX_COUNT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One model for all fronts; the defaults are those of a `Job` (SPEC 4).

    A new field is a row here and the code that uses it; reader, schema and documentation follow.
    """

    overlap: Overlap = field(
        default=Overlap.SKIP,
        metadata=row(
            choice(OVERLAP_NAMES, written={Overlap.SKIP: "forbid"}),
            "while an earlier run is active: `forbid` (or `skip`) skips the new one, `allow` starts it too, "
            "`replace` ends the active one first, `queue` keeps it until the active one ends, `buffer_one` "
            "keeps only the newest",
            words=("concurrency", "overlap"),
            service_word="overlap_policy",
        ),
    )
    deadline: timedelta | None = field(
        default=timedelta(0),
        metadata=row(nullable(DURATION), "how late a start may be, in whole seconds; `null`: never too late"),
    )
    suspend: bool = field(
        default=False,
        metadata=row(
            FLAG,
            "`true`: no period starts until an edit says `false`; those in between are judged then",
            service_word=None,
        ),
    )
    catchup: Catchup = field(
        default=Catchup.ALL,
        metadata=row(
            choice(CATCHUP_NAMES),
            "which periods missed during an outage run: `none`, `once` (the newest), `all` (or "
            "`fire_immediately`), `spread` (all, spread over the lookahead)",
            service_word="catchup_policy",
            sparse=True,
        ),
    )
    on_orphan: OnOrphan = field(
        default=OnOrphan.FAIL,
        metadata=row(
            choice(names_of(OnOrphan)),
            "what happens to a run whose worker died: `fail`, or `restart` as the next attempt",
            sparse=True,
        ),
    )
    jitter_ms: int = field(
        default=0,
        metadata=row(
            whole_number(0, MAX_LOOKAHEAD_MS),
            "moves each start by up to this many milliseconds either way; derived from a seed, so a period "
            "always has the same offset; at most the lookahead, 60,000 unless configured",
            sparse=True,
        ),
    )
    retry_delay: timedelta | None = field(
        default=None,
        metadata=row(
            nullable(DURATION),
            "delay between a failed attempt and the next; the next period pre-empts a waiting retry; `null`: "
            "no retries",
            sparse=True,
        ),
    )
    run_timeout: timedelta | None = field(
        default=None,
        metadata=row(
            nullable(DURATION),
            "after this a run is ended with the result `lost`; `null`: no timeout, except 24 hours for a "
            "launcher with `reports: true`",
            sparse=True,
        ),
    )
    replace_grace: timedelta = field(
        default=timedelta(seconds=10),
        metadata=row(DURATION, "how long `replace` waits for the active run to end", sparse=True),
    )
    queue_max: int = field(
        default=100,
        metadata=row(
            whole_number(1, MAX_QUEUE), "how many periods `queue` keeps; more are skipped", sparse=True
        ),
    )
    max_catchup: int = field(
        default=1_000,
        metadata=row(
            whole_number(1, MAX_CATCHUP), "how many missed periods run at most, the newest", sparse=True
        ),
    )
    start_at: EpochSeconds | None = field(
        default=None,
        metadata=row(nullable(INSTANT), "the earliest nominal time, included", sparse=True),
    )
    end_at: EpochSeconds | None = field(
        default=None,
        metadata=row(nullable(INSTANT), "the latest nominal time, included", sparse=True),
    )
    remaining: int | None = field(
        default=None,
        metadata=row(COUNT, "how many periods are executed before the job is finished", sparse=True),
    )
    pause_after_failures: int | None = field(
        default=None,
        metadata=row(COUNT, "pauses the job after this many failures in a row", sparse=True),
    )

    def __post_init__(self) -> None:
        """Check every value; a choice may be given by its name."""
        POLICY.check(self)
        if self.start_at is not None and self.end_at is not None and self.start_at > self.end_at:
            raise InvalidOptionError(option="end_at", value=rfc3339(self.end_at), reason=END_BEFORE_START)

    def to_dict(self) -> dict[str, object]:
        """Return the policy in SPEC 4's words; of the fields it does not know, those that are not default."""
        return POLICY.write(self)


END_BEFORE_START = "lies before start_at"
POLICY = table_of(Policy)
# The policy of a definition that names none, by the front that reads it. A job file has a job's
# defaults wherever it runs; a service's settings may change three of its own.
FRONT_DEFAULTS: Mapping[str, Policy] = {
    "job": Policy(),
    "service": Policy(overlap=Overlap.SKIP, catchup=Catchup.NONE, deadline=None),
    "scheduler": Policy(
        overlap=Overlap.BUFFER_ONE, catchup=Catchup.ONCE, deadline=None, on_orphan=OnOrphan.RESTART
    ),
}


@lru_cache(maxsize=MAX_POLICIES)
def policy_of(values: tuple[tuple[str, object], ...]) -> Policy:
    """Return the policy with some values; equal definitions share one."""
    return Policy(**dict(values))  # type: ignore[arg-type]
