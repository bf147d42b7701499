"""The launcher object of the kind `celery`: which task is published, where, and with which arguments."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kron.core.job.fields import FieldReader, optional, parse_bool, parse_text, parse_utf8, refuse

CELERY_FIELDS = ("task", "queue", "args", "kwargs", "reports")
NOT_ALLOWED = "is not among the tasks the settings allow (allowed_tasks)"
# What every broker takes as a name, and what is no path where a broker keeps its queues in files.
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CelerySettings:
    """The job is a task that others consume; `args` and `kwargs` are texts of JSON documents.

    Without a `queue` it goes to the one of the settings; with `reports` its end will be reported.
    """

    task: str
    queue: str | None = None
    args: str = "[]"
    kwargs: str = "{}"
    reports: bool = False
    workflow_id: str | None = None
    version: int | None = None
    user_id: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        return {
            "kind": "celery",
            "task": self.task,
            "queue": self.queue,
            "args": json.loads(self.args),
            "kwargs": json.loads(self.kwargs),
            "reports": self.reports,
            "workflow_id": self.workflow_id,
            "version": self.version,
            "user_id": self.user_id,
        }


def read_celery(fields: FieldReader, *, version: int | None) -> CelerySettings:
    """Return the settings of a launcher object; what is wrong is noted."""
    if fields.get("task") is None:
        fields.problem("task", None, "is missing")
    return CelerySettings(
        task=fields.read("task", optional(parse_name), None) or "",
        queue=fields.read("queue", optional(parse_name), None),
        args=fields.read("args", _parse_args, "[]"),
        kwargs=fields.read("kwargs", _parse_kwargs, "{}"),
        reports=fields.read("reports", parse_bool, False),
        workflow_id=fields.read("workflow_id", optional(parse_utf8), None),
        version=version,
        user_id=fields.read("user_id", optional(parse_utf8), None),
    )


def parse_name(value: object) -> str:
    """Return the name of a task or a queue, or refuse what is none."""
    name = parse_text(value)
    if not NAME.fullmatch(name):
        raise refuse(ascii(name), "must be 1 to 200 of A-Z a-z 0-9 _ . : -")
    return name


def _parse_args(value: object) -> str:
    if value is not None and not isinstance(value, list | tuple):
        raise refuse(value, "must be a list")
    return _text_of(value or [])


def _parse_kwargs(value: object) -> str:
    if value is not None and not isinstance(value, Mapping):
        raise refuse(value, "must be an object")
    if not all(isinstance(name, str) for name in value or {}):
        raise refuse(value, "must be an object whose names are texts")
    return _text_of(value or {})


def _text_of(value: object) -> str:
    """Return a document as text, the same one for the same document."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise refuse("...", "must be a JSON document") from None
    return text
