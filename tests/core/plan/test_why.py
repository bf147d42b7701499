"""Why: every period has an answer, from what is remembered alone."""

from datetime import UTC, datetime

import pytest

from kron.core.job.job import Job
from kron.core.job.outcome import Outcome
from kron.core.plan.cause import OVERDUE
from kron.core.plan.incident import clock_ahead
from kron.core.plan.period_history import PeriodHistory
from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent
from kron.core.plan.why import Explanation, why
from kron.core.shard import shard_of
from kron.core.time.instant import rfc3339, seconds_of
from tests.engine_world import SPACE, World, at_once

NOON = seconds_of(datetime(2026, 6, 1, 12, tzinfo=UTC))
MINUTE = 60


def world_of(now: int = NOON - 30, **definition: object) -> World:
    fields = {"identity": "a", "schedule": "* * * * *", **definition}
    world = World(Job.from_dict(fields), 1000 * now)
    world.wake()
    return world


def answer(world: World, nominal_time: int) -> Explanation:
    runs = [run for run in at_once(world.store.runs(SPACE, "a")) if run.nominal_time == nominal_time]
    run: RunRecord | None = runs[0] if runs else None
    ranges = at_once(world.store.ranges(SPACE, "a", at=nominal_time))
    memory = PeriodHistory(
        world.job,
        at_once(world.store.epochs(SPACE, "a")),
        run,
        at_once(world.store.attempts(SPACE, run.key)) if run else [],
        ranges[0] if ranges else None,
    )
    return why(memory, nominal_time, now=world.now)


def waiting(world: World, nominal_time: int, *, now: int, owner: str | None = "w") -> Explanation:
    """Return the answer for a period of a worker that found its clock an hour ahead at noon."""
    since, hour = 1000 * NOON, 3_600_000
    ahead = clock_ahead("w", since, since + 60_000, by_ms=hour, shards=[shard_of("a")])
    counted = clock_ahead(
        "w", since + hour, since + hour + 60_000, by_ms=hour, shards=range(64), counted=True
    )
    other = clock_ahead("w", since, since + 90_000, by_ms=1, shards=[shard_of("a") + 1])
    history = PeriodHistory(world.job, incidents=[ahead, counted, other], owner=owner)
    return why(history, nominal_time, now=1000 * now)


AHEAD = (
    "worker w found its clock 1:00:00 ahead of the database's at 2026-06-01T12:00:00Z, and planned nothing "
    "until 2026-06-01T12:01:00Z at the latest, so that another worker could take over"
)
COUNTED = (
    "worker w found its clock 1:00:00 ahead of the database's, and planned nothing from 2026-06-01T13:00:00Z "
    "to 2026-06-01T13:01:00Z by its own clock, which counted then because no other worker had taken over"
)


@pytest.mark.parametrize(
    ("due", "now", "owner", "headline", "causes"),
    [
        (0, 30, "w", f"{OVERDUE}: {AHEAD}", []),
        (0, 90, "w", OVERDUE, [AHEAD]),
        (0, 30, "other", OVERDUE, [AHEAD]),
        (60, 90, "w", OVERDUE, []),
        (3_600, 3_630, "w", f"{OVERDUE}: {COUNTED}", []),
        (3_600, 3_700, "w", OVERDUE, [COUNTED]),
    ],
    ids=["it waits", "it waited", "another took over", "due later", "by its own clock", "until it counted"],
)
def test_a_clock_ahead_of_the_stores_explains_what_was_due(
    due: int, now: int, owner: str, headline: str, causes: list[str]
) -> None:
    found = waiting(world_of(), NOON + due, now=NOON + now, owner=owner)
    assert (found.outcome, found.code, found.headline) == (None, "overdue", headline)
    assert [fact.sentence for fact in found.facts if fact.code == "clock_ahead"] == causes


def codes(found: Explanation) -> list[str]:
    return [fact.code for fact in found.facts]


def test_a_period_that_ran_says_when_and_how_it_ended() -> None:
    world = world_of()
    world.advance(30_000)
    world.end_period(NOON)
    found = answer(world, NOON)
    assert found.outcome is Outcome.EXECUTED
    assert codes(found) == ["schedule", "nominal_time", "recorded", "started", "ended"]
    assert found.facts[3].sentence == "attempt 1: started on schedule"
    assert found.facts[3].at == 1000 * NOON


def test_a_retried_period_tells_of_every_attempt() -> None:
    world = world_of(policy={"retry_delay": "10s", "deadline": None})
    world.advance(30_000)
    world.end_period(NOON, RunEvent.FAILED)
    world.advance(11_000)
    found = answer(world, NOON)
    assert codes(found) == ["schedule", "nominal_time", "recorded", "attempt", "started"]
    assert found.facts[3].sentence.startswith("attempt 1 failed")


