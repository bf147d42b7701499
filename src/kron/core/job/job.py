"""A job: the definition of one scheduled thing, read from plain data and checked (SPEC 4: Inputs)."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from typing import NamedTuple

from kron.core.cron.dialect import DIALECTS, EXTENDED, REBOOT
from kron.core.cron.schedule import UTC, Schedule
from kron.core.cron.timeline import BOTH, GAP_CHOICES, REPEAT_CHOICES, SKIP
from kron.core.errors import InputError, InvalidJobError, Problem
from kron.core.fields import (
    NAME_PATTERN,
    NOT_RENAMED,
    FieldReader,
    FieldSpec,
    FieldTable,
    ValueType,
    identity_fault,
    invalid_value,
    optional,
    parse_text,
    part,
    string_fault,
)
from kron.core.job.calendar import CALENDARS, Calendars, parse_calendars, read_calendars
from kron.core.job.constraint import CONSTRAINTS, Constraints, read_constraints
from kron.core.job.distribution import (
    Distribution,
    Uniform,
    distribution_schema,
    parse_distribution,
    read_distribution,
)
from kron.core.job.host import HOST, HOST_WORDS
from kron.core.job.notify import NOTIFY, NOTIFY_TYPE, Notify, read_notify
from kron.core.job.policy import END_BEFORE_START, POLICY, Policy, policy_of
from kron.core.job.profile import PROFILE, Retention
from kron.core.job.seed import SEED, Seed, SeedStrategy, read_seed
from kron.core.job.window import WINDOW, Window, read_window
from kron.core.time.duration import format_duration
from kron.core.time.instant import DAY
from kron.core.time.zone import zone_of
from kron.core.value_types import NAME_TEXT, VERSION, nullable, one_of

# How many windows of one job may be open at once, which bounds the periods a planning step keeps.
MAX_OPEN_WINDOWS = 1_000
NO_WINDOW, NO_SEED, UNIFORM = Window(), Seed(), Uniform()
UNCONSTRAINED, DEFAULT_POLICY = Constraints(), Policy()


def check_identity(value: object) -> str:
    """Return an identity, or refuse one that is empty or has a line break."""
    if fault := identity_fault(value):
        raise invalid_value(value if fault != "must be valid Unicode" else ascii(value), fault)
    return str(value)


def schedule_prefix(user: str) -> str:
    """Return the prefix of the names of a user's schedules; no two users share one."""
    return user.replace("%", "%25").replace("/", "%2F") + "/"


def _parse_zone(value: object) -> str:
    return zone_of(parse_text(value)).key


IDENTITY = ValueType(schema={"type": "string", "pattern": NAME_PATTERN}, parse=check_identity)
CRON = ValueType(schema={"type": "string", "examples": ["0 9 * * mon-fri"]}, parse=parse_text)
ZONE = ValueType(
    schema={"type": ["string", "null"], "examples": ["Europe/Berlin"]},
    parse=optional(_parse_zone),
    written={"type": "string"},
)


