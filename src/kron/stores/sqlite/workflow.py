"""Workflows and recorded starts in the service's SQLite file, over a separate connection."""

import json
import sqlite3
from collections.abc import Sequence

from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord, WorkflowVersion
from kron.stores.row import AFTER_NAMES, start_values
from kron.stores.sqlite.file import MEMORY, SqliteFile
from kron.stores.sqlite.write import Writing, take_turn
from kron.stores.statement import statements

SQL = statements("sqlite", "workflow")


class SqliteWorkflows:
    """Workflow versions and recorded starts."""

    def __init__(self, path: str = MEMORY) -> None:
        self._file = SqliteFile(path)

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless a published one exists; return the stored one."""

        def work(connection: sqlite3.Connection) -> WorkflowRecord:
            # A transaction of one statement. A stored version never changes, except a draft.
            take_turn(connection, SQL["insert_workflow"], record._asdict())
            stored = WorkflowRecord._make(connection.execute(SQL["workflow"], record._asdict()).fetchone())
            if stored == record or not stored.is_draft:
                return stored
            take_turn(connection, SQL["replace_draft"], {**record._asdict(), "draft": stored.dag})
            return WorkflowRecord._make(connection.execute(SQL["workflow"], record._asdict()).fetchone())

        return await self._file.do(work)

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""
        values = {"workflow_id": workflow_id, "version": version}
        row = await self._file.do(lambda connection: connection.execute(SQL["workflow"], values).fetchone())
        return None if row is None else WorkflowRecord._make(row)

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        values = {"workflow_id": workflow_id, "limit": limit}
        rows = await self._file.do(
            lambda connection: connection.execute(SQL["workflow_versions"], values).fetchall()
        )
        return list(map(WorkflowVersion._make, rows))

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows by name, from a name on."""
        owners = None if users is None else json.dumps(list(users))
        values = {"users": owners, "after": after, "limit": limit}
        rows = await self._file.do(
            lambda connection: connection.execute(SQL["workflow_names"], values).fetchall()
        )
        return [name for (name,) in rows]

    async def count_versions(self, prefix: str, *, most: int) -> int:
        """Count the versions of the workflows whose names start with a prefix, up to `most`."""
        values = {"prefix": prefix, "following": prefix + AFTER_NAMES, "most": most}
        (count,) = await self._file.do(
            lambda connection: connection.execute(SQL["count_versions"], values).fetchone()
        )
        return int(count)

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Record a start before it is made, or return the earlier record."""
        values = start_values(start)

        def work(connection: sqlite3.Connection) -> RecordedStart | None:
            with Writing(connection):
                connection.execute(SQL["forget_starts"], {"old": old})
                if connection.execute(SQL["begin_start"], values).rowcount == 1:
                    return None
                workflow_id, version, accepted = connection.execute(SQL["known_start"], values).fetchone()
            return RecordedStart(workflow_id, version, bool(accepted))

        return await self._file.do(work)

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Mark a start as accepted, or remove its record."""

        def work(connection: sqlite3.Connection) -> None:
            with Writing(connection):
                connection.execute(SQL["accept_start" if accepted else "drop_start"], start_values(start))

        await self._file.do(work)

    async def close(self) -> None:
        """Close the file."""
        await self._file.close()
