"""The pytest plugin: `kron_time` runs the jobs of a program in virtual time.

pytest loads it by its entry point as soon as Kron is installed.
"""

from collections.abc import Iterator

import pytest

import kron.testing


@pytest.fixture
def kron_time() -> "Iterator[kron.testing.VirtualTime]":
    """Virtual time for one test: start a `kron.Runner`, advance hours, and read its runs."""
    # The engine is loaded by the first test that uses it, not by every session of pytest.
    virtual = kron.testing.VirtualTime()
    yield virtual
    virtual.close()
