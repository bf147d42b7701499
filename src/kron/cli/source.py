"""What a command is asked about: an expression, a crontab, or a file of jobs."""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kron.core.crontab import Entry, parse_crontab
from kron.core.errors import InputError, InvalidJobFileError, InvalidOptionError, UnreadableFileError
from kron.core.schedule import Schedule

# One word with a slash or a dot in it, which no expression is, unless it is a field such as */15.
_PATH = re.compile(r"[^@\s]\S*[/.]\S*|[/.]\S*")
# One step of a path: a name, or a number in brackets.
_STEP = re.compile(r"\[([0-9]+)\]|([^.\[\]]+)")
_FIELD = re.compile(r"[0-9*,/.+-]*")


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
    """Say whether an argument names a file; refuse what can only be meant as one that is not there."""
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


class JobText:
    """A file of jobs as it is written: plain data, and the line of every path in it.

    `load_jobs` has to accept or refuse the file first: it bounds what hostile files can do.
    """

    def __init__(self, argument: str) -> None:
        import json

        import yaml

        from kron.cli.jobfile import Loader, read_text

        path = Path(argument)
        text = read_text(path)
        self._node: object = None
        # Nearly all JSON is YAML; where it is not, every line is the first.
        with suppress(yaml.YAMLError):
            self._node = yaml.compose(text, Loader=Loader)
        is_json = path.suffix.lower() == ".json"
        self.content: object = json.loads(text) if is_json else yaml.load(text, Loader=Loader)

    def line_of(self, path: str) -> int:
        """Return the line of a path such as ``jobs[2].policy.deadline``, or of the nearest around it."""
        from yaml import MappingNode, Node, SequenceNode

        node, line = self._node, 1
        for number, name in _STEP.findall(path):
            found: tuple[int, object] | None = None
            if isinstance(node, MappingNode) and name:
                found = next(((k.start_mark.line, v) for k, v in node.value if k.value == name), None)
            elif isinstance(node, SequenceNode) and number and int(number) < len(node.value):
                item: Node = node.value[int(number)]
                found = item.start_mark.line, item
            if found is None:
                break
            line, node = found[0] + 1, found[1]
        return line


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
