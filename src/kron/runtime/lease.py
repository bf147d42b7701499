"""The lease of one engine: which shards it owns, since when, and until when it may start runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from kron.core.plan.incident import FIRST, took_over
from kron.core.plan.record import IncidentRecord
from kron.core.plan.step import JobState, Ownership, Predecessor
from kron.core.shard import SHARDS, shard_of
from kron.core.version import VERSION

# A lease stops counting this long before its end, or this part of a short one: clock rates differ.
LEASE_MARGIN_S, LEASE_MARGIN_PART = 1.0, 0.25


@dataclass(slots=True)
class LeaseState:
    """The shards a store granted, and those of them that are recovered and therefore `owned`.

    `since` holds when each shard was taken over, in milliseconds; `is_even` says that it and the token are
    the same for all shards; `ends`, by the monotonic clock, is when the lease stops counting.
    """

    granted: Ownership
    owned: Ownership
    since: dict[int, int] = field(default_factory=dict)
    ends: float = inf
    is_even: bool = False

    def renewed(self, granted: Ownership, requested_at: float) -> frozenset[int]:
        """Switch to a new grant; return the shards to recover.

        A shard that was lost and regained has another token: a different worker may have owned it in between.
        """
        if granted.ttl_ms is not None:
            ttl_s = granted.ttl_ms / 1000
            self.ends = requested_at + ttl_s - min(LEASE_MARGIN_S, ttl_s * LEASE_MARGIN_PART)
        before = self.owned.shards
        kept = {shard: token for shard, token in granted.shards.items() if before.get(shard) == token}
        self.since = {shard: self.since[shard] for shard in kept}
        self.granted, self.owned = granted, granted._replace(shards=kept)
        self._compare()
        return frozenset(granted.shards.keys() - kept.keys())

    def recovered(self, shards: frozenset[int], now: int) -> None:
        """Own these shards too, from now on."""
        self.since |= dict.fromkeys(shards, now)
        self.owned = self.granted
        self._compare()

    def _compare(self) -> None:
        self.is_even = len(set(self.since.values())) <= 1 and len(set(self.granted.shards.values())) <= 1

    def has(self, identity: str) -> bool:
        """Say whether a job is in an owned shard."""
        return shard_of(identity) in self.owned.shards

    def fenced(self, states: list[JobState], tokens: Mapping[int, int]) -> list[JobState]:
        """Set the token and the take-over time of each job; needed where they differ between shards."""
        since, shards = self.since.get, [shard_of(state.job.identity) for state in states]
        return [
            state._replace(taken_over_at=since(shard), token=tokens.get(shard))
            for state, shard in zip(states, shards, strict=True)
        ]


def no_lease(namespace: str, owner: str) -> LeaseState:
    """Return the lease of an engine that owns no shard yet."""
    nothing = Ownership(namespace, owner, {})
    return LeaseState(nothing, nothing)


def take_overs(ownership: Ownership, shards: frozenset[int], now: int) -> list[IncidentRecord]:
    """Return the incidents of new shards: one for each last owner of some of them."""
    last_owners: dict[Predecessor | None, list[int]] = {}
    for shard in sorted(shards):
        last_owners.setdefault(ownership.predecessors.get(shard), []).append(shard)
    return [
        took_over(
            ownership.owner,
            now,
            since=0 if last is None else last.ended_at,
            before=None if last is None else last.owner,
            ending=FIRST if last is None else last.ending,
            shards=None if len(theirs) == SHARDS else theirs,
            version=VERSION,
        )
        for last, theirs in last_owners.items()
    ]
