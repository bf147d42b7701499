"""Triggering of DAG runs: delegation, batches that fail fast, slots of a catch-up, and validation."""

import ast
import asyncio
import importlib
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kron.app.dag.trigger as trigger_module
from kron import dag
from kron.core.dag.contract import parse_logical_date, slots_of
from kron.dag import (
    CatchupTriggerRequest,
    CatchupTriggerResult,
    DagError,
    ScheduledBatchTriggerRequest,
    ScheduledBatchTriggerResult,
    ScheduledTriggerRequest,
    SchedulerTriggerService,
)
from tests.strategies import law

T = datetime(2026, 6, 1, tzinfo=UTC)
PREFIX = "DAG_VALIDATION_"


@dataclass
class Ledger:
    """An orchestrator that keeps what it was asked, and raises for some logical dates."""

    errors: Mapping[str, BaseException] = field(default_factory=dict)
    calls: list[dict[str, object]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def start_run(self, **request: object) -> object:
        self.calls.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if error := self.errors.get(str(request["logical_date"])):
            raise error
        return Answer(f"run-{len(self.calls)}")

    @property
    def dates(self) -> list[object]:
        return [call["logical_date"] for call in self.calls]


@dataclass(frozen=True)
class Answer:
    """A result of the orchestrator's own type."""

    run_id: str


def scheduled(date: str = "2026-06-01T00:00:00Z", **others: Any) -> ScheduledTriggerRequest:
    return ScheduledTriggerRequest(dag_id="etl", logical_date=date, **others)


def catchup(**changes: Any) -> CatchupTriggerRequest:
    request: dict[str, Any] = {
        "dag_id": "etl",
        "range_start_logical_date": "2026-06-01T00:00:00Z",
        "range_end_logical_date": "2026-06-01T00:00:03Z",
        "slot_interval_ms": 1000,
        "max_slots": 100,
    }
    return CatchupTriggerRequest(**request | changes)


async def refusal_of(request: CatchupTriggerRequest) -> DagError:
    ledger = Ledger()
    with pytest.raises(DagError) as caught:
        await SchedulerTriggerService(ledger).trigger_catchup(request)
    assert ledger.calls == []
    assert caught.value.started_runs == ()
    assert caught.value.category == "validation"
    return caught.value


def after(**span: int) -> str:
    return (T + timedelta(**span)).isoformat()


# --- one run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, 0, 7])
async def test_one_run_is_started_with_everything_of_the_request(version: int | None) -> None:
    ledger, given_input = Ledger(), {"table": "orders"}
    request = scheduled("2026-06-01T02:00:00+02:00", version=version, input=given_input)
    answer = await SchedulerTriggerService(ledger).trigger_scheduled_run(request)
    assert ledger.calls == [
        {
            "dag_id": "etl",
            "version": version,
            "trigger": "scheduled",
            "logical_date": "2026-06-01T02:00:00+02:00",
            "input": given_input,
            "rerun_key": None,
        }
    ]
    assert answer == Answer("run-1")


async def test_the_orchestrators_answer_is_given_back_as_the_same_object() -> None:
    answer = object()

    class Fixed:
        async def start_run(self, **_: object) -> object:
            return answer

    assert await SchedulerTriggerService(Fixed()).trigger_scheduled_run(scheduled()) is answer


async def test_an_error_of_the_orchestrator_passes_unchanged() -> None:
    error = DagError("DAG_NOT_FOUND", "There is no DAG etl", category="not_found", context={"dag_id": "etl"})
    ledger = Ledger({"2026-06-01T00:00:00Z": error})
    with pytest.raises(DagError) as caught:
        await SchedulerTriggerService(ledger).trigger_scheduled_run(scheduled())
    assert caught.value is error
    assert (error.code, error.category, error.message) == (
        "DAG_NOT_FOUND",
        "not_found",
        "There is no DAG etl",
    )
    assert error.context == {"dag_id": "etl"}


# --- batches -----------------------------------------------------------------------------------------

DATES = [f"2026-06-0{day}" for day in (3, 1, 2)]


async def test_a_batch_is_started_in_the_order_of_its_items_one_at_a_time() -> None:
    ledger = Ledger()
    request = ScheduledBatchTriggerRequest(items=[scheduled(date) for date in DATES])
    result = await SchedulerTriggerService(ledger).trigger_scheduled_batch(request)
    assert ledger.dates == DATES
    assert ledger.most_under_way == 1
    assert result == ScheduledBatchTriggerResult(
        started_runs=(Answer("run-1"), Answer("run-2"), Answer("run-3"))
    )


async def test_an_empty_batch_starts_nothing() -> None:
    ledger = Ledger()
    result = await SchedulerTriggerService(ledger).trigger_scheduled_batch(
        ScheduledBatchTriggerRequest(items=[])
    )
    assert (result.started_runs, ledger.calls) == ((), [])


async def test_a_batch_ends_at_the_first_error_which_names_the_runs_started_before() -> None:
    error = DagError("DAG_NOT_FOUND", "There is no DAG etl")
    ledger = Ledger({DATES[1]: error})
    request = ScheduledBatchTriggerRequest(items=[scheduled(date) for date in DATES])
    with pytest.raises(DagError) as caught:
        await SchedulerTriggerService(ledger).trigger_scheduled_batch(request)
    assert caught.value is error
    assert error.started_runs == (Answer("run-1"),)
    assert ledger.dates == DATES[:2]


@pytest.mark.parametrize(
    ("failing", "note"), [(0, "No run was started before."), (2, "Started before: run-1, run-2")]
)
async def test_any_other_error_passes_as_it_is_with_a_note_of_the_runs_started(
    failing: int, note: str
) -> None:
    error = OSError("the queue is gone")
    ledger = Ledger({DATES[failing]: error})
    request = ScheduledBatchTriggerRequest(items=[scheduled(date) for date in DATES])
    with pytest.raises(OSError, match="the queue is gone") as caught:
        await SchedulerTriggerService(ledger).trigger_scheduled_batch(request)
    assert caught.value is error
    assert error.__notes__ == [note]


async def test_a_note_names_at_most_twenty_runs() -> None:
    last = "2026-06-01T00:00:30Z"
    ledger = Ledger({last: OSError("gone")})
    with pytest.raises(OSError, match="gone") as caught:
        await SchedulerTriggerService(ledger).trigger_catchup(catchup(range_end_logical_date=last))
    (note,) = caught.value.__notes__
    assert note.endswith("run-19, run-20 and 10 more")


# --- slots -------------------------------------------------------------------------------------------

SLOTS = [
    pytest.param({}, ["00", "01", "02", "03"], id="aligned ends, both included"),
    pytest.param({"range_end_logical_date": "2026-06-01"}, ["00"], id="zero span"),
    pytest.param(
        {"range_end_logical_date": "2026-06-01T00:00:03.999Z"}, ["00", "01", "02", "03"], id="unaligned"
    ),
    pytest.param({"slot_interval_ms": 2000}, ["00", "02"], id="an interval that does not divide the span"),
    pytest.param({"slot_interval_ms": 10**30}, ["00"], id="an interval beyond the calendar"),
    pytest.param({"slot_interval_ms": 1500}, ["00", "01.500", "03"], id="milliseconds"),
    pytest.param({"slot_interval_ms": 3000.0}, ["00", "03"], id="a whole float"),
    pytest.param({"max_slots": 4}, ["00", "01", "02", "03"], id="exactly the limit"),
]


@pytest.mark.parametrize(("changes", "seconds"), SLOTS)
async def test_a_catchup_starts_one_run_per_slot(changes: dict[str, object], seconds: list[str]) -> None:
    ledger = Ledger()
    result = await SchedulerTriggerService(ledger).trigger_catchup(
        catchup(version=0, input={"a": 1}, **changes)
    )
    assert ledger.dates == [f"2026-06-01T00:00:{second}Z" for second in seconds]
    assert all(
        (call["dag_id"], call["version"], call["input"]) == ("etl", 0, {"a": 1}) for call in ledger.calls
    )
    assert ledger.most_under_way == 1
    runs = tuple(Answer(f"run-{number}") for number in range(1, len(seconds) + 1))
    assert result == CatchupTriggerResult(requested_slot_count=len(seconds), started_runs=runs)


async def test_a_catchup_ends_at_the_first_error_of_the_orchestrator() -> None:
    error = DagError("DAG_DISPATCH_FAILED", "The queue is gone", category="dispatch")
    ledger = Ledger({"2026-06-01T00:00:02Z": error})
    with pytest.raises(DagError) as caught:
        await SchedulerTriggerService(ledger).trigger_catchup(catchup())
    assert caught.value is error
    assert error.started_runs == (Answer("run-1"), Answer("run-2"))
    assert len(ledger.calls) == 3


MOMENTS = st.integers(-62_135_596_800_000, 253_402_300_799_000)


@law(200)
@given(start=MOMENTS, span=st.integers(0, 10**6), interval=st.integers(1, 10**6))
@example(start=0, span=3000, interval=1000)
@example(start=0, span=0, interval=1)
def test_the_slots_of_any_range_follow_the_formula(start: int, span: int, interval: int) -> None:
    slots = slots_of(start, start + span, interval)
    assert len(slots) == span // interval + 1
    if len(slots) <= 2000:
        listed = list(slots)
        assert len(listed) == len(slots)
        assert listed[0] == start
        assert listed[-1] <= start + span < listed[-1] + interval
        assert all(later - earlier == interval for earlier, later in pairwise(listed))


# --- validation --------------------------------------------------------------------------------------

BAD_DATES: list[object] = [
    "", "yesterday", "2026-13-01", "2026-02-30", "2026-06-01x00:00", "2026-06-01T25:00Z",
    "2026-06-01T00:00:00+99:00", "0001-01-01T00:00:00+14:00", "\uff12026-06-01", " 2026-06-01",
    None, 20260601, 1.5, True, b"2026-06-01", T,
]  # fmt: skip
NO_NUMBERS: list[object] = [
    0,
    -1,
    1.5,
    -2.0,
    math.nan,
    math.inf,
    -math.inf,
    True,
    False,
    "1000",
    None,
    [1],
    0.0,
]


@pytest.mark.parametrize("date", BAD_DATES, ids=repr)
@pytest.mark.parametrize("name", ["range_start_logical_date", "range_end_logical_date"])
async def test_a_date_that_is_not_iso_8601_is_refused(name: str, date: object) -> None:
    error = await refusal_of(catchup(**{name: date}))
    assert error.code == PREFIX + "INVALID_LOGICAL_DATE"
    assert error.context == {name: date}
    assert error.message.startswith(f"Invalid {name}")


@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize(
    ("name", "code"), [("slot_interval_ms", "INVALID_SLOT_INTERVAL"), ("max_slots", "INVALID_MAX_SLOTS")]
)
async def test_a_number_that_is_not_whole_and_above_zero_has_the_code_of_its_field(
    name: str, code: str, number: object
) -> None:
    error = await refusal_of(catchup(**{name: number}))
    assert error.code == PREFIX + code
    assert str(error).endswith("must be a whole number above 0")


async def test_an_end_before_the_start_is_refused() -> None:
    error = await refusal_of(catchup(range_end_logical_date="2026-05-31T23:59:59.999Z"))
    assert error.code == PREFIX + "INVALID_CATCHUP_RANGE"
    assert (
        error.message
        == "Invalid range: its end 2026-05-31T23:59:59.999Z is before its start 2026-06-01T00:00:00Z"
    )


async def test_one_slot_more_than_the_limit_is_refused() -> None:
    error = await refusal_of(catchup(max_slots=3))
    assert error.code == PREFIX + "CATCHUP_RANGE_EXCEEDS_LIMIT"
    assert error.context == {"requested_slot_count": 4, "max_slots": 3}
    assert error.message == "The range has 4 slots, and max_slots is 3; shorten the range or raise max_slots"


async def test_ten_thousand_years_of_milliseconds_are_counted_without_being_listed() -> None:
    ends = {"range_start_logical_date": "0001-01-01", "range_end_logical_date": "9999-12-31T23:59:59.999Z"}
    error = await refusal_of(catchup(slot_interval_ms=1, **ends))
    assert error.context["requested_slot_count"] == 315_537_897_600_000
    years = {"range_start_logical_date": "2016-06-01", "range_end_logical_date": "2026-06-01"}
    seconds = await refusal_of(catchup(max_slots=315_532_800, **years))
    assert seconds.context["requested_slot_count"] == 315_532_801


ORDER: list[tuple[str, dict[str, object]]] = [
    ("INVALID_LOGICAL_DATE", {"range_start_logical_date": "no"}),
    ("INVALID_SLOT_INTERVAL", {"slot_interval_ms": 0}),
    ("INVALID_MAX_SLOTS", {"max_slots": 0}),
    ("INVALID_CATCHUP_RANGE", {"range_end_logical_date": "2026-05-01"}),
    ("CATCHUP_RANGE_EXCEEDS_LIMIT", {"range_end_logical_date": "2027-06-01"}),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
async def test_of_several_mistakes_the_first_in_the_order_of_checks_is_reported(first: int) -> None:
    changes: dict[str, object] = {}
    for _, change in reversed(ORDER[first:]):
        changes |= change
    assert (await refusal_of(catchup(**changes))).code == PREFIX + ORDER[first][0]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-06-01", "2026-06-01T00:00:00Z"),
        ("2026-06-01T02:00", "2026-06-01T02:00:00Z"),
        ("2026-06-01 02:00:00", "2026-06-01T02:00:00Z"),
        ("2026-06-01T02:00:00+02:00", "2026-06-01T00:00:00Z"),
        ("2026-06-01t02:00:00z", "2026-06-01T02:00:00Z"),
        ("20260601T020000Z", "2026-06-01T02:00:00Z"),
        ("2026-W23-1", "2026-06-01T00:00:00Z"),
        ("2026-06-01T00:00:00.123456Z", "2026-06-01T00:00:00.123Z"),
    ],
)
def test_a_text_without_an_offset_is_utc_and_a_date_alone_its_midnight(text: str, same: str) -> None:
    assert parse_logical_date(text) == parse_logical_date(same)


