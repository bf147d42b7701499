"""The API's requests and responses as OpenAPI describes them.

A schedule document is described by its field table, and a response by the view it is rendered from. Values
are checked where they are used, in this process as over HTTP.
"""

from collections.abc import Iterable
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema, create_model

from kron.app.backfill import Only
from kron.core.workflow import MAX_VERSION
from kron.fronts.service.documents import AttemptView, RangeView, RunView, ScheduleState
from kron.fronts.service.runs import EVENTS, MAX_ATTEMPT, MAX_ERROR, MAX_RUN_ID
from kron.fronts.service.schedule_spec import (
    DEFINITION_WORDS,
    FLAT_POLICY,
    MAX_REASON,
    MAX_REQUEST,
    SCHEDULE,
    schedule_schema,
)

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
RUN_EXAMPLE: dict[str, JsonValue] = {
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
WORKFLOW_EXAMPLE = {
    "user_id": "ann",
    "triggers": [
        {
            "id": "nightly",
            "type": "schedule_based",
            "schedule": {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"},
        }
    ],
    "nodes": [
        {"id": "fetch", "type": "http", "dependsOn": []},
        {"id": "report", "type": "mail", "dependsOn": ["fetch"]},
    ],
}
# The largest number that JSON keeps exactly.
MAX_INTEGER = 2**53


# --- schemas -------------------------------------------------------------------------------------


def _or_null(schema: dict[str, object]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [schema, {"type": "null"}]})


def _choice(names: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(names)})


def _text(most: int) -> WithJsonSchema:
    return _or_null({"type": "string", "maxLength": most})


def _whole(least: int, most: int) -> WithJsonSchema:
    return _or_null({"type": "integer", "minimum": least, "maximum": most})


def up_to(most: int) -> WithJsonSchema:
    """Return the schema of a number of entries."""
    return WithJsonSchema({"type": "integer", "minimum": 1, "maximum": most})


ScheduleInput = Annotated[dict[str, object], WithJsonSchema(schedule_schema(EXAMPLE))]
Instant = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
RequestId = Annotated[str | None, _or_null({"type": "string", "minLength": 1, "maxLength": MAX_REQUEST})]


# --- requests ------------------------------------------------------------------------------------


