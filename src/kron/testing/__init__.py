"""Tools for testing Kron and programs built on it: virtual time, crashes, and the store contract.

Names are loaded on first access (PEP 562), and none of them needs pytest or Hypothesis.
"""

from importlib import import_module

_HOME = {
    "SimulatedClock": "kron.testing.clock",
    "VirtualTime": "kron.testing.virtual_time",
    "kill": "kron.testing.crash",
    "trace": "kron.testing.crash",
    "ScriptedLauncher": "kron.testing.launcher",
    "Step": "kron.testing.launcher",
    "FaultyStore": "kron.testing.faulty_store",
    "Fault": "kron.testing.faulty_store",
    "Chance": "kron.testing.faulty_store",
    "Injected": "kron.testing.faulty_store",
    "simulate": "kron.testing.simulator",
    "StoreContract": "kron.testing.store_contract",
}

__all__ = [*_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kron.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
