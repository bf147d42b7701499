"""The plan of a reload: the starts that appear, move and vanish, as they will be."""

import pytest

from kron.app.catalog import Catalog
from kron.core.job.job import Job
from kron.fronts.daemon.job_set import LoadedJobs, reload_jobs
from kron.stores.sqlite.store import SqliteStore

# 2027-01-15T08:31:00Z
NOW = 1_800_001_860_000
HOURLY = {"identity": "a", "schedule": "0 * * * *", "command": "true"}
WINDOWED = {**HOURLY, "window": {"mode": "after", "duration": "30m"}}


async def plan_of(*sets: list[dict[str, object]]) -> list[str]:
    """Return the plan of the last of some reloads, without its totals."""
    store, plan = SqliteStore(), ["", ""]
    catalog = Catalog(store, "krond", now=lambda: NOW)
    for documents in sets:
        jobs = [Job.from_dict(document) for document in documents]
        plan = list((await reload_jobs(catalog, lambda jobs=jobs: LoadedJobs(jobs={"/a.yaml": jobs}))).plan)  # type: ignore[misc]
    await store.close()
    return plan[1:]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([], [HOURLY], ["+ a: starts 2027-01-15T09:00:00Z"], id="new"),
        pytest.param([], [WINDOWED], ["+ a: starts 2027-01-15T09:20:58Z"], id="new, chosen in its window"),
        pytest.param(
            [WINDOWED],
            [{**WINDOWED, "salt": "x"}],
            ["~ a: next start moves from 2027-01-15T09:20:58Z to 2027-01-15T09:11:35Z"],
            id="another salt moves the start within the window",
        ),
        pytest.param(
            [HOURLY],
            [{**HOURLY, "command": "false"}],
            ["~ a: next start stays 2027-01-15T09:00:00Z"],
            id="another command moves nothing",
        ),
        pytest.param(
            [HOURLY],
            [{**HOURLY, "suspend": True}],
            ["~ a: next start moves from 2027-01-15T09:00:00Z to never, it is suspended"],
            id="suspended",
        ),
        pytest.param([HOURLY], [], ["- a: would have started 2027-01-15T09:00:00Z"], id="removed"),
        pytest.param([], [{**HOURLY, "schedule": "@reboot"}], ["+ a: starts at boot"], id="at boot"),
        pytest.param([HOURLY], [HOURLY], [], id="the same"),
    ],
)
async def test_the_plan_of_a_reload_names_the_starts_that_will_be(
    before: list[dict[str, object]], after: list[dict[str, object]], expected: list[str]
) -> None:
    assert await plan_of(before, after) == expected


async def test_the_plan_of_a_reload_that_lifts_suspend_says_how_many_start() -> None:
    store, now = SqliteStore(), NOW
    catalog = Catalog(store, "krond", now=lambda: now)
    often = {
        **HOURLY,
        "schedule": "* * * * *",
        "policy": {"catchup": "all", "deadline": "3m", "overlap": "allow"},
    }
    stopped = Job.from_dict({**often, "suspend": True})
    await reload_jobs(catalog, lambda: LoadedJobs(jobs={"/a.yaml": [stopped]}))
    now += 10 * 60_000
    loaded = LoadedJobs(jobs={"/a.yaml": [Job.from_dict(often)]})
    for dry_run in (True, False):
        plan = (await reload_jobs(catalog, lambda: loaded, dry_run=dry_run)).plan
        assert plan[1] == (
            "~ a: next start moves from never, it is suspended to 2027-01-15T08:42:00Z; "
            "4 runs would start, 7 periods would be dropped (deadline)"
        )
    assert (await reload_jobs(catalog, lambda: loaded)).plan[1:] == []
    await store.close()
