"""All monitors together: one pass over the positions, each processed once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kron.theory.bound import Witnesses
from kron.theory.call_monitor import CallKey, CallMonitor
from kron.theory.event import Event, Kind, Position
from kron.theory.failure import Failures
from kron.theory.header import Header
from kron.theory.pending import K, Promises, Spending
from kron.theory.position import PositionKinds
from kron.theory.registry import Registry
from kron.theory.task_monitor import Owed, TaskMonitor
from kron.theory.verdict import (
    AXIOMS,
    FORMULAS,
    LITERAL_FORMULAS,
    LIVENESS_AXIOMS,
    NEED_COMPUTE,
    NEVER_DECIDED,
    Finding,
    Status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The options of a check."""

    kron: bool = True
    witnesses: Witnesses | None = None
    within: int | None = None
    happy: frozenset[str] = field(default_factory=frozenset)
    # Called for every promise with its axiom, the compute spent on it, and the length of its arguments.
    observe: Callable[[str, int, int], None] | None = None


class Monitor:
    """Judges every axiom, one position at a time; memory grows with the tasks, not with the trace."""

    def __init__(self, header: Header, options: CheckOptions) -> None:
        self._header = header
        self._options = options
        kron = options.kron
        self.failures = Failures(kron=kron)
        self._judges_promises = header.computed or options.within is not None
        self._spending = Spending(wall=options.within is not None)
        self._l1: Promises[Owed] | None = self._promises("L1")
        self._l2: Promises[CallKey] | None = self._promises("L2")
        self._l3: Promises[CallKey] | None = self._promises("L3")
        self._registry = Registry(kron=kron)
        derived = Kind.RETRY_DUE in header.derive
        self.tasks = TaskMonitor(self._registry, self.failures, self._l1, kron=kron, derived=derived)
        self.calls = CallMonitor(self._registry, self.failures, self._l2, self._l3, kron=kron)
        self._moment: PositionKinds | None = None
        # Where the judged scope ended, if it did.
        self.scope_ends: int | None = None
        self.phenomenon: str | None = None

    def _promises(self, axiom: str) -> Promises[K] | None:
        if not self._judges_promises:
            return None
        options = self._options
        observe = None if options.observe is None else partial(options.observe, axiom)
        return Promises(self._spending, options.witnesses, options.within, observe)

    def feed(self, position: Position) -> bool:
        """Process one position; False once the trace has left the judged scope."""
        moment = PositionKinds(position, self._moment)
        for event in moment.of(Kind.SUPERNATURAL):
            if event.phenomenon not in self._options.happy:
                self.scope_ends, self.phenomenon = moment.i, event.phenomenon
                return False
        self._spending.pass_to(moment)
        # State that a position does not touch stays unchanged, except that a call that started and ended at
        # the preceding position is open now without an event.
        called = moment.calls or self.calls.was_cut(moment.previous)
        if moment.runs or moment.crash:
            self.tasks.look_back(moment)
        if called:
            self.calls.look_back(moment)
            self.calls.move_on(moment)
        self._registry.pass_to(moment, self.calls.is_stopping)
        self.tasks.move_on(moment)
        if called:
            self.calls.judge(moment)
        self._judge_environment(moment)
        self._judge_promises(moment)
        self._moment = moment
        return True

    def _judge_environment(self, moment: PositionKinds) -> None:
        if self._header.computed:
            if moment.crash and moment.compute:
                self.failures.add("EA1", moment, "a crash at a position with compute")
            action = None if moment.compute else moment.action()
            if action is not None:
                message = (
                    f"{action} at a position without Compute "
                    '(a trace without Compute events says "compute": "none" in its header)'
                )
                self.failures.add("EA2", moment, message, event=action)
        if len(moment.events) > 1 and (moment.runs or moment.calls):
            actions = {key: event for event in moment.events if (key := self._action(event)) is not None}
            if len(actions) > 1:
                named = " and ".join(map(str, actions.values()))
                self.failures.add(
                    "EA3", moment, f"{named} at one position", event=next(iter(actions.values()))
                )

    def _action(self, event: Event) -> tuple[object, ...] | None:
        """Return the action of an event: both ends of a run are one, calls differ in Kron's reading."""
        match event.kind:
            case Kind.RUN_START:
                return "RS", event.task
            case Kind.RUN_SUCCESS | Kind.RUN_FAILURE:
                return "RE", event.task
            case Kind.INIT_START:
                return "IS", event.call if self._options.kron else event.tasks
            case Kind.INIT_SUCCESS | Kind.INIT_FAILURE:
                return "IE", event.call if self._options.kron else None
            case Kind.STOP_START | Kind.STOP_END:
                return event.kind, event.call if self._options.kron else None
            case _:
                return None

    def _judge_promises(self, moment: PositionKinds) -> None:
        if self._l1 is None or self._l2 is None or self._l3 is None:
            return
        self.tasks.follow_obligations(moment)
        self.calls.follow_calls(moment, self.tasks.is_quiet)
        self._judge_axiom("L1", self._l1, moment)
        self._judge_axiom("L2", self._l2, moment)
        self._judge_axiom("L3", self._l3, moment)

    def _judge_axiom(self, axiom: str, promises: Promises[K], moment: PositionKinds) -> None:
        promises.settle()
        if axiom in self.failures:
            return
        broken = promises.broken()
        if broken is not None:
            unit = self._header.unit if self._spending.wall else "compute"
            spent = f"{self._spending.spent - broken.base} {unit}"
            message = f"{broken.what} since position {broken.since} and {spent} have passed"
            self.failures.add(axiom, moment, message, since=broken.since)

    def finish(self) -> dict[str, Finding]:
        """Return the finding for each axiom at the end of the trace."""
        for promises in (self._l1, self._l2, self._l3):
            if promises is not None:
                promises.finish()
        return {axiom: self._finding(axiom) for axiom in AXIOMS}

    def _finding(self, axiom: str) -> Finding:
        formulas = FORMULAS if self._options.kron else LITERAL_FORMULAS
        if axiom in self.failures:
            return self.failures.found[axiom]
        status, message = self._standing(axiom)
        position = self.scope_ends if status is Status.OUT_OF_SCOPE else None
        return Finding(
            axiom=axiom, status=status, position=position, formula=formulas[axiom], message=message
        )

    def _standing(self, axiom: str) -> tuple[Status, str]:
        if axiom in NEVER_DECIDED:
            return Status.INCONCLUSIVE, "no finite trace can violate it"
        if self.scope_ends is not None:
            return Status.OUT_OF_SCOPE, f'Supernatural "{self.phenomenon}" is not in the happy set'
        if axiom in NEED_COMPUTE and not self._header.computed:
            return Status.INCONCLUSIVE, "the trace has no Compute events"
        if axiom in LIVENESS_AXIOMS:
            return self._liveness(axiom)
        return Status.PASSED, ""

    def _liveness(self, axiom: str) -> tuple[Status, str]:
        if self._l1 is None or self._l2 is None or self._l3 is None:
            return Status.INCONCLUSIVE, "the trace has no Compute events, and no wall-time bound was given"
        left = {"L1": len(self._l1), "L2": len(self._l2), "L3": len(self._l3)}[axiom]
        if left:
            promises = "one promise is" if left == 1 else f"{left} promises are"
            return Status.INCONCLUSIVE, f"{promises} still open at the end"
        return Status.PASSED, ""
