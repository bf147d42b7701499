"""`kron import`: crontabs as job files with every start that would differ, and CronJobs as KronJobs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
import yaml

from kron.cli.main import GOOD, NO, print_error
from kron.cli.support.job_file import parse_documents
from kron.cli.support.option import AsJson, From, System, offer, parse_instant, zones
from kron.cli.support.read import MAX_CRONTAB, MAX_JOBS, STDIN, check_once, has_user_column, read_text
from kron.cli.support.source import Source
from kron.cli.support.table import both_times
from kron.cli.support.terminal import say, show_json
from kron.clocks.host_zone import host_timezone
from kron.clocks.system import SystemClock
from kron.core.errors import InputError, InvalidOptionError, UnreadableFileError
from kron.core.job.from_crontab import (
    CrontabSource,
    ImportedLine,
    StartComparison,
    compare_starts,
    jobs_from_crontab,
)
from kron.core.time.instant import EpochSeconds, rfc3339, seconds_of
from kron.core.time.zone import zone_of
from kron.core.wording import counted

Files = Annotated[
    list[str], typer.Argument(metavar="CRONTAB...", help="Crontabs to import; - is standard input.")
]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="DIR", help="Write one job file per crontab into this folder."),
]
Literal = Annotated[
    bool,
    typer.Option(
        "--literal",
        help="Keep Kron's default at clock changes: skipped times do not start, repeated ones start twice.",
    ),
]
HostZone = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="IANA time zone of lines without CRON_TZ=, e.g. Europe/Berlin.  [default: the host's]",
        autocompletion=offer(zones),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace job files that exist.")]
# How far ahead starts are compared.
HORIZON = timedelta(days=366)
# Differing instants of one line that people see; JSON has all.
MAX_SHOWN = 5


class ComparedLine(NamedTuple):
    """A line of a source, and how its starts differ."""

    line: ImportedLine
    comparison: StartComparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """One source: its name, the stem of the job file it becomes, and its lines."""

    name: str
    stem: str
    lines: list[ComparedLine]

    @property
    def jobs(self) -> list[Mapping[str, object]]:
        """Return the definitions of the lines that have one."""
        return [each.line.definition for each in self.lines if each.line.definition is not None]


def import_command(
    files: Files,
    output: Output = None,
    tz: HostZone = None,
    start: From = None,
    system: System = False,
    literal: Literal = False,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Turn crontabs into job files, and show line by line which starts would differ.

    Starts are compared with those of Debian's cron for a year from --from on, in the host's zone or in that
    of --tz. /etc/crontab and files below a folder cron.d have a user column. Without -o the job file is
    printed and the report goes to standard error. The exit code is 1 if a line cannot be imported.
    Manifests with CronJobs (.yaml, .yml, .json) are printed as KronJobs, with what differs.

    \b
    Examples:
      kron import /etc/crontab -o /etc/krond.d
      crontab -l | kron import -
      kron import /etc/cron.d/* --json
      kron import cronjob.yaml > kronjob.yaml
    """  # noqa: D301
    check_once(files)
    if cronjobs := _cronjobs_of(files):
        return _import_cronjobs(cronjobs, output, as_json=as_json)
    zone = zone_of(tz).key if tz is not None else host_timezone()
    since = seconds_of(SystemClock().now()) if start is None else parse_instant("--from", start, zone)
    sources = [
        CrontabSource(
            stem=_stem_of(file), has_user=system or has_user_column(file), timezone=zone, literal=literal
        )
        for file in files
    ]
    imported = [_compared(file, source, since) for file, source in zip(files, sources, strict=True)]
    if output is not None:
        _write(imported, Path(output), force=force)
    if as_json:
        show_json([_document(each) for each in imported])
    elif output is None:
        say(*_yaml([job for each in imported for job in each.jobs]).splitlines())
        for line in _report(imported, since):
            print_error(line)
    else:
        say(*_report(imported, since))
    return NO if any(each.line.problem for file in imported for each in file.lines) else GOOD


# --- CronJobs --------------------------------------------------------------------------------------


def _cronjobs_of(files: list[str]) -> list[dict[str, object]]:
    """Return the CronJobs of manifests; other files have none."""
    if not all(Path(file).suffix.lower() in (".yaml", ".yml", ".json") for file in files):
        return []
    from kron.fronts.operator.from_cronjob import cronjobs_in

    found: list[dict[str, object]] = []
    for file in files:
        found += cronjobs_in(
            parse_documents(Source(name=file, text=read_text(file, MAX_JOBS), has_jobs=True))
        )
    if not found:
        raise UnreadableFileError(file=files[0], reason="it has no CronJob")
    return found


