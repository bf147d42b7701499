"""The first violation of each axiom that the monitors report."""

from kron.theory.event import Event
from kron.theory.position import PositionKinds
from kron.theory.verdict import FORMULAS, LITERAL_FORMULAS, Finding, Status


class Failures:
    """Collects violations; only the first of each axiom counts."""

    def __init__(self, *, kron: bool) -> None:
        self._formulas = FORMULAS if kron else LITERAL_FORMULAS
        self.found: dict[str, Finding] = {}

    def __contains__(self, axiom: str) -> bool:
        return axiom in self.found

    def add(
        self,
        axiom: str,
        moment: PositionKinds,
        message: str,
        *,
        event: Event | None = None,
        since: int | None = None,
        broken: str = "",
    ) -> None:
        """Record a violation here, unless there was an earlier one; `broken` is the violated part."""
        if axiom in self.found:
            return
        shown = event or next(iter(moment.events), None)
        self.found[axiom] = Finding(
            axiom=axiom,
            status=Status.FAILED,
            position=moment.i,
            since=since,
            t=moment.t,
            event=None if shown is None else str(shown),
            formula=self._formulas[axiom],
            broken=broken or self._formulas[axiom],
            message=message,
        )
