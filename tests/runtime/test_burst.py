"""During a burst the collector rests and threads take turns quickly; afterwards all is as it was."""

import gc
import sys
from collections.abc import Iterator

import pytest

from kron.runtime.burst import SWITCH_S, burst


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    """Leave the interpreter as it was, whatever a test did."""
    usual = sys.getswitchinterval()
    yield
    gc.enable()
    sys.setswitchinterval(usual)


def is_usual() -> bool:
    return gc.isenabled() and sys.getswitchinterval() > SWITCH_S


def test_it_lasts_until_the_last_one_is_over() -> None:
    with burst():
        with burst():
            assert not gc.isenabled()
            assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
        assert not gc.isenabled()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert is_usual()


def test_all_is_as_before_after_one_that_failed() -> None:
    with pytest.raises(ValueError, match="broken"), burst():
        raise ValueError("broken")
    assert is_usual()


def test_whoever_had_other_wishes_finds_them_kept() -> None:
    gc.disable()
    sys.setswitchinterval(SWITCH_S / 2)
    with burst():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S / 2, rel=0.05)
    assert not gc.isenabled()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S / 2, rel=0.05)
