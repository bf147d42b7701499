"""Counting without listing gives what listing gives, and ten years of seconds cost nothing."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.count import count_between, smallest_gap
from kron.core.cron.schedule import Schedule
from tests.strategies import law, seconds, strict_expressions

DAY = 86_400


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def listed(schedule: Schedule, start: int, end: int) -> int:
    first, last = (datetime.fromtimestamp(second, UTC) for second in (start, end))
    return sum(1 for _ in schedule.between(first, last))


@pytest.mark.parametrize(
    ("schedule", "start", "end", "expected"),
    [
        pytest.param(Schedule("* * * * *"), "2026-01-01", "2026-01-01", 0, id="nothing lies in nothing"),
        pytest.param(Schedule("* * * * *"), "2026-01-02", "2026-01-01", 0, id="an end before its start"),
        pytest.param(
            Schedule("* * * * * *"), "2016-01-01", "2026-01-01", 315_619_200, id="ten years of seconds"
        ),
        pytest.param(Schedule("0 0 29 2 *"), "2000-01-01", "2101-01-01", 25, id="leap days; 2100 has none"),
        pytest.param(Schedule("0 12 * * 1-5"), "2026-06-01", "2026-07-01", 22, id="working days of a month"),
        pytest.param(
            Schedule("30 2 * * *", "Europe/Berlin"), "2026-03-01", "2026-04-01", 30, id="a skipped wall time"
        ),
        pytest.param(
            Schedule("30 2 * * *", "Europe/Berlin", dst_gap="next"),
            "2026-03-01",
            "2026-04-01",
            31,
            id="moved on",
        ),
        pytest.param(
            Schedule("30 2 * * *", "Europe/Berlin"), "2026-10-01", "2026-11-01", 32, id="a repeated wall time"
        ),
        pytest.param(
            Schedule("30 2 * * *", "Europe/Berlin", dst_repeat="last"),
            "2026-10-01",
            "2026-11-01",
            31,
            id="one of two kept",
        ),
        pytest.param(
            Schedule("*/15 2 * * *", "Europe/Berlin", dst_gap="next"),
            "2026-03-29",
            "2026-03-30",
            1,
            id="a whole gap is one occurrence",
        ),
    ],
)
def test_occurrences_are_counted(schedule: Schedule, start: str, end: str, expected: int) -> None:
    assert count_between(schedule.plan, at(start), at(end)) == expected


def test_the_start_counts_and_the_end_does_not() -> None:
    plan, noon = Schedule("0 12 * * *").plan, at("2026-01-01T12:00")
    assert count_between(plan, noon, noon + 1) == 1
    assert count_between(plan, noon - 1, noon) == 0
    assert count_between(plan, noon + 1, noon + DAY) == 0
    assert count_between(plan, noon + 1, noon + DAY + 1) == 1


@law(150)
@given(
    text=strict_expressions(),
    zone=st.sampled_from(
        [
            "UTC",
            "Europe/Berlin",
            "America/St_Johns",
            "Australia/Lord_Howe",
            "Asia/Kathmandu",
            "Africa/Casablanca",
        ]
    ),
    gap=st.sampled_from(["skip", "next"]),
    repeat=st.sampled_from(["both", "first", "last"]),
    start=seconds(1970, 2040),
    days=st.integers(0, 40),
    rest=st.integers(0, DAY),
)
def test_counting_is_listing(
    text: str, zone: str, gap: str, repeat: str, start: int, days: int, rest: int
) -> None:
    schedule = Schedule(text, zone, dst_gap=gap, dst_repeat=repeat)
    end = start + days * DAY + rest
    assert count_between(schedule.plan, start, end) == listed(schedule, start, end)


@law(60)
@given(
    second=st.integers(-7_300, 7_300),
    length=st.integers(0, 9_000),
    texts=st.sampled_from(["0 */7 * * * *", "*/13 1-3 * * *"]),
)
def test_counting_is_listing_where_clocks_change(second: int, length: int, texts: str) -> None:
    for change in ("2026-03-29T01:00", "2026-10-25T01:00"):
        for options in (("skip", "both"), ("next", "first"), ("next", "last")):
            schedule = Schedule(texts, "Europe/Berlin", dst_gap=options[0], dst_repeat=options[1])
            start = at(change) + second
            assert count_between(schedule.plan, start, start + length) == listed(
                schedule, start, start + length
            )


@law(50)
@given(
    text=strict_expressions(), start=seconds(1990, 2030), parts=st.lists(st.integers(0, 10 * DAY), max_size=5)
)
def test_a_stretch_counts_as_much_as_its_parts(text: str, start: int, parts: list[int]) -> None:
    plan, total, since = Schedule(text, "Europe/Berlin").plan, 0, start
    for part in parts:
        total += count_between(plan, since, since + part)
        since += part
    assert total == count_between(plan, start, since)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("* * * * *", 60, id="every minute"),
        pytest.param("*/7 * * * *", 240, id="over the hour"),
        pytest.param("*/5 * * * * *", 5, id="seconds"),
        pytest.param("0 9 * * *", 86_400, id="from day to day"),
        pytest.param("0,59 0,23 * * *", 60, id="over midnight"),
        pytest.param("0,59 0,23 1 * *", 3540, id="not over midnight, days are alone"),
        pytest.param("0,59 0,23 31,1 12,1 *", 60, id="over the new year"),
        pytest.param("0 0 29 2 *", None, id="years apart"),
        pytest.param("0 0 * * 1", None, id="weeks apart"),
    ],
)
def test_the_smallest_gap(text: str, expected: int | None) -> None:
    assert smallest_gap(Schedule(text).expression) == expected


@law(60)
@given(text=strict_expressions(), start=seconds())
def test_no_two_occurrences_in_utc_are_closer_than_the_smallest_gap(text: str, start: int) -> None:
    schedule = Schedule(text)
    gap = smallest_gap(schedule.expression) or 86_401
    first = schedule.plan.next_after(start)
    following = None if first is None else schedule.plan.next_after(first)
    if first is not None and following is not None:
        assert following - first >= gap
