"""When the delay after a failure has passed: the pulses of retries that a trace does not write out."""

import heapq

from kron.theory.event import Event, Kind, Position, Task, TaskList

CONCERNED = frozenset({Kind.INIT_SUCCESS, Kind.RUN_START, Kind.RUN_FAILURE})
# So many stale entries are kept before they are thrown away.
MAX_STALE = 64


class Retries:
    """The failures whose delay is running.

    In Kron's reading a start withdraws the retry and an override moves it; in the literal one each
    failure has its pulse whatever comes after.
    """

    def __init__(self, *, kron: bool) -> None:
        self._kron = kron
        self._registered: tuple[TaskList, ...] = ()
        self._failed: dict[str, int] = {}
        self._waiting: list[tuple[int, int, Task]] = []
        self._count = 0

    def until(self, t: int) -> list[tuple[int, list[Event]]]:
        """Return the pulses that come up to time `t`, each with its time."""
        found = []
        while self._waiting and self._waiting[0][0] <= t:
            at, _, task = heapq.heappop(self._waiting)
            if self._counts(at, task):
                found.append((at, [Event(Kind.RETRY_DUE, task=task.id, subjects=(task,))]))
        return found

    def after(self, position: Position) -> list[tuple[int, list[Event]]]:
        """Take note of a position; return the pulses that follow it at once."""
        lists = tuple(
            event.tasks for event in position.events if event.kind is Kind.INIT_SUCCESS and event.tasks
        )
        if lists:
            self._registered = lists
        # A start withdraws the failures before it, not those that share its position.
        for kind in (Kind.RUN_START, Kind.RUN_FAILURE):
            for event in position.events:
                if event.kind is kind and event.task is not None:
                    self._note_run(kind, event.task, position.t)
        if lists and self._kron:
            self._move(position.t)
        return self.until(position.t)

    def _note_run(self, kind: Kind, name: str, t: int) -> None:
        if kind is Kind.RUN_START:
            self._failed.pop(name, None)
        elif kind is Kind.RUN_FAILURE:
            self._failed[name] = t
            for task in self._tuples_of(name):
                self._push(t, task)

    def _move(self, t: int) -> None:
        """Follow the delays of a new list; what has passed already needs no pulse."""
        for name, failed_at in self._failed.items():
            for task in self._tuples_of(name):
                if failed_at + task.retry_delay > t:
                    self._push(failed_at, task)

    def _push(self, failed_at: int, task: Task) -> None:
        if task.retry_delay < 0:
            return
        self._count += 1
        heapq.heappush(self._waiting, (failed_at + task.retry_delay, self._count, task))
        if self._kron and len(self._waiting) > 2 * len(self._failed) + MAX_STALE:
            self._waiting = [entry for entry in self._waiting if self._counts(entry[0], entry[2])]
            heapq.heapify(self._waiting)

    def _counts(self, at: int, task: Task) -> bool:
        return not self._kron or self._failed.get(task.id) == at - task.retry_delay

    def _tuples_of(self, name: str) -> list[Task]:
        return [task for tasks in self._registered for task in tasks.by_id.get(name, ())]
