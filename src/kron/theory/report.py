"""The report of a check: a finding for every axiom, a verdict, and the party to blame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kron.theory.environment import Environment
from kron.theory.event import Position
from kron.theory.verdict import ENVIRONMENT_AXIOMS, Blame, Finding, Status

CONFORMS, VIOLATES = "conforms", "violates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of a trace: `report["S1"].status`.

    `around` are the positions near the first violation, for display.
    """

    reading: str
    findings: Mapping[str, Finding]
    scope_ends: int | None = None
    environment: Environment | None = None
    around: tuple[Position, ...] = ()

    def __getitem__(self, axiom: str) -> Finding:
        return self.findings[axiom]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings.values())

    @property
    def failed(self) -> list[Finding]:
        """Return the violated axioms by position; at one position the environment's come first."""
        failed = [finding for finding in self if finding.status is Status.FAILED]
        return sorted(
            failed, key=lambda finding: (finding.position or 0, finding.axiom not in ENVIRONMENT_AXIOMS)
        )

    @property
    def conforms(self) -> bool:
        """Return whether no axiom is violated."""
        return not self.failed

    @property
    def verdict(self) -> str:
        """Return ``conforms`` or ``violates``."""
        return CONFORMS if self.conforms else VIOLATES

    @property
    def blame(self) -> Blame | None:
        """Return the party whose axiom was violated first; the environment if both were at one position."""
        if self.conforms:
            return None
        return Blame.ENVIRONMENT if self.failed[0].axiom in ENVIRONMENT_AXIOMS else Blame.SCHEDULER

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of `kron conform --json`."""
        blame = self.blame
        return {
            "verdict": self.verdict,
            "blame": None if blame is None else str(blame),
            "reading": self.reading,
            "scope_ends": self.scope_ends,
            "environment": None if self.environment is None else self.environment.to_dict(),
            "axioms": {axiom: finding.to_dict() for axiom, finding in self.findings.items()},
        }
