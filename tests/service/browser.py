"""A real browser without a window: what it makes of a page, and what it complains about."""

import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MISSING = "no Chromium here, so no page was tried in a browser (apt-get install chromium)"
DARK = "--blink-settings=preferredColorScheme=0"
# Long enough for a page's script to ask twice for news; the browser does not wait for it.
VIRTUAL_MS = 12_000
PATIENCE_S = 90
QUIETLY = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--no-proxy-server", "--hide-scrollbars",
    "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--run-all-compositor-stages-before-draw",
)  # fmt: skip
_CONSOLE = re.compile(r"CONSOLE[:(].*")


class Seen(NamedTuple):
    """A page after its scripts have run, and what the browser wrote to its console."""

    dom: str
    console: list[str]


def look(url: str, folder: Path, *options: str) -> Seen:
    """Open a page and return what became of it."""
    done = _chromium(url, folder, "--dump-dom", "--enable-logging=stderr", "--log-level=0", *options)
    return Seen(done.stdout, _CONSOLE.findall(done.stderr))


def picture(url: str, folder: Path, name: str, size: tuple[int, int], *options: str) -> bytes:
    """Return a page as a PNG of this size."""
    file = folder / name
    _chromium(url, folder, f"--screenshot={file}", f"--window-size={size[0]},{size[1]}", *options)
    return file.read_bytes()


def size_of(png: bytes) -> tuple[int, int]:
    """Return how large a picture is."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _chromium(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *QUIETLY, profile, f"--virtual-time-budget={VIRTUAL_MS}", *options, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done
