"""Settings of a process: a dataclass that is read from a file, the environment and options.

A front declares its settings as fields of a frozen dataclass with `setting`; a field is the whole entry:
type, default, parser, help and what of it is secret. `SettingsReader` reads them, and knows their sources.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from kron.app.redaction import Sensitive
from kron.core.errors import InputError, Problem, UnreadableFileError
from kron.core.fields import count_in, invalid_value, parse_bool, suggestion

PREFIX = "KRON_"
# Where a value may come from; a later source overrides an earlier one.
DEFAULT, FILE, ENVIRONMENT, OPTION = SOURCES = ("default", "file", "environment", "option")
# Longer digits are no number of any setting.
MAX_DIGITS = 18

T = TypeVar("T")
S = TypeVar("S")


class Setting(NamedTuple):
    """One setting: how it is parsed, its help, and what of it is secret.

    A `bare` one is also read from the environment without the prefix. `file_of` names the setting whose
    value its file holds; with `exclusive`, both may not be given.
    """

    parse: Callable[[object], object]
    help_text: str
    sensitive: Sensitive | None = None
    show: Callable[[Any], object] | None = None
    bare: bool = False
    file_of: str | None = None
    exclusive: bool = False


def setting(parse: Callable[[object], T], help_text: str, *, default: T, **options: Any) -> T:
    """Declare a setting as a field of a dataclass; `options` are further fields of `Setting`."""
    entry = Setting(parse, help_text, **options)
    # A sensitive value is not in the `repr`, which ends up in logs.
    shown, metadata = entry.sensitive is None, {"setting": entry}
    if isinstance(default, dict):
        return field(default_factory=default.copy, repr=shown, metadata=metadata)  # type: ignore[return-value]
    return field(default=default, repr=shown, metadata=metadata)


class InvalidSettingsError(InputError):
    """One or more settings are invalid, each with its name at its source."""

    code = "invalid_settings"

    def __init__(self, *, problems: list[Problem]) -> None:
        super().__init__(f"Invalid settings: {'; '.join(map(str, problems))}", problems=tuple(problems))
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        return [f"Invalid settings: {problem}" for problem in self.problems]


class SettingValue(NamedTuple):
    """A given value, its source, and its name there."""

    value: object
    source: str
    name: str


class Effective(NamedTuple, Generic[S]):
    """The settings in effect, and the values that were given."""

    settings: S
    given: Mapping[str, SettingValue]

    def rows(self) -> list[dict[str, object]]:
        """Return every setting with its value, source and help; secrets are redacted."""
        return [self._row(name, entry) for name, entry in settings_table(type(self.settings)).items()]

    def _row(self, name: str, entry: Setting) -> dict[str, object]:
        given = self.given.get(name)
        return {
            "name": name,
            "value": _shown(entry, getattr(self.settings, name)),
            "source": DEFAULT if given is None else given.source,
            "place": None if given is None else given.name,
            "means": entry.help_text,
        }


def _shown(entry: Setting, value: object) -> object:
    if value is None:
        return None
    if entry.show is not None:
        return entry.show(value)
    if entry.sensitive is not None:
        return entry.sensitive.redact(value)
    return sorted(value) if isinstance(value, frozenset) else value


def settings_table(kind: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name."""
    return {each.name: each.metadata["setting"] for each in fields(kind)}


class SettingsReader(Generic[S]):
    """Reads the settings of one dataclass; `commands` are further variables with the prefix."""

    def __init__(self, kind: type[S], *, commands: Iterable[str] = ()) -> None:
        self._kind = kind
        self._commands = tuple(commands)
        self.table = settings_table(kind)

    def read(
        self, environment: Mapping[str, str], options: Mapping[str, object], *, file: str | None = None
    ) -> Effective[S]:
        """Return the settings in effect, or raise with every problem; an option that is None is absent."""
        given = _in_file(file or environment.get(f"{PREFIX}CONFIG"))
        for name, entry in self.table.items():
            upper = name.upper()
            for variable in ([upper] if entry.bare else []) + [PREFIX + upper]:
                if variable in environment:
                    given[name] = SettingValue(environment[variable], ENVIRONMENT, variable)
            if options.get(name) is not None:
                given[name] = SettingValue(options[name], OPTION, f"--{name.replace('_', '-')}")
        problems = self._unknown(environment) + self._settle_files(given)
        values: dict[str, object] = {}
        for name, (value, _, place) in given.items():
            if name not in self.table:
                problems.append(Problem(place, None, f"unknown setting; {suggestion(name, self.table)}"))
                continue
            try:
                values[name] = self.table[name].parse(value)
            except InputError as error:
                quoted = error.details.get("value", value)
                problems.append(Problem(place, quoted, str(error.details.get("reason", error))))
        if problems:
            raise InvalidSettingsError(problems=problems)
        return Effective(self._kind(**values), given)

    def _settle_files(self, given: dict[str, SettingValue]) -> list[Problem]:
        """Drop a file whose value a later source gives itself; report values that are given twice."""
        problems = []
        for name, entry in self.table.items():
            if name not in given or entry.file_of not in given:
                continue
            file, value = given[name], given[entry.file_of]
            if entry.exclusive:
                problems.append(Problem(file.name, file.value, f"{entry.file_of} is set too; use one"))
            elif SOURCES.index(value.source) > SOURCES.index(file.source):
                del given[name]
        return problems

    def _unknown(self, environment: Mapping[str, str]) -> list[Problem]:
        """Return the variables with the prefix that no setting reads: most are misspelt."""
        known = {PREFIX + name.upper() for name in (*self.table, *self._commands)}
        return [
            Problem(name, None, f"unknown setting; {suggestion(name, sorted(known))}")
            for name in sorted(environment)
            if name.startswith(PREFIX) and name not in known
        ]


def _in_file(path: str | None) -> dict[str, SettingValue]:
    if path is None:
        return {}
    import tomllib

    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise UnreadableFileError(file=path, reason=str(reason)) from cause
    return {name: SettingValue(value, FILE, f"{path}: {name}") for name, value in document.items()}


def text_in(path: str) -> str:
    """Return the text of a file that a setting names, such as a secret."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8"
        raise UnreadableFileError(file=path, reason=str(reason)) from cause


# --- parsers of values that are texts in the environment -----------------------------------------------


def integer(low: int, high: int, **words: int) -> Callable[[object], int]:
    """Return a parser of whole numbers in a range, and of some words that stand for one."""
    read = count_in(low, high)
    reason = " or ".join(["must be a whole number", *words])

    def parse(value: object) -> int:
        text = value.strip() if isinstance(value, str) else ""
        if text in words:
            return words[text]
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS
        if isinstance(value, str) and not is_number:
            raise invalid_value(value, reason)
        return read(int(text) if is_number else value)

    return parse


def boolean(value: object) -> bool:
    """Parse true or false."""
    text = value.strip().lower() if isinstance(value, str) else ""
    return parse_bool({"true": True, "1": True, "false": False, "0": False}.get(text, value))


def words(value: object) -> frozenset[str]:
    """Parse a list of words; in the environment they are separated by commas."""
    listed = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise invalid_value(value, "must be a list of strings")
    return frozenset(filter(None, listed))


def json_value(value: object) -> object:
    """Parse JSON in the environment; in a file it is a table. It may be secret, so it is not quoted."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError as cause:
        raise invalid_value("...", f"must be a JSON object: {cause}") from cause
