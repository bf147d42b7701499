"""The trigger service: starts scheduled runs, batches and catch-ups through a run orchestrator.

It checks ranges and computes slots; creating runs is the orchestrator's work, executing tasks the workers'.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kron.core.dag.contract import DagError, parse_logical_date, slots_of
from kron.core.errors import quoted
from kron.core.time.instant import instant_text

# How a run came about, as the orchestrator records it.
SCHEDULED = "scheduled"
# The most runs that a note on an error names.
MAX_NAMED = 20


class Orchestrator(Protocol):
    """The port: anything that starts runs of DAGs."""

    async def start_run(
        self,
        *,
        dag_id: str,
        version: int | None,
        trigger: str,
        logical_date: str,
        input: Mapping[str, object],  # noqa: A002 (the name of the field)
        rerun_key: str | None,
    ) -> Any:
        """Start one run and return it, or raise."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTriggerRequest:
    """One scheduled run; without a version it is of the latest published one."""

    dag_id: str
    logical_date: str
    version: int | None = None
    input: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledBatchTriggerRequest:
    """Scheduled runs to start one after another."""

    items: Sequence[ScheduledTriggerRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledBatchTriggerResult:
    """The runs of a batch, in the order of its items."""

    started_runs: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchupTriggerRequest:
    """One run for each slot of a range; both ends are included."""

    dag_id: str
    range_start_logical_date: str
    range_end_logical_date: str
    slot_interval_ms: int
    max_slots: int
    version: int | None = None
    input: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchupTriggerResult:
    """The number of slots of a range, and their runs from the earliest to the latest."""

    requested_slot_count: int
    started_runs: Sequence[Any]


class SchedulerTriggerService:
    """Starts runs through the orchestrator it was given, and keeps no state."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    async def trigger_scheduled_run(self, request: ScheduledTriggerRequest) -> Any:
        """Start one run and return the orchestrator's result unchanged."""
        return await self._orchestrator.start_run(
            dag_id=request.dag_id,
            version=request.version,
            trigger=SCHEDULED,
            logical_date=request.logical_date,
            input=request.input,
            rerun_key=None,
        )

    async def trigger_scheduled_batch(
        self, request: ScheduledBatchTriggerRequest
    ) -> ScheduledBatchTriggerResult:
        """Start the items in order, each after the answer to the one before, until the first error."""
        return ScheduledBatchTriggerResult(started_runs=await self._start_all(request.items))

    async def trigger_catchup(self, request: CatchupTriggerRequest) -> CatchupTriggerResult:
        """Start one run for each slot, from the earliest to the latest, until the first error."""
        slots = checked_slots(request)
        items = (
            ScheduledTriggerRequest(
                dag_id=request.dag_id,
                version=request.version,
                logical_date=instant_text(slot),
                input=request.input,
            )
            for slot in slots
        )
        started = await self._start_all(items)
        return CatchupTriggerResult(requested_slot_count=len(slots), started_runs=started)

    async def _start_all(self, items: Iterable[ScheduledTriggerRequest]) -> tuple[Any, ...]:
        started: list[Any] = []
        try:
            for item in items:
                run = await self.trigger_scheduled_run(item)
                started.append(run)
        except DagError as error:
            error.started_runs = tuple(started)
            raise
        except BaseException as error:
            error.add_note(_started_note(started))
            raise
        return tuple(started)


def checked_slots(request: CatchupTriggerRequest) -> range:
    """Return the slots of a request, or raise DagError.

    Checked in this order: dates, interval, limit, order of the dates, number of slots.
    """
    start = parse_logical_date(request.range_start_logical_date, "range_start_logical_date")
    end = parse_logical_date(request.range_end_logical_date, "range_end_logical_date")
    interval = _positive(request.slot_interval_ms, "slot_interval_ms", "INVALID_SLOT_INTERVAL")
    most = _positive(request.max_slots, "max_slots", "INVALID_MAX_SLOTS")
    if end < start:
        raise DagError(
            "DAG_VALIDATION_INVALID_CATCHUP_RANGE",
            f"Invalid range: its end {instant_text(end)} is before its start {instant_text(start)}",
            context={
                "range_start_logical_date": request.range_start_logical_date,
                "range_end_logical_date": request.range_end_logical_date,
            },
        )
    slots = slots_of(start, end, interval)
    if len(slots) > most:
        raise DagError(
            "DAG_VALIDATION_CATCHUP_RANGE_EXCEEDS_LIMIT",
            f"The range has {len(slots):,} slots, and max_slots is {most:,}; "
            "shorten the range or raise max_slots",
            context={"requested_slot_count": len(slots), "max_slots": most},
        )
    return slots


def _positive(value: object, name: str, code: str) -> int:
    """Return a whole number above zero; whole floats are accepted, as JSON has one kind of number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        message = f'Invalid {name} "{quoted(value)}": must be a whole number above 0'
        raise DagError(f"DAG_VALIDATION_{code}", message, context={name: value})
    return value


def _started_note(started: Sequence[Any]) -> str:
    if not started:
        return "No run was started before."
    names = ", ".join(str(getattr(run, "run_id", run)) for run in started[:MAX_NAMED])
    more = f" and {len(started) - MAX_NAMED:,} more" if len(started) > MAX_NAMED else ""
    return f"Started before: {names}{more}"
