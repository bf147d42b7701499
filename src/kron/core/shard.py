"""Shards: the fixed partitions of a namespace that workers lease, and who owns them."""

from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

# Never changes: a job's shard is computed, not stored.
SHARDS = 64


def shard_of(identity: str) -> int:
    """Return the shard of a job."""
    return crc32(identity.encode()) % SHARDS


class Ownership(NamedTuple):
    """The shards of a namespace that one owner leases, each with the fencing token of its writes.

    A lease expires after `ttl_ms` unless renewed; None lasts as long as the process. `busy` shards have runs
    that no other worker can adopt, so they stay with their owner. `high` is the latest instant written in the
    namespace: the engine's time never goes back behind it.
    """

    namespace: str
    owner: str
    shards: Mapping[int, int]
    ttl_ms: int | None = None
    busy: frozenset[int] = frozenset()
    high: int = 0

    @property
    def token(self) -> int:
        """Return the newest token: no later owner of any of these shards gets a lower one."""
        return max(self.shards.values(), default=0)
