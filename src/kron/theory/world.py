"""A whole trace as a structure: the events and macros of the theory as formulas, by their definitions.

Slow and literal: each macro is written as in the theory, in the requested reading. The monitors, which
read a trace once, are tested against it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property

from kron.theory.attribution import bare
from kron.theory.event import (
    INIT_ENDS,
    RUN_ENDS,
    Event,
    Kind,
    Name,
    Position,
    Task,
    TaskList,
)
from kron.theory.header import Header
from kron.theory.ltl import Formula, both, either, hold, hold_plus, negate, previous, since


class TraceWorld:
    """The positions of a trace, pulses included, and the formulas that hold at each."""

    def __init__(self, header: Header, positions: Sequence[Position], *, kron: bool) -> None:
        self.header = header
        self.positions = positions
        self.kron = kron
        self.times = [position.t for position in positions]
        # Formulas used more than once are cached for the life of the world.
        for name in (
            "starts",
            "ends",
            "running",
            "registered",
            "active",
            "first_coming",
            "due",
            "calls_open",
        ):
            setattr(self, name, cache(getattr(self, name)))

    # --- the universe ---

    @cached_property
    def lists(self) -> list[TaskList]:
        """Return every list that occurs."""
        lists = [event.tasks for event in self.events() if event.tasks is not None]
        return [tasks for number, tasks in enumerate(lists) if tasks not in lists[:number]]

    @cached_property
    def tasks(self) -> list[Task]:
        """Return every tuple that occurs, and one for each id outside all lists."""
        tasks = dict.fromkeys(task for one in self.lists for task in one.tasks)
        tasks |= dict.fromkeys(task for event in self.events() for task in event.subjects)
        tasks |= dict.fromkeys(bare(event.task) for event in self.events() if event.task is not None)
        return list(tasks)

    @cached_property
    def subjects(self) -> list[Task]:
        """Return one tuple for each unit that starts and ends: an id, or in the literal reading a tuple."""
        if not self.kron:
            return self.tasks
        return [bare(name) for name in dict.fromkeys(task.id for task in self.tasks)]

    def calls(self, kinds: Iterable[Kind]) -> list[Name]:
        """Return the names of the calls that have events of these kinds."""
        return list(dict.fromkeys(event.call for event in self.events() if event.kind in kinds))

    def events(self) -> Iterable[Event]:
        """Yield all events."""
        return (event for position in self.positions for event in position.events)

    # --- events as formulas ---

    def where(self, matches: Callable[[Event], bool]) -> Formula:
        """Return the formula that holds where an event matches."""
        return [any(map(matches, position.events)) for position in self.positions]

    def some(self, *kinds: Kind) -> Formula:
        """Return where an event of one of these kinds occurs."""
        return self.where(lambda event: event.kind in kinds)

    def of_call(self, call: Name, *kinds: Kind) -> Formula:
        """Return where a call has an event of one of these kinds."""
        return self.where(lambda event: event.kind in kinds and event.call == call)

    def of_list(self, tasks: TaskList, *kinds: Kind) -> Formula:
        """Return where a list has an event of one of these kinds."""
        return self.where(lambda event: event.kind in kinds and event.tasks == tasks)

    def of_task(self, x: Task, *kinds: Kind) -> Formula:
        """Return where x has an event of one of these kinds: by id, or in the literal reading by tuple."""
        if self.kron:
            return self.where(lambda event: event.kind in kinds and event.task == x.id)
        return self.where(lambda event: event.kind in kinds and x in event.subjects)

    def starts(self, x: Task) -> Formula:
        """RS_x."""
        return self.of_task(x, Kind.RUN_START)

    def ends(self, x: Task) -> Formula:
        """RE_x."""
        return self.of_task(x, *RUN_ENDS)

    @cached_property
    def crash(self) -> Formula:
        """Crash."""
        return self.some(Kind.CRASH)

    def due(self, x: Task) -> Formula:
        """Due_x: a due of x's id that names no schedule, or the schedule of x."""
        return self.where(
            lambda event: (
                event.kind is Kind.DUE and event.task == x.id and event.schedule in (None, x.schedule)
            )
        )

    @cached_property
    def minute_start(self) -> Formula:
        """MinuteStart: some task is due; one with `* * * * *` always exists."""
        return self.some(Kind.MINUTE_START, Kind.DUE)

    # --- registration and calls ---

    def registered(self, tasks: TaskList) -> Formula:
        """Registered_R."""
        keep = hold_plus if self.kron else hold
        return keep(self.of_list(tasks, Kind.INIT_SUCCESS), self.some(Kind.INIT_SUCCESS))

    def first_coming(self, name: str) -> Formula:
        """FirstComing_x, by identifier."""
        never = [False] * len(self.positions)
        lists = [self.registered(tasks) for tasks in self.lists if name in tasks.by_id]
        known = either(never, *lists)
        return both(known, negate(previous(known)))

    def calls_open(self, start: Kind, *ends: Kind) -> dict[Name, Formula]:
        """Return for each call where it is open: Hold(start, end or Crash)."""
        return {
            call: hold(self.of_call(call, start), either(self.of_call(call, *ends), self.crash))
            for call in self.calls([start])
        }

    def any_open(self, start: Kind, *ends: Kind, but: Sequence[Name] = ()) -> Formula:
        """Return where some call is open."""
        never = [False] * len(self.positions)
        opened = self.calls_open(start, *ends)
        return either(never, *(formula for call, formula in opened.items() if call not in but))

    @cached_property
    def stopping(self) -> Formula:
        """Stopping: a stop call is open."""
        return self.any_open(Kind.STOP_START, Kind.STOP_END)

    def stop_of(self, tasks: TaskList, kind: Kind) -> Formula:
        """SS_R or SE_R: a stop's start or end where R is registered."""
        return both(self.some(kind), self.registered(tasks))

    def initializing(self, tasks: TaskList) -> Formula:
        """Initializing_R in the literal reading: by list, not by call."""
        return hold(self.of_list(tasks, Kind.INIT_START), either(self.of_list(tasks, *INIT_ENDS), self.crash))

    def active(self, tasks: TaskList) -> Formula:
        """Active_R."""
        success, any_success = self.of_list(tasks, Kind.INIT_SUCCESS), self.some(Kind.INIT_SUCCESS)
        if self.kron:
            clear = either(self.some(Kind.STOP_START, Kind.STOP_END), self.crash, any_success)
            return hold_plus(both(success, negate(self.stopping)), clear)
        return hold(success, either(self.stop_of(tasks, Kind.STOP_START), self.crash, any_success))

    # --- runs ---

    def running(self, x: Task) -> Formula:
        """Running_x."""
        return hold(self.starts(x), either(self.ends(x), self.crash))

    @cached_property
    def quiescent(self) -> Formula:
        """Quiescent: no callback runs."""
        never = [False] * len(self.positions)
        return negate(either(never, *map(self.running, self.subjects)))

    def cleared(self, x: Task) -> Formula:
        """RS_x or FirstComing_x."""
        return either(self.starts(x), self.first_coming(x.id))

    # --- obligations ---

    def due_pending(self, x: Task) -> Formula:
        """DuePending_x."""
        return both(hold_plus(self.due(x), self.cleared(x)), negate(self.running(x)))

    def retry_pending(self, x: Task) -> Formula:
        """RetryPending_x."""
        if self.kron:
            return both(self.expired(x), negate(self.running(x)))
        pulse = self.of_task(x, Kind.RETRY_DUE)
        return both(hold_plus(pulse, self.cleared(x)), negate(self.running(x)))

    def expired(self, x: Task) -> Formula:
        """Return where the last failure is not withdrawn and the delay of x has passed since."""
        failures, cleared = self.of_task(x, Kind.RUN_FAILURE), self.cleared(x)
        values = []
        for i in range(len(self.positions)):
            j = max((j for j in range(i + 1) if failures[j]), default=None)
            standing = j is not None and not any(cleared[j + 1 : i + 1])
            values.append(j is not None and standing and self._passed(x, j, i))
        return values

    def _passed(self, x: Task, j: int, i: int) -> bool:
        if Kind.RETRY_DUE in self.header.derive and self.times[i] >= self.times[j] + x.retry_delay:
            return True
        pulses = self.of_task(x, Kind.RETRY_DUE)
        return any(pulses[k] and self._proves(x, k) for k in range(j, i + 1))

    def _proves(self, x: Task, k: int) -> bool:
        """Return whether a written pulse proves a delay at least as long as that of x."""
        if any(event.task == x.id and event.subjects for event in self.positions[k].events):
            return False  # derived pulses are judged by their times alone
        delays = [
            task.retry_delay
            for tasks in self.lists
            if self.registered(tasks)[k]
            for task in tasks.by_id.get(x.id, ())
        ]
        return not delays or x.retry_delay <= max(delays)

    def orphaned(self, x: Task) -> Formula:
        """Orphaned_x."""
        if self.kron:
            return both(self.crash, previous(self.running(x)))
        return both(self.crash, hold(self.starts(x), self.ends(x)))

    def orphaned_pending(self, x: Task) -> Formula:
        """OrphanedPending_x."""
        return hold(self.orphaned(x), self.cleared(x))

    def boot_due_pending(self, tasks: TaskList, x: Task) -> Formula:
        """BootDuePending_x, for x in R."""
        mountain = since(negate(self.minute_start), self.due(x))
        boot = both(self.first_coming(x.id), mountain, negate(self.running(x)))
        if not self.kron:
            return boot
        here = both(boot, self.registered(tasks))
        return hold_plus(here, either(self.cleared(x), negate(self.active(tasks))))

    def obligation(self, tasks: TaskList, x: Task) -> Formula:
        """Obligation_{R,x}, for x in R."""
        pending = either(
            self.due_pending(x),
            self.retry_pending(x),
            self.orphaned_pending(x),
            self.boot_due_pending(tasks, x),
        )
        return both(pending, self.registered(tasks), self.active(tasks))
