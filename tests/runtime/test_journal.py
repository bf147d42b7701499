"""Journals: counts, log lines, and the trace of what was committed."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunStatus
from kron.core.plan.report import RunEvent
from kron.core.plan.step import Change, WriteResult
from kron.runtime.journal import MAX_LINES, WINDOW_S, LogJournal, TraceJournal
from kron.telemetry.decision_log import DecisionLog
from tests.engine_world import World

NOON = 1_780_315_200
NOTHING = WriteResult(frozenset(), frozenset())


class Heard(World):
    """A world whose changes are told to a journal."""

    journal: LogJournal | TraceJournal

    def carry_out(self, changes: list[Change], handled: frozenset[str]) -> None:
        self.journal.settled(changes, NOTHING, self.now)
        super().carry_out(changes, handled)


def a_world(journal: LogJournal | TraceJournal, **policy: object) -> Heard:
    world = Heard(
        Job.from_dict({"identity": "a", "schedule": "* * * * *", "policy": policy}), 1000 * NOON - 500
    )
    world.journal = journal
    world.wake()
    return world


def test_every_outcome_is_counted_by_its_reason() -> None:
    journal = LogJournal()
    world = a_world(journal, catchup="none")
    world.advance(61_000)
    world.outage(86_400_000)
    assert journal.counts[RunStatus.STARTED, Reason.DUE] >= 1
    assert journal.counts[RunStatus.SKIPPED, Reason.ACTIVE] == 1
    assert journal.counts[RunStatus.MISSED, Reason.CATCHUP_NONE] == 1439


def test_a_trace_has_starts_and_ends_in_order_after_its_header() -> None:
    file = io.StringIO()
    world = a_world(TraceJournal(file), retry_delay="10s", deadline=None)
    world.advance(500)
    world.now += 2_000
    world.end_period(NOON, RunEvent.FAILED)
    world.advance(10_000)
    world.end_period(NOON)
    header, *events = map(json.loads, file.getvalue().splitlines())
    assert header == {"kron_trace": 1, "unit": "ms"}
    assert [(event["t"] - 1000 * NOON, event["event"], event["task"]) for event in events] == [
        (0, "RunStart", "a"),
        (2_000, "RunFailure", "a"),
        (12_000, "RunStart", "a"),
        (12_000, "RunSuccess", "a"),
    ]


@pytest.mark.parametrize(
    ("by_ms", "passed", "kinds"),
    [
        pytest.param(5_000, 100, [], id="set forward"),
        pytest.param(-5_000, 100, [], id="set back behind what was read"),
        pytest.param(-5_000, 101, ["clock"], id="set back behind what nobody read"),
    ],
)
def test_a_clock_that_falls_behind_what_nobody_read_is_beyond_the_model(
    by_ms: int, passed: int, kinds: list[str]
) -> None:
    file, further = io.StringIO(), LogJournal()
    journal = TraceJournal(file, further=further)
    journal.note("clock_jumped", {"by_ms": by_ms, "now": 100, "passed": passed})
    events = [json.loads(line) for line in file.getvalue().splitlines()[1:]]
    assert events == [{"t": 0, "event": "Supernatural", "kind": kind} for kind in kinds]


def test_what_somebody_should_know_of_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kron.engine")
    journal = LogJournal()
    journal.note("store_failed", {"error": "disk full"})
    journal.note("something_else", {"x": 1})
    assert [(line.levelname, line.message) for line in caplog.records] == [
        ("WARNING", 'store_failed {"error": "disk full"}'),
        ("INFO", 'something_else {"x": 1}'),
    ]


# --- log lines -------------------------------------------------------------------------------------


class Lines(logging.Handler):
    """Keeps the messages of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[logging.Logger, Lines, list[float]]]:
    """Return a logger, its lines, and the time that its records have."""
    logger, lines, now = logging.getLogger("kron.test_journal"), Lines(), [1000.0]
    logger.addHandler(lines)
    make = logger.makeRecord

    def dated(*words: Any) -> logging.LogRecord:
        record = make(*words)
        record.created = now[0]
        return record

    monkeypatch.setattr(logger, "makeRecord", dated)
    yield logger, lines, now
    logger.removeHandler(lines)


@pytest.mark.parametrize("kind", [LogJournal, DecisionLog])
def test_an_event_without_end_does_not_fill_a_disk_with_its_lines(
    logged: tuple[logging.Logger, Lines, list[float]], kind: type[LogJournal] | type[DecisionLog]
) -> None:
    """Row 8 of our list of complaints."""
    logger, lines, now = logged
    journal = kind(logger)
    for number in range(1000):
        journal.note("store_failed", {"number": number})
        now[0] += 0.05
    assert lines.lines == [f'store_failed {{"number": {number}}}' for number in range(MAX_LINES)]
    journal.note("clock_jumped", {})
    assert lines.lines[MAX_LINES:] == ["clock_jumped {}"], "each event is counted apart"
    now[0] = 1000.0 + WINDOW_S
    journal.note("store_failed", {"number": 1000})
    journal.note("store_failed", {"number": 1001})
    assert lines.lines[-2:] == [
        f'store_failed {{"left_out": {1000 - MAX_LINES}, "number": 1000}}',
        'store_failed {"number": 1001}',
    ]


def test_a_clock_that_is_set_back_does_not_silence_the_log(
    logged: tuple[logging.Logger, Lines, list[float]],
) -> None:
    logger, lines, now = logged
    journal = LogJournal(logger)
    for _ in range(2 * MAX_LINES):
        journal.note("store_failed", {})
    now[0] = 10.0
    journal.note("store_failed", {})
    assert lines.lines[-1] == f'store_failed {{"left_out": {MAX_LINES}}}'
