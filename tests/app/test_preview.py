"""The preview of a resume: the runner and the service give one answer for the same records."""

from datetime import UTC, datetime, timedelta

import pytest

import kron
import kron.testing
from kron.core.plan.step import Change
from kron.fronts.embed.answer import Run
from kron.fronts.embed.runner import Runner
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def copy_to_service(store: SqliteStore) -> None:
    """Give the service the runner's records of the job."""
    (state,) = await store.cases("runner:main", ["job"])
    await store.put(NAMESPACE, created=[state.job], changed=[], now=state.job.edited_at)
    (made,) = await store.cases(NAMESPACE, ["job"])
    change = Change(state.job._replace(number=made.job.number), made.job.revision, inserts=list(state.runs))
    result = await store.put(NAMESPACE, created=[], changed=[change], now=state.job.edited_at)
    assert not result.stale_jobs
    assert not result.existing_runs


@pytest.mark.parametrize("minutes", [0, 7, 250])
@pytest.mark.parametrize("catchup", ["all", "once", "none", "spread"])
@pytest.mark.parametrize(("overlap", "running"), [("allow", False), ("forbid", True), ("queue", True)])
@pytest.mark.parametrize("max_catchup", [5, 10_000])
async def test_runner_and_service_preview_the_same_resume(
    minutes: int, catchup: str, overlap: str, running: bool, max_catchup: int
) -> None:
    policy = {"catchup": catchup, "overlap": overlap, "deadline": None, "max_catchup": max_catchup}
    job = kron.Job.from_dict({"identity": "job", "schedule": "* * * * *", "policy": policy})
    store, clock = SqliteStore(), SimulatedClock(NOON + timedelta(seconds=1))

    async def work(run: Run) -> None:
        if running:
            await clock.sleep_until(NOON + timedelta(days=30))

    runner = Runner(store, clock=clock)
    runner.add(job, work)
    await runner.start()
    await clock.advance_to(NOON + MINUTE)
    await runner.pause("job")
    await clock.advance_to(NOON + (1 + minutes) * MINUTE)
    await copy_to_service(store)
    view = await Registrar(store, clock).preview_resume("job")
    total = await runner.preview_resume("job")
    assert (view["would_start"], view["would_wait"]) != (0, 0) or catchup == "none" or running or minutes == 0
    assert view["would_start"] + view["would_wait"] == total
    assert total + sum(view["would_drop"].values()) == minutes
    await kron.testing.kill(runner)
    await store.close()


@pytest.mark.parametrize(
    ("reports", "starts"), [pytest.param(True, 1, id="reports"), pytest.param(False, 5, id="does not")]
)
async def test_a_target_that_does_not_report_its_ends_holds_no_later_period_back(
    reports: bool, starts: int
) -> None:
    """Without reports a run is over once it is accepted, and a preview knows that."""
    store, clock = SqliteStore(), SimulatedClock(NOON + timedelta(seconds=1))
    registrar = Registrar(store, clock)
    launcher = {"kind": "http", "url": "http://executor.example/", "reports": reports}
    policy = {"overlap_policy": "queue", "catchup_policy": "fire_immediately"}
    document = {"schedule_id": "job", "cron_expr": "* * * * *", "timezone": "UTC", "launcher": launcher}
    await registrar.upsert_schedule({**document, **policy, "paused": True})
    await clock.advance_to(NOON + 5 * MINUTE + timedelta(seconds=1))
    forecast = await registrar.preview_resume("job")
    assert (forecast["would_start"], forecast["would_wait"]) == (starts, 5 - starts)
    resumed = await registrar.pause_schedule("job", False)
    assert (resumed["would_start"], resumed["would_wait"]) == (starts, 5 - starts)
    await store.close()
