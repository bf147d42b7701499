"""View models: the chart of a day has exactly the starts of the schedule."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import seconds_between
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import JobRecord, RunRecord, RunStatus
from kron.core.plan.registration import create, is_period
from kron.core.plan.step import JobState
from kron.core.time.instant import DAY
from kron.core.time.zone import zone_of
from kron.fronts.service.responses import AuditView
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from kron.fronts.service.web.time_text import moment_of
from kron.fronts.service.web.view_models import (
    HIGH,
    LOW,
    MAX_SHOWN,
    PART_S,
    PARTS,
    audit_entry,
    coming_of,
    day_of,
    mark_of,
    spark_of,
)

NOW = int(datetime(2026, 3, 28, 12, 0, 0, tzinfo=UTC).timestamp())
WORK = {"workflow_id": "w", "version": 1, "user_id": "u"}


def a_job(cron_expr: str, **fields: object) -> JobRecord:
    document = {**WORK, "schedule_id": "job", "cron_expr": cron_expr, "timezone": "Europe/Berlin", **fields}
    return create(parse_schedule_spec(document, Rules(), schedule_id="job").job, now=1000 * NOW)


def test_a_sparkline_is_as_high_as_the_runs_took() -> None:
    runs = [
        RunRecord(str(took), "job", NOW, 1000 * NOW, RunStatus.SUCCESS, Reason.DUE, 1000 * NOW, 1,
                  started_at=0, ended_at=took)
        for took in (2000, 1000)
    ]  # fmt: skip
    runs.append(runs[0]._replace(status=RunStatus.SKIPPED, started_at=None, ended_at=None))
    marks = [mark_of(run, moment_of(1000 * NOW, zone_of("UTC"), 1000 * NOW)) for run in reversed(runs)]
    bars = spark_of(runs, marks)
    assert [(bar.x, bar.height, bar.look) for bar in bars] == [
        (0, LOW, "skip"),
        (1, 13, "ok"),
        (2, HIGH, "ok"),
    ]
    assert bars[1].title.endswith(", 1 s")


@given(
    cron_expr=st.sampled_from(
        [
            "*/20 * * * * *",
            "30 2 * * *",
            "*/7 * * * *",
            "0 9-17/2 * * mon-fri",
            "0 0 1 1 *",
            "15,45 1-4 * * *",
        ]
    ),
    window=st.sampled_from([None, ("after", "40m"), ("before", "2h"), ("around", "3m")]),
    bounds=st.sampled_from([(None, None), (3, None), (None, 5), (2, 9)]),
    constrained=st.booleans(),
)
def test_the_chart_of_a_day_has_exactly_the_columns_with_starts(
    cron_expr: str,
    window: tuple[str, str] | None,
    bounds: tuple[int | None, int | None],
    constrained: bool,
) -> None:
    fields: dict[str, object] = {}
    if constrained:
        fields["constraints"] = {"only": {"hours": [2, 3, 14, 15]}, "avoid": {"between": ["14:20-14:50"]}}
    if window is not None and not cron_expr.startswith("*/20"):
        fields["window"] = {"mode": window[0], "duration": window[1]}
    for name, hours in zip(("start_at", "end_at"), bounds, strict=True):
        if hours is not None:
            at = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=hours)
            fields[name] = at.isoformat()
    job = a_job(cron_expr, **fields)
    compiled = compiled_job(job.definition, job.identity)
    starts = [
        fire_time
        for time in seconds_between(compiled.plan, NOW - 4 * 3600, NOW + DAY + 4 * 3600)
        if is_period(compiled, time) and (fire_time := compiled.fire_time("job", time)) is not None
        if 1000 * NOW < fire_time < 1000 * (NOW + DAY)
    ]
    day = day_of(JobState(job), 1000 * NOW)
    shown = {bar.x + step for bar in day.bars for step in range(bar.width)}
    assert shown == {(start // 1000 - NOW) // PART_S for start in starts}
    # The starts of a dense schedule are counted only if nothing but the schedule decides them.
    is_dense = cron_expr == "*/20 * * * * *"
    assert day.starts == len(starts) or (day.starts is None and constrained and is_dense)
    assert max(shown, default=0) < PARTS
    assert all(left.x + left.width < right.x for left, right in zip(day.bars, day.bars[1:], strict=False))


def test_a_job_that_starts_nothing_has_an_empty_day() -> None:
    job = a_job("* * * * *")
    stopped = [job._replace(paused=1), job._replace(suspended=1)]
    for each in (job._replace(remaining=0), job._replace(deleted_at=1), *stopped):
        assert day_of(JobState(each), 1000 * NOW) == ([], 0)


def test_the_day_of_a_paused_job_starts_with_the_end_of_its_pause() -> None:
    for cron_expr in ("* * * * *", "*/20 * * * * *"):
        job = a_job(cron_expr)._replace(paused=1, paused_until=1000 * (NOW + 12 * 3600))
        (bar,) = day_of(JobState(job), 1000 * NOW).bars
        assert bar == (48, 48)


def test_a_coming_start_says_what_a_clock_change_does_to_it() -> None:
    moved = coming_of(JobState(a_job("30 2 * * *", dst_gap="next")), 1000 * NOW)
    assert len(moved) == 20
    assert moved[0].fires.local == "Sun 29 Mar 03:00 CEST"
    assert moved[0].note == "02:30 moved here: clocks go forward 02:00 to 03:00"
    assert {each.note for each in moved[1:]} == {None}


def test_an_entry_of_the_audit_log_is_short_however_many_runs_a_backfill_had() -> None:
    before: dict[str, object] = {"schedule": "@daily"}
    after = {**before, "runs": 1_000, "idempotency_keys": ["f" * 64] * 1_000}
    view = AuditView(
        at="2026-03-28T12:00:00Z", who="ann", request_id=None, action="backfill", name="job", user_id="ann",
        before=before, after=after,
    )  # fmt: skip
    # What stays as it was is no change.
    runs, keys = audit_entry(view, 1000 * NOW).changes
    assert runs == ("runs", None, "1000")
    assert keys[2] is not None
    assert len(keys[2]) < MAX_SHOWN + 100
    assert keys[2].endswith("... (68,000 characters; the API has all)")
