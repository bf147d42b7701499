"""An operator's limits hold for the engine: the lookahead, and the missed periods of one tick."""

import pytest

from kron.core.errors import InvalidOptionError
from kron.core.plan.step import Limits
from kron.fronts.service.errors import InvalidScheduleError
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from kron.fronts.service.settings import read_settings
from kron.ports import Store
from tests.service.registrar_rig import MINUTE, MINUTELY, NOON, SECOND, office_on


async def test_missed_periods_are_spread_over_the_lookahead(store: Store) -> None:
    async with office_on(store) as office:
        office.engine.limits = Limits(lookahead_ms=10_000)
        fields = {"catchup_policy": "spread", "overlap_policy": "allow", "paused": True}
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        await office.work()
        await office.until(NOON + 4 * MINUTE + SECOND)
        await office.registrar.pause_schedule("minutely", False)
        await office.until(NOON + 4 * MINUTE + 2 * SECOND)
        first, *_, last = sorted(run.fire_time for run in await office.runs("minutely"))
        # The first and the last of four, at a fifth and four fifths of ten seconds.
        assert last - first == 6_000


async def test_a_take_over_has_the_lookahead_as_its_grace(store: Store) -> None:
    for lookahead_ms, seen in ((120_000, "SUCCESS due"), (5_000, "MISSED catchup_none")):
        name = f"after {lookahead_ms}"
        async with office_on(store) as office:
            office.engine.limits = Limits(lookahead_ms=lookahead_ms)
            await office.registrar.upsert_schedule({**MINUTELY, "schedule_id": name})
            await office.until(NOON + MINUTE + 30 * SECOND)
            await office.work()
            await office.until(NOON + MINUTE + 31 * SECOND)
            assert await office.seen(name) == [seen]
            await office.engine.stop()
            await office.registrar.delete_schedule(name)


async def test_a_tick_starts_no_more_missed_periods_than_the_limit(store: Store) -> None:
    async with office_on(store) as office:
        fields = {"catchup_policy": "fire_immediately", "overlap_policy": "allow", "paused": True}
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        await office.until(NOON + 30 * MINUTE + SECOND)
        await office.registrar.pause_schedule("minutely", False)
        office.engine.limits = Limits(catchup_per_tick=7)
        await office.work()
        for second, started in ((1, 7), (2, 14), (3, 21), (4, 28), (5, 30), (9, 30)):
            await office.until(NOON + 30 * MINUTE + second * SECOND + SECOND // 2)
            assert len(office.launchers["workflow"].started) == started


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        # A thousand periods that wait at once, as for windows.
        ({"cron_expr": "* * * * * *"}, 500_000),
        ({"cron_expr": "* * * * * *", "window": {"mode": "after", "duration": "10m"}}, 200_000),
        # The default of the lookahead is allowed whatever the window is.
        ({"cron_expr": "* * * * * *", "window": {"mode": "after", "duration": "1000s"}}, 60_000),
    ],
)
def test_the_jitter_of_a_schedule_that_runs_often_is_bounded(fields: dict[str, object], most: int) -> None:
    rules = Rules(lookahead_ms=3_600_000)
    document = {**MINUTELY, **fields, "jitter_ms": most}
    assert parse_schedule_spec(document, rules, schedule_id="").job.policy.jitter_ms == most
    with pytest.raises(InvalidScheduleError, match=f"is too long for how often it runs: use at most {most}"):
        parse_schedule_spec({**document, "jitter_ms": most + 1}, rules, schedule_id="")
    hourly = parse_schedule_spec({**MINUTELY, "jitter_ms": 3_600_000}, rules, schedule_id="")
    assert hourly.job.policy.jitter_ms == 3_600_000


@pytest.mark.parametrize(("lookahead_ms", "jitter_ms"), [(5_000, 5_000), (90_000, 90_000)])
def test_the_configured_lookahead_bounds_the_jitter(lookahead_ms: int, jitter_ms: int) -> None:
    rules = Rules(lookahead_ms=lookahead_ms)
    document = {**MINUTELY, "jitter_ms": jitter_ms}
    assert parse_schedule_spec(document, rules, schedule_id="").job.policy.jitter_ms == jitter_ms
    with pytest.raises(
        InvalidScheduleError, match=f'jitter_ms "{jitter_ms + 1}".*use at most {lookahead_ms}'
    ):
        parse_schedule_spec({**document, "jitter_ms": jitter_ms + 1}, rules, schedule_id="")


def test_a_default_jitter_beyond_the_lookahead_is_refused_with_the_settings() -> None:
    settings = read_settings({}, {"default_jitter_ms": 5_001, "lookahead_ms": 5_000}).settings
    with pytest.raises(InvalidOptionError, match=r'default_jitter_ms "5001".*raise lookahead_ms'):
        _ = settings.rules
