"""The monitor of calls: the calls of EA7, S4, S5 and S6, and the promises of L2 and L3."""

from collections.abc import Callable
from typing import TypeAlias

from kron.theory.event import INIT_ENDS, NO_LIST, Event, Kind, Name, TaskList
from kron.theory.failure import Failures
from kron.theory.pending import Promises
from kron.theory.position import NEVER, PositionKinds
from kron.theory.registry import Registry

# The key of a call: its name, or in the literal reading its list.
CallKey: TypeAlias = Name | TaskList


class Opened:
    """An open call; `cut` is a position at which it both started and ended."""

    __slots__ = ("cut", "start", "tasks")

    def __init__(self, start: int, tasks: TaskList) -> None:
        self.start = start
        self.tasks = tasks
        self.cut = NEVER


class Latches:
    """The open calls of one kind: Hold(start, end or Crash) for each key."""

    def __init__(self) -> None:
        self._open: dict[CallKey, Opened] = {}
        self.cut = NEVER

    def is_open(self, key: CallKey, pos: int) -> bool:
        """Return whether a call is open at a position."""
        opened = self._open.get(key)
        return opened is not None and opened.cut != pos

    def any_open(self, pos: int, *, but: CallKey = "", exact: bool = False) -> bool:
        """Return whether some call is open at a position; with `exact`, one other than `but`."""
        return any(one.cut != pos and not (exact and key == but) for key, one in self._open.items())

    def lists(self) -> list[TaskList]:
        """Return the lists of the calls that have started and not ended before."""
        return [one.tasks for one in self._open.values()]

    def start(self, key: CallKey, pos: int, tasks: TaskList) -> None:
        """Record the start of a call."""
        self._open[key] = Opened(pos, tasks)

    def end(self, key: CallKey, pos: int) -> None:
        """Record the end of a call."""
        opened = self._open.get(key)
        if opened is not None and opened.start == pos:
            opened.cut = self.cut = pos
        elif opened is not None:
            del self._open[key]

    def end_all(self, pos: int) -> None:
        """Record the end of all calls, as in a crash."""
        for key in list(self._open):
            self.end(key, pos)


class Refusable:
    """A call that may still be refused, and whether a refusal is excused by now (S5)."""

    __slots__ = ("excused", "since", "valid")

    def __init__(self, since: int, *, valid: bool, excused: bool) -> None:
        self.since = since
        self.valid = valid
        self.excused = excused


