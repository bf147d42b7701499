"""Dependency audit: every installed version is pinned, and none has a known vulnerability.

Vulnerabilities are looked up by pip-audit. Where its advisory service cannot be reached, a warning is printed
and the other checks still count. A vulnerable or unpinned version exits with 1.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

PINS = Path("constraints.txt")
# This package, and those every environment has.
OWN = frozenset({"kron-engine", "pip", "setuptools", "wheel", "uv"})
PATIENCE_S = 120


def main() -> int:
    """Compare versions, look up vulnerabilities, and print the result."""
    pinned = dict(line.split("==", 1) for line in PINS.read_text(encoding="utf-8").split())
    installed = {plain(package.name): package.version for package in distributions()}
    unpinned = [
        f"{name} {version}: pinned is {pinned.get(name, 'nothing')}"
        for name, version in sorted(installed.items())
        if name not in OWN and pinned.get(name) != version
    ]
    vulnerable, asked = look_up()
    for line in (*unpinned, *vulnerable):
        print(f"[audit] {line}", file=sys.stderr)
    if not asked:
        print("[audit] NOT LOOKED UP: the advisory service could not be reached", file=sys.stderr)
    print(f"[audit] {len(installed)} packages installed, {asked} of {len(pinned)} pins looked up")
    return 1 if unpinned or vulnerable else 0


def plain(name: str) -> str:
    """Return a package's normalized name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def look_up() -> tuple[list[str], int]:
    """Return the vulnerabilities of the pins, and the number of packages that were looked up."""
    words = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [sys.executable, *words, "--requirement", str(PINS)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [], 0
    known = [package for package in packages if "vulns" in package]
    lines = [
        f"{package['name']} {package['version']}: {flaw['id']}; fixed in {flaw['fix_versions'] or 'none'}"
        for package in known
        for flaw in package["vulns"]
    ]
    return lines, len(known)


if __name__ == "__main__":
    sys.exit(main())
