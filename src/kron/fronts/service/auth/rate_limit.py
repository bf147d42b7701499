"""How often a caller may ask: each has a bucket of requests that fills again at an even rate."""

import math
from collections import OrderedDict

from kron.fronts.service.auth.principal import ANYBODY, NOBODY, Caller, TooManyError
from kron.ports import Clock

# How many callers are remembered; whoever was quiet longest is forgotten first, with a full bucket.
MAX_CALLERS = 10_000


class Rate:
    """Counts requests by caller: so many a second, and twice as many at once."""

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s = per_s
        self._burst = 2 * per_s
        self._clock = clock
        # What is left in a caller's bucket, and when that was so.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Return how many callers are remembered."""
        return len(self._buckets)

    def admit(self, caller: Caller) -> None:
        """Count a request of a caller who had to say who they are."""
        if caller is not ANYBODY and caller is not NOBODY:
            self.take(caller.name)

    def take(self, name: str) -> None:
        """Count a request, or raise if it is one too many."""
        if not self._per_s:
            return
        now = self._clock.monotonic()
        left, at = self._buckets.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[name] = left, now
            wait = math.ceil((1 - left) / self._per_s)
            raise TooManyError(f"More than {self._per_s} requests a second; try again later", wait_s=wait)
        self._buckets[name] = left - 1, now
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
