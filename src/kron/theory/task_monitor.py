"""The monitor of runs: EA6, the runs of EA7, S1, S2, S3, and the promises of L1.

The state per task is the last position (mark) of each kind of event. Hold and Hold+ are comparisons of
marks: a `set` at or after `clear` has not been cleared since. So a task costs the same memory for any
length of trace.
"""

from collections.abc import Iterable, Iterator
from math import inf
from typing import TypeAlias

from kron.theory.event import Event, Kind, Task, TaskList
from kron.theory.failure import Failures
from kron.theory.pending import Promises
from kron.theory.position import BEFORE_ALL, NEVER, PositionKinds
from kron.theory.registry import Registry

# The key of an L1 promise: a tuple in a list.
Owed: TypeAlias = tuple[Task, TaskList]


class Ident:
    """An identifier: its dues, by schedule where they name one, and its last first coming."""

    __slots__ = ("any_due", "dues", "first_coming", "first_coming_t", "name", "subjects")

    def __init__(self, name: str) -> None:
        self.name = name
        self.any_due = NEVER
        self.dues: dict[str, int] = {}
        self.first_coming = NEVER
        self.first_coming_t = 0
        self.subjects: list[Subject] = []

    def due(self, schedule: str | None) -> int:
        """Return the mark of the last due of a tuple with this schedule."""
        if schedule is None or not self.dues:
            return self.any_due
        return max(self.any_due, self.dues.get(schedule, NEVER))

    def place_of(self, instant: int, minute: tuple[int, int]) -> int:
        """Return the mark for an instant in the past: after all events before it."""
        pos, t = minute
        place = pos if pos >= 0 and t <= instant else BEFORE_ALL
        happened = [(self.first_coming, self.first_coming_t)]
        for subject in self.subjects:
            happened += [(subject.start, subject.start_t), (subject.success, subject.success_t)]
        return max([place, *(pos + 1 for pos, t in happened if pos >= 0 and t < instant)])


class Subject:
    """The unit that starts and ends: an identifier, or in the literal reading a tuple."""

    __slots__ = (
        "boot", "doomed", "end", "failure", "failure_t", "ident", "orphaned", "pulse", "retry",
        "schedules", "start", "start_i", "start_t", "success", "success_t", "task", "undecided",
    )  # fmt: skip

    def __init__(self, ident: Ident, task: Task) -> None:
        self.ident = ident
        self.task = task
        self.start = self.end = self.failure = self.orphaned = self.retry = self.boot = NEVER
        self.start_i = self.start_t = self.failure_t = 0
        # The longest delay that a written pulse since the failure proves.
        self.pulse: float = -inf
        # S2: the last successful start, the schedules registered at later starts, the start that has not
        # ended, and whether its success would violate S2.
        self.success, self.success_t = NEVER, 0
        self.schedules: set[str | None] = set()
        self.undecided = NEVER
        self.doomed = False

    @property
    def cleared(self) -> int:
        """Return the mark of RS_x or FirstComing_x."""
        return max(self.start, self.ident.first_coming)

    def runs(self, pos: int, crash: int) -> bool:
        """Running_x at a position: Hold(RS_x, RE_x or Crash)."""
        end = max(self.end, crash)
        return self.start >= 0 and self.start >= end and end != pos

    def is_due(self, schedule: str | None) -> bool:
        """Hold+(Due_x, RS_x or FirstComing_x)."""
        due = self.ident.due(schedule)
        return due >= 0 and due >= self.cleared

    def is_orphan(self, pos: int) -> bool:
        """OrphanedPending_x at a position: Hold(Orphaned_x, RS_x or FirstComing_x)."""
        cleared = self.cleared
        return self.orphaned >= 0 and self.orphaned >= cleared and cleared != pos

    def has_expired(self, delay: int, t: int, *, derived: bool) -> bool:
        """RetryPending_x of Kron's reading, while x does not run."""
        if self.failure < 0 or self.failure < self.cleared:
            return False
        return delay <= self.pulse or (derived and t >= self.failure_t + delay)


