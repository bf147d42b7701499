"""Print, as JSON, the files of Kron that run for an upsert over HTTP and for a due process.

A file counts when one of its functions is called between the request and its response, or between the
instant a period is due and the commit of its success. Module and class bodies run once and do not count.
"""

import asyncio
import dis
import json
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx

import kron
from kron.clocks.system import SystemClock
from kron.fronts.service.app import app_of
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore

SOURCE = str(Path(kron.__file__).parent)
SCHEDULE = {
    "timezone": "UTC",
    "overlap_policy": "allow",
    "launcher": {"kind": "process", "command": ["true"]},
}
LOOK_S, MAX_LOOKS = 0.05, 1_000
RESUME = dis.opmap["RESUME"]
PERIODS = 3
COUNTS = """
    SELECT count(*) FILTER (WHERE status = 'STARTED'), count(*) FILTER (WHERE status = 'SUCCESS')
    FROM schedule_runs
"""


class Recorder:
    """The files whose functions were called while it was recording."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False
        threading.setprofile(self._note)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record in this thread and in those that were started since the recorder was made."""
        self.files = set()
        self.is_on = True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.is_on = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            self.is_on
            and event == "call"
            and code.co_filename.startswith(SOURCE)
            and code.co_name != "<module>"
            and not _is_resumed(frame)
        ):
            self.files.add(code.co_filename[len(SOURCE) + 1 :])


def _is_resumed(frame: FrameType) -> bool:
    """Say whether a coroutine continues, as all that await another do when that one continues."""
    operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return operation == RESUME and argument & 3 != 0


async def trace_upsert(recorder: Recorder, registrar: Registrar, settings: Settings) -> list[set[str]]:
    """Return the files that run for a request whose expression was used before, and for a new one."""
    transport = httpx.ASGITransport(app_of(registrar, settings))
    found = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for name, expression in (("warm", "0 1 * * *"), ("known", "0 1 * * *"), ("traced", "* * * * * *")):
            schedule = {**SCHEDULE, "schedule_id": name, "cron_expr": expression}
            with recorder.recording():
                (await client.post("/schedules/upsert", json=schedule)).raise_for_status()
            found.append(recorder.files)
    return found[1:]


async def trace_process(recorder: Recorder, worker: ServiceWorker, path: Path) -> set[str]:
    """Return the files that run while a period comes due, starts a process and is recorded as a success.

    The fewest of some periods: on a busy machine a late one takes more.
    """
    working = asyncio.create_task(worker.run())
    found = []
    for _ in range(PERIODS):
        ended = await _until_ended(path, 0, none_open=True)
        with recorder.recording():
            await _until_ended(path, ended)
        found.append(recorder.files)
    worker.leave()
    await working
    return min(found, key=len)


async def _until_ended(path: Path, more_than: int, *, none_open: bool = False) -> int:
    """Wait until more runs have succeeded than so far; return how many they are."""
    for _ in range(MAX_LOOKS):
        connection = sqlite3.connect(path)
        ((is_open, ended),) = connection.execute(COUNTS)
        connection.close()
        if ended > more_than and not (none_open and is_open):
            return int(ended)
        await asyncio.sleep(LOOK_S)
    raise TimeoutError(f"{ended} runs succeeded and {is_open} are open")


async def main() -> None:
    """Trace both operations over one SQLite file."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kron.db")
        settings = Settings(
            store=f"sqlite:///{path}",
            process_folder=f"{folder}/processes",
            allowed_commands=frozenset({"/bin/true"}),
        )
        store = SqliteStore(str(path))
        registrar = Registrar(store, SystemClock(), rules=settings.rules)
        known, new = await trace_upsert(recorder, registrar, settings)
        process = await trace_process(recorder, ServiceWorker(store, SystemClock(), settings), path)
        await store.close()
    print(json.dumps([sorted(known), sorted(new), sorted(process)], indent=1))


if __name__ == "__main__":
    asyncio.run(main())
