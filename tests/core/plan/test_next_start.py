"""The next start: what it answers is what the engine does next."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.constraint import Constraints
from kron.core.job.job import Job
from kron.core.job.policy import Catchup
from kron.core.plan.compiled import compiled_job
from kron.core.plan.lifecycle import Phase
from kron.core.plan.next_start import NextStart, next_start, phase_of_job, starts_ahead
from kron.core.plan.pause import pause
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.core.plan.step import JobState
from kron.core.time.instant import DAY, rfc3339
from kron.core.time.zone import zone_of
from tests.engine_world import World
from tests.job_strategies import allows, constraints
from tests.strategies import law

# A Saturday; clocks in Berlin go forward in the night to Sunday.
NOON = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp())
HOUR = 3_600_000


def a_job(schedule: str = "0 * * * *", timezone: str = "UTC", **fields: Any) -> Job:
    policy = {"concurrency": "allow", "deadline": None, **fields.pop("policy", {})}
    document = {"identity": "job", "schedule": schedule, "timezone": timezone, "policy": policy, **fields}
    return Job.from_dict(document)


def answer_of(record: JobRecord, now: int = 1000 * NOON) -> tuple[str | None, str | None, int]:
    answer = next_start(JobState(record), now)
    nominal = None if answer.nominal_time is None else rfc3339(answer.nominal_time)
    start = None if answer.start_at is None else rfc3339(answer.start_at // 1000)
    return nominal, start, answer.passed_over


@pytest.mark.parametrize(
    ("job", "nominal", "start", "passed_over"),
    [
        (a_job(), "2026-03-28T13:00:00Z", "2026-03-28T13:00:00Z", 0),
        (a_job("30 2 * * *", "Europe/Berlin"), "2026-03-30T00:30:00Z", "2026-03-30T00:30:00Z", 0),
        (
            a_job("30 2 * * *", "Europe/Berlin", dst_gap="next"),
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:00:00Z",
            0,
        ),
        (
            a_job(constraints={"only": {"hours": [9]}}),
            "2026-03-28T13:00:00Z",
            "2026-03-29T09:00:00Z",
            20,
        ),
        (
            a_job("* * * * *", constraints={"only": {"months": [2]}}),
            "2026-03-28T12:01:00Z",
            "2027-02-01T00:00:00Z",
            445_679,
        ),
        (
            a_job(
                "0 6 * * *", constraints={"avoid": {"calendars": {"holidays": ["2026-03-29..2026-04-05"]}}}
            ),
            "2026-03-29T06:00:00Z",
            "2026-04-06T06:00:00Z",
            8,
        ),
        (a_job(constraints={"only": {"dates": ["2020-01-01"]}}), "2026-03-28T13:00:00Z", None, 0),
        (
            a_job(constraints={"only": {"hours": [9], "between": ["10:00-11:00"]}}),
            "2026-03-28T13:00:00Z",
            None,
            0,
        ),
        (
            a_job(policy={"start_at": "2026-04-01T00:30:00Z"}),
            "2026-04-01T01:00:00Z",
            "2026-04-01T01:00:00Z",
            0,
        ),
        (a_job(policy={"end_at": "2026-03-28T12:30:00Z"}), None, None, 0),
        (a_job(policy={"suspend": True}), "2026-03-28T13:00:00Z", None, 0),
        (a_job("0 0 29 2 *"), "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", 0),
    ],
)
def test_the_next_start_passes_over_periods_that_cannot_start(
    job: Job, nominal: str | None, start: str | None, passed_over: int
) -> None:
    assert answer_of(create(job, now=1000 * NOON)) == (nominal, start, passed_over)


@pytest.mark.parametrize(
    ("catchup", "start", "passed_over"),
    [
        ("none", "2026-03-28T18:00:00Z", 5),
        ("once", "2026-03-28T17:30:00Z", 4),
        ("all", "2026-03-28T17:30:00Z", 0),
    ],
)
def test_the_end_of_a_pause_is_part_of_the_answer(catchup: str, start: str, passed_over: int) -> None:
    record = create(a_job(policy={"catchup": catchup}), now=1000 * NOON)
    paused = pause(record, [], because="x", now=1000 * NOON, until=1000 * NOON + 11 * HOUR // 2).job
    assert answer_of(paused) == ("2026-03-28T13:00:00Z", start, passed_over)
    assert answer_of(paused._replace(suspended=1)) == ("2026-03-28T13:00:00Z", None, 0)
    assert answer_of(paused._replace(paused_until=None)) == ("2026-03-28T13:00:00Z", None, 0)
    assert next_start(JobState(paused._replace(deleted_at=1)), 1000 * NOON) == NextStart()
    assert next_start(JobState(record._replace(remaining=0)), 1000 * NOON) == NextStart()


def test_a_job_with_few_remaining_runs_has_no_more_starts() -> None:
    state = JobState(create(a_job(policy={"remaining": 2}), now=1000 * NOON))
    assert [start.nominal_time - NOON for start in starts_ahead(state, 1000 * NOON)] == [3600, 7200]


@law(40)
@given(
    schedule=st.sampled_from(["*/20 * * * *", "0 * * * *", "30 2,14 * * *", "15 1-4 * * *"]),
    window=st.sampled_from([None, ("after", "90m"), ("before", "45m"), ("around", "6h")]),
    only=st.sampled_from([{}, {"hours": [2, 3, 15]}, {"dow": ["mon"]}, {"between": ["14:10-14:40"]}]),
    policy=st.fixed_dictionaries(
        {"catchup": st.sampled_from(list(Catchup))},
        optional={"jitter_ms": st.sampled_from([700, 60_000]), "start_at": st.just("2026-03-29T07:07:07Z")},
    ),
    edited=st.sampled_from([None, "10 * * * *", "*/20 * * * *"]),
    waited=st.integers(0, 30 * HOUR),
    paused=st.none() | st.integers(1, 20 * HOUR),
)
def test_the_next_start_is_the_one_that_the_engine_makes(
    schedule: str,
    window: tuple[str, str] | None,
    only: dict[str, object],
    policy: dict[str, Any],
    edited: str | None,
    waited: int,
    paused: int | None,
) -> None:
    fields: dict[str, Any] = {"constraints": {"only": only}, "policy": policy}
    if window is not None:
        fields["window"] = {"mode": window[0], "duration": window[1]}
    world = World(a_job(schedule, "Europe/Berlin", **fields), 1000 * NOON)
    world.wake()
    world.advance(waited)
    if edited is not None:
        world.edit(a_job(edited, "Europe/Berlin", **fields))
    if paused is not None:
        state = world.case
        world._put(pause(state.job, list(state.runs), because="x", now=world.now, until=world.now + paused))
    answer, before = next_start(world.case, world.now), len(world.starts)
    for _ in range(24 * 9):
        if len(world.starts) > before:
            break
        world.advance(HOUR)
    (at, nominal, _) = world.starts[before]
    same = {start[1] for start in world.starts if start[0] == at}
    assert answer.start_at == at
    assert answer.period in same, (answer, nominal)
    assert answer.nominal_time is not None
    assert answer.nominal_time <= nominal


@law(30)
@given(
    document=constraints(), start=st.integers(0, 400 * DAY), zone=st.sampled_from(["UTC", "Europe/Berlin"])
)
@pytest.mark.slow
def test_the_first_allowed_instant_is_that_of_a_search_by_minutes(
    document: dict[str, Any], start: int, zone: str
) -> None:
    first = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) + start
    job = a_job("0 0 * * *", zone, constraints=document)
    end = first + 5 * DAY
    allowed: Constraints = job.constraints
    definition = {"timezone": zone, "constraints": document}
    minutes = [first, *range(first - first % 60 + 60, end, 60)]
    expected = next((at for at in minutes if allows(definition, datetime.fromtimestamp(at, UTC))), None)
    assert allowed.allowed_from(first, zone_of(zone), end) == expected


def test_a_constraint_that_allows_nothing_ends_the_search_at_once() -> None:
    job = a_job("* * * * * *", constraints={"only": {"dates": [str(date(2020, 1, 1))]}})
    answer = next_start(JobState(create(job, now=1000 * NOON)), 1000 * NOON)
    assert answer.next_start_at is None
    assert answer.next_nominal_at == datetime.fromtimestamp(NOON, UTC) + timedelta(seconds=1)


def test_periods_before_now_that_cannot_start_do_not_end_the_search() -> None:
    """Sixty windows of the past reach beyond now, and the constraints leave their draws no time."""
    constraints = {"only": {"dates": ["2026-03-30"], "between": ["00:00-00:01"]}}
    job = a_job("0 * * * *", window={"mode": "after", "duration": "60h"}, constraints=constraints)
    state = JobState(create(job, now=1000 * NOON))
    starts = list(starts_ahead(state, 1000 * NOON))
    chosen = [
        compiled_job(state.job.definition, "job").fire_time("job", NOON + 3600 * hour)
        for hour in range(-60, 60)
    ]
    assert [start.fire_time for start in starts] == sorted(at for at in chosen if at is not None)
    assert starts


def test_a_job_has_the_phase_of_its_foremost_open_period() -> None:
    def phase(record: JobRecord, now: int) -> Phase | None:
        state = JobState(record)
        return phase_of_job(state, now, next_start(state, now))

    record = create(a_job(), now=1000 * NOON)
    assert record.next_time is not None
    due = 1000 * record.next_time
    assert phase(record, due - 1) is Phase.PLANNED
    assert phase(record, due) is Phase.ELIGIBLE
    stopped = record._replace(paused=1)
    assert phase(stopped, due) is None
    assert phase(stopped._replace(last_start_at=due), due) is Phase.COMPLETED
