"""A crontab as values: which of its lines name times, in which zone, and for which command."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kron.core.cron.dialect import EXTENDED, FIELD_NAMES, parse_field
from kron.core.errors import FieldParseError

CRON_TZ, TZ = "CRON_TZ", "TZ"
# What runs when the machine starts: an entry, but not at any time.
REBOOT = "@reboot"

_BLANKS = re.compile(r"[ \t]+")
_ASSIGNMENT = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))[ \t]*=[ \t]*(.*)""", re.DOTALL)
_VALUE = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^ \t]*))[ \t]*(.*)""", re.DOTALL)
# Whether a word is a field does not depend on what its `H` is derived from.
_ANY_IDENTITY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabEntry:
    """One line of a crontab that names times.

    `timezone` is that of the line's own ``CRON_TZ=`` prefix, or else that of the assignment in force,
    which stands on `zone_line`. A line that cannot be an entry has all its text as `expression`, so
    that parsing it says what is wrong.
    """

    line: int
    expression: str
    timezone: str | None = None
    zone_line: int | None = None
    user: str | None = None
    command: str = ""
    raw: str

    @property
    def at_boot(self) -> bool:
        """Say whether the line names the start of the machine and no time."""
        return self.expression.lower() == REBOOT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """What a line ``NAME=value`` says; `rest` is what follows the value of a time zone."""

    name: str
    value: str
    rest: str


def parse_crontab(text: str, *, has_user: bool = False) -> list[CrontabEntry]:
    """Return the entries of a crontab in order; with `has_user` the word after the times is a user."""
    return list(_entries(text.removeprefix("\ufeff"), has_user=has_user))


def _entries(text: str, *, has_user: bool) -> Iterator[CrontabEntry]:
    zones: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        raw = line.removesuffix("\r")
        body = raw.strip(" \t")
        if not body or body.startswith("#"):
            continue
        assignment = _assignment_of(body)
        if assignment is None:
            timezone, zone_line = _zone_in_force(zones)
            entry = _entry(number, raw, body, has_user=has_user)
            yield replace(entry, timezone=timezone, zone_line=zone_line)
        elif not assignment.rest:
            zones[assignment.name] = (assignment.value, number)
        elif _is_whole(assignment.rest):
            entry = _entry(number, raw, assignment.rest, has_user=has_user)
            yield replace(entry, timezone=assignment.value)
        else:
            yield CrontabEntry(line=number, expression=body, timezone=assignment.value, raw=raw)


def _assignment_of(body: str) -> _Assignment | None:
    found = _ASSIGNMENT.fullmatch(body)
    if found is None:
        return None
    name = (found[1] or found[2] or found[3] or "").upper()
    value = _VALUE.fullmatch(found[4])
    assert value is not None, "every text is a value and a rest"
    rest = value[4] if name in (CRON_TZ, TZ) else ""
    # Cron has no comments behind an assignment: they are part of the value, and so part of what is wrong.
    if rest.startswith("#"):
        return _Assignment(name=name, value=found[4], rest="")
    return _Assignment(name=name, value=value[1] or value[2] or value[3] or "", rest=rest)


def _zone_in_force(zones: dict[str, tuple[str, int]]) -> tuple[str | None, int | None]:
    """Return the zone assigned last and its line; CRON_TZ is about times alone, so it comes before TZ."""
    for name in (CRON_TZ, TZ):
        value, line = zones.get(name, ("", 0))
        if value:
            return value, line
    return None, None


def _is_whole(text: str) -> bool:
    """Say whether a text has enough words to name times."""
    return text.startswith("@") or len(_BLANKS.split(text)) >= 5


def _entry(number: int, raw: str, body: str, *, has_user: bool) -> CrontabEntry:
    """Return the entry of a line without its time zone."""
    words = _BLANKS.split(body)
    count = 1 if body.startswith("@") else 5
    if len(words) == 6 and not has_user and _are_fields(words):
        count = 6
    rest = _BLANKS.split(body, maxsplit=count)[count:]
    user = None
    if has_user and rest:
        user, *rest = _BLANKS.split(rest[0], maxsplit=1)
    expression, command = " ".join(words[:count]), rest[0] if rest else ""
    return CrontabEntry(line=number, expression=expression, user=user, command=command, raw=raw)


def _are_fields(words: list[str]) -> bool:
    """Say whether six words are the fields of an expression, seconds first."""
    try:
        for word, name in zip(words, FIELD_NAMES[EXTENDED], strict=True):
            parse_field(word, name, EXTENDED, identity=_ANY_IDENTITY)
    except FieldParseError:
        return False
    return True
