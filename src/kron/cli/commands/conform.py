"""`kron conform`: checks a trace against the axioms of correct scheduling."""

from collections.abc import Iterator
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.option import AsJson, offer, one_of, whole_number
from kron.cli.support.read import opened_text
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError, InvalidTraceError, UnreadableFileError, one_line
from kron.theory.bound import Witnesses
from kron.theory.checker import check
from kron.theory.event import Kind, Position
from kron.theory.report import Report
from kron.theory.trace import MAX_LINE, Trace
from kron.theory.verdict import READINGS, Finding, Status

# The largest bound.
MOST = 999_999_999
MARKS = {Status.PASSED: " ", Status.FAILED: "!", Status.INCONCLUSIVE: "?", Status.OUT_OF_SCOPE: "-"}
# The symbol of each event in the timeline, and how many events of a position are named.
SYMBOLS = {
    Kind.INIT_START: "[", Kind.INIT_SUCCESS: "]", Kind.INIT_FAILURE: "x", Kind.STOP_START: "(",
    Kind.STOP_END: ")", Kind.CRASH: "#", Kind.RUN_START: ">", Kind.RUN_SUCCESS: "<", Kind.RUN_FAILURE: "f",
    Kind.DUE: "d", Kind.RETRY_DUE: "r", Kind.MINUTE_START: ".", Kind.COMPUTE: "c", Kind.SUPERNATURAL: "*",
}  # fmt: skip
MAX_NAMED = 4

File = Annotated[str, typer.Argument(metavar="TRACE", help="Trace as JSON lines; - is standard input.")]
Reading = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Reading of the axioms: kron, or literal (the formulas as written).",
        parser=one_of("reading", READINGS),
        autocompletion=offer(lambda: READINGS),
    ),
]
Happy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KIND", help="Kind of Supernatural event that the scheduler must handle; repeatable."
    ),
]
Within = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Without Compute events: time limit of obligations, in units of the trace.",
        parser=whole_number("--within", 0, MOST),
    ),
]
Bound = Annotated[
    str | None,
    typer.Option(
        "--witnesses",
        metavar="A,B,LAG",
        help="With Compute events: obligations may take A times the length of their list and time, plus B, "
        "plus LAG of compute.",
    ),
]


def conform_command(
    trace: File,
    reading: Reading = "kron",
    happy: Happy = None,
    within: Within = None,
    witnesses: Bound = None,
    as_json: AsJson = False,
) -> int:
    """Check a trace against the axioms of correct scheduling.

    The report names the first violation, and the party to blame.
    A trace of any length is read line by line. Exit code 0: it conforms; 1: an axiom is violated; 2: the
    trace cannot be read.

    \b
    Examples:
      kron conform trace.jsonl
      kron conform trace.jsonl --within 60000
      kron conform - --happy clock --json
    """  # noqa: D301
    kinds = [kind for given in happy or () for kind in given.split(",")]
    bound = None if witnesses is None else parse_witnesses(witnesses)
    try:
        subject = Trace.from_jsonl(read_lines(trace))
        report = check(subject, bound, reading=reading, happy=kinds, within=within)
    except InvalidTraceError as error:
        raise UnreadableFileError(file=trace, reason=f"line {error.line}: {error.reason}") from error
    if as_json:
        show_json(report.to_dict())
    else:
        for line in lines_of(report, trace):
            say(line)
    return GOOD if report.conforms else NO


def parse_witnesses(text: str) -> Witnesses:
    """Parse witnesses such as 3,0,1."""
    parts = text.split(",")
    if len(parts) != 3:
        raise InvalidOptionError(option="--witnesses", value=text, reason="use three numbers, as in 3,0,1")
    a, b, t_lag = map(whole_number("--witnesses", 0, MOST), parts)
    return Witnesses(a, b, t_lag)


def read_lines(file: str) -> Iterator[str]:
    """Yield the lines of a file, cut after the longest line that a trace may have."""
    with opened_text(file) as stream:
        yield from iter(lambda: stream.readline(MAX_LINE + 1), "")


def lines_of(report: Report, file: str) -> Iterator[str]:
    """Yield the report as text."""
    yield one_line(f"{file}: {report.verdict}{_blamed(report)}")
    if report.scope_ends is not None:
        yield f"  out of scope from position {report.scope_ends} on: --happy does not list the event's kind"
    if report.environment is not None:
        environment = report.environment
        yield (
            f"  environment: {environment.kind}, compute at {environment.compute:,} of "
            f"{environment.points:,} points, longest pause {environment.longest_pause:,}"
        )
    yield ""
    for finding in report:
        yield one_line(_row(finding)).rstrip()
    if report.failed:
        yield ""
        yield from timeline(report.around, report.failed[0])


def _blamed(report: Report) -> str:
    if report.blame is None:
        return ""
    first = report.failed[0]
    return f"; {first.axiom} is violated first, at position {first.position}, by the {report.blame}"


def _row(finding: Finding) -> str:
    place = "" if finding.position is None else f"at {finding.position}"
    return f"  {MARKS[finding.status]} {finding.axiom:<4}{finding.status:<13} {place:<10} {finding.message}"


def timeline(positions: tuple[Position, ...], finding: Finding) -> Iterator[str]:
    """Yield a timeline of a violation: a row per position, a column per task."""
    tasks = sorted({event.task for position in positions for event in position.events if event.task})
    shown = tasks[:8]
    running: set[str] = set()
    part = "" if finding.broken in (None, finding.formula) else f", where {finding.broken} is false"
    yield one_line(f"  {finding.axiom}: {finding.formula}{part}")
    yield one_line(f"    position          t  {'  '.join(shown)}")
    for position in positions:
        columns = "  ".join(_column(task, position, running) for task in shown)
        mark = (
            "  <-- here"
            if position.i == finding.position and position is _last_at(positions, position.i)
            else ""
        )
        yield one_line(f"  {position.i:>10} {position.t:>10}  {columns}  {_named(position)}{mark}").rstrip()


def _last_at(positions: tuple[Position, ...], i: int) -> Position:
    return [position for position in positions if position.i == i][-1]


def _column(task: str, position: Position, running: set[str]) -> str:
    """Return the symbol of a task at a position, and update the running tasks."""
    kinds = [event.kind for event in position.events if event.task == task]
    crash = any(event.kind is Kind.CRASH for event in position.events)
    if Kind.RUN_START in kinds:
        running.add(task)
    elif crash or Kind.RUN_SUCCESS in kinds or Kind.RUN_FAILURE in kinds:
        running.discard(task)
    symbol = SYMBOLS[kinds[0]] if kinds else ("|" if task in running else " ")
    return symbol.ljust(len(one_line(task)))


def _named(position: Position) -> str:
    """Return the events of a position as text, without Compute, and at most MAX_NAMED."""
    events = [str(event) for event in position.events if event.kind is not Kind.COMPUTE] or ["Compute"]
    more = len(events) - MAX_NAMED
    return ", ".join(events[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
