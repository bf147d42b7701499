"""The PostgreSQL store: leases, shares, fencing, and failures of its server."""

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from kron.core.errors import InvalidOptionError, OwnedError, StoreError, StoreUnavailableError
from kron.core.plan.incident import STOPPED, sentence_of
from kron.core.plan.query import PruneBounds
from kron.core.plan.record import RunStatus
from kron.core.plan.step import Ownership, Predecessor
from kron.core.shard import SHARDS, shard_of
from kron.stores.migration import Migration, steps_of
from kron.stores.postgres.connection import CHECK_AFTER_S, rows_of
from kron.stores.postgres.dag import PostgresDatabase
from kron.stores.postgres.schema import PostgresSchema, address_of
from kron.stores.postgres.store import SQL, PostgresStore
from kron.stores.postgres.watch import PostgresWatch
from kron.stores.postgres.workflow import PostgresWorkflows
from kron.testing.contract.history import a_notice
from kron.testing.store_contract import (
    CLEAN,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    an_end,
    names_due,
    stored,
    written,
)
from tests.postgres import Server, running
from tests.waiting import retried, until

TTL, MARGIN = 30_000, 2_000
OTHERS = " FROM pg_stat_activity WHERE application_name = 'kron' AND pid <> pg_backend_pid()"
Open = Callable[..., PostgresStore]


@pytest.fixture
async def open_store(postgres_url: str) -> AsyncIterator[Open]:
    """Open as many stores of one database as a test has workers."""
    stores: list[PostgresStore] = []

    def open_one(url: str = postgres_url, **options: int) -> PostgresStore:
        stores.append(PostgresStore(url, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> PostgresStore:
    return open_store()


def shards_of(*ownerships: Ownership) -> list[int]:
    return sorted(shard for ownership in ownerships for shard in ownership.shards)


async def share_out(store: PostgresStore, owners: dict[str, Ownership], now: int) -> None:
    """Renew the leases of all workers until no shard moves."""
    for _ in range(2):
        for name, ownership in owners.items():
            owners[name] = await store.renew(ownership, now=now, balance=True)


# --- leases --------------------------------------------------------------------------------------


async def test_a_take_over_waits_until_the_lease_and_a_margin_have_passed(store: PostgresStore) -> None:
    earlier = await store.acquire(SPACE, "a", now=NOW)
    assert earlier.ttl_ms == TTL
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW + TTL + MARGIN - 1)
    later = await store.acquire(SPACE, "b", now=NOW + TTL + MARGIN)
    assert shards_of(later) == list(range(SHARDS))
    assert min(later.shards.values()) > max(earlier.shards.values())


async def test_a_renewed_lease_lasts_from_its_renewal(store: PostgresStore) -> None:
    ownership = await store.acquire(SPACE, "a", now=NOW)
    assert await store.renew(ownership, now=NOW + TTL) == ownership._replace(granted_at=NOW + TTL)
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW + TTL + MARGIN)


async def test_an_expired_lease_is_kept_if_no_worker_took_over(store: PostgresStore) -> None:
    ownership = await store.acquire(SPACE, "a", now=NOW)
    renewed = await store.renew(ownership, now=NOW + 100 * TTL)
    assert renewed == ownership._replace(granted_at=NOW + 100 * TTL)


async def test_leases_show_the_last_renewal_and_a_worker_that_waits(store: PostgresStore) -> None:
    await store.renew(await store.acquire(SPACE, "a", now=NOW), now=NOW + 5)
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW + 6, balance=True)
    first, waiting = await store.leases(SPACE, now=NOW + 4 + TTL)
    assert (first.owner, first.renewed_at, first.expires_at) == ("a", NOW + 5, NOW + 5 + TTL)
    assert (waiting.owner, waiting.shards, waiting.is_alive) == ("b", (), True)
    first, _ = await store.leases(SPACE, now=NOW + 5 + TTL)
    assert (first.is_alive, len(first.shards)) == (False, SHARDS)


async def test_an_outage_starts_at_the_last_renewal_of_an_expired_lease(store: PostgresStore) -> None:
    ownership = await store.acquire(SPACE, "a", now=NOW)
    await store.renew(ownership, now=NOW + 5)
    assert await store.absence(SPACE, 0, now=NOW + 4 + TTL) is None
    outage = await store.absence(SPACE, 0, now=NOW + 5 + TTL)
    assert outage is not None
    assert (outage.from_at, outage.actor) == (NOW + 5, "a")
    assert sentence_of(outage).startswith("the lease of worker a expired, last renewed at ")


