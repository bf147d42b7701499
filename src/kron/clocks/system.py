"""The host's clock. This is the only file that reads the time."""

from datetime import UTC, datetime


class SystemClock:
    """The time of the machine Kron runs on."""

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC)
