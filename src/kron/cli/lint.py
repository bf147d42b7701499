"""`kron lint`: what is wrong with schedules, and what will surprise the one who wrote them."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO, one_line
from kron.cli.option import AsJson, Dialect, DstGap, DstRepeat, From, Identity, Zone, parse_instant
from kron.cli.source import JobText, Options, is_file
from kron.clocks.system import SystemClock
from kron.core.cron.dialect import DIALECTS
from kron.core.crontab import Entry, parse_crontab
from kron.core.errors import InputError, InvalidJobFileError
from kron.core.finding import RULES, Code, Finding, Remark, Severity, finding_of, in_order
from kron.core.instant import seconds_of
from kron.core.lint import Setting, lint_entries, lint_job, lint_schedule
from kron.core.schedule import UTC
from kron.core.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.zone import zone_of

STDIN = "-"
# A crontab has a few hundred lines; what is larger than this is something else, and may never end.
MAX_BYTES = 4 << 20

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE|EXPR", help="Crontabs (- is standard input), job files, or expressions."),
]
System = Annotated[
    bool, typer.Option("--system", help="Files have a user column, as /etc/crontab and /etc/cron.d do.")
]
# What a job may say of its schedule, where it is one of a few words.
CHOICES = {"dialect": DIALECTS, "dst_gap": GAP_CHOICES, "dst_repeat": REPEAT_CHOICES}

Strict = Annotated[bool, typer.Option("--strict", help="Let info count: it too makes the exit code 1.")]
Codes = Annotated[bool, typer.Option("--codes", help="List all codes and what they mean.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found in one argument: a file, or an expression without one."""

    file: str | None
    schedules: int
    findings: list[Finding]


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
    """Check crontabs, job files or expressions for errors and surprises.

    Changes of the clocks are looked at for two years from --from on. A file's CRON_TZ= comes before --tz.
    Job files (.yaml, .yml, .json) say zone, dialect and DST options themselves. The exit code is 1 where
    there are errors or warnings.

    \b
    Examples:
      kron lint "0 0 13 * 5"
      kron lint /etc/crontab --system --tz Europe/Berlin
      crontab -l | kron lint -
      kron lint jobs.cron --dialect posix --json
      kron lint jobs.yaml
      kron lint --codes
    """  # noqa: D301
    if codes:
        _show_codes(as_json=as_json)
        return GOOD
    if not sources:
        raise InputError("Nothing to check: give a FILE or an EXPR (see kron lint --help)")
    zone = zone_of(UTC if tz is None else tz)
    setting = Setting(
        now=parse_instant(start, zone.key) if start else seconds_of(SystemClock().now()),
        timezone=tz,
        dialect=dialect,
        identity=identity,
        dst_gap=dst_gap,
        dst_repeat=dst_repeat,
    )
    reports = [_examine(source, setting, system=system) for source in sources]
    if as_json:
        print(json.dumps(_document(reports), indent=2, ensure_ascii=False))
    else:
        _show(reports)
    found = {finding.severity for report in reports for finding in report.findings}
    return NO if found - (set() if strict else {Severity.INFO}) else GOOD


def _examine(source: str, setting: Setting, *, system: bool) -> Report:
    if source != STDIN:
        if not is_file(source):
            return Report(file=None, schedules=1, findings=lint_schedule(source, setting))
        from kron.cli.jobfile import is_job_file

        if is_job_file(source):
            return _examine_jobs(source, setting)
    entries = parse_crontab(_read(source), has_user=system)
    return Report(file=source, schedules=len(entries), findings=lint_entries(entries, setting))


def _examine_jobs(file: str, setting: Setting) -> Report:
    """Say everything about a file of jobs: what defines no job, and each schedule that can be read."""
    from kron.cli.jobfile import load_jobs

    _options_of(setting).check_unused(file)
    problems: tuple[object, ...] = ()
    try:
        load_jobs(file)
    except InvalidJobFileError as error:
        problems = error.problems
    text = JobText(file)
    entries = dict(_schedules(text))
    findings = [
        finding
        for entry, fields in entries.values()
        for finding in lint_job(entry, _setting_of(fields, setting))
    ]
    findings += _faults(problems, text, read=set(entries))
    return Report(file=file, schedules=len(entries), findings=in_order(findings))


