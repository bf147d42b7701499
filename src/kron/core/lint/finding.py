"""Findings of lint, with stable codes.

`RULES` is the table of codes. A code never changes its meaning; one that no longer applies stays unused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How severe a finding is: nothing runs, a surprising schedule, or information."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Code(StrEnum):
    """The rule of a finding; the values are stable."""

    INVALID = "KRON001"
    NEVER = "KRON002"
    ZONE = "KRON003"
    NOT_STRICT = "KRON004"
    EITHER_DAY = "KRON005"
    BOTH_DAYS = "KRON006"
    UNEVEN = "KRON007"
    IDLE_STEP = "KRON008"
    LOST = "KRON009"
    DOUBLED = "KRON010"
    SILENT = "KRON011"
    FLOOD = "KRON012"
    SUB_MINUTE = "KRON013"
    DUPLICATE = "KRON014"
    EXTRA_FIELD = "KRON015"
    DEFINITION = "KRON016"
    NO_LATENESS = "KRON017"
    IDLE_CATCHUP = "KRON018"
    NAMED_BY_FILE = "KRON019"


class LintRule(NamedTuple):
    """The severity and the meaning of a code."""

    severity: Severity
    meaning: str


RULES = {
    Code.INVALID: LintRule(Severity.ERROR, "the expression is not valid in its dialect"),
    Code.NEVER: LintRule(Severity.ERROR, "the expression can never match"),
    Code.ZONE: LintRule(Severity.ERROR, "the time zone is unknown, or two are given"),
    Code.NOT_STRICT: LintRule(Severity.ERROR, "the expression is valid, but not in the posix dialect"),
    Code.EITHER_DAY: LintRule(Severity.WARNING, "both day fields are restricted, so either one is enough"),
    Code.BOTH_DAYS: LintRule(Severity.WARNING, "a day field starts with *, so both day fields must match"),
    Code.UNEVEN: LintRule(Severity.WARNING, "a step does not divide its range, so one interval differs"),
    Code.IDLE_STEP: LintRule(Severity.WARNING, "a step is larger than its range and has no effect"),
    Code.LOST: LintRule(Severity.WARNING, "runs are skipped when the clocks go forward"),
    Code.DOUBLED: LintRule(Severity.WARNING, "runs are repeated when the clocks go back"),
    Code.SILENT: LintRule(Severity.WARNING, "dst_repeat silences a job that runs more often than hourly"),
    Code.FLOOD: LintRule(
        Severity.WARNING, "* precedes a single value, so it runs every minute (or second) of it"
    ),
    Code.SUB_MINUTE: LintRule(Severity.INFO, "the schedule runs more often than once a minute"),
    Code.DUPLICATE: LintRule(Severity.WARNING, "the line repeats an earlier one"),
    Code.EXTRA_FIELD: LintRule(
        Severity.WARNING, "the command starts with a word that looks like a sixth field"
    ),
    Code.DEFINITION: LintRule(Severity.ERROR, "a job in a file is invalid"),
    Code.NO_LATENESS: LintRule(
        Severity.WARNING, "the deadline is 0s, so a start that is one second late is missed"
    ),
    Code.IDLE_CATCHUP: LintRule(
        Severity.WARNING, "the deadline is too short for the catch-up policy to start anything"
    ),
    Code.NAMED_BY_FILE: LintRule(
        Severity.INFO, "the identity comes from the file's name, so moving the file changes decisions"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """One finding: the expression, the problem and the remedy."""

    code: Code
    severity: Severity
    line: int | None = None
    expression: str
    message: str
    remedy: str


class Remark(NamedTuple):
    """A finding without its location."""

    code: Code
    message: str
    remedy: str


def finding_of(remark: Remark, text: str, line: int | None = None) -> LintFinding:
    """Return a remark about a text as a finding, with the severity of its code."""
    code, message, remedy = remark
    severity = RULES[code].severity
    return LintFinding(
        code=code, severity=severity, line=line, expression=text, message=message, remedy=remedy
    )


def in_order(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Return findings by line and code, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: (finding.line or 0, finding.code))
