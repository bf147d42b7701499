"""Terms: a job's definition as the engine uses it, shared by all jobs that have the same."""

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

# Definitions kept ready; beyond it the least used is read again from its text.
MAX_TERMS = 100_000
How = tuple[Window, SeedStrategy, str, Constraints, Policy]
# Stands for the identity of jobs that share their terms, because nothing in them depends on it.
ANYONE = "*"


@dataclass(frozen=True, slots=True)
class CompiledJob:
    """What one definition says, with what every wake asks computed once."""

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
        """Say whether all jobs with the same definition have the same times; `H` tells them apart."""
        return self.job.identity == ANYONE

    def for_job(self, identity: str) -> Job:
        """Return the definition as a job of this name."""
        return self.job if self.job.identity == identity else replace(self.job, identity=identity)

    def fire_time(self, identity: str, nominal_time: EpochSeconds) -> int | None:
        """Return when a period is to start, in milliseconds; None where no time can be chosen."""
        if self.plain:
            return 1000 * nominal_time
        chosen = decide_at(self.for_job(identity), nominal_time).chosen_time
        if chosen is None:
            return None
        return 1000 * chosen + jitter_of(identity, rfc3339(nominal_time), self.jitter_ms)


def compiled_job(definition: str, identity: str) -> CompiledJob:
    """Return the terms of a definition; jobs with the same share them, unless `H` tells them apart."""
    return _shared(definition) or _own(definition, identity)


def definition_of(job: Job) -> str:
    """Return a job's definition as a text; equal definitions have equal texts.

    Its name is left out, what is as usual too, and `suspend`: pausing a job does not change what it is.
    """
    schedule = job.schedule
    # Without names, so that jobs that differ in nothing else are written out once.
    when = (schedule.text, schedule.timezone, schedule.dialect, schedule.dst_gap, schedule.dst_repeat)
    how = (job.window, job.seed_strategy, job.salt, job.constraints, job.policy)
    return _text_of(when, how, job.distribution)


@lru_cache(maxsize=MAX_TERMS)
def _text_of(when: tuple[str, str, str, str, str], how: How, distribution: Distribution) -> str:
    text, timezone, dialect, dst_gap, dst_repeat = when
    window, strategy, salt, constraints, policy = how
    job = Job(
        identity=ANYONE,
        schedule=Schedule(
            text, timezone, dialect=dialect, identity=ANYONE, dst_gap=dst_gap, dst_repeat=dst_repeat
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
    usual = _usual()
    fields = {name: value for name, value in fields.items() if value != usual.get(name)}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1)
def _usual() -> dict[str, object]:
    """Return what a job has that says nothing but its schedule."""
    usual = Job.from_dict({"identity": ANYONE, "schedule": "* * * * *"}).to_dict()
    del usual["schedule"]
    return usual


@lru_cache(maxsize=MAX_TERMS)
def _shared(definition: str) -> CompiledJob | None:
    if needs_identity(json.loads(definition)["schedule"]):
        return None
    return _terms(definition, ANYONE)


@lru_cache(maxsize=MAX_TERMS)
def _own(definition: str, identity: str) -> CompiledJob:
    return _terms(definition, identity)


def _terms(definition: str, identity: str) -> CompiledJob:
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
