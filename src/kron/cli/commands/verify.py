"""`kron verify`: which recorded decisions follow from their inputs, and which do not."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple, TextIO

import typer

from kron.cli.main import BAD, GOOD, NO, complain, one_line
from kron.cli.support.option import AsJson
from kron.cli.support.read import STDIN, check_once
from kron.core.errors import UnreadableFileError
from kron.core.job.verify import Verification, VerifyResult, verify

# Lines of a log are read one at a time; only a document that spans lines is held as a whole.
MAX_DOCUMENT = 64 * 1024 * 1024
PROGRESS_EVERY = 5_000

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Decisions as JSON, or a log with one per line; - is the input."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show only what does not follow.")]
SkipOthers = Annotated[
    bool, typer.Option("--skip-others", help="Pass over lines of a log that are no decisions.")
]


class Item(NamedTuple):
    """What stands somewhere in a file: a value, or why it is none."""

    line: int
    value: object
    fault: str | None = None


def verify_command(
    files: Files, quiet: Quiet = False, skip_others: SkipOthers = False, as_json: AsJson = False
) -> int:
    """Recompute recorded decisions, and say which do not follow from their inputs.

    A file holds one decision, a list of them, what `kron explain --json` and `kron next --json` print, or a
    log: JSON lines, each a decision or an object with one under "decision". Logs of any size are read line by
    line; of the service's own log, lines without a decision are passed over. Exit code 0: all follow; 1: some
    do not, or are no decisions; 2: a file cannot be read.

    \b
    Examples:
      kron verify decisions.json
      kron next jobs.yaml --json | kron verify -
      kron verify -q service.log
      kron verify -q --skip-others krond.log
    """  # noqa: D301
    check_once(files)
    report = VerifyReport(quiet=quiet, as_json=as_json)
    for file in files:
        try:
            _verify_file(file, report, skip_others=skip_others)
        except UnreadableFileError as error:
            report.unreadable.append(error)
    return report.close()


def _verify_file(file: str, report: "VerifyReport", *, skip_others: bool) -> None:
    found = False
    for item in read_items(file):
        if _is_log_line(item.value) or (skip_others and not _is_decision(item.value)):
            report.passed_over += 1
            continue
        found = True
        report.show(file, item)
    if not found:
        raise UnreadableFileError(file=file, reason="it holds no decision")


def read_items(file: str) -> Iterator[Item]:
    """Yield whatever could be a decision in a file, or raise UnreadableFileError."""
    try:
        with open(0 if file == STDIN else Path(file), encoding="utf-8-sig", closefd=file != STDIN) as stream:
            yield from _items_of(_lines_of(stream, file), file)
    except OSError as cause:
        raise UnreadableFileError(file=file, reason=cause.strerror or str(cause)) from cause
    except UnicodeDecodeError as cause:
        raise UnreadableFileError(file=file, reason="it is not UTF-8 text") from cause
    except ValueError as cause:
        raise UnreadableFileError(file=file, reason=str(cause)) from cause


def _lines_of(stream: TextIO, file: str) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(iter(lambda: stream.readline(MAX_DOCUMENT + 1), ""), 1):
        if len(text) > MAX_DOCUMENT:
            raise _too_long(file, number)
        yield number, text


def _items_of(lines: Iterator[tuple[int, str]], file: str) -> Iterator[Item]:
    """Yield the items of a document if one begins in the first line and goes on, else those of each line."""
    written = ((number, text) for number, text in lines if text.strip())
    first = next(written, (0, ""))
    second: list[tuple[int, str]] = []
    if _goes_on(first[1]):
        second = [pair for pair in [next(lines, None)] if pair]
        if first[1].strip() == "[" or not any(_is_whole(text) for _, text in second):
            yield from _items_in_document(chain([first], second, lines), file)
            return
    for number, text in chain([first], second, written):
        if text.strip():
            yield from _items_in_line(number, text)


def _goes_on(text: str) -> bool:
    """Say whether a line is the beginning of JSON that the next line continues."""
    begun = text.strip()
    try:
        decode(begun)
    except json.JSONDecodeError as error:
        return begun[:1] in ("[", "{") and error.pos >= len(begun)
    except (ValueError, RecursionError):
        pass
    return False


def _is_whole(text: str) -> bool:
    """Say whether a line is a decision by itself, so that the broken line before it belongs to a log."""
    try:
        return _is_decision(decode(text))
    except (ValueError, RecursionError):
        return False


def _items_in_line(number: int, text: str) -> Iterator[Item]:
    try:
        value = decode(text)
    except (ValueError, RecursionError) as error:
        yield Item(number, None, _fault_of(error))
        return
    for inner in value if isinstance(value, list) else [value]:
        yield Item(number, inner)


def _items_in_document(lines: Iterable[tuple[int, str]], file: str) -> Iterator[Item]:
    """Yield the value of a document, or each value of its list, with the line in which it begins."""
    texts: list[str] = []
    size = start = 0
    for number, text in lines:
        start = start or number
        size += len(text)
        if size > MAX_DOCUMENT:
            raise _too_long(file, number)
        texts.append(text)
    document = "".join(texts)
    try:
        counted, line = 0, start
        for place, value in _values_in(document):
            line, counted = line + document.count("\n", counted, place), place
            yield Item(line, value)
    except (ValueError, RecursionError) as error:
        line = start - 1 + error.lineno if isinstance(error, json.JSONDecodeError) else start
        raise UnreadableFileError(file=file, reason=f"line {line}: {_fault_of(error)}") from error


def _values_in(document: str) -> Iterator[tuple[int, object]]:
    place = _skip(document, 0)
    listed = document.startswith("[", place)
    place = _skip(document, place + 1) if listed else place
    while not (listed and document.startswith("]", place)):
        value, end = DECODER.raw_decode(document, place)
        yield place, value
        place = _skip(document, end)
        if not listed:
            break
        if document.startswith(",", place):
            place = _skip(document, place + 1)
        elif not document.startswith("]", place):
            raise json.JSONDecodeError("Expecting ',' delimiter", document, place)
    place = _skip(document, place + listed)
    if place < len(document):
        raise json.JSONDecodeError("Extra data", document, place)


def _skip(document: str, place: int) -> int:
    while place < len(document) and document[place] in " \t\r\n":
        place += 1
    return place


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f'the field "{names.most_common(1)[0][0]}" stands twice in one object')
    return found


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def decode(text: str) -> object:
    """Return the value of a JSON text; a field that stands twice and NaN are refused."""
    value: object = DECODER.decode(text)
    return value


def _fault_of(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _too_long(file: str, number: int) -> UnreadableFileError:
    reason = f"line {number}: what begins here is longer than {MAX_DOCUMENT >> 20} MiB"
    return UnreadableFileError(file=file, reason=reason)


def _is_decision(value: object) -> bool:
    return isinstance(value, Mapping) and ("kron_decision" in value or "decision" in value)


def _is_log_line(value: object) -> bool:
    """Say whether something is a line of Kron's own log that says nothing of a decision."""
    return isinstance(value, Mapping) and "level" in value and "logger" in value and not _is_decision(value)


