"""Trying again: waits that grow up to a bound, spread by a share that comes from the key, not from chance."""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from kron.core.errors import InvalidOptionError
from kron.ports import Clock

# The least share of a wait that is waited; the rest is spread so that not all come back at one instant.
LEAST_SHARE = 0.5
# More doublings than any sensible bound needs; beyond them the longest wait holds anyway.
MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often something is tried, and how long the waits between are: doubled each time, up to `most`."""

    tries: int = 5
    first: timedelta = timedelta(milliseconds=200)
    most: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        """Check that it ends, and that no wait is negative."""
        if self.tries < 1:
            raise InvalidOptionError(option="tries", value=self.tries, reason="must be at least 1")
        if not timedelta(0) <= self.first <= self.most:
            raise InvalidOptionError(option="first", value=self.first, reason="must lie between 0 and most")

    def wait_of(self, key: str, failed: int, *, asked: float = 0.0) -> float | None:
        """Return the seconds to wait after so many failures, or None when it is not tried again.

        `asked` is how long the other side wishes to be left alone; it gets that, within the bound.
        """
        if failed >= self.tries:
            return None
        most = self.most.total_seconds()
        whole = min(most, self.first.total_seconds() * float(2 ** min(failed - 1, MAX_DOUBLINGS)))
        spread = whole * (LEAST_SHARE + (1 - LEAST_SHARE) * share_of(key, failed))
        return min(most, max(spread, asked))


def share_of(key: str, number: int) -> float:
    """Return a number in [0, 1) that is always the same for a key and a number."""
    digest = sha256(f"{key}:retry:{number}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


async def pause(clock: Clock, seconds: float) -> None:
    """Wait for a while that no change of the wall clock makes longer or shorter."""
    until = clock.monotonic() + seconds
    # A sleep may end early but each one passes time, so this ends with the while itself.
    while (left := until - clock.monotonic()) > 0:
        # Never less than a millisecond: a remainder too small for the wall clock must not spin.
        await clock.sleep_until(clock.now() + timedelta(seconds=max(left, 0.001)))
