"""The monitor of S2: no two successful runs without what allows the second."""

from collections.abc import Iterable

from kron.theory.event import Event, Kind
from kron.theory.failure import Failures
from kron.theory.last_seen import Subject
from kron.theory.position import NEVER, PositionKinds


class Successes:
    """Follows each start until its end shows whether it counts.

    A start that comes too soon is doomed: should it succeed, S2 is broken. A failure or a crash (`crash`
    is the mark of the last one before this position) lets it off.
    """

    def __init__(self, failures: Failures, *, kron: bool) -> None:
        self._failures = failures
        self._kron = kron

    def note_start(
        self, subject: Subject, schedules: set[str | None], moment: PositionKinds, *, crash: int
    ) -> None:
        """Note a start, at which tuples with these schedules are registered, and whether it may succeed."""
        if 0 <= subject.undecided <= crash:
            _let_off(subject)
        here = schedules if self._kron else {subject.task.schedule}
        subject.schedules |= here
        if subject.undecided >= 0:
            subject.doomed |= not self._separated(subject, subject.undecided, here)
        elif subject.success >= 0:
            subject.doomed = not self._separated(subject, subject.success, subject.schedules)
        subject.undecided = moment.pos

    def note_end(self, subject: Subject, event: Event, moment: PositionKinds, *, crash: int) -> None:
        """Note an end, and judge what has succeeded; a success weighs more than a failure beside it."""
        if event.kind is Kind.RUN_SUCCESS:
            self._note_success(subject, event, moment, crash)
        elif not any(event.task == other.task for other in moment.of(Kind.RUN_SUCCESS)):
            _let_off(subject)

    def _note_success(self, subject: Subject, event: Event, moment: PositionKinds, crash: int) -> None:
        start, doomed = subject.undecided, subject.doomed
        _let_off(subject)
        if start < 0 or start <= crash:
            return
        if doomed:
            message = f'"{event.task}" succeeds twice without a due between the two starts'
            self._failures.add("S2", moment, message, event=event, since=subject.start_i)
        subject.success, subject.success_t = start, subject.start_t
        subject.schedules = set()

    def _separated(self, subject: Subject, since: int, schedules: Iterable[str | None]) -> bool:
        """Say whether a first coming or a due of one of the tuples lies after a mark (reading 12)."""
        ident = subject.ident
        if self._kron and ident.first_coming > since:
            return True
        return any(ident.due(schedule) > since for schedule in schedules)


def _let_off(subject: Subject) -> None:
    subject.undecided, subject.doomed = NEVER, False
