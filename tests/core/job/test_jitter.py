"""Jitter is seeded, not random: the same period has the same offset for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.seed import jitter_of
from kron.core.plan.compiled import compiled_job, definition_of
from kron.core.time.instant import rfc3339
from tests.engine_model import fire_time_of, jitter_by_hand
from tests.engine_world import World, with_policy
from tests.strategies import law, seconds

NOON = 1_767_268_800
IDENTITIES = st.text("abcdefgh/-é ", min_size=1, max_size=12).filter(str.strip)


@pytest.mark.parametrize(
    ("identity", "nominal_time", "jitter_ms", "expected"),
    [
        pytest.param("prod/db-backup", NOON, 0, 0, id="none"),
        pytest.param("prod/db-backup", NOON, 60_000, 37_281, id="a minute"),
        pytest.param("prod/db-backup", NOON + 60, 60_000, -55_341, id="the next period"),
        pytest.param("prod/other", NOON, 60_000, -52_090, id="another job"),
        pytest.param("prod/db-backup", NOON, 1, 1, id="a millisecond"),
    ],
)
def test_offsets_stay_what_they_are(identity: str, nominal_time: int, jitter_ms: int, expected: int) -> None:
    assert jitter_of(identity, rfc3339(nominal_time), jitter_ms) == expected


@law(300)
@given(identity=IDENTITIES, nominal_time=seconds(1970, 2100), jitter_ms=st.integers(0, 60_000))
def test_the_offset_is_the_formula(identity: str, nominal_time: int, jitter_ms: int) -> None:
    found = jitter_of(identity, rfc3339(nominal_time), jitter_ms)
    assert found == jitter_by_hand(identity, nominal_time, jitter_ms)
    assert -jitter_ms <= found <= jitter_ms


def test_offsets_reach_both_ends_and_lean_to_neither() -> None:
    offsets = [jitter_of("prod/db-backup", rfc3339(NOON + 60 * n), 3) for n in range(2_000)]
    assert set(offsets) == set(range(-3, 4))
    assert abs(sum(offsets)) < 300


@law(40)
@given(identity=IDENTITIES, number=st.integers(0, 1_000), jitter_ms=st.integers(1, 60_000))
def test_the_fire_time_is_the_chosen_time_and_the_offset(identity: str, number: int, jitter_ms: int) -> None:
    job = Job.from_dict(
        {
            "identity": identity,
            "schedule": "* * * * *",
            "window": {"mode": "around", "duration": "5m"},
            "policy": {"jitter_ms": jitter_ms},
        }
    )
    nominal_time = NOON + 60 * number
    fire_time = compiled_job(definition_of(job), identity).fire_time(identity, nominal_time)
    assert fire_time == fire_time_of(job, nominal_time)


def test_each_period_starts_at_its_own_millisecond() -> None:
    job = with_policy(
        Job(identity="world/job", schedule=Schedule("* * * * *")), jitter_ms=20_000, deadline=None
    )
    world = World(job, 1000 * NOON + 30_000)
    world.wake()
    for _ in range(5):
        world.advance(60_000)
        for key in list(world.running):
            world.end(key)
    assert [(at, nominal) for at, nominal, _ in world.starts] == [
        (1000 * nominal + jitter_by_hand("world/job", nominal, 20_000), nominal)
        for nominal in range(NOON + 60, NOON + 360, 60)
    ]