def _parse_launcher(value: object) -> Mapping[str, object] | None:
    """Return a launcher object; its kind checks the fields where the launcher is used.

    One with a workflow and no kind starts that workflow, one with a command is a process.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object with kind")
    given = {parse_text(name): each for name, each in value.items()}
    if "kind" not in given and "workflow_id" in given:
        given = {"kind": "workflow", **given}
    elif "kind" not in given and "command" in given:
        given = {"kind": "process", **given}
    if not isinstance(given.get("kind"), str):
        raise invalid_value(None, "must be an object with kind, with workflow_id, or with command")
    return given


LAUNCHER_OBJECT = ValueType(
    schema={"type": ["object", "null"], "properties": {"kind": {"type": "string"}}},
    parse=_parse_launcher,
    check=_parse_launcher,
    written={"type": "object"},
)


def read_policy(reader: FieldReader) -> Policy:
    """Return the policy of a definition."""
    values = POLICY.read(reader)
    start_at, end_at = values.get("start_at"), values.get("end_at")
    if isinstance(start_at, int) and isinstance(end_at, int) and start_at > end_at:
        reader.problem("end_at", reader.get("end_at"), END_BEFORE_START)
        del values["end_at"]
    return policy_of(tuple(values.items()))


def _field(
    name: str, type_: ValueType, doc: str, default: object = None, service_word: str | None = None
) -> FieldSpec:
    return FieldSpec(name, type_, doc, default, (name,), service_word or name)


# The options of a schedule, beside its expression and its zone.
OPTIONS = (
    _field(
        "dialect",
        nullable(one_of(DIALECTS)),
        "the dialect of the expression: `extended` or `posix`",
        EXTENDED,
    ),
    _field(
        "dst_gap",
        nullable(one_of(GAP_CHOICES)),
        "what happens to local times the clocks skip: `skip` drops them, `next` runs them after the gap",
        SKIP,
    ),
    _field(
        "dst_repeat",
        nullable(one_of(REPEAT_CHOICES)),
        "which of local times shown twice run: `both`, `first` or `last`",
        BOTH,
    ),
)
OPTION_WORDS = frozenset(option.name for option in OPTIONS)
JOB = FieldTable(
    (
        _field(
            "identity",
            IDENTITY,
            "the job's stable name, any text on one line; it seeds the decisions",
            service_word="schedule_id",
        ),
        _field("schedule", CRON, "a cron expression", service_word="cron_expr"),
        _field("timezone", ZONE, "an IANA time zone; by default the expression's `CRON_TZ=`, else UTC", UTC),
        *OPTIONS,
        _field("window", part(WINDOW, read_window), "the interval from which each start is chosen"),
        _field(
            "distribution",
            ValueType(schema=distribution_schema(), parse=parse_distribution, written={"type": "object"}),
            "how likely each part of the window is: a name, or an object with `name` and its parameters",
            {"name": "uniform"},
        ),
        _field("seed", part(SEED, read_seed), "what seeds the choice, beside the identity and the period"),
        _field(
            "constraints",
            part(CONSTRAINTS, lambda reader: read_constraints(reader, {})),
            "which local times may be chosen",
        ),
        _field(
            "calendars",
            ValueType(schema=CALENDARS, parse=parse_calendars),
            "named lists of days that the constraints may name",
        ),
        _field("policy", part(POLICY, read_policy), "what happens to a period that is due"),
        FieldSpec(
            "launcher",
            LAUNCHER_OBJECT,
            "how a service starts runs: an object with `kind` and the fields of that kind",
            None,
            ("launcher",),
        ),
        *PROFILE.rows,
        _field("notify", NOTIFY_TYPE, "who is notified of which events, and the heartbeat"),
    ),
    required=("identity", "schedule"),
)


# --- the words of definitions -----------------------------------------------------------------------

# SPEC 3's and SPEC 4's names of every field are read, and one is written. A document may name a field by
# another word, or put a field of an object beside it: `cron_expr` is `schedule`, `window_mode` is
# `window.mode`, `overlap_policy` is `policy.concurrency`.


class Place(NamedTuple):
    """Where a field belongs: the object that holds it, none for the document, and the words it has there."""

    holder: str | None
    words: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the path under which the field is written."""
        return self.words[0] if self.holder is None else f"{self.holder}.{self.words[0]}"


def _flat(holder: str, table: FieldTable, prefix: str = "") -> dict[str, Place]:
    """Return the words of an object's fields when they stand beside it."""
    return {
        f"{prefix}{word}": Place(holder, row.words)
        for row in table.rows
        for word in (*row.words, row.service_word)
        if word is not None
    }


# The workflow of a schedule document: the fields every launcher object has (SPEC 3: 3).
WORKFLOW = FieldTable(
    (
        FieldSpec("workflow_id", NAME_TEXT, "the workflow that is run", None, ("workflow_id",)),
        FieldSpec("version", VERSION, "its version", None, ("version",)),
        FieldSpec("user_id", NAME_TEXT, "the user who owns the job", None, ("user_id",)),
    )
)
# Every further word of a document, with its place.
PLACES: Mapping[str, Place] = {
    "schedule_id": Place(None, ("identity",)),
    "cron_expr": Place(None, ("schedule",)),
    **_flat("window", WINDOW, "window_"),
    **_flat("seed", SEED, "seed_"),
    "salt": Place("seed", SEED["salt"].words),
    **_flat("policy", POLICY),
    **_flat("launcher", WORKFLOW),
    **{word: Place("launcher", (name,)) for word, name in HOST_WORDS.items()},
}
# All words of a job: those of its parts are moved there before it is read.
KNOWN_WORDS = dict.fromkeys((*JOB.words, *PLACES))
TABLES = {
    "window": WINDOW,
    "seed": SEED,
    "policy": POLICY,
    "launcher": FieldTable((*WORKFLOW.rows, *HOST.rows)),
}


