"""Completion of a crashed scheduler's trace: committed records that it did not trace have happened.

A start, an end or a list that was committed counts, even if a crash came before its trace line (SPEC 2:
reading 14). A call that a failing store refused counts as one that need not be accepted.
"""

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

from kron.core.plan.record import AttemptRecord, JobRecord, Result, RunRecord

Line = dict[str, Any]
ENDED_AS = {Result.SUCCESS: "RunSuccess"} | dict.fromkeys(
    (Result.FAILED, Result.LAUNCH_FAILED, Result.LOST, Result.CANCELLED), "RunFailure"
)


class Record(Protocol):
    """The stored records of one task."""

    @property
    def job(self) -> JobRecord:
        """Return the task."""
        ...

    @property
    def runs(self) -> list[RunRecord]:
        """Return its runs."""
        ...

    @property
    def attempts(self) -> dict[str, list[AttemptRecord]]:
        """Return their earlier attempts by key."""
        ...


def read(file: io.StringIO) -> list[Line]:
    """Return the lines of a trace."""
    return [json.loads(line) for line in file.getvalue().splitlines()]


def write(file: io.StringIO, lines: Sequence[Line]) -> None:
    """Replace a trace."""
    file.seek(0)
    file.truncate(0)
    file.write("".join(json.dumps(line) + "\n" for line in lines))


def supernatural(file: io.StringIO, kind: str) -> None:
    """Add a Supernatural event now."""
    lines = read(file)
    write(file, [*lines, {"t": lines[-1].get("t", 0), "event": "Supernatural", "kind": kind}])


def complete(file: io.StringIO, records: Sequence[Record], put_at: int | None) -> None:
    """Add the committed events that are missing before the crash at the end of a trace."""
    *lines, crash = read(file)
    assert crash["event"] == "UnexpectedShutdown", crash
    call = open_call(lines)
    if call is not None and put_at is not None:
        at = max(put_at, lines[-1]["t"])
        lines.append({"t": at, "event": "InitSuccess", "call": call, "list": call})
    traced = Counter((line["task"], line["event"], line["t"]) for line in lines if "task" in line)
    events = [event for record in records for event in _events_of(record)]
    latest = max((line["t"] for line in lines if "task" in line), default=0)
    for at, event, task in sorted(events, key=lambda event: event[0]):
        if traced[task, event, at] > 0:
            traced[task, event, at] -= 1
        elif at >= latest or not _was_traced(lines, task, event, at):
            lines.append({"t": max(at, lines[-1].get("t", at)), "event": event, "task": task})
    crash["t"] = max(crash["t"], lines[-1].get("t", 0))
    write(file, [*lines, crash])


def open_call(lines: Sequence[Line]) -> object | None:
    """Return the call of `initialize` that is open at the end of a trace."""
    calls: list[object] = []
    for line in lines:
        match line.get("event"):
            case "InitStart":
                calls.append(line["call"])
            case "InitSuccess" | "InitFailure":
                calls = [call for call in calls if call != line["call"]]
            case "UnexpectedShutdown":
                calls = []
            case _:
                pass
    return calls[0] if calls else None


def _was_traced(lines: Sequence[Line], task: str, event: str, at: int) -> bool:
    """Return whether an event of a task is in the trace with a later time."""
    return any(
        line.get("task") == task and line["event"] == event and line["t"] >= at for line in reversed(lines)
    )


def _events_of(record: Record) -> Iterator[tuple[int, str, str]]:
    for run in reversed(record.runs):
        for attempt in (*record.attempts.get(run.key, ()), run):
            if attempt.started_at is not None:
                yield attempt.started_at, "RunStart", run.identity
            if attempt.ended_at is not None and attempt.result in ENDED_AS:
                yield attempt.ended_at, ENDED_AS[attempt.result], run.identity


def without_refused(lines: Sequence[Line]) -> list[Line]:
    """Return a trace in which the calls that a failing store refused have invalid lists."""
    refused = {
        after["call"]
        for line, after in pairwise(lines)
        if line.get("kind") == "store" and after["event"] == "InitFailure"
    }
    kept = [line for line in lines if line.get("kind") != "store"]
    return [
        line | {"valid": False} if line.get("event") == "InitStart" and line["call"] in refused else line
        for line in kept
    ]
