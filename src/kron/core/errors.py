"""Every error Kron raises on purpose.

KronError
├── InputError                       the caller sent something invalid
│   ├── InvalidCronExpressionError
│   │   └── NeverMatchesError
│   ├── FieldParseError
│   ├── CronCalculationError
│   ├── UnknownTimezoneError
│   ├── InvalidOptionError
│   ├── InvalidJobError
│   ├── InvalidJobFileError
│   ├── UnreadableFileError
│   ├── InvalidTraceError
│   ├── NoCandidateError
│   ├── UnknownJobError
│   ├── UnknownRunError
│   └── InvalidInstantError
├── ConflictError                    valid input, conflict with the current state
│   ├── OwnedError
│   └── BusyError
└── StoreError                       the stored state cannot be used
    └── StoreUnavailableError
        └── ClocksDifferError
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

# The most characters of a value that a message quotes; longer values are truncated.
MAX_QUOTED = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a definition: its path, the value there, and the reason."""

    path: str
    value: object
    reason: str

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.path}: {self.reason}"
        return f'{self.path} "{quoted(self.value)}": {self.reason}'


def quoted(value: object) -> str:
    """Format a value for a message, as JSON would; NUL and surrogates are escaped, long ones cut off."""
    shown = value if isinstance(value, str) else _json_like(value)
    return escaped(cut(shown))


def cut(text: str) -> str:
    """Return a text for a message, without the part beyond its limit."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def escaped(text: object) -> str:
    """Return a text for a message with NUL characters and lone surrogates escaped."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def one_line(text: str) -> str:
    """Escape control characters, so that any text is one line that is safe to print."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _json_like(value: object) -> str:
    """Return the start of a value as JSON; a list of a million entries costs no more than a short one."""
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value):
        pieces.append(piece)
        length += len(piece)
        if length > MAX_QUOTED:
            break
    return "".join(pieces)


def _pieces(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield str(value).lower()
        case list() | tuple():
            yield "["
            for number, part in enumerate(value):
                yield ", " if number else ""
                yield from _pieces(part)
            yield "]"
        case dict():
            yield "{"
            for number, (name, part) in enumerate(value.items()):
                yield ", " if number else ""
                yield from _pieces(name)
                yield ": "
                yield from _pieces(part)
            yield "}"
        case _:
            yield str(value)


class KronError(Exception):
    """Base class. `code` is stable for machines, `details` explains the message."""

    code: ClassVar[str] = "kron_error"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details

    def lines(self) -> list[str]:
        """Return the message as lines, one for each problem."""
        return [str(self)]

    def __reduce__(self) -> tuple[object, ...]:
        # Constructors take keywords only, which copy and pickle cannot replay, so the state is restored.
        return restored, (type(self), self.args, self.__dict__)


def restored(kind: type[KronError], arguments: tuple[object, ...], state: dict[str, object]) -> KronError:
    """Return an error from its pickled or copied state."""
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(state)
    return error


class InputError(KronError):
    """The caller sent something invalid."""

    code = "input_error"


class ConflictError(KronError):
    """The input is valid, but conflicts with the current state."""

    code = "conflict"


class StoreError(KronError):
    """The stored state cannot be used."""

    code = "store_error"


class StoreUnavailableError(StoreError):
    """The store cannot be reached, or cannot be read or written now; its state is not damaged."""


class ClocksDifferError(StoreUnavailableError):
    """The host's clock and the store's differ by more than the lookahead."""

    code = "clocks_differ"

    def __init__(self, *, by_ms: int) -> None:
        by = timedelta(seconds=abs(by_ms) // 1000)
        how = "ahead of" if by_ms > 0 else "behind"
        wrong = f"this host's clock is {by} {how} the database's; set the wrong one of them"
        super().__init__(f"Nothing was written: {wrong}", by_ms=by_ms)


class InvalidCronExpressionError(InputError):
    """A cron expression does not follow its dialect."""

    code = "invalid_cron_expression"

    def __init__(self, *, expression: str, field: str, reason: str) -> None:
        super().__init__(
            f'Invalid cron expression "{expression}": {field} field {reason}',
            expression=expression,
            field=field,
            reason=reason,
        )
        self.expression = expression
        self.field = field
        self.reason = reason


class NeverMatchesError(InvalidCronExpressionError):
    """A cron expression follows its dialect, but no day of any year matches it."""


class FieldParseError(InputError):
    """One field of a cron expression does not follow its dialect."""

    code = "invalid_cron_field"

    def __init__(self, *, field_value: str, field_name: str, reason: str) -> None:
        super().__init__(f"{field_name} field {reason}", fieldValue=field_value, fieldName=field_name)
        self.field_value = field_value
        self.field_name = field_name
        self.reason = reason


class CronCalculationError(InputError):
    """A schedule has no occurrence in the requested direction."""

    code = "cron_calculation"

    def __init__(self, *, expression: str, current_time: str, cause: Exception) -> None:
        super().__init__(
            f"Failed to calculate next occurrence: {cause}",
            expression=expression,
            currentTime=current_time,
            cause=cause,
        )
        self.__cause__ = cause


class UnknownTimezoneError(InputError):
    """A time zone is not in the IANA database."""

    code = "unknown_timezone"

    def __init__(self, *, timezone: object, suggestions: Iterable[str] = ()) -> None:
        close = tuple(suggestions)
        hint = f"did you mean {' or '.join(close)}?" if close else 'use an IANA name such as "Europe/Berlin"'
        super().__init__(
            f'Unknown timezone "{quoted(timezone)}": {hint}', timezone=timezone, suggestions=close
        )


class InvalidOptionError(InputError):
    """An option has an invalid value."""

    code = "invalid_option"

    def __init__(self, *, option: str, value: object, reason: str) -> None:
        super().__init__(f'Invalid {option} "{value}": {reason}', option=option, value=value, reason=reason)


class InvalidInstantError(InputError):
    """A time is not an aware datetime, so it does not identify an instant."""

    code = "invalid_instant"

    def __init__(self, *, value: object, reason: str) -> None:
        super().__init__(f'Invalid instant "{value}": {reason}', value=value, reason=reason)


class InvalidJobError(InputError):
    """A job's definition has one or more problems, each with its path."""

    code = "invalid_job"

    def __init__(self, *, identity: object, problems: Sequence[Problem]) -> None:
        name = f'job "{escaped(identity)}"' if identity else "job"
        super().__init__(
            f"Invalid {name}: {'; '.join(map(str, problems))}", identity=identity, problems=tuple(problems)
        )
        self.problems = tuple(problems)