async def test_a_worker_that_lost_its_lease_waits_for_free_shards(store: PostgresStore) -> None:
    earlier = await store.acquire(SPACE, "a", now=NOW)
    later = await store.acquire(SPACE, "b", now=NOW + TTL + MARGIN)
    waiting = await store.renew(earlier, now=NOW + TTL + MARGIN)
    assert dict(waiting.shards) == {}
    assert (await store.load(waiting, until=NOW, limit=10)).cases == []
    await store.release(later)
    again = await store.renew(waiting, now=NOW + TTL + MARGIN)
    assert shards_of(again) == list(range(SHARDS))
    assert min(again.shards.values()) > max(later.shards.values())


async def test_a_worker_that_waits_for_shards_takes_none_before_the_margin_has_passed(
    store: PostgresStore,
) -> None:
    """It renews an empty lease, so no other check than that of the shards themselves stands before it."""
    earlier = await store.acquire(SPACE, "a", now=NOW)
    taken_over_at = NOW + TTL + MARGIN
    later = await store.acquire(SPACE, "b", now=taken_over_at)
    waiting = await store.renew(earlier, now=taken_over_at + TTL + MARGIN - 1)
    assert dict(waiting.shards) == {}
    again = await store.renew(waiting, now=taken_over_at + TTL + MARGIN)
    assert shards_of(again) == list(range(SHARDS))
    assert min(again.shards.values()) > max(later.shards.values())


async def test_a_worker_that_was_started_again_under_its_name_is_another_owner(store: PostgresStore) -> None:
    earlier = await store.acquire(SPACE, "a", now=NOW)
    (job,) = await stored(store, a_job())
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "a", now=NOW + TTL)
    later = await store.acquire(SPACE, "a", now=NOW + TTL + MARGIN)
    assert dict((await store.renew(earlier, now=NOW + TTL + MARGIN)).shards) == {}
    await store.release(earlier)
    with pytest.raises(OwnedError):
        await store.settle(earlier, [a_change(job)], now=NOW)
    assert await store.settle(later, [a_change(job)], now=NOW) == CLEAN


async def test_leases_last_by_the_clock_of_the_database(open_store: Open) -> None:
    store = open_store(ttl_ms=100, margin_ms=50)
    await store.acquire(SPACE, "a")
    later = await retried(partial(store.acquire, SPACE, "b"), OwnedError)
    assert shards_of(later) == list(range(SHARDS))


async def test_of_many_workers_one_gets_everything(open_store: Open) -> None:
    calls = [open_store().acquire(SPACE, f"worker {n}") for n in range(5)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert Counter(map(type, answers)) == {Ownership: 1, OwnedError: 4}


async def test_tokens_never_repeat_between_namespaces(store: PostgresStore) -> None:
    tokens = [(await store.acquire(f"runner:{n}", "a")).token for n in range(5)]
    assert tokens == sorted(set(tokens))


# --- shares --------------------------------------------------------------------------------------


async def test_workers_share_evenly_and_between_them_have_everything(store: PostgresStore) -> None:
    owners = {"a": await store.acquire(SPACE, "a", now=NOW, balance=True)}
    for name in ("b", "c"):
        with pytest.raises(OwnedError):
            await store.acquire(SPACE, name, now=NOW, balance=True)
        await share_out(store, owners, NOW)
        owners[name] = await store.acquire(SPACE, name, now=NOW, balance=True)
        await share_out(store, owners, NOW)
        assert shards_of(*owners.values()) == list(range(SHARDS))
    assert sorted(len(ownership.shards) for ownership in owners.values()) == [21, 21, 22]


async def test_due_jobs_of_other_tenants_are_those_of_the_owned_shards(store: PostgresStore) -> None:
    ownership = await store.acquire(SPACE, "a", now=NOW)
    names = [f"job {number}" for number in range(20)]
    await stored(store, *(a_job(name) for name in names))
    own = shard_of(names[0])
    part = ownership._replace(shards={own: ownership.shards[own]})
    due = await store.due_besides(part, ["ann"], until=NOW, limit=100)
    assert sorted(due) == sorted(name for name in names if shard_of(name) == own)


async def test_the_share_of_a_dead_worker_is_taken_over(store: PostgresStore) -> None:
    alive = {"a": await store.acquire(SPACE, "a", now=NOW, balance=True)}
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW, balance=True)
    await share_out(store, alive, NOW)
    await store.acquire(SPACE, "b", now=NOW, balance=True)
    await share_out(store, alive, NOW + TTL + MARGIN - 1)
    assert len(alive["a"].shards) == SHARDS // 2
    await share_out(store, alive, NOW + TTL + MARGIN)
    assert shards_of(alive["a"]) == list(range(SHARDS))


