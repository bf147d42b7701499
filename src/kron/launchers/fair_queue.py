"""A queue, tasks and turns that tenants share: each in turn, limited per tenant, per target and in all."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Item = TypeVar("Item")
Work: TypeAlias = Callable[[], Coroutine[None, None, None]]


# The target of items that have no common one; it has no limit.
NO_TARGET = ""


class Share(NamedTuple):
    """Who an item is for, and where it goes."""

    tenant: str
    target: str = NO_TARGET


class FairQueue(Generic[Item]):
    """Items that wait for a slot. A tenant or target whose slots are taken delays its own items only.

    `reserved` slots of every tenant, in all and at each target, do not depend on the other tenants: it gets
    them even when those have taken all slots together.
    """

    def __init__(self, *, most: int | None, per_tenant: int, per_target: int, reserved: int = 0) -> None:
        self._most = most
        self._per_tenant = per_tenant
        self._per_target = per_target
        self._reserved = min(reserved, per_tenant)
        self._taken = 0
        self._by_tenant: Counter[str] = Counter()
        self._by_target: Counter[str] = Counter()
        self._by_share: Counter[Share] = Counter()
        # The items of each tenant by target, and in order of turns the tenants that may have a next one.
        self._waiting: dict[str, OrderedDict[str, deque[Item]]] = {}
        self._turns: OrderedDict[str, None] = OrderedDict()
        # Tenants that need a slot which all together have taken, and those that need one of a target.
        self._squeezed: OrderedDict[str, None] = OrderedDict()
        self._blocked: dict[str, set[str]] = {}

    @property
    def has_waiting(self) -> bool:
        """Return whether items wait."""
        return bool(self._waiting)

    def take_at_once(self, share: Share) -> bool:
        """Take a slot for an item that need not wait: no other item does, and every limit has room."""
        if self._waiting or self._is_full or self._by_tenant[share.tenant] >= self._per_tenant:
            return False
        if share.target != NO_TARGET and self._by_target[share.target] >= self._per_target:
            return False
        self.admit(share)
        return True

    def put(self, item: Item, share: Share) -> None:
        """Add an item at the end of its tenant's and target's queue."""
        targets = self._waiting.setdefault(share.tenant, OrderedDict())
        targets.setdefault(share.target, deque()).append(item)
        self._turns.setdefault(share.tenant)

    def take(self) -> tuple[Item, Share] | None:
        """Return the next item that has a slot, and take the slot; None if no item has one."""
        # Those that waited for a slot come before the tenant that has just freed it.
        while line := (self._squeezed if self._squeezed and not self._is_full else self._turns):
            tenant, _ = line.popitem(last=False)
            count = self._by_tenant[tenant]
            if count >= self._per_tenant or tenant not in self._waiting:
                continue  # `release` gives it a turn again
            if self._is_full and count >= self._reserved:
                self._squeezed[tenant] = None
                continue
            target = self._open_target(tenant)
            if target is not None:
                return self._pop(tenant, target), self.admit(Share(tenant, target))
        return None

    @property
    def _is_full(self) -> bool:
        return self._most is not None and self._taken >= self._most

    def _open_target(self, tenant: str) -> str | None:
        for target in self._waiting[tenant]:
            if target == NO_TARGET or self._by_target[target] < self._per_target:
                return target
            if self._by_share[Share(tenant, target)] < self._reserved:
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

    def admit(self, share: Share) -> Share:
        """Take a slot for an item that did not wait, whatever the limits."""
        self._taken += 1
        self._by_tenant[share.tenant] += 1
        self._by_target[share.target] += 1
        self._by_share[share] += 1
        return share

    def release(self, share: Share) -> None:
        """Free the slot of an item."""
        self._taken -= 1
        _decrement(self._by_tenant, share.tenant)
        _decrement(self._by_target, share.target)
        _decrement(self._by_share, share)
        for tenant in (share.tenant, *self._blocked.pop(share.target, ())):
            if tenant in self._waiting:
                self._turns.setdefault(tenant)

    def discard(self, item: Item, share: Share) -> None:
        """Drop an item that is given up while it waits; one that has a slot is left alone."""
        with suppress(KeyError, ValueError):
            targets = self._waiting[share.tenant]
            targets[share.target].remove(item)
            if not targets[share.target]:
                del targets[share.target]
            if not targets:
                del self._waiting[share.tenant]

    def clear(self) -> None:
        """Drop the items that wait."""
        self._waiting.clear()
        self._turns.clear()
        self._squeezed.clear()
        self._blocked.clear()


Name = TypeVar("Name")


def _decrement(counts: Counter[Name], name: Name) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


class FairTasks:
    """Runs each piece of work in a task once it has a slot of its tenant and its target."""

    def __init__(self, *, most: int, per_tenant: int, per_target: int, reserved: int) -> None:
        self._queue: FairQueue[Work] = FairQueue(
            most=most, per_tenant=per_tenant, per_target=per_target, reserved=reserved
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Work, share: Share) -> None:
        """Run a piece of work in its turn."""
        self._queue.put(work, share)
        self._admit()

    def _admit(self) -> None:
        while (taken := self._queue.take()) is not None:
            work, share = taken
            task = asyncio.create_task(work())
            self._tasks.add(task)
            task.add_done_callback(partial(self._free, share))

    def _free(self, share: Share, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._queue.release(share)
        self._admit()

    def cancel(self) -> None:
        """Cancel what runs, and drop what waits."""
        self._queue.clear()
        for task in self._tasks:
            task.cancel()


class FairTurns:
    """Slots that callers hold for a while, each tenant in turn."""

    def __init__(self, *, most: int, per_tenant: int) -> None:
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(
            most=most, per_tenant=per_tenant, per_target=most
        )

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        share = Share(tenant)
        if not self._queue.take_at_once(share):
            await self._wait(share)
        try:
            yield
        finally:
            self._release(share)

    async def _wait(self, share: Share) -> None:
        slot = asyncio.get_running_loop().create_future()
        self._queue.put(slot, share)
        self._admit()
        try:
            await slot
        except asyncio.CancelledError:
            self._queue.discard(slot, share)
            if slot.done() and not slot.cancelled():
                self._release(share)
            raise

    def _release(self, share: Share) -> None:
        self._queue.release(share)
        self._admit()

    def _admit(self) -> None:
        while (taken := self._queue.take()) is not None:
            slot, share = taken
            if slot.done():
                self._queue.release(share)
            else:
                slot.set_result(None)
