"""Migrations: the numbered steps that bring a database's tables to the schema of this program.

Steps only go forward and never change once released; the database stores their checksums. During a rolling
update old and new workers share a database, so the rule is *expand, then contract*: a step may add tables,
indexes, and columns that are nullable or have a default. Unused ones are removed by the next release's step
at the earliest, when no running worker uses them. So every program works with its schema and with the one a
single step ahead; anything newer is refused, and so is a schema that lacks a step.
"""

import asyncio
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from kron.core.errors import StoreError
from kron.stores.statement import migrations

# Steps that a schema may be ahead of a program that uses it.
MAX_AHEAD = 1

_MAKE_LIST = """CREATE TABLE IF NOT EXISTS kron_migrations (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')))"""
_HAS_LIST = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kron_migrations'"
_READ_LIST = "SELECT number, name, checksum, applied_at FROM kron_migrations ORDER BY number"
_NOTE_STEP = "INSERT INTO kron_migrations (number, name, checksum) VALUES (?, ?, ?)"


class Migration(NamedTuple):
    """One numbered change of the tables."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Return the digest that reveals a step changed after its release."""
        return sha256(self.text.encode()).hexdigest()


class Applied(NamedTuple):
    """One applied step, and when it was applied, as RFC 3339."""

    number: int
    name: str
    checksum: str
    applied_at: str


class Schema(Protocol):
    """The tables of one database."""

    steps: Sequence[Migration]

    async def applied(self) -> list[Applied]:
        """Return the applied steps; none if the database is new."""
        ...

    async def forward(self) -> list[Migration]:
        """Apply the missing steps, all or nothing, one process at a time; return them."""
        ...


@cache
def steps_of(database: str) -> tuple[Migration, ...]:
    """Return this program's steps for one kind of database, read once."""
    return tuple(Migration(*migration) for migration in migrations(database))


def pending(steps: Sequence[Migration], applied: Sequence[Applied], *, ahead: int = 0) -> list[Migration]:
    """Return the steps still to apply, or refuse a database that these steps cannot have made."""
    for number, step in enumerate(steps, 1):
        if step.number != number:
            raise StoreError(f"This program lacks its migration {number}: reinstall it", missing=number)
    for number, step_done in enumerate(applied, 1):
        if step_done.number != number:
            raise StoreError(
                f"The database lacks migration {number} although it has {step_done.number}: restore a backup",
                missing=number,
            )
    if len(applied) > len(steps) + ahead:
        raise StoreError(
            f"The database is at migration {len(applied)} and this program knows only {len(steps)}: "
            "use a newer Kron",
            at=len(applied),
            known=len(steps),
        )
    for step, done in zip(steps, applied, strict=False):
        if step.checksum != done.checksum:
            raise StoreError(
                f"Migration {step.number} ({step.name}) differs from the one that was applied to this "
                "database: another build of Kron made it",
                number=step.number,
            )
    return list(steps[len(applied) :])


class SqliteSchema:
    """The tables of a SQLite file."""

    def __init__(self, path: str, steps: Sequence[Migration] | None = None) -> None:
        self.path = path
        self.steps = steps_of("sqlite") if steps is None else steps

    async def applied(self) -> list[Applied]:
        """Return the applied steps; a missing file is not created."""
        return await asyncio.to_thread(self._applied)

    def _applied(self) -> list[Applied]:
        if not Path(self.path).exists():
            return []
        try:
            with closing(sqlite3.connect(self.path)) as connection:
                return read_applied(connection)
        except sqlite3.Error as cause:
            raise StoreError(f"The store cannot be used: {cause}", cause=cause) from cause

    async def forward(self) -> list[Migration]:
        """Apply the missing steps; return them."""
        return await asyncio.to_thread(self._forward)

    def _forward(self) -> list[Migration]:
        make_private(self.path)
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                return bring_up(connection, self.steps, ahead=0)
        except sqlite3.Error as cause:
            raise StoreError(f"The store cannot be used: {cause}", cause=cause) from cause


def make_private(path: str) -> None:
    """Create a file that only its owner can read, as launchers may have passwords; keep an existing one."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def bring_up(
    connection: sqlite3.Connection, steps: Sequence[Migration] | None = None, *, ahead: int = MAX_AHEAD
) -> list[Migration]:
    """Apply the missing steps in one transaction; the connection must be in autocommit mode."""
    steps = steps_of("sqlite") if steps is None else steps
    if not pending(steps, read_applied(connection), ahead=ahead):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have applied them while this one waited.
        missing = pending(steps, read_applied(connection), ahead=ahead)
        connection.execute(_MAKE_LIST)
        for step in missing:
            for statement in _split(step.text):
                connection.execute(statement)
            connection.execute(_NOTE_STEP, (step.number, step.name, step.checksum))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return missing


def read_applied(connection: sqlite3.Connection) -> list[Applied]:
    """Return the applied steps of a SQLite database."""
    if connection.execute(_HAS_LIST).fetchone() is None:
        return []
    return [Applied(*row) for row in connection.execute(_READ_LIST)]


def _split(text: str) -> Iterator[str]:
    """Yield the statements of a script one by one: `executescript` would end the transaction."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        lines.append(line)
        if sqlite3.complete_statement("".join(lines)):
            yield "".join(lines)
            lines = []
    rest = "".join(lines)
    if rest.strip():
        yield rest
