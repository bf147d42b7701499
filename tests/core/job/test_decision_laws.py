"""Laws of decisions: what holds for every job, every period and every machine."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice
from statistics import NormalDist
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from examples.verify_decision import differing
from kron.core.errors import InvalidJobError, NoCandidateError
from kron.core.job.decision import BUDGET, Decision, attempts_of, decide, decide_at, upcoming
from kron.core.job.distribution import Distribution, Normal, Uniform
from kron.core.job.job import Job
from kron.core.job.seed import seed_hash
from kron.core.job.window import Bounds
from kron.core.plan.compiled import compiled_job, definition_of
from kron.core.time.instant import datetime_of, seconds_of
from tests.job_strategies import (
    Definition,
    allows,
    constraints,
    definitions,
    distributions,
    nominal_times,
    policies,
    seeds,
    windows,
)
from tests.strategies import law, zones

WHEN = ("schedule", "timezone")
START = datetime(2025, 1, 1, tzinfo=UTC)
ALMOST_ONE = 1 - 2**-53


def job_of(**fields: Any) -> Job:
    return Job.from_dict({"identity": "law", "schedule": "0 0 * * *", **fields})


# --- the choice ------------------------------------------------------------------------------------


@law(150)
@given(definitions(), nominal_times())
def test_the_chosen_time_lies_within_the_window(definition: Definition, at: datetime) -> None:
    decision = decide(Job.from_dict(definition), at)
    assert decision.bounds.start <= seconds_of(at) <= decision.bounds.end
    if decision.chosen_time is not None:
        assert decision.bounds.start <= decision.chosen_time <= decision.bounds.end


@law(200)
@given(distributions(), st.floats(0, ALMOST_ONE), st.integers(1, 10**8), st.sampled_from(("after", "around")))
@example({"name": "normal", "sigma": "0.000001s", "mu": "end"}, ALMOST_ONE, 86_400, "after")
@example({"name": "normal", "sigma": "240h", "mu": "start"}, 0.0, 1, "after")
@example({"name": "exponential", "lambda": 1e-9}, ALMOST_ONE, 3600, "after")
@example({"name": "exponential", "lambda": 1e308, "dir": "late"}, 0.0, 3600, "after")
@example({"name": "skewLate", "shape": 1e308}, ALMOST_ONE, 3600, "after")
def test_every_number_becomes_a_second_of_the_window(
    definition: Definition, u: float, width: int, mode: str
) -> None:
    distribution = job_of(window={"mode": mode}, distribution=definition).distribution
    x = distribution.place(u, Bounds(0, width), width // 2)
    assert math.isfinite(x)
    assert 0 <= math.floor(min(max(x, 0.0), ALMOST_ONE) * (width + 1)) <= width


@law(200)
@given(distributions(), st.floats(0, ALMOST_ONE), st.floats(0, ALMOST_ONE), st.integers(1, 10**6))
def test_a_larger_number_is_never_an_earlier_place(
    definition: Definition, one: float, other: float, width: int
) -> None:
    distribution = job_of(distribution=definition).distribution
    low, high = (distribution.place(u, Bounds(0, width), 0) for u in sorted((one, other)))
    # Late exponentials are mirrored, so they run the other way; rounding may cost the last digits.
    rising = definition.get("dir") != "late"
    assert (high - low if rising else low - high) >= -1e-9 or min(low, high) < 0 or max(low, high) > 1


def test_both_ends_of_a_window_are_chosen_at_times() -> None:
    job = job_of(window={"mode": "after", "duration": "2s"})
    chosen = {
        (decide_at(job, nominal).chosen_time or 0) - nominal for nominal in range(0, 86_400 * 60, 86_400)
    }
    assert chosen == {0, 1, 2}


@law(100)
@given(definitions(), nominal_times())
def test_an_independent_program_comes_to_the_same_decision(definition: Definition, at: datetime) -> None:
    # SplitMix64, hash, window, distributions and constraints, written anew with the standard library alone.
    assert differing(decide(Job.from_dict(definition), at).to_dict()) == []


@law(60)
@given(definitions(), nominal_times(), nominal_times())
def test_a_decision_depends_on_nothing_decided_before(
    definition: Definition, at: datetime, other: datetime
) -> None:
    first = decide(Job.from_dict(definition), at)
    decide(Job.from_dict(definition), other)
    assert decide(Job.from_dict(definition), at) == first


# --- any process, zone setting and hash seed -------------------------------------------------------

WORKER = """
import json, sys
from datetime import datetime
from kron.core.job.decision import decide
from kron.core.job.job import Job
for definition, at in json.load(sys.stdin):
    print(json.dumps(decide(Job.from_dict(definition), datetime.fromisoformat(at)).to_dict()))
