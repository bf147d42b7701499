"""Every test here may use a store of each kind."""

from tests.every_store import store

__all__ = ["store"]
