"""What the operator keeps in the status of a KronJob."""

import json

from kron.core.plan.record import RunKind
from kron.fronts.operator.state import RUN_FIELDS, Book, book_of, text_of
from kron.testing.contract.registry import FULL_JOB, FULL_RUN

PERIOD = FULL_RUN._replace(kind=RunKind.PERIOD)
MANUAL = FULL_RUN._replace(kind=RunKind.MANUAL, key="requested")


def test_every_field_of_a_run_is_read_back() -> None:
    book = Book(FULL_JOB, runs=(PERIOD, MANUAL), closed=(MANUAL, PERIOD))
    read = book_of(text_of(book), "backup", launcher="{}", kind="kubernetes")
    assert (read.runs, read.closed) == (book.runs, book.closed)


def test_a_run_of_an_earlier_version_lacks_the_newest_field() -> None:
    book = Book(FULL_JOB, runs=(PERIOD, MANUAL))
    document = json.loads(text_of(book))
    for row in document["runs"]:
        del row[len(RUN_FIELDS) - 1]
    read = book_of(json.dumps(document), "backup", launcher="{}", kind="kubernetes")
    assert read.runs == tuple(run._replace(acked=0) for run in book.runs)
