"""Bulk upserts: one schedule per JSON line, read as a stream and stored in batches."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence

from kron.app.budget import CpuBudget
from kron.core.errors import InputError, InvalidOptionError, Problem, quoted
from kron.fronts.service.auth.principal import current_caller
from kron.fronts.service.errors import MAX_LINES, InvalidLinesError, InvalidScheduleError
from kron.fronts.service.json_text import read_json
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.schedule_spec import ScheduleSpec

# Lines that are stored in one transaction, fewer if they have this many bytes: both bound the memory of one.
BATCH, BATCH_BYTES = 1_000, 4_194_304
# Lines are read for so long, in seconds of processor time, before other requests have their turn.
TURN_S = 0.005
# Lines without a schedule that may follow each other; their bytes are limited as those of one line.
MAX_BLANK = 1_000


async def upsert_lines(
    registrar: Registrar, chunks: AsyncIterable[bytes], *, max_line: int
) -> tuple[int, int]:
    """Store JSON lines; return the numbers of lines and batches. An invalid line ends it before its batch."""
    stored = batches = size = 0
    lines: list[tuple[int, bytes]] = []
    async for number, line in _lines(chunks, max_line):
        lines.append((number, line))
        size += len(line)
        if len(lines) == BATCH or size >= BATCH_BYTES:
            stored += await _stored(registrar, lines, max_line, stored)
            batches += 1
            lines, size = [], 0
    if lines:
        stored += await _stored(registrar, lines, max_line, stored)
        batches += 1
    return stored, batches


async def _stored(
    registrar: Registrar, lines: Sequence[tuple[int, bytes]], max_line: int, stored: int
) -> int:
    """Read and store the schedules of some lines, in a turn of the caller; return how many."""
    async with registrar.bulk_turns.turn(current_caller().name):
        batch, turn = _Batch(), CpuBudget(TURN_S)
        for number, line in lines:
            # One document is in memory as JSON at a time: some need fifty times their length there.
            batch.add(number, _spec_of(registrar, line, max_line))
            if batch.is_too_costly:
                break
            if turn.is_spent:
                await asyncio.sleep(0)
                turn = CpuBudget(TURN_S)
        return await batch.store(registrar, stored=stored)


def _spec_of(registrar: Registrar, line: bytes, max_line: int) -> ScheduleSpec | InputError:
    try:
        return registrar.read_spec(_parsed(line, max_line))
    except InputError as error:
        return error


class _Batch:
    """Schedules that are stored in one transaction, or the errors of the lines that prevent it."""

    def __init__(self) -> None:
        self._specs: dict[str, tuple[int, ScheduleSpec]] = {}
        self._errors: list[tuple[int, InputError]] = []
        self._invalid = 0
        # Errors are costly to describe; the batch is not stored, so the rest need not be read.
        self._budget = CpuBudget()

    @property
    def is_too_costly(self) -> bool:
        """Say whether lines are invalid, and no further ones are to be described."""
        return bool(self._errors) and self._budget.is_spent

    def add(self, number: int, spec: ScheduleSpec | InputError) -> None:
        """Add the schedule of a line, or its error; of many errors the first ones are kept."""
        if isinstance(spec, ScheduleSpec) and spec.job.identity in self._specs:
            problem = Problem("schedule_id", spec.job.identity, "appears twice in the same batch")
            spec = InvalidScheduleError(schedule_id=spec.job.identity, problems=[problem])
        if isinstance(spec, ScheduleSpec):
            self._specs[spec.job.identity] = number, spec
            return
        self._invalid += 1
        if self._invalid <= MAX_LINES:
            self._errors.append((number, _without_values(spec)))

    async def store(self, registrar: Registrar, *, stored: int) -> int:
        """Store all schedules or none; return how many. `stored` is the number of earlier lines stored."""
        if self._errors:
            raise InvalidLinesError(errors=self._errors, stored=stored, count=self._invalid)
        try:
            return await registrar.upsert_schedules([spec for _, spec in self._specs.values()])
        except InvalidScheduleError as error:
            # Some problems show only against stored schedules, such as a name that another tenant owns.
            number, _ = self._specs[str(error.details["schedule_id"])]
            raise InvalidLinesError(errors=[(number, error)], stored=stored) from error


def _without_values(error: InputError) -> InputError:
    """Return an error whose problems quote the values of the document and do not hold them."""
    if not isinstance(error, InvalidScheduleError):
        return error
    problems = [
        problem if problem.value is None else Problem(problem.path, quoted(problem.value), problem.reason)
        for problem in error.problems
    ]
    return InvalidScheduleError(schedule_id=quoted(error.details["schedule_id"]), problems=problems)


async def _lines(chunks: AsyncIterable[bytes], max_line: int) -> AsyncIterator[tuple[int, bytes]]:
    """Yield each non-empty line with its number; after too many blank lines an empty one, the last."""
    rest, number = b"", 0
    blank = blank_bytes = 0
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for text in whole:
            number += 1
            if text.strip():
                blank = blank_bytes = 0
                yield number, text
                continue
            blank, blank_bytes = blank + 1, blank_bytes + len(text)
            if blank > MAX_BLANK or blank_bytes > max_line:
                yield number, b""
                return
        if len(rest) > max_line:
            break
    if rest.strip():
        yield number + 1, rest


def _parsed(text: bytes, max_line: int) -> object:
    if not text:
        reason = f"is blank, after {MAX_BLANK} blank lines or {max_line} bytes of them; leave them out"
        raise InvalidOptionError(option="line", value="", reason=reason)
    if len(text) > max_line:
        raise InvalidOptionError(option="line", value="...", reason=f"has more than {max_line} bytes")
    try:
        return read_json(text)
    except (ValueError, RecursionError) as cause:
        # Without the cause, which holds the whole line.
        raise InvalidOptionError(option="line", value="...", reason=f"is not JSON: {cause}") from None
