"""View models: the chart of a day has exactly the starts of the schedule."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import seconds_between
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.core.time.instant import DAY
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from kron.fronts.service.web.view_models import PART_S, PARTS, day_of

NOW = int(datetime(2026, 3, 28, 12, 0, 0, tzinfo=UTC).timestamp())
WORK = {"workflow_id": "w", "version": 1, "user_id": "u"}


def a_job(cron_expr: str, **fields: object) -> JobRecord:
    document = {**WORK, "schedule_id": "job", "cron_expr": cron_expr, "timezone": "Europe/Berlin", **fields}
    return create(parse_schedule_spec(document, Rules(), schedule_id="job").job, now=1000 * NOW)


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
)
def test_the_chart_of_a_day_has_exactly_the_columns_with_starts(
    cron_expr: str, window: tuple[str, str] | None, bounds: tuple[int | None, int | None]
) -> None:
    fields: dict[str, object] = {}
    if window is not None and not cron_expr.startswith("*/20"):
        fields["window"] = {"mode": window[0], "duration": window[1]}
    for name, hours in zip(("start_at", "end_at"), bounds, strict=True):
        if hours is not None:
            at = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=hours)
            fields[name] = at.isoformat()
    job = a_job(cron_expr, **fields)
    compiled = compiled_job(job.definition, job.identity)
    first = NOW + 3600 * bounds[0] if bounds[0] else NOW - 3 * 3600
    last = NOW + 3600 * bounds[1] if bounds[1] else NOW + DAY + 3 * 3600
    times = list(seconds_between(compiled.plan, first, last + 1))
    expected = {
        part
        for part in range(PARTS)
        for start, end in [(NOW + part * PART_S, NOW + (part + 1) * PART_S)]
        if any(time + compiled.early < end and time + compiled.late >= start for time in times)
    }
    day = day_of(job, NOW)
    assert {bar.x + step for bar in day.bars for step in range(bar.width)} == expected
    assert day.periods == sum(NOW <= time < NOW + DAY for time in times)
    assert all(left.x + left.width < right.x for left, right in zip(day.bars, day.bars[1:], strict=False))


def test_a_job_that_is_finished_has_no_day() -> None:
    assert day_of(a_job("* * * * *")._replace(remaining=0), NOW) == ([], 0)
    assert day_of(a_job("* * * * *")._replace(deleted_at=1), NOW) == ([], 0)
