"""Statements live in files, one file per database; here they are read, by name."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from kron.core.plan.query import AuditFilter, JobFilter, RunCursor
from kron.core.plan.record import RunStatus

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
# Later than any instant: where the first page begins.
FOR_EVER = 1 << 62


@cache
def statements(database: str, file: str = "statements") -> dict[str, str]:
    """Return the statements of one database by name."""
    text = (files("kron.stores") / "sql" / database / f"{file}.sql").read_text(encoding="utf-8")
    return {name: body.strip() for name, body in _NAMED.findall(text)}


def migrations(database: str) -> list[tuple[int, str, str]]:
    """Return the numbered migrations of one database in order: number, name, text."""
    folder = files("kron.stores") / "sql" / database
    found = []
    for file in folder.iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if number.isdigit():
            found.append((int(number), name, file.read_text(encoding="utf-8")))
    return sorted(found)


def jobs_statement(sql: Mapping[str, str], wanted: JobFilter) -> str:
    """Return the statement that finds the jobs somebody wants."""
    return " ".join((sql["found_jobs"], *_clauses(sql, wanted), sql["found_in_order"]))


def count_statement(sql: Mapping[str, str], wanted: JobFilter) -> str:
    """Return the statement that counts the jobs somebody wants."""
    return " ".join((sql["counted_jobs"], *_clauses(sql, wanted)))


def _clauses(sql: Mapping[str, str], wanted: JobFilter) -> list[str]:
    asked = [name for name, value in wanted._asdict().items() if name != "deleted" and value is not None]
    if not wanted.deleted:
        asked.append("not_deleted")
    return [sql[f"found_by_{name}"] for name in asked]


def runs_clauses(sql: Mapping[str, str], status: RunStatus | None, users: Sequence[str] | None) -> str:
    """Return the clauses that follow the runs of a namespace."""
    asked = {"latest_by_status": status, "latest_by_users": users}
    some = " ".join(sql[name] for name, value in asked.items() if value is not None)
    return f"{sql['latest_runs']} {some} {sql['latest_in_order']}"


def audit_statement(sql: Mapping[str, str], wanted: AuditFilter) -> str:
    """Return the statement that finds the changes somebody wants."""
    asked = [name for name, value in wanted._asdict().items() if value is not None]
    return " ".join((sql["audits"], *(sql[f"audits_by_{name}"] for name in asked), sql["audits_in_order"]))


def place_values(before: RunCursor | None) -> dict[str, object]:
    """Return where a page of runs begins."""
    return {"made_at": FOR_EVER, "key": ""} if before is None else {"made_at": before[0], "key": before[1]}
