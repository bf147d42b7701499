# ruff: noqa: D102 - the name of a test is its sentence
"""Listings of jobs and counts of open runs."""

import json

from kron.core.plan.query import JobFilter, OpenRuns
from kron.core.plan.record import RunRecord, RunStatus
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    ELSEWHERE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    an_end,
    plain,
    stored,
    written,
)

ALL = JobFilter()


async def names(store: Store, wanted: JobFilter = ALL, *, after: str = "") -> list[str]:
    """Return the names of the matching jobs."""
    return [found.job.identity for found in await store.find_jobs(SPACE, wanted, after=after)]


def _pending(nominal_time: int, *, due_at: int | None) -> RunRecord:
    return a_run(
        nominal_time=nominal_time, status=RunStatus.PENDING, started_at=None, attempt=0, due_at=due_at
    )


class ListingContract:
    """Jobs are listed by name, page by page, and filtered by name, state and owner."""

    async def test_jobs_are_listed_by_name_page_by_page(self, store: Store) -> None:
        await stored(store, *(a_job(name) for name in ("b", "ä", "B", "a", "a/1", "😀")))
        await stored(store, a_job("elsewhere"), namespace=ELSEWHERE)
        ordered = ["B", "a", "a/1", "b", "ä", "😀"]
        assert await names(store) == ordered
        pages: list[str] = []
        for _ in range(3):
            after = pages[-1] if pages else ""
            found = await store.find_jobs(SPACE, JobFilter(), after=after, limit=2)
            pages += [each.job.identity for each in found]
        assert pages == ordered
        assert await names(store, after="😀") == []

    async def test_a_job_is_listed_with_all_its_fields_and_the_time_of_its_last_change(
        self, store: Store
    ) -> None:
        (job,) = await stored(store, a_job())
        assert await store.put(SPACE, created=[], changed=[a_change(job, failures=3)], now=NOW + 7) == CLEAN
        ((found, changed_at),) = await store.find_jobs(SPACE, JobFilter(names=["backup", "unknown"]))
        assert (plain(found), changed_at) == (plain(a_change(job, failures=3).job), NOW + 7)

    async def test_jobs_are_filtered_by_part_of_the_name_state_and_owner(self, store: Store) -> None:
        launchers = [
            json.dumps({"workflow_id": flow, "user_id": user}) for flow, user in (("w", "u"), ("w", "v"))
        ]
        await stored(
            store,
            a_job("prod/Backup", launcher=launchers[0]),
            a_job("prod/report_1", launcher=launchers[1], paused=1),
            a_job("test/report%1", failures=2),
        )
        for wanted, expected in (
            (JobFilter(search="BACK"), ["prod/Backup"]),
            (JobFilter(search="report_"), ["prod/report_1"]),
            (JobFilter(search="%"), ["test/report%1"]),
            (JobFilter(search="prod", paused=False), ["prod/Backup"]),
            (JobFilter(paused=True), ["prod/report_1"]),
            (JobFilter(workflow_id="w"), ["prod/Backup", "prod/report_1"]),
            (JobFilter(workflow_id="w", user_id="v"), ["prod/report_1"]),
            (JobFilter(failing=True), ["test/report%1"]),
            (JobFilter(failing=False, paused=True), ["prod/report_1"]),
            (JobFilter(user_id="unknown"), []),
            (JobFilter(users=["u", "unknown"]), ["prod/Backup"]),
            (JobFilter(users=["u", "v"], paused=True), ["prod/report_1"]),
            (JobFilter(users=[]), []),
            (JobFilter(names=[]), []),
        ):
            assert await names(store, wanted) == expected, wanted
            assert await store.count_jobs(SPACE, wanted) == len(expected), wanted

    async def test_open_runs_are_counted_by_state_up_to_a_limit(self, store: Store) -> None:
        assert await store.open_runs(SPACE, now=NOW, limit=10) == OpenRuns()
        await stored(store, a_job())
        await stored(store, a_job(), namespace=ELSEWHERE)
        for space in (ELSEWHERE, SPACE):
            ownership = await store.acquire(space, "a")
            await written(store, ownership, a_run(nominal_time=NOON - 1))
        await written(
            store,
            ownership,
            _pending(NOON + 1, due_at=NOW + 1),
            _pending(NOON + 2, due_at=NOW),
            _pending(NOON + 3, due_at=NOW - 1),
            _pending(NOON + 4, due_at=None),
            a_run(nominal_time=NOON + 5, status=RunStatus.FAILED, due_at=NOW - 1),
            a_run(nominal_time=NOON + 6, status=RunStatus.ENQUEUED, due_at=NOW + 9),
            an_end(a_run(nominal_time=NOON + 7)),
        )
        expected = OpenRuns(planned=1, due=2, held=1, under_way=2, retrying=1)
        assert await store.open_runs(SPACE, now=NOW, limit=10) == expected
        assert sum(await store.open_runs(SPACE, now=NOW, limit=3)) == 3
        assert await store.open_runs(ELSEWHERE, now=NOW, limit=10) == OpenRuns(under_way=1)

    async def test_deleted_jobs_are_listed_on_request_only(self, store: Store) -> None:
        await stored(store, a_job("here"), a_job("gone", deleted_at=NOW, plan_at=None))
        assert await names(store) == ["here"]
        assert await names(store, JobFilter(deleted=True)) == ["gone", "here"]
