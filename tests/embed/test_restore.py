"""Damaged stored tasks are quarantined and treated as new; all others continue."""

import asyncio
import json
import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import KronError
from kron.core.plan.record import JobRecord
from kron.core.task import errors as task_error
from kron.core.task.errors import TaskTryDeserializeError
from kron.fronts.embed.registration import read_registrations
from kron.fronts.embed.scheduler import Scheduler
from kron.testing import SimulatedClock
from tests.strategies import law

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
# The columns of a stored task, by the names of its fields.
COLUMNS = {field: field for field in JobRecord._fields if field not in ("identity", "number")}
RUN_COLUMNS = ("status", "reason", "kind", "result", "fire_time", "attempt", "is_open", "epoch", "began_at")


async def begin(path: Path, clock: SimulatedClock, *, hangs: bool) -> tuple[Scheduler, list[str]]:
    """Begin with two tasks, one of which may hang for ever, and return who is called."""
    calls: list[str] = []

    async def good() -> None:
        calls.append("good")

    async def bad() -> None:
        calls.append("bad")
        if hangs:
            await asyncio.Event().wait()

    scheduler = Scheduler(f"sqlite:///{path}", clock=clock, timezone="UTC")
    await scheduler.initialize([("good", "* * * * *", good, MINUTE), ("bad", "* * * * *", bad, MINUTE)])
    return scheduler, calls


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        assert connection.execute(statement, values).rowcount == 1
        connection.commit()


async def story(path: Path, statement: str, *values: object) -> tuple[Scheduler, list[str]]:
    """Crash, damage one task, begin again, and return who was called then."""
    clock = SimulatedClock(NOON)
    scheduler, _ = await begin(path, clock, hangs=True)
    await clock.advance_to(NOON + 30 * timedelta(seconds=1))
    scheduler._crash()
    await clock.advance_to(NOON + MINUTE - timedelta(seconds=1))
    damage(path, statement, *values)
    scheduler, calls = await begin(path, clock, hangs=False)
    await clock.advance_to(NOON + 2 * MINUTE)
    await scheduler.stop()
    return scheduler, calls


JOB = "UPDATE jobs SET {} = ? WHERE schedule_id = 'bad'"
RUN = "UPDATE runs SET {} = ? WHERE schedule_id = 'bad'"
DAMAGE = [
    pytest.param(
        JOB,
        "cursor",
        "noon",
        "TaskInvalidTypeError",
        "Invalid type for field 'cursor': expected integer, got str",
        id="a text for a number",
    ),
    pytest.param(
        JOB,
        "revision",
        1.5,
        "TaskInvalidTypeError",
        "Invalid type for field 'revision': expected integer, got float",
        id="a fraction",
    ),
    pytest.param(
        JOB,
        "definition",
        b"\x00",
        "TaskInvalidTypeError",
        "Invalid type for field 'definition': expected string, got bytes",
        id="bytes for a text",
    ),
    pytest.param(
        JOB,
        "epoch",
        0,
        "TaskInvalidValueError",
        "Invalid value for field 'epoch': must be at least 1",
        id="an epoch before the first",
    ),
    pytest.param(
        JOB,
        "edited_at",
        1 << 60,
        "TaskInvalidValueError",
        "Invalid value for field 'edited_at': is outside the years 1 to 9999",
        id="beyond the calendar",
    ),
    pytest.param(
        JOB,
        "definition",
        "{",
        "TaskInvalidStructureError",
        "Invalid task structure: definition is not JSON",
        id="no JSON",
    ),
    pytest.param(
        JOB,
        "definition",
        "[]",
        "TaskInvalidStructureError",
        "Invalid task structure: definition is not an object",
        id="no object",
    ),
    pytest.param(
        JOB,
        "definition",
        "{}",
        "TaskMissingFieldError",
        "Missing required field: definition.schedule",
        id="no schedule",
    ),
    pytest.param(
        JOB,
        "definition",
        '{"schedule": "* * * * *"}',
        "TaskInvalidValueError",
        "Invalid value for field 'definition': has no retry delay",
        id="no retry delay",
    ),
    pytest.param(
        JOB,
        "past",
        "[1]",
        "TaskTryDeserializeError",
        "Cannot read field 'past': expected list of definitions",
        id="no earlier definitions",
    ),
    pytest.param(
        JOB,
        "replay_until",
        137438953472,
        "TaskInvalidValueError",
        "Invalid value for field 'replay_until': a task has no replay",
        id="a replay",
    ),
    pytest.param(
        JOB,
        "paused",
        1,
        "TaskInvalidValueError",
        "Invalid value for field 'paused': paused without a reason",
        id="a pause without a reason",
    ),
    pytest.param(
        JOB,
        "plan_at",
        70368744177664,
        "TaskInvalidValueError",
        "Invalid value for field 'plan_at': it would be planned too late",
        id="a wake in a thousand years",
    ),
    pytest.param(
        JOB,
        "plan_at",
        None,
        "TaskInvalidValueError",
        "Invalid value for field 'plan_at': it would be planned too late",
        id="no wake",
    ),
    pytest.param(
        JOB,
        "cursor",
        137438953472,
        "TaskInvalidValueError",
        "Invalid value for field 'cursor': lies in the future",
        id="a cursor in the future",
    ),
    pytest.param(
        JOB,
        "resumed_at",
        70368744177664,
        "TaskInvalidValueError",
        "Invalid value for field 'resumed_at': lies in the future",
        id="resumed in the future",
    ),
    pytest.param(
        JOB,
        "past",
        "{}",
        "TaskTryDeserializeError",
        "Cannot read field 'past': expected list of definitions",
        id="earlier definitions that are no list",
    ),
    pytest.param(RUN, "status", "WHAT", "TaskInvalidStructureError", None, id="an unknown status of a run"),
    pytest.param(
        RUN,
        "began_at",
        "early",
        "TaskInvalidStructureError",
        None,
        id="a text for a run's number",
    ),
]