def test_a_skipped_period_names_the_reason() -> None:
    world = world_of()
    world.advance(30_000 + 60_000)
    found = answer(world, NOON + MINUTE)
    assert found.outcome is Outcome.SKIPPED
    assert found.facts[-1].code == "active"
    assert found.facts[-1].sentence == "skipped: another run of the job was active"


def test_a_period_missed_with_many_others_says_so() -> None:
    world = world_of(policy={"catchup": "none"})
    world.outage(86_400_000)
    found = answer(world, NOON + 100 * MINUTE)
    assert found.outcome is Outcome.MISSED
    assert codes(found)[-2:] == ["recorded_together", "catchup_none"]
    assert "recorded together: 1439 periods" in found.facts[-2].sentence


def test_an_unschedulable_period_of_a_shared_record_says_why() -> None:
    window = {"mode": "after", "duration": "10s"}
    world = world_of(policy={"catchup": "none"}, window=window, constraints={"avoid": {"hours": "0-23"}})
    world.outage(86_400_000)
    found = answer(world, NOON + 100 * MINUTE)
    assert found.outcome is Outcome.UNSCHEDULABLE
    assert codes(found)[-2:] == ["recorded_together", "no_candidate"]
    assert found.headline == "did not run: no time in the window satisfies the constraints"
    assert found.remedy == "a longer window or fewer constraints leave a time to run"


def test_an_unschedulable_period_says_that_no_time_was_left() -> None:
    world = world_of(constraints={"avoid": {"hours": "0-23"}})
    world.advance(31_000)
    found = answer(world, NOON)
    assert found.outcome is Outcome.UNSCHEDULABLE
    assert "unschedulable" in codes(found)


def test_a_window_and_jitter_are_part_of_the_chain() -> None:
    window = {"mode": "after", "duration": "30s"}
    world = world_of(window=window, policy={"jitter_ms": 900})
    found = answer(world, NOON)
    assert codes(found) == ["schedule", "nominal_time", "chosen_time", "jitter", "to_come"]
    assert found.outcome is None


@pytest.mark.parametrize(
    ("nominal_time", "code"),
    [
        pytest.param(NOON + 1, "no_period", id="no period"),
        pytest.param(NOON - 3600, "before_creation", id="before the job was"),
        pytest.param(NOON, "to_come", id="still to come"),
    ],
)
def test_a_period_without_a_record_has_an_answer_too(nominal_time: int, code: str) -> None:
    found = answer(world_of(), nominal_time)
    assert (found.outcome, found.facts[-1].code) == (None, code)


def test_a_nominal_time_that_is_none_names_its_neighbours() -> None:
    found = answer(world_of(), NOON + 1)
    assert f"{rfc3339(NOON)} and {rfc3339(NOON + MINUTE)}" in found.facts[-1].sentence


def test_a_paused_job_says_that_its_periods_wait() -> None:
    world = world_of()
    world.pause()
    world.now += 120_000
    assert answer(world, NOON).facts[-1].code == "paused"


def test_a_period_before_an_edit_follows_the_old_definition() -> None:
    world = world_of()
    world.advance(30_000)
    world.end_period(NOON)
    world.edit(Job.from_dict({"identity": "a", "schedule": "0 0 * * *"}))
    found = answer(world, NOON)
    assert found.outcome is Outcome.EXECUTED
    assert '"* * * * *"' in found.facts[0].sentence
    assert answer(world, NOON + MINUTE).facts[-1].code == "no_period"


def test_a_period_in_the_instant_of_an_edit_follows_the_old_definition() -> None:
    world = world_of(NOON)
    world.edit(Job.from_dict({"identity": "a", "schedule": "*/2 * * * *"}))
    asked = [
        why(PeriodHistory(world.job, at_once(world.store.epochs(SPACE, "a"))), at, now=world.now)
        for at in (NOON, NOON + 2 * MINUTE)
    ]
    old, new = (found.facts[0].sentence for found in asked)
    assert old == 'the schedule is "* * * * *" in UTC, as defined before edit 1'
    assert new == 'the schedule is "*/2 * * * *" in UTC'


def test_a_period_that_was_replaced_says_so_after_its_end() -> None:
    world = world_of(policy={"overlap": "replace"})
    world.advance(30_000 + 60_000)
    world.end_period(NOON, RunEvent.CANCELLED)
    assert codes(answer(world, NOON))[-3:] == ["started", "ended", "replaced"]


def test_a_period_whose_time_has_just_come_is_overdue_until_somebody_looks() -> None:
    world = world_of()
    world.now = 1000 * NOON - 1
    assert answer(world, NOON).facts[-1].code == "to_come"
    world.now += 1
    assert answer(world, NOON).facts[-1].code == "overdue"


def test_of_a_deleted_job_old_periods_are_forgotten_and_later_ones_are_deleted() -> None:
    world = world_of()
    world.advance(30_000)
    world.end_period(NOON)
    world.delete()
    found = [why(PeriodHistory(world.job), at, now=world.now).facts[-1].code for at in (NOON, NOON + MINUTE)]
    assert found == ["forgotten", "deleted"]