# --- the contract ------------------------------------------------------------------------------------


def test_each_type_has_its_fields_and_one_home() -> None:
    assert [it.name for it in fields(ScheduledTriggerRequest)] == [
        "dag_id",
        "logical_date",
        "version",
        "input",
    ]
    assert [it.name for it in fields(ScheduledBatchTriggerRequest)] == ["items"]
    assert [it.name for it in fields(ScheduledBatchTriggerResult)] == ["started_runs"]
    assert {it.name for it in fields(CatchupTriggerRequest)} == {
        "dag_id", "version", "range_start_logical_date", "range_end_logical_date", "slot_interval_ms",
        "max_slots", "input",
    }  # fmt: skip
    assert [it.name for it in fields(CatchupTriggerResult)] == ["requested_slot_count", "started_runs"]
    for name in dag.__all__:
        home = sys.modules[getattr(dag, name).__module__]
        assert getattr(home, name) is getattr(dag, name)


def test_each_type_is_defined_once_and_part_of_the_public_module() -> None:
    types = {
        ScheduledTriggerRequest, ScheduledBatchTriggerRequest, ScheduledBatchTriggerResult,
        CatchupTriggerRequest, CatchupTriggerResult,
    }  # fmt: skip
    names = {each.__name__ for each in types}
    assert names <= set(dag.__all__)
    source = Path(str(dag.__file__)).parent
    defined = Counter(
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"\bclass (\w+)", file.read_text(encoding="utf-8"))
        if name in names
    )
    assert defined == Counter(names)


