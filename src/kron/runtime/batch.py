"""Chunks: some of what is due, read and planned, to be written in one transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from kron.core.plan.step import Change

# The first chunk of a wake is small so that the first start comes soon; later ones make good use of a commit.
FIRST_CHUNK, CHUNK = 64, 1_000


class Chunk(NamedTuple):
    """What is to be written of some jobs.

    `again_at` is when the first of these has something to do again, `wake_at` when anything has. `is_full`,
    there may be more that is due.
    """

    changes: Sequence[Change] = ()
    again_at: int | None = None
    wake_at: int | None = None
    is_full: bool = False

    def is_last(self, now: int) -> bool:
        """Say whether nothing else is due."""
        return not self.is_full and (self.wake_at is None or self.wake_at > now)


NO_CHUNK = Chunk()


def earliest(*instants: int | None) -> int | None:
    """Return the first of some instants; None is none."""
    return min((at for at in instants if at is not None), default=None)


async def nothing() -> None:
    """Read nothing."""
