"""The policies of SPEC 4 as the engine follows them, and changes of a definition."""

from datetime import timedelta

import pytest

from kron.core.job.job import Job
from kron.core.job.policy import POLICY, Catchup, Overlap
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen, started
from tests.engine_world import SPACE, World, at_once, with_policy

START = 1000 * NOON + 1


def world_of(job: Job) -> World:
    world = World(job, START)
    world.wake()
    return world


# --- suspend ---------------------------------------------------------------------------------------


def test_while_suspended_nothing_starts_and_no_period_is_handled() -> None:
    suspended = with_policy(EVERY_MINUTE, suspend=True, catchup=Catchup.ALL, deadline=None)
    world = world_of(suspended)
    cursor = world.job.cursor
    for _ in range(5):
        world.advance(MINUTE)
        world.wake()
        assert (started(world), world.records(), world.job.cursor) == ([], {}, cursor)
        assert at_once(world.store.ranges(SPACE, world.identity)) == []
    world.edit(with_policy(suspended, suspend=False))
    world.wake()
    assert started(world)[0] == 1, "none of the periods was handled, so all are judged now"


# --- deadline --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline_s", "late_ms", "expected"),
    [
        pytest.param(0, 0, "STARTED due", id="none, at the time"),
        pytest.param(0, 999, "STARTED due", id="none, within the second"),
        pytest.param(0, 1_000, "MISSED deadline", id="none, in the next second"),
        pytest.param(10, 0, "STARTED due", id="10 s, at the time"),
        pytest.param(10, 10_000, "STARTED due", id="10 s, at its end"),
        pytest.param(10, 11_000, "MISSED deadline", id="10 s, past its end"),
    ],
)
def test_a_deadline_decides_whether_a_late_period_starts_or_is_missed(
    deadline_s: int, late_ms: int, expected: str
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, deadline=timedelta(seconds=deadline_s)))
    world.oversleep(1000 * nth(1) - START + late_ms)
    assert seen(world) == [expected]
    assert started(world) == ([1] if expected.startswith("STARTED") else [])


# --- concurrency -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "expected", "starts"),
    [
        (Overlap.ALLOW, ["STARTED due", "STARTED due", "STARTED due"], [1, 2, 3]),
        (Overlap.SKIP, ["STARTED due", "SKIPPED active", "SKIPPED active"], [1]),
    ],
)
def test_an_active_execution_holds_up_the_next_period_only_under_forbid(
    overlap: Overlap, expected: list[str], starts: list[int]
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, overlap=overlap))
    world.advance(3 * MINUTE)
    assert (seen(world), started(world)) == (expected, starts)


# --- changes of the definition ---------------------------------------------------------------------

BASE: dict[str, object] = {
    "identity": "world/job",
    "schedule": "*/5 * * * *",
    "timezone": "UTC",
    "window": {"mode": "after", "duration": "60s"},
    "distribution": {"name": "skewLate", "shape": 2},
    "seed": {"strategy": "stable", "salt": "a"},
    "constraints": {"only": {"hours": [12]}},
}
CHANGES: dict[str, dict[str, object]] = {
    "schedule": {"schedule": "*/7 * * * *"},
    "timezone": {"timezone": "Asia/Kolkata"},
    "window mode": {"window": {"mode": "before", "duration": "60s"}},
    "window duration": {"window": {"mode": "after", "duration": "61s"}},
    "distribution": {"distribution": {"name": "uniform"}},
    "parameter": {"distribution": {"name": "skewLate", "shape": 3}},
    "only": {"constraints": {"only": {"hours": [12, 13]}}},
    "avoid": {"constraints": {"only": {"hours": [12]}, "avoid": {"dow": [0]}}},
    "seed strategy": {"seed": {"strategy": "daily", "salt": "a"}},
    "salt": {"seed": {"strategy": "stable", "salt": "b"}},
}
POLICIES: dict[str, object] = {
    "overlap": "allow",
    "catchup": "once",
    "deadline": "7s",
    "jitter_ms": 5,
    "queue_max": 7,
    "retry_delay": "7s",
    "on_orphan": "restart",
    "run_timeout": "7m",
    "replace_grace": "7s",
    "start_at": "2026-01-01T00:00:00Z",
    "end_at": "2030-01-01T00:00:00Z",
    "max_catchup": 7,
    "pause_after_failures": 7,
    "remaining": 7,
}
CHANGES |= {f"policy {name}": {"policy": {name: value}} for name, value in POLICIES.items()}


def test_every_policy_field_is_among_the_changes() -> None:
    """Except `suspend`: it decides no period differently, so it takes effect at once, without a new epoch."""
    assert POLICIES.keys() == {row.name for row in POLICY.rows} - {"suspend"}
    world = world_of(Job.from_dict(BASE))
    world.edit(Job.from_dict({**BASE, "policy": {"suspend": True}}))
    assert (world.job.suspended, world.job.epoch) == (1, 1)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_field_is_a_change_of_the_definition(change: dict[str, object]) -> None:
    world = world_of(Job.from_dict(BASE))
    before = world.job
    world.now += MINUTE
    world.edit(Job.from_dict(BASE))
    assert (world.job.epoch, world.job.edited_at) == (before.epoch, before.edited_at), "the same definition"
    world.edit(Job.from_dict({**BASE, **change}))
    assert (world.job.epoch, world.job.edited_at) == (before.epoch + 1, world.now)
    (earlier,) = at_once(world.store.epochs(SPACE, world.identity))
    assert (earlier.epoch, earlier.definition) == (before.epoch, before.definition), "it is kept for the past"