class RequestBody(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PauseRequest(RequestBody):
    """A schedule, and whether it is paused, with a reason and an end if they are given, or resumed."""

    schedule_id: str = Field(examples=["daily-report"])
    paused: bool
    reason: Annotated[str | None, _text(MAX_REASON)] = Field(default=None, examples=["the target is down"])
    until: Instant | None = Field(default=None, examples=["2026-06-01T12:00:00Z"])


class RunRequest(RequestBody):
    """An id for the request, so that repeating it changes nothing."""

    request_id: RequestId = Field(default=None, examples=["deploy-17"])


class BackfillRequest(RequestBody):
    """The past periods to run: nominal times from `from` up to, not including, `to`."""

    start: Instant = Field(alias="from", examples=["2026-05-01T00:00:00Z"])
    end: Instant = Field(alias="to", examples=["2026-06-01T00:00:00Z"])
    only: Annotated[str, _choice(Only)] = Only.MISSING.value
    dry_run: bool = False
    request_id: RequestId = Field(default=None, examples=["backfill-may"])


class StatusRequest(RequestBody):
    """An executor's report of a run; without an attempt, of the latest."""

    status: Annotated[str, _choice(EVENTS)]
    run_id: Annotated[str | None, _text(MAX_RUN_ID)] = Field(default=None, examples=["exec-4711"])
    error: Annotated[str | None, _text(MAX_ERROR)] = None
    attempt: Annotated[int | None, _whole(1, MAX_ATTEMPT)] = None


class StartRequest(RequestBody):
    """The start of a run (SPEC 3: 4); a worker adds the schedule, the attempt and its fencing token."""

    workflow_id: str = Field(examples=["report"])
    version: int = Field(ge=0, le=MAX_VERSION, examples=[3])
    user_id: str = Field(examples=["ann"])
    scheduled_for: str = Field(examples=["2026-06-01T06:30:00Z"])
    idempotency_key: str | None = Field(default=None, examples=["daily-2026-06-01"])
    identity: str | None = Field(default=None, description="the schedule it is a run of")
    attempt: int = Field(default=1, ge=1, le=MAX_INTEGER)
    fencing_token: int = Field(default=0, ge=0, le=MAX_INTEGER)


# --- responses -----------------------------------------------------------------------------------


def _model(
    name: str, view: type, doc: str | None = None, *, example: JsonValue = None, **further: Any
) -> type[BaseModel]:
    """Return the model of a view, with further fields if a route adds some."""
    fields: dict[str, Any] = {field: (hint, ...) for field, hint in get_type_hints(view).items()}
    fields |= {field: (hint, ...) for field, hint in further.items()}
    config = None if example is None else ConfigDict(json_schema_extra={"example": example})
    return create_model(name, __config__=config, __doc__=doc or view.__doc__, **fields)


def _list_of(model: type[BaseModel]) -> Any:
    return GenericAlias(list, (model,))


# The fields of a schedule's definition, each with the schema of its row.
_DEFINITION: dict[str, Any] = {
    word: Annotated[Any, WithJsonSchema(SCHEDULE.words[word].written_schema())]
    for word in (*DEFINITION_WORDS.values(), *FLAT_POLICY.values())
}
_WITH_PREVIEW: dict[str, Any] = {
    "preview": Annotated[list[str], Field(description="the next fire times, at most five")],
    "etag": str,
}
Schedule = _model("Schedule", ScheduleState, "A schedule with all its fields.", **_DEFINITION)
ScheduleWithPreview = _model(
    "ScheduleWithPreview",
    ScheduleState,
    "A schedule with all its fields, its next fire times and its ETag.",
    **_DEFINITION,
    **_WITH_PREVIEW,
)
Run = _model("Run", RunView, example=RUN_EXAMPLE)
AskedRun = _model("AskedRun", RunView, "A run that was requested.", example=RUN_EXAMPLE, request_id=str)
Attempt = _model("Attempt", AttemptView)
Dropped = _model("Dropped", RangeView)
RunWithAttempts = _model(
    "RunWithAttempts",
    RunView,
    "A run with its earlier attempts.",
    example=RUN_EXAMPLE,
    attempts=_list_of(Attempt),
)
SchedulePage = create_model(
    "SchedulePage",
    __doc__="A page of schedules, and the cursor of the next one.",
    schedules=(_list_of(Schedule), ...),
    next_cursor=(str | None, ...),
)
RunPage = create_model(
    "RunPage",
    __doc__="A page of runs, the periods dropped among them, and the cursor of the next page.",
    runs=(_list_of(Run), ...),
    dropped=(_list_of(Dropped), []),
    next_cursor=(str | None, ...),
)
PeriodRuns = create_model(
    "PeriodRuns",
    __doc__="All runs of one period: its own first, then requested ones.",
    schedule_id=(str, ...),
    period_id=(str, ...),
    runs=(_list_of(RunWithAttempts), ...),
)
Health = create_model(
    "Health",
    __doc__="The state of the service.",
    status=(str, Field(examples=["ok"])),
    worker=(str | None, Field(default=None, examples=["running"])),
    error=(str | None, None),
)


class Receipt(BaseModel):
    """The result of an upsert."""

    schedule_id: str = Field(examples=["daily-report"])
    next_run_at: str | None = Field(examples=["2026-06-01T06:30:00Z"])
    etag: str


class Paused(Receipt):
    """The result of a pause, or of a resume with the periods of the pause that start.

    `note` says if the definition suspends the schedule, so that nothing starts after a resume either.
    """

    paused: bool
    suspended: bool
    note: str | None = None
    would_start: int | None = None
    would_wait: int | None = None
    would_drop: dict[str, int] | None = None
    starts: list[str] | None = None


class Foreseen(BaseModel):
    """What a resume would do, with the number of dropped periods by reason."""

    schedule_id: str
    note: str | None = None
    would_start: int
    would_wait: int
    would_drop: dict[str, int]
    starts: list[str]


class Backfilled(BaseModel):
    """The runs a backfill requested, or would request."""

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
    """When an unsaved schedule would run, and the effect of clock changes on it."""

    sentence: str
    timezone: str
    times: list[dict[str, str | None]]
    clock_changes: list[dict[str, str | None]]


class DeployedSchedule(BaseModel):
    """A schedule of a workflow, and when it runs next."""

    schedule_id: str = Field(examples=["report/nightly"])
    next_run_at: str | None


class Deployed(BaseModel):
    """The result of a deployment, or of its dry run."""

    workflow_id: str
    version: int
    newest_version: int
    new: bool
    dry_run: bool
    upserted: list[DeployedSchedule]
    retired: list[str]


class WorkflowView(BaseModel):
    """A version of a workflow."""

    workflow_id: str
    version: int
    user_id: str
    created_at: str
    dag: dict[str, Any]


class WorkflowVersionView(BaseModel):
    """A version of a workflow, its owner and when it was stored."""

    version: int
    user_id: str
    created_at: str


class WorkflowVersions(BaseModel):
    """The versions of a workflow."""

    workflow_id: str
    versions: list[WorkflowVersionView]


class Accepted(BaseModel):
    """An accepted start; `repeated` if its key was accepted before."""

    accepted: bool
    run_id: str | None
    repeated: bool
