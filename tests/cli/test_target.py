"""Which server or store a command calls, as its options and the environment name them."""

from pathlib import Path

import pytest

from kron.cli.support.client import KROND, Target
from kron.fronts.daemon.place import STATE_VARIABLE, bound_socket, default_place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder without a store, in which a krond of this user listens."""
    for name in ("KRON_SERVER", "KRON_STORE", "KRON_STORE_FILE", "KRON_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("named", [None, "KRON_STORE", "KRON_STORE_FILE", "KRON_CONFIG"])
def test_a_running_krond_is_called_unless_a_store_or_settings_are_named(
    named: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = default_place({STATE_VARIABLE: str(home)}).socket
    with bound_socket(place):
        assert Target(None, None).server_url == KROND
        if named is not None:
            monkeypatch.setenv(named, "anything")
            assert Target(None, None).server_url is None


def test_a_server_that_is_named_is_called_whatever_the_store(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRON_SERVER", "http://127.0.0.1:1")
    monkeypatch.setenv("KRON_STORE_FILE", str(home / "url"))
    assert Target(None, None).server_url == "http://127.0.0.1:1"
    assert Target(None, "sqlite:///other.db").server_url is None
