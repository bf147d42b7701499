"""The decision of one period of a job, step by step: its policy and verdict, as text, JSON and a chart."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from kron.cli.support.job_file import JobFile
from kron.cli.support.option import parse_instant
from kron.cli.support.table import both_times
from kron.cli.support.terminal import say, show_json, to_json
from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError, check_choice, one_line
from kron.core.job.decision import Decision, Sample, attempts_of, decide_at, upcoming_from
from kron.core.job.file import definitions_in
from kron.core.job.job import Job, named_policy
from kron.core.job.policy import FRONT_DEFAULTS, POLICY
from kron.core.job.verdict import Settle, Start, Verdict, Wait, judge
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339, seconds_of
from kron.core.wording import counted

# How a job file is read: as jobs, or as the schedule documents of a service.
JOB_FRONT, SERVICE_FRONT = "job", "service"
DEFAULT = "default of"
DEFAULT_OF = {JOB_FRONT: f"{DEFAULT} a job", SERVICE_FRONT: f"{DEFAULT} the service"}
# The settings of a service that are defaults of policy fields.
SETTINGS = {
    "overlap": "default_overlap_policy",
    "catchup": "default_catchup_policy",
    "jitter_ms": "default_jitter_ms",
}
# Where the value of each policy field comes from.
Origins: TypeAlias = Mapping[str, str]
WIDTH = 60
# Samples of the chart: enough for smooth bars, few enough to be instant.
SAMPLES = 64 * WIDTH
BARS = " ▁▂▃▄▅▆▇█"
# How many rejected samples are listed; the others are counted.
MAX_SHOWN = 6
# Policy fields that are shown even if they have their defaults.
ALWAYS_SHOWN = ("overlap", "deadline", "catchup", "on_orphan")


def explain_jobs(
    file: JobFile,
    *,
    name: str | None,
    at: str | None,
    now: str | None,
    active: bool,
    front: str = JOB_FRONT,
    as_json: bool,
) -> None:
    """Explain one period of each job of a file, or of the named one, under the policy of a front."""
    check_choice("--front", front, (JOB_FRONT, SERVICE_FRONT))
    jobs = file.jobs()
    selected = [effective_of(file, job, front) for job in jobs if name in (None, job.identity)]
    if not selected:
        known = ", ".join(job.identity for job in jobs[:5]) + ("" if len(jobs) <= 5 else ", ...")
        raise InvalidOptionError(option="--job", value=name, reason=f"{file.file} has {known}")
    documents = []
    for number, (job, origins) in enumerate(selected):
        moment = _moment(now, job)
        decision = _decision_at(job, at, moment)
        verdict = judge(decision, job.policy, active=active, now=moment)
        if as_json:
            documents.append(
                {**_document(decision, verdict, moment), "policy": _policy_entries(job, origins)}
            )
        else:
            if number:
                say("")
            _show(decision, verdict, moment, origins)
    if as_json:
        show_json(documents)


def _moment(now: str | None, job: Job) -> int:
    if now is not None:
        return 1000 * parse_instant("--now", now, job.schedule.timezone)
    return 1000 * seconds_of(SystemClock().now())


def _decision_at(job: Job, at: str | None, moment: int) -> Decision:
    """Return the decision of the last period at or before a time, or of the next one."""
    if at is None:
        following = next(upcoming_from(job, moment // 1000, unschedulable=True), None)
        if following is None:
            reason = "the job has no further period (policy.end_at); name an earlier one"
            raise InvalidOptionError(option="--at", value="now", reason=reason)
        return following
    instant = parse_instant("--at", at, job.schedule.timezone)
    nominal = job.schedule.plan.prev_at_or_before(instant)
    if nominal is None:
        raise InvalidOptionError(
            option="--at", value=at, reason="the schedule has no period at or before this time"
        )
    return decide_at(job, nominal)


def _attempts(decision: Decision) -> list[Sample]:
    return list(attempts_of(decision.job, decision.nominal_time, decision.bounds, decision.seed_hash))


def _show(decision: Decision, verdict: Verdict, moment: int, origins: Origins) -> None:
    job, zone = decision.job, decision.job.schedule.plan.zone
    say(f"{job.identity}   {job.schedule.text}   {job.schedule.timezone}")
    say(job.schedule.describe(), "")
    start, end = decision.bounds
    width = counted(end - start + 1, "second")
    distribution = job.distribution.to_dict()
    parameters = "".join(f", {name} {value}" for name, value in distribution.items() if name != "name")
    rows = [
        ("nominal time", both_times(decision.nominal_time, zone, seconds=True)),
        ("window", f"{job.window.mode} {format_duration(job.window.duration)}, {width}"),
        ("  from", both_times(start, zone, seconds=True)),
        ("  to", both_times(end, zone, seconds=True)),
        ("seed", f'{job.seed_strategy}: key {decision.period_key}, salt "{job.salt}"'),
        ("  hash", decision.seed_hash),
        ("distribution", f"{distribution['name']}{parameters}"),
        ("constraints", ", ".join(job.constraints.applied) or "none"),
        *_sample_rows(decision),
    ]
    if decision.chosen_time is None:
        rows.append(("chosen time", f"none: unschedulable after {decision.attempts} samples"))
    else:
        rows.append(("chosen time", both_times(decision.chosen_time, zone, seconds=True)))
    text = verdict_text(verdict, suspended=job.policy.suspend)
    rows += _policy_rows(job, origins)
    rows.append(("verdict", f"at {rfc3339(moment // 1000)}: {text}"))
    for name, text in rows:
        say(f"  {name:13} {one_line(text)}")
    if end > start:
        say(*(f"  {'':13} {line}" for line in chart(decision)))


def _policy_entries(job: Job, origins: Origins) -> list[dict[str, object]]:
    """Return every field of a job's policy with its value and where that comes from."""
    return [
        {"field": row.word, "value": row.type.write(getattr(job.policy, row.name)), "from": origins[row.name]}
        for row in POLICY.rows
    ]


