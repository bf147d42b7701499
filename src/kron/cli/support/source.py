"""The subject of a command: an expression, a crontab, or a job file."""

import re
from dataclasses import dataclass
from pathlib import Path

from kron.cli.main import print_error
from kron.cli.support.read import MAX_CRONTAB, MAX_JOBS, STDIN, read_text
from kron.core.cron.crontab import CrontabEntry, parse_crontab
from kron.core.cron.schedule import Schedule
from kron.core.errors import (
    InputError,
    InvalidJobFileError,
    InvalidOptionError,
    UnknownTimezoneError,
    UnreadableFileError,
)

# Suffixes of job files.
KRONTAB = ".krontab"
SUFFIXES = (".yaml", ".yml", ".json", KRONTAB)
# One word with a slash or a dot, which no expression is, unless it is a field such as */15.
_PATH = re.compile(r"[^@\s]\S*[/.]\S*|[/.]\S*")
_FIELD = re.compile(r"[0-9*,/.+-]*")
# The start of a job file, and never of a crontab: a bracket, a list item, a field.
_JOBS = re.compile(r"""[\[{&!]|---|%YAML|-(?:\s|$)|(["']?)[\w./-]+\1\s*:(?:\s|$)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The text of a file, a pipe or standard input."""

    name: str
    text: str
    has_jobs: bool


def read_source(argument: str) -> Source | None:
    """Return the file an argument names, or None if it is an expression."""
    if not is_file(argument):
        return None
    if Path(argument).suffix.lower() in SUFFIXES:
        return Source(name=argument, text=read_text(argument, MAX_JOBS), has_jobs=True)
    if argument != STDIN and Path(argument).is_file():
        return Source(name=argument, text=read_text(argument, MAX_CRONTAB), has_jobs=False)
    # A pipe has no suffix.
    text = read_text(argument, MAX_JOBS)
    return Source(name=argument, text=text, has_jobs=looks_like_jobs(text))


def looks_like_jobs(text: str) -> bool:
    """Return whether a text is a job file, not a crontab."""
    lines = (line.strip() for line in text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _JOBS.match(first) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options for schedules that do not set them themselves."""

    tz: str | None
    dialect: str
    identity: str | None
    dst_gap: str
    dst_repeat: str

    def schedule(self, text: str, timezone: str | None = None) -> Schedule:
        """Return a schedule with these options; its zone takes precedence."""
        return Schedule(
            text,
            timezone or self.tz,
            dialect=self.dialect,
            identity=self.identity,
            dst_gap=self.dst_gap,
            dst_repeat=self.dst_repeat,
        )

    def check_unused(self, file: str) -> None:
        """Raise for options that a job file sets itself."""
        if (self.tz, self.dialect, self.identity, self.dst_gap, self.dst_repeat) != (
            None,
            "extended",
            None,
            "skip",
            "both",
        ):
            reason = "a job file sets zone, dialect, identity and DST options itself"
            raise InvalidOptionError(option="option for", value=file, reason=reason)


def check_crontab_only(source: Source | None, *, system: bool) -> None:
    """Raise for `--system` with anything but a crontab."""
    if system and (source is None or source.has_jobs):
        raise InputError("Invalid --system: it is for crontabs only")


def is_file(argument: str) -> bool:
    """Return whether an argument names a file; a path that does not exist is an error."""
    if argument == STDIN:
        return True
    path = Path(argument)
    try:
        # An empty path would be the working directory.
        exists, is_folder = bool(argument) and path.exists(), bool(argument) and path.is_dir()
    except (OSError, ValueError):
        exists = is_folder = False
    if is_folder:
        raise UnreadableFileError(file=argument, reason="it is a directory")
    if not exists and _PATH.fullmatch(argument) and not _FIELD.fullmatch(argument):
        raise InputError(f'No such file: "{argument}" (put an expression in quotes, as in "0 9 * * 1-5")')
    return exists


def timed_entries(source: Source, *, system: bool) -> list[CrontabEntry]:
    """Return the entries of a crontab that have times; the others (@reboot) are valid and get a note."""
    entries = parse_crontab(source.text, has_user=system)
    for entry in entries:
        if entry.at_boot:
            print_error(f"note: {source.name}:{entry.line}: {entry.expression} has no time and is ignored")
    return [entry for entry in entries if not entry.at_boot]


def crontab_schedules(
    source: Source, options: Options, *, system: bool
) -> list[tuple[CrontabEntry, Schedule]]:
    """Return the entries of a crontab with their schedules, or raise with every invalid line."""
    schedules: list[tuple[CrontabEntry, Schedule]] = []
    problems: dict[str, None] = {}
    for entry in timed_entries(source, system=system):
        try:
            schedules.append((entry, options.schedule(entry.expression, entry.timezone)))
        except InputError as error:
            # The problem of a zone is reported once, with the line that assigns it.
            assigned = entry.zone_line if isinstance(error, UnknownTimezoneError) else None
            problems[f"{source.name}:{assigned or entry.line}: {error}"] = None
    if problems:
        raise InvalidJobFileError(problems=list(problems))
    if not schedules:
        raise UnreadableFileError(file=source.name, reason="it has no times")
    return schedules
