"""Retries: delays that double up to a bound, with jitter derived from the key instead of from chance."""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from kron.core.errors import InvalidOptionError
from kron.ports import Clock

# The least part of a delay; the rest is jitter, so that retries do not arrive at the same instant.
MIN_SHARE = 0.5
# More doublings than any sensible bound needs; the longest delay applies beyond them.
MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often an operation is tried, and the delays between: doubled each time, up to `max_delay`."""

    max_attempts: int = 5
    first_delay: timedelta = timedelta(milliseconds=200)
    max_delay: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        """Check that the retries end, and that no delay is negative."""
        if self.max_attempts < 1:
            reason = "must be at least 1"
            raise InvalidOptionError(option="max_attempts", value=self.max_attempts, reason=reason)
        if not timedelta(0) <= self.first_delay <= self.max_delay:
            reason = "must lie between 0 and max_delay"
            raise InvalidOptionError(option="first_delay", value=self.first_delay, reason=reason)

    def delay_after(self, key: str, failures: int, *, requested_s: float = 0.0) -> float | None:
        """Return the seconds before the next attempt, or None when there is none.

        `requested_s` is a delay the server asks for; it is honoured within the bound.
        """
        if failures >= self.max_attempts:
            return None
        longest = self.max_delay.total_seconds()
        whole = min(longest, self.first_delay.total_seconds() * float(2 ** min(failures - 1, MAX_DOUBLINGS)))
        jittered = whole * (MIN_SHARE + (1 - MIN_SHARE) * share_of(key, failures))
        return min(longest, max(jittered, requested_s))


def share_of(key: str, number: int) -> float:
    """Return a number in [0, 1) that is always the same for a key and a number."""
    digest = sha256(f"{key}:retry:{number}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


async def sleep_for(clock: Clock, seconds: float) -> None:
    """Sleep for a time that no change of the wall clock makes longer or shorter."""
    until = clock.monotonic() + seconds
    # A sleep may end early, but each one passes some time.
    while (left := until - clock.monotonic()) > 0:
        # Never less than a millisecond: a remainder too small for the wall clock must not spin.
        await clock.sleep_until(clock.now() + timedelta(seconds=max(left, 0.001)))