def _import_cronjobs(cronjobs: list[dict[str, object]], output: str | None, *, as_json: bool) -> int:
    """Print CronJobs as KronJobs, and what differs to standard error."""
    from kron.fronts.operator.from_cronjob import kronjob_from

    if output is not None:
        reason = "it is for crontabs; redirect the output: kron import cronjob.yaml > kronjob.yaml"
        raise InvalidOptionError(option="-o", value=output, reason=reason)
    imported = [kronjob_from(each) for each in cronjobs]
    if as_json:
        show_json([each._asdict() for each in imported])
    else:
        manifests = [each.manifest for each in imported if each.manifest is not None]
        say(*yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100).splitlines())
        for each in imported:
            for note in each.notes if each.problem is None else [f"not imported: {each.problem}"]:
                print_error(f"{each.name}: {note}")
    return NO if any(each.problem for each in imported) else GOOD


def _stem_of(file: str) -> str:
    return "crontab" if file == STDIN else Path(file).stem


def _compared(file: str, source: CrontabSource, since: EpochSeconds) -> ImportedFile:
    lines = jobs_from_crontab(read_text(file, MAX_CRONTAB), source)
    if not lines:
        raise UnreadableFileError(file=file, reason="it has no entries")
    until = since + int(HORIZON.total_seconds())
    compared = [ComparedLine(line, compare_starts(line, since, until)) for line in lines]
    return ImportedFile(name=file, stem=source.stem, lines=compared)


# --- job files -----------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _block_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block_text)


def _yaml(jobs: list[Mapping[str, object]]) -> str:
    content = {"jobs": [dict(job) for job in jobs]}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def _write(imported: Iterable[ImportedFile], folder: Path, *, force: bool) -> None:
    """Write a job file for each source that has jobs; none is written if one exists."""
    texts: dict[Path, str] = {}
    for each in imported:
        path = folder / f"{each.stem}.yaml"
        if path in texts:
            raise InputError(f"Two crontabs would become {path}: rename one, or import them one by one")
        if path.exists() and not force:
            raise InvalidOptionError(option="-o", value=str(path), reason="it exists; use --force to replace")
        if each.jobs:
            texts[path] = f"# Imported from {each.name}\n{_yaml(each.jobs)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as cause:
        raise UnreadableFileError(file=str(folder), reason=cause.strerror or str(cause)) from cause


# --- the report ----------------------------------------------------------------------------------


def _report(imported: Iterable[ImportedFile], since: EpochSeconds) -> Iterator[str]:
    """Yield the lines of the report: each entry with its differences, each note once."""
    seen: set[str] = set()
    yield f"starts in the year from {rfc3339(since)}, beside those of Debian's cron:"
    for file in imported:
        for each in file.lines:
            yield f"{file.name}:{each.line.line}: {_summary(each)}"
            yield from (f"    {text}" for text in _instants(each))
            yield from (f"    note: {note}" for note in each.line.notes if note not in seen)
            seen.update(each.line.notes)


def _summary(each: ComparedLine) -> str:
    line, comparison = each
    if line.definition is None:
        return f"not imported: {line.problem}"
    identity = line.definition["identity"]
    if comparison is None:
        at_boot = line.definition["schedule"] == "@reboot"
        return f"{identity}: {'starts at every boot' if at_boot else 'has no starts in cron'}"
    count = len(comparison.differences)
    starts = f"{identity}: {comparison.starts} starts"
    return f"{starts}, the same" if not count else f"{starts}; cron differs at {counted(count, 'instant')}"


def _instants(each: ComparedLine) -> Iterator[str]:
    if each.comparison is None or each.line.definition is None:
        return
    zone = zone_of(str(each.line.definition["timezone"]))
    for at, cron, kron in each.comparison.differences[:MAX_SHOWN]:
        yield f"{both_times(at, zone, seconds=False)}  cron starts {cron}, Kron {kron}"
    more = len(each.comparison.differences) - MAX_SHOWN
    if more > 0:
        yield f"... and {more} more (--json has all)"


def _document(file: ImportedFile) -> dict[str, object]:
    return {
        "file": file.name,
        "job_file": f"{file.stem}.yaml",
        "lines": list(map(_line_document, file.lines)),
    }


def _line_document(each: ComparedLine) -> dict[str, object]:
    line, comparison = each
    differences = [] if comparison is None else comparison.differences
    return {
        "line": line.line,
        "text": line.raw,
        "job": line.definition,
        "starts": None if comparison is None else comparison.starts,
        "differences": [{"at": rfc3339(at), "cron": cron, "kron": kron} for at, cron, kron in differences],
        "notes": list(line.notes),
        "problem": line.problem,
    }
