"""The wheel is complete: templates, styles, scripts and SQL are packed with the code."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in ZipFile(wheel).namelist() if name.startswith("kron/")}
    files = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "kron").rglob("*") if path.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}
    for needed in ("templates/overview.html", "static/style.css", "static/live.js"):
        assert f"kron/fronts/service/web/{needed}" in packed
