"""The output of a run on its page: terminal colours as HTML, shortened where it is long, and searched."""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from kron.app.budget import CpuBudget
from kron.fronts.service.responses import RunOutput

# How much a page shows, in bytes: the first and the last ones; a download has all that is kept.
FIRST, LAST = 20_000, 100_000
# How many lines of a search are listed, and between how many its processor time is checked.
MAX_FOUND, PER_CHECK = 500, 256
# Escape sequences of terminals: colours and styles, then all others, which are left out.
_STYLE = re.compile(r"\x1b\[([0-9;:]*)m")
_OTHER = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]"
)
# How much of a sequence is read, in characters; what programs write is far shorter.
MAX_CODES = 200
# The codes that start and end a style, and the number of a style's CSS class.
BOLD, FAINT, ITALIC, UNDERLINE = 1, 2, 3, 4
ENDS = {22: (BOLD, FAINT), 23: (ITALIC,), 24: (UNDERLINE,)}
PLAIN, COLOUR, GROUND = 0, range(30, 38), range(40, 48)
BRIGHT, BRIGHT_GROUND = range(90, 98), range(100, 108)
# A colour by number or by red, green and blue, and the ends of colours.
EXTENDED, NO_COLOUR, NO_GROUND = {38: 30, 48: 40}, 39, 49


class Style(NamedTuple):
    """The style of a text: codes of weights, of the colour and of the ground."""

    weights: frozenset[int] = frozenset()
    colour: int | None = None
    ground: int | None = None

    @property
    def classes(self) -> str:
        """Return the CSS classes."""
        codes = [*sorted(self.weights), *(code for code in (self.colour, self.ground) if code is not None)]
        return " ".join(f"a{code}" for code in codes)


class OutputPage(NamedTuple):
    """The output of an attempt as HTML, how many lines a search found, and its state.

    `searched` is how many lines were searched, if the time did not suffice for all.
    """

    html: Markup
    size: int
    found: int | None
    document: RunOutput
    searched: int | None = None

    @property
    def attempts(self) -> range:
        """Return the numbers of all attempts."""
        return range(1, self.document["attempts"] + 1)


def output_page(document: RunOutput, find: str) -> OutputPage:
    """Return the output of an attempt, or its lines with a text."""
    raw = b64decode(document["output"])
    if find:
        lines, count, searched = _found(raw.decode(errors="replace"), find, CpuBudget())
        return OutputPage(_numbered(lines), len(raw), count, document, searched)
    shown = raw
    if len(raw) > FIRST + LAST:
        left_out = len(raw) - FIRST - LAST
        shown = raw[:FIRST] + f"\n[... {left_out:,} bytes here: download them ...]\n".encode() + raw[-LAST:]
    return OutputPage(html_of(shown.decode(errors="replace")), len(raw), None, document)


def _found(text: str, find: str, budget: CpuBudget) -> tuple[list[tuple[int, str]], int, int | None]:
    """Return the first lines with a text, each with its number, and how many there are; case does not matter.

    Beyond the budget the rest is not searched; the last value is the number of lines that were.
    """
    wanted, found, count = find.lower(), list[tuple[int, str]](), 0
    for number, line in enumerate(_lines(text), 1):
        plain = line
        if not plain.isprintable():
            plain = _OTHER.sub("", _STYLE.sub("", line)).replace("\r", "")
        if wanted in plain.lower():
            count += 1
            if count <= MAX_FOUND:
                found.append((number, plain))
        if number % PER_CHECK == 0 and budget.is_spent:
            return found, count, number
    return found, count, None


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text one by one: all of them at once take many times its memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _numbered(lines: Sequence[tuple[int, str]]) -> Markup:
    parts = [Markup('<span class="number">{}</span> {}\n').format(number, line) for number, line in lines]
    return Markup().join(parts)


def html_of(text: str) -> Markup:
    """Return a text for a terminal as HTML: its colours and weights as classes, nothing else of it."""
    parts: list[Markup] = []
    style, end = Style(), 0
    # A carriage return overwrites the line, as progress bars do; only the last state of it is shown.
    lines = text.replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    for match in _STYLE.finditer(text):
        parts.append(_styled(text[end : match.start()], style))
        style, end = _changed(style, match[1]), match.end()
    parts.append(_styled(text[end:], style))
    return Markup().join(parts)


def _styled(text: str, style: Style) -> Markup:
    plain = _OTHER.sub("", text).replace("\r", "")
    if not plain or not style.classes:
        return Markup("{}").format(plain)
    return Markup('<span class="{}">{}</span>').format(style.classes, plain)


def _changed(style: Style, codes: str) -> Style:
    """Return a style after some codes; unknown ones change nothing."""
    numbers = [int(code) if code else PLAIN for code in re.split("[;:]", codes[:MAX_CODES])]
    while numbers:
        code = numbers.pop(0)
        if code in EXTENDED:
            colour = _extended(numbers)
            if colour is not None:
                base = EXTENDED[code]
                style = _coloured(style, base + colour if colour < 8 else base + 60 + colour - 8)
        else:
            style = _applied(style, code)
    return style


def _applied(style: Style, code: int) -> Style:
    if code == PLAIN:
        return Style()
    if BOLD <= code <= UNDERLINE:
        return style._replace(weights=style.weights | {code})
    if code in ENDS:
        return style._replace(weights=style.weights - {*ENDS[code]})
    if code == NO_COLOUR:
        return style._replace(colour=None)
    if code == NO_GROUND:
        return style._replace(ground=None)
    return _coloured(style, code)


def _coloured(style: Style, code: int) -> Style:
    if code in COLOUR or code in BRIGHT:
        return style._replace(colour=code)
    return style._replace(ground=code) if code in GROUND or code in BRIGHT_GROUND else style


def _extended(numbers: list[int]) -> int | None:
    """Take the arguments of an extended colour, and return the nearest of the sixteen colours, or None."""
    kind = numbers.pop(0) if numbers else None
    if kind == 5 and numbers:
        return _nearest(numbers.pop(0))
    if kind == 2 and len(numbers) >= 3:
        return _of_parts([numbers.pop(0) for _ in range(3)])
    return None


def _nearest(number: int) -> int:
    if number < 16:
        return number
    if number >= 232:
        return 0 if number < 238 else 8 if number < 246 else 7
    place = number - 16
    return _of_parts([51 * (place // 36), 51 * (place // 6 % 6), 51 * (place % 6)])


def _of_parts(parts: Sequence[int]) -> int:
    """Return the terminal colour whose red, green and blue are on where these are strong."""
    strongest = max(parts)
    bits = sum(1 << place for place, part in enumerate(parts) if 2 * part > strongest)
    return bits + 8 if strongest > 200 else bits
