"""Health of an engine: its state, its last error, its lease and its backlog of reports."""

from dataclasses import dataclass, field

from kron.runtime.inbox import Inbox
from kron.runtime.lease import LeaseState


@dataclass(slots=True)
class Health:
    """The state of an engine as operators see it."""

    state: str = "stopped"
    error: str | None = None
    failures: int = 0
    jumps: int = 0
    # How far the clock is behind the latest recorded instant, beyond the lookahead.
    clock_behind_ms: int = 0
    # How far the clock is ahead of the store's own, negative if behind; 0 within the lookahead.
    clock_off_ms: int = 0
    lease: LeaseState | None = None
    inbox: Inbox = field(default_factory=Inbox)

    def degrade(self, error: Exception) -> None:
        """Note that the store failed."""
        self.state, self.error = "degraded", str(error)
        self.failures += 1

    def recover(self) -> None:
        """Note that a whole wake succeeded after a failure."""
        self.state, self.error = "running", None

    def stand_by(self) -> None:
        """Note that the store answered, and that another worker holds the lease."""
        self.state, self.error = "stopped", None

    def fail(self, error: Exception) -> None:
        """Note a bug of Kron: the engine must not look healthy."""
        self.state, self.error = "failed", f"{type(error).__name__}: {error}"
