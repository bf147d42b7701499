"""Several workers on one database: they hear of changes, share the shards, and hand over (SPEC 3: 5, 8)."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kron.core.errors import OwnedError
from kron.core.plan.registration import create
from kron.core.shard import SHARDS
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.stores.postgres.store import PostgresStore
from kron.stores.postgres.watch import PostgresWatch
from kron.stores.sqlite.store import SqliteStore
from kron.testing.clock import SimulatedClock
from kron.testing.faulty_store import ENGINE_CALLS, Chance, Fault, FaultyStore
from tests.faults.rig import job_of
from tests.postgres import Server
from tests.service.executor import executing
from tests.service.server import Process, process
from tests.service.test_worker import SECONDLY, runs_of, upsert
from tests.service.workers import NOON, YEARLY, Member, ask, working
from tests.waiting import PATIENCE_S, until, wait_for

pytestmark = pytest.mark.slow

CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'kron' AND pid <> pg_backend_pid()"
)
MINUTE = timedelta(minutes=1)
NO_PRUNING = {"KRON_KEEP_DAYS": "forever", "KRON_AUDIT_KEEP_DAYS": "forever"}
RENEWAL = "UPDATE leases SET expires_at ="


def watch_of(member: Member) -> PostgresWatch:
    watch = member.worker._watch
    assert isinstance(watch, PostgresWatch)
    return watch


@asynccontextmanager
async def hearing(url: str, clock: SimulatedClock, **settings: object) -> AsyncIterator[Member]:
    """Run a worker on a clock that stands still, so that it moves only when it is called."""
    async with working(PostgresStore(url), clock, **settings) as member:
        await until(lambda: member.worker.state == "running" and watch_of(member).is_listening)
        yield member


# --- hearing of changes ----------------------------------------------------------------------------


async def test_a_change_by_another_process_wakes_the_worker_although_no_tick_passes(
    postgres_url: str,
) -> None:
    clock, desk = SimulatedClock(NOON), PostgresStore(postgres_url)
    async with hearing(postgres_url, clock) as member:
        await ask(desk, clock)
        await until(lambda: len(member.calls) == 1)
        await desk.close()


@pytest.mark.parametrize("how", ["cut", "restart"])
async def test_a_worker_hears_again_after_its_connection_was_cut(
    postgres: Server, postgres_url: str, how: str
) -> None:
    clock = SimulatedClock(NOON)
    async with hearing(postgres_url, clock) as member:
        # On a busy machine it listens again before the cut has returned.
        lost = asyncio.create_task(until(lambda: not watch_of(member).is_listening))
        if how == "cut":
            await asyncio.to_thread(postgres.execute, CUT)
        else:
            await asyncio.to_thread(postgres.halt)
            await asyncio.to_thread(postgres.start)
        await lost
        await until(lambda: watch_of(member).is_listening)
        desk = PostgresStore(postgres_url)
        # A wake that gets another connection that was cut fails, and the worker retries at a tick.
        for _ in range(3):
            await tick(clock)
        await ask(desk, clock)
        while not member.calls:
            await tick(clock)
        await desk.close()


async def tick(clock: SimulatedClock) -> None:
    await asyncio.sleep(0.1)
    await clock.advance_to(clock.now() + timedelta(seconds=1))


async def test_whoever_cannot_hear_looks_every_tick(postgres_url: str) -> None:
    """A pooler that lets nobody listen says nothing of it; the greeting that does not come does."""
    clock, desk = SimulatedClock(NOON), PostgresStore(postgres_url)
    async with hearing(postgres_url, clock) as member:
        await watch_of(member).close()
        watch_of(member).is_listening = False
        watch_of(member)._listener = asyncio.create_task(asyncio.sleep(3_600))
        await ask(desk, clock)
        await clock.advance_to(NOON + timedelta(seconds=2))
        await until(lambda: len(member.calls) == 1)
        await desk.close()


async def notified(connection: psycopg.AsyncConnection[Any], url: str) -> list[str]:
    """Return all payloads committed so far: those that come before a notification of our own."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        await other.execute("NOTIFY over")
    payloads: list[str] = []
    async for notice in connection.notifies(timeout=PATIENCE_S):
        if notice.channel == "over":
            return payloads
        payloads.append(notice.payload)
    raise AssertionError("the notification never came")


