"""The options of a job as a program writes them: `@runner.job("@daily", window="1h")`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from kron.core.cron.schedule import Schedule
from kron.core.errors import InvalidOptionError
from kron.core.job.constraint import Constraints
from kron.core.job.distribution import Distribution
from kron.core.job.job import Job
from kron.core.job.notify import Notify
from kron.core.job.policy import POLICY, Catchup, OnOrphan, Overlap, Policy
from kron.core.job.profile import RETENTION, Retention
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import Window

# The fields that a `Schedule` has already.
OF_SCHEDULE = ("timezone", "dialect", "dst_gap", "dst_repeat")

SEED_WORDS = {"seed_strategy": "strategy", "salt": "salt"}


class JobOptions(TypedDict, total=False):
    """The fields of a job and of its policy, side by side; a text is read as in a job file."""

    timezone: str
    dialect: str
    dst_gap: str
    dst_repeat: str
    window: Window | timedelta | str
    distribution: Distribution | str
    seed_strategy: SeedStrategy | str
    salt: str
    constraints: Constraints | Mapping[str, object]
    description: str | None
    tags: Sequence[str]
    retention: Retention | Mapping[str, object] | None
    notify: Notify | Mapping[str, object] | None
    policy: Policy
    overlap: Overlap | str
    deadline: timedelta | str | None
    suspend: bool
    catchup: Catchup | str
    on_orphan: OnOrphan | str
    jitter_ms: int
    retry_delay: timedelta | str | None
    run_timeout: timedelta | str | None
    replace_grace: timedelta | str
    queue_max: int
    max_catchup: int
    start_at: datetime | str | None
    end_at: datetime | str | None
    remaining: int | None
    pause_after_failures: int | None


def job_of(identity: str, schedule: str | Schedule, **options: Unpack[JobOptions]) -> Job:
    """Return a job from its options, or raise InvalidJobError with every problem."""
    document: dict[str, object] = {"identity": identity, **_schedule_of(schedule, options)}
    policy = options["policy"].to_dict() if "policy" in options else {}
    for name, value in options.items():
        plain = _plain(value)
        if name in POLICY.words:
            # It replaces the field of `policy`, which may be written there under another word.
            field = POLICY.words[name]
            policy = {word: each for word, each in policy.items() if word not in field.words}
            policy[name] = plain
        elif name in SEED_WORDS:
            seed = document.setdefault("seed", {})
            assert isinstance(seed, dict)
            seed[SEED_WORDS[name]] = plain
        elif name == "window" and not isinstance(value, Window):
            document[name] = {"duration": plain}
        elif name != "policy":
            document[name] = plain
    return Job.from_dict({**document, "policy": policy})


def _plain(value: object) -> object:
    """Return a part of a job as plain data."""
    if isinstance(value, Retention):
        return RETENTION.write(value)
    write = getattr(value, "to_dict", None)
    return value if write is None else write()


def _schedule_of(schedule: str | Schedule, options: JobOptions) -> dict[str, object]:
    if not isinstance(schedule, Schedule):
        return {"schedule": schedule}
    for name in OF_SCHEDULE:
        if name in options:
            raise InvalidOptionError(
                option=name, value=options.get(name), reason="belongs to the Schedule that is given"
            )
    return {"schedule": schedule.text, **{name: getattr(schedule, name) for name in OF_SCHEDULE}}
