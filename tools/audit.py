"""Dependency audit: what is installed is what is pinned, and nothing of it is known to be vulnerable.

Vulnerabilities are looked up by pip-audit. Where its advisory service cannot be asked, that is said loudly
and the rest still counts. A vulnerable version, or one that is not pinned, ends with 1.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

PINS = Path("constraints.txt")
# Ours, and what an environment brings by itself.
OWN = frozenset({"kron-scheduler", "pip", "setuptools", "wheel", "uv"})
PATIENCE_S = 120


def main() -> int:
    """Compare, look up, and say what came of it."""
    pinned = dict(line.split("==", 1) for line in PINS.read_text(encoding="utf-8").split())
    installed = {plain(found.name): found.version for found in distributions()}
    strange = [
        f"{name} {version}: pinned is {pinned.get(name, 'nothing')}"
        for name, version in sorted(installed.items())
        if name not in OWN and pinned.get(name) != version
    ]
    vulnerable, asked = look_up()
    for line in (*strange, *vulnerable):
        print(f"[audit] {line}", file=sys.stderr)
    if not asked:
        print("[audit] NOT LOOKED UP: no service could be asked about vulnerabilities", file=sys.stderr)
    print(f"[audit] {len(installed)} packages installed, {asked} of {len(pinned)} pins looked up")
    return 1 if strange or vulnerable else 0


def plain(name: str) -> str:
    """Return a package's name as it is pinned."""
    return re.sub(r"[-_.]+", "-", name).lower()


def look_up() -> tuple[list[str], int]:
    """Return the vulnerabilities of what is pinned, and how many packages could be asked about."""
    words = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [sys.executable, *words, "--requirement", str(PINS)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return [], 0
    known = [package for package in found if "vulns" in package]
    told = [
        f"{package['name']} {package['version']}: {flaw['id']}; mended in {flaw['fix_versions'] or 'none'}"
        for package in known
        for flaw in package["vulns"]
    ]
    return told, len(known)


if __name__ == "__main__":
    sys.exit(main())
