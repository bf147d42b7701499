"""What the check of a trace says: a finding for every axiom, a verdict, and who is to blame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kron.theory.environment import Environment
from kron.theory.event import Position
from kron.theory.verdict import ENVIRONMENT_AXIOMS, Blame, Finding, Status

CONFORMS, VIOLATES = "conforms", "violates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings of a trace: `report["S1"].status`.

    `around` are the positions about the first violation, for a picture of it.
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
        """Return the axioms that are violated, the first violation first; the environment's before others."""
        found = [finding for finding in self if finding.status is Status.FAILED]
        return sorted(
            found, key=lambda finding: (finding.position or 0, finding.axiom not in ENVIRONMENT_AXIOMS)
        )

    @property
    def conforms(self) -> bool:
        """Say whether no axiom is violated."""
        return not self.failed

    @property
    def verdict(self) -> str:
        """Return ``conforms`` or ``violates``."""
        return CONFORMS if self.conforms else VIOLATES

    @property
    def blame(self) -> Blame | None:
        """Return whose axiom was broken first; where both broke at one position, it is the environment's."""
        if self.conforms:
            return None
        return Blame.ENVIRONMENT if self.failed[0].axiom in ENVIRONMENT_AXIOMS else Blame.SCHEDULER

    def to_dict(self) -> dict[str, object]:
        """Return what `kron conform --json` prints."""
        blame = self.blame
        return {
            "verdict": self.verdict,
            "blame": None if blame is None else str(blame),
            "reading": self.reading,
            "scope_ends": self.scope_ends,
            "environment": None if self.environment is None else self.environment.to_dict(),
            "axioms": {axiom: finding.to_dict() for axiom, finding in self.findings.items()},
        }
