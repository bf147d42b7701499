"""The log of decisions: a line for each period that is planned, started, dropped or ended, with its reason.

All lines of one commit are one record, which is written out only by who wants it; so a level that hides
them costs nothing but the question.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from kron.core.job.outcome import Outcome
from kron.core.plan.record import RangeRecord, Result, RunKind, RunRecord, RunStatus
from kron.core.plan.step import Change, WriteScope
from kron.core.redaction import NO_SECRETS, Redactor
from kron.fronts.service.telemetry.log_entry import (
    ASKED,
    DROPPED,
    ENDED,
    NOTED,
    PLANNED,
    STARTED,
    LogEntry,
    milliseconds_text,
)
from kron.ports import WriteResult
from kron.runtime.journal import WARNINGS

LOGGER = logging.getLogger("kron.engine")
# What somebody should know of although nothing is wrong with Kron.
BAD_STATUSES = frozenset({RunStatus.FAILED, RunStatus.MISSED, RunStatus.UNSCHEDULABLE})
BAD_OUTCOMES = frozenset({Outcome.MISSED, Outcome.UNSCHEDULABLE})


class Lines:
    """Many entries as the message of one record, with the instant and the request they belong to."""

    __slots__ = ("at", "entries")

    def __init__(self, entries: Sequence[LogEntry], at: int) -> None:
        self.entries = entries
        self.at = milliseconds_text(at)

    def texts(self, redactor: Redactor, request: str | None = None) -> list[str]:
        """Return a line for each entry, for people; `request` is under way."""
        return [entry.text(redactor, request) for entry in self.entries]

    def jsons(self, redactor: Redactor, request: str | None = None) -> list[str]:
        """Return the fields of a line for each entry; `request` is under way."""
        return [entry.json(redactor, request) for entry in self.entries]

    def __str__(self) -> str:
        return "\n".join(self.texts(NO_SECRETS))


class Noted:
    """Something that happened to the engine itself."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        self.event = event
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.event} {json.dumps(self.fields, default=str, sort_keys=True)}"


class DecisionLog:
    """Writes what was decided into a logger; `request_of` knows by which request a run was asked for."""

    def __init__(
        self,
        logger: logging.Logger = LOGGER,
        *,
        request_of: Callable[[RunRecord], str | None] = lambda _: None,
    ) -> None:
        self._logger = logger
        self._request_of = request_of

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Write one line of what happened to the engine itself."""
        level = logging.WARNING if event in WARNINGS else logging.INFO
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Noted(event, fields))

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Write a line for each run that was written, and one for all periods that were dropped together."""
        least = self._logger.getEffectiveLevel()
        if least > logging.WARNING:
            return
        said: list[LogEntry] = []
        found = {logging.DEBUG: [], logging.INFO: said, logging.WARNING: []}
        for change in changes:
            # Most changes are one of these two: a plain period starts, or the only execution succeeded.
            is_start = change.cohort is not None
            if (is_start and least > logging.INFO) or (
                change.scope is WriteScope.END and least > logging.DEBUG
            ):
                continue
            if change.job.identity in settled.stale_jobs:
                continue
            if is_start and not settled.existing_runs:
                said.append(LogEntry(STARTED, change.job, change.starts[0]))
                continue
            for level, entry in _entries_of(change, settled.existing_runs, now):
                run = entry.run
                asked = None if isinstance(run, RangeRecord) else self._request_of(run)
                found[level].append(entry if asked is None else entry._replace(request=asked))
        for level, entries in found.items():
            if entries and level >= least:
                self._logger.log(level, Lines(entries, now))


def _entries_of(change: Change, handled: frozenset[str], now: int) -> Iterator[tuple[int, LogEntry]]:
    """Yield what is to be said of a change, each with its level."""
    job, starts = change.job, {run.key for run in change.starts}
    ends = {run.key for run in change.ended}
    is_edit = job.edited_at == now
    for runs, is_new in ((change.inserts, True), (change.updates, is_edit)):
        for run in runs:
            if run.key not in handled:
                event = STARTED if run.key in starts else _event_of(run, is_new=is_new, ended=run.key in ends)
                yield _level_of(event, run), LogEntry(event, job, run)
    for dropped in change.ranges:
        level = logging.WARNING if dropped.outcome in BAD_OUTCOMES else logging.INFO
        yield level, LogEntry(DROPPED, job, dropped)


def _event_of(run: RunRecord, *, is_new: bool, ended: bool) -> str:
    if ended:
        return ENDED
    if run.status is RunStatus.PENDING:
        if not is_new:
            return NOTED
        return PLANNED if run.kind is RunKind.PERIOD else ASKED
    return DROPPED if run.started_at is None else NOTED


def _level_of(event: str, run: RunRecord) -> int:
    if event == NOTED or (event == ENDED and run.result is Result.SUCCESS):
        return logging.DEBUG
    return logging.WARNING if event != STARTED and run.status in BAD_STATUSES else logging.INFO