class Canonical(NamedTuple):
    """A document in the words that are written; `renamed` has the word that was used for a path."""

    document: Mapping[str, object]
    renamed: Mapping[str, str]


def canonical(document: Mapping[str, object], problems: list[Problem]) -> Canonical:
    """Return a document with every field under its own word, in its own object.

    A field that is given twice is a problem.
    """
    if PLACES.keys().isdisjoint(document):
        return Canonical(document, NOT_RENAMED)
    fields = {word: value for word, value in document.items() if word not in PLACES}
    renamed: dict[str, str] = {}
    for word, value in document.items():
        place = PLACES.get(word)
        if place is None:
            continue
        holder = fields if place.holder is None else _held(fields, place.holder)
        if holder is None:
            continue  # the object is of another type, which its reader reports
        for other in place.words:
            if other in holder:
                path = other if place.holder is None else f"{place.holder}.{other}"
                reason = f"conflicts with {renamed.get(path, path)}; use one of the two"
                problems.append(Problem(str(word), value, reason))
                break
        else:
            holder[place.words[0]] = value
            renamed[place.path] = word
    return Canonical(fields, renamed)


def named_policy(definition: Mapping[str, object]) -> dict[str, str]:
    """Return the policy fields that a definition names, each with the path under which it does."""
    document, renamed = canonical(definition, [])
    policy = document.get("policy")
    if not isinstance(policy, Mapping):
        return {}
    paths = {word: f"policy.{word}" for word in policy if word in POLICY.words}
    return {POLICY.words[word].name: renamed.get(path, path) for word, path in paths.items()}


def _held(fields: dict[str, object], holder: str) -> dict[str, object] | None:
    """Return an object of a document as one that may be changed, or None if it is of another type."""
    value = fields.get(holder, {})
    if not isinstance(value, Mapping):
        return None
    fields[holder] = copy = dict(value)
    return copy


