"""Logs that can be checked: every decision in them follows from its inputs, and a planted change is found."""

import asyncio
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given

from kron.cli.main import GOOD, NO, run
from kron.core.job.decision import decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import definition_of
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.redaction import Redactor
from kron.core.time.instant import rfc3339, seconds_of
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.decision_log import LogEntry, certificate_of
from kron.telemetry.log_format import ConsoleFormatter, JournalFormatter, JsonFormatter
from kron.testing.store_contract import a_job, a_run
from tests.job_strategies import Definition, definitions, nominal_times
from tests.strategies import law
from tests.telemetry.rig import EVERY_MINUTE, SCHEDULES, rig_on

ENGINE = logging.getLogger("kron.engine")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A file that the engine logs into, as JSON."""
    file = tmp_path / "service.log"
    handler = logging.FileHandler(file)
    handler.setFormatter(JsonFormatter(Redactor()))
    ENGINE.addHandler(handler)
    before = ENGINE.level
    ENGINE.setLevel(logging.INFO)
    try:
        yield file
    finally:
        ENGINE.setLevel(before)
        ENGINE.removeHandler(handler)
        handler.close()


def lines_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def busy_hour() -> dict[str, list[RunRecord]]:
    async with rig_on(SqliteStore()) as rig:
        await rig.busy_hour()
        return {name: await rig.runs(name) for name in SCHEDULES}


def test_the_lines_of_a_busy_hour_all_verify_and_a_planted_change_is_found(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = asyncio.run(busy_hour())
    lines = lines_of(log)
    decided = [number for number, line in enumerate(lines, 1) if "decision" in line]
    assert run(["verify", "-q", str(log)]) == GOOD
    summary = capsys.readouterr().out
    others = len(lines) - len(decided)
    assert summary == (
        f"{len(decided)} verified: {len(decided)} ok, 0 does not follow, 0 not a decision; "
        f"{others} other lines ignored\n"
    )
    assert {lines[number - 1]["schedule_id"] for number in decided} == set(SCHEDULES)
    assert len(decided) >= sum(each.kind == "period" for found in runs.values() for each in found)

    texts = log.read_text(encoding="utf-8").splitlines(keepends=True)
    number = decided[len(decided) // 2]
    texts[number - 1] = texts[number - 1].replace('"attempts":', '"attempts":1')
    log.write_text("".join(texts), encoding="utf-8")
    assert run(["verify", "-q", str(log)]) == NO
    found, summary = capsys.readouterr().out.splitlines()
    assert found.startswith(f"{log}:{number}: does not follow: attempts")
    assert f"{len(decided)} verified: {len(decided) - 1} ok, 1 does not follow" in summary


async def test_every_period_and_every_end_that_is_not_good_has_its_line_with_the_reason(log: Path) -> None:
    runs = [each for found in (await busy_hour()).values() for each in found]
    lines = lines_of(log)
    said = {(line["event"], line.get("idempotency_key")): line for line in lines}
    for each in runs:
        if each.started_at is not None:
            assert ("started", each.key) in said
        elif each.outcome is not None:
            line = said["dropped", each.key]
            assert (line["status"], line["reason"], line["why"]) == (
                each.status, each.reason, each.reason.sentence,
            )  # fmt: skip
        if each.result is not None and each.status == "FAILED":
            line = said["ended", each.key]
            assert (line["level"], line["result"], line["error"]) == ("warning", each.result, each.error)
    together = [line for line in lines if "periods" in line]
    assert {(line["reason"], line["level"]) for line in together} >= {("catchup_none", "warning")}
    events = Counter(str(line["event"]) for line in lines)
    assert {"planned", "started", "dropped", "ended", "asked", "clock_jumped"} <= events.keys()


async def test_a_period_that_is_started_dropped_or_planned_carries_its_certificate(log: Path) -> None:
    await busy_hour()
    for line in lines_of(log):
        is_period = line.get("kind") == "period" and line["event"] in ("started", "planned", "dropped")
        assert ("decision" in line) == is_period, line
        if is_period:
            decision = line["decision"]
            assert isinstance(decision, dict)
            assert (decision["identity"], decision["period_id"]) == (line["schedule_id"], line["period_id"])


async def test_a_level_that_hides_decisions_still_shows_what_went_wrong(log: Path) -> None:
    ENGINE.setLevel(logging.WARNING)
    await busy_hour()
    lines = lines_of(log)
    assert {line["level"] for line in lines} == {"warning"}
    assert {str(line["event"]) for line in lines} == {"dropped", "ended", "clock_jumped"}


async def test_lines_for_people_say_the_same_in_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kron.engine")
    async with rig_on(SqliteStore()) as rig:
        await rig.begin({"plain": EVERY_MINUTE, "also plain": EVERY_MINUTE})
        await rig.until(1.5)
    formatter = ConsoleFormatter(Redactor())
    _, *shown = "\n".join(map(formatter.format, caplog.records)).splitlines()
    assert len(shown) == 2
    pattern = (
        r"\S+ \S+ INFO kron.engine started (also )?plain 2026-01-01T12:01:00Z: STARTED, started on schedule"
    )
    assert all(re.match(pattern, line) for line in shown)
    # The journal has the time itself, and the priority from the start of a line.
    journal = "\n".join(map(JournalFormatter(Redactor()).format, caplog.records)).splitlines()[1:]
    assert journal == [f"<6>{line.partition(' INFO ')[2]}" for line in shown]


def test_every_line_for_the_journal_has_its_priority() -> None:
    formatter = JournalFormatter(Redactor(["pass"]))
    record = logging.LogRecord("kron.x", logging.ERROR, "", 0, "no %s\nhere", ("pass",), None)
    assert formatter.format(record) == "<3>kron.x no ***\\nhere"
    try:
        raise ValueError("wrong")
    except ValueError:
        record = logging.LogRecord("kron.x", logging.WARNING, "", 0, "gone", (), sys.exc_info())
    lines = formatter.format(record).split("\n")
    assert lines[0] == "<4>kron.x gone"
    assert lines[-1] == "<4>ValueError: wrong"
    assert all(line.startswith("<4>") for line in lines)


@law(100)
@given(definition=definitions(), nominal_time=nominal_times())
def test_a_certificate_as_text_says_what_the_decision_says(
    definition: Definition, nominal_time: datetime
) -> None:
    job, second = Job.from_dict(definition), seconds_of(nominal_time)
    expected = decide_at(job, second).to_dict()
    assert json.loads(certificate_of(definition_of(job), job.identity, second)) == expected


@pytest.mark.parametrize(
    ("status", "reason", "said"),
    [
        pytest.param(RunStatus.STARTED, Reason.DUE, "STARTED, started on schedule", id="a start"),
        pytest.param(
            RunStatus.SKIPPED,
            Reason.ACTIVE,
            "SKIPPED: another run of the job was active",
            id="skipped",
        ),
        pytest.param(RunStatus.MISSED, Reason.DEADLINE, "MISSED: the deadline had passed", id="missed"),
    ],
)
def test_a_line_for_people_names_a_status_once(status: RunStatus, reason: Reason, said: str) -> None:
    run = a_run(status=status, reason=reason)
    line = LogEntry("run_recorded", a_job(), run).text(Redactor())
    assert line == f"run_recorded backup {rfc3339(run.nominal_time)}: {said} [{run.key[:12]}]"
