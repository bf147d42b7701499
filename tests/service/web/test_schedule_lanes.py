"""The lanes of a few schedules: one with more runs than are read is drawn from their numbers."""

import pytest

from kron.core.plan.record import RunStatus
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.web import schedule_lanes
from kron.fronts.service.web.schedule_lanes import MAX_RUNS
from kron.ports import Store
from kron.testing import SimulatedClock
from tests.service.auth.test_tenancy import a_schedule
from tests.service.web.test_now import NOON, now_of
from tests.service.web.test_tag_lanes import NOW, recorded
from tests.service.web.test_timeline import a_run

# So many schedules share the runs that are read that each has 250 of them.
SCHEDULES, RUNS = 20, 400
MINUTE = 60_000


@pytest.fixture
async def registrar(store: Store) -> Registrar:
    registrar = Registrar(store, SimulatedClock(NOON))
    for number in range(SCHEDULES):
        await registrar.upsert_schedule(a_schedule(f"job{number:02}", cron_expr="0 0 1 1 *"))
    assert MAX_RUNS // SCHEDULES < RUNS
    # The oldest one failed.
    runs = [a_run(NOW - number * MINUTE, RunStatus.SUCCESS, "job07") for number in range(1, RUNS)]
    runs.append(a_run(NOW - RUNS * MINUTE, RunStatus.FAILED, "job07"))
    await recorded(registrar, "job07", *runs)
    return registrar


async def test_a_schedule_with_many_runs_in_view_is_drawn_from_their_numbers(registrar: Registrar) -> None:
    page = await now_of(registrar)
    first = page.timeline.lanes[0]
    assert (first.label, first.summary, first.look) == ("job07", "1 failed, 399 success", "bad")
    assert page.notes == []
    # Five of them start in each column of five minutes.
    assert page.timeline.load.peak == 5
    assert [crowd.look for crowd in first.crowds] == ["ok", "bad"]


async def test_of_too_many_runs_the_newest_are_drawn_and_that_is_told(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_lanes, "MAX_COUNTED", RUNS - 1)
    page = await now_of(registrar)
    assert page.notes == ["Drawn: the newest 250 runs of job07."]
    lanes = {lane.label: lane.summary for lane in page.timeline.lanes}
    assert lanes["job07"] == "250 success"
