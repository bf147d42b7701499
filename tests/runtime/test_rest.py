"""The garbage collector rests during a burst, and is left as it was found."""

import gc
from collections.abc import Iterator

import pytest

from kron.runtime.rest import collector_at_rest


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Leave the collector on, whatever a test did."""
    yield
    gc.enable()


def test_it_rests_until_the_last_burst_is_over() -> None:
    with collector_at_rest():
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_works_again_after_a_burst_that_failed() -> None:
    with pytest.raises(ValueError, match="broken"), collector_at_rest():
        raise ValueError("broken")
    assert gc.isenabled()


def test_whoever_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with collector_at_rest():
        pass
    assert not gc.isenabled()
