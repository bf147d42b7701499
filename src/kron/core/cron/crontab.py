"""Crontab parsing: the entries with their times, zones, commands and variables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kron.core.cron.dialect import ANY_IDENTITY, EXTENDED, FIELD_NAMES, REBOOT, parse_field
from kron.core.errors import FieldParseError

CRON_TZ, TZ = "CRON_TZ", "TZ"

_BLANKS = re.compile(r"[ \t]+")
_ASSIGNMENT = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))[ \t]*=[ \t]*(.*)""", re.DOTALL)
_VALUE = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^ \t]*))[ \t]*(.*)""", re.DOTALL)
# In a command a backslash and the character after it are a pair; in its input only before a percent sign.
_PAIR = re.compile(r"\\.|%", re.DOTALL)
_PERCENT = re.compile(r"\\?%")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabEntry:
    """One entry of a crontab.

    `timezone` comes from the ``CRON_TZ=`` prefix of the line, or else from the assignment in force, on
    `zone_line`. An invalid line has all its text as `expression`, so that parsing it reports the error.
    `variables` are the assignments in force, in the order of their first lines.
    """

    line: int
    expression: str
    timezone: str | None = None
    zone_line: int | None = None
    user: str | None = None
    command: str = ""
    variables: tuple[tuple[str, str], ...] = ()
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
    rest: str = ""

    @property
    def zone(self) -> str | None:
        """Return the variable of a time zone that this is, or None; its name may be in any case."""
        return self.name.upper() if self.name.upper() in (CRON_TZ, TZ) else None


def parse_crontab(text: str, *, has_user: bool = False) -> list[CrontabEntry]:
    """Parse a crontab into its entries; with `has_user` the word after the times is a user."""
    return list(_entries(text.removeprefix("\ufeff"), has_user=has_user))


def _entries(text: str, *, has_user: bool) -> Iterator[CrontabEntry]:
    zones: dict[str, tuple[str, int]] = {}
    variables: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        raw = line.removesuffix("\r")
        body = raw.strip(" \t")
        if not body or body.startswith("#"):
            continue
        assignment = _assignment_of(body)
        if assignment is None:
            timezone, zone_line = _zone_in_force(zones)
            entry = _entry(number, raw, body, has_user=has_user)
            yield replace(entry, timezone=timezone, zone_line=zone_line, variables=tuple(variables.items()))
        elif not assignment.rest:
            variables[assignment.name] = assignment.value
            if assignment.zone:
                zones[assignment.zone] = (assignment.value, number)
        elif _is_whole(assignment.rest):
            entry = _entry(number, raw, assignment.rest, has_user=has_user)
            yield replace(entry, timezone=assignment.value, variables=tuple(variables.items()))
        else:
            yield CrontabEntry(line=number, expression=body, timezone=assignment.value, raw=raw)


def _assignment_of(body: str) -> _Assignment | None:
    match = _ASSIGNMENT.fullmatch(body)
    if match is None:
        return None
    name = match[1] or match[2] or match[3] or ""
    value = _VALUE.fullmatch(match[4])
    assert value is not None, "every text is a value and a rest"
    first, rest = value[1] or value[2] or value[3] or "", value[4]
    assignment = _Assignment(name=name, value=first, rest=rest)
    # Cron has no comments after an assignment: they are part of the value, which is then invalid as a zone.
    if assignment.zone and not rest.startswith("#"):
        return assignment
    if rest and value[3] is None:
        return None  # text after a quoted value: cron refuses the line
    return _Assignment(name=name, value=match[4].rstrip(" \t") if rest else first)


def _zone_in_force(zones: dict[str, tuple[str, int]]) -> tuple[str | None, int | None]:
    """Return the zone in force and its line; CRON_TZ is specific to schedules, so it overrides TZ."""
    for name in (CRON_TZ, TZ):
        value, line = zones.get(name, ("", 0))
        if value:
            return value, line
    return None, None


def command_and_input(text: str) -> tuple[str, str | None]:
    r"""Return a command without its percent signs, and its standard input, None without one.

    The first `%` ends the command. In the input after it each `%` is a line break, and its last line gets
    one if it has none. `\%` is a percent sign; every other backslash stays.
    """
    cut = next((match.start() for match in _PAIR.finditer(text) if match[0] == "%"), len(text))
    command = _PAIR.sub(lambda match: "%" if match[0] == "\\%" else match[0], text[:cut])
    given = _PERCENT.sub(lambda match: "%" if match[0] == "\\%" else "\n", text[cut + 1 :])
    if not given:
        return command, None
    return command, given if given.endswith("\n") else f"{given}\n"


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
            parse_field(word, name, EXTENDED, identity=ANY_IDENTITY)
    except FieldParseError:
        return False
    return True
