"""Dependency audit: every installed version is pinned, and none has a known vulnerability.

Vulnerabilities are looked up by pip-audit. A vulnerable or unpinned version exits with 1. Where the advisory
service cannot be reached, the last line says that nothing was checked, and why; with `--require`, that and
every pin that was not looked up exits with 2.
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
# How much of an error is quoted.
MAX_REASON = 200


def main(words: list[str]) -> int:
    """Compare versions, look up vulnerabilities, and print the result."""
    pinned = dict(line.split("==", 1) for line in PINS.read_text(encoding="utf-8").split())
    installed = {plain(package.name): package.version for package in distributions()}
    unpinned = [
        f"{name} {version}: pinned is {pinned.get(name, 'nothing')}"
        for name, version in sorted(installed.items())
        if name not in OWN and pinned.get(name) != version
    ]
    vulnerable, checked, reason = look_up()
    for line in (*unpinned, *vulnerable):
        print(f"[audit] {line}", file=sys.stderr)
    left_out = sorted(set(pinned) - checked)
    print(f"[audit] {len(installed)} packages installed, {len(checked)} of {len(pinned)} pins looked up")
    if not checked:
        print(f"[audit] NOTHING WAS CHECKED for known vulnerabilities: {reason}", file=sys.stderr)
    elif left_out:
        print(f"[audit] NOT CHECKED for known vulnerabilities: {', '.join(left_out)}", file=sys.stderr)
    if unpinned or vulnerable:
        return 1
    return 2 if left_out and "--require" in words else 0


def plain(name: str) -> str:
    """Return a package's normalized name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def look_up() -> tuple[list[str], set[str], str]:
    """Return the vulnerabilities of the pins, the packages that were looked up, and why others were not."""
    words = ["-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    try:
        done = subprocess.run(
            [sys.executable, *words, "--requirement", str(PINS)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [], set(), f"pip-audit did not answer within {PATIENCE_S} s"
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        lines = done.stderr.strip().splitlines() or ["it printed nothing"]
        return [], set(), f"pip-audit failed: {lines[-1][:MAX_REASON]}"
    known = [package for package in packages if "vulns" in package]
    lines = [
        f"{package['name']} {package['version']}: {flaw['id']}; fixed in {flaw['fix_versions'] or 'none'}"
        for package in known
        for flaw in package["vulns"]
    ]
    skipped = next((str(each["skip_reason"]) for each in packages if "skip_reason" in each), "")
    reason = f"pip-audit looked up no package: {skipped[:MAX_REASON] or 'it does not say why'}"
    return lines, {plain(package["name"]) for package in known}, reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
