"""Compiled jobs: definitions as the engine uses them, shared by all jobs with the same one."""

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from kron.core.cron.dialect import needs_identity
from kron.core.cron.schedule import Plan, Schedule
from kron.core.job.constraint import Constraints
from kron.core.job.decision import decide_at
from kron.core.job.distribution import Distribution
from kron.core.job.job import Job
from kron.core.job.policy import Policy
from kron.core.job.seed import SeedStrategy, jitter_of
from kron.core.job.window import Window
from kron.core.time.instant import EpochSeconds, rfc3339

# The most compiled definitions in the cache; beyond it the least recently used is compiled again.
MAX_COMPILED = 100_000
How = tuple[Window, SeedStrategy, str, Constraints, Policy]
# The identity of jobs that share a compiled definition, because nothing in it depends on the identity.
SHARED_IDENTITY = "*"


@dataclass(frozen=True, slots=True)
class CompiledJob:
    """One definition, with the values that every wake needs computed once."""

    job: Job
    plan: Plan
    policy: Policy
    early: int
    late: int
    jitter_ms: int
    deadline_s: float | None
    plain: bool

    @property
    def is_shared(self) -> bool:
        """Return whether all jobs with this definition have the same times; `H` makes them differ."""
        return self.job.identity == SHARED_IDENTITY

    def for_job(self, identity: str) -> Job:
        """Return the definition as a job with this identity."""
        return self.job if self.job.identity == identity else replace(self.job, identity=identity)

    def fire_time(self, identity: str, nominal_time: EpochSeconds) -> int | None:
        """Return the fire time of a period, in milliseconds; None if it is unschedulable."""
        if self.plain:
            return 1000 * nominal_time
        chosen = decide_at(self.for_job(identity), nominal_time).chosen_time
        if chosen is None:
            return None
        return 1000 * chosen + jitter_of(identity, rfc3339(nominal_time), self.jitter_ms)


def compiled_job(definition: str, identity: str) -> CompiledJob:
    """Return a compiled definition; jobs with the same one share it, unless it uses `H`."""
    return _shared(definition) or _individual(definition, identity)


def definition_of(job: Job) -> str:
    """Return a job's definition as canonical JSON; equal definitions have equal texts.

    It omits the identity, the default values, and `suspend`: pausing does not change the definition.
    """
    schedule = job.schedule
    # Without the identity, so that jobs that differ in nothing else are serialized once.
    when = (schedule.text, schedule.timezone, schedule.dialect, schedule.dst_gap, schedule.dst_repeat)
    how = (job.window, job.seed_strategy, job.salt, job.constraints, job.policy)
    return _text_of(when, how, job.distribution)


@lru_cache(maxsize=MAX_COMPILED)
def _text_of(when: tuple[str, str, str, str, str], how: How, distribution: Distribution) -> str:
    text, timezone, dialect, dst_gap, dst_repeat = when
    window, strategy, salt, constraints, policy = how
    job = Job(
        identity=SHARED_IDENTITY,
        schedule=Schedule(
            text, timezone, dialect=dialect, identity=SHARED_IDENTITY, dst_gap=dst_gap, dst_repeat=dst_repeat
        ),
        window=window,
        distribution=distribution,
        seed_strategy=strategy,
        salt=salt,
        constraints=constraints,
        policy=replace(policy, suspend=False) if policy.suspend else policy,
    )
    fields = job.to_dict()
    del fields["identity"]
    defaults = _defaults()
    fields = {name: value for name, value in fields.items() if value != defaults.get(name)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1)
def _defaults() -> dict[str, object]:
    """Return the fields of a job that defines nothing but its schedule."""
    defaults = Job.from_dict({"identity": SHARED_IDENTITY, "schedule": "* * * * *"}).to_dict()
    del defaults["schedule"]
    return defaults


@lru_cache(maxsize=MAX_COMPILED)
def _shared(definition: str) -> CompiledJob | None:
    if needs_identity(json.loads(definition)["schedule"]):
        return None
    return _compile(definition, SHARED_IDENTITY)


@lru_cache(maxsize=MAX_COMPILED)
def _individual(definition: str, identity: str) -> CompiledJob:
    return _compile(definition, identity)


def _compile(definition: str, identity: str) -> CompiledJob:
    job = Job.from_dict({"identity": identity, **json.loads(definition)})
    early, late = job.window.bounds(0)
    jitter = job.policy.jitter_ms
    plain = early == late == jitter == 0 and not job.constraints.applied
    deadline = job.policy.deadline
    return CompiledJob(
        job,
        job.schedule.plan,
        job.policy,
        early,
        late,
        jitter,
        None if deadline is None else deadline.total_seconds(),
        plain,
    )
