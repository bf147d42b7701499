"""Schedule documents: SPEC 3's words read into a job, its launcher and whether it is paused."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple

from kron.app.launchers import launcher_schema, read_common_launcher, read_launcher
from kron.core.cron.count import smallest_gap
from kron.core.errors import InvalidOptionError, Problem, quoted
from kron.core.fields import (
    MAX_NAME,
    NO_DEFAULT,
    FieldReader,
    FieldSpec,
    FieldTable,
    Schema,
    ValueType,
    parse_bool,
    suggestion,
    text_fault,
)
from kron.core.job.host import HOST_WORDS
from kron.core.job.job import (
    JOB,
    ONLY_KROND,
    PLACES,
    Job,
    canonical,
    check_has_times,
    longest_window,
    read_job,
)
from kron.core.job.notify import IS_REDACTED, Notify
from kron.core.job.policy import (
    CATCHUP_NAMES,
    FRONT_DEFAULTS,
    LOOKAHEAD_MS,
    OVERLAP_NAMES,
    POLICY,
    Catchup,
)
from kron.core.job.profile import PROFILE
from kron.core.plan.compiled import definition_of
from kron.core.value_types import FLAG, NAME_TEXT, VERSION, choice
from kron.fronts.service.errors import InvalidScheduleError
from kron.launchers.callback import CallbackSettings
from kron.launchers.http.egress import host_of
from kron.launchers.http.spec import egress_policy
from kron.launchers.secret import Vault
from kron.launchers.spec import (
    NO_LIMITS,
    WORKFLOW_FIELDS,
    InvalidLauncherError,
    LauncherConfig,
    LauncherSettings,
)

# The longest definition without its name and launcher, in characters as JSON: every worker compiles it.
MAX_DEFINITION = 65_536
# The longest request id, in characters.
MAX_REQUEST = 500
# The longest reason of a pause, in characters.
MAX_REASON = 500
# The deadline of a schedule that names none, as it is written.
DEFAULT_DEADLINE = POLICY["deadline"].type.write(FRONT_DEFAULTS["service"].deadline)
NO_LAUNCHER = (
    'is missing: name one, such as {"kind": "http", "url": "https://..."}, '
    "or set a default with KRON_DEFAULT_LAUNCHER"
)


def _launcher_schema() -> Schema:
    """Return the JSON Schema of a schedule's launcher; the fields of a workflow may stand beside it."""
    schema = launcher_schema()
    kinds = schema["oneOf"]
    assert isinstance(kinds, list)
    optional = {name: kinds[0]["properties"][name] for name in WORKFLOW_FIELDS}
    freed = [
        {
            **kind,
            "properties": {name: optional.get(name, each) for name, each in kind["properties"].items()},
            "required": [name for name in kind["required"] if name not in WORKFLOW_FIELDS],
        }
        for kind in kinds
    ]
    return {**schema, "oneOf": freed}


LAUNCHER = ValueType(schema=_launcher_schema(), parse=read_launcher)
# Rows that differ from those of a job: values are written in SPEC 3's words, and the settings have defaults.
_OWN_ROWS = {
    "schedule_id": replace(
        JOB["identity"], doc=f"the schedule's stable name, up to {MAX_NAME} bytes; by default a new one"
    ),
    "timezone": replace(JOB["timezone"], doc="an IANA time zone", default=NO_DEFAULT),
    "overlap_policy": replace(POLICY["overlap"], type=choice(OVERLAP_NAMES), default=NO_DEFAULT),
    "catchup_policy": replace(
        POLICY["catchup"],
        type=choice(CATCHUP_NAMES, written={Catchup.ALL: "fire_immediately"}),
        default=NO_DEFAULT,
    ),
    "jitter_ms": replace(POLICY["jitter_ms"], default=NO_DEFAULT),
    "deadline": replace(POLICY["deadline"], default=None),
}


def _rows() -> Iterator[FieldSpec]:
    yield _row(
        "workflow_id",
        NAME_TEXT,
        f"the workflow that is run, up to {MAX_NAME} bytes on one line; sent with every start",
    )
    yield _row("version", VERSION, "the version of the workflow; sent with every start")
    yield _row(
        "user_id",
        NAME_TEXT,
        f"the user who owns the schedule, up to {MAX_NAME} bytes on one line; sent with every start",
    )
    for row in (*JOB.rows, *POLICY.rows):
        word = row.service_word
        if word is not None and row.name != "policy":
            yield replace(_OWN_ROWS.get(word, row), words=(word,))
    yield _row("paused", FLAG, "whether the schedule is paused; left out, an existing one stays as it is")
    yield _row(
        "launcher",
        LAUNCHER,
        "how runs are started; without one, `workflow_id`, `version` and `user_id` are required",
    )
    yield replace(JOB["policy"], doc="the policy fields, which may also stand here in a job's words")


