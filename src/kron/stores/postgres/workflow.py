"""Workflows and starts in the PostgreSQL database of the service, over connections of their own."""

from kron.core.errors import StoreError
from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord, WorkflowVersion
from kron.stores.postgres.connection import PostgresPool, count_of, rows_of
from kron.stores.statement import statements

SQL = statements("postgres", "workflow")
# Versions never change, so that few are read: whoever starts them remembers them.
MAX_CONNECTIONS = 2
# How often a start is begun again that others give up meanwhile.
MAX_TRIES = 5


class PostgresWorkflows:
    """Versions of workflows, and a memory of starts."""

    def __init__(self, url: str) -> None:
        pool = PostgresPool(url, least=0, most=MAX_CONNECTIONS)
        self._connection = pool.connection
        self.close = pool.close

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Keep a version unless there is one already; return what is kept."""
        async with self._connection() as connection:
            await count_of(connection, SQL["insert_workflow"], record._asdict())
            (row,) = await rows_of(connection, SQL["workflow"], record._asdict())
        return WorkflowRecord._make(row)

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None where there is none."""
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

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Note a start before it is made, or return what is on record of it."""
        values = _values_of(start)
        async with self._connection() as connection:
            await count_of(connection, SQL["forget_starts"], {"old": old})
            for _ in range(MAX_TRIES):
                if await count_of(connection, SQL["begin_start"], values) == 1:
                    return None
                if rows := await rows_of(connection, SQL["known_start"], values):
                    return RecordedStart._make(rows[0])
                # Whoever just gave the start up took its row away in between.
        raise StoreError("The store cannot be used: others keep beginning the same start")

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Note that a start was accepted; one that was not is forgotten."""
        async with self._connection() as connection:
            await count_of(connection, SQL["accept_start" if accepted else "drop_start"], _values_of(start))


def _values_of(start: StartRequest) -> dict[str, object]:
    values = start._asdict()
    values["idempotency_key"] = values.pop("key")
    return values
