"""The theory of correct scheduling as a checker: `check(Trace.from_jsonl(lines))["S1"].status`.

Input is a trace of a scheduler's observable events; output is a verdict for every axiom and, for a
violation, the party to blame. Nothing here imports the engine that it judges.
"""

from kron.core.errors import InvalidTraceError
from kron.theory.bound import Witnesses
from kron.theory.checker import check, fit
from kron.theory.event import Event, Kind, Owner, Position, Task, TaskList
from kron.theory.header import Header
from kron.theory.report import Report
from kron.theory.trace import Trace, line_of
from kron.theory.verdict import Blame, Finding, Status

__all__ = [
    "Blame",
    "Event",
    "Finding",
    "Header",
    "InvalidTraceError",
    "Kind",
    "Owner",
    "Position",
    "Report",
    "Status",
    "Task",
    "TaskList",
    "Trace",
    "Witnesses",
    "check",
    "fit",
    "line_of",
]
