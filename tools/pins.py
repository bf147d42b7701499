"""Pins: `constraints.txt` with the versions of all packages, and `hashes.txt` with the hashes of their files.

uv checks the hashes that constraints have. pip refuses constraints with hashes beside an editable package, so
it gets the versions alone.
"""

import re
import subprocess
import sys
from pathlib import Path

VERSIONS, HASHES = Path("constraints.txt"), Path("hashes.txt")
VERSION = re.compile(r"[a-z0-9-]+==[A-Za-z0-9.]+")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
COMPILE = (
    "pip", "compile", "pyproject.toml", "--all-extras", "--group", "install", "--group", "dev", "--group",
    "bench", "--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-index-url",
    "--no-emit-find-links", "--no-emit-package", "kron-engine", "--quiet", "--generate-hashes",
)  # fmt: skip


def main(words: list[str]) -> int:
    """Resolve all extras and groups, and write both files; fail if a line is neither version nor hash."""
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), *COMPILE, *words, "--output-file", str(HASHES)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wrong = faults_of(HASHES.read_text(encoding="utf-8"))
    for line in wrong:
        print(f"[pins] neither a version nor a hash: {line}", file=sys.stderr)
    versions = versions_of(HASHES.read_text(encoding="utf-8"))
    VERSIONS.write_text("".join(f"{version}\n" for version in versions), encoding="utf-8")
    print(f"[pins] {len(versions)} packages in {VERSIONS} and {HASHES}")
    return int(bool(wrong))


def versions_of(text: str) -> list[str]:
    """Return the lines `name==version` of hashed pins."""
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith(" ")]


def faults_of(text: str) -> list[str]:
    """Return the lines that have an address, an option, or anything else that is no version and no hash."""
    lines = [line.removesuffix(" \\").strip() for line in text.splitlines()]
    return [line for line in lines if line and not VERSION.fullmatch(line) and not HASH.fullmatch(line)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
