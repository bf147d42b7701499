"""Strict JSON: duplicate fields and NaN are errors, and every value has its line."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

# The longest integer that is parsed; a longer one becomes TOO_LONG, which every check rejects.
MAX_BITS = 4096
MAX_DIGITS = 1000
TOO_LONG = 1 << MAX_BITS + 1

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class TextError(Exception):
    """Why a text is invalid, and in which line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class FilePosition(NamedTuple):
    """A field or an item of a JSON text: its path, its line, its first token, and its name."""

    path: str
    line: int
    word: str
    name: str = ""


def parse_json(text: str) -> object:
    """Return the value of a text, or raise TextError."""
    try:
        value: object = json.loads(
            text, object_pairs_hook=unique_fields, parse_constant=no_constant, parse_int=_int
        )
    except json.JSONDecodeError as error:
        reason = f"it is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        raise TextError(error.lineno, reason) from None
    except ValueError:
        raise _fault_in(text) from None
    return value


def lines_of_json(text: str) -> dict[str, int]:
    """Return the line of each path in a text that is JSON."""
    return {place.path: place.line for place in _places(text)}


def unique_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of a JSON text; a duplicate field is a ValueError."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f'duplicate field "{names.most_common(1)[0][0]}"')
    return fields


def no_constant(name: str) -> object:
    """Reject NaN and infinities, which JSON does not have, with a ValueError."""
    raise ValueError(f"{name} is not JSON")


def _int(text: str) -> int:
    return int(text) if len(text) <= MAX_DIGITS else TOO_LONG


def _fault_in(text: str) -> TextError:
    """Return the first duplicate field, or constant that is not JSON, with its line."""
    seen: set[str] = set()
    for path, line, word, name in _places(text):
        if word in _CONSTANTS:
            return TextError(line, f"{word} is not JSON")
        if path in seen:
            return TextError(line, f'duplicate field "{name}"')
        seen.add(path)
    return TextError(1, "duplicate field")


def _places(text: str) -> Iterator[FilePosition]:
    """Yield each field and item of a text in order; the line of a field is that of its name."""
    # For each open bracket: the path of its value, and the index of the next item, or None in an object.
    opened: list[tuple[str, int | None]] = []
    path, line, counted = "", 1, 0
    field: tuple[str, int] | None = None
    for token in _TOKEN.finditer(text):
        word = token[0]
        line, counted = line + text.count("\n", counted, token.start()), token.start()
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
