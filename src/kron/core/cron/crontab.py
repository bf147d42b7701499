"""Crontab parsing: the entries with their times, zones and commands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kron.core.cron.dialect import EXTENDED, FIELD_NAMES, parse_field
from kron.core.errors import FieldParseError

CRON_TZ, TZ = "CRON_TZ", "TZ"
# An entry that runs when the machine boots, without a schedule.
REBOOT = "@reboot"

_BLANKS = re.compile(r"[ \t]+")
_ASSIGNMENT = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))[ \t]*=[ \t]*(.*)""", re.DOTALL)
_VALUE = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^ \t]*))[ \t]*(.*)""", re.DOTALL)
# Whether a word is a valid field does not depend on the identity of its `H`.
_ANY_IDENTITY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabEntry:
    """One entry of a crontab.

    `timezone` comes from the ``CRON_TZ=`` prefix of the line, or else from the assignment in force, on
    `zone_line`. An invalid line has all its text as `expression`, so that parsing it reports the error.
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
        """Return whether the entry is `@reboot`."""
        return self.expression.lower() == REBOOT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """A line ``NAME=value``; `rest` is the text after the value of a time zone."""

    name: str
    value: str
    rest: str


def parse_crontab(text: str, *, has_user: bool = False) -> list[CrontabEntry]:
    """Parse a crontab into its entries; with `has_user` the word after the times is a user."""
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
    match = _ASSIGNMENT.fullmatch(body)
    if match is None:
        return None
    name = (match[1] or match[2] or match[3] or "").upper()
    value = _VALUE.fullmatch(match[4])
    assert value is not None, "every text is a value and a rest"
    rest = value[4] if name in (CRON_TZ, TZ) else ""
    # Cron has no comments after an assignment: they are part of the value, which is then invalid.
    if rest.startswith("#"):
        return _Assignment(name=name, value=match[4], rest="")
    return _Assignment(name=name, value=value[1] or value[2] or value[3] or "", rest=rest)


def _zone_in_force(zones: dict[str, tuple[str, int]]) -> tuple[str | None, int | None]:
    """Return the zone in force and its line; CRON_TZ is specific to schedules, so it overrides TZ."""
    for name in (CRON_TZ, TZ):
        value, line = zones.get(name, ("", 0))
        if value:
            return value, line
    return None, None


def _is_whole(text: str) -> bool:
    """Return whether a text has enough words for an expression."""
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
    """Return whether six words are the fields of an expression, seconds first."""
    try:
        for word, name in zip(words, FIELD_NAMES[EXTENDED], strict=True):
            parse_field(word, name, EXTENDED, identity=_ANY_IDENTITY)
    except FieldParseError:
        return False
    return True
