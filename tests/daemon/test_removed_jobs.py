"""A reload makes the jobs of files equal the files, and leaves all other jobs as they are."""

from collections.abc import AsyncIterator

import pytest

from kron.app.apply import PAGE
from kron.app.catalog import Catalog, JobDefinition
from kron.core.job.job import Job
from kron.core.plan.query import JobFilter
from kron.fronts.daemon.job_set import LoadedJobs, Reloaded, reload_jobs
from kron.stores.sqlite.store import SqliteStore

NOW = 1_000 * 1_767_225_601


def a_job(identity: str) -> Job:
    return Job.from_dict({"identity": identity, "schedule": "0 0 1 1 *", "command": "true"})


@pytest.fixture
async def catalog() -> AsyncIterator[Catalog]:
    store = SqliteStore()
    yield Catalog(store, "krond", now=lambda: NOW)
    await store.close()


async def reloaded(catalog: Catalog, *broken: str, **files: list[str]) -> Reloaded:
    """Reload the files `/f/<name>` with these jobs; the broken ones cannot be read."""
    jobs = {f"/f/{name}": [a_job(identity) for identity in names] for name, names in files.items()}
    return await reload_jobs(
        catalog, lambda: LoadedJobs(jobs=jobs, problems={f"/f/{name}": ["it is broken"] for name in broken})
    )


async def names(catalog: Catalog) -> list[str]:
    return [found.job.identity for found in await catalog.query.jobs(JobFilter(), limit=10 * PAGE)]


async def test_only_jobs_that_a_readable_file_had_are_removed(catalog: Catalog) -> None:
    await catalog.upsert(
        [JobDefinition(a_job("by hand")), JobDefinition(a_job("of a set"), applied_set="set")]
    )
    await reloaded(catalog, one=["one/a", "one/b"], two=["two/a"], gone=["gone/a"])
    again = await reloaded(catalog, "two", one=["one/a"])
    assert await names(catalog) == ["by hand", "of a set", "one/a", "two/a"]
    assert [line for line in again.plan if line.startswith("-")] == [
        "- gone/a: would have started 2027-01-01T00:00:00Z",
        "- one/b: would have started 2027-01-01T00:00:00Z",
    ]
    assert again.errors == ["it is broken", "/f/two: its earlier jobs stay as they were"]


async def test_jobs_beyond_the_first_page_are_removed_too(catalog: Catalog) -> None:
    await reloaded(catalog, many=[f"many/{number:04}" for number in range(PAGE + 1)])
    await reloaded(catalog, many=["many/0000"])
    assert await names(catalog) == ["many/0000"]