class CallMonitor:
    """Follows the calls of initialize() and stop()."""

    def __init__(
        self,
        registry: Registry,
        failures: Failures,
        l2: Promises[CallKey] | None,
        l3: Promises[CallKey] | None,
        *,
        kron: bool,
    ) -> None:
        self._registry = registry
        self._failures = failures
        self._l2 = l2
        self._l3 = l3
        self._kron = kron
        self._inits = Latches()
        self._stops = Latches()
        # Initializations by list, for the literal reading.
        self._by_list = Latches()
        self._refusable: dict[CallKey, Refusable] = {}
        # L3: stops that wait for quiescence, and the longest list since.
        self._waiting: dict[CallKey, int] = {}
        self._success = self._ended = NEVER

    def _call(self, event: Event) -> CallKey:
        """Return the key of a call for EA7: its name, or in the literal reading one for all."""
        return event.call if self._kron else None

    def _list_key(self, event: Event) -> CallKey:
        """Return the key for S5 and L2: the call, or in the literal reading the list."""
        return event.call if self._kron else event.tasks

    def look_back(self, moment: PositionKinds) -> None:
        """Judge the axioms that depend on the preceding position."""
        for kind in INIT_ENDS:
            for event in moment.of(kind):
                if not self._inits.is_open(self._call(event), moment.previous):
                    message = f"initialize() ends and was not called: {event}"
                    self._failures.add("EA7", moment, message, event=event, broken="Y Hold(IS, IE or Crash)")
        for event in moment.of(Kind.STOP_END):
            if not self._stops.is_open(self._call(event), moment.previous):
                message = f"stop() returns and was not called: {event}"
                self._failures.add("EA7", moment, message, event=event, broken="Y Hold(SS, SE or Crash)")
        latches = self._inits if self._kron else self._by_list
        busy = latches.any_open(moment.previous)
        for event in moment.of(Kind.INIT_START):
            self._expect(event, moment, busy=busy)

    def _expect(self, event: Event, moment: PositionKinds, *, busy: bool) -> None:
        """Record a call that S5 may have to judge; one that started while another was open is excused."""
        assert event.tasks is not None
        key = self._list_key(event)
        known = self._refusable.get(key)
        if known is not None and known.since == moment.i:
            known.valid = known.valid or (event.tasks.valid and not busy)
        elif known is None or known.excused or not known.valid:
            self._refusable[key] = Refusable(moment.i, valid=event.tasks.valid, excused=busy)

    def move_on(self, moment: PositionKinds) -> None:
        """Process this position, before the registry does."""
        pos = moment.pos
        for event in moment.of(Kind.INIT_START):
            tasks = event.tasks or NO_LIST
            self._inits.start(self._call(event), pos, tasks)
            if not self._kron:
                self._by_list.start(tasks, pos, tasks)
        for event in moment.of(Kind.STOP_START):
            self._stops.start(self._call(event), pos, NO_LIST)
        for kind in INIT_ENDS:
            for event in moment.of(kind):
                self._inits.end(self._call(event), pos)
                if not self._kron:
                    self._by_list.end(event.tasks, pos)
        for event in moment.of(Kind.STOP_END):
            self._stops.end(self._call(event), pos)
        if moment.crash:
            for latches in (self._inits, self._stops, self._by_list):
                latches.end_all(pos)

    def was_cut(self, pos: int) -> bool:
        """Return whether a call both started and ended at a position, so that it is open at the next."""
        return pos in (self._inits.cut, self._stops.cut, self._by_list.cut)

    def is_stopping(self, pos: int) -> bool:
        """Stopping: a stop call is open at a position."""
        return self._stops.any_open(pos)

    def judge(self, moment: PositionKinds) -> None:
        """Judge S4, S5 and S6, after the registry has moved on."""
        for event in moment.of(Kind.INIT_SUCCESS):
            if event.tasks is not None and not event.tasks.valid:
                self._failures.add("S4", moment, "an invalid list was accepted", event=event)
        if self._refusable:
            self._judge_refusals(moment)
        self._judge_successes(moment)

    def _judge_refusals(self, moment: PositionKinds) -> None:
        if self._kron:
            pos = moment.pos
            always = bool(self._registry.active(pos)) or self.is_stopping(pos)
            for key, call in self._refusable.items():
                if not call.excused and (always or self._inits.any_open(pos, but=key, exact=True)):
                    call.excused = True
        for event in moment.of(Kind.INIT_FAILURE):
            refused = self._refusable.pop(self._list_key(event), None)
            if refused is not None and refused.valid and not refused.excused:
                message = "a valid list was refused without an excuse"
                self._failures.add("S5", moment, message, event=event, since=refused.since)
        for event in moment.of(Kind.INIT_SUCCESS):
            self._refusable.pop(self._list_key(event), None)
        if moment.crash and self._kron:
            self._refusable.clear()

    def _judge_successes(self, moment: PositionKinds) -> None:
        """S6: AtMostOne(SE or Crash, IEs), literally AtMostOne(IEs, SE or Crash)."""
        success = Kind.INIT_SUCCESS in moment.by_kind
        ended = moment.crash or Kind.STOP_END in moment.by_kind
        before = (self._success, self._ended)
        if success:
            self._success = moment.pos
        if ended:
            self._ended = moment.pos
        if self._kron and success and 0 <= before[0] >= self._ended:
            message = "initialize() succeeds again without a stop or a crash since the last success"
            self._failures.add("S6", moment, message, event=moment.of(Kind.INIT_SUCCESS)[0])
        if not self._kron and ended and 0 <= before[1] >= self._success:
            message = "a second stop or crash without a successful initialize() since the last"
            event = next(iter([*moment.of(Kind.STOP_END), *moment.of(Kind.CRASH)]))
            self._failures.add("S6", moment, message, event=event)

    # --- L2 and L3 ---

    def follow_calls(self, moment: PositionKinds, is_quiet: Callable[[int], bool]) -> None:
        """Open and keep the promises of L2 and L3 at this position."""
        if self._l2 is None or self._l3 is None or not (moment.calls or self._waiting):
            return
        self._follow_inits(self._l2, moment)
        if self._kron:
            self._follow_stops(self._l3, moment, is_quiet)
        else:
            self._follow_stops_literally(self._l3, moment, is_quiet)

    def _follow_inits(self, promises: Promises[CallKey], moment: PositionKinds) -> None:
        ended = {self._list_key(event) for kind in INIT_ENDS for event in moment.of(kind)}
        if moment.crash:
            promises.keep_all(moment.t)
        for key in ended:
            promises.keep(key, moment.t)
        for event in moment.of(Kind.INIT_START):
            key = self._list_key(event)
            kept = moment.crash or key in ended
            bits = (event.tasks or NO_LIST).bits
            promises.open(key, moment, bits, "initialize() was called", kept=kept)
            promises.tighten(key, moment, bits)

    def _follow_stops(
        self, promises: Promises[CallKey], moment: PositionKinds, is_quiet: Callable[[int], bool]
    ) -> None:
        ended = {event.call for event in moment.of(Kind.STOP_END)}
        if moment.crash:
            promises.keep_all(moment.t)
        for key in ended:
            promises.keep(key, moment.t)
        for event in moment.of(Kind.STOP_START):
            self._waiting[event.call] = NO_LIST.bits
        if not self._waiting:
            return
        self._measure_lists()
        if is_quiet(moment.pos) and not self._inits.any_open(moment.pos):
            for waiting, bits in self._waiting.items():
                kept = moment.crash or waiting in ended
                promises.open(waiting, moment, bits, "stop() was called and nothing runs", kept=kept)
                promises.tighten(waiting, moment, bits)
            self._waiting.clear()

    def _measure_lists(self) -> None:
        """Keep the longest list registered or being initialized since each stop."""
        lists = [*self._registry.registered, *self._inits.lists()]
        longest = max((tasks.bits for tasks in lists), default=0)
        for key, bits in self._waiting.items():
            if longest > bits:
                self._waiting[key] = longest

    def _follow_stops_literally(
        self, promises: Promises[CallKey], moment: PositionKinds, is_quiet: Callable[[int], bool]
    ) -> None:
        known = self._registry.tuples_known(moment.pos)
        ended = Kind.STOP_END in moment.by_kind
        if moment.crash:
            promises.keep_all(moment.t)
        for tasks in known if ended else ():
            promises.keep(tasks, moment.t)
        if Kind.STOP_START in moment.by_kind and is_quiet(moment.pos):
            for tasks in known:
                kept = moment.crash or ended
                promises.open(tasks, moment, tasks.bits, "stop() was called and nothing runs", kept=kept)
                promises.tighten(tasks, moment, tasks.bits)
