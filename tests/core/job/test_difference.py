"""A difference: what moves, appears, vanishes and newly shares a minute, and nothing else."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.decision import starts_between
from kron.core.job.difference import ChangeKind, Difference, JobChange, ShiftKind, difference_of
from kron.core.job.job import Job
from kron.core.time.instant import DAY, rfc3339
from tests.strategies import law

MONDAY = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
WEEK = (MONDAY, MONDAY + 7 * DAY)
HOUR = 3600


def job(identity: str = "a", schedule: str = "0 2 * * *", **fields: object) -> Job:
    return Job.from_dict({"identity": identity, "schedule": schedule, **fields})


def window(duration: str, mode: str = "after") -> dict[str, str]:
    return {"mode": mode, "duration": duration}


def week(old: list[Job], new: list[Job]) -> Difference:
    return difference_of(old, new, *WEEK)


def only_change(old: Job, new: Job) -> JobChange:
    (change,) = week([old], [new]).changes
    return change


def fates(change: JobChange) -> dict[str, int]:
    """Return how many starts stay, move, appear and vanish, those that do."""
    return {"stay": change.stay} | Counter(shift.kind.value for shift in change.shifts)


# --- jobs ---


def test_the_same_jobs_in_another_order_and_another_spelling_are_the_same() -> None:
    one, other = job("a", window=window("90m")), job("b")
    again = job("a", window=window("PT1H30M"), timezone="UTC")
    found = week([one, other], [other, again])
    assert (found.changes, found.unchanged, found.collisions, found.shifts) == ((), 2, (), [])


def test_an_added_jobs_starts_appear_and_a_removed_jobs_vanish() -> None:
    found = week([job("a")], [job("b", "0 3 * * *")])
    assert [(change.kind, change.identity, fates(change)) for change in found.changes] == [
        (ChangeKind.ADDED, "b", {"stay": 0, "appears": 7}),
        (ChangeKind.REMOVED, "a", {"stay": 0, "vanishes": 7}),
    ]


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        pytest.param({}, {"window": window("1h")}, [("window.duration", "0s", "1h")], id="one"),
        pytest.param(
            {"window": window("1h")},
            {"window": window("2h", "before")},
            [("window.mode", "after", "before"), ("window.duration", "1h", "2h")],
            id="two",
        ),
        pytest.param(
            {"constraints": {"only": {"hours": [2]}}},
            {"constraints": {"avoid": {"hours": [3]}}},
            [("constraints.only.hours", [2], None), ("constraints.avoid.hours", None, [3])],
            id="present on one side only",
        ),
        pytest.param(
            {},
            {"distribution": {"name": "skewLate", "shape": 3}},
            [("distribution.name", "uniform", "skewLate"), ("distribution.shape", None, 3.0)],
            id="with a parameter of its own",
        ),
        pytest.param({}, {"policy": {"deadline": "5m"}}, [("policy.deadline", "0s", "5m")], id="policy"),
        pytest.param({}, {"seed": {"salt": "x"}}, [("seed.salt", "", "x")], id="salt"),
    ],
)
def test_a_changed_job_names_its_fields(
    old: Mapping[str, object], new: Mapping[str, object], fields: list[tuple[str, object, object]]
) -> None:
    base = {"identity": "a", "schedule": "0 2 * * *"}
    change = only_change(Job.from_dict({**base, **old}), Job.from_dict({**base, **new}))
    assert change.kind is ChangeKind.CHANGED
    assert list(change.fields) == fields


def test_a_job_whose_identity_alone_differs_is_renamed_and_chosen_anew() -> None:
    change = only_change(job("a", window=window("1h")), job("b", window=window("1h")))
    assert change.kind is ChangeKind.RENAMED
    assert (change.old and change.old.identity, change.identity) == ("a", "b")
    assert fates(change) == {"stay": 0, "moves": 7}


def test_a_renamed_job_without_a_window_starts_where_it_did() -> None:
    assert fates(only_change(job("a"), job("b"))) == {"stay": 7}


def test_alike_jobs_are_renamed_in_order_when_as_many_came_as_went() -> None:
    found = week([job("a"), job("b")], [job("x"), job("y")])
    assert [(change.old and change.old.identity, change.identity) for change in found.changes] == [
        ("a", "x"),
        ("b", "y"),
    ]


def test_alike_jobs_are_not_guessed_at_when_their_numbers_differ() -> None:
    found = week([job("a")], [job("x"), job("y")])
    assert [change.kind for change in found.changes] == [
        ChangeKind.ADDED,
        ChangeKind.ADDED,
        ChangeKind.REMOVED,
    ]


# --- starts ---


@pytest.mark.parametrize(
    ("schedules", "expected"),
    [
        pytest.param(("0 2 * * *", "0 3 * * *"), {"stay": 0, "moves": 7}, id="an hour later"),
        pytest.param(("0 * * * *", "30 * * * *"), {"stay": 0, "moves": 168}, id="half an hour later"),
        pytest.param(("0 2 * * *", "0 2,14 * * *"), {"stay": 7, "appears": 7}, id="one more a day"),
        pytest.param(("0 2,14 * * *", "0 2 * * *"), {"stay": 7, "vanishes": 7}, id="one less a day"),
        pytest.param(("0 2 * * 1", "0 2 * * 2"), {"stay": 0, "vanishes": 1, "appears": 1}, id="another day"),
        pytest.param(
            ("0 2 * * *", "0 5,6 * * 1-5"),
            {"stay": 0, "vanishes": 7, "appears": 10},
            id="another number a day",
        ),
        pytest.param(("0 2 * * *", "@daily"), {"stay": 0, "moves": 7}, id="a macro"),
        pytest.param(("0 0 * * *", "@daily"), {"stay": 7}, id="the same times in other words"),
    ],
)
def test_a_changed_schedule(schedules: tuple[str, str], expected: dict[str, int]) -> None:
    old, new = schedules
    assert fates(only_change(job(schedule=old), job(schedule=new))) == expected


def test_a_start_moves_from_where_it_was_to_where_it_is_by_the_difference() -> None:
    (first, *_) = only_change(job(schedule="0 2 * * *"), job(schedule="30 1 * * *")).shifts
    assert (first.kind, first.old_at, first.new_at) == (ShiftKind.MOVES, MONDAY + 7200, MONDAY + 5400)
    assert first.seconds == -1800


def test_a_changed_zone_moves_the_starts_of_the_same_local_day() -> None:
    change = only_change(job(timezone="UTC"), job(timezone="America/New_York"))
    # The clocks in New York go forward at 02:00 on Sunday: that day has no 02:00.
    assert fates(change) == {"stay": 0, "moves": 6, "vanishes": 1}
    assert {shift.seconds for shift in change.shifts} == {5 * HOUR, None}


def test_days_are_those_of_the_jobs_own_zone() -> None:
    early, late = (job(schedule=text, timezone="Asia/Tokyo") for text in ("0 5 * * *", "30 22 * * *"))
    moves = {shift.seconds for shift in only_change(early, late).shifts if shift.kind is ShiftKind.MOVES}
    assert moves == {17 * HOUR + 1800}


def test_a_start_that_moves_far_out_of_the_interval_still_moves() -> None:
    change = only_change(job(window=window("1h")), job(window=window("20d")))
    moved = [shift.seconds or 0 for shift in change.shifts if shift.kind is ShiftKind.MOVES]
    assert "vanishes" not in fates(change)
    assert max(moved) > 7 * DAY


def test_a_suspended_jobs_starts_vanish_and_a_resumed_ones_appear() -> None:
    awake, asleep = job(), job(policy={"suspend": True})
    assert fates(only_change(awake, asleep)) == {"stay": 0, "vanishes": 7}
    assert fates(only_change(asleep, awake)) == {"stay": 0, "appears": 7}


def test_a_change_of_policy_leaves_every_start_where_it_is() -> None:
    one = job(window=window("1h"))
    other = job(window=window("1h"), policy={"deadline": "1h", "concurrency": "allow"})
    assert fates(only_change(one, other)) == {"stay": 7}


def test_starts_that_vanish_for_want_of_an_allowed_time_are_counted() -> None:
    change = only_change(job(), job(constraints={"avoid": {"dow": ["sat", "sun"]}}))
    assert fates(change) == {"stay": 5, "vanishes": 2}
    assert change.unschedulable == 2


def test_a_start_that_leaves_over_the_end_moves_and_one_that_leaves_over_the_start_vanishes() -> None:
    noon = MONDAY + 12 * HOUR
    later = difference_of([job(schedule="0 11 * * *")], [job(schedule="0 13 * * *")], MONDAY, noon)
    (shift,) = later.shifts
    assert (shift.kind, shift.new_at) == (ShiftKind.MOVES, noon + HOUR)
    earlier = difference_of([job(schedule="0 13 * * *")], [job(schedule="0 11 * * *")], noon, noon + DAY // 2)
    assert [(shift.kind, shift.old_at) for shift in earlier.shifts] == [(ShiftKind.VANISHES, noon + HOUR)]


FIELDS: list[dict[str, object]] = [
    {},
    {"window": window("50m")},
    {"window": window("26h", "around")},
    {"window": window("3h", "before"), "constraints": {"avoid": {"hours": [1]}}},
    {"timezone": "Asia/Tokyo"},
    {"policy": {"suspend": True}},
]
SCHEDULES = ["0 2 * * *", "0 * * * *", "30 */6 * * *", "0 3 * * 1,4"]


@st.composite
def fleets(draw: st.DrawFn) -> list[Job]:
    names = draw(st.lists(st.sampled_from("abcd"), unique=True))
    return [
        Job.from_dict(
            {"identity": name, "schedule": draw(st.sampled_from(SCHEDULES)), **draw(st.sampled_from(FIELDS))}
        )
        for name in names
    ]


def starts_of(jobs: list[Job], start: int, end: int) -> Counter[int]:
    return Counter(
        chosen
        for one in jobs
        if not one.policy.suspend
        for _, chosen in starts_between(one, start, end)
        if chosen is not None
    )


@law(150)
@given(old=fleets(), new=fleets(), start=st.integers(0, DAY), length=st.integers(1, 3 * DAY))
def test_the_old_starts_with_the_shifts_applied_are_the_new_starts(
    old: list[Job], new: list[Job], start: int, length: int
) -> None:
    begin, end = MONDAY + start, MONDAY + start + length
    found = difference_of(old, new, begin, end)
    starts = starts_of(old, begin, end)
    starts.subtract(shift.old_at for shift in found.shifts if shift.old_at is not None and shift.old_at < end)
    starts.update(shift.new_at for shift in found.shifts if shift.new_at is not None and shift.new_at < end)
    assert +starts == starts_of(new, begin, end)
    assert not -starts


# --- edits ---


def test_an_edit_moves_no_period_that_has_begun() -> None:
    """At 10:05 the period of 10:00 is waiting in its window, and keeps its decision."""
    at, end = MONDAY + 10 * HOUR + 300, MONDAY + 14 * HOUR
    one, other = (job(schedule="0 * * * *", window=window(length)) for length in ("50m", "100m"))
    (change,) = difference_of([one], [other], at, end, edited_at=at).changes
    starts = dict(starts_between(one, MONDAY, end))
    assert starts[MONDAY + 10 * HOUR] is not None
    assert starts[MONDAY + 10 * HOUR] not in [shift.old_at for shift in change.shifts]
    assert [shift.kind for shift in change.shifts] == [ShiftKind.MOVES] * 3
    assert change.stay == 1


def test_a_suspend_keeps_no_start_and_a_new_job_has_no_period_before_it() -> None:
    at, end = MONDAY + 10 * HOUR + 300, MONDAY + 14 * HOUR
    one = job(schedule="0 * * * *", window=window("50m"))
    idle = job(schedule="0 * * * *", window=window("50m"), policy={"suspend": True})
    for after, kind, number in (([idle], ShiftKind.VANISHES, 4), ([], ShiftKind.VANISHES, 4)):
        found = difference_of([one], after, at, end, edited_at=at)
        assert [shift.kind for shift in found.shifts] == [kind] * number
    created = difference_of([], [one], at, end, edited_at=at)
    assert [shift.kind for shift in created.shifts] == [ShiftKind.APPEARS] * 3


@law(100)
@given(old=fleets(), new=fleets(), at=st.integers(0, DAY), length=st.integers(1, 2 * DAY))
def test_after_an_edit_periods_up_to_it_or_to_one_that_has_started_keep_their_starts(
    old: list[Job], new: list[Job], at: int, length: int
) -> None:
    edited_at = MONDAY + at
    end, olds = edited_at + length, {one.identity: one for one in old}

    def kept(one: Job) -> dict[int, int | None]:
        before = olds.get(one.identity)
        if before is None or before.policy.suspend or one.policy.suspend:
            return {}
        known = dict(starts_between(before, MONDAY - 3 * DAY, end + 3 * DAY))
        begun = [time for time, chosen in known.items() if chosen is not None and chosen <= edited_at]
        until = max([edited_at, *begun])
        return {time: chosen for time, chosen in known.items() if time <= until} | {until: known.get(until)}

    expected = Counter[int]()
    for one in new:
        own = kept(one)
        later = {} if one.policy.suspend else dict(starts_between(one, MONDAY - 3 * DAY, end + 3 * DAY))
        until = max(own, default=edited_at)
        starts = own | {time: chosen for time, chosen in later.items() if time > until}
        expected.update(chosen for chosen in starts.values() if chosen and edited_at <= chosen < end)
    changed = difference_of(old, new, edited_at, end, edited_at=edited_at).shifts
    starts_now = starts_of(old, edited_at, end)
    starts_now.subtract(shift.old_at for shift in changed if shift.old_at is not None and shift.old_at < end)
    starts_now.update(shift.new_at for shift in changed if shift.new_at is not None and shift.new_at < end)
    assert +starts_now == expected


# --- collisions ---


@law(150)
@given(old=fleets(), new=fleets(), length=st.integers(1, 2 * DAY))
def test_collisions_are_the_minutes_that_gained_and_hold_more_than_one(
    old: list[Job], new: list[Job], length: int
) -> None:
    end = MONDAY + length
    before, after = Counter[int](), Counter[int]()
    for jobs, minutes in ((old, before), (new, after)):
        for at, count in starts_of(jobs, MONDAY, end).items():
            minutes[at // 60 * 60] += count
    expected = {
        (minute, before[minute], count) for minute, count in after.items() if count > max(before[minute], 1)
    }
    found = difference_of(old, new, MONDAY, end).collisions
    assert {(one.minute_at, one.before, len(one.identities)) for one in found} == expected


def test_a_collision_names_the_jobs_and_the_fullest_comes_first() -> None:
    old = [job("a", "0 2 * * *"), job("b", "0 5 * * *"), job("c", "0 6 * * 4"), job("d", "10 6 * * *")]
    new = [job("a", "0 2 * * *"), job("b", "0 2 * * *"), job("c", "0 2 * * 4"), job("d", "10 6 * * *")]
    thursday, monday, *rest = week(old, new).collisions
    assert (rfc3339(thursday.minute_at), thursday.before, thursday.identities) == (
        "2026-03-05T02:00:00Z",
        1,
        ("a", "b", "c"),
    )
    assert (rfc3339(monday.minute_at), monday.identities) == ("2026-03-02T02:00:00Z", ("a", "b"))
    assert (thursday.newcomers, monday.newcomers) == (("b", "c"), ("b",))
    assert len(rest) == 5


def test_a_minute_that_was_shared_before_is_no_new_collision() -> None:
    fleet = [job("a"), job("b")]
    moved = job("c", "0 4 * * *")
    assert week([*fleet, job("c", "0 3 * * *")], [*fleet, moved]).collisions == ()


def test_jobs_that_change_places_make_no_collision() -> None:
    fleet = [job("c", "0 2,3 * * *"), job("d", "0 2,3 * * *")]
    old = [*fleet, job("a", "0 2 * * *"), job("b", "0 3 * * *", policy={"deadline": "1h"})]
    new = [*fleet, job("a", "0 3 * * *"), job("b", "0 2 * * *", policy={"deadline": "1h"})]
    found = week(old, new)
    assert len(found.shifts) == 14
    assert found.collisions == ()


def test_a_start_that_moves_within_its_minute_is_no_newcomer() -> None:
    old = [job("a", "10 0 2 * * *"), job("b", "0 3 * * *")]
    new = [job("a", "50 0 2 * * *"), job("b", "0 2 * * *")]
    first, *_ = week(old, new).collisions
    assert (first.identities, first.newcomers) == (("a", "b"), ("b",))