# --- jobs -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The definition of one job; a job that exists is valid."""

    identity: str
    schedule: Schedule
    window: Window = NO_WINDOW
    distribution: Distribution = UNIFORM
    seed_strategy: SeedStrategy = SeedStrategy.STABLE
    salt: str = ""
    constraints: Constraints = UNCONSTRAINED
    policy: Policy = DEFAULT_POLICY
    launcher: Mapping[str, object] | None = field(default=None, hash=False)
    description: str | None = None
    tags: tuple[str, ...] = ()
    retention: Retention | None = None
    notify: Notify | None = None

    def __post_init__(self) -> None:
        """Check the fields that no part checks, and those that depend on each other.

        A schedule may be given as its expression, in UTC.
        """
        problems: list[Problem] = []
        if not isinstance(self.schedule, Schedule):
            self._parse_schedule()
        for path, value, fault in (
            ("identity", self.identity, identity_fault(self.identity)),
            ("seed.salt", self.salt, None if self.salt == "" else string_fault(self.salt)),
        ):
            if fault:
                problems.append(Problem(path, value, fault))
        if OPTIONAL_PARTS(self) != ABSENT_PARTS:
            problems += self._checked_parts()
        wrong = [] if tuple(map(type, PARTS(self))) == EXACT_TYPES else list(_wrong_parts(self))
        if not wrong and (fault := _window_fault(self.schedule, self.window)):
            problems.append(Problem("window.duration", format_duration(self.window.duration), fault))
        if problems or wrong:
            raise InvalidJobError(identity=self.identity, problems=problems + wrong)

    def _checked_parts(self) -> Iterator[Problem]:
        """Accept the parts that differ from their defaults, and yield a problem for each wrong one."""
        for name, default, accept in CHECKED:
            given = getattr(self, name)
            if given is default:
                continue
            try:
                object.__setattr__(self, name, accept(given))
            except InputError as error:
                yield Problem(name, given, str(error.details["reason"]))

    def _parse_schedule(self) -> None:
        text: object = self.schedule
        if not isinstance(text, str):
            return
        try:
            object.__setattr__(self, "schedule", Schedule(text, identity=self.identity or None))
        except InputError as error:
            problem = Problem("schedule", text, str(error))
            raise InvalidJobError(identity=self.identity, problems=[problem]) from error

    @classmethod
    def from_dict(cls, definition: object, *, calendars: Calendars | None = None) -> "Job":
        """Return a job from plain data, or raise InvalidJobError with every problem and its path.

        `calendars` are named lists of days that several jobs share; the job may bring its own.
        """
        problems: list[Problem] = []
        if not isinstance(definition, Mapping):
            FieldReader(definition, "", problems, known=KNOWN_WORDS)
            raise InvalidJobError(identity=None, problems=problems)
        document, renamed = canonical(definition, problems)
        reader = FieldReader(document, "", problems, known=KNOWN_WORDS, renamed=renamed)
        job = read_job(reader, calendars or {})
        if job is None:
            raise InvalidJobError(identity=reader.get("identity"), problems=problems)
        return job

    def to_dict(self) -> dict[str, object]:
        """Return plain data from which an equal job can be made."""
        schedule = self.schedule
        launcher = {} if self.launcher is None else {"launcher": dict(self.launcher)}
        return {
            "identity": self.identity,
            "schedule": schedule.text,
            "timezone": schedule.timezone,
            "dialect": schedule.dialect,
            "dst_gap": schedule.dst_gap,
            "dst_repeat": schedule.dst_repeat,
            "window": self.window.to_dict(),
            "distribution": self.distribution.to_dict(),
            "seed": Seed(self.seed_strategy, self.salt).to_dict(),
            "constraints": self.constraints.to_dict(),
            "policy": self.policy.to_dict(),
            **launcher,
            **PROFILE.write(self),
            **({} if self.notify is None else {"notify": self.notify.to_dict()}),
        }


ONLY_KROND = f"{REBOOT} has no times: only krond starts jobs at boot, in its files"


def check_has_times(job: Job) -> None:
    """Raise InvalidJobError for a job that starts at boot; called by every front but krond."""
    if job.schedule.is_boot:
        raise InvalidJobError(identity=job.identity, problems=[Problem("schedule", REBOOT, ONLY_KROND)])


def _wrong_parts(job: Job) -> Iterator[Problem]:
    """Yield a problem for each part that has the wrong type, as a program without a type checker gives it."""
    for name, kind in PART_TYPES.items():
        part = getattr(job, name)
        if not isinstance(part, kind):
            yield Problem(name, part, f"must be a kron.{kind.__name__}, got {type(part).__name__}")
    if not hasattr(job.distribution, "place"):
        reason = f"must be a distribution such as kron.Uniform(), got {type(job.distribution).__name__}"
        yield Problem("distribution", job.distribution, reason)


# The fields that a program may give in a wrong form, with their defaults.
CHECKED = tuple((row.name, row.default, row.type.check) for row in (JOB["launcher"], *PROFILE.rows))
PART_TYPES: Mapping[str, type] = {
    "schedule": Schedule,
    "window": Window,
    "seed_strategy": SeedStrategy,
    "constraints": Constraints,
    "policy": Policy,
}
# Nearly all jobs have every part of exactly its type, and none of the optional ones: one comparison each.
OPTIONAL_PARTS, ABSENT_PARTS = attrgetter(*(each[0] for each in CHECKED)), tuple(each[1] for each in CHECKED)
PARTS, EXACT_TYPES = attrgetter("distribution", *PART_TYPES), (Uniform, *PART_TYPES.values())


