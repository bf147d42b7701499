"""Leases that end, come back and are shared: only the owner starts runs, and no run is left behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import OwnedError, StoreError
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.record import JobRecord, Result, RunRecord, RunStatus
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, LoadResult, Ownership, WriteResult
from kron.core.shard import SHARDS, shard_of
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.stores.postgres.store import PostgresStore
from kron.testing.clock import SimulatedClock
from tests.faults.rig import MILLISECOND, MINUTE, NOON, SECOND, SPACE, Rig, job_of, rig_of
from tests.waiting import until

FAR = 1 << 50
TTL_MS = 30_000


class WatchedStore(PostgresStore):
    """A store that does something more after a commit, and whose list of executions can fail."""

    before_settle: Callable[[], Awaitable[None]] | None = None
    after_settle: Callable[[], Awaitable[None]] | None = None
    after_load: Callable[[], Awaitable[None]] | None = None
    failing = 0
    is_away = False

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        self._check_away()
        return await super().renew(ownership, now=now, balance=balance)

    def _check_away(self) -> None:
        if self.is_away:
            raise StoreError("it is away")

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        loaded = await super().load(ownership, until=until, limit=limit, named=named, without=without)
        if loaded.cases and self.after_load is not None:
            hook, self.after_load = self.after_load, None
            await hook()
        return loaded

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        self._check_away()
        if changes and self.before_settle is not None:
            before, self.before_settle = self.before_settle, None
            await before()
        settled = await super().settle(ownership, changes, now=now)
        hook, self.after_settle = self.after_settle, None
        if hook is not None:
            await hook()
        return settled

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        if self.failing:
            self.failing -= 1
            raise StoreError("it fails")
        return await super().in_flight(ownership)


class LateClock(SimulatedClock):
    """A clock whose monotonic time can be moved on its own, as a frozen process finds it."""

    frozen_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.frozen_s


@pytest.fixture
async def rig(postgres_url: str) -> AsyncIterator[Rig]:
    async with rig_of(WatchedStore(postgres_url, ttl_ms=TTL_MS), LateClock(NOON + MILLISECOND)) as made:
        yield made


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, ttl_ms=TTL_MS)
    yield store
    await store.close()


def watched(rig: Rig) -> WatchedStore:
    assert isinstance(rig.store, WatchedStore)
    return rig.store


def one_of_each_shard() -> list[str]:
    found: dict[int, str] = {}
    for number in range(50 * SHARDS):
        found.setdefault(shard_of(f"job-{number}"), f"job-{number}")
    assert len(found) == SHARDS
    return list(found.values())


async def advance(rig: Rig, by: timedelta) -> None:
    assert isinstance(rig.clock, SimulatedClock)
    await rig.clock.advance_to(NOON + by)


async def hangs(launch: Launch) -> None:
    await asyncio.Event().wait()


async def test_a_start_that_was_withheld_is_not_made_up_for_under_somebody_elses_lease(
    rig: Rig, other: PostgresStore
) -> None:
    async def freezes() -> None:
        assert isinstance(rig.clock, LateClock)
        rig.clock.frozen_s += 2 * TTL_MS
        await other.acquire(SPACE, "other", now=FAR)

    await rig.add(job_of())
    await rig.run()
    watched(rig).after_settle = freezes
    await advance(rig, 5 * MINUTE)
    assert "start_withheld" in rig.journal.events()
    assert rig.calls == []
    assert await rig.seen() == ["STARTED due"]


async def test_a_start_whose_write_failed_is_made_once_although_the_lease_lapsed_until_it_was_written(
    rig: Rig,
) -> None:
    """The worker stalls, its write fails, and it plans the same start again before its lease is renewed.

    The end of another run is reported in between; it waits for the renewal too.
    """
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    async def stalls_and_fails() -> None:
        assert isinstance(rig.clock, LateClock)
        rig.clock.frozen_s += 2 * TTL_MS
        gate.set()
        raise StoreError("the connection was lost")

    # Between two renewals, which are due every 10 s.
    await rig.add(job_of(text="5 * * * * *"), callback=waits)
    await rig.run()
    await advance(rig, 10 * SECOND)
    watched(rig).before_settle = stalls_and_fails
    await advance(rig, MINUTE + 50 * SECOND)
    assert rig.starts()[1:] == [65]
    assert await rig.seen() == ["SUCCESS due", "SUCCESS due"]


async def test_a_stop_during_an_outage_longer_than_the_lease_loses_no_end(rig: Rig) -> None:
    """The store answers again before the drain timeout: what ended in between is written then."""
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    await rig.add(job_of(), callback=waits)
    await rig.run()
    await advance(rig, MINUTE)
    watched(rig).is_away = True
    gate.set()
    await advance(rig, 3 * MINUTE)
    stopping = asyncio.create_task(rig.engine.stop())
    await advance(rig, 3 * MINUTE + 10 * SECOND)
    watched(rig).is_away = False
    await advance(rig, 4 * MINUTE)
    await stopping
    assert (await rig.seen())[0] == "SUCCESS due"


async def test_a_shard_is_given_away_although_the_answer_to_the_end_of_its_run_was_lost(
    postgres_url: str,
) -> None:
    async with rig_of(WatchedStore(postgres_url), LateClock(NOON + MILLISECOND), balance=True) as rig:
        gate = asyncio.Event()

        async def waits(launch: Launch) -> None:
            await gate.wait()

        async def fails() -> None:
            raise StoreError("the connection was lost")

        await rig.add(job_of(text="1 * * * *"), callback=waits)
        await rig.run()
        await advance(rig, MINUTE)
        assert rig.engine._dispatcher.busy_shards() == {shard_of("job")}
        watched(rig).after_settle = fails
        gate.set()
        await advance(rig, 2 * MINUTE)
        assert await rig.seen() == ["SUCCESS due"]
        assert rig.engine._dispatcher.busy_shards() == frozenset()


async def test_whoever_was_taken_over_from_waits_and_goes_on_when_it_may(
    rig: Rig, other: PostgresStore
) -> None:
    """Its next commit fails, the end of its run is discarded, and later it takes over again."""
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    await rig.add(job_of(on_orphan="restart", overlap=Overlap.SKIP), callback=waits)
    await rig.run()
    await advance(rig, MINUTE)
    later = await other.acquire(SPACE, "other", now=FAR)
    gate.set()
    await advance(rig, 3 * MINUTE)
    assert rig.starts() == [60]
    assert await rig.seen() == ["STARTED due"]
    assert rig.engine.health.state == "running"
    await other.release(later)
    await advance(rig, 4 * MINUTE + 30 * SECOND)
    assert rig.starts()[-1] == 240
    assert {token for _, _, attempt, token in rig.calls if attempt == 1} != {later.token}
    (first, *_) = await rig.runs()
    assert (first.status, first.result) == (RunStatus.FAILED, Result.ORPHANED)


async def test_a_take_over_that_follows_a_renewal_within_one_wake_is_survived_too(
    postgres_url: str, other: PostgresStore
) -> None:
    """In real time: the lease of a wake is renewed while it runs, and then lost."""
    store = WatchedStore(postgres_url, ttl_ms=300, margin_ms=100)
    async with rig_of(store, SystemClock()) as rig:

        async def renews_and_loses() -> None:
            await asyncio.sleep(0.3)
            taken.append(await other.acquire(SPACE, "other", now=FAR))

        taken: list[Ownership] = []
        await rig.add(job_of(text="* * * * * *"))
        await rig.run()
        store.after_load = renews_and_loses
        await until(lambda: "ownership_lost" in rig.journal.events())
        assert rig.engine.health.state == "running"
        assert rig.calls == []
        await other.release(taken[0])
        await until(lambda: len(rig.calls) > 0)
        assert rig.calls[0][3] > taken[0].token


async def test_what_could_not_be_recovered_at_once_is_recovered_with_the_next_renewal(
    rig: Rig, other: PostgresStore
) -> None:
    await rig.add(job_of(), callback=hangs)
    await rig.run()
    await advance(rig, MINUTE)
    later = await other.acquire(SPACE, "other", now=FAR)
    await advance(rig, MINUTE + 10 * SECOND)
    watched(rig).failing = 2
    await other.release(later)
    await advance(rig, MINUTE + 50 * SECOND)
    assert watched(rig).failing == 0
    (run,) = await rig.runs()
    assert (run.status, run.result) == (RunStatus.FAILED, Result.ORPHANED)


async def test_a_shard_is_not_given_back_while_something_of_it_runs_here(postgres_url: str) -> None:
    names = one_of_each_shard()
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(PostgresStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        for one in (first, second):
            one.serve(*names, callback=waits)
        await first.add(*(job_of(name, "*/5 * * * *", on_orphan="restart") for name in names), callback=waits)
        await first.run()
        await advance(first, 5 * MINUTE)
        with pytest.raises(OwnedError):
            await second.run()
        await advance(first, 6 * MINUTE)
        with pytest.raises(OwnedError):
            await second.run()
        gate.set()
        await advance(first, 7 * MINUTE)
        await second.run()
        await advance(first, 10 * MINUTE)
        called = [call[:3] for call in (*first.calls, *second.calls)]
        assert len(called) == len(set(called)) == 2 * SHARDS
        assert len(second.calls) == SHARDS // 2
        for name in names[:10]:
            assert await first.seen(name) == ["SUCCESS due"] * 2


async def test_a_worker_that_stops_hands_over_each_shard_when_nothing_of_it_runs_here(
    postgres_url: str,
) -> None:
    """Only what still runs holds its shard back; everything else is started by the other worker meanwhile."""
    names = one_of_each_shard()
    slow = names[0]
    gate = asyncio.Event()

    async def waits(launch: Launch) -> None:
        await gate.wait()

    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(PostgresStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        second.serve(*names)
        await first.add(*(job_of(name, "*/5 * * * *") for name in names))
        first.serve(slow, callback=waits)
        await first.run()
        await advance(first, 5 * MINUTE)
        stopping = asyncio.create_task(first.engine.stop())
        await advance(first, 6 * MINUTE)
        await second.run()
        assert await shards_of(second.store, "b") == set(range(SHARDS)) - {shard_of(slow)}
        await advance(first, 10 * MINUTE)
        assert {name for name, *_ in second.calls} == set(names[1:])
        assert not stopping.done()
        gate.set()
        await advance(first, 11 * MINUTE)
        await stopping
        await advance(second, 15 * MINUTE)
        assert await shards_of(second.store, "b") == set(range(SHARDS))
        called = [call[:3] for call in (*first.calls, *second.calls)]
        assert len(called) == len(set(called)) == 3 * SHARDS


async def test_a_take_over_recovers_its_own_shards_and_no_others(postgres_url: str) -> None:
    """A run in a shard that was owned throughout is no orphan when more shards are taken over."""
    names = one_of_each_shard()
    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(PostgresStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        await first.add(*(job_of(name, "*/5 * * * *") for name in names), callback=hangs)
        second.serve(*names, callback=hangs)
        await first.run()
        with pytest.raises(OwnedError):
            await second.engine.acquire()
        await advance(first, MINUTE)
        await second.run()
        await advance(first, 5 * MINUTE)
        theirs = {name for name, *_ in second.calls}
        assert len(theirs) == SHARDS // 2
        second.engine.kill()
        await free(second.store, "b")
        await advance(first, 6 * MINUTE)
        for name in names:
            (run,) = await first.runs(name)
            assert run.result is (Result.ORPHANED if name in theirs else None)


async def test_a_wake_during_which_shards_are_lost_starts_under_the_token_of_the_jobs_shard(
    postgres_url: str,
) -> None:
    """The newest of all tokens would not be that of its shard, and the start would never be sent."""
    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(WatchedStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        await first.run()
        with pytest.raises(OwnedError):
            await second.engine.acquire()
        await advance(first, MINUTE)
        await second.run()
        theirs = await shards_of(first.store, "b")
        name = next(name for name in one_of_each_shard() if shard_of(name) not in theirs)
        await first.add(job_of(name, "*/5 * * * *"))
        second.engine.kill()
        await free(first.store, "b")
        await advance(first, 2 * MINUTE)
        assert len(await shards_of(first.store, "a")) == SHARDS

        async def loses_them_again() -> None:
            async with watched(first)._reading() as connection:
                await connection.execute(
                    "UPDATE leases SET owner = 'c', token = token + 1 WHERE shard = ANY (%s)", [list(theirs)]
                )
            await first.engine._renew()

        watched(first).after_load = loses_them_again
        await advance(first, 5 * MINUTE)
        assert await first.seen(name) == ["SUCCESS due"]


async def free(store: object, owner: str) -> None:
    """End a worker's leases at once, as time would."""
    assert isinstance(store, PostgresStore)
    async with store._reading() as connection:
        await connection.execute("UPDATE leases SET expires_at = 0 WHERE owner = %s", [owner])
        await connection.execute("UPDATE workers SET expires_at = 0 WHERE owner = %s", [owner])


