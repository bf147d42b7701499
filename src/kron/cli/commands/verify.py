"""`kron verify`: recomputes recorded decisions from their inputs."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Annotated, NamedTuple, TextIO

import typer

from kron.cli.main import BAD, GOOD, NO, print_error
from kron.cli.support.json_file import no_constant, unique_fields
from kron.cli.support.option import AsJson
from kron.cli.support.read import check_once, opened_text
from kron.cli.support.terminal import progress, put, say, to_json
from kron.core.errors import UnreadableFileError
from kron.core.job.verify import Verification, VerifyResult, verify

# Logs are read line by line; only a document that spans lines is kept in memory.
MAX_DOCUMENT = 64 * 1024 * 1024
PROGRESS_EVERY = 5_000

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...", help="Decisions as JSON, or a log with one per line; - is standard input."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show only decisions that do not match.")]
SkipOthers = Annotated[
    bool, typer.Option("--skip-others", help="Ignore lines of a log that are not decisions.")
]


class Item(NamedTuple):
    """A value in a file, or why it is invalid."""

    line: int
    value: object
    fault: str | None = None


def verify_command(
    files: Files, quiet: Quiet = False, skip_others: SkipOthers = False, as_json: AsJson = False
) -> int:
    """Recompute recorded decisions, and report those that differ.

    A file has one decision, a list of decisions, the output of `kron explain --json` or `kron next --json`,
    or a log: JSON lines, each a decision or an object with a field "decision". Logs of any size are read line
    by line; lines of the service's log without a decision are ignored. Exit code 0: all match; 1: some
    differ, or are not decisions; 2: a file cannot be read.

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
    has_decision = False
    for item in read_items(file):
        if _is_log_line(item.value) or (skip_others and not _is_decision(item.value)):
            report.ignored += 1
            continue
        has_decision = True
        report.show(file, item)
    if not has_decision:
        raise UnreadableFileError(file=file, reason="it has no decision")


def read_items(file: str) -> Iterator[Item]:
    """Yield the candidates for decisions in a file, or raise UnreadableFileError."""
    with opened_text(file) as stream:
        yield from _items_of(_lines_of(stream, file), file)


def _lines_of(stream: TextIO, file: str) -> Iterator[tuple[int, str]]:
    for number, text in enumerate(iter(lambda: stream.readline(MAX_DOCUMENT + 1), ""), 1):
        if len(text) > MAX_DOCUMENT:
            raise _too_long(file, number)
        yield number, text


def _items_of(lines: Iterator[tuple[int, str]], file: str) -> Iterator[Item]:
    """Yield the items of a document that starts in the first line and spans others, or of each line."""
    written = ((number, text) for number, text in lines if text.strip())
    first = next(written, (0, ""))
    second: list[tuple[int, str]] = []
    if _is_incomplete(first[1]):
        second = [pair for pair in [next(lines, None)] if pair]
        if first[1].strip() == "[" or not any(_is_whole(text) for _, text in second):
            yield from _items_in_document(chain([first], second, lines), file)
            return
    for number, text in chain([first], second, written):
        if text.strip():
            yield from _items_in_line(number, text)


def _is_incomplete(text: str) -> bool:
    """Return whether a line is the start of JSON that the next line continues."""
    start = text.strip()
    try:
        decode(start)
    except json.JSONDecodeError as error:
        return start[:1] in ("[", "{") and error.pos >= len(start)
    except (ValueError, RecursionError):
        pass
    return False


def _is_whole(text: str) -> bool:
    """Return whether a line is a whole decision, so that the broken line before it belongs to a log."""
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
    """Yield the value of a document, or each value of its list, with the line in which it starts."""
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


DECODER = json.JSONDecoder(object_pairs_hook=unique_fields, parse_constant=no_constant)


def decode(text: str) -> object:
    """Return the value of a JSON text; duplicate fields and NaN are errors."""
    value: object = DECODER.decode(text)
    return value


def _fault_of(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _too_long(file: str, number: int) -> UnreadableFileError:
    reason = f"line {number}: the JSON that starts here is longer than {MAX_DOCUMENT >> 20} MiB"
    return UnreadableFileError(file=file, reason=reason)


def _is_decision(value: object) -> bool:
    return isinstance(value, Mapping) and ("kron_decision" in value or "decision" in value)


def _is_log_line(value: object) -> bool:
    """Return whether a value is a line of Kron's log without a decision."""
    return isinstance(value, Mapping) and "level" in value and "logger" in value and not _is_decision(value)


def _certificate_of(value: object) -> object:
    """Return the certificate, which logs and `kron explain` have in a field "decision"."""
    if isinstance(value, Mapping) and "kron_decision" not in value:
        return value.get("decision", value)
    return value


class VerifyReport:
    """Prints the result of each decision, and a summary."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self._counts: Counter[VerifyResult] = Counter()
        self._separator = "\n"
        self._progress = sys.stderr.isatty() and not sys.stdout.isatty()
        self.ignored = 0
        self.unreadable: list[UnreadableFileError] = []
        if as_json:
            put('{"decisions": [')

    def show(self, file: str, item: Item) -> None:
        """Verify one item and print the result."""
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
            self._print(file, item.line, finding, verification, reasons, _names(certificate))
        if self._progress and self._counts.total() % PROGRESS_EVERY == 0:
            progress(f"{self._counts.total():,} decisions")

    def _print(
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
                {"field": each.field, "recorded": each.recorded, "recomputed": each.recomputed}
                for each in verification.differences
            ]
            head = {"file": file, "line": line, "finding": finding.value, **names}
            tail = {"reasons": reasons, "differences": differences, "note": verification.note}
            put(self._separator + to_json(head | tail))
            self._separator = ",\n"
            return
        note = f" (note: {verification.note})" if verification.note else ""
        subject = " ".join(name for name in names.values() if name)
        result = f"{finding}: {'; '.join(reasons)}" if reasons else str(finding)
        say(f"{file}:{line}: {result}{f' [{subject}]' if subject else ''}{note}")

    def close(self) -> int:
        """Print the summary, and return the exit code."""
        if self._progress and self._counts.total() >= PROGRESS_EVERY:
            progress("")
        sums = {finding.value: self._counts[finding] for finding in VerifyResult}
        if self._as_json:
            unreadable = [{"file": e.details["file"], "reason": e.details["reason"]} for e in self.unreadable]
            rest = {"summary": {**sums, "passed_over": self.ignored}, "unreadable": unreadable}
            put(f"\n], {to_json(rest)[1:]}\n")
        elif self._counts or self.ignored or not self.unreadable:
            ignored = f"; {self.ignored} other lines ignored" if self.ignored else ""
            counted = ", ".join(f"{self._counts[finding]} {finding}" for finding in VerifyResult)
            say(f"{self._counts.total()} verified: {counted}{ignored}")
        for error in self.unreadable:
            print_error(str(error))
        if self.unreadable:
            return BAD
        return GOOD if self._counts.total() == self._counts[VerifyResult.OK] else NO


def _reasons(verification: Verification, fault: str | None) -> list[str]:
    if fault is not None:
        return [fault]
    return [str(each) for each in (*verification.problems, *verification.differences)]


def _names(certificate: object) -> dict[str, str | None]:
    """Return the job and the period, if the certificate has them."""
    fields: Mapping[object, object] = certificate if isinstance(certificate, Mapping) else {}
    values = {name: fields.get(name) for name in ("identity", "period_id")}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}
