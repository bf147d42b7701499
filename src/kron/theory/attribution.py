"""Which tuples an event stands for, where the literal reading tells tuples of one id apart.

A start is that of the tuples of its id in the latest registered list, an end that of the start before
it, a retry that of the failure before it. What was never registered has a tuple of its own.
"""

from collections.abc import Iterable, Iterator

from kron.theory.event import RUN_ENDS, Event, Kind, Position, Task, TaskList


def attributed(positions: Iterable[Position]) -> Iterator[Position]:
    """Yield positions in which runs and retries say whose they are."""
    registered: tuple[TaskList, ...] = ()
    started: dict[str, tuple[Task, ...]] = {}
    failed: dict[str, tuple[Task, ...]] = {}
    for position in positions:
        lists = tuple(e.tasks for e in position.events if e.kind is Kind.INIT_SUCCESS and e.tasks is not None)
        registered = lists or registered
        # Of one position the starts come first: an end that shares it may be theirs.
        for event in position.events:
            if event.kind is Kind.RUN_START and event.task is not None:
                started[event.task] = _tuples_of(event.task, registered)
        events = []
        for event in position.events:
            if event.task is not None and event.kind is not Kind.DUE and not event.subjects:
                known = failed if event.kind is Kind.RETRY_DUE else started
                found = known.get(event.task) or _tuples_of(event.task, registered)
                event = event._replace(subjects=found)
            events.append(_noted(event, failed))
        yield position._replace(events=tuple(events))


def _noted(event: Event, failed: dict[str, tuple[Task, ...]]) -> Event:
    if event.kind in RUN_ENDS and event.kind is Kind.RUN_FAILURE and event.task is not None:
        failed[event.task] = event.subjects
    return event


def _tuples_of(name: str, registered: tuple[TaskList, ...]) -> tuple[Task, ...]:
    found = tuple(dict.fromkeys(task for tasks in registered for task in tasks.by_id.get(name, ())))
    return found or (bare(name),)


def bare(name: str) -> Task:
    """Return the tuple of an id that no list has: without a schedule and without a delay."""
    return Task(name, None, 0)