def _row(name: str, type_: ValueType, doc: str) -> FieldSpec:
    return FieldSpec(name, type_, doc, None, (name,), name)


SCHEDULE = FieldTable(tuple(_rows()), required=("cron_expr", "timezone"))
# A job's fields by the words of a schedule document, and the policy fields that stand flat in it.
JOB_WORDS = {row.name: row.service_word for row in JOB.rows if row.service_word is not None}
# The fields that a stored definition gives back: calendars are resolved, the policy fields stand flat, and
# the profile and the notifications are stored beside it.
DEFINITION_WORDS = {
    name: word
    for name, word in JOB_WORDS.items()
    if name not in ("identity", "calendars", "policy", "notify", *(row.name for row in PROFILE.rows))
}
FLAT_POLICY = {row.name: row.service_word for row in POLICY.rows if row.service_word is not None}
POLICY_WORDS = {row.name: frozenset(row.words) for row in POLICY.rows}
# A job's words are read as well, wherever SPEC 3 has another.
JOB_KNOWN = (JOB.words.keys() | PLACES.keys()) - {"launcher", *WORKFLOW_FIELDS, *HOST_WORDS}
KNOWN = frozenset(SCHEDULE.words) | JOB_KNOWN


def schedule_schema(example: Mapping[str, object]) -> Schema:
    """Return the JSON Schema of a schedule document, in SPEC 3's words; null counts as left out."""
    schema = SCHEDULE.schema()
    properties = {
        word: {"anyOf": [row.schema_of(word), {"type": "null"}]}
        for row in SCHEDULE.rows
        for word in row.words
    }
    return {**schema, "properties": properties, "example": dict(example)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The operator's defaults for schedules, and what schedules may not have.

    A list that is None allows everything. `launchers` limits the launchers of schedules, and the URLs they
    notify. `executor` is the launcher that workflows are handed to; with `runs_dags` that is the DAG runtime,
    so that tasks are checked. `channels` are those a schedule may name,
    each with the users who may, None for all; `notify` is the default of schedules that define none.
    `vault` seals the secrets of launchers before they are stored. `unavailable` are the kinds of launchers
    that this service cannot run, each with the reason and the remedy; `functions` are the schedules for
    which it has a function all the same.
    """

    overlap_policy: str = "skip"
    catchup_policy: str = "none"
    jitter_ms: int = 0
    lookahead_ms: int = LOOKAHEAD_MS
    min_interval_s: int = 0
    max_schedules: int = 0
    max_open_runs: int = 0
    max_workflow_versions: int = 0
    launcher: Mapping[str, object] | None = None
    timezones: frozenset[str] | None = None
    launchers: LauncherConfig = NO_LIMITS
    executor: Mapping[str, object] | None = None
    runs_dags: bool = False
    vault: Vault | None = None
    channels: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    notify: Notify | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    functions: frozenset[str] = frozenset()

    def faults_of(self, settings: LauncherSettings) -> list[Problem]:
        """Return why the operator does not allow a launcher that a schedule or a task of a DAG names."""
        secrets = [] if self.vault is None else self.vault.problems(settings)
        return [*settings.problems(self.launchers), *secrets]


class ScheduleSpec(NamedTuple):
    """A schedule as requested: its job, its launcher, and whether it is paused, None to leave that."""

    job: Job
    settings: LauncherSettings
    paused: bool | None


def parse_schedule_spec(document: object, rules: Rules, *, schedule_id: str) -> ScheduleSpec:
    """Return the schedule a document describes, or raise InvalidScheduleError with every problem.

    `schedule_id` names one whose document does not.
    """
    problems: list[Problem] = []
    own = document
    if isinstance(document, Mapping):
        own = {name: value for name, value in document.items() if name not in JOB_KNOWN}
    reader = FieldReader(own, "", problems, known=SCHEDULE.words)
    if not isinstance(document, Mapping):
        problems[:] = [Problem("schedule", document, "must be an object")]
        raise InvalidScheduleError(schedule_id=None, problems=problems)
    given = {name: value for name, value in document.items() if value is not None and name in KNOWN}
    if "identity" not in given:
        given.setdefault("schedule_id", schedule_id)
    _check_required(reader, given)
    paused = reader.read("paused", parse_bool, False) if "paused" in given else None
    settings = _read_settings(given, rules, problems)
    job = _read_job(given, rules, problems)
    if job is not None:
        _check_rules(job, settings, "launcher" in given, rules, problems)
        hidden = [] if job.notify is None else job.notify.hidden() + job.notify.encrypted()
        problems += [Problem(f"notify.{name}", None, IS_REDACTED) for name in hidden]
    if problems or job is None or settings is None:
        raise InvalidScheduleError(schedule_id=_name_of(given), problems=problems)
    return ScheduleSpec(job, settings, paused)


def parse_definition(document: object, rules: Rules, *, owner: str | None = None) -> ScheduleSpec:
    """Return the schedule that a job in a job file's words describes.

    Raises InvalidJobError or InvalidScheduleError with every problem. A launcher without a user is `owner`'s.
    """
    job = Job.from_dict(document)
    check_has_times(job)
    problems: list[Problem] = []
    if len(job.identity.encode()) > MAX_NAME:
        problems.append(Problem("identity", job.identity, f"is longer than {MAX_NAME} bytes"))
    launcher = job.launcher or rules.launcher
    settings = None
    if launcher is None:
        problems.append(Problem("launcher", None, NO_LAUNCHER))
    else:
        owned = launcher if owner is None or launcher.get("user_id") else {**launcher, "user_id": owner}
        try:
            settings = read_launcher(owned)
        except InvalidLauncherError as error:
            problems += error.problems
    _check_rules(job, settings, not is_default(launcher, rules), rules, problems, schedule_word="schedule")
    if problems or settings is None:
        raise InvalidScheduleError(schedule_id=job.identity, problems=problems)
    return ScheduleSpec(job, settings, None)


def is_default(launcher: Mapping[str, object] | None, rules: Rules) -> bool:
    """Say whether a launcher object is the operator's default one, for any workflow."""
    if launcher is None or rules.launcher is None:
        return launcher is None
    one, other = ({**each, **dict.fromkeys(WORKFLOW_FIELDS)} for each in (launcher, rules.launcher))
    try:
        return read_launcher(one) == read_launcher(other)
    except InvalidLauncherError:
        return False


def _check_required(reader: FieldReader, given: Mapping[str, object]) -> None:
    """Check which fields are present, and how long the name is."""
    required = ["timezone"] if "launcher" in given else [*WORKFLOW_FIELDS, "timezone"]
    for name in required:
        if name not in given:
            hint = "; without a launcher a workflow is required" if name == WORKFLOW_FIELDS[0] else ""
            reader.problem(name, None, f"is missing{hint}")
    identity = _name_of(given)
    if isinstance(identity, str) and len(identity.encode(errors="replace")) > MAX_NAME:
        reader.problem("schedule_id", identity, f"is longer than {MAX_NAME} bytes")


class _Words(NamedTuple):
    """The words of a schedule document for a job's paths: the ones it uses, by default SPEC 3's."""

    given: Mapping[str, object]
    used: Mapping[str, str]

    def get(self, path: str, default: str, /) -> str:
        """Return the word for a path, or the default."""
        word = self.used.get(path)
        if word is None:
            return default if path in self.given else JOB_WORDS.get(path, default)
        return word


def _read_job(given: Mapping[str, object], rules: Rules, problems: list[Problem]) -> Job | None:
    """Return the job of a document; problems have the paths of its own words."""
    own: list[Problem] = []
    document, used = canonical({word: given[word] for word in given if word in JOB_KNOWN}, own)
    nested = document.get("policy", {})
    if not isinstance(nested, Mapping):
        problems.append(Problem("policy", nested, "must be an object"))
        return None
    absent = {name: value for name, value in _defaults_of(rules) if POLICY_WORDS[name].isdisjoint(nested)}
    policy = {**absent, **nested}
    renamed = _Words(given, used)
    reader = FieldReader({**document, "policy": policy}, "", own, known=JOB.words, renamed=renamed)
    job = read_job(reader, {})
    if job is not None and job.schedule.is_boot:
        reader.problem("schedule", job.schedule.text, ONLY_KROND)
    problems += own
    return job


def _name_of(given: Mapping[str, object]) -> object:
    return given.get("schedule_id", given.get("identity"))


def _defaults_of(rules: Rules) -> tuple[tuple[str, object], ...]:
    """Return the policy fields whose defaults are not a job's."""
    return (
        ("overlap", rules.overlap_policy),
        ("catchup", rules.catchup_policy),
        ("jitter_ms", rules.jitter_ms),
        ("deadline", DEFAULT_DEADLINE),
    )


def _read_settings(
    given: Mapping[str, object], rules: Rules, problems: list[Problem]
) -> LauncherSettings | None:
    """Return the launcher of a document, by default the rules', with the document's workflow."""
    launcher = given.get("launcher", rules.launcher or {"kind": "workflow"})
    if isinstance(launcher, Mapping):
        problems += [
            Problem(name, given[name], f"differs from launcher.{name}; use one of the two")
            for name in WORKFLOW_FIELDS
            if name in given and not _agree(launcher.get(name), given[name])
        ]
        launcher = {**launcher, **{name: given[name] for name in WORKFLOW_FIELDS if name in given}}
    try:
        return read_common_launcher(launcher) if isinstance(launcher, Mapping) else read_launcher(launcher)
    except InvalidLauncherError as error:
        for problem in error.problems:
            name = problem.path.removeprefix("launcher.")
            if name in WORKFLOW_FIELDS and problem.value is None and "launcher" not in given:
                continue  # already reported for the schedule
            path = name if name in WORKFLOW_FIELDS and name in given else problem.path
            problems.append(Problem(path, problem.value, problem.reason))
    return None


def _agree(one: object, other: object) -> bool:
    """Say whether a field of a launcher is absent or the same as another; `false` is not 0."""
    return one is None or (type(one) is type(other) and one == other)


def _check_rules(
    job: Job,
    settings: LauncherSettings | None,
    own: bool,
    rules: Rules,
    problems: list[Problem],
    *,
    schedule_word: str = "cron_expr",
) -> None:
    """Refuse what the operator does not allow; the default launcher is the operator's, and not checked."""
    if len(definition_of(job)) > MAX_DEFINITION:
        reason = f"its definition has more than {MAX_DEFINITION} characters; name calendars with fewer days"
        problems.append(Problem("schedule", None, reason))
    zone = job.schedule.timezone
    if rules.timezones is not None and zone not in rules.timezones:
        allowed = suggestion(zone, sorted(rules.timezones))
        problems.append(Problem("timezone", zone, f"is not among those allowed here; {allowed}"))
    if job.policy.jitter_ms > rules.lookahead_ms:
        most = rules.lookahead_ms
        reason = f"is longer than the lookahead: use at most {most}, or raise the setting lookahead_ms"
        problems.append(Problem("jitter_ms", job.policy.jitter_ms, reason))
    if job.policy.jitter_ms > LOOKAHEAD_MS:
        longest = (longest_window(job.schedule) - job.window.duration) // timedelta(milliseconds=2)
        if job.policy.jitter_ms > max(longest, LOOKAHEAD_MS):
            reason = f"is too long for how often it runs: use at most {max(longest, LOOKAHEAD_MS)}"
            problems.append(Problem("jitter_ms", job.policy.jitter_ms, reason))
    gap = smallest_gap(job.schedule.expression) if rules.min_interval_s else None
    if gap is not None and gap < rules.min_interval_s:
        reason = f"runs again after {gap} s; the settings allow no less than {rules.min_interval_s} s"
        problems.append(Problem(schedule_word, job.schedule.text, reason))
    if settings is not None and not _is_available(job, settings, rules):
        path = "launcher.kind" if own else "launcher"
        problems.append(Problem(path, settings.kind, rules.unavailable[settings.kind]))
    elif own and settings is not None:
        problems += rules.faults_of(settings)
    if job.notify is not None:
        problems += _notify_problems(job.notify, rules, None if settings is None else settings.user_id)


def _is_available(job: Job, settings: LauncherSettings, rules: Rules) -> bool:
    """Return whether this service can run a launcher of that kind."""
    has_function = settings.kind == CallbackSettings.kind and job.identity in rules.functions
    return settings.kind not in rules.unavailable or has_function


def _notify_problems(notify: Notify, rules: Rules, user: object) -> Iterator[Problem]:
    """Yield the channels that this user's schedules may not name, and the URLs that may not be requested."""
    allowed = [name for name, users in rules.channels.items() if users is None or user in users]
    for name in notify.channels():
        if name not in allowed:
            known = suggestion(name, sorted(allowed)) if allowed else "none is configured"
            yield Problem("notify.to", name, f"is not a channel that this schedule may name; {known}")
    policy = egress_policy(rules.launchers)
    for word, url in notify.urls():
        fault = None if policy is None else policy.fault_of(url)
        if fault is not None:
            yield Problem(f"notify.{word}", host_of(url), fault)


def check_request(request_id: str | None) -> None:
    """Refuse a request id that is empty, too long or no plain text; None stands for no id."""
    if request_id is not None:
        check_text("request_id", request_id, most=MAX_REQUEST)
        if not request_id:
            raise InvalidOptionError(option="request_id", value="", reason="must not be empty")


def check_pause(paused: bool, reason: str | None, until: object) -> None:
    """Refuse a reason that cannot be stored, and a reason or an end of a resume."""
    if reason is not None:
        check_text("reason", reason, most=MAX_REASON)
    for option, value in (("reason", reason), ("until", until)):
        if value is not None and not paused:
            raise InvalidOptionError(option=option, value=value, reason="a resume has none")


def check_text(option: str, value: str, *, most: int) -> None:
    """Refuse a text that is too long, or that cannot be stored."""
    if len(value) > most:
        reason = f"is longer than {most} characters"
        raise InvalidOptionError(option=option, value=quoted(value), reason=reason)
    if fault := text_fault(value):
        raise InvalidOptionError(option=option, value=ascii(quoted(value)), reason=fault)
