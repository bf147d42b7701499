"""The host's zone, by whatever the host says of it."""

from pathlib import Path
from zoneinfo import TZPATH

import pytest

from kron.clocks import host_zone
from kron.clocks.host_zone import host_timezone
from kron.core.errors import InvalidOptionError

ZONES = next((Path(folder) for folder in TZPATH if (Path(folder) / "Europe/Berlin").is_file()), None)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":America/New_York", "America/New_York"),
        ("UTC", "UTC"),
        ("", "UTC"),
        ("UTC0", "UTC"),
        ("<+03>-3", "Etc/GMT-3"),
        ("EST5", "Etc/GMT+5"),
        ("EST5EDT", "EST5EDT"),
        ("/anywhere/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
    ],
)
def test_the_variable_tz_comes_first(variable: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", variable)
    assert host_timezone() == expected


@pytest.mark.parametrize("variable", ["CET-1CEST,M3.5.0,M10.5.0/3", "nonsense", "/nowhere/at/all"])
def test_a_zone_without_a_name_is_refused_with_advice(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", variable)
    with pytest.raises(InvalidOptionError, match="pass timezone="):
        host_timezone()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the host's settings be in a folder of the test's."""
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(host_zone, "LOCALTIME", tmp_path / "localtime")
    monkeypatch.setattr(host_zone, "NAME_FILE", tmp_path / "timezone")
    return tmp_path


def test_a_link_names_the_zone(files: Path) -> None:
    folder = files / "zoneinfo" / "Pacific"
    folder.mkdir(parents=True)
    (folder / "Auckland").write_bytes(b"TZif")
    (files / "localtime").symlink_to(folder / "Auckland")
    assert host_timezone() == "Pacific/Auckland"


def test_a_host_without_settings_shows_utc(files: Path) -> None:
    assert host_timezone() == "UTC"


def test_a_copy_is_named_by_the_file_beside_it(files: Path) -> None:
    (files / "localtime").write_bytes(b"TZif and so on")
    (files / "timezone").write_text("Africa/Nairobi\n")
    assert host_timezone() == "Africa/Nairobi"


@pytest.mark.skipif(ZONES is None, reason="this host has no files of zones to copy")
def test_a_copy_is_recognised_by_its_content(files: Path) -> None:
    assert ZONES is not None
    (files / "localtime").write_bytes((ZONES / "Australia/Lord_Howe").read_bytes())
    assert host_timezone() in ("Australia/Lord_Howe", "Australia/LHI")


def test_a_copy_of_nothing_known_is_refused(files: Path) -> None:
    (files / "localtime").write_bytes(b"TZif and so on")
    with pytest.raises(InvalidOptionError, match="the host names no zone"):
        host_timezone()
