"""Statements live in files, one per database; they are read by name and their column lists filled in.

`{run.columns}` in a file stands for a generated list: of the columns of a group (see `column`), in one of the
forms of the database.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

from kron.core.plan.query import AuditCursor, AuditFilter, JobFilter, RunCursor, RunSpan
from kron.core.plan.record import RunStatus
from kron.stores.row import GROUPS, Column

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{(\w+)\.(\w+)\}")
# Later than any instant: where the first page starts.
FOR_EVER = 1 << 62
LATEST_AUDIT = AuditCursor(FOR_EVER, 0)
# How PostgreSQL reads the columns of a job that it stores in another way, or not at all.
_READ = {"suspended": "suspended::integer", "paused": "paused::integer", "number": "0"}
_FLAGS = frozenset({"suspended", "paused"})
# A run is recorded at most this long before it starts, as far as counts look for it.
RECORDED_MS = 3_600_000
# A run recorded farther from its nominal time is in an index of its own, whose condition says the same.
NEAR_S = 3_600
# A job whose history is looked up costs about as much as this many runs read in the order of their records.
RUNS_PER_LOOKUP = 2
# Of some jobs those of all others are subtracted, if these and all their runs are fewer than this many rows.
MAX_OTHERS = 10_000
# Statuses of runs that have not ended.
ALWAYS_OPEN = frozenset({RunStatus.PENDING, RunStatus.STARTED})


def _type_of(column: Column) -> str:
    if column.field in _FLAGS:
        return "boolean"
    return "text" if column.is_text else "bigint"


Form = Callable[[Column], str]
FORMS: dict[str, dict[str, Form]] = {
    "sqlite": {
        "columns": lambda column: column.name,
        "values": lambda _: "?",
        "assignments": lambda column: f"{column.name} = ?",
    },
    "postgres": {
        "columns": lambda column: column.name,
        "read": lambda column: _READ.get(column.field, column.name),
        "fields": lambda column: column.field,
        "values": lambda column: f"%({column.field})s::{_type_of(column)}",
        "arrays": lambda column: f"%({column.field})s::{_type_of(column)}[]",
        "assignments": lambda column: f"{column.name} = new.{column.field}",
    },
}


@cache
def statements(database: str, file: str = "statements") -> dict[str, str]:
    """Return the statements of one database by name."""
    text = (files("kron.stores") / "sql" / database / f"{file}.sql").read_text(encoding="utf-8")
    return {name: filled(database, body.strip(), GROUPS) for name, body in _NAMED.findall(text)}


def filled(database: str, statement: str, groups: Mapping[str, Sequence[Column]]) -> str:
    """Return a statement with the column lists of some groups filled in."""

    def listed(match: re.Match[str]) -> str:
        group, form = match.groups()
        if group not in groups:
            return match.group()
        return ", ".join(map(FORMS[database][form], groups[group]))

    return _PLACEHOLDER.sub(listed, statement)


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
    """Return the statement that finds the jobs matching a filter."""
    by_name = "list_named_jobs" if wanted.users is None else "list_own_named_jobs"
    # PostgreSQL finds the index of names by itself.
    listed = sql["list_jobs"] if wanted.names is None else sql.get(by_name, sql["list_jobs"])
    return " ".join((listed, *_clauses(sql, wanted), sql["jobs_in_order"]))


def count_statement(sql: Mapping[str, str], wanted: JobFilter) -> str:
    """Return the statement that counts the jobs matching a filter."""
    return " ".join((sql["count_jobs"], *_clauses(sql, wanted)))


def groups_statement(sql: Mapping[str, str], wanted: JobFilter, *, singly: bool) -> str:
    """Return the statement that groups the jobs matching a filter."""
    groups = sql["group_jobs"].replace("{own}", " ".join(_clauses(sql, wanted)))
    if singly:
        inner, outer = groups.split("{singly}", 1)
        return f"{inner}, schedule_id{outer.replace('{singly}', ', name')} {sql['single_groups_in_order']}"
    return f"{groups.replace('{singly}', '')} {sql['groups_in_order']}"


def made_statement(sql: Mapping[str, str], wanted: JobFilter, *, name: str = "count_own") -> str:
    """Return the statement that counts the runs of the jobs matching a filter, or another one of its kind."""
    if wanted == JobFilter():
        return sql["count_made"]
    return sql[name].replace("{own}", " ".join(_clauses(sql, wanted)))


def tally_statement(sql: Mapping[str, str], wanted: JobFilter, *, not_ok: bool, by_job: bool = False) -> str:
    """Return the statement that counts runs by tag and status, in the order of their records or by job.

    What did not succeed has an index of its own, in the order of the records.
    """
    scope = "each" if by_job else "all"
    statement = sql["tally_runs"].replace("{read}", sql[f"read_of_{scope}"])
    parts = {
        "{ranges}": sql.get(f"ranges_of_{scope}", ""),
        "{range_at}": sql.get("range_at", ""),
        # Those without success are joined as a whole, in whatever order the planner reads them.
        "{barrier}": "NOT MATERIALIZED" if not_ok else "MATERIALIZED",
        "{own}": " ".join(_clauses(sql, wanted)),
        "{which}": sql["tally_not_ok"] if not_ok else "",
        "{index}": "runs_problems" if not_ok else "runs_made",
    }
    for place, text in parts.items():
        statement = statement.replace(place, text)
    return statement


def span_values(span: RunSpan) -> dict[str, int]:
    """Return the parameters of a statement that counts runs."""
    since, until = span.start - RECORDED_MS, min(span.end, span.now + 1)
    near_from, near_until = since // 1000 - NEAR_S, until // 1000 + NEAR_S + 1
    values = {"made_from": since, "made_until": until, "near_from": near_from, "near_until": near_until}
    return {**span._asdict(), **values}


def _clauses(sql: Mapping[str, str], wanted: JobFilter) -> list[str]:
    names = [name for name, value in wanted._asdict().items() if name != "deleted" and value is not None]
    if not wanted.deleted:
        names.append("not_deleted")
    return [sql[f"jobs_by_{name}"] for name in names]


def runs_clauses(sql: Mapping[str, str], status: RunStatus | None, users: Sequence[str] | None) -> str:
    """Return the clauses that select and sort the latest runs of a namespace."""
    filters = {"latest_by_status": status, "latest_by_users": users}
    clauses = " ".join(sql[name] for name, value in filters.items() if value is not None)
    runs = sql["latest_open_runs" if status in ALWAYS_OPEN else "latest_runs"]
    return f"{runs} {clauses} {sql['latest_in_order']}"


def audit_statement(sql: Mapping[str, str], wanted: AuditFilter) -> str:
    """Return the statement that finds the audit entries matching a filter."""
    names = [name for name in ("identity", "who") if getattr(wanted, name) is not None]
    which = " ".join(sql[f"audits_by_{name}"] for name in names)
    if wanted.users is not None:
        index = "audit_user" if wanted.identity is None else "audit_schedule"
        return sql["own_audits"].replace("{index}", index).replace("{which}", which)
    if wanted.identity is not None:
        return sql["audits_of_schedule"].replace("{which}", which)
    return f"{sql['audits']} {which} {sql['audits_in_order']}"


def cursor_values(before: RunCursor | None) -> dict[str, object]:
    """Return the parameters of the statement that reads a page of runs."""
    created_at, key = (FOR_EVER, "") if before is None else before
    return {"made_at": created_at, "key": key}
