"""Rate limits: a token bucket of requests for each caller."""

import math
from collections import OrderedDict

from kron.fronts.service.auth.principal import ANONYMOUS, UNRESTRICTED, Caller, LimitExceededError
from kron.ports import Clock

# How many callers are tracked; the least recent one is dropped first, and starts again with a full bucket.
MAX_CALLERS = 10_000


class RateLimit:
    """Limits the requests of each caller to a rate per second, with bursts of twice the rate."""

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s = per_s
        self._burst = 2 * per_s
        self._clock = clock
        # The tokens left in each caller's bucket, and when they were counted.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def tracked(self) -> int:
        """Return how many callers are tracked."""
        return len(self._buckets)

    def admit(self, caller: Caller) -> None:
        """Count a request of an authenticated caller, or raise LimitExceededError."""
        if caller is not UNRESTRICTED and caller is not ANONYMOUS:
            self.take(caller.name)

    def take(self, name: str) -> None:
        """Count a request under a name, or raise LimitExceededError."""
        if not self._per_s:
            return
        now = self._clock.monotonic()
        left, at = self._buckets.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[name] = left, now
            wait = math.ceil((1 - left) / self._per_s)
            message = f"Rate limit exceeded: {self._per_s} requests per second; retry after {wait} s"
            raise LimitExceededError(message, wait_s=wait)
        self._buckets[name] = left - 1, now
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
