"""The host's time zone, by its name in the IANA database."""

import os
import re
from functools import lru_cache
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

from kron.core.errors import InvalidOptionError, UnknownTimezoneError
from kron.core.time.zone import zone_of

LOCALTIME, NAME_FILE = Path("/etc/localtime"), Path("/etc/timezone")
# A POSIX zone without daylight saving time, such as UTC0 or <+03>-3: a name and hours west of Greenwich.
_FIXED = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)([+-]?\d{1,2})(?::00)?")
WHERE = 'the host names no zone of the IANA database; pass timezone="Europe/Berlin", or set TZ'


def host_timezone() -> str:
    """Return the name of the zone the host's wall clock shows, or raise InvalidOptionError."""
    wanted = os.environ.get("TZ")
    name = _named_by(wanted) if wanted is not None else _named_by_files()
    if name is None:
        raise InvalidOptionError(option="timezone", value=wanted or str(LOCALTIME), reason=WHERE)
    return name


def _named_by(variable: str) -> str | None:
    """Return the zone that the variable TZ names: by name, by file, or as a fixed offset from UTC."""
    text = variable.removeprefix(":")
    if not text:
        return "UTC"
    if text.startswith("/"):
        return _known(_below_zones(Path(text))) or _same_as(Path(text))
    return _known(text) or _fixed(text)


def _named_by_files() -> str | None:
    """Return the zone named by the host's files; a host without any shows UTC."""
    if not LOCALTIME.exists():
        return "UTC"
    if name := _known(_below_zones(LOCALTIME.resolve())):
        return name
    if NAME_FILE.is_file() and (name := _known(NAME_FILE.read_text(encoding="utf-8").strip())):
        return name
    return _same_as(LOCALTIME)


def _below_zones(path: Path) -> str:
    """Return the part of a path that comes after the folder of zones."""
    return str(path).rpartition("zoneinfo/")[2]


def _known(name: str) -> str | None:
    try:
        return zone_of(name).key
    except UnknownTimezoneError:
        return None


def _fixed(text: str) -> str | None:
    found = _FIXED.fullmatch(text)
    if found is None:
        return None
    west = int(found[1])
    return _known(f"Etc/GMT{west:+d}" if west else "UTC")


def _same_as(path: Path) -> str | None:
    """Return the zone whose file has the same content, as when the host keeps a copy of it."""
    try:
        return _named_by_content(path.read_bytes())
    except OSError:
        return None


@lru_cache(maxsize=4)
def _named_by_content(content: bytes) -> str | None:
    for name in sorted(available_timezones()):
        for folder in TZPATH:
            file = Path(folder, name)
            if file.is_file() and file.read_bytes() == content and _known(name):
                return name
    return None
