"""Questions: what is looked for among the records of a store, and what is found."""

from collections.abc import Sequence
from typing import NamedTuple

from kron.core.plan.record import AuditRecord, JobRecord


class JobFilter(NamedTuple):
    """Which jobs are looked for; what is None does not matter.

    `search` is any part of their names; they belong to one of `users`. A job is `failing` while its last
    execution failed.
    """

    names: Sequence[str] | None = None
    search: str | None = None
    paused: bool | None = None
    failing: bool | None = None
    workflow_id: str | None = None
    user_id: str | None = None
    users: Sequence[str] | None = None
    deleted: bool = False


class FoundJob(NamedTuple):
    """A job, and when its record last changed, in milliseconds."""

    job: JobRecord
    changed_at: int


class RunCursor(NamedTuple):
    """Where a page of runs ended: when its last run's record was made, and its key."""

    created_at: int
    key: str


class OpenRuns(NamedTuple):
    """How many runs are open, by what they wait for.

    Their time (`planned`), whoever starts them (`due`), another run or the end of a pause (`held`), their end
    (`under_way`), or their next attempt (`retrying`).
    """

    planned: int = 0
    due: int = 0
    held: int = 0
    under_way: int = 0
    retrying: int = 0


class AuditFilter(NamedTuple):
    """Which changes are looked for; what is None does not matter."""

    identity: str | None = None
    who: str | None = None
    users: Sequence[str] | None = None


class Audited(NamedTuple):
    """A change with its number; later ones have higher numbers."""

    number: int
    record: AuditRecord