async def test_a_worker_that_yields_has_shards_only_while_it_is_alone(store: PostgresStore) -> None:
    alone = await store.renew(
        (await store.acquire(SPACE, "a", now=NOW, balance=True))._replace(yields=True), now=NOW, balance=True
    )
    assert (shards_of(alone), alone.granted_at) == (list(range(SHARDS)), NOW)
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW, balance=True)
    busy = alone._replace(yields=True, busy=frozenset({3}))
    left = await store.renew(busy, now=NOW, balance=True)
    assert shards_of(left) == [3]
    other = await store.acquire(SPACE, "b", now=NOW, balance=True)
    assert len(other.shards) == SHARDS - 1
    assert shards_of(await store.renew(left._replace(yields=True), now=NOW, balance=True)) == []


async def test_the_share_of_a_worker_that_stops_is_free_at_once(store: PostgresStore) -> None:
    alive = {"a": await store.acquire(SPACE, "a", now=NOW, balance=True)}
    with pytest.raises(OwnedError):
        await store.acquire(SPACE, "b", now=NOW, balance=True)
    await share_out(store, alive, NOW)
    await store.release(await store.acquire(SPACE, "b", now=NOW, balance=True))
    await share_out(store, alive, NOW)
    assert shards_of(alive["a"]) == list(range(SHARDS))


async def two_workers(store: PostgresStore) -> tuple[Ownership, Ownership]:
    first = await store.acquire(SPACE, "a", balance=True)
    with suppress(OwnedError):
        await store.acquire(SPACE, "b", balance=True)
    first = await store.renew(first, balance=True)
    return first, await store.acquire(SPACE, "b", balance=True)


async def test_the_shards_of_a_worker_that_drains_have_been_idle_since_its_drain_began(
    store: PostgresStore,
) -> None:
    draining = await store.acquire(SPACE, "a", now=NOW, balance=True)
    busy = draining._replace(leaving_since=NOW + 1, busy=frozenset({7}))
    kept = await store.renew(busy, now=NOW + 2, balance=True)
    assert shards_of(kept) == [7]
    other = await store.acquire(SPACE, "b", now=NOW + 3, balance=True)
    assert set(other.predecessors.values()) == {Predecessor("a", NOW + 1, STOPPED)}


async def test_each_worker_sees_and_writes_only_its_shards(store: PostgresStore) -> None:
    ownerships = await two_workers(store)
    names = [f"job {n}" for n in range(200)]
    await stored(store, *(a_job(name, plan_at=NOW if n % 2 else NOW + 1 + n) for n, name in enumerate(names)))
    for ownership in ownerships:
        mine = {name for name in names if shard_of(name) in ownership.shards}
        due = {name for n, name in enumerate(names) if n % 2} & mine
        loaded = await store.load(ownership, until=NOW, limit=1_000)
        assert {case.job.identity for case in loaded.cases} == due
        later = {name: NOW + 1 + n for n, name in enumerate(names) if n % 2 == 0}
        assert loaded.next_at == min(at for name, at in later.items() if name in mine)
        loaded = await store.load(ownership, until=-1, limit=10, named=names)
        assert {case.job.identity for case in loaded.cases} == mine
        changes = [a_change(case.job) for case in loaded.cases]
        for change in changes:
            change.inserts.append(a_run(change.job.identity, due_at=NOW - 1))
        assert await store.settle(ownership, changes, now=NOW) == CLEAN
        assert {run.identity for run in await store.in_flight(ownership)} == mine
        assert set(await names_due(store, ownership, until=NOW - 1, limit=1_000)) == mine