def _schedules(text: JobText) -> Iterator[tuple[str, tuple[Entry, Mapping[str, object]]]]:
    """Yield the path of every job whose schedule is a text, its schedule with its place, and its fields."""
    for path, job in _definitions(text.content):
        written, zone = job.get("schedule"), job.get("timezone")
        if not isinstance(written, str) or not isinstance(zone, str | None):
            continue
        zone_line = None if zone is None else text.line_of(f"{path}.timezone")
        line = text.line_of(f"{path}.schedule")
        entry = Entry(line=line, expression=written, timezone=zone, zone_line=zone_line, raw=written)
        yield path, (entry, job)


def _definitions(content: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the jobs of a file with their paths: one job, a list of jobs, or `jobs` with a list."""
    prefix = ""
    if isinstance(content, Mapping) and "identity" not in content and "jobs" in content:
        content, prefix = content["jobs"], "jobs"
    if isinstance(content, Mapping) and not prefix:
        yield "", content
    elif isinstance(content, list):
        for number, job in enumerate(content):
            if isinstance(job, Mapping):
                yield f"{prefix}[{number}]", job


def _setting_of(fields: Mapping[str, object], setting: Setting) -> Setting:
    """Return what one job's schedule is judged under; an unknown choice is the definition's fault."""
    said = {name: value for name, value in fields.items() if isinstance(value, str)}
    chosen = {name: said[name] for name, choices in CHOICES.items() if said.get(name) in choices}
    return Setting(
        now=setting.now,
        timezone=said.get("timezone"),
        dialect=chosen.get("dialect", setting.dialect),
        identity=said.get("identity"),
        dst_gap=chosen.get("dst_gap", setting.dst_gap),
        dst_repeat=chosen.get("dst_repeat", setting.dst_repeat),
    )


def _options_of(setting: Setting) -> Options:
    return Options(
        tz=setting.timezone,
        dialect=setting.dialect,
        identity=setting.identity,
        dst_gap=setting.dst_gap,
        dst_repeat=setting.dst_repeat,
    )


def _faults(problems: Iterable[object], text: JobText, *, read: set[str]) -> Iterator[Finding]:
    """Yield what is wrong with definitions, without what was said about their schedules already."""
    for problem in problems:
        place = getattr(problem, "path", "")
        job, _, name = place.rpartition(".")
        if job in read and name in ("schedule", "timezone"):
            continue
        remark = Remark(Code.DEFINITION, str(problem), "kron schema shows what a job may say")
        yield finding_of(remark, place, text.line_of(place))


def _read(source: str) -> str:
    standard = source == STDIN
    try:
        with open(0 if standard else source, "rb", closefd=not standard) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as cause:
        raise InputError(f'Cannot read "{source}": {cause.strerror or cause}') from cause
    if len(content) > MAX_BYTES:
        raise InputError(f'Cannot read "{source}": it has more than {MAX_BYTES} bytes')
    try:
        return content.decode()
    except UnicodeDecodeError as cause:
        line = content.count(b"\n", 0, cause.start) + 1
        raise InputError(f'Cannot read "{source}": line {line} is not UTF-8 text') from cause


def _show(reports: list[Report]) -> None:
    for report in reports:
        for finding in report.findings:
            place = finding.expression if report.file is None else f"{report.file}:{finding.line}"
            text = f"{place}: {finding.code} {finding.severity}: {finding.message}; {finding.remedy}"
            print(one_line(text))
    print(_summary(reports))


def _summary(reports: list[Report]) -> str:
    counts = Counter(finding.severity for report in reports for finding in report.findings)
    parts = [_counted(counts[severity], severity) for severity in Severity if counts[severity]]
    schedules = _counted(sum(report.schedules for report in reports), "schedule")
    return f"{', '.join(parts) or 'nothing found'} in {schedules}"


def _counted(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 or name == Severity.INFO else f"{count} {name}s"


def _document(reports: list[Report]) -> list[dict[str, object]]:
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
        print(json.dumps(listed, indent=2))
        return
    for code, rule in RULES.items():
        print(f"{code}  {rule.severity:7}  {rule.meaning}")
