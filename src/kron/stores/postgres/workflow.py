"""Workflows and recorded starts in the service's PostgreSQL database, over separate connections."""

from collections.abc import Sequence

from kron.core.errors import StoreUnavailableError
from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord, WorkflowVersion
from kron.stores.postgres.connection import PostgresPool, count_of, rows_of
from kron.stores.row import AFTER_NAMES, start_values
from kron.stores.statement import statements

SQL = statements("postgres", "workflow")
# Few are needed: versions never change, and the launcher caches them.
MAX_CONNECTIONS = 2
# Attempts to record a start that other callers keep abandoning.
MAX_TRIES = 5


class PostgresWorkflows:
    """Workflow versions and recorded starts."""

    def __init__(self, url: str) -> None:
        pool = PostgresPool(url, min_size=0, max_size=MAX_CONNECTIONS)
        self._connection = pool.connection
        self.close = pool.close

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless a published one exists; return the stored one."""
        async with self._connection() as connection:
            await count_of(connection, SQL["insert_workflow"], record._asdict())
            (row,) = await rows_of(connection, SQL["workflow"], record._asdict())
            stored = WorkflowRecord._make(row)
            if stored != record and stored.is_draft:
                await count_of(connection, SQL["replace_draft"], {**record._asdict(), "draft": stored.dag})
                (row,) = await rows_of(connection, SQL["workflow"], record._asdict())
        return WorkflowRecord._make(row)

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""
        async with self._connection() as connection:
            values = {"workflow_id": workflow_id, "version": version}
            rows = await rows_of(connection, SQL["workflow"], values)
        return WorkflowRecord._make(rows[0]) if rows else None

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        async with self._connection() as connection:
            values = {"workflow_id": workflow_id, "limit": limit}
            rows = await rows_of(connection, SQL["workflow_versions"], values)
        return list(map(WorkflowVersion._make, rows))

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows by name, from a name on."""
        values = {"users": None if users is None else list(users), "after": after, "limit": limit}
        async with self._connection() as connection:
            rows = await rows_of(connection, SQL["workflow_names"], values)
        return [name for (name,) in rows]

    async def count_versions(self, prefix: str, *, most: int) -> int:
        """Count the versions of the workflows whose names start with a prefix, up to `most`."""
        values = {"prefix": prefix, "following": prefix + AFTER_NAMES, "most": most}
        async with self._connection() as connection:
            ((count,),) = await rows_of(connection, SQL["count_versions"], values)
        return int(count)

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Record a start before it is made, or return the earlier record."""
        values = start_values(start)
        async with self._connection() as connection:
            await count_of(connection, SQL["forget_starts"], {"old": old})
            for _ in range(MAX_TRIES):
                if await count_of(connection, SQL["begin_start"], values) == 1:
                    return None
                if rows := await rows_of(connection, SQL["known_start"], values):
                    return RecordedStart._make(rows[0])
                # Another caller abandoned the start and removed its row in between.
        raise StoreUnavailableError("The store cannot be used: other callers keep recording the same start")

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Mark a start as accepted, or remove its record."""
        async with self._connection() as connection:
            await count_of(connection, SQL["accept_start" if accepted else "drop_start"], start_values(start))
