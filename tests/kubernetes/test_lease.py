"""The Lease says for how long earlier owners cannot have sent anything, without a comparison of clocks."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from kron.core.errors import OwnedError
from kron.fronts.operator.lease import LED, LeaderLease
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from kron.testing import SimulatedClock
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.cluster import START


class Rig:
    """A double, and operators with clocks of their own that stand apart by hours."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.api = ApiClient(ClusterAccess(server.url))
        self.clocks: list[SimulatedClock] = []

    def lease(self) -> LeaderLease:
        clock = SimulatedClock(START + timedelta(hours=5 * len(self.clocks)))
        self.clocks.append(clock)
        return LeaderLease(self.api, clock, namespace="default", name="kron", duration=timedelta(seconds=5))

    async def after(self, seconds: float) -> None:
        for clock in self.clocks:
            await clock.advance_to(clock.now() + timedelta(seconds=seconds))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with ApiServer().running() as server:
        rig = Rig(server)
        yield rig
        rig.api.close()


async def test_the_time_without_an_owner_is_the_sum_of_what_later_owners_measured(rig: Rig) -> None:
    first, second, third = rig.lease(), rig.lease(), rig.lease()
    token = (await first.acquire("a")).token
    await rig.after(3)
    await first.renew("a", token, high=0)
    await first.release("a", token, high=0)
    await rig.after(60)
    # It is not known how long the Lease was free: that counts for nothing.
    later = (await second.acquire("b")).token
    assert second.free_of(token) == 0
    await rig.after(4)
    assert second.free_of(token) == 4
    await second.release("b", later, high=0)
    await third.acquire("c")
    await rig.after(2)
    assert (third.free_of(token), third.free_of(later)) == (6, 2)


async def test_an_owner_that_never_renews_has_led_as_long_as_it_was_seen(rig: Rig) -> None:
    first, second, third = rig.lease(), rig.lease(), rig.lease()
    token = (await first.acquire("a")).token
    with pytest.raises(OwnedError):
        await second.acquire("b")
    await rig.after(6)
    later = (await second.acquire("b")).token
    assert second.free_of(token) == 0
    await rig.after(10)
    with pytest.raises(OwnedError):
        await third.acquire("c")
    await rig.after(7)
    await third.acquire("c")
    # The second one led for 10 s more before the third saw it, and did not note it.
    assert (third.free_of(token), third.free_of(later)) == (7, 0)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[["x", 2]]', "[[9, -50000]]"])
async def test_what_cannot_be_read_counts_for_nothing(rig: Rig, text: str) -> None:
    lease = rig.lease()
    token = (await lease.acquire("a")).token
    await lease.release("a", token, high=0)
    rig.server.edit("leases", "kron", {"metadata": {"annotations": {LED: text}}})
    await lease.acquire("b")
    assert lease.free_of(token) == 0


async def test_only_as_many_owners_are_kept_as_the_longest_wait_needs(rig: Rig) -> None:
    first = rig.lease()
    for number in range(20):
        token = (await first.acquire(str(number))).token
        await rig.after(10)
        await first.release(str(number), token, high=0)
    await first.acquire("last")
    (lease,) = rig.server.objects("leases")
    assert len(lease["metadata"]["annotations"][LED]) < 100
    assert first.free_of(0) == 60
