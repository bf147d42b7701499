"""The state that the monitors keep per task: the last position (mark) of each kind of event.

Hold and Hold+ are comparisons of marks: a `set` at or after `clear` has not been cleared since. So a
task costs the same memory for any length of trace.
"""

from math import inf

from kron.theory.event import Task
from kron.theory.position import BEFORE_ALL, NEVER


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
