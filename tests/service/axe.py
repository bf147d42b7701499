"""axe-core, the accessibility checker: fetched once by its name and version, and verified by its hash.

It is not part of this repository. Where npm is missing or cannot reach a registry, the tests that need it are
skipped, with the reason.
"""

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.service.chromium import Chromium

NAME, VERSION = "axe-core", "4.10.3"
INTEGRITY = "sha512-Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
KEPT = Path(__file__).resolve().parents[2] / ".cache" / f"{NAME}-{VERSION}.min.js"
MISSING = f"npm cannot fetch {NAME}@{VERSION}"
FETCH_S = 60
# All rules of WCAG 2.2 A and AA, and axe's own best practices.
RUN = """axe.run(document, {resultTypes: ["violations"], ...OPTIONS}).then((found) =>
  found.violations.map((each) => [
    each.id, each.help,
    each.nodes.slice(0, 3).map((node) => [node.target.join(" "), node.failureSummary])]))"""


class AxeMissingError(Exception):
    """axe-core is not here and cannot be fetched."""


@cache
def axe_source() -> str:
    """Return the script, from the cache of this checkout or by npm."""
    if not KEPT.exists():
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as folder:
            found = _fetched(Path(folder))
            part = KEPT.with_suffix(".part")
            part.write_bytes(found)
            part.replace(KEPT)
    return KEPT.read_text()


def _fetched(folder: Path) -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise AxeMissingError(f"{MISSING}: npm is not installed")
    words = [npm, "pack", f"{NAME}@{VERSION}", "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=FETCH_S, cwd=folder)
    except (subprocess.SubprocessError, OSError) as error:
        raise AxeMissingError(f"{MISSING}: {error}") from error
    (package,) = folder.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert f"sha512-{digest}" == INTEGRITY, f"{NAME}@{VERSION} is not the package that was reviewed"
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        return file.read()


def violations(browser: Chromium, rules: Sequence[str] = ()) -> list[Any]:
    """Return what axe-core complains about on the present page, by all rules or by some."""
    if not browser.js("'axe' in window"):
        browser.js(axe_source() + "; null")
    options = json.dumps({"runOnly": [*rules]} if rules else {})
    found: list[Any] = browser.js(RUN.replace("OPTIONS", options))
    return found
