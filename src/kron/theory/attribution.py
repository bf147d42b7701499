"""The tuples that an event stands for, in the literal reading, which distinguishes tuples of one id.

A start belongs to the tuples of its id in the latest registered list, an end to the start before it,
a retry to the failure before it. An id that was never registered has a bare tuple.
"""

from collections.abc import Iterable, Iterator

from kron.theory.event import RUN_ENDS, Event, Kind, Position, Task, TaskList


def attributed(positions: Iterable[Position]) -> Iterator[Position]:
    """Yield the positions with the tuples of their runs and retries."""
    registered: tuple[TaskList, ...] = ()
    started: dict[str, tuple[Task, ...]] = {}
    failed: dict[str, tuple[Task, ...]] = {}
    for position in positions:
        lists = tuple(e.tasks for e in position.events if e.kind is Kind.INIT_SUCCESS and e.tasks is not None)
        registered = lists or registered
        # Starts come first within a position: an end at the same position may belong to one of them.
        for event in position.events:
            if event.kind is Kind.RUN_START and event.task is not None:
                started[event.task] = _tuples_of(event.task, registered)
        events = []
        for event in position.events:
            if event.task is not None and event.kind is not Kind.DUE and not event.subjects:
                known = failed if event.kind is Kind.RETRY_DUE else started
                subjects = known.get(event.task) or _tuples_of(event.task, registered)
                event = event._replace(subjects=subjects)
            events.append(_noted(event, failed))
        yield position._replace(events=tuple(events))


def _noted(event: Event, failed: dict[str, tuple[Task, ...]]) -> Event:
    if event.kind in RUN_ENDS and event.kind is Kind.RUN_FAILURE and event.task is not None:
        failed[event.task] = event.subjects
    return event


def _tuples_of(name: str, registered: tuple[TaskList, ...]) -> tuple[Task, ...]:
    tuples = tuple(dict.fromkeys(task for tasks in registered for task in tasks.by_id.get(name, ())))
    return tuples or (bare(name),)


def bare(name: str) -> Task:
    """Return the tuple of an id outside all lists: without a schedule and without a delay."""
    return Task(name, None, 0)