def test_nothing_has_to_be_derived_from_and_the_service_needs_an_orchestrator_only() -> None:
    assert SchedulerTriggerService.__mro__ == (SchedulerTriggerService, object)
    with pytest.raises(TypeError):
        SchedulerTriggerService()  # type: ignore[call-arg]
    assert list(signature(SchedulerTriggerService).parameters) == ["orchestrator"]
    assert not isinstance(Ledger(), SchedulerTriggerService)


def test_the_service_knows_neither_cron_nor_http_nor_another_front() -> None:
    """What it imports decides what it can do: values of the core, no launcher, store, clock or API."""
    source = Path(str(importlib.import_module("kron.app.dag.trigger").__file__)).read_text(encoding="utf-8")
    imported = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    ours = {name for name in imported if name.startswith("kron")}
    assert ours == {"kron.core.dag.contract", "kron.core.errors", "kron.core.time.instant"}
    assert trigger_module.SCHEDULED == "scheduled"


async def test_what_a_request_holds_is_passed_on_and_never_called() -> None:
    called: list[str] = []
    ledger, payload = Ledger(), {"payload": lambda: called.append("payload")}
    service = SchedulerTriggerService(ledger)
    await service.trigger_scheduled_run(scheduled(input=payload))
    await service.trigger_scheduled_batch(ScheduledBatchTriggerRequest(items=[scheduled(input=payload)]))
    await service.trigger_catchup(catchup(input=payload, max_slots=4))
    assert [call["input"] for call in ledger.calls] == [payload] * 6
    assert called == []


def test_an_error_of_the_service_is_one_of_krons_with_a_stable_code() -> None:
    error = DagError("DAG_VALIDATION_INVALID_MAX_SLOTS", "no", context={"max_slots": 0})
    assert (error.code, error.category, str(error)) == (
        "DAG_VALIDATION_INVALID_MAX_SLOTS",
        "validation",
        "no",
    )


def test_the_reference_says_that_the_end_is_included() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/dag.md").read_text(encoding="utf-8")
    assert (
        "Both ends are included: a slot that falls exactly on the end of the range is started."
        in " ".join(page.split())
    )
