"""The launcher object of the kind `celery`: fields, limits and traits."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from kron.core.errors import Problem
from kron.core.fields import (
    FieldTable,
    Schema,
    ValueType,
    invalid_value,
    optional,
    parse_text,
    row,
    text_problems,
)
from kron.core.plan.record import RunRecord
from kron.core.value_types import FLAG
from kron.launchers.celery.broker import Broker
from kron.launchers.spec import InvalidLauncherError, LauncherConfig, TableSettings, launcher_table

# How long a Celery worker may give no sign of a task it has started.
LOST_AFTER = timedelta(minutes=1)
NOT_ALLOWED = "is not among the tasks the settings allow (allowed_tasks)"
# The fields that say what a Celery worker does.
WORK = ("task", "queue", "args", "kwargs")
# The text of launchers that await the results of their tasks.
AWAITED = "celery:awaited"
# Names that every broker takes, and that are no paths where a broker keeps its queues in files.
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


def parse_name(value: object) -> str:
    """Return the name of a task or a queue, or refuse the value."""
    name = parse_text(value)
    if not NAME.fullmatch(name):
        raise invalid_value(ascii(name), "must be 1 to 200 of A-Z a-z 0-9 _ . : -")
    return name


def _parse_args(value: object) -> str:
    if value is not None and not isinstance(value, list | tuple):
        raise invalid_value(value, "must be a list")
    return _document_text(value or [])


def _parse_kwargs(value: object) -> str:
    if value is not None and not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object")
    if not all(isinstance(name, str) for name in value or {}):
        raise invalid_value(value, "must be an object whose names are texts")
    return _document_text(value or {})


def _document_text(value: object) -> str:
    """Return a JSON document as text, the same one for the same document."""
    for problem in text_problems(value, ""):
        raise invalid_value(problem.value, problem.reason)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise invalid_value("...", "must be a JSON document") from None
    return text


def _write_document(value: object) -> object:
    assert isinstance(value, str)
    return json.loads(value)


_NAME_SCHEMA: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_NAME = ValueType(schema=_NAME_SCHEMA, parse=parse_name)
_NAME_OR_NULL = ValueType(schema={**_NAME_SCHEMA, "type": ["string", "null"]}, parse=optional(parse_name))
_ARGS = ValueType(schema={"type": ["array", "null"]}, parse=_parse_args, write=_write_document)
_KWARGS = ValueType(schema={"type": ["object", "null"]}, parse=_parse_kwargs, write=_write_document)


@dataclass(frozen=True, slots=True, kw_only=True)
class CelerySettings(TableSettings):
    """The job is a Celery task; `args` and `kwargs` are texts of JSON documents."""

    kind: ClassVar[str] = "celery"
    table: ClassVar[FieldTable]

    task: str = field(metadata=row(_NAME, "the name of the task"))
    queue: str | None = field(
        default=None, metadata=row(_NAME_OR_NULL, "its queue, instead of the setting `celery_queue`")
    )
    args: str = field(default="[]", metadata=row(_ARGS, "its positional arguments"))
    kwargs: str = field(default="{}", metadata=row(_KWARGS, "its keyword arguments"))
    reports: bool = field(default=False, metadata=row(FLAG, "whether the task reports the end of each run"))
    await_result: bool = field(
        default=False,
        metadata=row(
            FLAG, "whether a run ends with its task, as the setting `celery_backend` knows it", sparse=True
        ),
    )

    @property
    def launcher_kind(self) -> str:
        """Return the text that selects launcher and traits; it is stored with the job."""
        if self.await_result:
            return AWAITED
        return "celery:reports" if self.reports else "celery"

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the operator does not allow the task; what the default does is allowed."""
        allowed = config.get(CeleryOptions).allowed_tasks
        problems = []
        if allowed is not None and self.task not in allowed and not self.has_same(WORK, config.default):
            problems.append(Problem("launcher.task", self.task, NOT_ALLOWED))
        if self.await_result and self.reports:
            problems.append(Problem("launcher.await_result", True, "use reports or await_result, not both"))
        return problems


CelerySettings.table = launcher_table(CelerySettings, required=("task",), always_workflow=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CeleryOptions:
    """The broker, the result backend, and the tasks that schedules may publish; None allows all.

    A started task that no Celery worker has for `lost_after` is lost. `on_end` gets the result of an awaited
    task, as JSON text, and its traceback before its end is reported.
    """

    broker: Broker | None = None
    allowed_tasks: frozenset[str] | None = None
    backend: str | None = field(default=None, repr=False)
    lost_after: timedelta = LOST_AFTER
    on_end: Callable[[RunRecord, str | None, str | None], None] | None = None


def check_start(config: LauncherConfig, settings: CelerySettings) -> None:
    """Raise InvalidLauncherError unless the operator allows the task now, or has it as the default."""
    default = config.default
    if isinstance(default, CelerySettings) and default.task == settings.task:
        return
    problems = settings.problems(config)
    if problems:
        raise InvalidLauncherError(problems=problems)
