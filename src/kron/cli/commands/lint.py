"""`kron lint`: errors and pitfalls in schedules."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from kron.cli.main import GOOD, NO, brief
from kron.cli.support.option import (
    AsJson,
    Dialect,
    DstGap,
    DstRepeat,
    From,
    Identity,
    System,
    Zone,
    parse_instant,
)
from kron.cli.support.read import check_once
from kron.cli.support.source import Options, Source, read_source, timed_entries
from kron.cli.support.terminal import say, show_json
from kron.clocks.system import SystemClock
from kron.core.cron.crontab import CrontabEntry
from kron.core.cron.dialect import DIALECTS, REBOOT
from kron.core.cron.schedule import UTC
from kron.core.cron.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.errors import InputError, InvalidJobFileError, Problem
from kron.core.fields import FieldReader
from kron.core.job.file import definitions_in
from kron.core.job.job import canonical, named_policy, read_policy
from kron.core.job.policy import POLICY
from kron.core.lint.finding import RULES, Code, LintFinding, Remark, Severity, finding_of, in_order
from kron.core.lint.lint import LintContext, lint_entries, lint_job, lint_name, lint_policy, lint_schedule
from kron.core.time.instant import EpochSeconds, seconds_of
from kron.core.time.zone import zone_of
from kron.core.wording import counted

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE|EXPR", help="Crontabs, job files (- is standard input), or expressions."),
]
# Returns the line of a path in a job file.
LineOf: TypeAlias = Callable[[str], int]
# Fields of a job with a fixed set of values.
CHOICES = {"dialect": DIALECTS, "dst_gap": GAP_CHOICES, "dst_repeat": REPEAT_CHOICES}
# Severities that have no regular plural.
PLURAL = {Severity.INFO: "info"}

Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 for findings of severity info too.")]
Codes = Annotated[bool, typer.Option("--codes", help="List all codes with their meanings.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The findings of one argument: a file or an expression."""

    file: str | None
    schedules: int
    findings: list[LintFinding]


def lint_command(
    sources: Sources = None,
    tz: Zone = None,
    start: From = None,
    dialect: Dialect = "extended",
    identity: Identity = None,
    dst_gap: DstGap = "skip",
    dst_repeat: DstRepeat = "both",
    system: System = False,
    strict: Strict = False,
    codes: Codes = False,
    as_json: AsJson = False,
) -> int:
    """Check crontabs, job files or expressions for errors and pitfalls.

    Clock changes are checked for two years from --from on. CRON_TZ= in a file takes precedence over --tz.
    Job files (.yaml, .yml, .json, .krontab) set zone and DST options themselves. The exit code
    is 1 if there are errors or warnings.

    \b
    Examples:
      kron lint "0 0 13 * 5"
      kron lint /etc/crontab --system --tz Europe/Berlin
      crontab -l | kron lint -
      kron lint jobs.cron --dialect posix --json
      kron lint jobs.yaml
      kron lint --codes
    """  # noqa: D301
    if codes and sources:
        raise InputError(f'Invalid --codes: it cannot be combined with "{sources[0]}"')
    if codes:
        _show_codes(as_json=as_json)
        return GOOD
    if not sources:
        raise InputError("Nothing to check: give a FILE or an EXPR (see kron lint --help)")
    setting = LintContext(
        now=_since(start, tz),
        timezone=tz,
        dialect=dialect,
        identity=identity,
        dst_gap=dst_gap,
        dst_repeat=dst_repeat,
    )
    check_once(sources)
    reports = [_examine(source, setting, system=system) for source in sources]
    if as_json:
        show_json(_document(reports))
    else:
        _show(reports)
    return _exit_code(reports, strict=strict)


def _exit_code(reports: list[LintReport], *, strict: bool) -> int:
    severities = {finding.severity for report in reports for finding in report.findings}
    return NO if severities - (set() if strict else {Severity.INFO}) else GOOD


def _since(start: str | None, tz: str | None) -> EpochSeconds:
    """Return the start of the check; an unknown zone is an error even if --from has an offset."""
    zone = zone_of(UTC if tz is None else tz)
    return seconds_of(SystemClock().now()) if start is None else parse_instant("--from", start, zone.key)


def _examine(argument: str, setting: LintContext, *, system: bool) -> LintReport:
    source = read_source(argument)
    if source is None:
        return LintReport(file=None, schedules=1, findings=lint_schedule(argument, setting))
    if source.has_jobs:
        return _examine_jobs(source, setting)
    entries = timed_entries(source, system=system)
    return LintReport(file=source.name, schedules=len(entries), findings=lint_entries(entries, setting))


