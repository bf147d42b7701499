"""For tests of Kron and of what is built on it: virtual time, crashes, and the contract every store keeps."""

from kron.testing.clock import SimulatedClock

__all__ = ["SimulatedClock"]
