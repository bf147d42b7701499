"""Derived pulses: the minutes, dues and retries that a trace does not write out.

The minute and all dues of an instant share a position, each retry has a separate one, all just before
the first written event at or after that time; a retry without delay directly follows its failure. Of
the minutes between two written events only those that change something are positions: the first, the
last, and the first due of each schedule. So a gap of years costs no more than one of hours, and every
formula has the same value as if all minutes were present.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from kron.core.cron.schedule import Schedule
from kron.core.cron.walk import Plan
from kron.core.errors import InputError
from kron.core.time.instant import FIRST_SECOND
from kron.theory.event import Event, Kind, Name, Position, Task, TaskList
from kron.theory.header import Header

EVERY_MINUTE = "* * * * *"
LISTS_CHANGE = frozenset({Kind.INIT_START, Kind.INIT_SUCCESS, Kind.INIT_FAILURE, Kind.CRASH})
_MINUTE = Event(Kind.MINUTE_START)
# The stale entries the heap of retries may hold beyond twice the live ones.
MAX_STALE = 64


def derived(
    header: Header, positions: Iterable[Position], *, kron: bool, universe: Iterable[Task] | None = None
) -> Iterator[Position]:
    """Yield the positions of a trace together with the pulses that its header declares as derived.

    Without a `universe` only the tasks seen so far have dues, which is sufficient at any position; the
    earlier due of a new task carries its instant. A universe names all tasks from the start, as in the
    theory.
    """
    if not header.derive:
        yield from positions
        return
    minutes = Minutes(header, universe) if header.civil else None
    retries = Retries(kron=kron) if Kind.RETRY_DUE in header.derive else None
    place = 0
    for position in positions:
        events = position.events
        pulses: list[tuple[int, list[Event]]] = []
        if minutes is not None:
            pulses = minutes.until(position.t)
            if minutes.concerns(position):
                events = (*minutes.meet(position), *events)
        if retries is not None and (expired := retries.until(position.t)):
            pulses = sorted(pulses + expired, key=lambda pulse: pulse[0])
        for t, pulse in pulses:
            yield Position(place, position.i, t, tuple(pulse))
            place += 1
        yield Position(place, position.i, position.t, events)
        place += 1
        if retries is not None:
            for _, pulse in retries.after(position):
                yield Position(place, position.i, position.t, tuple(pulse))
                place += 1


class Minutes:
    """The minutes of a zone, and the dues of the schedules in use."""

    def __init__(self, header: Header, universe: Iterable[Task] | None) -> None:
        assert header.per_second is not None
        self._unit = header.per_second
        self._zone = header.timezone
        self._dues = Kind.DUE in header.derive
        self._every = Schedule(EVERY_MINUTE, header.timezone, dialect="posix").plan
        self._fixed = universe is not None
        # The schedules in use, the ids that have them, and the next due of each.
        self._ids: dict[str, dict[str, None]] = {}
        self._next: list[tuple[int, str]] = []
        self._calls: dict[Name, TaskList] = {}
        self._last: int | None = None
        # The next minute: before it there are no pulses.
        self._minute_ahead = FIRST_SECOND
        for task in universe or ():
            self._add(task)

    def until(self, t: int) -> list[tuple[int, list[Event]]]:
        """Return the pulses after the last position up to time `t`, in order."""
        now = t // self._unit
        if now < self._minute_ahead:
            self._last = now
            return []
        latest = self._every.prev_at_or_before(now)
        ahead = self._every.next_after(now)
        self._minute_ahead = now if ahead is None else ahead
        first = self._every.next_after(self._last) if self._last is not None else latest
        if self._last is None:
            self._restart(now if latest is None else latest - 1)
        self._last = now
        if latest is None or first is None or first > now:
            return []
        pulses: dict[int, list[Event]] = {first: [_MINUTE], latest: [_MINUTE]}
        while self._next and self._next[0][0] <= now:
            due, schedule = heapq.heappop(self._next)
            plan = self._plan_of(schedule)
            assert plan is not None
            instants = {due, latest} if plan.prev_at_or_before(latest) == latest else {due}
            for instant in instants:
                pulses.setdefault(instant, [_MINUTE]).extend(self._dues_of(schedule))
            self._push(schedule, now)
        return [(second * self._unit, pulses[second]) for second in sorted(pulses)]

    def concerns(self, position: Position) -> bool:
        """Return whether a position changes the tasks in use."""
        return any(event.kind in LISTS_CHANGE for event in position.events)

    def meet(self, position: Position) -> list[Event]:
        """Process the lists of a position; return the last due of each new task."""
        if self._fixed or not self._dues:
            return []
        late: list[Event] = []
        registered: list[TaskList] = []
        for event in position.events:
            if event.kind is Kind.CRASH:
                self._calls.clear()
            elif event.tasks is not None:
                self._calls.pop(event.call, None)
                if event.kind is Kind.INIT_FAILURE:
                    continue
                late += [due for task in event.tasks.tasks for due in self._late(task)]
                if event.kind is Kind.INIT_START:
                    self._calls[event.call] = event.tasks
                else:
                    registered.append(event.tasks)
        if registered:
            self._keep([*registered, *self._calls.values()])
        return late

    def _late(self, task: Task) -> Iterator[Event]:
        """Add a task unless it is in use, and yield its last due if it had one."""
        if task.schedule is None or task.id in self._ids.get(task.schedule, ()):
            return
        self._add(task)
        plan = self._plan_of(task.schedule)
        assert self._last is not None
        instant = None if plan is None else plan.prev_at_or_before(self._last)
        if instant is not None:
            yield Event(Kind.DUE, task=task.id, schedule=task.schedule, instant=instant * self._unit)

    def _add(self, task: Task) -> None:
        schedule = task.schedule
        if schedule is None or self._plan_of(schedule) is None:
            return
        if schedule not in self._ids:
            self._ids[schedule] = {}
            if self._last is not None:
                self._push(schedule, self._last)
        self._ids[schedule][task.id] = None

    def _keep(self, lists: Sequence[TaskList]) -> None:
        """Drop the tasks that are in none of the lists."""
        before, self._ids = self._ids, {}
        for tasks in lists:
            for task in tasks.tasks:
                if task.schedule is not None and task.schedule in before:
                    self._ids.setdefault(task.schedule, {})[task.id] = None
        self._next = [entry for entry in self._next if entry[1] in self._ids]
        heapq.heapify(self._next)

    def _restart(self, since: int) -> None:
        for schedule in self._ids:
            self._push(schedule, since)

    def _push(self, schedule: str, after: int) -> None:
        plan = self._plan_of(schedule)
        due = None if plan is None else plan.next_after(after)
        if due is not None:
            heapq.heappush(self._next, (due, schedule))

    def _dues_of(self, schedule: str) -> list[Event]:
        return [Event(Kind.DUE, task=name, schedule=schedule) for name in self._ids[schedule]]

    def _plan_of(self, schedule: str) -> Plan | None:
        """Return the plan of a schedule, None for an invalid expression: it is never due."""
        try:
            return Schedule(schedule, self._zone, dialect="posix").plan if self._dues else None
        except InputError:
            return None


class Retries:
    """The failures whose retry delay has not passed.

    In Kron's reading a start withdraws the retry and an override moves it; in the literal one each
    failure has its pulse in any case.
    """

    def __init__(self, *, kron: bool) -> None:
        self._kron = kron
        self._registered: tuple[TaskList, ...] = ()
        self._failed: dict[str, int] = {}
        self._waiting: list[tuple[int, int, Task]] = []
        self._count = 0

    def until(self, t: int) -> list[tuple[int, list[Event]]]:
        """Return the pulses up to time `t`, each with its time."""
        pulses = []
        while self._waiting and self._waiting[0][0] <= t:
            at, _, task = heapq.heappop(self._waiting)
            if self._counts(at, task):
                pulses.append((at, [Event(Kind.RETRY_DUE, task=task.id, subjects=(task,))]))
        return pulses

    def after(self, position: Position) -> list[tuple[int, list[Event]]]:
        """Process a position; return the pulses directly after it."""
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
        """Apply the delays of a new list; one that has already passed needs no pulse."""
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
