"""The contracts of DAG runs: their logical dates, the slots of a range, and their errors."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kron.core.errors import InvalidInstantError, KronError, quoted
from kron.core.time.instant import milliseconds_of

VALIDATION = "validation"
# A calendar date, alone or with a time of day; `fromisoformat` alone accepts any separator.
_DATE = re.compile(
    r"[0-9]{4}-?(?:[0-9]{2}-?[0-9]{2}|[0-9]{3}|W[0-9]{2}(?:-?[0-9])?)(?:[Tt ][0-9:.,]+(?:[Zz]|[+-][0-9:]+)?)?"
)


class DagError(KronError):
    """A DAG run could not be started: a stable code, its category, and the values it is about.

    `started_runs` are the runs that a batch or a catch-up had started before.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        category: str = VALIDATION,
        context: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message, **(context or {}))
        self.code = code  # type: ignore[misc]
        self.category = category
        self.started_runs: Sequence[object] = ()

    @property
    def message(self) -> str:
        """Return the sentence for people."""
        return str(self)

    @property
    def context(self) -> Mapping[str, object]:
        """Return the values the error is about, by name."""
        return self.details


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRunResult:
    """A run that was started, or that its key had started before (`created` is false then)."""

    run_id: str
    run_key: str
    dag_id: str
    version: int
    logical_date: str
    status: str
    created: bool


def invalid_logical_date(field: str, value: object, reason: str) -> DagError:
    """Return the error of a date."""
    message = f'Invalid {field} "{quoted(value)}": {reason}'
    return DagError("DAG_VALIDATION_INVALID_LOGICAL_DATE", message, context={field: value})


def parse_logical_date(value: object, field: str = "logical_date") -> int:
    """Return an ISO-8601 text as milliseconds since 1970.

    A text without an offset is UTC, a date alone is its midnight in UTC.
    """
    if not isinstance(value, str):
        raise invalid_logical_date(field, value, f"must be an ISO-8601 string, got {type(value).__name__}")
    try:
        if not _DATE.fullmatch(value):
            raise ValueError(value)
        instant = datetime.fromisoformat(value.upper())
        return milliseconds_of(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
    except (ValueError, InvalidInstantError) as cause:
        raise invalid_logical_date(field, value, "use ISO-8601, such as 2026-03-29T01:00:00Z") from cause


def slots_of(start: int, end: int, interval: int) -> range:
    """Return the slots of a range, in milliseconds: its start and each interval up to and including its end.

    The one source of slots: its length is the number of slots, without listing them.
    """
    return range(start, end + 1, interval)
