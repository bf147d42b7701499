"""Shards: the parts a namespace is divided into, so that several workers can share it."""

from zlib import crc32

# Fixed for ever: where a job belongs is computed, not remembered.
SHARDS = 64


def shard_of(identity: str) -> int:
    """Return the shard a job belongs to."""
    return crc32(identity.encode()) % SHARDS
