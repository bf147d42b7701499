"""The API's requests and responses as OpenAPI describes them.

A schedule document is described by its field table, and a response by the view it is rendered from. Values
are checked where they are used, in this process as over HTTP.
"""

from collections.abc import Iterable
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints, is_typeddict

from fastapi import Depends, Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    JsonValue,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from kron.app.apply import MAX_APPLIED
from kron.app.backfill import Only
from kron.core.fields import MAX_NAME
from kron.core.job.profile import PROFILE
from kron.core.plan.query import JobFilter
from kron.core.value_types import MAX_VERSION
from kron.fronts.service.definitions import DEFAULT_SET
from kron.fronts.service.responses import ScheduleState
from kron.fronts.service.runs import EVENTS, MAX_ATTEMPT, MAX_ERROR, MAX_RUN_ID
from kron.fronts.service.schedule_spec import (
    DEFINITION_WORDS,
    FLAT_POLICY,
    MAX_REASON,
    MAX_REQUEST,
    SCHEDULE,
    schedule_schema,
)

# Names of hosts with a process id and a random number.
MAX_WORKER = 500
EXAMPLE = {
    "schedule_id": "daily-report",
    "cron_expr": "30 8 * * mon-fri",
    "timezone": "Europe/Berlin",
    "overlap_policy": "skip",
    "catchup_policy": "none",
    "deadline": "1h",
    "jitter_ms": 0,
    "launcher": {"kind": "log", "message": "the report is due"},
}
JOB_EXAMPLE: dict[str, JsonValue] = {
    "identity": "nightly-backup",
    "schedule": "0 2 * * *",
    "timezone": "Europe/Berlin",
    "policy": {"concurrency": "forbid", "deadline": "10m"},
    "launcher": {"kind": "log", "message": "the backup is due"},
    "tags": ["nightly"],
}
RUN_EXAMPLE: dict[str, JsonValue] = {
    "idempotency_key": "5b0d0a3c1f0f6f2c3a7f1b9f3d6c9c0f2a1e4d5b6c7d8e9f0a1b2c3d4e5f6071",
    "schedule_id": "daily-report",
    "run_at": "2026-06-01T06:30:00Z",
    "fire_at": "2026-06-01T06:30:00Z",
    "status": "SUCCESS",
    "phase": "Completed",
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
    "retry_at": None,
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
# More fields than a request has, but few enough to describe each unknown one.
MAX_FIELDS = 100
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


_JOBS = WithJsonSchema({"type": "array", "maxItems": MAX_APPLIED, "items": {"type": "object"}})
_SET = WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_NAME})
# A document is checked where it is used, field by field: the framework would copy it first.
UncheckedDocument: TypeAlias = InstanceOf[dict[str, object]]
ScheduleInput = Annotated[UncheckedDocument, WithJsonSchema(schedule_schema(EXAMPLE))]
DagInput = Annotated[
    InstanceOf[dict[str, Any]], WithJsonSchema({"type": "object", "additionalProperties": True})
]
Instant = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
RequestId = Annotated[str | None, _or_null({"type": "string", "minLength": 1, "maxLength": MAX_REQUEST})]


# --- filters ------------------------------------------------------------------------------------


def _filter_of(
    search: Annotated[str | None, Query(description="a part of the name")] = None,
    paused: bool | None = None,
    suspended: bool | None = None,
    workflow_id: str | None = None,
    user_id: str | None = None,
    tag: Annotated[str | None, Query(description="one of the schedule's tags")] = None,
    applied_set: Annotated[str | None, Query(description="the set it was applied with")] = None,
) -> JobFilter:
    return JobFilter(
        search=search,
        paused=paused,
        suspended=suspended,
        workflow_id=workflow_id,
        user_id=user_id,
        tag=tag,
        applied_set=applied_set,
    )


# The filters of a list of schedules.
Filter = Annotated[JobFilter, Depends(_filter_of)]


# --- requests ------------------------------------------------------------------------------------


