"""Database triggers that record every take-over of a shard and every committed start, in order."""

import sqlite3
from contextlib import closing
from typing import Any, NamedTuple

import psycopg

POSTGRES = """
CREATE TABLE audit_leases (number bigserial, shard integer, token bigint, owner text, forced boolean);
CREATE TABLE audit_starts (number bigserial, shard integer, key text, attempt bigint, token bigint);
CREATE FUNCTION audit_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit_leases (shard, token, owner, forced)
    VALUES (NEW.shard, NEW.token, NEW.owner, OLD.owner IS NOT NULL); RETURN NULL;
END $$;
CREATE FUNCTION audit_start() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO audit_starts (shard, key, attempt, token)
    VALUES (NEW.shard, NEW.idempotency_key, NEW.attempt, NEW.token); RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON leases FOR EACH ROW WHEN (NEW.token <> OLD.token)
    EXECUTE FUNCTION audit_lease();
CREATE TRIGGER audit_new AFTER INSERT ON schedule_runs FOR EACH ROW WHEN (NEW.attempt > 0)
    EXECUTE FUNCTION audit_start();
CREATE TRIGGER audit_again AFTER UPDATE ON schedule_runs FOR EACH ROW
    WHEN (NEW.attempt > OLD.attempt OR NEW.token <> OLD.token) EXECUTE FUNCTION audit_start();
"""
SQLITE = """
CREATE TABLE audit_leases (
    number INTEGER PRIMARY KEY, shard INTEGER, token INTEGER, owner TEXT, forced INTEGER);
CREATE TABLE audit_starts (
    number INTEGER PRIMARY KEY, shard INTEGER, key TEXT, attempt INTEGER, token INTEGER);
CREATE TRIGGER audit_first AFTER INSERT ON leases BEGIN
    INSERT INTO audit_leases (shard, token, owner, forced) VALUES (NEW.shard, NEW.token, NEW.owner, 0); END;
CREATE TRIGGER audit AFTER UPDATE ON leases WHEN NEW.token <> OLD.token BEGIN
    INSERT INTO audit_leases (shard, token, owner, forced)
    VALUES (NEW.shard, NEW.token, NEW.owner, OLD.owner IS NOT NULL); END;
CREATE TRIGGER audit_new AFTER INSERT ON runs WHEN NEW.attempt > 0 BEGIN
    INSERT INTO audit_starts (shard, key, attempt, token)
    VALUES (0, NEW.idempotency_key, NEW.attempt, NEW.token); END;
CREATE TRIGGER audit_again AFTER UPDATE ON runs WHEN NEW.attempt > OLD.attempt OR NEW.token <> OLD.token BEGIN
    INSERT INTO audit_starts (shard, key, attempt, token)
    VALUES (0, NEW.idempotency_key, NEW.attempt, NEW.token); END;
"""
LEASES = "SELECT shard, token, owner, forced FROM audit_leases ORDER BY number"
STARTS = "SELECT shard, key, attempt, token FROM audit_starts ORDER BY number"


class Lease(NamedTuple):
    """A take-over of a shard that was released, or, `forced`, of one whose lease had expired."""

    shard: int
    token: int
    owner: str
    forced: bool


class Start(NamedTuple):
    """A committed start."""

    shard: int
    key: str
    attempt: int
    token: int


class Audit:
    """The audit of one database; `path` is a file, or a PostgreSQL URL."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_file = not path.startswith("postgresql:")

    def install(self) -> None:
        """Install the triggers."""
        if self._is_file:
            with closing(sqlite3.connect(self._path)) as connection:
                connection.executescript(SQLITE)
        else:
            with psycopg.connect(self._path, autocommit=True) as connection:
                connection.execute(POSTGRES.encode())

    def leases(self) -> list[Lease]:
        """Return the take-overs, in order."""
        return [Lease(*row) for row in self._rows(LEASES)]

    def starts(self) -> list[Start]:
        """Return the starts, in order."""
        return [Start(*row) for row in self._rows(STARTS)]

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        if self._is_file:
            with closing(sqlite3.connect(self._path)) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self._path, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()
