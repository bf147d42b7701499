"""Bulk upserts: one schedule per JSON line, read as a stream and stored in batches."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from kron.core.errors import InputError, InvalidOptionError, Problem
from kron.fronts.service.errors import InvalidLinesError, InvalidScheduleError
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.schedule_spec import ScheduleSpec

# Lines that are stored in one transaction.
BATCH = 1_000


async def upsert_lines(
    registrar: Registrar, chunks: AsyncIterable[bytes], *, max_line: int
) -> tuple[int, int]:
    """Store JSON lines; return the numbers of lines and batches. An invalid line ends it before its batch."""
    stored = batches = 0
    batch: list[tuple[int, object]] = []
    async for line in _lines(chunks, max_line):
        batch.append(line)
        if len(batch) == BATCH:
            stored += await upsert_batch(registrar, batch, stored=stored)
            batches += 1
            batch = []
    if batch:
        stored += await upsert_batch(registrar, batch, stored=stored)
        batches += 1
    return stored, batches


async def upsert_batch(
    registrar: Registrar, documents: Sequence[tuple[int, object]], *, stored: int = 0
) -> int:
    """Create or change schedules, each given with its line number, all or none; return how many.

    `stored` is how many earlier lines of the request are stored already.
    """
    specs: dict[str, ScheduleSpec] = {}
    lines: dict[str, int] = {}
    errors: list[tuple[int, InputError]] = []
    for line, document in documents:
        try:
            if isinstance(document, InputError):
                raise document
            spec = registrar.read_spec(document)
            if spec.job.identity in specs:
                problem = Problem("schedule_id", spec.job.identity, "stands in the same batch twice")
                raise InvalidScheduleError(schedule_id=spec.job.identity, problems=[problem])
            specs[spec.job.identity], lines[spec.job.identity] = spec, line
        except InputError as error:
            errors.append((line, error))
    if errors:
        raise InvalidLinesError(errors=errors, stored=stored)
    try:
        return await registrar.upsert_schedules(list(specs.values()))
    except InvalidScheduleError as error:
        # Some problems show only against stored schedules, such as a name that another tenant owns.
        line = lines[str(error.details["schedule_id"])]
        raise InvalidLinesError(errors=[(line, error)], stored=stored) from error


async def _lines(chunks: AsyncIterable[bytes], max_line: int) -> AsyncIterator[tuple[int, object]]:
    """Yield each non-empty line with its number, parsed, or the error of parsing it."""
    rest, number = b"", 0
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for text in whole:
            number += 1
            if text.strip():
                yield number, _parsed(text, max_line)
        if len(rest) > max_line:
            break
    if rest.strip():
        yield number + 1, _parsed(rest, max_line)


def _parsed(text: bytes, max_line: int) -> object:
    if len(text) > max_line:
        return InvalidOptionError(option="line", value="...", reason=f"has more than {max_line} bytes")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        return InvalidOptionError(option="line", value="...", reason=f"is not JSON: {cause}")