"""


def test_another_process_with_other_settings_decides_the_same() -> None:
    drawn: list[tuple[Definition, str]] = []

    @law(60)
    @given(definitions(), nominal_times())
    def draw(definition: Definition, at: datetime) -> None:
        drawn.append((definition, at.isoformat()))

    draw()
    text = json.dumps(drawn)
    here = [
        json.loads(json.dumps(decide(Job.from_dict(definition), datetime.fromisoformat(at)).to_dict()))
        for definition, at in drawn
    ]
    for zone, hash_seed, locale in (("Asia/Tokyo", "0", "C"), ("America/Caracas", "4242", "C.UTF-8")):
        settings = {"TZ": zone, "PYTHONHASHSEED": hash_seed, "LC_ALL": locale, "PYTHONUTF8": "1"}
        done = subprocess.run(
            [sys.executable, "-c", WORKER],
            input=text,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        assert [json.loads(line) for line in done.stdout.splitlines()] == here


# --- seeds -----------------------------------------------------------------------------------------


@law(100)
@given(
    windows(),
    distributions(),
    zones(),
    nominal_times(),
    st.integers(0, 86_399),
    st.sampled_from(("daily", "weekly")),
)
def test_an_equal_key_gives_an_equal_offset_without_constraints(
    window: Definition, distribution: Definition, zone: str, at: datetime, later: int, strategy: str
) -> None:
    job = job_of(timezone=zone, window=window, distribution=distribution, seed={"strategy": strategy})
    one, other = decide(job, at), decide(job, at + timedelta(seconds=later))
    days = [moment.astimezone(ZoneInfo(zone)) for moment in (at, at + timedelta(seconds=later))]
    same = (
        len({day.date() for day in days}) == 1
        if strategy == "daily"
        else len({day.isocalendar()[:2] for day in days}) == 1
    )
    assert (one.period_key == other.period_key) is same
    if same:
        assert one.chosen_time is not None
        assert other.chosen_time is not None
        assert one.chosen_time - one.bounds.start == other.chosen_time - other.bounds.start


@law(60)
@given(definitions(), definitions(), nominal_times())
def test_the_seed_depends_on_identity_key_and_salt_only(
    definition: Definition, other: Definition, at: datetime
) -> None:
    mixed = {**other, "identity": definition["identity"]}
    for name in ("seed", "timezone"):
        mixed.pop(name, None)
        if name in definition:
            mixed[name] = definition[name]
    one, two = decide(Job.from_dict(definition), at), decide(Job.from_dict(mixed), at)
    assert one.seed_hash == two.seed_hash == seed_hash(one.job.identity, one.period_key, one.job.salt)


@law(60)
@given(definitions(), nominal_times(), st.sampled_from(("identity", "salt", "period")))
def test_another_identity_salt_or_period_is_another_seed(
    definition: Definition, at: datetime, changed: str
) -> None:
    definition = {**definition, "seed": {"strategy": "stable", "salt": "a"}}
    other = dict(definition)
    if changed == "identity":
        other["identity"] += "'"
    if changed == "salt":
        other["seed"] = {"strategy": "stable", "salt": "b"}
    later = at + timedelta(seconds=1) if changed == "period" else at
    assert decide(Job.from_dict(definition), at).seed_hash != decide(Job.from_dict(other), later).seed_hash


# --- constraints -----------------------------------------------------------------------------------


@law(200)
@given(definitions(), constraints(), nominal_times())
def test_constraints_always_hold(definition: Definition, rules: Definition, at: datetime) -> None:
    definition = {**definition, "constraints": rules}
    chosen = decide(Job.from_dict(definition), at).chosen_time
    if chosen is not None:
        assert allows(definition, datetime_of(chosen))


@law(200)
@given(definitions(), constraints(), nominal_times())
def test_a_period_is_unschedulable_only_after_64_rejections_or_at_once_without_a_window(
    definition: Definition, rules: Definition, at: datetime
) -> None:
    definition = {**definition, "constraints": rules}
    decision = decide(Job.from_dict(definition), at)
    tried = list(attempts_of(decision.job, decision.nominal_time, decision.bounds, decision.seed_hash))
    *rejected, last = tried
    is_empty = decision.bounds.start == decision.bounds.end
    # Whatever was rejected is forbidden, by rules written down independently.
    assert not any(allows(definition, datetime_of(attempt.candidate)) for attempt in rejected)
    assert allows(definition, datetime_of(last.candidate)) is (decision.chosen_time is not None)
    assert decision.attempts == (0 if is_empty else len(tried))
    if decision.unschedulable:
        assert len(tried) == (1 if is_empty else BUDGET)
    else:
        assert last.candidate == decision.chosen_time
    assert BUDGET == 64


@law(60)
@given(definitions(constrained=False), nominal_times())
def test_constraints_that_exclude_the_whole_window_leave_no_time(
    definition: Definition, at: datetime
) -> None:
    job = Job.from_dict({**definition, "constraints": {"avoid": {"hours": ["0-23"]}}})
    decision = decide(job, at)
    assert decision.unschedulable
    assert decision.attempts == (64 if decision.bounds.start < decision.bounds.end else 0)


@law(60)
@given(definitions(), nominal_times())
def test_a_rejected_candidate_does_not_change_the_ones_after_it(definition: Definition, at: datetime) -> None:
    constrained = decide(Job.from_dict(definition), at)
    assume(constrained.attempts > 0)
    every = Job.from_dict({**definition, "constraints": {"avoid": {"hours": ["0-23"]}}})
    stream = attempts_of(every, constrained.nominal_time, constrained.bounds, constrained.seed_hash)
    drawn = [attempt.candidate for attempt in stream]
    assert constrained.chosen_time in (None, drawn[constrained.attempts - 1])


# --- policy and schedule do not take part ----------------------------------------------------------


@law(80)
@given(definitions(), policies(), nominal_times())
def test_a_change_of_policy_never_changes_a_chosen_time(
    definition: Definition, policy: Definition, at: datetime
) -> None:
    other = Job.from_dict({**definition, "policy": policy})
    assert decide(other, at).to_dict() == decide(Job.from_dict(definition), at).to_dict()


@law(80)
@given(definitions(), definitions(), nominal_times())
def test_nominal_times_depend_on_the_expression_and_the_zone_alone(
    definition: Definition, other: Definition, at: datetime
) -> None:
    """Whatever else two definitions differ in, the engine plans the same nominal times for both."""
    when = {"timezone": "UTC"} | {name: definition[name] for name in WHEN if name in definition}
    walks: list[list[int]] = []
    for fields in (definition, {**other, **when}):
        try:
            job = Job.from_dict(fields)
        except InvalidJobError:
            assume(False)
        plan = compiled_job(definition_of(job), job.identity).plan
        times: list[int] = []
        time = plan.prev_at_or_before(seconds_of(at))
        while time is not None and len(times) < 10:
            times.append(time)
            time = plan.next_after(time)
        walks.append(times)
    assert walks[0] == walks[1]


# --- distributions ---------------------------------------------------------------------------------

SAMPLES = 4000
WIDTH = 1_000_000
# Were the samples random, a true distribution would be further off than this once in a million times.
TOLERANCE = math.sqrt(math.log(2e6) / 2 / SAMPLES)


def truncated_normal(peak: float, sigma: float) -> Callable[[float], float]:
    bell = NormalDist(peak, sigma)
    low, high = bell.cdf(0), bell.cdf(1)
    return lambda x: (bell.cdf(x) - low) / (high - low)


KS_CASES: list[tuple[str, Definition, str, Callable[[float], float]]] = [
    ("uniform", {"name": "uniform"}, "after", lambda x: x),
    ("skewEarly", {"name": "skewEarly"}, "after", lambda x: x ** (1 / 2)),
    ("skewEarly 5", {"name": "skewEarly", "shape": 5}, "before", lambda x: x ** (1 / 5)),
    ("skewEarly 0.4", {"name": "skewEarly", "shape": 0.4}, "around", lambda x: x ** (1 / 0.4)),
    ("skewLate", {"name": "skewLate"}, "after", lambda x: 1 - (1 - x) ** (1 / 2)),
    ("skewLate 2.5", {"name": "skewLate", "shape": 2.5}, "around", lambda x: 1 - (1 - x) ** (1 / 2.5)),
    ("normal", {"name": "normal"}, "after", truncated_normal(1 / 2, 1 / 6)),
    ("normal around", {"name": "normal"}, "around", truncated_normal(1 / 2, 1 / 6)),
    (
        "normal start",
        {"name": "normal", "mu": "start", "sigma": "250000s"},
        "after",
        truncated_normal(0, 1 / 4),
    ),
    ("normal end", {"name": "normal", "mu": "end", "sigma": "400000s"}, "after", truncated_normal(1, 0.4)),
    (
        "normal nominal",
        {"name": "normal", "mu": "nominal", "sigma": "100000s"},
        "before",
        truncated_normal(1, 0.1),
    ),
    ("normal wide", {"name": "normal", "sigma": "3000000s"}, "after", truncated_normal(1 / 2, 3)),
    ("exponential", {"name": "exponential"}, "after", lambda x: (1 - math.exp(-x)) / (1 - math.exp(-1))),
    (
        "exponential 8 late",
        {"name": "exponential", "lambda": 8, "dir": "late"},
        "after",
        lambda x: 1 - (1 - math.exp(-8 * (1 - x))) / (1 - math.exp(-8)),
    ),
]


def farthest(offsets: list[int], cdf: Callable[[float], float]) -> float:
    """Return the Kolmogorov-Smirnov distance between the seconds chosen and a distribution function."""
    ordered, count = sorted(offsets), len(offsets)
    distances = []
    for rank, offset in enumerate(ordered):
        if rank == 0 or ordered[rank - 1] < offset:
            distances.append(abs(rank / count - cdf(offset / (WIDTH + 1))))
        if rank == count - 1 or ordered[rank + 1] > offset:
            distances.append(abs((rank + 1) / count - cdf((offset + 1) / (WIDTH + 1))))
    return max(distances)


def samples(definition: Definition, mode: str) -> list[int]:
    job = job_of(window={"mode": mode, "duration": f"{WIDTH}s"}, distribution=definition)
    decisions = [decide_at(job, 86_400 * day) for day in range(20_000, 20_000 + SAMPLES)]
    return [decision.chosen_time - decision.bounds.start for decision in decisions if decision.chosen_time]


@pytest.mark.parametrize(
    ("definition", "mode", "cdf"), [pytest.param(*case[1:], id=case[0]) for case in KS_CASES]
)
def test_samples_are_distributed_as_the_formula_says(
    definition: Definition, mode: str, cdf: Callable[[float], float]
) -> None:
    assert farthest(samples(definition, mode), cdf) < TOLERANCE


def test_the_check_of_distributions_can_fail() -> None:
    assert farthest(samples({"name": "skewEarly", "shape": 1.2}, "after"), lambda x: x) > TOLERANCE
    assert farthest(samples({"name": "normal"}, "after"), truncated_normal(0.5, 1 / 5)) > TOLERANCE


@pytest.mark.parametrize(
    ("distribution", "nominal", "u", "expected"),
    [
        pytest.param(Uniform(), 0, 0.25, 0.25, id="uniform"),
        pytest.param(job_of(distribution="skewEarly").distribution, 0, 0.5, 0.25, id="skewEarly"),
        pytest.param(job_of(distribution="skewLate").distribution, 0, 0.5, 0.75, id="skewLate"),
        pytest.param(job_of(distribution="normal").distribution, 0, 0.5, 0.5, id="normal"),
        pytest.param(
            job_of(distribution="exponential").distribution, 0, 0.5, -math.log((1 + math.exp(-1)) / 2),
            id="exponential",
        ),
    ],
)  # fmt: skip
def test_a_formula_by_hand(distribution: Distribution, nominal: int, u: float, expected: float) -> None:
    assert distribution.place(u, Bounds(0, 3600), nominal) == pytest.approx(expected, abs=1e-12)


def test_a_normal_distribution_with_its_peak_far_outside_stays_at_the_nearer_end() -> None:
    # With the nominal time at one end and a sigma of a microsecond, everything is chosen there.
    job = job_of(
        window={"mode": "before", "duration": "1h"},
        distribution={"name": "normal", "mu": "nominal", "sigma": "0.000001s"},
    )
    assert isinstance(job.distribution, Normal)
    assert {decide_at(job, 86_400 * day).chosen_time == 86_400 * day for day in range(200)} == {True}


# --- upcoming --------------------------------------------------------------------------------------

COMING = 8
CHANGES = [datetime(2025, 3, 30, 1, tzinfo=UTC), datetime(2025, 10, 26, 1, tzinfo=UTC)]
NOWS = st.builds(
    lambda near, hours, micros: near + timedelta(hours=hours, microseconds=micros),
    st.sampled_from([*CHANGES, datetime(2024, 12, 31, 23, tzinfo=UTC)]),
    st.integers(-40, 40),
    st.sampled_from((0, 0, 1, 999_999)) | st.integers(0, 3_600_000_000),
)
NINE_AROUND, NINE_BEFORE = {"mode": "around", "duration": "9h"}, {"mode": "before", "duration": "9h"}
OFTEN = ("0 * * * *", "*/20 * * * *", "30 2 * * *", "15 2,3 * * *", "59 23 * * *", "0 0 * * 1")


def place_of(decision: Decision) -> int:
    return decision.bounds.end if decision.chosen_time is None else decision.chosen_time


def by_brute_force(job: Job, now: datetime, until: int) -> list[Decision]:
    """Decide every period whose window could matter, then sort."""
    far = job.window.duration + timedelta(days=2)
    end = datetime_of(until) + far
    every = [decide(job, at) for at in job.schedule.between(now - far, end)]
    return sorted(every, key=lambda decision: (place_of(decision), decision.nominal_time))


@law(120)
@given(
    st.sampled_from(OFTEN),
    st.sampled_from(("Europe/Berlin", "UTC", "Australia/Lord_Howe", "America/New_York")),
    windows(10 * 3600),
    distributions(),
    seeds(),
    st.sampled_from(({}, {"only": {"hours": ["0-5"]}}, {"avoid": {"between": ["01:30-03:10"]}})),
    NOWS,
    st.booleans(),
)
@example("0 * * * *", "UTC", NINE_AROUND, {"name": "uniform"}, {"strategy": "stable"}, {}, CHANGES[0], False)
@example("0 * * * *", "UTC", NINE_BEFORE, {"name": "skewLate"}, {"strategy": "daily"}, {}, CHANGES[1], True)
def test_upcoming_is_what_brute_force_finds(
    text: str,
    zone: str,
    window: Definition,
    distribution: Definition,
    seed: Definition,
    rules: Definition,
    now: datetime,
    unschedulable: bool,
) -> None:
    job = job_of(
        schedule=text, timezone=zone, window=window, distribution=distribution, seed=seed, constraints=rules
    )
    if not unschedulable:
        assume(any(d.chosen_time for d in by_brute_force(job, now, seconds_of(now) + 86_400 * 14)))
    found = list(islice(upcoming(job, now, unschedulable=unschedulable), COMING))
    expected = [
        decision
        for decision in by_brute_force(job, now, place_of(found[-1]))
        if datetime_of(place_of(decision)) >= now and (unschedulable or not decision.unschedulable)
    ]
    assert found == expected[:COMING]


def test_upcoming_ends_with_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    job = job_of(schedule="0 * * * *", window={"mode": "after", "duration": "2h"})
    found = list(upcoming(job, last - timedelta(hours=12)))
    assert len(found) >= 10
    assert found[-1].bounds.end <= seconds_of(last)
    assert list(upcoming(job_of(), last)) == []
    assert list(upcoming(job_of(), last.replace(microsecond=999_999))) == []


@pytest.mark.parametrize("mode", ["after", "before", "around"])
def test_upcoming_begins_with_the_calendar(mode: str) -> None:
    first = datetime(1, 1, 1, tzinfo=UTC)
    zone = {"timezone": "America/New_York", "seed": {"strategy": "daily"}}
    job = job_of(window={"mode": mode, "duration": "30h"}, constraints={"avoid": {"hours": [3]}}, **zone)
    found = list(islice(upcoming(job, first), 3))
    assert [decision.bounds.start >= seconds_of(first) for decision in found] == [True] * 3


def test_a_job_that_can_never_run_is_said_so_instead_of_searching_for_ever() -> None:
    job = job_of(schedule="0 * * * *", constraints={"only": {"dates": ["2020-01-01"]}})
    with pytest.raises(NoCandidateError) as caught:
        next(upcoming(job, START))
    assert caught.value.details["identity"] == "law"
