"""Which past periods a backfill selects: it reads all their records, however many pages these take."""

import pytest

from kron.app.backfill import (
    ACTIVE,
    MAX_RANGE_S,
    PAGE,
    Only,
    PastPeriods,
    PeriodRange,
    check_size,
    read_past,
)
from kron.app.budget import CpuBudget
from kron.app.catalog import Catalog, JobDefinition
from kron.core.errors import InvalidOptionError
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunKind, RunRecord, RunStatus, key_of, request_key_of
from kron.core.plan.registration import create
from kron.core.plan.step import Change
from kron.ports import Store
from tests.engine_case import NOON

SPACE, MINUTE = "test", 60
NOW = 1000 * NOON + 1


def run_of(nominal_time: int, status: RunStatus = RunStatus.SUCCESS) -> RunRecord:
    """Return the ended run of a period."""
    key = key_of("job", nominal_time)
    return RunRecord(key, "job", nominal_time, 1000 * nominal_time, status, Reason.DUE, NOW, 1)


def backfilled(nominal_time: int, number: int) -> RunRecord:
    """Return an ended run that an earlier backfill added."""
    key = request_key_of("job", RunKind.BACKFILL, str(number))
    return run_of(nominal_time)._replace(key=key, kind=RunKind.BACKFILL)


async def recorded(store: Store, catalog: Catalog, *runs: RunRecord) -> JobRecord:
    """Create a job that runs every minute, with these runs; return its record."""
    definition = Job.from_dict({"identity": "job", "schedule": "* * * * *", "timezone": "UTC"})
    await catalog.upsert([JobDefinition(definition)])
    (state,) = await store.cases(SPACE, ["job"])
    changed = state.job._replace(revision=state.job.revision + 1)
    change = Change(changed, state.job.revision, inserts=list(runs))
    assert not (await store.put(SPACE, created=[], changed=[change], now=NOW)).existing_runs
    return changed


@pytest.fixture
def catalog(store: Store) -> Catalog:
    return Catalog(store, SPACE, now=lambda: NOW)


async def test_a_period_whose_records_two_pages_share_is_read_whole(store: Store, catalog: Catalog) -> None:
    start = NOON - PAGE * MINUTE
    periods = [run_of(start + number * MINUTE) for number in range(PAGE)]
    # The newest run of all: the first page ends before the last period.
    job = await recorded(store, catalog, *periods, backfilled(NOON - MINUTE, 1))
    wanted = PeriodRange(start=start, end=NOON)
    past = await read_past(store, SPACE, job, wanted)
    assert sum(map(len, past.runs.values())) == PAGE + 1
    assert past.selected(past.periods(wanted, CpuBudget()), wanted.only) == []


async def test_a_period_with_more_runs_than_a_page_hides_none_before_it(
    store: Store, catalog: Catalog
) -> None:
    last, before = NOON - MINUTE, NOON - 2 * MINUTE
    runs = [backfilled(last, number) for number in range(PAGE + 5)]
    job = await recorded(store, catalog, run_of(before), run_of(last), *runs)
    past = await read_past(store, SPACE, job, PeriodRange(start=before, end=NOON))
    assert {time: len(found) for time, found in past.runs.items()} == {last: PAGE + 6, before: 1}


async def test_a_failed_period_of_an_earlier_definition_can_be_run_again(
    store: Store, catalog: Catalog
) -> None:
    failed = NOON - 90 * MINUTE + 17 * MINUTE
    await recorded(store, catalog, run_of(failed, RunStatus.FAILED))
    hourly = Job.from_dict({"identity": "job", "schedule": "0 * * * *", "timezone": "UTC"})
    await catalog.upsert([JobDefinition(hourly)])
    wanted = PeriodRange(start=NOON - 120 * MINUTE, end=NOON, only=Only.FAILED)
    result = await catalog.backfill("job", wanted, "request")
    assert [(run.nominal_time, run.kind) for run in result.runs] == [(failed, RunKind.BACKFILL)]


async def test_a_repeated_request_for_periods_from_before_the_job_runs_none_of_them_again(
    store: Store, catalog: Catalog
) -> None:
    """They have the keys of their periods, so that no key shows the request."""
    await recorded(store, catalog)
    wanted = PeriodRange(start=NOON - 5 * MINUTE, end=NOON, only=Only.ALL)
    first = await catalog.backfill("job", wanted, "request")
    assert [run.kind for run in first.runs] == [RunKind.PERIOD] * 5
    again = await catalog.backfill("job", wanted, "request")
    assert (again.runs, again.already_requested) == ([], 5)
    another = await catalog.backfill("job", wanted, "another request")
    assert [run.kind for run in another.runs] == [RunKind.BACKFILL] * 5


async def test_a_run_now_with_the_same_request_is_no_backfill(store: Store, catalog: Catalog) -> None:
    await recorded(store, catalog)
    wanted = PeriodRange(start=NOON - 5 * MINUTE, end=NOON, only=Only.ALL)
    assert len((await catalog.backfill("job", wanted, "request")).runs) == 5
    await catalog.run_now("job", "another request")
    assert len((await catalog.backfill("job", wanted, "another request")).runs) == 5


@pytest.mark.parametrize("status", sorted(ACTIVE))
def test_a_period_with_a_run_that_waits_or_executes_is_repeated_only_on_explicit_request(
    status: RunStatus,
) -> None:
    record = create(Job.from_dict({"identity": "job", "schedule": "* * * * *"}), now=NOW)
    again = backfilled(NOON, 1)._replace(status=status)
    for own in (run_of(NOON, status), run_of(NOON, RunStatus.FAILED)):
        past = PastPeriods(record, {NOON: [own, again]}, [])
        assert {only: past.selected([NOON], only) for only in Only} == {
            Only.MISSING: [],
            Only.FAILED: [],
            Only.ALL: [NOON],
        }


def test_a_range_of_more_than_a_hundred_years_is_refused_before_it_is_searched() -> None:
    yearly = Job.from_dict({"identity": "job", "schedule": "0 0 1 1 *", "timezone": "UTC"})
    record = create(yearly, now=NOW, launcher="{}", kind="callback")
    check_size(record, PeriodRange(start=0, end=MAX_RANGE_S))
    with pytest.raises(InvalidOptionError, match="longer than 100 years"):
        check_size(record, PeriodRange(start=0, end=MAX_RANGE_S + 1))
