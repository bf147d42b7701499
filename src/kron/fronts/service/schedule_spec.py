"""A schedule in the words of SPEC 3, read into what the engine knows: a job and its launcher."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kron.core.cron.count import smallest_gap
from kron.core.errors import InvalidJobError, InvalidOptionError, Problem, quoted
from kron.core.job.fields import FieldReader, parse_bool, suggestion
from kron.core.job.job import Job
from kron.core.job.policy import LOOKAHEAD_MS, POLICY_FIELDS
from kron.fronts.service.errors import InvalidScheduleError
from kron.launchers.celery.spec import NOT_ALLOWED, CelerySettings
from kron.launchers.http.egress import EgressPolicy, host_of
from kron.launchers.process.env import unsafe_variables
from kron.launchers.spec import HttpSettings, InvalidLauncherError, ProcessSettings, Settings, read_launcher

# The longest name of a schedule, in bytes: databases keep it in their indexes.
MAX_NAME = 500
# The longest name of a request, in signs.
MAX_REQUEST = 500
WORKFLOW = ("workflow_id", "version", "user_id")
# Each word of SPEC 3, and of the service's own, beside the one used inside.
DEFINITION = {
    "schedule_id": "identity",
    "cron_expr": "schedule",
    **{
        name: name
        for name in (
            "timezone", "dialect", "dst_gap", "dst_repeat", "window", "distribution", "seed", "constraints",
            "calendars",
        )
    },
}  # fmt: skip
POLICY = {
    "overlap_policy": "overlap",
    "catchup_policy": "catchup",
    **{name: name for name in POLICY_FIELDS if name not in ("concurrency", "overlap", "catchup", "suspend")},
}
FIELDS = (*WORKFLOW, *DEFINITION, *POLICY, "paused", "launcher", "policy")
KNOWN = frozenset(FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator assumes where a schedule is silent, and what may not be asked for.

    A list that is None allows everything. `commands` are programs, or whole texts for the shell; `tasks`
    are Celery's. `executor` is what runs workflows.
    """

    overlap_policy: str = "skip"
    catchup_policy: str = "none"
    jitter_ms: int = 0
    lookahead_ms: int = LOOKAHEAD_MS
    min_interval_s: int = 0
    max_schedules: int = 0
    launcher: Mapping[str, object] | None = None
    timezones: frozenset[str] | None = None
    commands: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    hosts: EgressPolicy | None = None
    executor: Mapping[str, object] | None = None


class ScheduleSpec(NamedTuple):
    """What somebody wants: a job, how it is launched, and whether it is paused, if they say so."""

    job: Job
    settings: Settings
    paused: bool | None


def parse_schedule_spec(document: object, rules: Rules, *, schedule_id: str) -> ScheduleSpec:
    """Return a wish from a document, or raise with every problem; `schedule_id` is for one without."""
    problems: list[Problem] = []
    fields = FieldReader(document, "", problems, known=FIELDS)
    if not isinstance(document, Mapping):
        problems[:] = [Problem("schedule", document, "must be an object")]
        raise InvalidScheduleError(schedule_id=None, problems=problems)
    said = {name: value for name, value in document.items() if value is not None and name in KNOWN}
    said.setdefault("schedule_id", schedule_id)
    _check_edges(fields, said)
    paused = fields.read("paused", parse_bool, False) if "paused" in said else None
    settings = _read_settings(said, rules, problems)
    job = _read_job(said, rules, problems)
    if job is not None:
        _check_rules(job, settings, "launcher" in said, rules, problems)
    if problems or job is None or settings is None:
        raise InvalidScheduleError(schedule_id=said["schedule_id"], problems=problems)
    return ScheduleSpec(job, settings, job.policy.suspend or None if paused is None else paused)


def _check_edges(fields: FieldReader, said: Mapping[str, object]) -> None:
    """Check what the job itself does not: what SPEC 3 requires, and how long a name may be."""
    required = ["timezone"] if "launcher" in said else [*WORKFLOW, "timezone"]
    for name in required:
        if name not in said:
            nothing = ", and so is a launcher: nothing says what is to be run" if name == WORKFLOW[0] else ""
            fields.problem(name, None, f"is missing{nothing}")
    identity = said["schedule_id"]
    if isinstance(identity, str) and len(identity.encode(errors="replace")) > MAX_NAME:
        fields.problem("schedule_id", identity, f"is longer than {MAX_NAME} bytes")


def _read_job(said: Mapping[str, object], rules: Rules, problems: list[Problem]) -> Job | None:
    definition = {inner: said[outer] for outer, inner in DEFINITION.items() if outer in said}
    outer_of = {inner: outer for outer, inner in DEFINITION.items()}
    policy = _policy_of(said, rules, problems)
    if policy is None:
        return None
    outer_of |= {f"policy.{inner}": outer for outer, inner in POLICY.items() if outer in said}
    try:
        return Job.from_dict({**definition, "policy": policy})
    except InvalidJobError as error:
        for path, value, reason in ((each.path, each.value, each.reason) for each in error.problems):
            problems.append(Problem(outer_of.get(path, path), value, reason))
    return None


