"""Crontabs as job definitions: each line with its identity, command, variables and standard input.

Jobs do as Debian's cron does: they may overlap, a start is at most five minutes late, and no start is caught
up. Fixed times that a clock change skips or repeats start as in cron.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.cron.crontab import CRON_TZ, CrontabEntry, command_and_input, parse_crontab
from kron.core.cron.dialect import EXTENDED, REBOOT, parse
from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.cron.timeline import BOTH, FIRST, NEXT, SKIP
from kron.core.cron.vixie import CronLine, cron_starts, parse_cron_line
from kron.core.errors import InputError, InvalidCronExpressionError, NeverMatchesError
from kron.core.time.instant import DAY, EpochSeconds
from kron.core.time.zone import REPEATING_FROM, year_bounds, zone_of

# What cron does with starts that meet an active run, are late, or were missed.
CRON_POLICY: Mapping[str, object] = {"concurrency": "allow", "deadline": "5m", "catchup": "none"}
SHELL, PATH, MAILTO = "SHELL", "PATH", "MAILTO"
CRON_SHELL, CRON_PATH = "/bin/sh", "/usr/bin:/bin"
# Cron sets these itself, whatever a crontab says.
FIXED_VARIABLES = ("LOGNAME", "USER")
# Words before the program of a command, for its short name.
_PARTS = re.compile(r"&&|\|\||[;|{}()\n]")
_PREFIXES = frozenset(
    {"cd", "test", "[", "[[", "set", "export", "exec", "nice", "ionice", "env", "if", "then"}
)
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9._-]+")
MAX_SLUG, HASH_DIGITS = 40, 8
# How far around a clock change starts are compared: further away both follow the same minutes.
AROUND_CHANGE = 2 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLine:
    """One line of a crontab as a job definition, or the problem why it has none.

    `cron` are the times as Debian's cron reads them, None where it refuses them or the line runs at boot. A
    `harmless` problem is that of a line which cron accepts and which does nothing there either.
    """

    line: int
    raw: str
    definition: Mapping[str, object] | None = None
    cron: CronLine | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    harmless: bool = False


class StartDifference(NamedTuple):
    """An instant at which cron and Kron start a different number of runs."""

    at: EpochSeconds
    cron: int
    kron: int


class StartComparison(NamedTuple):
    """How often Kron starts a job in an interval, and every instant at which cron differs."""

    starts: int
    differences: tuple[StartDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrontabSource:
    """The crontab that is read: `stem` names its jobs, `has_user` says that its lines name a user.

    `user` runs the lines of a user's own crontab. `timezone` is the host's. `literal` leaves Kron's rule
    for clock changes, which starts every existing local time and no other.
    """

    stem: str
    has_user: bool = False
    user: str | None = None
    timezone: str = "UTC"
    literal: bool = False


def jobs_from_crontab(text: str, source: CrontabSource) -> list[ImportedLine]:
    """Return every entry of a crontab as a job definition, in order."""
    entries = parse_crontab(text, has_user=source.has_user)
    names = _names_of(entries)
    return [_imported(entry, name, source) for entry, name in zip(entries, names, strict=True)]


def compare_starts(line: ImportedLine, start: EpochSeconds, end: EpochSeconds) -> StartComparison | None:
    """Return how the starts of a line differ in `[start, end)`; None where it has no times in cron."""
    definition, cron = line.definition, line.cron
    if definition is None or cron is None:
        return None
    schedule = Schedule(
        str(definition["schedule"]),
        str(definition["timezone"]),
        dst_gap=str(definition.get("dst_gap", SKIP)),
        dst_repeat=str(definition.get("dst_repeat", BOTH)),
    )
    plan = schedule.plan
    found: list[StartDifference] = []
    for since, until in _around_changes(schedule, start, end):
        of_cron = Counter(cron_starts(cron, plan.zone, since, until))
        of_kron = Counter(seconds_between(plan, since, until))
        found += [
            StartDifference(at, of_cron[at], of_kron[at])
            for at in sorted(of_cron.keys() | of_kron.keys())
            if of_cron[at] != of_kron[at]
        ]
    return StartComparison(count_between(plan, start, end), tuple(dict.fromkeys(found)))


def _around_changes(
    schedule: Schedule, start: EpochSeconds, end: EpochSeconds
) -> Iterator[tuple[EpochSeconds, EpochSeconds]]:
    """Yield the parts of an interval in which the two can differ: both have the same fields."""
    for change in schedule.plan.zone.changes(start, end):
        yield max(start, change.at - AROUND_CHANGE), min(end, change.at + AROUND_CHANGE)


# --- names ---------------------------------------------------------------------------------------


def _names_of(entries: Sequence[CrontabEntry]) -> list[str]:
    """Return a name for each entry that does not depend on the order of the lines.

    It is derived from user and command; entries that share both add their times, and entries that are equal
    in all of this, which are interchangeable, are numbered.
    """
    commands = Counter((entry.user, entry.command) for entry in entries)
    seen: Counter[str] = Counter()
    names = []
    for entry in entries:
        key = [entry.user or "", entry.command]
        if commands[entry.user, entry.command] > 1:
            key += [" ".join(entry.expression.split()), entry.timezone or ""]
        digest = sha256("\n".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
        name = f"{_slug_of(entry)}-{digest}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return names


def _slug_of(entry: CrontabEntry) -> str:
    """Return a short name for a command: that of its program."""
    for part in _PARTS.split(entry.command.partition("%")[0]):
        for word in part.split():
            if word in _PREFIXES:
                break
            slug = _UNNAMEABLE.sub("-", word.rpartition("/")[2]).strip("-.")[:MAX_SLUG]
            if slug and "=" not in word:
                return slug
    return "job"


class _IdleLineError(InputError):
    """Cron accepts the line, and it does nothing."""


# --- definitions ---------------------------------------------------------------------------------


def _imported(entry: CrontabEntry, name: str, source: CrontabSource) -> ImportedLine:
    try:
        return _line_of(entry, f"{source.stem}/{name}", source)
    except InputError as error:
        harmless = isinstance(error, _IdleLineError)
        return ImportedLine(line=entry.line, raw=entry.raw, problem=str(error), harmless=harmless)


def _line_of(entry: CrontabEntry, identity: str, source: CrontabSource) -> ImportedLine:
    cron, times, notes = _times_of(entry, source)
    command, given = command_and_input(entry.command)
    if not command.strip():
        what = "user and command" if source.has_user and entry.user is None else "command"
        raise _IdleLineError(f"it has no {what}; cron would start an empty shell")
    user = source.user if entry.user is None else entry.user
    variables = dict(entry.variables)
    shell = variables.get(SHELL, CRON_SHELL)
    definition: dict[str, object] = {
        "identity": identity,
        **times,
        "policy": dict(CRON_POLICY),
        **({} if user is None else {"user": user}),
        "command": command,
        **({} if shell == CRON_SHELL else {"shell": shell}),
        **({} if user is not None and "HOME" not in variables else {"cwd": variables.get("HOME", "~")}),
        "env": {PATH: CRON_PATH, SHELL: CRON_SHELL, **_environment(variables)},
        **({} if given is None else {"stdin": given}),
    }
    notes += _variable_notes(variables)
    return ImportedLine(line=entry.line, raw=entry.raw, definition=definition, cron=cron, notes=tuple(notes))


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in FIXED_VARIABLES}


def _times_of(
    entry: CrontabEntry, source: CrontabSource
) -> tuple[CronLine | None, dict[str, object], list[str]]:
    """Return the times as cron reads them, the fields of the definition that have them, and notes."""
    if entry.at_boot:
        return None, {"schedule": REBOOT}, []
    zone, notes = _zone_of(entry, source)
    cron: CronLine | None = None
    text = entry.expression
    try:
        cron = parse_cron_line(text)
    except InvalidCronExpressionError as error:
        parse(text, EXTENDED, identity=source.stem)
        notes.append(f"Debian's cron refuses it ({error.details['field']}); Kron starts it")
    else:
        text = _same_times(text, cron, notes)
    times: dict[str, object] = {"schedule": text, "timezone": zone_of(zone).key}
    if cron is not None and not cron.wild and not source.literal and _has_changes(zone):
        times |= {"dst_gap": NEXT, "dst_repeat": FIRST}
    return cron, times, notes


def _has_changes(zone: str) -> bool:
    """Return whether the clocks of a zone change every year."""
    return next(zone_of(zone).changes(*year_bounds(REPEATING_FROM)), None) is not None


def _same_times(text: str, cron: CronLine, notes: list[str]) -> str:
    """Return an expression that means in Kron what the text means in cron: the text itself if it does."""
    if cron.never:
        raise _IdleLineError(
            f'"{text}" never starts in Debian\'s cron: a field has no values (a reversed range)'
        )
    try:
        written = parse(str(cron), EXTENDED)
    except NeverMatchesError as error:
        raise _IdleLineError(f'"{text}" never starts in cron either: {error.details["reason"]}') from None
    try:
        if parse(text, EXTENDED).times == written.times:
            return text
    except InvalidCronExpressionError:
        pass  # cron accepts it, so its meaning is written out
    notes.append(f'Debian\'s cron reads "{text}" as "{written.text}", which is written')
    return written.text


def _zone_of(entry: CrontabEntry, source: CrontabSource) -> tuple[str, list[str]]:
    """Return the zone of an entry: of its prefix, or of CRON_TZ; TZ is a variable of the command only."""
    if entry.timezone is not None and entry.zone_line is None:
        note = "Debian's cron reads the line as an assignment and starts nothing"
        return entry.timezone, [note]
    assigned = [value for name, value in entry.variables if name.upper() == CRON_TZ and value]
    if not assigned:
        return source.timezone, []
    return assigned[-1], [f"Debian's cron ignores {CRON_TZ} and uses the host's zone; cronie and Kron use it"]


def _variable_notes(variables: Mapping[str, str]) -> list[str]:
    notes = [f"cron sets {name} itself, so it is left out" for name in FIXED_VARIABLES if name in variables]
    if variables.get(MAILTO):
        notes.append(
            f"cron mails the output to {variables[MAILTO]}; Kron keeps it with the run and sends notices of "
            "failures: name a channel in notify.to"
        )
    return notes
