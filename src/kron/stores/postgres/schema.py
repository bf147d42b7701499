"""The address of a PostgreSQL database, and the migrations of its tables."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection, Error, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import LockNotAvailable

from kron.core.errors import InvalidOptionError, StoreUnavailableError
from kron.core.redaction import HIDDEN
from kron.stores.migration import MAX_AHEAD, Applied, Migration, pending, steps_of

Connection = AsyncConnection[tuple[Any, ...]]

# How long a call waits for a connection before it fails.
CONNECT_S = 5
# A dead network is noticed within seconds instead of the operating system's hours.
CONNECTION: dict[str, str | int] = {
    "application_name": "kron",
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

# A migration that waits for a table keeps everybody else from it: it waits for a long transaction no longer
# than this, and tries again.
_LOCK_WAIT = "SET LOCAL lock_timeout = '500ms'"
LOCK_TRIES, BETWEEN_TRIES_S = 20, 1.0

_HAS_LIST = "SELECT to_regclass('kron_migrations') IS NOT NULL"
_MAKE_LIST = """CREATE TABLE IF NOT EXISTS kron_migrations (number integer PRIMARY KEY, name text NOT NULL,
    checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"""
_READ_LIST = """SELECT number, name, checksum,
    to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    FROM kron_migrations ORDER BY number"""
_NOTE_STEP = "INSERT INTO kron_migrations (number, name, checksum) VALUES (%s, %s, %s)"
_LOCK_LIST, _UNLOCK_LIST = (f"SELECT pg_advisory_{verb}(1802661742, 0)" for verb in ("lock", "unlock"))


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a database, and its name without the password."""

    name: str
    conninfo: str = field(repr=False)
    password: str = field(repr=False)

    @asynccontextmanager
    async def translated(self) -> AsyncIterator[None]:
        """Turn errors of the database and of the network into a StoreError without secrets."""
        try:
            yield
        except (Error, UnicodeEncodeError) as cause:
            text = " ".join(str(cause).split()) or type(cause).__name__
            if self.password and self.password in text:
                text = text.replace(self.password, HIDDEN)
                raise StoreUnavailableError(f"The store cannot be used: {text}", cause=text) from None
            raise StoreUnavailableError(f"The store cannot be used: {text}", cause=cause) from cause


def address_of(url: str) -> Address:
    """Return the address of a URL; an invalid one is not quoted, as it may hold a password."""
    try:
        given = conninfo_to_dict(url)
        conninfo = make_conninfo(url, **{name: CONNECTION[name] for name in CONNECTION.keys() - given.keys()})
    except ProgrammingError:
        reason = "write postgresql://user@host:port/database, with special characters as %XX"
        raise InvalidOptionError(option="store", value="postgresql://...", reason=reason) from None
    return Address(f'the database "{given.get("dbname", "")}"', conninfo, str(given.get("password") or ""))


class PostgresSchema:
    """The tables of a PostgreSQL database."""

    def __init__(
        self, url: str, steps: Sequence[Migration] | None = None, *, lock_tries: int = LOCK_TRIES
    ) -> None:
        self._address = address_of(url)
        self._lock_tries = lock_tries
        self.steps = steps_of("postgres") if steps is None else steps

    async def applied(self) -> list[Applied]:
        """Return the applied migrations; none if the database is new."""
        async with self._connected() as connection:
            return await _read_applied(connection)

    async def forward(self) -> list[Migration]:
        """Apply the missing migrations, all or nothing, one process at a time; return them."""
        async with self._connected() as connection:
            return await self._forward(connection, ahead=0)

    async def prepare(self) -> None:
        """Create the tables of a new database; an existing one is migrated by `kron migrate` only."""
        async with self._connected() as connection:
            applied = await _read_applied(connection)
            missing = pending(self.steps, applied, ahead=MAX_AHEAD)
            if not applied:
                await self._forward(connection, ahead=MAX_AHEAD)
            elif missing:
                raise StoreUnavailableError(
                    f"The database is at migration {len(applied)} and this program needs {len(self.steps)}: "
                    "run kron migrate",
                    at=len(applied),
                    needed=len(self.steps),
                )

    async def _forward(self, connection: Connection, *, ahead: int) -> list[Migration]:
        # Locked before the transaction starts: its snapshot would not show a table created while it waited.
        await connection.execute(_LOCK_LIST.encode())
        missing = await self._apply(connection, ahead=ahead)
        for _ in range(self._lock_tries - 1):
            if missing is not None:
                break
            await asyncio.sleep(BETWEEN_TRIES_S)
            missing = await self._apply(connection, ahead=ahead)
        await connection.execute(_UNLOCK_LIST.encode())
        if missing is None:
            raise StoreUnavailableError(
                "The tables are in use by a transaction that does not end, such as a backup; "
                "pg_stat_activity shows it. Nothing was migrated: run kron migrate again when it has ended"
            )
        return missing

    async def _apply(self, connection: Connection, *, ahead: int) -> list[Migration] | None:
        """Apply the missing migrations in one transaction; None if another one keeps a table for too long."""
        try:
            async with connection.transaction():
                await connection.execute(_LOCK_WAIT.encode())
                missing = pending(self.steps, await _read_applied(connection), ahead=ahead)
                await connection.execute(_MAKE_LIST)
                for step in missing:
                    await connection.execute(step.text.encode())
                    await connection.execute(_NOTE_STEP, (step.number, step.name, step.checksum))
        except LockNotAvailable:
            return None
        return missing

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        async with (
            self._address.translated(),
            await AsyncConnection.connect(self._address.conninfo, autocommit=True) as connection,
        ):
            yield connection


async def _read_applied(connection: Connection) -> list[Applied]:
    known = await (await connection.execute(_HAS_LIST)).fetchone()
    if known != (True,):
        return []
    return [Applied(*row) for row in await (await connection.execute(_READ_LIST)).fetchall()]
