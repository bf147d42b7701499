"""Reads that every front shares: pages of runs with a status, and why a job that starts at boot ran."""

from collections.abc import Sequence

import pytest

from kron.app.query import HistoryPage, Query
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.counterfactual import what_if
from kron.core.plan.record import RangeRecord, RunKind, RunRecord, RunStatus
from kron.core.plan.registration import create, request_run
from kron.core.plan.step import Change
from kron.ports import Store
from tests.app.test_backfill import NOW, SPACE, backfilled, run_of
from tests.engine_case import NOON

MINUTE = 60


async def query_of(
    store: Store,
    runs: Sequence[RunRecord],
    ranges: Sequence[RangeRecord] = (),
    *,
    schedule: str = "* * * * *",
) -> Query:
    """Return the query of a job with these records."""
    job = Job.from_dict({"identity": "job", "schedule": schedule})
    await store.put(SPACE, created=[create(job, now=NOW)], changed=[], now=NOW)
    (state,) = await store.cases(SPACE, ["job"])
    changed = state.job._replace(revision=state.job.revision + 1)
    change = Change(changed, state.job.revision, inserts=list(runs), ranges=list(ranges))
    assert not (await store.put(SPACE, created=[], changed=[change], now=NOW)).existing_runs
    return Query(store, SPACE, now=lambda: NOW)


async def pages_of(query: Query, status: RunStatus, limit: int) -> list[HistoryPage]:
    """Return all pages of the runs with a status."""
    pages = [await query.run_page("job", limit=limit, status=status)]
    while pages[-1].following is not None:
        assert len(pages) < 100, "the cursor does not move on"
        pages.append(await query.run_page("job", limit=limit, status=status, start=pages[-1].following))
    return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_every_run_with_a_status_is_on_one_page(store: Store, limit: int) -> None:
    """Runs of one nominal time are divided between pages where these end."""
    runs = [run_of(NOON + n * MINUTE, (RunStatus.FAILED, RunStatus.SUCCESS)[n % 2]) for n in range(4)]
    runs += [backfilled(NOON, n)._replace(status=RunStatus.FAILED) for n in range(5)]
    runs += [backfilled(NOON + 2 * MINUTE, 9)]
    pages = await pages_of(await query_of(store, runs), RunStatus.FAILED, limit)
    found = [run.key for page in pages for run in page.runs]
    assert len(found) == len(set(found))
    assert set(found) == {run.key for run in runs if run.status is RunStatus.FAILED}
    assert max(len(page.runs) for page in pages) <= limit


async def test_of_counted_periods_only_those_with_the_status_are_shown(store: Store) -> None:
    ranges = [
        RangeRecord("job", NOON, NOON + MINUTE, 2, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW),
        RangeRecord(
            "job", NOON + 5 * MINUTE, NOON + 6 * MINUTE, 2, Outcome.SKIPPED, Reason.COALESCED, 1, NOW
        ),
    ]
    query = await query_of(store, [run_of(NOON + 9 * MINUTE)], ranges)
    for status, expected in ((RunStatus.MISSED, ranges[:1]), (RunStatus.SKIPPED, ranges[1:])):
        (page,) = await pages_of(query, status, 10)
        assert (page.runs, page.dropped) == ([], expected)


async def test_the_latest_boot_explains_a_job_that_starts_at_boot(store: Store) -> None:
    record = create(Job.from_dict({"identity": "job", "schedule": "@reboot"}), now=NOW)
    boot = request_run(record, request="boot 1", now=NOW, kind=RunKind.BOOT).inserts[0]
    by_hand = request_run(record, request="x", now=NOW + 60_000).inserts[0]
    query = await query_of(store, [boot, by_hand], schedule="@reboot")
    explanation = await query.why("job", "latest")
    assert [fact.code for fact in explanation.facts][:2] == ["schedule", "booted"]
    assert explanation.facts[1].at == NOW


async def test_all_recorded_periods_are_replayed_for_a_what_if(store: Store) -> None:
    await query_of(store, [run_of(NOON + MINUTE), run_of(NOON + 2 * MINUTE)])
    query = Query(store, SPACE, now=lambda: 1000 * (NOON + 3 * MINUTE) - 1)
    other = await query.what_if_all("job", what_if(["overlap=allow"]))
    assert (other.periods, other.changed) == (2, [])
