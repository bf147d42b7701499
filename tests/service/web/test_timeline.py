"""The timeline as values: where a start stands, what a crowded column shows, and how lanes are ranked."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.next_start import starts_ahead
from kron.core.plan.record import RangeRecord, RunRecord, RunStatus, key_of
from kron.core.plan.step import JobState
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, rfc3339
from kron.fronts.service.web.timeline import (
    HOUR,
    MAX_LISTED,
    MAX_SINGLE,
    MINUTE,
    SCALES,
    ComingStarts,
    Drawn,
    Zoom,
    coming_of,
    load_of,
    ticks_of,
    timeline_of,
    view_of,
)
from tests.service.web.test_view_models import a_job

NOW = int(datetime(2026, 3, 28, 12, 0, 0, tzinfo=UTC).timestamp()) * 1000


def a_run(at: int, status: RunStatus = RunStatus.SUCCESS, name: str = "job", **fields: object) -> RunRecord:
    time = at // 1000
    started = at if status in (RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.STARTED) else None
    run = RunRecord(
        key_of(name, time),
        name,
        time,
        at,
        status,
        Reason.DUE,
        at,
        1,
        started_at=started,
        ended_at=started,
    )
    return run._replace(**fields)  # type: ignore[arg-type]


def test_now_is_in_the_middle_of_every_zoom() -> None:
    for zoom, scale in SCALES.items():
        view = view_of(zoom, NOW, NOW)
        assert abs(view.x(NOW) - 50) < 100 / scale.columns
        assert view.end - view.start == scale.length
        assert all(2 <= tick.x <= 98 for tick in ticks_of(view, zoom))
    assert [tick.label for tick in ticks_of(view_of(Zoom.DAY, NOW, NOW), Zoom.DAY)][:2] == ["03:00", "06:00"]


@pytest.mark.parametrize("zoom", Zoom)
@pytest.mark.parametrize("at", [1000 * FIRST_SECOND, 1000 * LAST_SECOND])
def test_the_first_and_the_last_instant_have_a_view(zoom: Zoom, at: int) -> None:
    view = view_of(zoom, at, NOW)
    assert view.end - view.start == SCALES[zoom].length
    assert ticks_of(view, zoom)
    for each in (view.start, view.end):
        assert rfc3339(each // 1000)


@given(
    cron_expr=st.sampled_from(["*/20 * * * * *", "*/7 * * * *", "0 9-17/2 * * mon-fri", "30 2 * * *"]),
    window=st.sampled_from([None, "40m"]),
    zoom=st.sampled_from(Zoom),
)
def test_every_coming_start_stands_in_its_column(cron_expr: str, window: str | None, zoom: Zoom) -> None:
    fields = (
        {} if window is None or "*/20" in cron_expr else {"window": {"mode": "after", "duration": window}}
    )
    state = JobState(a_job(cron_expr, **fields))
    view = view_of(zoom, NOW, NOW)
    coming = coming_of(state, view)
    expected: Counter[int] = Counter()
    for start in starts_ahead(state, NOW):
        if start.fire_time >= view.end:
            break
        expected[view.column(start.fire_time)] += 1
    if coming.is_nominal:
        # Too many windows to decide each: the number of starts is that of the nominal times.
        assert abs(sum(expected.values()) - sum(coming.columns.values())) <= sum(expected.values()) / 10 + 1
    else:
        assert dict(coming.columns) == dict(expected)
    # The windows of all of them are drawn, or none.
    assert bool(coming.windows) == bool(fields and expected and not coming.is_nominal)


def test_a_paused_schedule_has_no_coming_starts() -> None:
    job = a_job("* * * * *")._replace(paused=1)
    assert not coming_of(JobState(job), view_of(Zoom.DAY, NOW, NOW)).columns


def test_windows_are_not_decided_once_the_budget_is_spent() -> None:
    state = JobState(a_job("0 * * * *", window={"mode": "after", "duration": "20m"}))
    coming = coming_of(state, view_of(Zoom.DAY, NOW, NOW), is_spent=lambda: True)
    assert coming.is_nominal
    assert sum(coming.columns.values()) == 11


def test_a_dense_schedule_without_a_window_is_not_said_to_have_too_many() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    # The number of its runs is limited, so that its starts are found one by one.
    limited = a_job("* * * * * *")._replace(remaining=10**6)
    coming = coming_of(JobState(limited), view)
    assert sum(coming.columns.values()) > MAX_LISTED
    assert not coming.is_nominal
    windowed = a_job("* * * * * *", window={"mode": "after", "duration": "10s"})._replace(remaining=10**6)
    assert coming_of(JobState(windowed), view).is_nominal


def test_a_start_is_a_point_with_its_outcome_and_a_link_to_its_period() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    coming = ComingStarts({view.column(NOW + HOUR): 1}, [(NOW + HOUR, (NOW + HOUR) // 1000)])
    drawn = Drawn("job", runs=[a_run(NOW - HOUR, RunStatus.FAILED)], coming=coming)
    (lane,) = timeline_of([drawn], view, Zoom.DAY).lanes
    assert [(mark.look, mark.period_id) for mark in lane.singles] == [
        ("bad", "2026-03-28T11:00:00Z"),
        ("next", "2026-03-28T13:00:00Z"),
    ]
    assert lane.singles[0].x == view.x(NOW - HOUR)
    assert (lane.summary, lane.look, lane.crowds) == ("1 failed, 1 upcoming", "bad", [])


def test_a_crowded_column_shows_its_worst_outcome() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    runs = [a_run(NOW - 10 * MINUTE + second * 1000) for second in range(MAX_SINGLE + 1)]
    runs.append(a_run(NOW - 10 * MINUTE + 500, RunStatus.FAILED))
    (lane,) = timeline_of([Drawn("job", runs=runs)], view, Zoom.DAY).lanes
    column = view.column(NOW - 10 * MINUTE)
    assert lane.singles == []
    assert [(crowd.look, crowd.path) for crowd in lane.crowds] == [
        # A failure is known without its colour, by the gap in its column.
        ("bad", f"M{column} 0h1v0.4h-1zM{column} 0.6h1v0.4h-1z")
    ]


def test_a_running_execution_reaches_from_its_start_to_now() -> None:
    view = view_of(Zoom.HOUR, NOW, NOW)
    run = a_run(NOW - 6 * MINUTE, RunStatus.STARTED, is_open=1, ended_at=None)
    (lane,) = timeline_of([Drawn("job", runs=[run])], view, Zoom.HOUR).lanes
    (stretch,) = lane.stretches
    assert (stretch.look, stretch.width) == ("run", 10.0)
    later = view._replace(now=NOW + 6 * MINUTE)
    (grown,) = timeline_of([Drawn("job", runs=[run])], later, Zoom.HOUR).lanes[0].stretches
    assert grown.width == 20.0


def test_dropped_periods_are_a_stretch_and_windows_are_bars() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    first = (NOW - 3 * HOUR) // 1000
    dropped = RangeRecord("job", first, first + 3600, 7, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW)
    drawn = Drawn("job", dropped=[dropped], windows=[(NOW - 6 * HOUR, NOW - 5 * HOUR)])
    (lane,) = timeline_of([drawn], view, Zoom.DAY).lanes
    assert [(each.look, each.width) for each in lane.stretches] == [("window", 4.17), ("miss", 4.17)]
    assert "7 periods missed" in lane.stretches[1].title
    assert (lane.summary, lane.look) == ("7 missed", "miss")
    single = dropped._replace(last=first, periods=1)
    (lane,) = timeline_of([Drawn("job", dropped=[single])], view, Zoom.DAY).lanes
    assert "1 period missed" in lane.stretches[0].title


def test_the_windows_of_many_coming_starts_are_not_drawn_for_the_first_of_them_alone() -> None:
    job = a_job("*/30 * * * *", window={"mode": "around", "duration": "10m"})
    shown = coming_of(JobState(job), view_of(Zoom.WEEK, NOW, NOW))
    assert len(shown.windows) == sum(shown.columns.values()) == len(shown.listed) == 168
    shown = coming_of(JobState(job), view_of(Zoom.MONTH, NOW, NOW))
    assert sum(shown.columns.values()) > MAX_LISTED
    assert (shown.windows, shown.is_nominal) == ((), True)


def test_the_worst_lane_comes_first() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    fleet = [
        Drawn("a", runs=[a_run(NOW - HOUR)]),
        Drawn("b", runs=[a_run(NOW - HOUR, RunStatus.SKIPPED)]),
        Drawn("c", runs=[a_run(NOW - HOUR, RunStatus.FAILED)]),
        Drawn("d", runs=[a_run(NOW - at * MINUTE, RunStatus.FAILED) for at in (10, 20)]),
        # Outside of the view.
        Drawn("e", runs=[a_run(NOW - 40 * HOUR, RunStatus.FAILED)]),
    ]
    assert [lane.label for lane in timeline_of(fleet, view, Zoom.DAY).lanes] == ["d", "c", "b", "a", "e"]


def test_the_load_counts_past_and_coming_starts_in_each_column() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    runs = [a_run(NOW - HOUR + second) for second in (0, 1000, 2000)]
    skipped = a_run(NOW - HOUR, RunStatus.SKIPPED)
    shared = {200: 2}
    fleet = [
        Drawn("a", runs=[*runs, skipped], coming=ComingStarts(shared)),
        Drawn("b", coming=ComingStarts(shared)),
    ]
    load = load_of(fleet, view)
    assert load.peak == 4
    assert load.title == "peak: 4 starts in 5 min from 2026-03-28T16:40:00Z"
    assert load_of([], view).title == "no starts"