def _examine_jobs(source: Source, setting: LintContext) -> LintReport:
    """Check a job file: the problems of its definitions, and every schedule that can be parsed."""
    from kron.cli.support.job_file import parse_jobs

    _options_of(setting).check_unused(source.name)
    file = parse_jobs(source)
    problems: tuple[object, ...] = ()
    try:
        file.jobs()
    except InvalidJobFileError as error:
        problems = error.problems
    entries = dict(_schedules(file.content, file.line_of))
    findings = [
        finding
        for entry, fields in entries.values()
        for finding in lint_job(entry, _setting_of(fields, setting))
    ]
    for path, fields in definitions_in(file.content):
        findings += _policy_findings(fields, path, file.line_of)
        if path in file.named:
            place = f"{path}.identity"
            findings.append(finding_of(lint_name(str(fields["identity"])), place, file.line_of(place)))
    findings += _faults(problems, file.line_of, read=set(entries))
    return LintReport(file=source.name, schedules=len(entries), findings=in_order(findings))


def _schedules(
    content: object, line_of: LineOf
) -> Iterator[tuple[str, tuple[CrontabEntry, Mapping[str, object]]]]:
    """Yield the path of every job whose schedule is a text, its schedule as an entry, and its fields."""
    for path, definition in definitions_in(content):
        job, renamed = canonical(definition, [])
        written, zone = job.get("schedule"), job.get("timezone")
        if not isinstance(written, str) or not isinstance(zone, str | None) or written == REBOOT:
            continue
        zone_line = None if zone is None else line_of(f"{path}.timezone".removeprefix("."))
        line = line_of(f"{path}.{renamed.get('schedule', 'schedule')}".removeprefix("."))
        entry = CrontabEntry(line=line, expression=written, timezone=zone, zone_line=zone_line, raw=written)
        yield path, (entry, job)


def _policy_findings(fields: Mapping[str, object], path: str, line_of: LineOf) -> Iterator[LintFinding]:
    """Yield the findings about a valid policy, with the line of its deadline or of the job."""
    document, _ = canonical(fields, [])
    problems: list[Problem] = []
    policy = read_policy(FieldReader(document.get("policy", {}), "policy", problems, known=POLICY.words))
    if problems:
        return
    named = named_policy(fields)
    for remark in lint_policy(policy, named):
        place = f"{path}.{named.get('deadline', '')}".strip(".")
        yield finding_of(remark, place, line_of(place))


def _setting_of(fields: Mapping[str, object], setting: LintContext) -> LintContext:
    """Return the settings of one job; an invalid choice is reported as a problem of the definition."""
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    chosen = {name: texts[name] for name, choices in CHOICES.items() if texts.get(name) in choices}
    return LintContext(
        now=setting.now,
        timezone=texts.get("timezone"),
        dialect=chosen.get("dialect", setting.dialect),
        identity=texts.get("identity"),
        dst_gap=chosen.get("dst_gap", setting.dst_gap),
        dst_repeat=chosen.get("dst_repeat", setting.dst_repeat),
    )


def _options_of(setting: LintContext) -> Options:
    return Options(
        tz=setting.timezone,
        dialect=setting.dialect,
        identity=setting.identity,
        dst_gap=setting.dst_gap,
        dst_repeat=setting.dst_repeat,
    )


def _faults(problems: Iterable[object], line_of: LineOf, *, read: set[str]) -> Iterator[LintFinding]:
    """Yield the problems of definitions, without those that the checks of their schedules report."""
    for problem in problems:
        place = getattr(problem, "path", "")
        job, _, name = place.rpartition(".")
        if job in read and name in ("schedule", "cron_expr", "timezone"):
            continue
        remark = Remark(Code.DEFINITION, str(problem), "kron schema prints the fields of a job")
        yield finding_of(remark, place, line_of(place))


def _show(reports: list[LintReport]) -> None:
    for report in reports:
        for finding in report.findings:
            place = finding.expression if report.file is None else f"{report.file}:{finding.line}"
            text = f"{place}: {finding.code} {finding.severity}: {finding.message}; {finding.remedy}"
            say(brief(text))
    say(_summary(reports))


def _summary(reports: list[LintReport]) -> str:
    counts = Counter(finding.severity for report in reports for finding in report.findings)
    severities = [severity for severity in Severity if counts[severity]]
    parts = [counted(counts[severity], severity, PLURAL.get(severity)) for severity in severities]
    schedules = counted(sum(report.schedules for report in reports), "schedule")
    return f"{', '.join(parts) or 'no findings'} in {schedules}"


def _document(reports: list[LintReport]) -> list[dict[str, object]]:
    return [
        {
            "file": report.file,
            "line": finding.line,
            "code": finding.code,
            "severity": finding.severity,
            "expression": finding.expression,
            "message": finding.message,
            "remedy": finding.remedy,
        }
        for report in reports
        for finding in report.findings
    ]


def _show_codes(*, as_json: bool) -> None:
    if as_json:
        listed = [
            {"code": code, "severity": rule.severity, "meaning": rule.meaning} for code, rule in RULES.items()
        ]
        show_json(listed)
        return
    for code, rule in RULES.items():
        say(f"{code}  {rule.severity:7}  {rule.meaning}")
