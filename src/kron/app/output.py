"""The output of runs: kept, read while they run and afterwards, and removed with their records or by age."""

import asyncio
import gzip
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from heapq import heapify, heappop, heapreplace
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from kron.core.plan.record import RunRecord
from kron.core.redaction import hide_run_token
from kron.launchers.process.host import boot_of
from kron.launchers.process.supervised import LOGS
from kron.launchers.process.supervisor.output import kept_output, read_log
from kron.launchers.process.supervisor.record import NEVER, RECORD, Record, read_record
from kron.launchers.run_token import run_token_of

# How much of a running process's output is read at once.
MAX_READ = 1 << 20
# The outputs of ended runs are pruned again when this part of the limit was written since the last time.
PRUNE_PART = 8
# Fast enough to be written beside starts; outputs are texts, which any level makes several times smaller.
COMPRESSION = 1


class Output(NamedTuple):
    """A part of a run's output, where the next one starts, and the record of the run."""

    text: bytes
    offset: int
    record: Record

    @property
    def ended(self) -> bool:
        """Return whether the process has ended, so that no more output follows."""
        return self.record.get("state") == "ended"


class RunOutputs:
    """The outputs below a folder; those of all ended runs together take at most `max_bytes`.

    Above it the oldest of the tenant with the most are removed, so that no tenant displaces the outputs of
    others. With a `secret` the token of a run is not shown in its output.
    """

    def __init__(self, folder: Path, *, max_bytes: int, secret: bytes | None = None) -> None:
        self._logs = folder / LOGS
        self._running = folder / boot_of()
        self._max_bytes = max_bytes
        self._secret = secret
        # Bytes that were kept since the outputs were last pruned.
        self._kept = 0

    # --- keeping ---------------------------------------------------------------------------------

    def keep(self, run: RunRecord, output: bytes, tenant: str = "") -> None:
        """Keep the output of an attempt that has ended and that no supervisor recorded."""
        packed = _packed(output, tenant)
        path = Path(f"{self._place_of(run, run.attempt)}.log")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(packed)
        fresh.replace(path)
        self._kept += len(packed)

    @property
    def is_filling(self) -> bool:
        """Return whether enough was kept since the last pruning to prune again."""
        return self._kept > self._max_bytes // PRUNE_PART

    # --- reading ---------------------------------------------------------------------------------

    def _place_of(self, run: RunRecord, attempt: int) -> str:
        return f"{self._logs}/{run.key[:2]}/{run.key}.{attempt}"

    def read(self, run: RunRecord, attempt: int, offset: int = 0) -> Output | None:
        """Return the output of an attempt from an offset on, or None if it never started or was removed."""
        output = self._read(run, attempt, offset)
        if output is None or self._secret is None:
            return output
        return output._replace(text=hide_run_token(output.text, run_token_of(self._secret, run.key)))

    def _read(self, run: RunRecord, attempt: int, offset: int) -> Output | None:
        place = f"{self._place_of(run, attempt)}{RECORD}"
        record = read_record(place)
        if record is None:
            record = self._state_of(run, attempt)
        if record is None or record.get("state") == NEVER:
            return None
        if record.get("state") == "ended":
            text, whole = read_log(place), record.get("output")
            size = whole if isinstance(whole, int) else len(text)
            # Of a reader that has seen a part, only the rest is unseen; with bytes left out, the last ones.
            unseen = text if not offset else text[-(size - offset) :] if size > offset else b""
            return Output(unseen, max(size, offset), record)
        running = f"{self._running}/{run.key}.{attempt}.out"
        if not offset:
            text, size = kept_output(running, MAX_READ)
            return Output(text, size, record)
        text = _read_at(running, offset)
        return Output(text, offset + len(text), record)

    def _state_of(self, run: RunRecord, attempt: int) -> Record | None:
        """Return a record of an attempt without a supervisor, from the files that there are."""
        if os.path.exists(f"{self._place_of(run, attempt)}.log"):
            return {"state": "ended"}
        return {"state": "running"} if os.path.exists(f"{self._running}/{run.key}.{attempt}.out") else None

    # --- pruning ---------------------------------------------------------------------------------

    def prune_older(self, before_s: float | None) -> int:
        """Remove the outputs written before an instant of the file system, and those above the limit."""
        self._kept = 0
        removed = 0
        for path in self._logs.glob("*/*.log"):
            with suppress(OSError):
                if before_s is not None and path.stat().st_mtime < before_s:
                    path.unlink()
                    removed += 1
        return removed + self._remove_oldest()

    async def prune(self, known: Callable[[str, int], Awaitable[set[str]]]) -> int:
        """Remove the outputs of runs that are not in the store any more, and the oldest above the limit.

        `known` returns the keys of a job's runs since a nominal time.
        """
        ended = await asyncio.to_thread(self._ended)
        removed = 0
        for identity, records in ended.items():
            keys = await known(identity, min(time for time, _ in records))
            removed += sum(_remove(path) for _, path in records if _key_of(path) not in keys)
        return removed + await asyncio.to_thread(self._remove_oldest)

    def _ended(self) -> dict[str, list[tuple[int, Path]]]:
        """Return the nominal time and the record of every ended run, by job."""
        ended: dict[str, list[tuple[int, Path]]] = {}
        for path in self._logs.glob(f"*/*{RECORD}"):
            record = read_record(str(path)) or {}
            time = record.get("nominal_time")
            if record.get("state") in ("ended", NEVER) and isinstance(time, int):
                ended.setdefault(str(record.get("identity")), []).append((time, path))
        return ended

    def _remove_oldest(self) -> int:
        """Remove outputs until the rest is within the limit; their records stay."""
        found: list[tuple[float, int, Path]] = []
        for path in self._logs.glob("*/*.log"):
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        excess = sum(size for _, size, _ in found) - self._max_bytes
        if excess <= 0:
            return 0
        of_tenants: dict[str, list[KeptOutput]] = {}
        for time, size, path in found:
            of_tenants.setdefault(_tag_in(path), []).append(KeptOutput(time, size, path))
        displaced = displaced_outputs(list(of_tenants.values()), excess)
        for output in displaced:
            output.path.unlink(missing_ok=True)
        return len(displaced)


