"""Open promises: the demands of liveness, their limits, and whether they were kept in time."""

import heapq
from collections.abc import Callable, Hashable
from math import inf
from typing import Generic, TypeVar

from kron.theory.bound import Witnesses, size_of
from kron.theory.position import PositionKinds

K = TypeVar("K", bound=Hashable)

# The stale entries a heap may hold beyond twice the live ones.
MAX_STALE = 64


class Spending:
    """The amount spent of the resource that bounds promises: compute by time points, or wall time."""

    __slots__ = ("_counted", "before", "compute", "t", "wall")

    def __init__(self, *, wall: bool) -> None:
        self.wall = wall
        self.t: int | None = None
        self.compute = 0
        self.before = 0
        self._counted = False

    def pass_to(self, moment: PositionKinds) -> None:
        """Process a position; all Compute events of one time point count once."""
        if moment.t != self.t:
            self.t, self.before, self._counted = moment.t, self.compute, False
        if moment.compute and not self._counted:
            self._counted = True
            self.compute += 1

    @property
    def spent(self) -> int:
        """Return the total spent up to now."""
        return (self.t or 0) if self.wall else self.compute

    @property
    def base(self) -> int:
        """Return the total spent before this time point."""
        return (self.t or 0) if self.wall else self.before


class Promise(Generic[K]):
    """One promise: its start, the total that may be spent, and whether it is kept."""

    __slots__ = ("base", "kept", "key", "limit", "since", "size", "what")

    def __init__(self, key: K, since: int, base: int, size: int, limit: float, what: str) -> None:
        self.key = key
        self.since = since
        self.base = base
        self.size = size
        self.limit = limit
        self.what = what
        self.kept = False


class Promises(Generic[K]):
    """The promises of one liveness axiom."""

    def __init__(
        self,
        spending: Spending,
        witnesses: Witnesses | None,
        within: int | None,
        observe: Callable[[int, int], None] | None = None,
    ) -> None:
        self._spending = spending
        self._witnesses = witnesses
        self._within = within
        self._observe = observe
        self._open: dict[K, Promise[K]] = {}
        self._limits: list[tuple[float, int, Promise[K]]] = []
        self._count = 0
        # Kept at the current time point, to which more compute may still be added.
        self._recent: list[Promise[K]] = []
        self._recent_t: int | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: K) -> bool:
        return key in self._open

    def open(self, key: K, moment: PositionKinds, list_bits: int, what: str, *, kept: bool = False) -> None:
        """Open a promise here, unless it is open; one that is kept at once still has a limit."""
        if key in self._open and not kept:
            return
        size = size_of(list_bits, moment.t)
        base = self._spending.base
        promise = Promise(key, moment.i, base, size, base + self._allowed(size), what)
        if kept:
            self._keep(promise, moment.t)
            return
        self._open[key] = promise
        self._watch(promise)

    def tighten(self, key: K, moment: PositionKinds, list_bits: int) -> None:
        """Demand a promise again, where the limit may have become stricter (times before zero)."""
        promise = self._open.get(key)
        size = size_of(list_bits, moment.t)
        if promise is not None and self._spending.base + self._allowed(size) < promise.limit:
            promise.kept = True  # replaced by the stricter one
            del self._open[key]
            self.open(key, moment, list_bits, promise.what)

    def keep(self, key: K, t: int) -> None:
        """Mark a promise as kept."""
        promise = self._open.pop(key, None)
        if promise is not None:
            self._keep(promise, t)

    def keep_all(self, t: int) -> None:
        """Mark all promises as kept."""
        for key in list(self._open):
            self.keep(key, t)

    def pending(self) -> list[K]:
        """Return the keys of the open promises."""
        return list(self._open)

    def broken(self) -> Promise[K] | None:
        """Return a promise that is broken by now, if there is one."""
        spent = self._spending.spent
        late = next((promise for promise in self._recent if promise.limit < spent), None)
        if late is not None and self._recent_t == self._spending.t:
            return late
        while self._limits and (self._limits[0][2].kept or self._limits[0][0] < spent):
            _, _, promise = heapq.heappop(self._limits)
            if not promise.kept:
                return promise
        return None

    def settle(self) -> None:
        """Drop the promises kept at an earlier time point; call it when time has advanced."""
        if self._recent and self._recent_t != self._spending.t:
            for promise in self._recent:
                self._note(promise, self._spending.before)
            self._recent.clear()

    def finish(self) -> None:
        """Measure the remaining promises when the trace ends."""
        for promise in [*self._recent, *self._open.values()]:
            self._note(promise, self._spending.compute)

    def _note(self, promise: Promise[K], spent: int) -> None:
        if self._observe is not None:
            self._observe(spent - promise.base, promise.size)

    def _keep(self, promise: Promise[K], t: int) -> None:
        promise.kept = True
        if self._recent_t != t:
            self.settle()
        self._recent_t = t
        # The strictest one is sufficient, unless each is measured.
        if self._observe is None and self._recent:
            promise = min(promise, self._recent.pop(), key=lambda one: one.limit)
        self._recent.append(promise)

    def _watch(self, promise: Promise[K]) -> None:
        if promise.limit == inf:
            return
        self._count += 1
        heapq.heappush(self._limits, (promise.limit, self._count, promise))
        if len(self._limits) > 2 * len(self._open) + MAX_STALE:
            self._limits = [entry for entry in self._limits if not entry[2].kept]
            heapq.heapify(self._limits)

    def _allowed(self, size: int) -> float:
        if self._within is not None:
            return self._within
        return inf if self._witnesses is None else self._witnesses.allowed(size)