def details_of(kind: str, field: str, value: object, message: str) -> dict[str, object]:
    """Return the details that the specification prints for an error."""
    expected = message.partition(": expected ")[2].partition(",")[0]
    reason = message.partition(": ")[2]
    details: dict[str, dict[str, object]] = {
        "TaskTryDeserializeError": {"field": field, "value": value, "expectedType": expected},
        "TaskMissingFieldError": {"field": reason},
        "TaskInvalidTypeError": {
            "field": field, "value": value, "expectedType": expected, "actualType": type(value).__name__,
        },
        "TaskInvalidValueError": {"field": field, "value": value, "reason": reason},
        "TaskInvalidStructureError": {"value": "bad" if field == "bad" else value},
    }  # fmt: skip
    return details[kind]


@pytest.mark.parametrize(("statement", "column", "value", "kind", "message"), DAMAGE)
def test_a_damaged_task_is_taken_for_new_and_the_other_goes_on(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    statement: str,
    column: str,
    value: object,
    kind: str,
    message: str | None,
) -> None:
    scheduler, calls = asyncio.run(story(tmp_path / "kron.db", statement.format(column), value))
    (fault,) = scheduler.quarantined
    assert type(fault).__name__ == kind
    assert message is None or str(fault) == message
    assert fault.details == details_of(kind, "bad" if statement == RUN else column, value, str(fault))
    assert dict(scheduler.standings) == {"good": "preserved", "bad": "new"}
    assert sorted(calls) == ["bad"] * 3 + ["good"] * 2
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("'bad' is unreadable and treated as new" in line for line in logged)


def test_an_undamaged_task_is_an_orphan(tmp_path: Path) -> None:
    scheduler, calls = asyncio.run(story(tmp_path / "kron.db", JOB.format("failures"), 0))
    assert scheduler.quarantined == ()
    assert dict(scheduler.standings) == {"good": "preserved", "bad": "orphaned"}
    assert sorted(calls) == ["bad"] * 3 + ["good"] * 2


