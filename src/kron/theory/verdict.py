"""The verdict on an axiom, and the axioms by number with their formulas."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The status of an axiom: violated, not violated, or undecided when the trace ends."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    OUT_OF_SCOPE = "out_of_scope"


class Blame(StrEnum):
    """The party whose axiom was violated first."""

    SCHEDULER = "scheduler"
    ENVIRONMENT = "environment"


READINGS = ("kron", "literal")
ENVIRONMENT_AXIOMS = ("EA1", "EA2", "EA3", "EA4", "EA5", "EA6", "EA7")
SAFETY_AXIOMS = ("S1", "S2", "S3", "S4", "S5", "S6")
LIVENESS_AXIOMS = ("L1", "L2", "L3")
AXIOMS = ENVIRONMENT_AXIOMS + SAFETY_AXIOMS + LIVENESS_AXIOMS
# These cannot be judged without Compute events.
NEED_COMPUTE = ("EA1", "EA2")
# No finite trace violates these (reading 21).
NEVER_DECIDED = ("EA4", "EA5")

FORMULAS = {
    "EA1": "G(Crash -> Frozen)",
    "EA2": "G(A -> Unfrozen)",
    "EA3": "G not (A and B), A and B different actions",
    "EA4": "G F Frozen",
    "EA5": "G(F Due_x) or G(not Due_x)",
    "EA6": "G(Crash -> (not RE_x W RS_x))",
    "EA7": "G(RE_x -> Y Running_x), G(IE_c -> Y Initializing_c), G(SE_c -> Y Stopping_c), c a call",
    "S1": "G(RS_x -> Y Obligation_x)",
    "S2": "AtMostOne(FirstComing_x or Due of a tuple registered at a start since, RSucc_x)",
    "S3": "G(SE -> not Running_x)",
    "S4": "R not valid => G(not IEs_R)",
    "S5": "R valid => G(IFail_c -> Active, or another call open, from IS_c to IEf_c)",
    "S6": "AtMostOne(SE or Crash, IEs)",
    "L1": "G(Obligation_{R,x} -> F_lin(R, t) (RS_x or not Active_R))",
    "L2": "G(IS_c -> F_lin(R, t) (IE_c or Crash))",
    "L3": "G(SS_c -> G(FirstQuiescentSince(SS_c) -> F_lin(R, t) (SE_c or Crash)))",
}
LITERAL_FORMULAS = FORMULAS | {
    "EA7": "G(RE_x -> Y Running_x), G(IE -> Y Hold(IS, IE or Crash)), G(SE -> Y Hold(SS, SE or Crash))",
    "S2": "AtMostOne(Due_x, RSucc_x)",
    "S5": "R valid => G(IFail_R -> some R': Y Initializing_R')",
    "S6": "AtMostOne(IEs, SE or Crash)",
    "L2": "G(IS_R -> F_lin(R, t) (IE_R or Crash))",
    "L3": "G(SS_R -> G(FirstQuiescentSince(SS_R) -> F_lin(R, t) (SE_R or Crash)))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The status of one axiom on a trace.

    A failed one has the `position` that ends the shortest prefix with the violation, the event there, in
    `broken` the violated part of the formula, and in `since` the position of the broken promise.
    """

    axiom: str
    status: Status
    position: int | None = None
    since: int | None = None
    t: int | None = None
    event: str | None = None
    formula: str = ""
    broken: str | None = None
    message: str = ""

    @property
    def prefix(self) -> int | None:
        """Return the number of the last position of the shortest prefix with the violation."""
        return self.position if self.status is Status.FAILED else None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of `kron conform --json` for an axiom."""
        return {
            "status": str(self.status),
            "position": self.position,
            "since": self.since,
            "t": self.t,
            "event": self.event,
            "formula": self.formula,
            "broken": self.broken,
            "message": self.message,
        }