class Successes:
    """Follows each start until its end decides whether it counts for S2.

    A start that comes too soon is doomed: if it succeeds, S2 is violated. A failure or a crash (`crash`
    is the mark of the last one before this position) resets it.
    """

    def __init__(self, failures: Failures, *, kron: bool) -> None:
        self._failures = failures
        self._kron = kron

    def note_start(
        self, subject: Subject, schedules: set[str | None], moment: PositionKinds, *, crash: int
    ) -> None:
        """Process a start at which tuples with these schedules are registered."""
        if 0 <= subject.undecided <= crash:
            _reset(subject)
        here = schedules if self._kron else {subject.task.schedule}
        subject.schedules |= here
        if subject.undecided >= 0:
            subject.doomed |= not self._separated(subject, subject.undecided, here)
        elif subject.success >= 0:
            subject.doomed = not self._separated(subject, subject.success, subject.schedules)
        subject.undecided = moment.pos

    def note_end(self, subject: Subject, event: Event, moment: PositionKinds, *, crash: int) -> None:
        """Process an end, and judge a success; a success overrides a failure at the same position."""
        if event.kind is Kind.RUN_SUCCESS:
            self._note_success(subject, event, moment, crash)
        elif not any(event.task == other.task for other in moment.of(Kind.RUN_SUCCESS)):
            _reset(subject)

    def _note_success(self, subject: Subject, event: Event, moment: PositionKinds, crash: int) -> None:
        start, doomed = subject.undecided, subject.doomed
        _reset(subject)
        if start < 0 or start <= crash:
            return
        if doomed:
            message = f'"{event.task}" succeeds twice without a due between the two starts'
            self._failures.add("S2", moment, message, event=event, since=subject.start_i)
        subject.success, subject.success_t = start, subject.start_t
        subject.schedules = set()

    def _separated(self, subject: Subject, since: int, schedules: Iterable[str | None]) -> bool:
        """Return whether a first coming or a due of one of the tuples lies after a mark (reading 12)."""
        ident = subject.ident
        if self._kron and ident.first_coming > since:
            return True
        return any(ident.due(schedule) > since for schedule in schedules)


def _reset(subject: Subject) -> None:
    subject.undecided, subject.doomed = NEVER, False


