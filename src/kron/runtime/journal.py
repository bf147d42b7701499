"""Journals: written changes as log lines, as counts, and as a trace that the theory checks."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from os import SEEK_END
from typing import TextIO

from kron.core.job.outcome import Outcome
from kron.core.plan.record import Result, RunRecord, RunStatus
from kron.core.plan.step import Change, WriteResult
from kron.ports import Journal

LOGGER = logging.getLogger("kron.engine")
# Events of the engine that operators should see; other events are details.
WARNINGS = frozenset(
    {
        "store_failed", "ownership_lost", "clock_jumped", "start_withheld", "engine_failed", "quarantined",
        "clock_behind", "clock_moved_forward", "clock_corrected", "clock_off", "clock_agrees",
        "notification_failed", "record_refused",
    }
)  # fmt: skip
# The most lines of one event in a window, and its length.
MAX_LINES, WINDOW_S = 20, 60.0
# Events that say that the host's clock is or was wrong, and those about it.
ERRORS = frozenset({"clock_behind", "clock_moved_forward", "clock_off"})
CLOCK_EVENTS = ERRORS | {"clock_corrected", "clock_agrees"}


# Events of a scheduler's calls in a trace, and those after which it is over.
ENDS = ("InitFailure", "StopEnd", "UnexpectedShutdown")
CALLS = ("InitStart", "InitSuccess", "StopStart", *ENDS)


def level_of(event: str) -> int:
    """Return the log level of an event of the engine."""
    if event in ERRORS:
        return logging.ERROR
    return logging.WARNING if event in WARNINGS else logging.INFO


class EngineEvent:
    """An event of the engine as the message of a log record."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.event} {json.dumps(self.fields, default=str, sort_keys=True)}"


class LimitedLog:
    """Writes events of the engine; of each event at most MAX_LINES in WINDOW_S, so that none fills a disk.

    The next line after that has the number of those that were left out, as `left_out`.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # When the present window of each event began, and how many events it has had.
        self._windows: dict[str, tuple[float, int]] = {}

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """Write one line, unless the event had too many."""
        level = level_of(event)
        if not self._logger.isEnabledFor(level):
            return
        name, message = self._logger.name, EngineEvent(event, fields)
        record = self._logger.makeRecord(name, level, __file__, 0, message, (), None)
        since, count = self._windows.get(event, (record.created, 0))
        if not 0 <= record.created - since < WINDOW_S:
            since, left_out, count = record.created, max(0, count - MAX_LINES), 0
            record.msg = EngineEvent(event, {**fields, "left_out": left_out}) if left_out else message
        self._windows[event] = since, count + 1
        if count < MAX_LINES:
            self._logger.handle(record)


class LogJournal:
    """Counts every outcome by its reason, and writes a structured line for each at level debug."""

    def __init__(self, logger: logging.Logger = LOGGER) -> None:
        self._logger = logger
        self._events = LimitedLog(logger)
        self.counts: Counter[tuple[str, str]] = Counter()

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Write one line."""
        self._events.write(event, fields)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Count written changes, and log them at level debug."""
        stale = settled.stale_jobs
        written = [change for change in changes if change.job.identity not in stale] if stale else changes
        self.counts.update([(run.status, run.reason) for change in written for run in change.inserts])
        self.counts.update([(run.status, run.reason) for change in written for run in change.updates])
        for dropped in [dropped for change in written for dropped in change.ranges]:
            self.counts[_STATUS_OF[dropped.outcome], dropped.reason] += dropped.periods
        if self._logger.isEnabledFor(logging.DEBUG):
            for run in [run for change in written for run in (*change.inserts, *change.updates)]:
                self._logger.debug("run %s", json.dumps(line_of(run, now), sort_keys=True))


class TraceJournal:
    """Writes runs as a trace. Every event is committed first, so a crash cannot undo it.

    `written` counts its lines.
    """

    def __init__(
        self, file: TextIO, *, further: Journal | None = None, header: Mapping[str, object] | None = None
    ) -> None:
        self._file = file
        self._further = further
        # Several owners, one after the other, may write one trace.
        file.seek(0)
        earlier = [json.loads(line) for line in file] if file.readable() else []
        self._latest = max((event.get("t", 0) for event in earlier), default=0)
        self.written = len(earlier)
        calls = [event["event"] for event in earlier if event.get("event") in CALLS]
        # The previous writer crashed if its last call event is not an end.
        was_cut_off = bool(calls) and calls[-1] not in ENDS
        file.seek(0, SEEK_END)
        if not earlier:
            self.write({"kron_trace": 1, "unit": "ms", **(header or {})})
        if was_cut_off:
            self.event("UnexpectedShutdown", self._latest)

    def write(self, event: Mapping[str, object]) -> None:
        """Write one line of the trace, flushed so that it survives a crash of the process."""
        self.written += 1
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Pass the event on; a wall clock set back behind the time that has passed is beyond the model."""
        passed, now = fields.get("passed"), fields.get("now")
        if event == "clock_corrected":
            self.event("Supernatural", self._latest, kind="clock")
        if event == "clock_jumped" and isinstance(passed, int) and isinstance(now, int) and passed > now:
            self.event("Supernatural", self._latest, kind="clock")
        if self._further is not None:
            self._further.note(event, fields)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Write the starts and ends of runs in the order of their times."""
        events = []
        for change in changes:
            if change.job.identity in settled.stale_jobs:
                continue
            ended = [run for run in change.ended if run.result in _ENDED_AS]
            events += [(run.ended_at or now, _ENDED_AS[run.result], run) for run in ended]
            started = [run for run in change.starts if run.key not in settled.existing_runs]
            events += [(run.started_at or now, "RunStart", run) for run in started]
        for at, name, run in sorted(events, key=lambda event: event[0]):
            self.write_before(at)
            self.event(name, at, task=run.identity)
        if self._further is not None:
            self._further.settled(changes, settled, now)

    def write_before(self, at: int) -> None:
        """Write delayed events that are earlier; a trace of runs only has none."""

    def event(self, name: str, at: int, **fields: object) -> None:
        """Write one event; time never decreases."""
        self._latest = max(self._latest, at)
        self.write({"t": self._latest, "event": name, **fields})


_STATUS_OF = {
    Outcome.SKIPPED: RunStatus.SKIPPED,
    Outcome.MISSED: RunStatus.MISSED,
    Outcome.UNSCHEDULABLE: RunStatus.UNSCHEDULABLE,
}
_ENDED_AS: dict[Result | None, str] = {
    Result.SUCCESS: "RunSuccess",
    Result.FAILED: "RunFailure",
    Result.LAUNCH_FAILED: "RunFailure",
    Result.LOST: "RunFailure",
    Result.REPLACED: "RunFailure",
    Result.CANCELLED: "RunFailure",
}


def line_of(run: RunRecord, now: int) -> dict[str, object]:
    """Return the fields of a run in a log line."""
    fields = run._asdict()
    fields["at"] = now
    return {name: value for name, value in fields.items() if value is not None}