async def test_each_shard_is_judged_by_its_own_take_over(postgres_url: str) -> None:
    """Periods before a take-over were missed in the shards taken over, and only late in the others."""
    names = one_of_each_shard()
    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(PostgresStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        await first.add(*(job_of(name, catchup=Catchup.NONE) for name in names))
        await first.run()
        with pytest.raises(OwnedError):
            await second.engine.acquire()
        await advance(first, SECOND * 30)
        await second.engine.acquire()
        owned = {name for name in names if shard_of(name) in await shards_of(second.store, "b")}
        await advance(first, 5 * MINUTE + 30 * SECOND)
        second.engine.kill()
        await free(second.store, "b")
        await advance(first, 6 * MINUTE)
        for name in names:
            missed = [dropped.periods for dropped in await first.store.ranges(SPACE, name)]
            # The fifth is within the minute of grace.
            assert (missed, len(await first.runs(name))) == (([4], 2) if name in owned else ([], 6))


async def shards_of(store: object, owner: str) -> set[int]:
    assert isinstance(store, PostgresStore)
    async with store._reading() as connection:
        rows = await (
            await connection.execute("SELECT shard FROM leases WHERE owner = %s", [owner])
        ).fetchall()
    return {shard for (shard,) in rows}


async def test_a_token_never_goes_back_when_shards_come_and_go(postgres_url: str) -> None:
    """Each start is fenced by the token of its shard, which stays the same while one worker keeps it."""
    names = one_of_each_shard()
    clock = LateClock(NOON + MILLISECOND)
    async with (
        rig_of(PostgresStore(postgres_url), clock, owner="a", balance=True) as first,
        rig_of(PostgresStore(postgres_url), clock, owner="b", balance=True) as second,
    ):
        await first.add(*(job_of(name) for name in names))
        second.serve(*names)
        await first.run()
        with pytest.raises(OwnedError):
            await second.engine.acquire()
        await advance(first, MINUTE)
        await second.run()
        await advance(first, 2 * MINUTE)
        # The first has all again, half of them by a new token, and then has to give that half away.
        await second.engine.stop()
        await advance(first, 4 * MINUTE)
        with pytest.raises(OwnedError):
            await second.engine.acquire()
        await advance(first, 5 * MINUTE)
        await second.run()
        await advance(first, 7 * MINUTE)
    assert len({token for *_, token in first.calls}) > 1
    lost = {name for name, *_ in second.calls}
    assert lost < set(names)
    for name in names:
        calls = sorted(call for call in (*first.calls, *second.calls) if call[0] == name)
        tokens = [token for *_, token in calls]
        assert tokens == sorted(tokens)
        assert (len(set(tokens)) == 1) == (name not in lost)
        # None was left out because its token was not that of its shard.
        assert len(calls) == 7


class CrossedStore(PostgresStore):
    """A store on which a wake starts while a take-over reads the open runs, and ends after it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, ttl_ms=TTL_MS)
        self.crosses = False
        self.left, self.gate, self.loading, self.is_over = (asyncio.Event() for _ in range(4))

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        found = await super().in_flight(ownership)
        if self.crosses:
            self.gate.set()
            await self.loading.wait()
            self.crosses = False
        return found

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        loaded = await super().load(ownership, until=until, limit=limit, named=named, without=without)
        if self.gate.is_set() and not self.is_over.is_set():
            self.loading.set()
            await self.is_over.wait()
        return loaded


async def test_a_wake_that_began_before_a_take_over_does_not_lose_what_was_left_behind(
    postgres_url: str, other: PostgresStore
) -> None:
    store = CrossedStore(postgres_url)
    async with rig_of(store, LateClock(NOON + MILLISECOND)) as rig:
        await rig.add(job_of("left"), callback=lambda launch: store.left.wait())
        await rig.add(job_of("crossed"), callback=lambda launch: store.gate.wait())
        await rig.run()
        await advance(rig, MINUTE)
        theirs = await other.acquire(SPACE, "other", now=FAR)
        await advance(rig, MINUTE + 15 * SECOND)
        # It ends while another worker owns it, so its end is discarded.
        store.left.set()
        await advance(rig, MINUTE + 16 * SECOND)
        await other.release(theirs)
        store.crosses = True
        watching = asyncio.create_task(_say_when_owned(rig, store))
        await advance(rig, MINUTE + 50 * SECOND)
        await watching
        assert await rig.seen("left") == ["FAILED due"]
        # The end reported during the take-over was kept.
        assert await rig.seen("crossed") == ["SUCCESS due"]


async def _say_when_owned(rig: Rig, store: CrossedStore) -> None:
    await store.loading.wait()
    await until(lambda: len(rig.engine._lease.owned.shards) == SHARDS)
    store.is_over.set()


class DeafStore(PostgresStore):
    """A store whose first renewal loses a cancellation, as `asyncio.wait_for` of Python 3.11 can."""

    renewals = 0

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        self.renewals += 1
        if self.renewals == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return await super().renew(ownership, now=now, balance=balance)

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        if self.renewals:
            raise ZeroDivisionError
        return await super().load(ownership, until=until, limit=limit, named=named, without=without)


async def test_a_failed_engine_renews_no_more_although_a_cancellation_is_lost(postgres_url: str) -> None:
    """Without its loop, the lease must lapse, so that another worker takes over."""
    clock = SimulatedClock(NOON)
    store = DeafStore(postgres_url, ttl_ms=TTL_MS)
    engine = Engine(store, clock, {}, namespace=SPACE, owner="me", journal=LogJournal())
    await engine.acquire()
    engine.run()
    passing = asyncio.create_task(clock.advance_to(NOON + timedelta(minutes=5)))
    await until(lambda: store.renewals)
    engine.call()
    await until(lambda: engine.health.state == "failed")
    await passing
    assert store.renewals == 1
    engine.kill()
    await store.close()