class TaskMonitor:
    """Follows every task through its marks; a position costs only the tasks that it names."""

    def __init__(
        self,
        registry: Registry,
        failures: Failures,
        promises: Promises[Owed] | None,
        *,
        kron: bool,
        derived: bool,
    ) -> None:
        self._registry = registry
        self._failures = failures
        self._promises = promises
        self._kron = kron
        self._derived = derived
        self._successes = Successes(failures, kron=kron)
        self._idents: dict[str, Ident] = {}
        self._subjects: dict[str | Task, Subject] = {}
        self._running: dict[str | Task, Subject] = {}
        # In the literal reading a crash does not end the runs it interrupts, for orphans.
        self._unended: dict[str | Task, Subject] = {}
        self._boots: dict[str, list[tuple[TaskList, Task]]] = {}
        self._boots_idle = False
        self._crash = self._crash_before = NEVER
        self._minute = (NEVER, 0)
        self._touched: dict[str, None] = {}
        self._masked: list[str] = []
        self._time_bits = 0

    # --- queries ---

    @property
    def states(self) -> int:
        """Return the number of states kept; it is bounded by the number of tasks."""
        return len(self._subjects) + len(self._idents)

    @property
    def promised(self) -> int:
        """Return the number of starts that are promised and have not happened."""
        return 0 if self._promises is None else len(self._promises)

    def is_quiet(self, pos: int) -> bool:
        """Quiescent at a position."""
        return not any(subject.runs(pos, self._crash) for subject in self._running.values())

    def owed(self, name: str, task: Task | None, pos: int, t: int) -> bool:
        """Return whether some tuple of an id, or the given one, is an obligation at a position."""
        return any(
            (task is None or x == task) and self._pending(tasks, x, pos, t)
            for tasks, x in self._tuples_of(name, self._registry.active(pos))
        )

    def _pending(self, tasks: TaskList, x: Task, pos: int, t: int) -> bool:
        """Pending_x at a position, for x in R."""
        subject = self._subject(x.id, x)
        if subject.is_orphan(pos) or self._boots_now(tasks, x, subject, pos):
            return True
        if subject.runs(pos, self._crash):
            return False
        return subject.is_due(x.schedule) or self._retries(subject, x, t)

    def _retries(self, subject: Subject, x: Task, t: int) -> bool:
        if self._kron:
            return subject.has_expired(x.retry_delay, t, derived=self._derived)
        return subject.retry >= 0 and subject.retry >= subject.cleared

    def _boots_now(self, tasks: TaskList, x: Task, subject: Subject, pos: int) -> bool:
        if not self._kron:
            return subject.boot == pos
        return any(x == one and _same(tasks, other) for other, one in self._boots.get(x.id, ()))

    # --- one position ---

    def look_back(self, moment: PositionKinds) -> None:
        """Judge the axioms that depend on the preceding position, before this one is processed."""
        for event in moment.of(Kind.RUN_START):
            for subject in self._of_event(event):
                task = None if self._kron else subject.task
                if not self.owed(subject.ident.name, task, moment.previous, moment.previous_t):
                    why, broken = self._why_not_owed(subject, moment)
                    self._failures.add("S1", moment, why, event=event, broken=broken)
        for event in (*moment.of(Kind.RUN_SUCCESS), *moment.of(Kind.RUN_FAILURE)):
            if not all(subject.runs(moment.previous, self._crash) for subject in self._of_event(event)):
                message = f'"{event.task}" ends and was not running'
                self._failures.add("EA7", moment, message, event=event, broken="Y Running_x")
        if moment.crash and self._kron:
            for subject in self._running.values():
                if subject.runs(moment.previous, self._crash):
                    subject.orphaned = moment.pos

    def move_on(self, moment: PositionKinds) -> None:
        """Process this position; the registry must have done so before."""
        self._touched = dict.fromkeys(self._masked)
        self._masked = []
        if moment.minute or Kind.DUE in moment.by_kind:
            self._take_pulses(moment)
        self._crash_before = self._crash
        if moment.runs or moment.crash:
            self._take_runs(moment)
        for name in self._registry.coming:
            ident = self._ident(name)
            ident.first_coming, ident.first_coming_t = moment.pos, moment.t
        if Kind.RETRY_DUE in moment.by_kind:
            self._take_retries(moment)
        if self._boots or self._registry.coming:
            self._take_boots(moment)
        if moment.runs or moment.calls:
            self._judge_runs(moment)

    def _take_pulses(self, moment: PositionKinds) -> None:
        if moment.minute:
            self._minute = (moment.pos, moment.t)
        for event in moment.of(Kind.DUE):
            assert event.task is not None
            ident = self._ident(event.task)
            pos = moment.pos if event.instant is None else ident.place_of(event.instant, self._minute)
            if event.schedule is None:
                ident.any_due = pos
            else:
                ident.dues[event.schedule] = max(pos, ident.dues.get(event.schedule, NEVER))
            self._touched[event.task] = None

    def _take_runs(self, moment: PositionKinds) -> None:
        pos = moment.pos
        for event in moment.of(Kind.RUN_START):
            for subject in self._of_event(event):
                self._start(subject, moment)
        for event in (*moment.of(Kind.RUN_SUCCESS), *moment.of(Kind.RUN_FAILURE)):
            failed_at = moment.t if event.kind is Kind.RUN_FAILURE else None
            for subject in self._of_event(event):
                self._end(subject, pos, failed_at=failed_at)
        if moment.crash:
            self._crash = pos
            self._running = {key: one for key, one in self._running.items() if one.start == pos}
            self._masked += [one.ident.name for one in self._running.values()] + self._registry.coming
            for subject in self._unended.values():
                if subject.end != pos:
                    subject.orphaned = pos

    def _start(self, subject: Subject, moment: PositionKinds) -> None:
        key = self._key(subject)
        subject.start, subject.start_i, subject.start_t = moment.pos, moment.i, moment.t
        self._running[key] = subject
        if not self._kron:
            self._unended[key] = subject
        self._touched[subject.ident.name] = None

    def _end(self, subject: Subject, pos: int, *, failed_at: int | None) -> None:
        subject.end = pos
        if failed_at is not None:
            subject.failure, subject.failure_t, subject.pulse = pos, failed_at, -inf
        if subject.start == pos:
            self._masked.append(subject.ident.name)
        else:
            self._running.pop(self._key(subject), None)
            self._unended.pop(self._key(subject), None)
        self._touched[subject.ident.name] = None

    def _take_retries(self, moment: PositionKinds) -> None:
        for event in moment.of(Kind.RETRY_DUE):
            for subject in self._of_event(event):
                subject.retry = moment.pos
                if not event.subjects and subject.failure >= 0:
                    # A written pulse proves the delay that is registered at its position.
                    tuples = self._tuples_of(subject.ident.name, self._registry.tuples_known(moment.pos))
                    delay = max((x.retry_delay for _, x in tuples), default=inf)
                    subject.pulse = max(subject.pulse, delay)
                self._touched[subject.ident.name] = None

    def _take_boots(self, moment: PositionKinds) -> None:
        active = self._registry.active(moment.pos)
        if self._boots:
            for event in moment.of(Kind.RUN_START):
                self._boots.pop(event.task or "", None)
            for name in self._registry.coming:
                self._boots.pop(name, None)
            if self._registry.changed or self._boots_idle:
                kept = {
                    name: [pair for pair in pairs if any(_same(pair[0], tasks) for tasks in active)]
                    for name, pairs in self._boots.items()
                }
                self._boots = {name: pairs for name, pairs in kept.items() if pairs}
                self._boots_idle = False
        for name in self._registry.coming:
            self._boot(name, moment)

    def _boot(self, name: str, moment: PositionKinds) -> None:
        """BootDuePending_x starts where x first comes in a minute in which it is due."""
        minute = self._minute[0]
        for tasks, x in self._tuples_of(name, self._registry.tuples_known(moment.pos)):
            subject = self._subject(name, x)
            due = subject.ident.due(x.schedule)
            if due < 0 or due < minute or subject.runs(moment.pos, self._crash):
                continue
            subject.boot = moment.pos
            if self._kron:
                self._boots.setdefault(name, []).append((tasks, x))
                self._boots_idle = self._boots_idle or not self._registry.active(moment.pos)

    def _judge_runs(self, moment: PositionKinds) -> None:
        for event in moment.of(Kind.RUN_START):
            for subject in self._of_event(event):
                known = self._tuples_of(subject.ident.name, self._registry.tuples_known(moment.pos))
                schedules = {x.schedule for _, x in known} or {None}
                self._successes.note_start(subject, schedules, moment, crash=self._crash_before)
        for event in (*moment.of(Kind.RUN_SUCCESS), *moment.of(Kind.RUN_FAILURE)):
            for subject in self._of_event(event):
                self._judge_end(subject, event, moment)
        if Kind.STOP_END in moment.by_kind and "S3" not in self._failures and not self.is_quiet(moment.pos):
            names = sorted(
                one.ident.name for one in self._running.values() if one.runs(moment.pos, self._crash)
            )
            message = f"stop() returns while {_listed(names)} runs"
            self._failures.add("S3", moment, message, event=moment.of(Kind.STOP_END)[0])

    def _judge_end(self, subject: Subject, event: Event, moment: PositionKinds) -> None:
        if self._crash >= 0 and subject.start < self._crash:
            message = f'"{event.task}" ends after a crash without a new start'
            self._failures.add("EA6", moment, message, event=event)
        self._successes.note_end(subject, event, moment, crash=self._crash_before)

    # --- L1 ---

    def follow_obligations(self, moment: PositionKinds) -> None:
        """Open and keep the promises of L1 at this position."""
        if self._promises is None:
            return
        if self._touched or self._registry.changed:
            self._follow(self._promises, moment)
        if moment.t <= 0:
            self._tighten(self._promises, moment)

    def _follow(self, promises: Promises[Owed], moment: PositionKinds) -> None:
        active = self._registry.active(moment.pos)
        for event in moment.of(Kind.RUN_START):
            for subject in self._of_event(event):
                self._keep_started(subject, moment.t)
        if self._registry.changed:
            for key in promises.pending():
                if not any(_same(tasks, key[1]) for tasks in active):
                    promises.keep(key, moment.t)
            self._touched |= dict.fromkeys(name for tasks in active for name in tasks.by_id)
        for name in self._touched:
            for tasks, x in self._tuples_of(name, active):
                if self._pending(tasks, x, moment.pos, moment.t):
                    kept = self._subject(name, x).start == moment.pos
                    promises.open((x, tasks), moment, tasks.bits, f'"{name}" is due', kept=kept)

    def _keep_started(self, subject: Subject, t: int) -> None:
        assert self._promises is not None
        for tasks, x in self._tuples_of(subject.ident.name, self._registry.registered):
            if self._kron or x == subject.task:
                self._promises.keep((x, tasks), t)

    def _tighten(self, promises: Promises[Owed], moment: PositionKinds) -> None:
        """Before time zero a later time has a shorter code, so a promise made there is stricter."""
        bits = abs(moment.t).bit_length()
        if bits < self._time_bits:
            for key in promises.pending():
                promises.tighten(key, moment, key[1].bits)
        self._time_bits = bits

    # --- lookups ---

    def _tuples_of(self, name: str, lists: tuple[TaskList, ...]) -> Iterator[tuple[TaskList, Task]]:
        for tasks in lists:
            for x in tasks.by_id.get(name, ()):
                yield tasks, x

    def _of_event(self, event: Event) -> list[Subject]:
        assert event.task is not None
        if self._kron:
            return [self._subject(event.task, None)]
        return [self._subject(event.task, x) for x in event.subjects]

    def _key(self, subject: Subject) -> str | Task:
        return subject.ident.name if self._kron else subject.task

    def _ident(self, name: str) -> Ident:
        ident = self._idents.get(name)
        if ident is None:
            ident = self._idents[name] = Ident(name)
        return ident

    def _subject(self, name: str, x: Task | None) -> Subject:
        key: str | Task = name if self._kron or x is None else x
        subject = self._subjects.get(key)
        if subject is None:
            ident = self._ident(name)
            subject = self._subjects[key] = Subject(ident, x or Task(name, None, 0))
            ident.subjects.append(subject)
        return subject

    def _why_not_owed(self, subject: Subject, moment: PositionKinds) -> tuple[str, str]:
        """Return why a start is not allowed, and the violated part of the formula."""
        name, pos = subject.ident.name, moment.previous
        start = f'"{name}" starts'
        if not any(self._tuples_of(name, self._registry.tuples_known(pos))):
            return f"{start} and is not registered", "Registered_{R,x}"
        if not any(self._tuples_of(name, self._registry.active(pos))):
            return f"{start} while the scheduler is not active", "Active_R"
        if subject.runs(pos, self._crash):
            return f"{start} while it is running", "not Running_x"
        return f"{start} and nothing is pending: no due, retry or orphan since its last start", "Pending_x"


def _same(one: TaskList, other: TaskList) -> bool:
    return one is other or one == other


def _listed(names: list[str]) -> str:
    shown = [f'"{name}"' for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