class RequestBody(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, value: object) -> object:
        """Refuse more fields than any request has: the framework would describe each of them."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            known = ", ".join(field.alias or name for name, field in cls.model_fields.items())
            found = {"count": len(value), "known": known}
            raise PydanticCustomError("too_many_fields", "has {count} fields; it can have {known}", found)
        return value


class PauseRequest(RequestBody):
    """A schedule, and whether it is paused, with a reason and an end if they are given, or resumed."""

    schedule_id: str = Field(examples=["daily-report"])
    paused: bool
    reason: Annotated[str | None, _text(MAX_REASON)] = Field(default=None, examples=["the target is down"])
    until: Instant | None = Field(default=None, examples=["2099-06-01T12:00:00Z"])


class DrainRequest(RequestBody):
    """A worker, and whether it is to drain or to work again."""

    worker: Annotated[str, _text(MAX_WORKER)] = Field(examples=["host1:4711:9f86d081"])
    drain: bool


class DefinitionsRequest(RequestBody):
    """The jobs of a set in a job file's words.

    With `prune`, schedules of the set that are not among the jobs are deleted. `if_match` has the ETag that a
    plan has seen of each schedule, an empty one where it did not exist.
    """

    jobs: Annotated[list[UncheckedDocument], _JOBS] = Field(max_length=MAX_APPLIED, examples=[[JOB_EXAMPLE]])
    set_name: Annotated[str, _SET] = Field(default=DEFAULT_SET, alias="set", examples=["billing"])
    prune: bool = False
    dry_run: bool = False
    if_match: dict[str, str] = Field(default_factory=dict, examples=[{}])


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
    data_interval_start: str | None = Field(default=None, examples=["2026-05-31T06:30:00Z"])
    data_interval_end: str | None = Field(default=None, examples=["2026-06-01T06:30:00Z"])


# --- responses -----------------------------------------------------------------------------------


@cache
def model_of(view: type) -> type[BaseModel]:
    """Return the model of a typed document; the documents in it become models too."""
    return _model(view.__name__, view)


def _model(name: str, view: type, doc: str | None = None, **further: Any) -> type[BaseModel]:
    """Return the model of a view, with further fields if a route adds some."""
    required: frozenset[str] = getattr(view, "__required_keys__", frozenset())
    fields: dict[str, Any] = {
        field: (_modelled(hint), ... if field in required else Field(default_factory=NoneType))
        for field, hint in get_type_hints(view).items()
    }
    fields |= {field: (hint, ...) for field, hint in further.items()}
    example = EXAMPLES.get(name)
    config = None if example is None else ConfigDict(json_schema_extra={"example": example})
    model: type[BaseModel] = create_model(name, __config__=config, __doc__=doc or view.__doc__, **fields)
    return model


def _list_of(item: Any) -> Any:
    return GenericAlias(list, (item,))


def _modelled(hint: Any) -> Any:
    """Return a type with models in the place of typed documents."""
    if is_typeddict(hint):
        return model_of(hint)
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return _list_of(_modelled(item))
    if isinstance(hint, UnionType) and any(map(is_typeddict, get_args(hint))):
        document, none = (_modelled(option) for option in get_args(hint))
        return document | none
    return hint


EXAMPLES: dict[str, JsonValue] = {
    "RunView": RUN_EXAMPLE,
    "RequestedRun": {**RUN_EXAMPLE, "request_id": "deploy-17", "note": None},
    "RunWithAttempts": {**RUN_EXAMPLE, "attempts": []},
    "Receipt": {
        "schedule_id": "daily-report",
        "next_run_at": "2026-06-01T06:30:00Z",
        "etag": '"0f6c2a9d1b7e4c583a61"',
    },
    "DeployedSchedule": {"schedule_id": "report/nightly", "next_run_at": "2026-06-01T00:30:00Z"},
    "Readiness": {"status": "ok", "worker": "running", "error": None},
}
# The fields of a schedule's definition, each with the schema of its row.
_DEFINITION: dict[str, Any] = {
    word: Annotated[Any, WithJsonSchema(SCHEDULE.words[word].written_schema())]
    for word in (*DEFINITION_WORDS.values(), *FLAT_POLICY.values(), *PROFILE.words)
}
_WITH_PREVIEW: dict[str, Any] = {
    "preview": Annotated[list[str], Field(description="the next five fire times, as if it were not paused")],
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
SchedulePage = create_model(
    "SchedulePage",
    __doc__="A page of schedules, and the cursor of the next one.",
    schedules=(_list_of(Schedule), ...),
    next_cursor=(str | None, ...),
)
