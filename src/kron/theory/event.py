"""The observable alphabet: the events of a trace, and the party that causes each."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from kron.core.cron.dialect import parse
from kron.core.errors import InputError
from kron.theory.encoding import bits_of_tasks


class Kind(StrEnum):
    """The kinds of events, by their names in a trace."""

    INIT_START = "InitStart"
    INIT_SUCCESS = "InitSuccess"
    INIT_FAILURE = "InitFailure"
    STOP_START = "StopStart"
    STOP_END = "StopEnd"
    RUN_START = "RunStart"
    RUN_SUCCESS = "RunSuccess"
    RUN_FAILURE = "RunFailure"
    CRASH = "UnexpectedShutdown"
    MINUTE_START = "MinuteStart"
    DUE = "Due"
    RETRY_DUE = "RetryDue"
    COMPUTE = "Compute"
    SUPERNATURAL = "Supernatural"

    # Enum hashes by name in Python code; the hash of str is native, and millions of events are hashed.
    __hash__ = str.__hash__


class Owner(StrEnum):
    """The party that causes an event."""

    ENVIRONMENT = "environment"
    SCHEDULER = "scheduler"
    NOBODY = "nobody"


OWNERS = {
    Kind.INIT_START: Owner.ENVIRONMENT,
    Kind.INIT_SUCCESS: Owner.SCHEDULER,
    Kind.INIT_FAILURE: Owner.SCHEDULER,
    Kind.STOP_START: Owner.ENVIRONMENT,
    Kind.STOP_END: Owner.SCHEDULER,
    Kind.RUN_START: Owner.SCHEDULER,
    Kind.RUN_SUCCESS: Owner.ENVIRONMENT,
    Kind.RUN_FAILURE: Owner.ENVIRONMENT,
    Kind.CRASH: Owner.ENVIRONMENT,
    Kind.MINUTE_START: Owner.ENVIRONMENT,
    Kind.DUE: Owner.ENVIRONMENT,
    Kind.RETRY_DUE: Owner.ENVIRONMENT,
    Kind.COMPUTE: Owner.ENVIRONMENT,
    Kind.SUPERNATURAL: Owner.NOBODY,
}

INIT_EVENTS = frozenset({Kind.INIT_START, Kind.INIT_SUCCESS, Kind.INIT_FAILURE})
INIT_ENDS = frozenset({Kind.INIT_SUCCESS, Kind.INIT_FAILURE})
RUN_ENDS = frozenset({Kind.RUN_SUCCESS, Kind.RUN_FAILURE})
RUN_EVENTS = RUN_ENDS | {Kind.RUN_START}
STOP_EVENTS = frozenset({Kind.STOP_START, Kind.STOP_END})
# The actions of EA2 and EA3; pulses, crashes and compute are not actions.
ACTIONS = INIT_EVENTS | STOP_EVENTS | RUN_EVENTS
TASK_EVENTS = RUN_EVENTS | {Kind.DUE, Kind.RETRY_DUE}

# The name of a call or a list; None in traces without names.
Name: TypeAlias = str | int | None


class Opaque:
    """A key that distinguishes otherwise equal tuples. It supports comparison only."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "Opaque(...)"


class Task(NamedTuple):
    """A task as a trace describes it.

    The callback's name and the opaque key are optional: a scheduler cannot see the key, and an observer
    sees neither.
    """

    id: str
    schedule: str | None
    retry_delay: int
    callback: str | None = None
    key: Opaque | None = None

    def is_like(self, other: "Task") -> bool:
        """Return whether x ~ y: the ids are equal."""
        return self.id == other.id


def fields_of(task: Task) -> dict[str, object]:
    """Return the JSON fields of a task in a trace, the only place where the key's value is read."""
    fields: dict[str, object] = {
        "id": task.id,
        "schedule": task.schedule,
        "retry_delay": task.retry_delay,
    }
    if task.callback is not None:
        fields["callback"] = task.callback
    if task.key is not None:
        fields["key"] = task.key._key
    return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskList:
    """A registration list R: its label in the trace, its tasks in order, and its validity."""

    label: Name
    tasks: tuple[Task, ...]
    valid: bool
    by_id: dict[str, tuple[Task, ...]] = field(init=False, repr=False, compare=False)
    bits: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_id: dict[str, tuple[Task, ...]] = {}
        for task in self.tasks:
            by_id[task.id] = (*by_id.get(task.id, ()), task)
        object.__setattr__(self, "by_id", by_id)
        object.__setattr__(self, "bits", bits_of_tasks(self.tasks))
        object.__setattr__(self, "_hash", hash((self.label, self.tasks, self.valid)))

    def __hash__(self) -> int:
        return self._hash

    def is_like(self, other: "TaskList") -> bool:
        """Return whether R ~ R': equal lengths, and pairwise equal ids."""
        return len(self.tasks) == len(other.tasks) and all(map(Task.is_like, self.tasks, other.tasks))


NO_LIST = TaskList(label=None, tasks=(), valid=True)


class Event(NamedTuple):
    """One event. `instant` is set on a Due that is derived late: the time at which it was due."""

    kind: Kind
    task: str | None = None
    call: Name = None
    tasks: TaskList | None = None
    schedule: str | None = None
    phenomenon: str | None = None
    instant: int | None = None
    # The tuples that an event with a task's id stands for, in the reading that distinguishes them.
    subjects: tuple[Task, ...] = ()

    def __str__(self) -> str:
        subject = self.task if self.task is not None else self.phenomenon
        if subject is None and self.kind in INIT_EVENTS | STOP_EVENTS:
            subject = None if self.call is None else f"call {self.call}"
        return str(self.kind) if subject is None else f"{self.kind} {subject}"


class Position(NamedTuple):
    """One position of a trace: its index, its number in the file, its time, its events."""

    place: int
    i: int
    t: int
    events: tuple[Event, ...]


def is_valid(tasks: tuple[Task, ...]) -> bool:
    """Return whether a list must be accepted: unique names, strict expressions, non-negative delays."""
    names = {task.id for task in tasks}
    return len(names) == len(tasks) and all(
        task.id != "" and task.retry_delay >= 0 and is_strict(task.schedule) for task in tasks
    )


@lru_cache(maxsize=4096)
def is_strict(schedule: str | None) -> bool:
    """Return whether a schedule follows the strict dialect and matches at least one day."""
    try:
        parse("" if schedule is None else schedule, "posix")
    except InputError:
        return False
    return True