async def test_a_write_with_one_job_of_another_worker_is_refused_completely(store: PostgresStore) -> None:
    first, second = await two_workers(store)
    jobs = await stored(store, *(a_job(f"job {n}") for n in range(20)))
    assert {shard_of(job.identity) in first.shards for job in jobs} == {True, False}
    for ownership in (first, second):
        with pytest.raises(OwnedError):
            await store.settle(ownership, [a_change(job) for job in jobs], now=NOW)
    assert {case.job.revision for case in await store.cases(SPACE)} == {1}


async def test_a_takeover_waits_for_a_running_write(store: PostgresStore, postgres_url: str) -> None:
    await store.acquire(SPACE, "a", now=NOW)
    late = NOW + TTL + MARGIN
    async with await psycopg.AsyncConnection.connect(postgres_url) as writing:
        held = "SELECT 1 FROM leases WHERE namespace = %s AND shard < 60 FOR SHARE"
        await writing.execute(held, [SPACE])
        later = await store.acquire(SPACE, "b", now=late)
        assert shards_of(later) == [60, 61, 62, 63]
        await writing.commit()
        assert shards_of(await store.renew(later, now=late)) == list(range(SHARDS))


async def test_a_fence_holds_off_a_take_over_until_the_commit(
    store: PostgresStore, postgres_url: str
) -> None:
    ownership = await store.acquire(SPACE, "a", now=NOW)
    values = {"namespace": SPACE, "owner": "a", "shards": "{7}", "tokens": f"{{{ownership.shards[7]}}}"}
    async with await psycopg.AsyncConnection.connect(postgres_url) as writing:
        assert await (await writing.execute(SQL["fence"].encode(), values)).fetchone() == (1,)
        assert 7 not in (await store.acquire(SPACE, "b", now=NOW + TTL + MARGIN)).shards


# --- many at once --------------------------------------------------------------------------------


async def test_turns_and_edits_of_the_same_jobs_never_fail_because_of_each_other(open_store: Open) -> None:
    """They lock the same rows in any order; the loser of a deadlock is retried."""
    workers = [open_store() for _ in range(4)]
    ownership = await workers[0].acquire(SPACE, "a")
    jobs = await stored(workers[0], *(a_job(f"job {n}") for n in range(40)))
    revisions = Counter[str]()
    for _ in range(6):
        cases = {case.job.identity: case.job for case in await workers[0].cases(SPACE)}
        orders = [list(cases.values()), list(cases.values())[::-1], list(cases.values())[::2]]
        turns = [
            worker.settle(ownership, [a_change(job) for job in order], now=NOW)
            for worker, order in zip(workers, orders, strict=False)
        ]
        edits = workers[3].put(SPACE, created=[], changed=[a_change(job) for job in orders[1]], now=NOW)
        *settled, edited = await asyncio.gather(*turns, edits)
        for order, answer in zip(orders, settled, strict=True):
            revisions.update(job.identity for job in order if job.identity not in answer.stale_jobs)
        if edited == CLEAN:
            revisions.update(list(cases))
    after = {case.job.identity: case.job.revision for case in await workers[0].cases(SPACE)}
    assert after == {job.identity: 1 + revisions[job.identity] for job in jobs}


async def test_nothing_is_left_of_a_job_that_is_forgotten_while_its_turn_is_written(open_store: Open) -> None:
    writer, forgetter = open_store(), open_store()
    ownership = await writer.acquire(SPACE, "a")
    await forgetter.cases(SPACE)
    names = [f"job {n}" for n in range(50)]
    for _ in range(8):
        changes = [a_change(job) for job in await stored(writer, *map(a_job, names))]
        for change in changes:
            change.inserts.append(a_run(change.job.identity, due_at=NOW))
        await asyncio.gather(writer.settle(ownership, changes, now=NOW), forgetter.forget(SPACE, names[::-1]))
        assert await writer.cases(SPACE) == []
        assert [run for name in names for run in await writer.runs(SPACE, name)] == []


async def test_a_write_of_one_caller_does_not_wait_for_that_of_another(
    open_store: Open, postgres_url: str
) -> None:
    """A long write of a tenant ends when it ends; those of others have rows of their own."""
    long, short = open_store(), open_store()
    ownership = await short.acquire(SPACE, "a")
    (job,) = await stored(long, a_job("long"))
    with psycopg.connect(postgres_url) as holding, psycopg.connect(postgres_url, autocommit=True) as watching:
        holding.execute("SELECT 1 FROM schedules WHERE schedule_id = 'long' FOR UPDATE")
        writing = asyncio.create_task(long.put(SPACE, created=[], changed=[a_change(job)], now=NOW + 1))
        waiting = f"SELECT 1{OTHERS} AND wait_event_type = 'Lock'".encode()
        await until(lambda: watching.execute(waiting).fetchone())
        # With a row that both write, these would wait for the other one, and fail after the timeout of locks.
        assert await short.put(SPACE, created=[a_job("short")], changed=[], now=NOW + 2) == CLEAN
        assert await short.settle(ownership, [], now=NOW + 3) == CLEAN
        assert not writing.done()
        holding.commit()
        assert await writing == CLEAN


