"""The registered and active lists, and the tasks that come for the first time."""

from collections.abc import Callable

from kron.theory.event import Kind, TaskList
from kron.theory.position import NEVER, PositionKinds


class Registry:
    """Registered_R and Active_R at each position, in either reading.

    In the literal reading both are false at the position of the success itself, so every list comes for
    the first time again at the next position.
    """

    def __init__(self, *, kron: bool) -> None:
        self._kron = kron
        self.registered: tuple[TaskList, ...] = ()
        self._active: tuple[TaskList, ...] = ()
        self._success = NEVER
        # The ids that come for the first time here, and whether lists or activity changed here.
        self.coming: list[str] = []
        self.changed = False

    def active(self, pos: int) -> tuple[TaskList, ...]:
        """Return the lists R with Active_R, and so Registered_R, at a position."""
        return self._active if self._kron or pos != self._success else ()

    def tuples_known(self, pos: int) -> tuple[TaskList, ...]:
        """Return the lists R with Registered_R at a position."""
        return self.registered if self._kron or pos != self._success else ()

    def pass_to(self, moment: PositionKinds, is_stopping: Callable[[int], bool]) -> None:
        """Process a position."""
        if self.coming:
            self.coming = []
        self.changed = False
        if not moment.calls and (self._kron or self._success != moment.previous):
            return
        lists = moment.successes()
        self.changed = bool(lists)
        if self._kron:
            self._pass_in_kron(moment, lists, is_stopping)
            return
        if not lists and self._success >= 0 and self._success == moment.previous:
            self.coming = [name for tasks in self.registered for name in tasks.by_id]
            self.changed = True
        if lists:
            self.registered = self._active = lists
            self._success = moment.pos
        elif moment.crash or Kind.STOP_START in moment.by_kind:
            self._deactivate()

    def _pass_in_kron(
        self, moment: PositionKinds, lists: tuple[TaskList, ...], is_stopping: Callable[[int], bool]
    ) -> None:
        if lists:
            before = self.registered
            self.registered = lists
            self._active = () if is_stopping(moment.pos) else lists
            self._success = moment.pos
            self.coming = [
                name
                for name in dict.fromkeys(name for tasks in lists for name in tasks.by_id)
                if not any(name in tasks.by_id for tasks in before)
            ]
        elif moment.crash or Kind.STOP_START in moment.by_kind or Kind.STOP_END in moment.by_kind:
            self._deactivate()

    def _deactivate(self) -> None:
        self.changed = self.changed or bool(self._active)
        self._active = ()
