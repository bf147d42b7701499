"""The wheel is complete: templates, styles, scripts and SQL are packed with the code."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_pytest_finds_the_plugin_of_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path / "site")
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(kron_time):\n    assert kron_time.now.year == 2026\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    packed = {name for name in ZipFile(wheel).namelist() if name.startswith("kron/")}
    files = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "kron").rglob("*") if path.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}
    for needed in ("templates/overview.html", "static/style.css", "static/live.js"):
        assert f"kron/fronts/service/web/{needed}" in packed


def test_the_wheel_has_the_manual_pages(wheel: Path) -> None:
    packed = {name.partition(".data/data/")[2] for name in ZipFile(wheel).namelist()}
    assert packed >= {"share/man/man5/krontab.5", "share/man/man8/krond.8"}
