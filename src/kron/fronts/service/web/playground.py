"""The playground: a schedule that is typed, with its sentence, lint, picture and next starts.

The address of the page holds everything that was typed. Nothing is stored.
"""

import json
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import NamedTuple

import yaml

from kron.core.cron.schedule import UTC
from kron.core.errors import InputError, InvalidJobError, Problem
from kron.core.job.distribution import KINDS
from kron.core.job.job import Job
from kron.core.job.window import WindowMode
from kron.core.lint.finding import LintFinding
from kron.core.lint.lint import LintContext, lint_schedule, strict_text
from kron.core.plan.compiled import compiled_job
from kron.core.plan.registration import create
from kron.core.plan.step import JobState
from kron.core.time.instant import EpochSeconds
from kron.fronts.service.documents import Document
from kron.fronts.service.web.charts import WindowChart, window_of
from kron.fronts.service.web.time_text import PageTime
from kron.fronts.service.web.view_models import Coming, Day, coming_of, day_of, notes_of
from kron.launchers.kubernetes.api import KRONJOBS

MODES, DISTRIBUTIONS = [mode.value for mode in WindowMode], list(KINDS)
EXAMPLE = "30 2 * * mon-fri"
IDENTITY = "my-job"
COMMAND = "/usr/local/bin/my-job"
# Without a deadline a job of a file misses a start that is a second late, of which kron lint warns.
POLICY = {"deadline": "10m"}


class Typed(NamedTuple):
    """The fields of the form; an empty one is left out."""

    cron: str = ""
    zone: str = ""
    window: str = ""
    mode: str = ""
    distribution: str = ""
    parameters: str = ""
    constraints: str = ""


class Copy(NamedTuple):
    """The schedule in the words of a tool."""

    name: str
    text: str


class Playground(NamedTuple):
    """The answer to a typed schedule: its problems, or its effects."""

    problems: list[Problem]
    sentence: str = ""
    findings: Sequence[LintFinding] = ()
    coming: Sequence[Coming] = ()
    notes: Sequence[tuple[PageTime, str]] = ()
    day: Day | None = None
    window: WindowChart | None = None
    copies: Sequence[Copy] = ()


def playground_of(typed: Typed, now: int) -> Playground:
    """Return what a typed schedule does from an instant on, in milliseconds."""
    problems: list[Problem] = []
    document = _document(typed, problems)
    try:
        job = Job.from_dict(document)
    except InvalidJobError as error:
        problems += error.problems
    if problems:
        return Playground(problems)
    record = create(job, now=now)
    state = JobState(record)
    coming = coming_of(state, now)
    schedule = compiled_job(record.definition, record.identity).job.schedule
    context = LintContext(now=now // 1000, timezone=typed.zone or None, identity=IDENTITY)
    findings = [] if schedule.is_boot else lint_schedule(typed.cron, context)
    notes = notes_of(record, now)
    return Playground(
        [],
        schedule.sentence,
        findings,
        coming,
        notes,
        day_of(state, now),
        _window(job, now),
        copies_of(job, document, changes=bool(notes)),
    )


def _document(typed: Typed, problems: list[Problem]) -> Document:
    """Return the definition that was typed, without the fields that were left empty."""
    document: Document = {"identity": IDENTITY, "schedule": typed.cron}
    if typed.zone:
        document["timezone"] = typed.zone
    if typed.window:
        document["window"] = {"mode": typed.mode or MODES[0], "duration": typed.window}
    if typed.parameters and not typed.distribution:
        problems.append(Problem("parameters", typed.parameters, "choose the distribution that has them"))
    if typed.distribution:
        parameters = _read("parameters", typed.parameters, problems)
        document["distribution"] = {"name": typed.distribution, **parameters}
    if typed.constraints:
        document["constraints"] = _read("constraints", typed.constraints, problems)
    document["policy"] = POLICY
    return document


def _read(name: str, text: str, problems: list[Problem]) -> Mapping[str, object]:
    """Return the object in a field, or a problem."""
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        problems.append(Problem(name, text, f"must be JSON: {error}"))
        return {}
    if not isinstance(value, dict):
        problems.append(Problem(name, text, "must be a JSON object"))
        return {}
    return value


def _window(job: Job, now: int) -> WindowChart | None:
    first: EpochSeconds | None = job.schedule.plan.next_after(now // 1000)
    try:
        return None if first is None else window_of(job, first)
    except InputError:
        return None


# --- copies --------------------------------------------------------------------------------------


def copies_of(job: Job, document: Document, *, changes: bool) -> list[Copy]:
    """Return a definition as a job file, as JSON, in Python, as a crontab and for Kubernetes.

    `changes` says whether clock changes of its zone affect it.
    """
    python = pformat(document, width=88, sort_dicts=False)
    return [
        Copy("YAML", yaml.safe_dump({"jobs": [document]}, sort_keys=False, allow_unicode=True)),
        Copy("JSON", json.dumps({"jobs": [document]}, indent=2, ensure_ascii=False)),
        Copy("Python", f"import kron\n\njob = kron.Job.from_dict(\n{_indented(python)}\n)\n"),
        Copy("crontab", _crontab(job, changes=changes)),
        Copy("Kubernetes", yaml.safe_dump(_manifest(document), sort_keys=False, allow_unicode=True)),
    ]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _crontab(job: Job, *, changes: bool) -> str:
    """Return a crontab with the same nominal times, and say what it cannot express."""
    schedule = job.schedule
    if schedule.is_boot:
        return f"{schedule.text} {COMMAND}\n"
    text = strict_text(schedule.expression)
    if text is None:
        return "# No crontab has these times: they need Kron's dialect.\n"
    lines = []
    if job.window.bounds(0) != (0, 0) or job.constraints.applied:
        lines.append("# A crontab has neither windows nor constraints: this starts at the nominal times.")
    if changes:
        lines.append("# At clock changes cron starts jobs at other times; kron import lists each of a year.")
    if schedule.timezone != UTC:
        lines.append("# cronie and Kron use CRON_TZ; Debian's cron ignores it and uses the host's zone.")
    return "\n".join([*lines, f"CRON_TZ={schedule.timezone}", f"{text} {COMMAND}"]) + "\n"


def _manifest(document: Document) -> Document:
    """Return a KronJob; its identity is kept, because that of a KronJob without one has its namespace."""
    container = {"name": IDENTITY, "image": "registry.example/my-job:1"}
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    return {
        "apiVersion": KRONJOBS.api_version,
        "kind": KRONJOBS.kind,
        "metadata": {"name": IDENTITY},
        "spec": {**document, "jobTemplate": template},
    }
