"""A queue that tenants share: each in turn, with limits for one tenant, one target and all together."""

from collections import Counter, OrderedDict, deque
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
# The target of items that have no common one; it has no limit.
NO_TARGET = ""


class Share(NamedTuple):
    """Who an item is for, and where it goes."""

    tenant: str
    target: str = NO_TARGET


class FairQueue(Generic[Item]):
    """Items that wait for a slot. A tenant or target whose slots are taken delays its own items only."""

    def __init__(self, *, most: int, per_tenant: int, per_target: int) -> None:
        self._free = most
        self._per_tenant = per_tenant
        self._per_target = per_target
        self._by_tenant: Counter[str] = Counter()
        self._by_target: Counter[str] = Counter()
        # The items of each tenant by target, and in order of turns the tenants that may have a next one.
        self._waiting: dict[str, OrderedDict[str, deque[Item]]] = {}
        self._turns: OrderedDict[str, None] = OrderedDict()
        # Tenants with items for a target without a free slot.
        self._blocked: dict[str, set[str]] = {}

    def put(self, item: Item, share: Share) -> None:
        """Add an item at the end of its tenant's and target's queue."""
        targets = self._waiting.setdefault(share.tenant, OrderedDict())
        targets.setdefault(share.target, deque()).append(item)
        self._turns.setdefault(share.tenant)

    def take(self) -> tuple[Item, Share] | None:
        """Return the next item that has a slot, and take the slot; None if no item has one."""
        while self._free and self._turns:
            tenant, _ = self._turns.popitem(last=False)
            target = self._open_target(tenant) if self._by_tenant[tenant] < self._per_tenant else None
            if target is None:
                continue  # `release` gives it a turn again
            item = self._pop(tenant, target)
            self._free -= 1
            self._by_tenant[tenant] += 1
            self._by_target[target] += 1
            return item, Share(tenant, target)
        return None

    def _open_target(self, tenant: str) -> str | None:
        for target in self._waiting[tenant]:
            if target == NO_TARGET or self._by_target[target] < self._per_target:
                return target
            self._blocked.setdefault(target, set()).add(tenant)
        return None

    def _pop(self, tenant: str, target: str) -> Item:
        targets = self._waiting[tenant]
        item = targets[target].popleft()
        if targets[target]:
            targets.move_to_end(target)
        else:
            del targets[target]
        if targets:
            self._turns[tenant] = None
        else:
            del self._waiting[tenant]
        return item

    def release(self, share: Share) -> None:
        """Free the slot of an item."""
        self._free += 1
        for counts, name in ((self._by_tenant, share.tenant), (self._by_target, share.target)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
        for tenant in (share.tenant, *self._blocked.pop(share.target, ())):
            if tenant in self._waiting:
                self._turns.setdefault(tenant)

    def clear(self) -> None:
        """Drop the items that wait."""
        self._waiting.clear()
        self._turns.clear()
        self._blocked.clear()
