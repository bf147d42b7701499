"""Health: what an operator sees of the engine."""

from dataclasses import dataclass


@dataclass(slots=True)
class Health:
    """How the engine is doing."""

    state: str = "stopped"
    error: str | None = None
    failures: int = 0
    jumps: int = 0
