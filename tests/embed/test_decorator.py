"""`@runner.job(...)`: a function with its schedule, the options those of a job and of its policy."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kron
from kron.core.job.policy import POLICY
from kron.errors import InvalidJobError, InvalidOptionError
from kron.fronts.embed.job_options import JobOptions, job_of
from kron.testing import SimulatedClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAR = datetime(2027, 1, 1, tzinfo=UTC)


def a_runner() -> tuple[kron.Runner, SimulatedClock]:
    clock = SimulatedClock(NOON + timedelta(seconds=1))
    return kron.Runner("memory://", clock=clock), clock


async def test_a_decorated_function_runs_on_its_schedule_async_or_not() -> None:
    runner, clock = a_runner()
    seen: list[str] = []

    @runner.job("*/5 * * * *", deadline="1m")
    def blocking() -> None:
        seen.append(f"{clock.now():%H:%M} blocking")

    @runner.job("*/10 * * * *", identity="prod/waiting", deadline="1m")
    async def waiting(run: kron.Run) -> None:
        seen.append(f"{run.nominal_time:%H:%M} {run.job}")

    async with runner:
        await clock.advance_to(NOON + timedelta(minutes=10))
    assert sorted(seen) == ["12:05 blocking", "12:10 blocking", "12:10 prod/waiting"]


def test_a_decorated_function_stays_what_it_was() -> None:
    runner, _ = a_runner()

    def double(run: Any = None) -> int:
        return 2

    assert runner.job("@daily")(double) is double
    assert double() == 2


OPTIONS: JobOptions = {
    "timezone": "Europe/Berlin",
    "dst_gap": "next",
    "dst_repeat": "first",
    "window": "10m",
    "distribution": "skewLate",
    "seed_strategy": "weekly",
    "salt": "7",
    "constraints": {"avoid": {"hours": [14]}},
    "description": "the report of the shop",
    "tags": ["shop", "mail"],
    "retention": {"keep": "30d"},
    "notify": {"to": "https://hooks.example.com/T0", "on": ["failed"]},
    "overlap": "queue",
    "deadline": "10m",
    "suspend": True,
    "catchup": "once",
    "on_orphan": "restart",
    "jitter_ms": 500,
    "retry_delay": timedelta(minutes=1),
    "run_timeout": "1h",
    "replace_grace": "5s",
    "queue_max": 7,
    "max_catchup": 9,
    "start_at": NOON,
    "end_at": "2027-01-01T00:00:00Z",
    "remaining": 3,
    "pause_after_failures": 4,
}
PLAIN = {
    "identity": "job",
    "schedule": "0 */2 * * *",
    "timezone": "Europe/Berlin",
    "dst_gap": "next",
    "dst_repeat": "first",
    "window": {"mode": "after", "duration": "10m"},
    "distribution": {"name": "skewLate"},
    "seed": {"strategy": "weekly", "salt": "7"},
    "constraints": {"avoid": {"hours": [14]}},
    "description": "the report of the shop",
    "tags": ["mail", "shop"],
    "retention": {"keep": "30d"},
    "notify": {"to": "https://hooks.example.com/T0", "on": ["failed"]},
    "policy": {
        "overlap": "queue",
        "deadline": "10m",
        "suspend": True,
        "catchup": "once",
        "on_orphan": "restart",
        "jitter_ms": 500,
        "retry_delay": "1m",
        "run_timeout": "1h",
        "replace_grace": "5s",
        "queue_max": 7,
        "max_catchup": 9,
        "start_at": "2026-01-01T12:00:00Z",
        "end_at": "2027-01-01T00:00:00Z",
        "remaining": 3,
        "pause_after_failures": 4,
    },
}


def test_options_make_the_job_that_plain_data_makes() -> None:
    assert job_of("job", "0 */2 * * *", **OPTIONS) == kron.Job.from_dict(PLAIN)


def test_typed_options_make_the_same_job() -> None:
    typed: JobOptions = {
        "window": kron.Window("after", timedelta(minutes=10)),
        "distribution": kron.SkewLate(),
        "seed_strategy": kron.SeedStrategy.WEEKLY,
        "constraints": kron.Constraints(avoid=kron.ConstraintRule(hours=14)),
        "overlap": kron.Overlap.QUEUE,
        "deadline": timedelta(minutes=10),
        "catchup": kron.Catchup.ONCE,
        "on_orphan": kron.OnOrphan.RESTART,
        "end_at": FAR,
        "retention": kron.Retention(keep=timedelta(days=30)),
    }
    both: Any = {**OPTIONS, **typed}
    assert job_of("job", "0 */2 * * *", **both) == kron.Job.from_dict(PLAIN)
    schedule = kron.Schedule("0 */2 * * *", "Europe/Berlin", dst_gap="next", dst_repeat="first")
    without: Any = {name: value for name, value in OPTIONS.items() if name[:4] not in ("time", "dst_")}
    assert job_of("job", schedule, **without) == kron.Job.from_dict(PLAIN)


def test_every_field_of_a_job_and_of_its_policy_is_an_option() -> None:
    # A runner calls the function that is decorated, so it has no launcher.
    names = {field.name for field in fields(kron.Job)} - {"identity", "schedule", "launcher"}
    assert names | {row.name for row in POLICY.rows} <= set(JobOptions.__annotations__)


def test_an_option_replaces_the_field_of_a_given_policy() -> None:
    common = kron.Policy(overlap=kron.Overlap.QUEUE, deadline=None)
    job = job_of("job", "@hourly", policy=common, overlap="allow")
    assert (job.policy.overlap, job.policy.deadline) == (kron.Overlap.ALLOW, None)
    assert job_of("job", "@hourly", policy=common).policy == common


def test_wrong_options_are_refused_together_with_their_paths() -> None:
    runner, _ = a_runner()
    wrong: Any = {"window": "soon", "deadline": "late", "windwo": "1h"}
    with pytest.raises(InvalidJobError) as refused:
        runner.job("0 9 * * mno", **wrong)(print)
    paths = {problem.path for problem in refused.value.problems}
    assert paths == {"schedule", "window.duration", "policy.deadline", "windwo"}


def test_a_zone_beside_a_schedule_that_has_one_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="belongs to the Schedule"):
        job_of("job", kron.Schedule("@daily"), timezone="Europe/Berlin")


def test_two_functions_cannot_have_one_identity() -> None:
    runner, _ = a_runner()

    @runner.job("@daily")
    def report() -> None: ...

    runner.job("@hourly")(report)
    with pytest.raises(InvalidOptionError, match='identity "report": another function'):

        @runner.job("@daily", identity="report")
        def other() -> None: ...

    with pytest.raises(InvalidOptionError, match="has no name"):
        runner.job("@daily")(lambda: None)


def test_a_decorator_without_its_schedule_is_refused_and_not_silent() -> None:
    runner, _ = a_runner()
    with pytest.raises(
        InvalidOptionError, match=r"schedule .*: a job needs its schedule, as in @runner\.job"
    ):

        @runner.job  # type: ignore[arg-type]
        def report() -> None: ...
