"""Shards: the fixed partitions of a namespace that workers lease."""

from zlib import crc32

# Never changes: a job's shard is computed, not stored.
SHARDS = 64


def shard_of(identity: str) -> int:
    """Return the shard of a job."""
    return crc32(identity.encode()) % SHARDS
