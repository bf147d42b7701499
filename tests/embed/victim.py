"""A program that is killed: a scheduler whose callbacks leave a line for each of their steps.

Started by the tests of crashes as `python -m tests.embed.victim FOLDER`. Its clock runs 60 times as fast as
the machine's, so that minutes pass in seconds; a restart goes on where the machine's time is.
"""

import asyncio
import json
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kron.clocks.system import SystemClock
from kron.fronts.embed.scheduler import Scheduler
from kron.testing import trace

SPEED = 60
ENDED_AS = {"success": "RunSuccess", "failed": "RunFailure"}
EXECUTIONS = """
SELECT schedule_id, attempts.began_at, attempts.over_at, attempts.result FROM attempts
JOIN runs ON runs.job = attempts.job AND runs.idempotency_key = attempts.idempotency_key
UNION ALL SELECT schedule_id, began_at, over_at, result FROM runs WHERE began_at IS NOT NULL
"""
ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)


class FastClock(SystemClock):
    """The machine's clock, with a minute in a second."""

    def now(self) -> datetime:
        real = super().now()
        return real + (SPEED - 1) * (real - ORIGIN)

    def monotonic(self) -> float:
        return SPEED * super().monotonic()

    async def sleep_until(self, instant: datetime) -> None:
        left = (instant - self.now()).total_seconds() / SPEED
        await asyncio.sleep(min(max(left, 0), 0.05))


class Log:
    """Lines of who did what, written at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def note(self, task: str, what: str) -> None:
        self._file.write(json.dumps([task, what, os.getpid()]) + "\n")

    def working(self, task: str, seconds: float, *, fails: bool = False) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            self.note(task, "begin")
            await asyncio.sleep(seconds)
            self.note(task, "end")
            if fails:
                raise ValueError("as it should")

        return work


def complete(trace_file: Path, state: Path) -> None:
    """Add to a trace what was written in the moment its writer died, and what that no longer could say."""
    if not trace_file.exists():
        return
    events = [json.loads(line) for line in trace_file.read_text(encoding="utf-8").splitlines()[1:]]
    told = Counter((event["event"], event.get("task")) for event in events)
    with closing(sqlite3.connect(state)) as connection:
        rows = connection.execute(EXECUTIONS).fetchall()
    found = [(began_at, "RunStart", task) for task, began_at, _, _ in rows]
    found += [(over_at, ENDED_AS[result], task) for task, _, over_at, result in rows if result in ENDED_AS]
    latest = max(event["t"] for event in events)
    with trace_file.open("a", encoding="utf-8") as file:
        for at, event, task in sorted(found):
            told[event, task] -= 1
            if told[event, task] < 0:
                latest = max(latest, at)
                file.write(json.dumps({"t": latest, "event": event, "task": task}) + "\n")


async def live(folder: Path) -> None:
    state, trace_file, log = folder / "kron.db", folder / "trace.jsonl", Log(folder / "lines.jsonl")
    complete(trace_file, state)
    scheduler = Scheduler(f"sqlite:///{state}", clock=FastClock(), timezone="UTC")
    trace(scheduler, trace_file.open("a+", encoding="utf-8"))
    await scheduler.initialize(
        [
            ("quick", "* * * * *", log.working("quick", 0), timedelta(seconds=5)),
            ("slow", "* * * * *", log.working("slow", 0.2), timedelta(seconds=5)),
            ("long", "* * * * *", log.working("long", 1.2), timedelta(seconds=5)),
            ("failing", "* * * * *", log.working("failing", 0.1, fails=True), timedelta(seconds=10)),
        ]
    )
    log.note("", "up")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1])))
