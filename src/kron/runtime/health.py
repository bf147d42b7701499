"""Health: what an operator sees of the engine."""

from dataclasses import dataclass, field

from kron.runtime.inbox import Inbox
from kron.runtime.lease import LeaseState


@dataclass(slots=True)
class Health:
    """How the engine is doing, what it owns while it works, and what it has not written yet."""

    state: str = "stopped"
    error: str | None = None
    failures: int = 0
    jumps: int = 0
    tenure: LeaseState | None = None
    inbox: Inbox = field(default_factory=Inbox)

    def degrade(self, error: Exception) -> None:
        """Note that the store failed."""
        self.state, self.error = "degraded", str(error)
        self.failures += 1

    def recover(self) -> None:
        """Note that a whole wake went well."""
        if self.state == "degraded":
            self.state, self.error = "running", None

    def rest(self) -> None:
        """Note that the store answered, and that somebody else looks after the jobs."""
        self.state, self.error = "stopped", None

    def fail(self, error: Exception) -> None:
        """Note our own mistake: nobody may believe that the jobs are looked after."""
        self.state, self.error = "failed", f"{type(error).__name__}: {error}"
