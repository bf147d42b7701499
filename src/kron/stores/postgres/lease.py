"""Leases: which worker owns which shards, how workers share them, and the fence of every write."""

from collections.abc import Sequence
from typing import Any

from kron.core.errors import OwnedError
from kron.core.plan.incident import EXPIRED, STOPPED, absence_after, parsed_detail
from kron.core.plan.query import WorkerLease
from kron.core.plan.record import IncidentRecord
from kron.core.plan.step import Change, Ownership, Predecessor
from kron.core.shard import SHARDS, shard_of
from kron.stores.drain import SEEN_MS, with_drains
from kron.stores.postgres.connection import count_of, rows_of
from kron.stores.postgres.schema import Connection
from kron.stores.postgres.watch import LEASES, notify
from kron.stores.postgres.write import numbers, texts
from kron.stores.statement import statements

SQL = statements("postgres")
# A lease expires after this unless renewed; a takeover waits for the margin too, as clocks differ in speed.
TTL_MS, MARGIN_MS = 30_000, 2_000
# The margin of a short lease is at most this fraction of it.
MARGIN_PART = 5


class PostgresLease:
    """The leases of one store's shards; every call runs in the transaction of its connection."""

    def __init__(self, store: str, *, ttl_ms: int, margin_ms: int) -> None:
        self._store = store
        self.ttl_ms = ttl_ms
        self._margin_ms = margin_ms

    async def renew(
        self, connection: Connection, ownership: Ownership, now: int | None, balance: bool
    ) -> Ownership:
        """Return the new lease: the shards kept, less the share of other workers, plus free ones."""
        values = {**_lease_values(ownership), "ttl": self.ttl_ms, "margin": self._margin_ms}
        await connection.execute(SQL["lock_namespace"], values)
        ((values["now"],),) = await rows_of(connection, SQL["database_now"], {"now": now})
        if ownership.leaving_since is not None:
            await connection.execute(SQL["drop_worker"], values)
            share = 0
        elif balance and ownership.yields:
            share = await self._left_over(connection, values)
        else:
            share = await self._share(connection, values) if balance else SHARDS
        owned: dict[int, int] = {}
        if ownership.shards:
            owned = dict(sorted(await rows_of(connection, SQL["keep_leases"], values)))
        else:
            await connection.execute(SQL["make_leases"], {**values, "shards": SHARDS})
        if len(owned) > share:
            idle = [shard for shard in owned if shard not in ownership.busy]
            released = {shard: owned.pop(shard) for shard in idle[share - len(owned) :]}
            freed = _lease_values(ownership._replace(shards=released))
            ended_at = values["now"] if ownership.leaving_since is None else ownership.leaving_since
            await connection.execute(SQL["free_leases"], {**freed, "now": ended_at})
            if released:
                await notify(connection, ownership.namespace, LEASES)
        predecessors: dict[int, Predecessor] = {}
        if len(owned) < share:
            taken = await rows_of(connection, SQL["take_leases"], {**values, "limit": share - len(owned)})
            owned.update((shard, token) for shard, token, *_ in taken)
            known = ((shard, self._predecessor(*last)) for shard, _, *last in taken)
            predecessors = {shard: last for shard, last in known if last is not None}
        return ownership._replace(
            shards=owned,
            ttl_ms=self.ttl_ms,
            busy=frozenset(),
            leaving_since=None,
            yields=False,
            predecessors=predecessors,
            granted_at=values["now"],
        )

    def _predecessor(
        self, owner: str | None, last_owner: str | None, ended_at: int | None
    ) -> Predecessor | None:
        """Return the last owner of a shard: one that is still named in its lease did not release it."""
        if owner is not None:
            return Predecessor(owner, (ended_at or 0) - self.ttl_ms, EXPIRED)
        return None if last_owner is None else Predecessor(last_owner, ended_at or 0, STOPPED)

    async def absence(
        self, connection: Connection, namespace: str, shard: int, now: int | None
    ) -> IncidentRecord | None:
        """Return the outage of a shard that is free; None while its lease lasts."""
        rows = await rows_of(
            connection, SQL["last_owner"], {"namespace": namespace, "shard": shard, "now": now}
        )
        for is_free, *last in rows:
            return absence_after(*self._predecessor(*last) or ()) if is_free else None
        return absence_after()

    async def leases(self, connection: Connection, namespace: str, now: int | None) -> list[WorkerLease]:
        """Return the workers of a namespace with the shards they lease, by owner."""
        values: dict[str, Any] = {"namespace": namespace, "now": now}
        ((present,),) = await rows_of(connection, SQL["database_now"], values)
        rows = await rows_of(connection, SQL["leases"], values)
        values["owners"] = texts([owner for owner, *_ in rows])
        known = {name: last for name, *last in await rows_of(connection, SQL["last_take_overs"], values)}
        leases = []
        for owner, shards, ends in rows:
            taken_at, detail = known.get(owner, (None, None))
            lease = WorkerLease(
                owner, tuple(shards or ()), ends > present, ends - self.ttl_ms, ends, taken_at
            )
            leases.append(lease._replace(version=parsed_detail(detail).get("version")))
        return with_drains(leases, await rows_of(connection, SQL["drains"], values))

    async def is_drained(self, connection: Connection, namespace: str, owner: str, now: int) -> bool:
        """Say whether a person asked this worker to drain; if so, note that it was heard from."""
        values = {"namespace": namespace, "owner": owner}
        rows = await rows_of(connection, SQL["drain"], values)
        if rows and now - (rows[0][0] or 0) >= SEEN_MS:
            await connection.execute(SQL["saw_drained"], values)
        return bool(rows)

    async def has_free(self, connection: Connection, ownership: Ownership, now: int | None) -> bool:
        """Return whether any shard is free; a standby worker polls this."""
        values = {**_lease_values(ownership), "margin": self._margin_ms, "now": now, "all": SHARDS}
        ((is_free,),) = await rows_of(connection, SQL["has_free"], values)
        return bool(is_free)

    async def _left_over(self, connection: Connection, values: dict[str, Any]) -> int:
        """Return how many shards a worker that yields to all others may own."""
        await connection.execute(SQL["drop_worker"], values)
        await connection.execute(SQL["drop_dead_workers"], values)
        ((others,),) = await rows_of(connection, SQL["count_workers"], values)
        return 0 if others else SHARDS

    async def _share(self, connection: Connection, values: dict[str, Any]) -> int:
        """Return how many shards this worker may own; the shares of all workers cover all shards."""
        ((is_new,),) = await rows_of(connection, SQL["note_worker"], values)
        dead = await count_of(connection, SQL["drop_dead_workers"], values)
        if is_new or dead:
            # The other workers' shares change.
            await notify(connection, values["namespace"], LEASES)
        ((rank, total),) = await rows_of(connection, SQL["worker_rank"], values)
        return int(SHARDS // total + (rank <= SHARDS % total))

    async def release(self, connection: Connection, ownership: Ownership, now: int | None = None) -> bool:
        """Free all owned shards, so that another worker need not wait; `now` is kept for its successor."""
        values = {**_lease_values(ownership), "now": now}
        await connection.execute(SQL["lock_namespace"], values)
        await connection.execute(SQL["free_leases"], values)
        await connection.execute(SQL["drop_worker"], values)
        await notify(connection, ownership.namespace, LEASES)
        return True

    async def fence(self, connection: Connection, ownership: Ownership, changes: Sequence[Change]) -> None:
        """Raise OwnedError unless all touched shards are owned; a takeover waits for this transaction."""
        touched = sorted({shard_of(change.job.identity) for change in changes})
        tokens = [ownership.shards.get(shard, -1) for shard in touched]
        mine = ownership._replace(shards=dict(zip(touched, tokens, strict=True)))
        ((held,),) = await rows_of(connection, SQL["fence"], _lease_values(mine))
        if held != len(touched):
            raise OwnedError(namespace=ownership.namespace, owner=self._store)


def _lease_values(ownership: Ownership) -> dict[str, Any]:
    return {
        "namespace": ownership.namespace,
        "owner": ownership.owner,
        "shards": numbers(ownership.shards),
        "tokens": numbers(ownership.shards.values()),
    }
