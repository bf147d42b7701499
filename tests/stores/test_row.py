"""Columns come from the fields of records: their names, their types, and the statements made of them."""

import sqlite3
from contextlib import closing
from typing import NamedTuple

import pytest

from kron.core.errors import StoreError
from kron.core.job.outcome import Reason
from kron.core.plan.query import JobFilter
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    ExternalText,
    JobRecord,
    RangeRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
)
from kron.core.plan.step import WriteScope
from kron.stores.postgres.write import texts
from kron.stores.row import CHANGED_JOB, GROUPS, Column, columns_of, run_of, storable, writer
from kron.stores.sqlite.file import MEMORY, connect
from kron.stores.statement import (
    filled,
    groups_statement,
    made_statement,
    statements,
    tally_statement,
)

# Statements whose clauses depend on a filter.
FILTERED = {"audits_of_schedule", "count_own", "group_jobs", "own_audits", "tally_runs", "read_of_all"}
# On PostgreSQL aggregated periods are read with the runs; on SQLite those of an owner of nearly all jobs are
# all but the others'.
READ_WITH_RUNS, WITHOUT_OTHERS = {"read_of_each"}, {"count_but_others", "has_others"}
RUN = RunRecord("key", "job", 60, 60_000, RunStatus.FAILED, Reason.RETRY, 5, 1, kind=RunKind.BACKFILL)


class Sample(NamedTuple):
    """A record with a field of each kind."""

    identity: str
    status: RunStatus
    size: int
    result: Result | None
    note: ExternalText | None
    at: int | None


def test_a_column_has_the_type_of_its_field() -> None:
    assert columns_of(Sample) == (
        Column("identity", "schedule_id", True, False, False, None),
        Column("status", "status", True, False, False, RunStatus),
        Column("size", "size", False, False, False, None),
        Column("result", "result", True, True, False, Result),
        Column("note", "note", True, True, True, None),
        Column("at", "at", False, True, False, None),
    )


class Odd(NamedTuple):
    """A record that no store keeps."""

    share: float


def test_a_field_of_another_type_is_refused() -> None:
    with pytest.raises(AssertionError, match="share: records hold texts and integers"):
        columns_of(Odd)


def test_a_row_holds_plain_texts_and_integers() -> None:
    write = writer(Sample, columns_of(Sample))
    row = write(Sample("a", RunStatus.FAILED, 1, None, "zero \0", None))
    assert list(row) == ["a", "FAILED", 1, None, "zero \ufffd", None]
    assert type(row[1]) is str


def test_a_row_holds_the_columns_wanted() -> None:
    write = writer(RunRecord, columns_of(AttemptRecord))
    assert list(write(RUN._replace(attempt=2, token=3, result=Result.LOST))) == [
        *("key", 2, 3, None, None, "lost", None, None)
    ]


def test_a_row_becomes_the_record_it_was_made_of() -> None:
    assert run_of(writer(RunRecord, GROUPS["run"])(RUN)) == RUN


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("status", "GONE", "unknown value 'GONE'"),
        ("status", None, "unknown value None"),
        ("result", "odd", "unknown value 'odd'"),
        ("attempt", "1", "a value that is not an integer"),
        ("acked", 1.5, "a value that is not an integer"),
    ],
)
def test_a_damaged_row_is_an_error_that_names_it(field: str, value: object, message: str) -> None:
    row = list(writer(RunRecord, GROUPS["run"])(RUN))
    row[RunRecord._fields.index(field)] = value
    with pytest.raises(StoreError, match=f'The run "key" cannot be read: {message}'):
        run_of(row)


def test_a_scope_writes_its_fields_and_any_scope_all_but_the_name() -> None:
    for scope, columns in CHANGED_JOB.items():
        fields = {column.field for column in columns}
        everything = set(JobRecord._fields) - {"identity", "number"}
        assert fields == (everything if scope is WriteScope.ANY else set(scope.value))


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_column_list_is_filled_in(database: str) -> None:
    sql = statements(database)
    update = "update_job" if database == "sqlite" else "update_jobs"
    assert {name for name, text in sql.items() if "{" in text} == {
        update, *FILTERED, *(READ_WITH_RUNS if database == "postgres" else WITHOUT_OTHERS)
    }  # fmt: skip
    for columns in CHANGED_JOB.values():
        assert "{" not in filled(database, sql[update], {"changed_job": columns})


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("wanted", [JobFilter(), JobFilter(tag="a", users=("ann",))], ids=["all", "some"])
@pytest.mark.parametrize("is_narrow", [False, True])
def test_every_clause_of_a_count_is_filled_in(database: str, wanted: JobFilter, is_narrow: bool) -> None:
    sql = statements(database)
    made = [
        groups_statement(sql, wanted, singly=is_narrow),
        made_statement(sql, wanted),
        tally_statement(sql, wanted, not_ok=is_narrow),
        tally_statement(sql, wanted, not_ok=is_narrow, by_job=True),
    ]
    assert not [text for text in made if "{" in text]


def test_every_column_is_in_its_table() -> None:
    tables = {"jobs": JobRecord, "runs": RunRecord, "attempts": AttemptRecord, "ranges": RangeRecord}
    with closing(connect(MEMORY)) as connection:
        for table, record in {**tables, "audit": AuditRecord}.items():
            names = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
            assert {column.name for column in columns_of(record)} <= names


def test_a_text_is_stored_without_the_characters_no_database_holds() -> None:
    assert storable("zero \0 half \ud800 whole \u2713") == "zero \ufffd half ? whole \u2713"


def test_a_sqlite_store_refuses_the_rest_of_a_lone_surrogate() -> None:
    """The reason for `storable`: the driver raises an error that is none of SQLite's."""
    with closing(sqlite3.connect(MEMORY)) as connection, pytest.raises(UnicodeEncodeError):
        connection.execute("SELECT ?", ("\ud800",))


def test_every_scope_of_a_write_has_a_set_of_fields() -> None:
    # Python 3.11.2 gives a member that is an empty tuple another value, and then no store can be imported.
    for scope in WriteScope:
        assert isinstance(scope.value, frozenset)
        assert scope.value <= set(JobRecord._fields)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "{}"),
        (["a"], '{"a"}'),
        (["a", "b", "c"], '{"a","b","c"}'),
        # As many quotes as would end and begin another text.
        (['a"b"c', "d", "e"], '{"a\\"b\\"c","d","e"}'),
        (['a"'], '{"a\\""}'),
        (["a\\", None], '{"a\\\\",NULL}'),
    ],
)
def test_texts_are_an_array_whose_quotes_are_their_own(values: list[str | None], expected: str) -> None:
    assert texts(values) == expected