VALUES = st.one_of(
    st.none(),
    st.integers(-(1 << 62), 1 << 62),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=8),
    st.sampled_from(
        [
            "{}",
            "[]",
            "null",
            '{"schedule": 3}',
            '{"schedule": "* * * * *", "policy": {"retry_delay": "-1s"}}',
            '[[1, 2, 3, "{}"]]',
            "SUCCESS",
            "FAILED",
            "retry",
            "period",
            "manual",
        ]
    ),
)
TARGETS = st.one_of(
    st.sampled_from(list(COLUMNS)).map(JOB.format),
    st.sampled_from(RUN_COLUMNS).map(RUN.format),
)


@law(60)
@given(statement=TARGETS, value=VALUES)
def test_whatever_is_stored_the_other_task_goes_on(statement: str, value: object) -> None:
    """A row that the tables themselves refuse is no case."""
    with TemporaryDirectory() as folder:
        try:
            scheduler, calls = asyncio.run(story(Path(folder) / "kron.db", statement, value))
        except sqlite3.IntegrityError:
            return
        assert calls.count("good") >= 1
        assert scheduler.standings["good"] == "preserved"
        assert all(isinstance(fault, TaskTryDeserializeError) for fault in scheduler.quarantined)


# --- registrations -----------------------------------------------------------------------------------


async def nothing() -> None:
    """Do nothing."""


NAMED = (
    task_error.RegistrationsNotArrayError,
    task_error.RegistrationShapeError,
    task_error.InvalidRegistrationError,
    task_error.ScheduleDuplicateTaskError,
    task_error.CronExpressionInvalidError,
    task_error.NegativeRetryDelayError,
)
ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.text(max_size=8),
        st.timedeltas(),
        st.just(nothing),
        st.just(print),
    ),
    lambda inner: st.lists(inner, max_size=5) | st.tuples(inner, inner, inner, inner),
    max_leaves=20,
)
NEARLY = st.lists(
    st.tuples(
        st.text(max_size=3) | st.integers(),
        st.sampled_from(["* * * * *", "0 0 * * *", "x", "", "60 * * * *", "* * * * * *"])
        | st.text("0123456789*,- /", max_size=12),
        st.sampled_from([nothing, print, None]),
        st.timedeltas() | st.integers(),
    ),
    max_size=4,
)


@law(300)
@given(registrations=ANYTHING | NEARLY)
def test_whatever_is_registered_it_is_valid_or_refused_by_a_named_error(registrations: Any) -> None:
    try:
        found = read_registrations(registrations)
    except NAMED:
        return
    assert len({task.name for task, _ in found}) == len(found) == len(registrations)


@law(40)
@given(registrations=NEARLY)
def test_a_list_that_is_refused_changes_nothing_that_is_stored(registrations: Any) -> None:
    async def try_it() -> None:
        scheduler = Scheduler("memory://", clock=SimulatedClock(NOON), timezone="UTC")
        await scheduler.initialize([("kept", "0 0 * * *", nothing, MINUTE)])
        await scheduler.stop()
        store = scheduler._wiring.store
        before = await store.cases("embed:main")
        try:
            await scheduler.initialize(registrations)
        except KronError:
            assert await store.cases("embed:main") == before
        else:
            await scheduler.stop()
            stored = {case.job.identity for case in await store.cases("embed:main")}
            assert stored == {registration[0] for registration in registrations}

    logging.disable(logging.WARNING)
    try:
        asyncio.run(try_it())
    finally:
        logging.disable(logging.NOTSET)


def test_the_stored_definition_holds_exactly_the_configuration_and_the_zone(tmp_path: Path) -> None:
    path = tmp_path / "kron.db"

    async def begin() -> None:
        async with Scheduler(
            f"sqlite:///{path}", clock=SimulatedClock(NOON), timezone="Europe/Berlin"
        ) as scheduler:
            await scheduler.initialize([("a", " 0  3 * * *", nothing, timedelta(microseconds=90_000_001))])

    asyncio.run(begin())
    with closing(sqlite3.connect(path)) as connection:
        ((definition,),) = connection.execute("SELECT definition FROM jobs")
    stored = json.loads(definition)
    assert (stored["schedule"], stored["timezone"]) == (" 0  3 * * *", "Europe/Berlin")
    assert stored["policy"]["retry_delay"] == "1m30.000001s"