def read_job(reader: FieldReader, calendars: Calendars) -> Job | None:
    """Return the job of a definition, or None with every problem noted."""
    given, identity = reader.values, ""
    if given.get("identity") is None:
        reader.problem("identity", None, "is missing")
    else:
        identity = reader.read("identity", check_identity, "")
    schedule = _read_schedule(reader, identity)
    window = read_window(reader.sub("window", WINDOW.words)) if "window" in given else NO_WINDOW
    own = read_calendars(given["calendars"], reader.problems) if "calendars" in given else {}
    seed = read_seed(reader.sub("seed", SEED.words)) if "seed" in given else NO_SEED
    distribution: Distribution = UNIFORM
    if "distribution" in given:
        distribution = read_distribution(reader, window.mode)
    constraints = UNCONSTRAINED
    if "constraints" in given:
        sides = reader.sub("constraints", CONSTRAINTS.words)
        constraints = read_constraints(sides, {**calendars, **own})
    policy = DEFAULT_POLICY
    if "policy" in given:
        policy = read_policy(reader.sub("policy", POLICY.words))
    profile = PROFILE.read(reader)
    launcher = reader.read("launcher", _parse_launcher, None, is_secret=True)
    notify = None
    if given.get("notify") is not None:
        notify = read_notify(reader.sub("notify", NOTIFY.words, hides_unknown=True))
    if schedule is not None and (fault := _window_fault(schedule, window)):
        reader.problems.append(Problem("window.duration", format_duration(window.duration), fault))
    if reader.problems or schedule is None:
        return None
    return Job(
        identity=identity,
        schedule=schedule,
        window=window,
        distribution=distribution,
        seed_strategy=seed.strategy,
        salt=seed.salt,
        constraints=constraints,
        policy=policy,
        launcher=launcher,
        notify=notify,
        **profile,  # type: ignore[arg-type]  # the rows have the types of the fields
    )


def _window_fault(schedule: Schedule, window: Window) -> str | None:
    """Return why a window is too long for its schedule, or None if it is not."""
    if not window.duration:
        return None
    longest = longest_window(schedule)
    if window.duration <= longest:
        return None
    daily = _most_daily(schedule)
    often = "once" if daily == 1 else f"{daily} times"
    shown = format_duration(timedelta(seconds=longest // timedelta(seconds=1)))
    return f"too long for a schedule that runs {often} a day; use at most {shown}"


def longest_window(schedule: Schedule) -> timedelta:
    """Return the longest window of which no more than MAX_OPEN_WINDOWS are open at once."""
    return timedelta(microseconds=MAX_OPEN_WINDOWS * DAY * 1_000_000 // _most_daily(schedule))


def _most_daily(schedule: Schedule) -> int:
    """Return how often a schedule runs on its densest day."""
    expression = schedule.expression
    return (
        expression.hour.mask.bit_count()
        * expression.minute.mask.bit_count()
        * expression.second.mask.bit_count()
    )


def _read_schedule(reader: FieldReader, identity: str) -> Schedule | None:
    """Return the schedule, or None with the problem at the field that causes it."""
    options: dict[str, object] = {}
    if not OPTION_WORDS.isdisjoint(reader.values):
        options = {
            option.name: reader.read(option.name, option.type.parse, option.default)
            for option in OPTIONS
            if reader.get(option.name) is not None
        }
    timezone = reader.read("timezone", ZONE.parse, None)
    text = reader.get("schedule")
    if text is None:
        reader.problem("schedule", None, "is missing")
        return None
    # A wrong identity is a problem already noted; any other will do to read the expression.
    name, make = identity or "unknown", _SCHEDULE
    if text == REBOOT:
        return Schedule.at_boot(None if timezone is None else str(timezone), identity=name)
    try:
        return make(parse_text(text), timezone, identity=name, **options)
    except InputError as error:
        # The zone is refused here only if the expression names another.
        blamed = "timezone" if error.details.get("option") == "timezone" else "schedule"
        reason = error.details["reason"] if error.details.get("option") in ("timezone", "value") else error
        reader.problem(blamed, reader.get(blamed), str(reason))
    return None


_SCHEDULE: Callable[..., Schedule] = Schedule


def profile_text_of(job: "Job") -> str | None:
    """Return the profile of a job as canonical JSON, None if it is empty."""
    written = PROFILE.write(job)
    if not written:
        return None
    return json.dumps(written, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