class InvalidJobFileError(InputError):
    """One or more jobs of a file are invalid, each problem with its path and, if known, its line.

    `columns` are the columns of paths in formats that have a job on one line.
    """

    code = "invalid_job_file"

    def __init__(
        self,
        *,
        problems: Sequence[object],
        file: str | None = None,
        lines: Mapping[str, int] | None = None,
        columns: Mapping[str, int] | None = None,
    ) -> None:
        self.problems = tuple(problems)
        self.file = file
        self._line_of = lines or {}
        self._column_of = columns or {}
        super().__init__("; ".join(self.lines()), problems=self.problems, file=file)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        placed = [(self._place_of(getattr(problem, "path", "")), problem) for problem in self.problems]
        ordered = sorted(placed, key=lambda pair: pair[0])
        return [f"{self._prefix(place)}{problem}" for place, problem in ordered]

    def _place_of(self, path: str) -> tuple[int, int]:
        """Return line and column of a path, or of the nearest that has them; 0 where unknown."""
        while path and path not in self._line_of:
            path = path.rpartition(".")[0] or path.rpartition("[")[0]
        return self._line_of.get(path, 0), self._column_of.get(path, 0)

    def _prefix(self, place: tuple[int, int]) -> str:
        return ":".join(str(part) for part in (self.file, *place) if part) + ": " if self.file else ""


class UnreadableFileError(InputError):
    """A file cannot be read, or is not in the expected format."""

    code = "unreadable_file"

    def __init__(self, *, file: str, reason: str) -> None:
        super().__init__(f'Cannot read "{file}": {reason}', file=file, reason=reason)


class InvalidTraceError(InputError):
    """A trace is not in its format, or its time goes back, at `line`."""

    code = "invalid_trace"

    def __init__(self, *, line: int, reason: str) -> None:
        super().__init__(f"Invalid trace, line {line}: {reason}", line=line, reason=reason)
        self.line = line
        self.reason = reason


class NoCandidateError(InputError):
    """A job's constraints leave no time in any of the examined windows."""

    code = "no_candidate"

    def __init__(self, *, identity: str, count: int, since: str) -> None:
        super().__init__(
            f'Job "{identity}" has no time its constraints allow in {count} periods from {since}',
            identity=identity,
            count=count,
            since=since,
        )


class UnknownJobError(InputError):
    """A requested job does not exist."""

    code = "unknown_job"

    def __init__(self, *, namespace: str, identity: str) -> None:
        super().__init__(
            f'There is no job "{identity}" in the namespace "{namespace}"',
            namespace=namespace,
            identity=identity,
        )


class UnknownRunError(InputError):
    """No run has this idempotency key, or none that its executor reports."""

    code = "unknown_run"

    def __init__(self, *, idempotency_key: str) -> None:
        super().__init__(
            f'There is no run with the key "{idempotency_key}" that its executor reports',
            idempotency_key=idempotency_key,
        )


class OwnedError(ConflictError):
    """The jobs are owned by another process."""

    code = "owned"

    def __init__(self, *, namespace: str, owner: str) -> None:
        super().__init__(
            f'The jobs of "{namespace}" in {owner} are owned by another process: '
            "stop it first, or wait until it has ended",
            namespace=namespace,
            owner=owner,
        )


class BusyError(ConflictError):
    """Other writers kept changing the same jobs."""

    code = "busy"

    def __init__(self, *, identities: Sequence[str]) -> None:
        super().__init__(
            f"Other writers keep changing {', '.join(identities)}: try again", identities=list(identities)
        )


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among an option's choices."""
    if value not in choices:
        raise InvalidOptionError(option=option, value=value, reason=f"use one of {', '.join(choices)}")
