"""The shapes of what the API takes and gives, for OpenAPI, each with an example."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from kron.app.backfill import Only
from kron.fronts.service.runs import EVENTS, MAX_ATTEMPT, MAX_ERROR, MAX_RUN_ID
from kron.fronts.service.schedule_spec import MAX_REQUEST, schedule_schema

EXAMPLE = {
    "schedule_id": "daily-report",
    "workflow_id": "report",
    "version": 3,
    "user_id": "ann",
    "cron_expr": "30 8 * * mon-fri",
    "timezone": "Europe/Berlin",
    "overlap_policy": "skip",
    "catchup_policy": "none",
    "jitter_ms": 0,
}
RUN_EXAMPLE = {
    "idempotency_key": "5b0d0a3c1f0f6f2c3a7f1b9f3d6c9c0f2a1e4d5b6c7d8e9f0a1b2c3d4e5f6071",
    "schedule_id": "daily-report",
    "run_at": "2026-06-01T06:30:00Z",
    "fire_at": "2026-06-01T06:30:00Z",
    "status": "SUCCESS",
    "outcome": "executed",
    "reason": "due",
    "sentence": "started on schedule",
    "kind": "period",
    "attempt": 1,
    "run_id": "exec-4711",
    "started_at": "2026-06-01T06:30:00.004Z",
    "ended_at": "2026-06-01T06:31:12.250Z",
    "result": "success",
    "error": None,
    "created_at": "2026-06-01T06:30:00.001Z",
}


def _with_example(schema: dict[str, Any]) -> None:
    schema["example"] = RUN_EXAMPLE


# Checked against its field table where it is read, in this process as over HTTP; here it is described.
ScheduleInput = Annotated[dict[str, object], WithJsonSchema(schedule_schema(EXAMPLE))]


# Values are checked where they are used, in the program as over HTTP; here they are only described.


def _or_null(schema: dict[str, object]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [schema, {"type": "null"}]})


def _choice(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(names)})


def _text(most: int) -> WithJsonSchema:
    return _or_null({"type": "string", "maxLength": most})


def _whole(least: int, most: int) -> WithJsonSchema:
    return _or_null({"type": "integer", "minimum": least, "maximum": most})


def up_to(most: int) -> WithJsonSchema:
    """Describe a number of entries."""
    return WithJsonSchema({"type": "integer", "minimum": 1, "maximum": most})


Instant = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
RequestId = Annotated[str | None, _or_null({"type": "string", "minLength": 1, "maxLength": MAX_REQUEST})]


class Asked(BaseModel):
    """What a caller sends; a field nobody knows is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PauseRequest(Asked):
    """Which schedule is paused, or goes on."""

    schedule_id: str = Field(examples=["daily-report"])
    paused: bool


class RunRequest(Asked):
    """A name for the request, so that repeating it changes nothing."""

    request_id: RequestId = Field(default=None, examples=["deploy-17"])


class BackfillRequest(Asked):
    """Which past periods are run: nominal times from `from` up to, not including, `to`."""

    start: Instant = Field(alias="from", examples=["2026-05-01T00:00:00Z"])
    end: Instant = Field(alias="to", examples=["2026-06-01T00:00:00Z"])
    only: Annotated[str, _choice(Only)] = Only.MISSING.value
    dry_run: bool = False
    request_id: RequestId = Field(default=None, examples=["backfill-may"])


class StatusRequest(Asked):
    """What the executor says of a run; without an attempt, of the latest."""

    status: Annotated[str, _choice(EVENTS)]
    run_id: Annotated[str | None, _text(MAX_RUN_ID)] = Field(default=None, examples=["exec-4711"])
    error: Annotated[str | None, _text(MAX_ERROR)] = None
    attempt: Annotated[int | None, _whole(1, MAX_ATTEMPT)] = None


class Receipt(BaseModel):
    """What an upsert comes to."""

    schedule_id: str = Field(examples=["daily-report"])
    next_run_at: str | None = Field(examples=["2026-06-01T06:30:00Z"])
    etag: str


class Paused(Receipt):
    """What a pause comes to; where a schedule goes on, also what starts of what passed meanwhile."""

    paused: bool
    would_start: int | None = None
    would_wait: int | None = None
    would_drop: dict[str, int] | None = None
    starts: list[str] | None = None


class Foreseen(BaseModel):
    """What a resume would do: by reason, how many periods it would drop."""

    schedule_id: str
    would_start: int
    would_wait: int
    would_drop: dict[str, int]
    starts: list[str]


class Schedule(BaseModel):
    """A schedule with all its fields, the policy's and the definition's among them."""

    model_config = ConfigDict(extra="allow")

    schedule_id: str
    workflow_id: str | None
    version: int | None
    user_id: str | None
    cron_expr: str
    timezone: str
    start_at: str | None
    end_at: str | None
    next_run_at: str | None
    paused: bool
    jitter_ms: int
    overlap_policy: str
    catchup_policy: str
    updated_at: str
    sentence: str
    launcher: dict[str, object]


class ScheduleWithPreview(Schedule):
    """A schedule, and when it fires next."""

    preview: list[str] = Field(description="the next fire times, at most five")


class Run(BaseModel):
    """A run, its status, and why it has it."""

    model_config = ConfigDict(json_schema_extra=_with_example)

    idempotency_key: str
    schedule_id: str
    run_at: str
    fire_at: str
    status: str
    outcome: str | None
    reason: str
    sentence: str
    kind: str
    attempt: int
    run_id: str | None
    started_at: str | None
    ended_at: str | None
    result: str | None
    error: str | None
    created_at: str


class AskedRun(Run):
    """A run that somebody asked for."""

    request_id: str


class Dropped(BaseModel):
    """Periods that were dropped together for one reason."""

    first_run_at: str
    last_run_at: str
    periods: int
    outcome: str
    reason: str
    sentence: str
    created_at: str


class SchedulePage(BaseModel):
    """Some schedules, and where the next page begins."""

    schedules: list[Schedule]
    next_cursor: str | None


class RunPage(BaseModel):
    """Some runs, what was dropped among them, and where the next page begins."""

    runs: list[Run]
    dropped: list[Dropped] = []
    next_cursor: str | None


class Attempt(BaseModel):
    """An earlier attempt of a run that was started again."""

    attempt: int
    run_id: str | None
    started_at: str | None
    ended_at: str | None
    result: str | None
    error: str | None


class RunWithAttempts(Run):
    """A run, and its earlier attempts."""

    attempts: list[Attempt]


class PeriodRuns(BaseModel):
    """All runs of one period: its own first, then those that somebody asked for."""

    schedule_id: str
    period_id: str
    runs: list[RunWithAttempts]


class Backfilled(BaseModel):
    """What a backfill asks for, or would."""

    request_id: str
    dry_run: bool
    only: str
    count: int
    runs: list[dict[str, str]]
    already_asked: int
    still_to_be_judged: int


class Stored(BaseModel):
    """How many schedules a bulk request stored, in how many transactions."""

    upserted: int
    batches: int


class Why(BaseModel):
    """The chain of facts behind a period."""

    schedule_id: str
    period_id: str | None
    outcome: str | None
    code: str
    facts: list[dict[str, str | None]]


class Preview(BaseModel):
    """When an unsaved schedule would run, and what changes of the clocks do to it."""

    sentence: str
    timezone: str
    times: list[dict[str, str | None]]
    clock_changes: list[dict[str, str | None]]


class Health(BaseModel):
    """How the service is doing."""

    status: str = Field(examples=["ok"])
    worker: str | None = Field(default=None, examples=["running"])
    error: str | None = None