def _policy_rows(job: Job, origins: Origins) -> list[tuple[str, str]]:
    """Return the lines of a policy: the fields that decide about a start, and every other that is named."""
    lines = [
        f"{entry['field']} {_plain(entry['value'])}  ({entry['from']})"
        for entry, row in zip(_policy_entries(job, origins), POLICY.rows, strict=True)
        if row.name in ALWAYS_SHOWN or not origins[row.name].startswith(DEFAULT)
    ]
    return [("policy" if number == 0 else "", line) for number, line in enumerate(lines)]


def _plain(value: object) -> str:
    return "none" if value is None else value if isinstance(value, str) else to_json(value)


def _sample_rows(decision: Decision) -> list[tuple[str, str]]:
    zone = decision.job.schedule.plan.zone
    rows: list[tuple[str, str]] = []
    attempts = _attempts(decision)
    for number, attempt in enumerate(attempts, 1):
        if MAX_SHOWN < number < len(attempts):
            continue
        if number == len(attempts) > MAX_SHOWN + 1:
            rows.append(("", f"... {len(attempts) - MAX_SHOWN - 1} more rejected"))
        result = f"rejected by {attempt.rejected_by}" if attempt.rejected_by else "chosen"
        drawn = f"u {attempt.u:.6f}  " if decision.attempts else ""
        when = both_times(attempt.candidate, zone, seconds=True)
        rows.append(("samples" if number == 1 else "", f"{number:2}  {drawn}{when}  {result}"))
    return rows


def verdict_text(verdict: Verdict, *, suspended: bool) -> str:
    """Return a verdict as text."""
    match verdict:
        case Wait(until=None):
            return "wait until the job is resumed" if suspended else "wait until the active run ends"
        case Wait(until=until):
            assert until is not None
            return f"wait until {rfc3339(until // 1000)}"
        case Start(replace=replace):
            return "start, after ending the active run" if replace else "start"
        case Settle(reason=reason):
            return reason.sentence


