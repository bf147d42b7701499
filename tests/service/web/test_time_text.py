"""Moments and pictures of a day: what people read must be what the schedule does."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import seconds_between
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.core.time.instant import DAY
from kron.core.time.zone import zone_of
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from kron.fronts.service.web.chart import PART_S, PARTS, day_of
from kron.fronts.service.web.time_text import away, moment_of, span

NOW = int(datetime(2026, 3, 28, 12, 0, 0, tzinfo=UTC).timestamp())
WORK = {"workflow_id": "w", "version": 1, "user_id": "u"}


def a_job(cron_expr: str, **fields: object) -> JobRecord:
    document = {**WORK, "schedule_id": "job", "cron_expr": cron_expr, "timezone": "Europe/Berlin", **fields}
    return create(parse_schedule_spec(document, Rules(), schedule_id="job").job, now=1000 * NOW)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "now"),
        (9, "now"),
        (250, "in 250 ms"),
        (-1_000, "1 s ago"),
        (59_999, "in 59 s"),
        (60_000, "in 1 min"),
        (-61_000, "1 min 1 s ago"),
        (599_000, "in 9 min 59 s"),
        (659_000, "in 10 min"),
        (7_500_000, "in 2 h 5 min"),
        (-90_000_000, "1 d 1 h ago"),
        (864_000_000_000, "in 10000 d"),
    ],
)
def test_a_distance_is_told_in_two_units_at_most(milliseconds: int, text: str) -> None:
    assert away(milliseconds) == text


@given(milliseconds=st.integers(1_000, 10**12))
def test_a_span_is_never_longer_than_what_it_tells(milliseconds: int) -> None:
    sizes = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    words = span(milliseconds).split()
    told = sum(int(count) * sizes[unit] for count, unit in zip(words[::2], words[1::2], strict=True))
    smallest = sizes[words[-1]]
    seconds = milliseconds // 1000
    assert told <= seconds
    assert seconds - told < max(smallest, sizes[words[1]] if len(words) == 2 else smallest)


@pytest.mark.parametrize(
    ("instant", "local"),
    [
        pytest.param("2026-03-29T00:59:59Z", "Sun 29 Mar 01:59:59 CET", id="before the gap"),
        pytest.param("2026-03-29T01:00:00Z", "Sun 29 Mar 03:00 CEST", id="after the gap"),
        pytest.param("2027-01-01T00:30:00Z", "Fri 1 Jan 2027 01:30 CET", id="another year"),
    ],
)
def test_a_moment_is_written_in_the_zone_and_in_utc(instant: str, local: str) -> None:
    at = datetime.fromisoformat(instant)
    moment = moment_of(int(at.timestamp() * 1000), zone_of("Europe/Berlin"), 1000 * NOW)
    assert (moment.iso, moment.local) == (instant, local)
    assert moment.utc == f"{at:%a} {at.day} {at:%b %Y %H:%M:%S} UTC"


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
def test_the_picture_of_a_day_has_exactly_the_parts_with_starts(
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
    terms = compiled_job(job.definition, job.identity)
    first = NOW + 3600 * bounds[0] if bounds[0] else NOW - 3 * 3600
    last = NOW + 3600 * bounds[1] if bounds[1] else NOW + DAY + 3 * 3600
    times = list(seconds_between(terms.plan, first, last + 1))
    expected = {
        part
        for part in range(PARTS)
        for start, end in [(NOW + part * PART_S, NOW + (part + 1) * PART_S)]
        if any(time + terms.early < end and time + terms.late >= start for time in times)
    }
    day = day_of(job, NOW)
    assert {bar.x + step for bar in day.bars for step in range(bar.width)} == expected
    assert day.periods == sum(NOW <= time < NOW + DAY for time in times)
    assert all(left.x + left.width < right.x for left, right in zip(day.bars, day.bars[1:], strict=False))


def test_a_job_that_is_finished_has_no_day() -> None:
    assert day_of(a_job("* * * * *")._replace(remaining=0), NOW) == ([], 0)
    assert day_of(a_job("* * * * *")._replace(deleted_at=1), NOW) == ([], 0)
