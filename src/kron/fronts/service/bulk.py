"""Bulk upserts: a schedule in each line, read as they come and stored a batch at a time."""

import json
from collections.abc import AsyncIterable, AsyncIterator

from kron.core.errors import InvalidOptionError
from kron.fronts.service.registrar import Registrar

# How many lines are stored together, or not at all.
BATCH = 1_000


async def upsert_lines(
    registrar: Registrar, chunks: AsyncIterable[bytes], *, max_line: int
) -> tuple[int, int]:
    """Store JSON lines; return how many, in how many batches. A batch with a wrong line stops it."""
    stored = batches = 0
    batch: list[tuple[int, object]] = []
    async for line in _lines(chunks, max_line):
        batch.append(line)
        if len(batch) == BATCH:
            stored += await registrar.upsert_schedules(batch, stored=stored)
            batches += 1
            batch = []
    if batch:
        stored += await registrar.upsert_schedules(batch, stored=stored)
        batches += 1
    return stored, batches


async def _lines(chunks: AsyncIterable[bytes], max_line: int) -> AsyncIterator[tuple[int, object]]:
    """Yield each line that is not empty with its number, parsed, or as the error it is."""
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
