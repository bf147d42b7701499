"""The timeline of many schedules: a lane for each tag, the worst first, drawn from counts."""

from collections import Counter

from kron.core.plan.query import TagCount
from kron.core.plan.record import RunStatus
from kron.fronts.service.web.tag_lanes import CountedFleet, timeline_by_tag
from kron.fronts.service.web.timeline import HOUR, MAX_LANES, NO_TAG, Zoom, view_of
from tests.service.web.test_timeline import NOW

VIEW = view_of(Zoom.DAY, NOW, NOW)


def counted(part: int, tag: str | None, status: RunStatus, runs: int, started: int = 0) -> TagCount:
    return TagCount(part, tag, status, False, runs, started, "name")


def test_many_schedules_are_grouped_by_tag_and_many_tags_share_the_last_lane() -> None:
    tags: dict[str | None, int] = {f"team{number}": 250 for number in range(40)}
    tags |= {"payments": 1, None: 1}
    coming: dict[str | None, Counter[int]] = {tag: Counter({200: 250}) for tag in tags if tag != "payments"}
    failed = [counted(5, "payments", RunStatus.FAILED, 1, 1)]
    picture = timeline_by_tag(CountedFleet(tags, failed, coming, {}), VIEW, Zoom.DAY)
    assert picture.is_grouped
    assert len(picture.lanes) == MAX_LANES
    assert (picture.lanes[0].tag, picture.lanes[0].schedules) == ("payments", 1)
    assert (picture.lanes[-1].label, picture.lanes[-1].is_rest) == ("19 more tags", True)
    assert sum(lane.schedules for lane in picture.lanes) == 10_002
    assert NO_TAG in [lane.tag for lane in picture.lanes]
    assert picture.load.peak == 41 * 250
    size = sum(len(crowd.path) for lane in picture.lanes for crowd in lane.crowds)
    assert size < 100_000


def test_a_column_has_its_worst_outcome_and_the_words_count_every_run() -> None:
    counts = [
        counted(7, "a", RunStatus.SUCCESS, 90, 90),
        counted(7, "a", RunStatus.MISSED, 2),
        counted(8, "a", RunStatus.SUCCESS, 10, 10),
        counted(7, "b", RunStatus.SKIPPED, 5),
    ]
    picture = timeline_by_tag(
        CountedFleet({"b": 3, "a": 3}, counts, {"a": Counter({200: 4})}, {}), VIEW, Zoom.DAY
    )
    assert [(lane.tag, lane.summary, lane.look) for lane in picture.lanes] == [
        ("a", "2 missed, 100 success, 4 upcoming", "miss"),
        ("b", "5 skipped", "skip"),
    ]
    crowds = {crowd.look: crowd for crowd in picture.lanes[0].crowds}
    assert {look: crowd.path for look, crowd in crowds.items()} == {
        "next": "M200 0h1v1h-1z", "ok": "M8 0h1v1h-1z", "miss": "M7 0h1v0.2h-1zM7 0.8h1v0.2h-1z",
    }  # fmt: skip
    assert crowds["ok"].title == "100 success"
    assert picture.load.peak == 90


def test_where_only_problems_are_counted_the_load_is_that_of_all_runs() -> None:
    counts = [counted(7, "a", RunStatus.SKIPPED, 5), counted(7, "a", RunStatus.FAILED, 2, 2)]
    dropped = TagCount(8, "a", RunStatus.MISSED, True, 1_000, 0, "name")
    picture = timeline_by_tag(
        CountedFleet({"a": 3}, [*counts, dropped], {}, {}, {7: 100, 8: 10}), VIEW, Zoom.DAY
    )
    assert picture.load.peak == 95
    assert picture.lanes[0].summary == "2 failed, 1,000 missed, 5 skipped"


def test_running_executions_of_a_lane_are_one_bar_from_the_first_start_to_now() -> None:
    running: dict[str | None, list[int]] = {"a": [NOW - 2 * HOUR, NOW - HOUR]}
    (lane,) = timeline_by_tag(CountedFleet({"a": 3}, [], {}, running), VIEW, Zoom.DAY).lanes
    ((x, width, look, title),) = lane.stretches
    assert (round(x + width), look, title) == (50, "run", "2 running, the first for 2 h")