class KeptOutput(NamedTuple):
    """A file with an output: when it was written, and its size."""

    at: float
    size: int
    path: Path


def displaced_outputs(of_tenants: Sequence[Sequence[KeptOutput]], excess: int) -> list[KeptOutput]:
    """Return the outputs to remove, at least `excess` bytes: each the oldest of the tenant with the most."""
    queues = [(sum(each.size for each in outputs), sorted(outputs, reverse=True)) for outputs in of_tenants]
    heap = [(-total, number) for number, (total, _) in enumerate(queues)]
    heapify(heap)
    displaced: list[KeptOutput] = []
    while excess > 0 and heap:
        total, number = heap[0]
        output = queues[number][1].pop()
        displaced.append(output)
        excess -= output.size
        if queues[number][1]:
            heapreplace(heap, (total + output.size, number))
        else:
            heappop(heap)
    return displaced


def _packed(output: bytes, tenant: str) -> bytes:
    """Return an output compressed; the name in its header is the tag of its tenant."""
    buffer = BytesIO()
    with gzip.GzipFile(_tag_of(tenant), "wb", COMPRESSION, buffer, mtime=0) as file:
        file.write(output)
    return buffer.getvalue()


def _tag_of(tenant: str) -> str:
    return sha256(tenant.encode()).hexdigest()[:TAG]


# The fixed part of a header of gzip, the place and the bit that say that a name follows, and its length.
_FIXED, _FLAGS, _NAMED, TAG = 10, 3, 8, 16


def _tag_in(path: Path) -> str:
    """Return the tag in the header of an output; those without one share one."""
    try:
        with path.open("rb") as file:
            head = file.read(_FIXED + TAG)
    except OSError:
        return ""
    return head[_FIXED:].decode("latin-1") if len(head) > _FLAGS and head[_FLAGS] & _NAMED else ""


def _read_at(path: str, offset: int) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(file, MAX_READ, offset)
    finally:
        os.close(file)


def _key_of(path: Path) -> str:
    return path.name.partition(".")[0]


def _remove(path: Path) -> int:
    path.with_suffix(".log").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    return 1