def _certificate_of(value: object) -> object:
    """Return the certificate itself, also where a log or `kron explain` has it under "decision"."""
    if isinstance(value, Mapping) and "kron_decision" not in value:
        return value.get("decision", value)
    return value


class VerifyReport:
    """What is said of each decision as it comes, and of all of them at the end."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self._counts: Counter[VerifyResult] = Counter()
        self._separator = "\n"
        self._progress = sys.stderr.isatty() and not sys.stdout.isatty()
        self.passed_over = 0
        self.unreadable: list[UnreadableFileError] = []
        if as_json:
            print('{"decisions": [', end="")

    def show(self, file: str, item: Item) -> None:
        """Verify one item and say what came of it."""
        certificate = _certificate_of(item.value)
        try:
            verification = verify(certificate) if item.fault is None else Verification()
            reasons = _reasons(verification, item.fault)
        except RecursionError:
            verification, reasons = Verification(), ["it is nested too deeply"]
            item = item._replace(fault=reasons[0])
        finding = VerifyResult.NO_DECISION if item.fault else verification.finding
        self._counts[finding] += 1
        if not (self._quiet and finding is VerifyResult.OK):
            self._say(file, item.line, finding, verification, reasons, _names(certificate))
        if self._progress and self._counts.total() % PROGRESS_EVERY == 0:
            print(f"\r{self._counts.total():,} decisions", end="", file=sys.stderr, flush=True)

    def _say(
        self,
        file: str,
        line: int,
        finding: VerifyResult,
        verification: Verification,
        reasons: list[str],
        names: dict[str, str | None],
    ) -> None:
        if self._as_json:
            differences = [
                {"field": found.field, "recorded": found.recorded, "recomputed": found.recomputed}
                for found in verification.differences
            ]
            head = {"file": file, "line": line, "finding": finding.value, **names}
            tail = {"reasons": reasons, "differences": differences, "note": verification.note}
            print(self._separator + json.dumps(head | tail, ensure_ascii=False), end="")
            self._separator = ",\n"
            return
        note = f" (note: {verification.note})" if verification.note else ""
        who = " ".join(name for name in names.values() if name)
        told = f"{finding}: {'; '.join(reasons)}" if reasons else str(finding)
        print(one_line(f"{file}:{line}: {told}{f' [{who}]' if who else ''}{note}"))

    def close(self) -> int:
        """Say the sum, and return the exit code."""
        if self._progress and self._counts.total() >= PROGRESS_EVERY:
            print("\r\x1b[K", end="", file=sys.stderr)
        sums = {finding.value: self._counts[finding] for finding in VerifyResult}
        if self._as_json:
            unreadable = [{"file": e.details["file"], "reason": e.details["reason"]} for e in self.unreadable]
            rest = {"summary": {**sums, "passed_over": self.passed_over}, "unreadable": unreadable}
            print("\n], " + json.dumps(rest, ensure_ascii=False)[1:])
        elif self._counts or self.passed_over or not self.unreadable:
            passed = f"; {self.passed_over} other lines passed over" if self.passed_over else ""
            counted = ", ".join(f"{self._counts[finding]} {finding}" for finding in VerifyResult)
            print(f"{self._counts.total()} verified: {counted}{passed}")
        for error in self.unreadable:
            complain(str(error))
        if self.unreadable:
            return BAD
        return GOOD if self._counts.total() == self._counts[VerifyResult.OK] else NO


def _reasons(verification: Verification, fault: str | None) -> list[str]:
    if fault is not None:
        return [fault]
    return [str(found) for found in (*verification.problems, *verification.differences)]


def _names(certificate: object) -> dict[str, str | None]:
    """Return the job and the period, where they can be told."""
    found: Mapping[object, object] = certificate if isinstance(certificate, Mapping) else {}
    values = {name: found.get(name) for name in ("identity", "period_id")}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}