async def test_pruning_skips_locked_rows(store: PostgresStore, postgres_url: str) -> None:
    ownership = await store.acquire(SPACE, "a")
    await stored(store, a_job())
    runs = [an_end(a_run(nominal_time=NOW // 1000 - 10 + n)) for n in range(4)]
    bounds = PruneBounds(before=NOW + 1)
    await written(store, ownership, *runs)
    async with await psycopg.AsyncConnection.connect(postgres_url) as writing:
        await writing.execute(
            "SELECT 1 FROM schedule_runs WHERE idempotency_key = %s FOR UPDATE", [runs[0].key]
        )
        assert (await store.prune(SPACE, bounds, limit=10)).runs == 2
        await writing.commit()
    assert (await store.prune(SPACE, bounds, limit=10)).runs == 1


# --- views ---------------------------------------------------------------------------------------


async def test_the_tables_have_the_columns_of_the_service(store: PostgresStore, postgres_url: str) -> None:
    ownership = await store.acquire(SPACE, "a")
    definition = (
        '{"schedule":"0 9 * * *","timezone":"Europe/Berlin","policy":{"concurrency":"queue",'
        '"catchup":"spread","jitter_ms":250,"start_at":"2026-01-01T00:00:00Z","end_at":"2027-01-01T00:00:00Z"}}'
    )
    launcher = '{"workflow_id":"w","version":3,"user_id":"u\\u0000"}'
    await stored(
        store, a_job("full", definition=definition, launcher=launcher), a_job("bare", next_time=None)
    )
    await stored(store, a_job("odd", launcher='{"version":"1.2-beta"}'))
    await written(store, ownership, an_end(a_run("full")))
    noon = datetime.fromtimestamp(NOW // 1000, UTC)
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(
            "SELECT schedule_id, workflow_id, version, user_id, cron_expr, timezone, start_at, end_at,"
            " next_run_at, paused, jitter_ms, overlap_policy, catchup_policy, updated_at"
            " FROM schedules ORDER BY schedule_id"
        ).fetchall()
        bare = (
            "bare",
            None,
            None,
            None,
            "* * * * *",
            "UTC",
            None,
            None,
            None,
            False,
            0,
            "skip",
            "fire_immediately",
            noon,
        )
        full = (
            "full", "w", 3, "u\x01", "0 9 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z",
            "2027-01-01T00:00:00Z", noon, False, 250, "queue", "spread", noon,
        )  # fmt: skip
        assert rows[:2] == [bare, full]
        assert rows[2][:3] == ("odd", None, None)
        run = connection.execute(
            "SELECT schedule_id, run_at, fire_at, status, created_at, started_at, updated_at"
            " FROM schedule_runs"
        ).fetchall()
        assert run == [("full", noon, noon, RunStatus.SUCCESS.value, noon, noon, noon)]


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rest_s", [0.0, 2 * CHECK_AFTER_S], ids=["just used", "after a rest"])
async def test_a_cut_connection_is_replaced(
    store: PostgresStore, postgres: Server, postgres_url: str, rest_s: float
) -> None:
    ownership = await store.acquire(SPACE, "a")
    (job,) = await stored(store, a_job())
    for number in range(3):
        await asyncio.sleep(rest_s)
        postgres.execute(f"SELECT pg_terminate_backend(pid) {OTHERS}")
        await until(lambda: postgres.execute(f"SELECT pid {OTHERS}") == [])
        job = job._replace(revision=1 + number)
        assert await store.settle(ownership, [a_change(job)], now=NOW) == CLEAN


@pytest.mark.slow
async def test_a_server_that_crashes_and_starts_again_is_found_with_all_that_was_written(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as server:
        # The lease outlives the crash and the recovery, however long a busy machine takes for them.
        store = PostgresStore(server.url, ttl_ms=600_000)
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        server.crash()
        with pytest.raises(StoreError, match="The store cannot be used"):
            await store.settle(ownership, [a_change(job)], now=NOW)
        with pytest.raises(StoreError):
            await PostgresStore(server.url).cases(SPACE)
        server.start()
        settle = partial(store.settle, ownership, [a_change(job)], now=NOW)
        assert await retried(settle, StoreError) == CLEAN
        await store.close()


class Proxy:
    """A proxy between a store and its server that can drop the reply to a commit."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.armed = False
        self._answers: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._server))
        losing = asyncio.Event()
        answers = asyncio.create_task(self._answer(there, writer, losing))
        self._answers.append(answers)
        while data := await reader.read(1 << 20):
            if self.armed and b"COMMIT" in data:
                self.armed = False
                losing.set()
            back.write(data)
        back.close()
        await answers

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        while (data := await reader.read(1 << 20)) and not losing.is_set():
            writer.write(data)
        writer.close()

    async def end(self) -> None:
        await asyncio.gather(*self._answers)


async def test_a_commit_whose_reply_is_lost_is_an_error_and_can_be_read(
    open_store: Open, postgres: Server, postgres_url: str
) -> None:
    # In the folder of the server's socket: the path of a socket has a maximum length.
    folder = postgres.socket.parent / "p"
    folder.mkdir(exist_ok=True)
    proxy = Proxy(postgres.socket)
    server = await asyncio.start_unix_server(proxy.accept, folder / ".s.PGSQL.5432")
    host, here = str(postgres.socket.parent), str(folder)
    store = open_store(postgres_url.replace(host, here).replace(quote(host, safe=""), quote(here, safe="")))
    async with server:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        change = a_change(job)
        change.inserts.append(a_run())
        proxy.armed = True
        with pytest.raises(StoreError):
            await store.settle(ownership, [change], now=NOW)
        assert not proxy.armed
        (case,) = await store.cases(SPACE)
        assert (case.job, list(case.runs)) == (change.job, change.inserts)
        assert (await store.settle(ownership, [change], now=NOW)).stale_jobs == {"backup"}
        await store.close()
        await proxy.end()


async def test_a_password_is_never_shown() -> None:
    store = PostgresStore("postgresql://me:hunter2@127.0.0.1:1/jobs?connect_timeout=2")
    with pytest.raises(StoreError) as caught:
        await store.cases(SPACE)
    said = "".join(traceback.format_exception(caught.value)) + repr(caught.value.details) + repr(vars(store))
    assert "hunter2" not in said
    assert "refused" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/jobs?unknown=1",
        "postgresql://me:hunter2%zz@host/jobs",
        "postgresql://me:hunter2@[host/jobs",
    ],
)
def test_an_invalid_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        PostgresStore(url)
    said = "".join(traceback.format_exception(caught.value)) + repr(caught.value.details)
    assert "hunter2" not in said


# --- tables --------------------------------------------------------------------------------------


async def test_many_workers_may_meet_an_empty_database_at_once(open_store: Open) -> None:
    answers = await asyncio.gather(*(open_store().cases(SPACE) for _ in range(6)))
    assert answers == [[]] * 6


async def test_existing_tables_are_migrated_on_request_only(postgres_url: str) -> None:
    await PostgresSchema(postgres_url).prepare()
    steps = steps_of("postgres")
    at = len(steps)
    newer = PostgresSchema(postgres_url, [*steps, Migration(at + 1, "more", "CREATE TABLE more ()")])
    with pytest.raises(
        StoreUnavailableError, match=f"at migration {at} and this program needs {at + 1}: run kron migrate"
    ):
        await newer.prepare()
    assert [step.name for step in await newer.forward()] == ["more"]
    await newer.prepare()


async def test_a_migration_that_waits_for_a_long_transaction_keeps_nobody_from_the_tables(
    open_store: Open, postgres_url: str
) -> None:
    store = open_store()
    await stored(store, a_job())
    steps = list(steps_of("postgres"))
    steps.append(Migration(len(steps) + 1, "more", "ALTER TABLE schedules ADD COLUMN more text"))
    waiting = "SELECT 1 FROM pg_locks WHERE relation = 'schedules'::regclass AND NOT granted"
    with psycopg.connect(postgres_url) as long, psycopg.connect(postgres_url, autocommit=True) as watching:
        # As a backup does.
        long.execute("SELECT FROM schedules")
        with pytest.raises(StoreUnavailableError, match="in use by a transaction that does not end"):
            await PostgresSchema(postgres_url, steps, lock_tries=1).forward()
        migration = asyncio.create_task(PostgresSchema(postgres_url, steps).forward())
        await until(lambda: watching.execute(waiting).fetchall())
        # Behind the migration this would wait until the other transaction ends.
        assert len(await store.cases(SPACE)) == 1
        assert not migration.done()
        long.commit()
        assert [step.name for step in await migration] == ["more"]


async def test_a_worker_keeps_working_while_the_tables_are_one_step_ahead(
    open_store: Open, postgres_url: str
) -> None:
    steps = list(steps_of("postgres"))
    steps.append(Migration(len(steps) + 1, "more", "ALTER TABLE schedules ADD COLUMN more text"))
    await PostgresSchema(postgres_url, steps).forward()
    await stored(open_store(), a_job())
    steps.append(Migration(len(steps) + 1, "yet more", "ALTER TABLE schedules ADD COLUMN yet_more text"))
    await PostgresSchema(postgres_url, steps).forward()
    with pytest.raises(StoreError, match="use a newer Kron"):
        await open_store().cases(SPACE)


async def test_a_connection_that_is_cut_while_a_write_is_taken_back_is_an_error_of_the_store(
    open_store: Open,
) -> None:
    store = open_store()

    async def cut(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        with suppress(psycopg.OperationalError):
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreError, match="the connection was lost"):
        await store._write(cut)
    assert await store.cases(SPACE) == []


@pytest.mark.parametrize("kind", ["engine", "workflows", "DAG runs"])
async def test_no_statement_takes_longer_than_a_minute_and_none_waits_long_for_a_lock(
    postgres_url: str, kind: str
) -> None:
    """A worker that freezes while it claims tasks of DAGs would keep all others from theirs."""
    opened = {"engine": PostgresStore, "workflows": PostgresWorkflows, "DAG runs": PostgresDatabase}
    store = opened[kind](postgres_url)
    found = {}
    async with store._reading() if isinstance(store, PostgresStore) else store._connection() as connection:
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            ((found[name],),) = await rows_of(connection, f"SHOW {name}", {})
    await store.close()
    assert found == {
        "statement_timeout": "1min",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "10s",
    }


async def test_a_watch_closes_although_its_connection_fails_while_it_is_cancelled(postgres_url: str) -> None:
    """The error of the connection takes the place of the cancellation."""
    greetings: list[str] = []

    async def greet(namespace: str, message: str) -> None:
        greetings.append(message)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreError("the connection was lost") from None

    watch = PostgresWatch(address_of(postgres_url), SPACE, lambda: None, greet)
    await watch.look()
    await until(lambda: greetings)
    closing = asyncio.create_task(watch.close())
    await until(lambda: closing.done() or len(greetings) > 1)
    assert closing.done()
    assert len(greetings) == 1


async def test_a_watch_closes_although_a_cancellation_is_lost(postgres_url: str) -> None:
    """As in `asyncio.wait_for` of Python 3.11, if the wait ends at the moment it is cancelled."""
    greetings: list[str] = []

    async def greet(namespace: str, message: str) -> None:
        greetings.append(message)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    watch = PostgresWatch(address_of(postgres_url), SPACE, lambda: None, greet)
    await watch.look()
    await until(lambda: greetings)
    closing = asyncio.create_task(watch.close())
    await until(closing.done)
    assert len(greetings) == 1


async def test_the_workers_are_told_of_notices_that_another_one_of_them_writes(postgres_url: str) -> None:
    """One worker sends the notices of all; it does not poll for them."""
    store, other = PostgresStore(postgres_url), PostgresStore(postgres_url)
    watch = other.watch(SPACE, lambda: None)
    try:
        await stored(store, a_job())
        ownership = await store.acquire(SPACE, "a")

        async def looked(*, jobs: bool) -> None:
            assert (await watch.look()).jobs is jobs

        # The greeting counts as news.
        await retried(partial(looked, jobs=True), AssertionError)
        await retried(partial(looked, jobs=False), AssertionError)
        (state,) = await store.cases(SPACE, ["backup"])
        change = a_change(state.job)
        change.notices = [a_notice()]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        await retried(partial(looked, jobs=True), AssertionError)
    finally:
        await watch.close()
        await store.close()
        await other.close()
