"""Data intervals: each execution is given the time from the previous period to its own."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import CompiledJob, compiled_job, definition_of
from kron.core.plan.record import (
    EpochRecord,
    JobRecord,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
    present_definition,
)
from kron.core.plan.registration import backfill, create, edit, is_period, request_run
from kron.core.plan.report import (
    MAX_EARLIER,
    MAX_EARLIER_TEXT,
    DataInterval,
    data_interval,
    needs_earlier,
    newest_of,
)
from kron.core.plan.step import DEFAULT_LIMITS
from kron.core.time.instant import EpochSeconds, rfc3339
from tests.engine_world import SPACE, World, at_once
from tests.strategies import law

NOON = int(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp())
HOUR = 3_600_000
JOB = "job"


def a_job(schedule: str, timezone: str = "UTC", **fields: Any) -> Job:
    policy = {"concurrency": "allow", "deadline": None, "catchup": "all", **fields.pop("policy", {})}
    document = {"identity": JOB, "schedule": schedule, "timezone": timezone, "policy": policy, **fields}
    return Job.from_dict(document)


def seconds(text: str) -> EpochSeconds:
    return int(datetime.fromisoformat(text).timestamp())


def interval_of(job: Job, nominal: str, *earlier: tuple[str, Job], edited: str | None = None) -> str:
    """Return the interval of a period; each earlier definition has the instant it took effect."""
    record = create(job, now=1000 * NOON)
    if edited is not None:
        record = record._replace(epoch=1 + len(earlier), edited_at=1000 * seconds(edited))
    epochs = [
        EpochRecord(JOB, number, 1000 * seconds(at), definition_of(each))
        for number, (at, each) in enumerate(earlier, 1)
    ]
    run = request_run(record, request="x", now=1000 * NOON).inserts[0]
    period = run._replace(kind=RunKind.PERIOD, nominal_time=seconds(nominal))
    start, end = data_interval(record, period, epochs)
    assert end == period.nominal_time
    return rfc3339(start)


DAILY, HOURLY = a_job("0 0 * * *"), a_job("0 * * * *")
CREATED = "2026-03-01T10:00:00Z"


@pytest.mark.parametrize(
    ("job", "nominal", "start"),
    [
        # The first period has an interval too: the schedule is continued to times before its creation.
        (a_job("0 * * * *"), "2026-03-28T13:00:00Z", "2026-03-28T12:00:00Z"),
        (a_job("0 9 * * mon-fri"), "2026-03-30T09:00:00Z", "2026-03-27T09:00:00Z"),
        (a_job("0 0 29 2 *"), "2028-02-29T00:00:00Z", "2024-02-29T00:00:00Z"),
        # Clocks go forward in Berlin on 29 March: that night has no 02:30, and the day has 23 hours.
        (a_job("30 2 * * *", "Europe/Berlin"), "2026-03-30T00:30:00Z", "2026-03-28T01:30:00Z"),
        (
            a_job("30 2 * * *", "Europe/Berlin", dst_gap="next"),
            "2026-03-30T00:30:00Z",
            "2026-03-29T01:00:00Z",
        ),
        (a_job("0 0 * * *", "Europe/Berlin"), "2026-03-29T22:00:00Z", "2026-03-28T23:00:00Z"),
        # Clocks go back on 25 October: 02:30 occurs twice, and the day has 25 hours.
        (a_job("30 2 * * *", "Europe/Berlin"), "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"),
        (a_job("0 0 * * *", "Europe/Berlin"), "2026-10-25T23:00:00Z", "2026-10-24T22:00:00Z"),
        # Windows, constraints and start_at move or drop starts; they do not change the interval.
        (
            a_job("0 6 * * *", window={"mode": "before", "duration": "1h"}),
            "2026-03-29T06:00:00Z",
            "2026-03-28T06:00:00Z",
        ),
        (
            a_job("0 * * * *", constraints={"only": {"hours": [9]}}),
            "2026-03-29T09:00:00Z",
            "2026-03-29T08:00:00Z",
        ),
        (
            a_job("0 6 * * *", policy={"start_at": "2026-04-01T00:00:00Z"}),
            "2026-04-01T06:00:00Z",
            "2026-03-31T06:00:00Z",
        ),
    ],
)
def test_the_interval_of_a_period_starts_with_the_period_before_it(
    job: Job, nominal: str, start: str
) -> None:
    assert interval_of(job, nominal) == start


@pytest.mark.parametrize(
    ("before", "after", "nominal", "start"),
    [
        # Edited at noon: the first new period continues where the last old one ended.
        (DAILY, HOURLY, "2026-03-28T13:00:00Z", "2026-03-28T00:00:00Z"),
        (DAILY, HOURLY, "2026-03-28T14:00:00Z", "2026-03-28T13:00:00Z"),
        (HOURLY, DAILY, "2026-03-29T00:00:00Z", "2026-03-28T12:00:00Z"),
        (HOURLY, DAILY, "2026-03-30T00:00:00Z", "2026-03-29T00:00:00Z"),
        # A period up to the edit that runs later, caught up or filled in, keeps its old interval.
        (HOURLY, DAILY, "2026-03-28T12:00:00Z", "2026-03-28T11:00:00Z"),
        (DAILY, HOURLY, "2026-03-28T00:00:00Z", "2026-03-27T00:00:00Z"),
        # A definition that ended, or never started, has no period to continue from.
        (
            a_job("0 * * * *", policy={"end_at": "2026-03-28T05:30:00Z"}),
            DAILY,
            "2026-03-29T00:00:00Z",
            "2026-03-28T05:00:00Z",
        ),
    ],
)
def test_the_interval_after_an_edit_meets_the_last_one_before_it(
    before: Job, after: Job, nominal: str, start: str
) -> None:
    assert interval_of(after, nominal, (CREATED, before), edited="2026-03-28T12:00:30Z") == start


def test_a_definition_without_a_period_is_passed_over() -> None:
    earlier = ((CREATED, HOURLY), ("2026-03-28T11:30:00Z", DAILY))
    assert interval_of(HOURLY, "2026-03-28T13:00:00Z", *earlier, edited="2026-03-28T12:00:30Z") == (
        "2026-03-28T11:00:00Z"
    )


def test_a_manual_run_has_the_interval_of_the_latest_period_and_a_backfill_that_of_its_own() -> None:
    record = create(HOURLY, now=1000 * NOON)
    manual = request_run(record, request="x", now=1000 * (NOON + 1800)).inserts[0]
    assert data_interval(record, manual) == DataInterval(NOON - 3600, NOON)
    record = record._replace(cursor=NOON)
    past = backfill(
        record, NOON - 7200, run=None, dropped=None, request="x", now=1000 * (NOON + 1800)
    ).inserts[0]
    assert data_interval(record, past) == DataInterval(NOON - 3 * 3600, NOON - 7200)


def test_earlier_definitions_are_read_for_the_first_interval_after_an_edit_alone() -> None:
    record = create(HOURLY, now=1000 * NOON)
    run = request_run(record, request="x", now=1000 * NOON).inserts[0]._replace(kind=RunKind.PERIOD)
    first, second = run._replace(nominal_time=NOON + 3600), run._replace(nominal_time=NOON + 7200)
    assert not needs_earlier(record, first)
    edited = record._replace(epoch=2, edited_at=1000 * NOON + 30_000)
    assert needs_earlier(edited, first)
    assert needs_earlier(edited, run._replace(nominal_time=NOON))
    assert not needs_earlier(edited, second)


WINDOWS: list[dict[str, Any]] = [
    {},
    {"policy": {"jitter_ms": 60_000}},
    *(
        {"window": {"mode": mode, "duration": duration}}
        for mode in ("after", "before", "around")
        for duration in ("90m", "5h")
    ),
]


def is_scheduled(job: JobRecord, run: RunRecord, epochs: Sequence[EpochRecord]) -> bool:
    """Say whether a run is that of a period, not one that an edit removed before it was due."""
    if run.reason is not Reason.EDITED:
        return True
    return is_period(followed(job, run.nominal_time, epochs), run.nominal_time)


def followed(job: JobRecord, nominal_time: EpochSeconds, epochs: Sequence[EpochRecord]) -> CompiledJob:
    definitions = [*epochs, present_definition(job)]
    later = [known for known in definitions[1:] if nominal_time > known.since]
    return compiled_job([definitions[0], *later][-1].definition, JOB)


def test_an_edit_keeps_the_periods_up_to_one_that_has_started() -> None:
    """A period that started ahead of its nominal time keeps its interval, and the next one meets it."""
    world = World(a_job("0 * * * *", window={"mode": "before", "duration": "5h"}), 1000 * NOON)
    world.wake()
    world.advance(2 * HOUR + HOUR // 2)
    assert [nominal for _, nominal, _ in world.starts if nominal > world.now // 1000] == [NOON + 3 * 3600]
    world.edit(a_job("*/20 * * * *"))
    world.advance(HOUR)
    rows = sorted(run for run in world.rows().values() if run.nominal_time > NOON + 2.5 * 3600)
    scheduled = sorted(run.nominal_time - NOON for run in rows if run.reason is not Reason.EDITED)
    assert scheduled[:2] == [3 * 3600, 3 * 3600 + 1200], "14:40 lies in the interval of 15:00, which has run"
    epochs = at_once(world.store.epochs(SPACE, JOB))
    last = next(run for run in rows if run.nominal_time == NOON + 3 * 3600 + 1200)
    assert data_interval(world.job, last, epochs).start == NOON + 3 * 3600


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        (10, MAX_EARLIER),
        (MAX_EARLIER_TEXT // 4, 4),
        (MAX_EARLIER_TEXT // 4 + 1, 3),
        (2 * MAX_EARLIER_TEXT, 1),
    ],
)
def test_a_data_interval_looks_into_a_bounded_number_and_text_of_definitions(size: int, kept: int) -> None:
    earlier = [EpochRecord(JOB, number, 0, "x" * size) for number in range(1, 101)]
    assert [known.epoch for known in newest_of(earlier)] == [*range(101 - kept, 101)]
    assert list(newest_of(earlier[:1])) == earlier[:1]
    assert list(newest_of([])) == []


SCHEDULES = ["*/20 * * * *", "0 * * * *", "30 2 * * *", "15 1-4 * * *", "0 0,12 * * *", "0 12 * * sat,mon"]


@law(25)
@given(
    schedules=st.lists(st.sampled_from(SCHEDULES), min_size=1, max_size=4),
    zones=st.lists(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]), min_size=4, max_size=4),
    waits=st.lists(st.integers(0, 12 * HOUR), min_size=4, max_size=4),
    windows=st.lists(st.sampled_from(WINDOWS), min_size=4, max_size=4),
    outage=st.integers(0, 10 * HOUR),
)
def test_the_intervals_of_consecutive_periods_meet_and_never_overlap(
    schedules: list[str],
    zones: list[str],
    waits: list[int],
    windows: list[dict[str, Any]],
    outage: int,
) -> None:
    world = World(a_job(schedules[0], zones[0], **windows[0]), 1000 * NOON)
    world.wake()
    for number, (schedule, zone, wait) in enumerate(zip(schedules, zones, waits, strict=False)):
        if number:
            world.edit(a_job(schedule, zone, **windows[number]))
        world.advance(wait)
    world.outage(outage + DEFAULT_LIMITS.lookahead_ms)
    world.advance(12 * HOUR)
    epochs = at_once(world.store.epochs(SPACE, JOB))
    runs = [run for _, run in sorted(world.rows().items()) if is_scheduled(world.job, run, epochs)]
    intervals = [data_interval(world.job, run, epochs) for run in runs]
    assert all(
        interval.start < interval.end == run.nominal_time
        for interval, run in zip(intervals, runs, strict=True)
    )
    for before, after in pairwise(intervals):
        # A period whose fire time had passed when the job was created has no run, and keeps its interval.
        fire_time = followed(world.job, after.start, epochs).fire_time(JOB, after.start)
        assert after.start == before.end or (fire_time is not None and fire_time < 1000 * NOON)


AHEAD, EDITED_AT = NOON + 3 * 3600, 1000 * NOON + 2 * HOUR + HOUR // 2
EARLY = a_job("0 * * * *", window={"mode": "before", "duration": "5h"})
FIRED_AT = compiled_job(definition_of(EARLY), JOB).fire_time(JOB, AHEAD) or 0


def kept_until(*runs: RunRecord, deleted_at: int | None = None) -> EpochSeconds | None:
    """Return what an edit at 14:30 keeps when the period of 15:00 is planned and its fire time is past."""
    assert FIRED_AT < EDITED_AT
    record = create(EARLY, now=1000 * NOON)._replace(cursor=AHEAD, deleted_at=deleted_at)
    return edit(record, runs, a_job("*/20 * * * *"), now=EDITED_AT).job.kept_until


def test_a_period_that_still_waits_keeps_nothing_although_its_fire_time_is_past() -> None:
    record = create(EARLY, now=1000 * NOON)
    asked = request_run(record, request="x", now=1000 * NOON).inserts[0]
    waiting = asked._replace(kind=RunKind.PERIOD, key=key_of(JOB, AHEAD), nominal_time=AHEAD)
    assert kept_until() == AHEAD
    assert kept_until(waiting) is None
    assert kept_until(waiting._replace(status=RunStatus.STARTED)) == AHEAD


def test_a_job_that_is_created_again_keeps_only_periods_that_started_before_its_deletion() -> None:
    assert kept_until(deleted_at=FIRED_AT) == AHEAD
    assert kept_until(deleted_at=FIRED_AT - 1) is None
