"""What a command is asked about: an expression, a crontab, or a file of jobs."""

import re
from dataclasses import dataclass
from pathlib import Path

from kron.cli.main import complain
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

# The endings of files of jobs.
SUFFIXES = (".yaml", ".yml", ".json")
# One word with a slash or a dot in it, which no expression is, unless it is a field such as */15.
_PATH = re.compile(r"[^@\s]\S*[/.]\S*|[/.]\S*")
_FIELD = re.compile(r"[0-9*,/.+-]*")
# How the first line of a file of jobs begins, and no line of a crontab: a bracket, an item, a field.
_JOBS = re.compile(r"""[\[{&!]|---|%YAML|-(?:\s|$)|(["']?)[\w./-]+\1\s*:(?:\s|$)""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file, a pipe or standard input, read once."""

    name: str
    text: str
    has_jobs: bool


def read_source(argument: str) -> Source | None:
    """Return what stands in the file an argument names; None if it is an expression."""
    if not is_file(argument):
        return None
    if Path(argument).suffix.lower() in SUFFIXES:
        return Source(name=argument, text=read_text(argument, MAX_JOBS), has_jobs=True)
    if argument != STDIN and Path(argument).is_file():
        return Source(name=argument, text=read_text(argument, MAX_CRONTAB), has_jobs=False)
    # A pipe has no name that tells what comes out of it.
    text = read_text(argument, MAX_JOBS)
    return Source(name=argument, text=text, has_jobs=looks_like_jobs(text))


def looks_like_jobs(text: str) -> bool:
    """Say whether a text begins as a file of jobs does, and not as a crontab."""
    lines = (line.strip() for line in text.split("\n"))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _JOBS.match(first) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says of schedules that say nothing of it themselves."""

    tz: str | None
    dialect: str
    identity: str | None
    dst_gap: str
    dst_repeat: str

    def schedule(self, text: str, timezone: str | None = None) -> Schedule:
        """Return a schedule under these options; its own zone goes before theirs."""
        return Schedule(
            text,
            timezone or self.tz,
            dialect=self.dialect,
            identity=self.identity,
            dst_gap=self.dst_gap,
            dst_repeat=self.dst_repeat,
        )

    def check_unused(self, file: str) -> None:
        """Refuse options that a file of jobs says for itself."""
        if (self.tz, self.dialect, self.identity, self.dst_gap, self.dst_repeat) != (
            None,
            "extended",
            None,
            "skip",
            "both",
        ):
            reason = "a file of jobs says zone, dialect, identity and DST options itself"
            raise InvalidOptionError(option="option for", value=file, reason=reason)


def check_crontab_only(source: Source | None, *, system: bool) -> None:
    """Refuse `--system` beside what is no crontab."""
    if system and (source is None or source.has_jobs):
        raise InputError("Invalid --system: it is for crontabs only")


def is_file(argument: str) -> bool:
    """Say whether an argument names a file; refuse what can only be meant as one that is not there."""
    if argument == STDIN:
        return True
    path = Path(argument)
    try:
        # The empty text would be the folder we are in.
        found, folder = bool(argument) and path.exists(), bool(argument) and path.is_dir()
    except (OSError, ValueError):
        found = folder = False
    if folder:
        raise UnreadableFileError(file=argument, reason="it is a folder")
    if not found and _PATH.fullmatch(argument) and not _FIELD.fullmatch(argument):
        raise InputError(f'No such file: "{argument}" (an expression stands in quotes, as in "0 9 * * 1-5")')
    return found


def timed_entries(source: Source, *, system: bool) -> list[CrontabEntry]:
    """Return the entries of a crontab that name times; of the others, which are legal, there is a note."""
    entries = parse_crontab(source.text, has_user=system)
    for entry in entries:
        if entry.at_boot:
            complain(f"note: {source.name}:{entry.line}: {entry.expression} names no time; it is passed over")
    return [entry for entry in entries if not entry.at_boot]


def crontab_schedules(
    source: Source, options: Options, *, system: bool
) -> list[tuple[CrontabEntry, Schedule]]:
    """Return the entries of a crontab with their schedules, or raise with every line that is wrong."""
    found: list[tuple[CrontabEntry, Schedule]] = []
    problems: dict[str, None] = {}
    for entry in timed_entries(source, system=system):
        try:
            found.append((entry, options.schedule(entry.expression, entry.timezone)))
        except InputError as error:
            # What is wrong with a zone stands where it is assigned, and is said once.
            assigned = entry.zone_line if isinstance(error, UnknownTimezoneError) else None
            problems[f"{source.name}:{assigned or entry.line}: {error}"] = None
    if problems:
        raise InvalidJobFileError(problems=list(problems))
    if not found:
        raise UnreadableFileError(file=source.name, reason="it names no times")
    return found
