"""A tenure: what one engine owns, since when, and until when it may start anything."""

from dataclasses import dataclass, field
from math import inf

from kron.core.plan.step import JobState
from kron.core.shard import shard_of
from kron.ports import Ownership

# How long before its end a lease no longer counts, or a part of a short one: clocks differ in speed.
LEASE_MARGIN_S, LEASE_MARGIN_PART = 1.0, 0.25


@dataclass(slots=True)
class LeaseState:
    """What the store granted, and what of that was recovered and is looked after.

    `since` says when each shard was taken over, in milliseconds; `ends`, by the monotonic clock, when the
    lease no longer counts. `token` is what starts are fenced by, whatever their shard: the newest there was,
    also when its shard is somebody else's by now. It never goes back, and every later owner's is higher.
    """

    granted: Ownership
    owned: Ownership
    since: dict[int, int] = field(default_factory=dict)
    ends: float = inf
    token: int = 0

    def renewed(self, granted: Ownership, asked: float) -> frozenset[int]:
        """Take note of what is granted from now on; return the shards that have to be recovered.

        One that was lost and came back has another token, and may have been somebody else's meanwhile.
        """
        if granted.ttl_ms is not None:
            ttl_s = granted.ttl_ms / 1000
            self.ends = asked + ttl_s - min(LEASE_MARGIN_S, ttl_s * LEASE_MARGIN_PART)
        self.token = max(self.token, granted.token)
        before = self.owned.shards
        kept = {shard: token for shard, token in granted.shards.items() if before.get(shard) == token}
        self.since = {shard: self.since[shard] for shard in kept}
        self.granted, self.owned = granted, granted._replace(shards=kept)
        return frozenset(granted.shards.keys() - kept.keys())

    def recovered(self, shards: frozenset[int], now: int) -> None:
        """Look after these shards too."""
        self.since |= dict.fromkeys(shards, now)
        self.owned = self.granted

    def has(self, identity: str) -> bool:
        """Say whether a job is looked after."""
        return shard_of(identity) in self.owned.shards

    def with_since(self, cases: list[JobState]) -> list[JobState]:
        """Say of each job since when it is looked after, where that is not the same for all."""
        if len(set(self.since.values())) <= 1:
            return cases
        return [case._replace(taken_over_at=self.since.get(shard_of(case.job.identity))) for case in cases]


def no_lease(namespace: str, owner: str) -> LeaseState:
    """Return the tenure of an engine that owns nothing yet."""
    nothing = Ownership(namespace, owner, {})
    return LeaseState(nothing, nothing)
