"""What a command is asked about: an expression, a crontab, or a file of jobs."""

from dataclasses import dataclass
from pathlib import Path

from kron.core.crontab import Entry, parse_crontab
from kron.core.errors import InputError, InvalidJobFileError, InvalidOptionError, UnreadableFileError
from kron.core.schedule import Schedule


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


def is_file(argument: str) -> bool:
    """Say whether an argument names an existing file."""
    try:
        return Path(argument).is_file()
    except (OSError, ValueError):
        return False


def crontab_schedules(argument: str, options: Options) -> list[tuple[Entry, Schedule]]:
    """Return the entries of a crontab with their schedules, or raise with every line that is wrong."""
    from kron.cli.jobfile import read_text

    found: list[tuple[Entry, Schedule]] = []
    problems: list[str] = []
    for entry in parse_crontab(read_text(Path(argument))):
        try:
            found.append((entry, options.schedule(entry.expression, entry.timezone)))
        except InputError as error:
            problems.append(f"{argument}:{entry.line}: {error}")
    if problems:
        raise InvalidJobFileError(problems=problems)
    if not found:
        raise UnreadableFileError(file=argument, reason="it names no times")
    return found