def _policy_of(said: Mapping[str, object], rules: Rules, problems: list[Problem]) -> dict[str, object] | None:
    """Return the policy: what stands flat in the document, what is in `policy`, and what is usual here."""
    nested = said.get("policy", {})
    if not isinstance(nested, Mapping):
        problems.append(Problem("policy", nested, "must be an object"))
        return None
    policy = {str(name): value for name, value in nested.items()}
    if "concurrency" in policy:
        policy.setdefault("overlap", policy.pop("concurrency"))
    for outer, inner in POLICY.items():
        if outer in said and inner in policy:
            problems.append(Problem(outer, said[outer], f"stands beside policy.{inner}; use one of the two"))
        elif outer in said:
            policy[inner] = said[outer]
    usual = {
        "overlap": rules.overlap_policy,
        "catchup": rules.catchup_policy,
        "jitter_ms": rules.jitter_ms,
        "deadline": None,
    }
    return {**usual, **policy}


def _read_settings(said: Mapping[str, object], rules: Rules, problems: list[Problem]) -> Settings | None:
    """Return how the job is launched: as it says itself, or as is usual here, for its workflow."""
    launcher = said.get("launcher", rules.launcher or {"kind": "workflow"})
    if isinstance(launcher, Mapping):
        problems += [
            Problem(name, said[name], f"is not what launcher.{name} says; use one of the two")
            for name in WORKFLOW
            if name in said and launcher.get(name) not in (None, said[name])
        ]
        launcher = {**launcher, **{name: said[name] for name in WORKFLOW if name in said}}
    try:
        return read_launcher(launcher)
    except InvalidLauncherError as error:
        for problem in error.problems:
            name = problem.path.removeprefix("launcher.")
            if name in WORKFLOW and problem.value is None and "launcher" not in said:
                continue  # already said of the schedule itself
            path = name if name in WORKFLOW and name in said else problem.path
            problems.append(Problem(path, problem.value, problem.reason))
    return None


def _check_rules(
    job: Job, settings: Settings | None, own: bool, rules: Rules, problems: list[Problem]
) -> None:
    """Refuse what the operator does not allow; the launcher that is usual here is the operator's own."""
    zone = job.schedule.timezone
    if rules.timezones is not None and zone not in rules.timezones:
        allowed = suggestion(zone, sorted(rules.timezones))
        problems.append(Problem("timezone", zone, f"is not among those allowed here; {allowed}"))
    if job.policy.jitter_ms > rules.lookahead_ms:
        reason = f"is longer than the lookahead of {rules.lookahead_ms} ms"
        problems.append(Problem("jitter_ms", job.policy.jitter_ms, reason))
    gap = smallest_gap(job.schedule.expression) if rules.min_interval_s else None
    if gap is not None and gap < rules.min_interval_s:
        reason = f"runs again after {gap} s; the settings allow no less than {rules.min_interval_s} s"
        problems.append(Problem("cron_expr", job.schedule.text, reason))
    match settings:
        case ProcessSettings(command=command, env=env) if own and rules.commands is not None:
            if command[0] not in rules.commands:
                reason = "is not among the commands the settings allow (allowed_commands)"
                problems.append(Problem("launcher.command", command[0], reason))
            problems += [
                Problem(f"launcher.env.{name}", None, "decides which code runs; leave it out")
                for name in unsafe_variables(env)
            ]
        case HttpSettings(url=url) if own and rules.hosts is not None:
            fault = rules.hosts.fault_of(url)
            if fault is not None:
                problems.append(Problem("launcher.url", host_of(url), fault))
        case CelerySettings(task=task) if own and rules.tasks is not None:
            if task not in rules.tasks:
                problems.append(Problem("launcher.task", task, NOT_ALLOWED))
        case _:
            pass


def check_request(request_id: str | None) -> None:
    """Refuse a name of a request that cannot be one; None is for a request without one."""
    if request_id is not None:
        check_text("request_id", request_id, most=MAX_REQUEST)
        if not request_id:
            raise InvalidOptionError(option="request_id", value="", reason="it is empty")


def check_text(option: str, value: str, *, most: int) -> None:
    """Refuse a text that is too long, or that cannot be written."""
    if len(value) > most:
        raise InvalidOptionError(option=option, value=quoted(value), reason=f"has more than {most} signs")
    if value != value.encode("utf-8", "replace").decode("utf-8"):
        raise InvalidOptionError(option=option, value=ascii(quoted(value)), reason="is no plain text")
