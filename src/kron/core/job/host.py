"""The fields of a job that is a process on a host: its command, user, environment, limits and output.

They stand flat in a job file and are fields of the launcher object of the kind `process`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from kron.core.fields import (
    FieldSpec,
    FieldTable,
    Schema,
    ValueType,
    count_in,
    invalid_value,
    optional,
    parse_bool,
    parse_text,
    unchanged,
)
from kron.core.value_types import choice, names_of, nullable, whole_number

# Where a stream of a process goes, beside a file.
CAPTURE, INHERIT, DISCARD, JOURNAL = STREAMS = ("capture", "inherit", "discard", "journal")
# A file of output is rotated before a start that finds it larger than this, and this many old ones are kept.
DEFAULT_FILE_SIZE, DEFAULT_FILES_KEPT = 10 * 1024 * 1024, 5
MAX_FILE_SIZE, MAX_FILES_KEPT = 1 << 40, 100
MAX_EXIT_CODE = 255
UMASK = re.compile("0?[0-7]{1,3}")


class OnRemove(StrEnum):
    """What happens to a running process whose job is removed from its file."""

    KEEP = "keep"
    TERMINATE = "terminate"


def _parse_shell(value: object) -> str | None:
    """Return the path of a shell; true is /bin/sh."""
    if isinstance(value, bool):
        return "/bin/sh" if parse_bool(value) else None
    path = parse_text(value)
    if not path.startswith("/"):
        raise invalid_value(value, "must be true, or the absolute path of a shell")
    return path


def _parse_account(value: object) -> str:
    """Return the name or the number of a user or group, as text."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    text = parse_text(value)
    if not text or ":" in text:
        raise invalid_value(value, "must be a name or a number")
    return text


def _parse_umask(value: object) -> str:
    if not isinstance(value, str) or not UMASK.fullmatch(value):
        raise invalid_value(value, 'must be octal digits in quotes, such as "022"')
    return value


def _parse_codes(value: object) -> tuple[int, ...]:
    given = value if isinstance(value, list | tuple) else [value]
    if not given:
        raise invalid_value(value, "must have at least one exit code")
    return tuple(sorted({count_in(0, MAX_EXIT_CODE)(code) for code in given}))


def _parse_stream(value: object) -> str | tuple[tuple[str, object], ...]:
    """Return where a stream goes: a word, or a file with its rotation as pairs."""
    if isinstance(value, str) and value in STREAMS:
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("file"), str):
        raise invalid_value(value, f"use {', '.join(STREAMS)}, or an object with file")
    if unknown := sorted(str(name) for name in value.keys() - {"file", "max_size", "keep"}):
        raise invalid_value(value, f"unknown field {unknown[0]}; use file, max_size, keep")
    if not str(value["file"]).startswith("/"):
        raise invalid_value(value, "file must be an absolute path")
    size = count_in(1, MAX_FILE_SIZE)(value.get("max_size", DEFAULT_FILE_SIZE))
    keep = count_in(0, MAX_FILES_KEPT)(value.get("keep", DEFAULT_FILES_KEPT))
    return (("file", parse_text(value["file"])), ("keep", keep), ("max_size", size))


def _write_stream(value: object) -> object:
    return dict(value) if isinstance(value, tuple) else value


_WORDS: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}
# Every launcher object has these, and its kind parses them.
COMMAND_SCHEMA: Schema = {"oneOf": [{"type": "string", "minLength": 1}, _WORDS]}
_COMMAND = ValueType(schema=COMMAND_SCHEMA, parse=unchanged)
_FOLDER = ValueType(schema={"type": ["string", "null"]}, parse=unchanged)
_VARIABLES = ValueType(schema={"type": "object", "additionalProperties": {"type": "string"}}, parse=unchanged)
_SHELL = ValueType(
    schema={"oneOf": [{"type": "boolean"}, {"type": "string", "pattern": "^/"}]}, parse=_parse_shell
)
_ACCOUNT = ValueType(
    schema={"oneOf": [{"type": "string", "pattern": "^[^:]+$"}, {"type": "integer", "minimum": 0}]},
    parse=_parse_account,
)
_UMASK = ValueType(schema={"type": "string", "pattern": f"^{UMASK.pattern}$"}, parse=_parse_umask)
_CODE: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_EXIT_CODE}
_CODES = ValueType(
    schema={"oneOf": [_CODE, {"type": "array", "items": _CODE, "minItems": 1}]},
    parse=_parse_codes,
    write=lambda value: list(value) if isinstance(value, tuple) else value,
)
_FILE: Schema = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "pattern": "^/"},
        "max_size": {"type": "integer", "minimum": 1, "maximum": MAX_FILE_SIZE},
        "keep": {"type": "integer", "minimum": 0, "maximum": MAX_FILES_KEPT},
    },
    "required": ["file"],
    "additionalProperties": False,
}
_STREAM = ValueType(
    schema={"oneOf": [{"enum": list(STREAMS)}, _FILE]}, parse=_parse_stream, write=_write_stream
)
_TEXT = ValueType(schema={"type": ["string", "null"]}, parse=optional(parse_text))


def _row(name: str, type_: ValueType, doc: str, default: object = None) -> FieldSpec:
    return FieldSpec(name, type_, doc, default, (name,), sparse=True)


HOST = FieldTable(
    (
        _row("command", _COMMAND, "a list of words, or one string for a shell"),
        _row(
            "shell",
            nullable(_SHELL),
            "the shell that runs the command: `true` is /bin/sh, which a string has anyway; the words of a "
            "list are joined by spaces",
        ),
        _row("user", nullable(_ACCOUNT), "the user it runs as, with that user's groups; by default krond's"),
        _row("group", nullable(_ACCOUNT), "its main group; by default the user's"),
        _row("cwd", _FOLDER, "the folder it runs in; `~` is the home of its user"),
        _row("env", _VARIABLES, "further variables; their values are never shown", ()),
        _row("env_file", _TEXT, "a file of `NAME=value` lines, read at each start; `env` wins"),
        _row("umask", nullable(_UMASK), 'its file mode mask, in quotes: `"022"`'),
        _row("nice", nullable(whole_number(-20, 19)), "its niceness"),
        _row("stdin_text", _TEXT, "the text of its standard input; `stdin` in a job file"),
        _row(
            "stdout",
            _STREAM,
            "where its output goes: `capture` keeps the start and the end of it with the run, `inherit` is "
            "krond's own output, `discard`, `journal`, or an object with `file`, `max_size` and `keep`",
            CAPTURE,
        ),
        _row("stderr", _STREAM, "where its error output goes, as `stdout`", CAPTURE),
        _row("success_exit_codes", _CODES, "the exit codes that are a success", (0,)),
        _row(
            "on_remove",
            choice(names_of(OnRemove)),
            "what happens to a running process whose job is removed: `keep` lets it end, `terminate` ends it",
            OnRemove.KEEP,
        ),
    )
)
# The words of a job file, each with its field of the launcher object.
HOST_WORDS: Mapping[str, str] = {
    "stdin" if row.name == "stdin_text" else row.word: row.word for row in HOST.rows
}
