"""Output for people: colours, local and relative times on a terminal, plain text with UTC times in a pipe."""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple, TextIO
from unicodedata import combining, east_asian_width

import typer

from kron.clocks.system import SystemClock
from kron.core.errors import one_line

Utc = Annotated[
    bool, typer.Option("--utc", help="Print times in UTC, as in a pipe.  [default on a terminal: local time]")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print no colours (or set NO_COLOR).")]

# Candidates for escaping in JSON, which escapes the other control characters itself.
_UNSAFE = re.compile(r"[^\x00-\x7e]")
# The last column of a table is cut to the terminal, but never below this width.
MIN_LAST = 12
# Nearer times are shown without their date.
NEAR = timedelta(hours=20)
# Relative times: the first unit of which there are at least two is used, or the last one below it.
UNITS = (("y", 365 * 86_400), ("d", 86_400), ("h", 3600), ("m", 60))


def say(*lines: str) -> None:
    """Print lines to standard output, each with its control characters escaped."""
    for line in lines:
        print(one_line(line))


def show_json(document: object, *, indent: int | None = 2) -> None:
    """Print a document as JSON; characters that a terminal may interpret are escaped as JSON allows."""
    print(to_json(document, indent=indent))


def to_json(document: object, *, indent: int | None = None) -> str:
    """Return a document as JSON without control characters but line breaks."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return _UNSAFE.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    if match[0].isprintable():
        return match[0]
    return "\\u007f" if match[0] == "\x7f" else json.dumps(match[0])[1:-1]


def put(text: str) -> None:
    """Print a part of a JSON document, whose texts are from `to_json`."""
    print(text, end="")


def progress(text: str) -> None:
    """Show how far a command is on a terminal, in a line of standard error that the next call replaces."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\x1b[K{one_line(text)}", end="", file=sys.stderr, flush=True)


class Color(StrEnum):
    """A colour of a terminal, as the parameter of its escape sequence."""

    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    CYAN = "36"
    BOLD = "1"
    DIM = "2"


class Cell(NamedTuple):
    """A cell of a table with its colour."""

    text: str
    color: Color | None = None


class Display:
    """How times and colours are printed to one stream."""

    def __init__(self, *, utc: bool = False, no_color: bool = False, stream: TextIO | None = None) -> None:
        out = sys.stdout if stream is None else stream
        self.is_terminal = out.isatty()
        self._is_local = self.is_terminal and not utc
        self._has_color = self.is_terminal and not no_color and _colors_wanted()
        self._now = SystemClock().now()

    def paint(self, text: str, color: Color | None) -> str:
        """Return a text in a colour, if the stream shows colours."""
        return f"\x1b[{color.value}m{text}\x1b[0m" if color is not None and self._has_color else text

    def time(self, value: object) -> str:
        """Return an instant: local with its offset on a terminal, else as it is; null is a dash."""
        if value is None:
            return "-"
        return _local(str(value)) if self._is_local else str(value)

    def when(self, value: object) -> str:
        """Return an instant on a terminal with its distance from now, without the date if it is near."""
        if value is None or not self._is_local:
            return self.time(value)
        instant = datetime.fromisoformat(str(value)).astimezone()
        clock = f"{instant:%H:%M:%S}" if instant.second else f"{instant:%H:%M}"
        if abs(instant - self._now) < NEAR:
            return f"{self.distance(value)} ({clock})"
        return f"{instant.date()} {clock} ({self.distance(value)})"

    def distance(self, value: object) -> str:
        """Return the distance of an instant from now on a terminal, else the instant; null is a dash."""
        if value is None or not self._is_local:
            return self.time(value)
        seconds = (datetime.fromisoformat(str(value)) - self._now).total_seconds()
        return f"in {_rough(seconds)}" if seconds > 0 else f"{_rough(-seconds)} ago"

    def duration(self, start: object, end: object) -> str:
        """Return the time between two instants, or until now if the second is missing; null is a dash."""
        if start is None or (end is None and not self._is_local):
            return "-"
        until = self._now if end is None else datetime.fromisoformat(str(end))
        seconds = max((until - datetime.fromisoformat(str(start))).total_seconds(), 0)
        return f"{_exact(seconds)} so far" if end is None else _exact(seconds)

    def line(self, *cells: str | Cell) -> None:
        """Print a line of texts, each with its control characters escaped and in its colour."""
        print("".join(self.paint(cell.text, cell.color) for cell in map(_cell, cells)))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str | Cell]], *, empty: str) -> None:
        """Print a table with its header, or `none` and why if it is empty."""
        if not rows:
            say(f"none: {empty}")
            return
        cells = [[_cell(cell) for cell in row] for row in rows]
        head = [Cell(title, Color.BOLD) for title in header]
        widths = [max(_width(cell.text) for cell in column) for column in zip(head, *cells, strict=True)]
        print(self._row(head, widths, whole=True))
        for row in cells:
            print(self._row(row, widths))

    def _row(self, row: Sequence[Cell], widths: Sequence[int], *, whole: bool = False) -> str:
        *first, last = row
        before = sum(widths[:-1]) + 2 * len(first)
        text = last.text if whole else self._cut(last.text, before)
        padded = [
            self.paint(cell.text, cell.color) + " " * (width - _width(cell.text))
            for cell, width in zip(first, widths, strict=False)
        ]
        return "  ".join([*padded, self.paint(text, last.color)]).rstrip()

    def _cut(self, text: str, before: int) -> str:
        """Return the text of a last column, cut to the terminal; a pipe gets all of it."""
        room = max(shutil.get_terminal_size().columns - before, MIN_LAST)
        if not self.is_terminal or _width(text) <= room:
            return text
        return f"{text[: room - 3]}..."


def _colors_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(cell: str | Cell) -> Cell:
    text, color = cell if isinstance(cell, Cell) else (cell, None)
    return Cell(one_line(text), color)


def _width(text: str) -> int:
    """Return the columns that a text occupies; East Asian characters have two."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def _local(text: str) -> str:
    """Return an instant in the host's zone, with its offset, so that every command can read it."""
    instant = datetime.fromisoformat(text).astimezone()
    return instant.isoformat(timespec="seconds" if instant.second else "minutes")


def _rough(seconds: float) -> str:
    for unit, size in UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _exact(seconds: float) -> str:
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s"
