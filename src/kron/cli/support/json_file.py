"""JSON as people write it in files: read strictly, and with the line of everything in it."""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

# The longest whole number that is read; what is longer becomes one that every check finds too long.
MAX_BITS = 4096
MAX_DIGITS = 1000
TOO_LONG = 1 << MAX_BITS + 1

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class TextError(Exception):
    """Why a text cannot be read, and in which line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class FilePosition(NamedTuple):
    """A field or an item of a JSON text: its path, its line, the word that stands there, and its name."""

    path: str
    line: int
    word: str
    name: str = ""


def parse_json(text: str) -> object:
    """Return the value of a text; a field that stands twice and what is not JSON are a TextError."""
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_int)
    except json.JSONDecodeError as error:
        reason = f"it is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        raise TextError(error.lineno, reason) from None
    except _RefusedError:
        raise _fault_in(text) from None
    return value


def lines_of_json(text: str) -> dict[str, int]:
    """Return the line of each path in a text that is JSON."""
    return {place.path: place.line for place in _places(text)}


class _RefusedError(Exception):
    """There is a fault; where, is found out afterwards."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _RefusedError
    return found


def _constant(name: str) -> object:
    raise _RefusedError


def _int(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS else TOO_LONG


def _fault_in(text: str) -> TextError:
    """Return why a text was refused: the first field that stands twice, or word that is not JSON."""
    seen: set[str] = set()
    for path, line, word, name in _places(text):
        if word in _CONSTANTS:
            return TextError(line, f"{word} is not JSON")
        if path in seen:
            return TextError(line, f'the field "{name}" stands twice in one object')
        seen.add(path)
    return TextError(1, "it has a field twice")


def _places(text: str) -> Iterator[FilePosition]:
    """Yield each field and each item of a text in order; the line of a field is that of its name."""
    # For each open bracket: the path of the value, and the number of the next item, or None for fields.
    opened: list[tuple[str, int | None]] = []
    path, line, counted = "", 1, 0
    field: tuple[str, int] | None = None
    for found in _TOKEN.finditer(text):
        word = found[0]
        line, counted = line + text.count("\n", counted, found.start()), found.start()
        if word in ("]", "}"):
            opened = opened[:-1]
        elif word in (":", ","):
            continue
        elif opened and opened[-1][1] is None and field is None:
            field = json.loads(word), line
        else:
            if field is not None:
                (name, place), field = field, None
                path = f"{opened[-1][0]}.{name}" if opened[-1][0] else name
                yield FilePosition(path, place, word, name)
            elif opened:
                parent, number = opened[-1]
                opened[-1] = parent, (number or 0) + 1
                path = f"{parent}[{number}]"
                yield FilePosition(path, line, word)
            else:
                path = ""
                yield FilePosition(path, line, word)
            if word in ("[", "{"):
                opened.append((path, 0 if word == "[" else None))
