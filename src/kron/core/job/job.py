"""A job: what is to run, when, and under which policy (SPEC 4: Inputs)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from kron.core.cron.dialect import EXTENDED, POSIX
from kron.core.cron.schedule import Schedule
from kron.core.cron.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.errors import InputError, InvalidJobError, Problem
from kron.core.identity import identity_fault
from kron.core.job.constraint import Constraints
from kron.core.job.distribution import Distribution, Uniform
from kron.core.job.fields import FieldReader, choice_of, parse_text, parse_utf8, refuse
from kron.core.job.parse import (
    Calendars,
    read_calendars,
    read_constraints,
    read_distribution,
    read_policy,
    read_seed,
    read_window,
)
from kron.core.job.policy import POLICY_FIELDS, Policy
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import Window
from kron.core.time.duration import MICROSECOND, format_duration
from kron.core.time.instant import DAY
from kron.core.time.zone import zone_of

# How many windows of one job may be open at once: what a planner has to keep in mind (DESIGN 7).
MAX_OPEN_WINDOWS = 1_000

FIELDS = (
    "identity", "schedule", "timezone", "dialect", "dst_gap", "dst_repeat", "window", "distribution", "seed",
    "constraints", "calendars", "policy",
)  # fmt: skip
NO_WINDOW, UNIFORM, UNCONSTRAINED, USUAL_POLICY = Window(), Uniform(), Constraints(), Policy()
# The first of each is the usual one.
_SCHEDULE_CHOICES = {"dialect": (EXTENDED, POSIX), "dst_gap": GAP_CHOICES, "dst_repeat": REPEAT_CHOICES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The definition of one job; what exists is valid."""

    identity: str
    schedule: Schedule
    window: Window = NO_WINDOW
    distribution: Distribution = UNIFORM
    seed_strategy: SeedStrategy = SeedStrategy.STABLE
    salt: str = ""
    constraints: Constraints = UNCONSTRAINED
    policy: Policy = USUAL_POLICY

    def __post_init__(self) -> None:
        """Check what no single part can."""
        problems: list[Problem] = []
        for path, value, check in (
            ("identity", self.identity, check_identity),
            ("seed.salt", self.salt, parse_utf8),
        ):
            try:
                check(value)
            except InputError as error:
                problems.append(Problem(path, value, str(error.details["reason"])))
        if fault := _window_fault(self.schedule, self.window):
            problems.append(Problem("window.duration", format_duration(self.window.duration), fault))
        if problems:
            raise InvalidJobError(identity=self.identity, problems=problems)

    @classmethod
    def from_dict(cls, definition: object, *, calendars: Calendars | None = None) -> "Job":
        """Return a job from plain data, or raise InvalidJobError with every problem and its path.

        `calendars` are named lists of days that several jobs share; the job may bring its own.
        """
        problems: list[Problem] = []
        fields = FieldReader(definition, "", problems, known=FIELDS)
        if not isinstance(definition, Mapping):
            raise InvalidJobError(identity=None, problems=problems)
        identity = ""
        if fields.get("identity") is None:
            fields.problem("identity", None, "is missing")
        else:
            identity = fields.read("identity", check_identity, "")
        schedule = _read_schedule(fields, identity)
        window = (
            read_window(fields.sub("window", ("mode", "duration"))) if fields.has("window") else NO_WINDOW
        )
        own = read_calendars(fields.get("calendars", {}), problems)
        strategy, salt = SeedStrategy.STABLE, ""
        if fields.has("seed"):
            strategy, salt = read_seed(fields.sub("seed", ("strategy", "salt")))
        distribution: Distribution = UNIFORM
        if fields.has("distribution"):
            distribution = read_distribution(fields, window.mode)
        constraints = UNCONSTRAINED
        if fields.has("constraints"):
            sides = fields.sub("constraints", ("only", "avoid"))
            constraints = read_constraints(sides, {**(calendars or {}), **own})
        policy = USUAL_POLICY
        if fields.has("policy"):
            policy = read_policy(fields.sub("policy", POLICY_FIELDS))
        if schedule is not None and (fault := _window_fault(schedule, window)):
            problems.append(Problem("window.duration", format_duration(window.duration), fault))
        if problems or schedule is None:
            raise InvalidJobError(identity=identity or fields.get("identity"), problems=problems)
        return cls(
            identity=identity,
            schedule=schedule,
            window=window,
            distribution=distribution,
            seed_strategy=strategy,
            salt=salt,
            constraints=constraints,
            policy=policy,
        )

    def to_dict(self) -> dict[str, object]:
        """Return plain data from which an equal job can be made."""
        schedule = self.schedule
        return {
            "identity": self.identity,
            "schedule": schedule.text,
            "timezone": schedule.timezone,
            "dialect": schedule.dialect,
            "dst_gap": schedule.dst_gap,
            "dst_repeat": schedule.dst_repeat,
            "window": {"mode": self.window.mode.value, "duration": format_duration(self.window.duration)},
            "distribution": self.distribution.to_dict(),
            "seed": {"strategy": self.seed_strategy.value, "salt": self.salt},
            "constraints": self.constraints.to_dict(),
            "policy": self.policy.to_dict(),
        }


def check_identity(value: object) -> str:
    """Return an identity, or refuse one that is empty or would not stay on its line."""
    if fault := identity_fault(value):
        raise refuse(value if fault != "must be valid Unicode" else ascii(value), fault)
    return str(value)


def _window_fault(schedule: Schedule, window: Window) -> str | None:
    """Return why a window is too long for its schedule, or None if it is not."""
    if not window.duration:
        return None
    expression = schedule.expression
    daily = len(expression.hour.values) * len(expression.minute.values) * len(expression.second.values)
    if window.duration // MICROSECOND * daily <= MAX_OPEN_WINDOWS * DAY * 1_000_000:
        return None
    longest = format_duration(timedelta(seconds=MAX_OPEN_WINDOWS * DAY // daily))
    often = "once" if daily == 1 else f"{daily} times"
    return f"too long for a schedule that runs {often} a day; use at most {longest}"


def _read_schedule(fields: FieldReader, identity: str) -> Schedule | None:
    """Return the schedule; what is wrong with it is placed at the field that is to blame."""
    options = {
        name: fields.read(name, choice_of({choice: choice for choice in choices}), choices[0])
        for name, choices in _SCHEDULE_CHOICES.items()
        if fields.get(name) is not None
    }
    timezone = fields.read("timezone", _parse_zone, None)
    if fields.get("schedule") is None:
        fields.problem("schedule", None, "is missing")
        return None
    try:
        # A wrong identity is a problem of its own; any other will do to read the expression.
        name = identity or "unknown"
        return Schedule(parse_text(fields.get("schedule")), timezone, identity=name, **options)
    except InputError as error:
        # The one thing that can be wrong with a zone here is that the expression names another.
        blamed = "timezone" if error.details.get("option") == "timezone" else "schedule"
        reason = error.details["reason"] if blamed == "timezone" else error
        fields.problem(blamed, fields.get(blamed), str(reason))
    return None


def _parse_zone(value: object) -> str | None:
    return None if value is None else zone_of(parse_text(value)).key
