"""`kron schedules bulk`: schedules from JSON lines, in batches."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, BinaryIO, NamedTuple

import typer

from kron.cli.main import GOOD
from kron.cli.support.client import Server, StoreUrl, Target, request
from kron.cli.support.option import AsJson
from kron.cli.support.read import STDIN
from kron.cli.support.terminal import say, show_json
from kron.core.errors import UnreadableFileError
from kron.core.wording import counted
from kron.fronts.service.bulk import BATCH
from kron.fronts.service.client import ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import InvalidLinesError

# The longest line that is read; the service has a lower limit.
MAX_LINE = 16 << 20

Lines = Annotated[str, typer.Argument(metavar="FILE|-", help="JSON lines, one schedule each.")]


class LineBatch(NamedTuple):
    """Lines of one transaction, the number of lines before them, and their end in the file."""

    text: bytes
    before: int
    end: int


def bulk_command(file: Lines, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Create or update a schedule for each JSON line, in batches of 1,000, each in one transaction.

    Errors name their lines. Batches before an error stay stored, and running the command again is safe.

    \b
    Examples:
      kron schedules bulk schedules.jsonl
      generate | kron schedules bulk - --server http://127.0.0.1:8080
    """  # noqa: D301
    with _opened(file) as stream, _progress(stream) as report:
        stored = request(
            Target(server, store), lambda client: _send(client, stream, report), creates_store=True
        )
    if as_json:
        show_json(stored)
    else:
        say(f"stored {counted(_whole(stored['upserted']), 'schedule')}")
    return GOOD


async def _send(client: ServiceClient, stream: BinaryIO, report: Callable[[int, int], None]) -> Document:
    stored = batches = 0
    for batch in _batches(stream):
        try:
            answer = await client.bulk(batch.text)
        except InvalidLinesError as error:
            errors = [(batch.before + line, fault) for line, fault in error.errors]
            raise InvalidLinesError(errors=errors, stored=stored, count=error.count) from error
        stored += _whole(answer["upserted"])
        batches += 1
        report(stored, batch.end)
    return {"upserted": stored, "batches": batches}


def _batches(stream: BinaryIO) -> Iterator[LineBatch]:
    """Yield batches of lines; empty lines count to the batch before them."""
    lines: list[bytes] = []
    filled = before = end = 0
    while line := stream.readline(MAX_LINE):
        lines.append(line)
        end += len(line)
        filled += bool(line.strip())
        if filled == BATCH:
            yield LineBatch(b"".join(lines), before, end)
            before, filled, lines = before + len(lines), 0, []
    if filled:
        yield LineBatch(b"".join(lines), before, end)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    try:
        with open(0 if file == STDIN else file, "rb", closefd=file != STDIN) as stream:
            yield stream
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise UnreadableFileError(file=file, reason=reason or str(cause)) from cause


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the progress on a terminal, and nothing without one."""
    if not sys.stderr.isatty():
        yield lambda stored, end: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    size = os.fstat(stream.fileno()).st_size or None
    columns = (
        TextColumn("storing"), BarColumn(), TextColumn("{task.fields[stored]:,} schedules"),
        TextColumn("{task.fields[rate]:,.0f}/s"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size, stored=0, rate=0.0)

        def report(stored: int, end: int) -> None:
            elapsed = progress.tasks[0].elapsed or 0.0
            progress.update(task, completed=end, stored=stored, rate=stored / elapsed if elapsed else 0.0)

        yield report


def _whole(value: object) -> int:
    assert isinstance(value, int), "the service answers with a number"
    return value
