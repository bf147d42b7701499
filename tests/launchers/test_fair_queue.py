"""A queue that tenants share in turn, within limits."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kron.launchers.fair_queue import FairQueue, FairTurns, Share
from tests.strategies import law
from tests.waiting import until

LIMITS = {"most": 6, "per_tenant": 3, "per_target": 4, "reserved": 1}
TENANTS, TARGETS = ("ann", "bob", "cem", "dan", "eve"), ("", "x", "y")
SHARES = st.builds(Share, st.sampled_from(TENANTS), st.sampled_from(TARGETS))


def test_tenants_are_served_in_turn() -> None:
    queue: FairQueue[str] = FairQueue(most=100, per_tenant=100, per_target=100)
    for number in range(3):
        queue.put(f"ann {number}", Share("ann"))
    queue.put("bob 0", Share("bob"))
    taken = [queue.take() for _ in range(5)]
    assert [each and each[0] for each in taken] == ["ann 0", "bob 0", "ann 1", "ann 2", None]


def test_a_full_target_does_not_delay_another_target_of_its_tenant() -> None:
    queue: FairQueue[str] = FairQueue(most=10, per_tenant=5, per_target=1)
    for item, target in (("first", "x"), ("second", "x"), ("third", "y")):
        queue.put(item, Share("ann", target))
    assert queue.take() == ("first", Share("ann", "x"))
    assert queue.take() == ("third", Share("ann", "y"))
    assert queue.take() is None
    queue.release(Share("ann", "x"))
    assert queue.take() == ("second", Share("ann", "x"))


def test_a_tenant_has_its_reserved_slots_when_others_hold_all() -> None:
    queue: FairQueue[str] = FairQueue(most=100, per_tenant=10, per_target=20, reserved=2)
    for hostile in range(10):
        for number in range(50):
            queue.put(f"{hostile} {number}", Share(f"hostile {hostile}", "shared"))
            queue.put(f"{hostile} {number}", Share(f"hostile {hostile}", f"own {hostile}"))
    while queue.take():
        pass
    for number in range(5):
        queue.put(f"ann {number}", Share("ann", "shared"))
    taken = [queue.take() for _ in range(3)]
    assert taken == [("ann 0", Share("ann", "shared")), ("ann 1", Share("ann", "shared")), None]


def test_tenants_beyond_their_reserved_slots_get_freed_ones_in_turn() -> None:
    queue: FairQueue[str] = FairQueue(most=2, per_tenant=2, per_target=9)
    for tenant in ("ann", "bob", "cem"):
        for number in range(3):
            queue.put(f"{tenant} {number}", Share(tenant))
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item[0])
    for tenant in ("ann", "bob", "cem", "ann", "bob", "cem", "ann"):
        queue.release(Share(tenant))
        item = queue.take()
        assert item is not None
        assert queue.take() is None
        taken.append(item[0])
    assert taken == [f"{tenant} {number}" for number in range(3) for tenant in ("ann", "bob", "cem")]


@law(100)
@given(st.lists(st.one_of(SHARES, st.none()), max_size=60), st.booleans())
def test_no_item_is_lost_and_no_limit_exceeded(events: list[Share | None], at_once: bool) -> None:
    """A share is an item that comes; None ends the oldest in flight. `at_once`: it may skip the queue."""
    queue: FairQueue[int] = FairQueue(**LIMITS)
    waiting: dict[int, Share] = {}
    in_flight: list[Share] = []

    def admit() -> None:
        while (taken := queue.take()) is not None:
            item, share = taken
            # Of one tenant and target the oldest comes first.
            assert item == min(number for number, other in waiting.items() if other == share)
            assert waiting.pop(item) == share
            in_flight.append(share)
        tenants = [share.tenant for share in in_flight]
        targets = [share.target for share in in_flight]
        assert all(tenants.count(tenant) <= LIMITS["per_tenant"] for tenant in TENANTS)
        # Above the limits there are reserved slots only.
        assert len(in_flight) <= LIMITS["most"] + len(TENANTS)
        assert all(
            targets.count(target) <= LIMITS["per_target"] + len(TENANTS) for target in TARGETS if target
        )
        # Nothing waits that has a slot.
        for share in waiting.values():
            own, there = tenants.count(share.tenant), in_flight.count(share)
            in_all = len(in_flight) < LIMITS["most"] or own < LIMITS["reserved"]
            at_target = share.target == "" or targets.count(share.target) < LIMITS["per_target"]
            assert not (in_all and own < LIMITS["per_tenant"] and (at_target or there < LIMITS["reserved"]))

    for number, event in enumerate(events):
        if event is not None and at_once and queue.take_at_once(event):
            assert not waiting
            in_flight.append(event)
        elif event is not None:
            waiting[number] = event
            queue.put(number, event)
        elif in_flight:
            queue.release(in_flight.pop(0))
        assert queue.has_waiting == bool(waiting)
        admit()


async def test_turns_of_callers_who_gave_up_are_free_for_others() -> None:
    turns = FairTurns(most=2, per_tenant=1)
    held: list[str] = []
    leave = asyncio.Event()

    async def hold(tenant: str) -> None:
        async with turns.turn(tenant):
            held.append(tenant)
            await leave.wait()

    first = [asyncio.create_task(hold(tenant)) for tenant in ("ann", "ann", "bob", "cem", "dan")]
    await until(lambda: len(held) == 2)
    assert held == ["ann", "bob"]
    for task in first:
        task.cancel()
        # The next one may have been given the slot, and not run since.
        await asyncio.sleep(0)
    leave.set()
    await asyncio.gather(*first, *map(hold, "xyz"), return_exceptions=True)
    assert held[-3:] == ["x", "y", "z"]