def chart(decision: Decision) -> list[str]:
    """Return a chart of the window: the density, the forbidden parts, and the chosen time."""
    start, end = decision.bounds
    shades = _density(decision)
    highest = max(shades) or 1
    bars = "".join(BARS[-(-shade * (len(BARS) - 1) // highest)] for shade in shades)
    lines = [f"|{bars}|"]
    forbidden = "".join("x" if _is_forbidden(decision, column) else " " for column in range(WIDTH))
    if forbidden.strip():
        lines.append(f"|{forbidden}|  x not allowed")
    if decision.chosen_time is not None:
        column = min((decision.chosen_time - start) * WIDTH // (end - start + 1), WIDTH - 1)
        lines.append(f" {' ' * column}^ chosen")
    zone = decision.job.schedule.plan.zone
    first, last = (both_times(bound, zone, seconds=True)[15:23] for bound in (start, end))
    lines.append(f" {first}{last:>{WIDTH - len(first)}}")
    return lines


def _density(decision: Decision) -> list[int]:
    shades = [0] * WIDTH
    for sample in range(SAMPLES):
        u = (sample + 0.5) / SAMPLES
        x = decision.job.distribution.place(u, decision.bounds, decision.nominal_time)
        shades[min(max(int(x * WIDTH), 0), WIDTH - 1)] += 1
    return shades


def _is_forbidden(decision: Decision, column: int) -> bool:
    """Return whether the constraints forbid the middle of a column of the chart."""
    start, end = decision.bounds
    middle: EpochSeconds = start + (2 * column + 1) * (end - start) // (2 * WIDTH)
    return decision.job.constraints.rejected_by(middle, decision.job.schedule.plan.zone) is not None


def _document(decision: Decision, verdict: Verdict, moment: int) -> dict[str, object]:
    judged: dict[str, object] = {"kind": type(verdict).__name__.lower(), "at": rfc3339(moment // 1000)}
    match verdict:
        case Wait(until=until):
            judged["until"] = None if until is None else rfc3339(until // 1000)
        case Start(replace=replace):
            judged["replace"] = replace
        case Settle(outcome=outcome, reason=reason):
            judged |= {"outcome": outcome, "reason": reason, "sentence": reason.sentence}
    samples = [
        {"u": attempt.u, "candidate": rfc3339(attempt.candidate), "rejected_by": attempt.rejected_by}
        for attempt in _attempts(decision)
    ]
    return {"decision": decision.to_dict(), "samples": samples, "verdict": judged}


def effective_of(file: JobFile, job: Job, front: str) -> tuple[Job, Origins]:
    """Return a job of a file with the policy it has under a front, and where each value comes from."""
    path, definition = next(
        (path, definition)
        for path, definition in definitions_in(file.content)
        if job.identity in (definition.get("identity"), definition.get("schedule_id"))
    )
    named = named_policy(definition)
    defaults = FRONT_DEFAULTS[front]
    values = {row.name: getattr(defaults, row.name) for row in POLICY.rows}
    origins = dict.fromkeys(values, DEFAULT_OF[front])
    if front == SERVICE_FRONT:
        for name, (value, origin) in _settings().items():
            values[name], origins[name] = value, origin
    for name, word in named.items():
        place = f"{path}.{word}".removeprefix(".")
        values[name], origins[name] = getattr(job.policy, name), f"{file.file}:{file.line_of(place)}"
    return replace(job, policy=replace(job.policy, **values)), origins


def _settings() -> dict[str, tuple[object, str]]:
    """Return the policy fields that the service's settings set, each with the setting's name."""
    from kron.fronts.service.settings import Settings, read_settings

    settings, plain = read_settings(os.environ, {}).settings, Settings()
    return {
        name: (POLICY[name].type.parse(getattr(settings, setting)), f"setting {setting}")
        for name, setting in SETTINGS.items()
        if getattr(settings, setting) != getattr(plain, setting)
    }