async def test_a_bulk_write_says_so_once_and_the_engine_says_nothing(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    now = int(NOON.timestamp()) * 1000
    jobs = [create(job_of(f"job-{number}"), now=now) for number in range(2_500)]
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        await connection.execute("LISTEN kron; LISTEN over")
        await store.put("bulk", created=jobs, changed=[], now=now)
        assert len(await notified(connection, postgres_url)) == 1
        clock = SimulatedClock(NOON)
        async with hearing(postgres_url, clock) as member:
            await ask(store, clock)
            await until(lambda: len(member.calls) == 1)
            await clock.advance_to(NOON + timedelta(seconds=1))
            payloads = await notified(connection, postgres_url)
    # A greeting, one each for the schedule and its manual run; start and end notify no one.
    assert Counter(payload.split()[1] for payload in payloads) == {"hello": 1, "jobs": 2}
    await store.close()


# --- an idle service does nothing ------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["leader", "shared"])
async def test_an_idle_worker_only_renews_its_lease(postgres_url: str, workers: str) -> None:
    clock = SimulatedClock(NOON)
    store = FaultyStore(PostgresStore(postgres_url), clock)
    async with working(store, clock, workers=workers) as member:
        await until(lambda: member.worker.state == "running" and watch_of(member).is_listening)
        await Registrar(store, clock).upsert_schedule(YEARLY)
        # The first pruning is over by then.
        await clock.advance_to(NOON + 2 * MINUTE)
        before = store.calls.copy()
        await clock.advance_to(NOON + 3 * MINUTE)
        # Every third of its 30 seconds; and 60 ticks passed without a word.
        assert store.calls - before == Counter(renew=6)


async def test_an_idle_worker_on_a_file_asks_for_nothing_until_another_process_writes(tmp_path: Path) -> None:
    clock, path = SimulatedClock(NOON), str(tmp_path / "kron.db")
    store, desk = FaultyStore(SqliteStore(path), clock), SqliteStore(path)
    async with working(store, clock) as member:
        await until(lambda: member.worker.state == "running")
        # The first pruning is over by then.
        await clock.advance_to(NOON + 2 * MINUTE)
        before = store.calls.copy()
        await clock.advance_to(NOON + 3 * MINUTE)
        assert store.calls == before
        await ask(desk, clock)
        await clock.advance_to(NOON + 3 * MINUTE + timedelta(seconds=2))
        assert len(member.calls) == 1
        assert store.calls["load"] > before["load"]
    await desk.close()


async def test_a_change_by_the_same_store_is_seen_within_a_tick_although_nobody_calls() -> None:
    clock, store = SimulatedClock(NOON), SqliteStore()
    async with working(store, clock) as member:
        await until(lambda: member.worker.state == "running")
        await clock.advance_to(NOON + MINUTE)
        await ask(store, clock)
        await clock.advance_to(NOON + MINUTE + timedelta(seconds=2))
        assert len(member.calls) == 1


@pytest.mark.slow
def test_the_database_hears_nothing_of_an_idle_worker_but_its_renewals(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Counted by the server: every statement of the worker's is in its log."""
    url = postgres_url + "%20-clog_statement%3Dall"
    log = postgres.log
    with process(
        "worker", "--store", url, folder=tmp_path, KRON_TICK_MS="10", KRON_LEASE_MS="1500", **NO_PRUNING
    ) as worker:
        worker.logged("lease acquired")
        wait_for(lambda: statements_of(log).count(RENEWAL) >= 6)
        texts = statements_of(log)
        second = [place for place, text in enumerate(texts) if text == RENEWAL][1]
        sent = Counter(texts[second + 1 :])
    rounds = sent[RENEWAL]
    # A renewal is a check of the connection, a lock, the time, the leases, and what is around a transaction.
    assert rounds >= 4
    assert sum(sent.values()) <= 8 * (rounds + 1)
    assert not [text for text in sent if "schedule" in text]


def statements_of(log: Path) -> list[str]:
    found = re.findall(r"(?:statement|execute [^:]*): ([^\n]*)", log.read_text())
    return [" ".join(text.split()[:5]) for text in found]


# --- handing over ----------------------------------------------------------------------------------


async def test_who_waits_takes_over_when_the_leader_leaves_although_no_tick_passes(postgres_url: str) -> None:
    clock = SimulatedClock(NOON)
    async with hearing(postgres_url, clock) as first, working(PostgresStore(postgres_url), clock) as second:
        await until(lambda: watch_of(second).is_listening)
        assert (first.shards, second.shards) == (SHARDS, 0)
        await first.leave()
        await until(lambda: second.shards == SHARDS)
        assert second.worker.state == "running"


async def test_shards_are_shared_as_workers_come_and_go_although_no_tick_passes(postgres_url: str) -> None:
    clock = SimulatedClock(NOON)
    async with AsyncExitStack() as stack:
        crew: list[Member] = []

        async def join() -> None:
            joined = working(PostgresStore(postgres_url), clock, workers="shared")
            crew.append(await stack.enter_async_context(joined))
            await until(lambda: watch_of(crew[-1]).is_listening)

        async def shared(*shares: int) -> None:
            await until(lambda: sorted(member.shards for member in crew) == sorted(shares))

        await join()
        await shared(64)
        await join()
        await shared(32, 32)
        await join()
        await shared(22, 21, 21)
        await crew.pop(0).leave()
        await shared(32, 32)
        await crew.pop(0).leave()
        await shared(64)


async def test_who_leaves_before_it_has_a_share_is_not_counted_any_more(postgres_url: str) -> None:
    store, clock = PostgresStore(postgres_url), SimulatedClock(NOON)
    mine = await store.acquire(NAMESPACE, "me", balance=True)
    async with working(PostgresStore(postgres_url), clock, workers="shared") as other:
        await until(lambda: watch_of(other).is_listening)
        await other.leave()
    assert len((await store.renew(mine, balance=True)).shards) == SHARDS
    await store.close()


def owners(postgres: Server, url: str) -> list[int]:
    """Return how many shards each worker has, the most first."""
    statement = "SELECT count(*) FROM leases WHERE owner IS NOT NULL GROUP BY owner ORDER BY 1 DESC"
    return [int(str(count)) for (count,) in postgres.execute(statement, url)]


@pytest.mark.slow
def test_workers_grow_shrink_and_restart_without_a_start_twice_or_lost(
    postgres: Server, postgres_url: str, tmp_path: Path
) -> None:
    """One process, two, three, two; then one is replaced by a new one. No lease ends by itself meanwhile."""
    variables = {"KRON_WORKERS": "shared", "KRON_LEASE_MS": "600000", "KRON_TICK_MS": "200"}
    names = [f"fast-{number}" for number in range(12)]
    with executing() as executor, ExitStack() as stack:
        crew: list[Process] = []

        def shared(*shares: int) -> None:
            wait_for(lambda: owners(postgres, postgres_url) == list(shares))
            before = len(executor.sent)
            wait_for(lambda: len(executor.sent) >= before + len(names))

        def join() -> None:
            joined = process("worker", "--store", postgres_url, folder=tmp_path, **variables)
            crew.append(stack.enter_context(joined))

        def leave() -> None:
            crew[0].signal(signal.SIGTERM)
            assert crew.pop(0).ended() == 0

        for name in names:
            launcher = {"kind": "http", "url": executor.url}
            upsert(postgres_url, {**SECONDLY, "schedule_id": name, "launcher": launcher})
        join()
        shared(64)
        join()
        shared(32, 32)
        join()
        shared(22, 21, 21)
        leave()
        shared(32, 32)
        join()
        leave()
        shared(32, 32)
        leave()
        leave()
    keys = executor.keys()
    assert len(keys) == len(set(keys))
    for name in names:
        runs = runs_of(postgres_url, name)
        times = sorted(run.nominal_time for run in runs)
        assert times == list(range(times[0], times[0] + len(times)))
        assert {run.key for run in runs} <= set(keys)
        assert {run.status for run in runs} == {"ENQUEUED"}


async def test_a_stop_has_an_end_although_the_store_is_away(postgres_url: str) -> None:
    clock = SimulatedClock(NOON)
    store = FaultyStore(PostgresStore(postgres_url), clock)
    async with working(store, clock, drain_ms=100) as member:
        await until(lambda: member.worker.state == "running")
        store._chance = Chance(seed=1, odds=1.0, faults=[Fault.BEFORE], calls=[*ENGINE_CALLS, "release"])
        await member.leave()
        assert member.task.done()
    other = PostgresStore(postgres_url)
    # The lease was not released; no other worker can take over before it expires.
    with pytest.raises(OwnedError):
        await other.acquire(NAMESPACE, "other")
    await other.close()


async def test_who_waits_is_well_again_when_the_store_is(postgres_url: str) -> None:
    clock = SimulatedClock(NOON)
    store = FaultyStore(PostgresStore(postgres_url), clock)
    async with hearing(postgres_url, clock), working(store, clock) as second:
        await until(lambda: watch_of(second).is_listening)
        store.then("acquire", Fault.BEFORE)
        for seconds in range(1, 5):
            await clock.advance_to(NOON + timedelta(seconds=seconds))
        assert [fault.call for fault in store.injected] == ["acquire"]
        assert (second.worker.state, second.worker.error) == ("waiting", None)
