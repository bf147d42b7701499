"""A separate connection to a file leaves the only writer's place to others between two long works."""

import asyncio
import sqlite3
import time
from itertools import pairwise
from pathlib import Path

from kron.stores.sqlite.file import LONG_S, MAX_REST_S, SqliteFile


async def test_after_long_work_a_connection_rests_for_as_long(tmp_path: Path) -> None:
    file, spans = SqliteFile(str(tmp_path / "kron.db")), list[tuple[float, float]]()

    def work(_: sqlite3.Connection) -> None:
        began = time.monotonic()
        time.sleep(5 * LONG_S)
        spans.append((began, time.monotonic()))

    await file.do(lambda _: None)
    await asyncio.gather(*(file.do(work) for _ in range(3)))
    await file.close()
    # However busy the machine is, the next one begins no sooner.
    for (began, ended), (following, _) in pairwise(spans):
        assert following - ended >= 0.9 * min(ended - began, MAX_REST_S)
