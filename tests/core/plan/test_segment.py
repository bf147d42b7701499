"""Which of the periods missed while nothing looked after a job still run, and how the rest is written off."""

from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Catchup, OnOrphan, Overlap
from kron.core.job.window import Window, WindowMode
from kron.core.plan.plan import plan
from kron.core.plan.record import key_of
from kron.core.plan.step import Snapshot
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen, started
from tests.engine_world import SPACE, World, at_once, with_policy
from tests.strategies import law

HOUR = 3_600_000
EVERY_SECOND = Job(identity="world/job", schedule=Schedule("* * * * * *"))
USUAL: Mapping[str, object] = {"deadline": None, "overlap": Overlap.ALLOW}


def world(catchup: Catchup, job: Job = EVERY_MINUTE, **policy: object) -> World:
    """Return a job that was made at noon and a millisecond."""
    made = World(with_policy(job, **{**USUAL, "catchup": catchup, **policy}), 1000 * NOON + 1)
    made.wake()
    return made


# Away from 12:00 to 12:06:30: 12:01 to 12:05 were missed, 12:06 is within the minute of grace.
@pytest.mark.parametrize(
    ("catchup", "expected"),
    [
        pytest.param(Catchup.NONE, ["MISSED catchup_none"] * 5 + ["STARTED due"], id="none"),
        pytest.param(
            Catchup.ONCE, ["MISSED superseded"] * 4 + ["STARTED caught_up", "STARTED due"], id="once"
        ),
        pytest.param(Catchup.ALL, ["STARTED caught_up"] * 5 + ["STARTED due"], id="all"),
        pytest.param(Catchup.SPREAD, ["PENDING spread"] * 5 + ["STARTED due"], id="spread"),
    ],
)
def test_an_outage(catchup: Catchup, expected: list[str]) -> None:
    made = world(catchup)
    made.outage(6 * MINUTE + 30_000)
    assert seen(made) == expected


@pytest.mark.parametrize(
    ("late_ms", "expected"),
    [
        pytest.param(60_000, "STARTED due", id="exactly a minute before the take-over: merely late"),
        pytest.param(60_001, "MISSED catchup_none", id="a millisecond more: missed"),
    ],
)
def test_a_take_over_has_a_minute_of_grace(late_ms: int, expected: str) -> None:
    made = world(Catchup.NONE)
    made.outage(1000 * nth(1) + late_ms - made.now)
    assert seen(made)[0] == expected


@pytest.mark.parametrize(
    ("late_ms", "expected"),
    [
        pytest.param(0, "STARTED due", id="resumed in that very millisecond: due"),
        pytest.param(1, "MISSED catchup_none", id="a millisecond later: missed"),
    ],
)
def test_a_resume_has_no_grace(late_ms: int, expected: str) -> None:
    made = world(Catchup.NONE)
    made.pause()
    made.now = 1000 * nth(1) + late_ms
    made.resume()
    assert seen(made) == [expected]


def test_neither_load_nor_a_hanging_store_makes_a_period_missed() -> None:
    made = world(Catchup.NONE)
    made.oversleep(10 * MINUTE)
    assert seen(made) == ["STARTED due"] * 10


def test_a_pause_leaves_periods_unhandled_until_the_resume() -> None:
    made = world(Catchup.ONCE)
    made.pause()
    made.advance(5 * MINUTE)
    made.oversleep(1)
    assert seen(made) == []
    made.resume()
    assert seen(made) == ["MISSED superseded"] * 4 + ["STARTED caught_up"]


def test_what_is_dropped_together_is_one_counted_record() -> None:
    made = world(Catchup.NONE)
    made.outage(6 * MINUTE + 30_000)
    (dropped,) = made.ranges()
    assert (dropped.first, dropped.last, dropped.periods) == (nth(1), nth(5), 5)
    assert (dropped.outcome, dropped.reason, dropped.epoch) == ("missed", "catchup_none", 1)


def test_a_single_dropped_period_has_its_own_row() -> None:
    made = world(Catchup.NONE)
    made.outage(2 * MINUTE + 30_000)
    assert made.ranges() == []
    run = made.rows()[nth(1)]
    assert (run.status, run.fire_time, run.is_open, run.started_at) == ("MISSED", 1000 * nth(1), 0, None)


@pytest.mark.parametrize("catchup", list(Catchup))
def test_ten_years_down_every_second(catchup: Catchup) -> None:
    made = world(catchup, EVERY_SECOND)
    away = 10 * 365 * 24 * HOUR
    made.outage(away)
    now_s = made.now // 1000
    missed = now_s - 60 - NOON  # 12:00:01 up to 60 s before the take-over, and a millisecond
    kept = {Catchup.NONE: 0, Catchup.ONCE: 1, Catchup.ALL: 1000, Catchup.SPREAD: 1000}[catchup]
    reason = {Catchup.NONE: "catchup_none", Catchup.ONCE: "superseded"}.get(catchup, "catchup_limit")
    (dropped,) = made.ranges()
    assert (dropped.first, dropped.periods, dropped.reason) == (NOON + 1, missed - kept, reason)
    assert dropped.last == NOON + missed - kept
    caught = [run for run in made.rows().values() if run.reason in ("caught_up", "spread")]
    assert sorted(run.nominal_time for run in caught) == [
        NOON + missed - kept + n for n in range(1, kept + 1)
    ]
    assert made.wakes < 20


def test_a_replay_starts_oldest_first_and_at_most_a_hundred_a_wake() -> None:
    made = world(Catchup.ALL)
    before = made.wakes
    made.outage(251 * MINUTE + 30_000)
    assert started(made) == list(range(1, 252))
    # 100, 100, 50, and then what is simply due.
    assert made.wakes - before == 4


def test_a_replay_runs_the_newest_max_catchup() -> None:
    made = world(Catchup.ALL, max_catchup=3)
    made.outage(6 * MINUTE + 30_000)
    assert seen(made) == ["MISSED catchup_limit"] * 2 + ["STARTED caught_up"] * 3 + ["STARTED due"]


def test_a_replay_goes_on_after_a_crash_in_its_middle() -> None:
    made = world(Catchup.ALL, on_orphan=OnOrphan.FAIL)
    made.crash()
    made.now += 251 * MINUTE + 30_000
    made.ownership = at_once(made.store.acquire(SPACE, "world"))
    made.taken_over_at = made.now
    one_wake(made)
    assert len(made.running) == 100
    until = made.job.replay_until
    made.outage(5 * MINUTE)
    assert made.job.replay_until is None
    assert started(made) == list(range(1, 257))
    assert until == nth(250)


def one_wake(made: World) -> None:
    """Do the first chunk of what is to do, and no more."""
    loaded = at_once(made.store.load(made.ownership, until=made.now, limit=10))
    snapshot = Snapshot(loaded.cases, made.taken_over_at, made.ownership.token, made.traits)
    changes, _ = plan(snapshot, made.now)
    at_once(made.store.settle(made.ownership, changes, now=made.now))
    made.carry_out(changes, frozenset())


# --- spread ----------------------------------------------------------------------------------------


def test_spread_places_each_period_in_the_next_minute() -> None:
    made = world(Catchup.SPREAD)
    made.outage(6 * MINUTE + 30_000)
    now = made.now
    assert [made.rows()[nth(k)].fire_time for k in range(1, 6)] == [
        now + k * 60_000 // 6 for k in range(1, 6)
    ]
    made.advance(MINUTE)
    late = [(at, nominal) for at, nominal, _ in made.starts if nominal < nth(6)]
    assert late == [(now + k * 10_000, nth(k)) for k in range(1, 6)]
    assert {made.rows()[nth(k)].key for k in range(1, 6)} == {
        key_of("world/job", nth(k)) for k in range(1, 6)
    }


def test_spread_is_exempt_from_the_deadline() -> None:
    made = world(Catchup.SPREAD, deadline=timedelta(0))
    made.outage(6 * MINUTE + 30_000)
    made.advance(MINUTE)
    assert seen(made)[:5] == ["STARTED spread"] * 5
    assert seen(made)[5] == "MISSED deadline"


def test_a_spread_period_that_is_late_for_its_place_still_runs() -> None:
    made = world(Catchup.SPREAD, deadline=timedelta(0))
    made.outage(6 * MINUTE + 30_000)
    made.oversleep(25_000)
    assert seen(made)[:5] == ["STARTED spread"] * 2 + ["PENDING spread"] * 3


@pytest.mark.parametrize(
    ("catchup", "expected"),
    [
        pytest.param(Catchup.NONE, ["MISSED catchup_none"] * 5, id="none"),
        pytest.param(Catchup.ONCE, ["MISSED superseded"] * 4 + ["STARTED caught_up"], id="once"),
        pytest.param(Catchup.ALL, ["MISSED deadline"] * 3 + ["STARTED caught_up"] * 2, id="all"),
    ],
)
def test_the_deadline_judges_what_catch_up_keeps(catchup: Catchup, expected: list[str]) -> None:
    made = world(catchup, deadline=timedelta(seconds=150))
    made.outage(6 * MINUTE + 30_000)
    assert seen(made)[:5] == expected


def test_nobody_is_caught_up_with_past_a_deadline_of_nothing() -> None:
    made = world(Catchup.ALL, deadline=timedelta(0))
    made.outage(20 * MINUTE + 30_000)
    assert seen(made) == ["MISSED deadline"] * 20
    assert made.starts == []


@law(40)
@given(minutes=st.integers(2, 130), limit=st.integers(1, 120))
def test_spread_starts_are_even_and_in_order(minutes: int, limit: int) -> None:
    made = world(Catchup.SPREAD, max_catchup=limit)
    made.outage(minutes * MINUTE + 30_000)
    since = made.now
    count = min(limit, minutes - 1)
    places = [run.fire_time - since for _, run in sorted(made.rows().items()) if run.reason == "spread"]
    assert places == [k * 60_000 // (count + 1) for k in range(1, count + 1)]
    assert all(0 < place < 60_000 for place in places)
    assert all(a < b for a, b in pairwise(places))


# --- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(WindowMode))
@pytest.mark.parametrize("catchup", [Catchup.NONE, Catchup.ONCE])
def test_a_window_is_missed_by_its_own_fire_time(mode: WindowMode, catchup: Catchup) -> None:
    windowed = Job(
        identity="world/job", schedule=Schedule("* * * * *"), window=Window(mode, timedelta(minutes=3))
    )
    made = world(catchup, windowed)
    made.outage(30 * MINUTE)
    line = made.now - MINUTE
    rows, records = made.rows(), made.records()
    late = [nominal for nominal, record in records.items() if record[0] == "MISSED"]
    assert late
    for run in rows.values():
        if run.status == "MISSED":
            assert run.fire_time < line
        elif run.reason != "caught_up":
            assert run.fire_time >= line
    assert sum(run.reason == "caught_up" for run in rows.values()) == (catchup is Catchup.ONCE)


def test_constraints_leave_once_the_newest_period_that_has_a_time() -> None:
    job = Job.from_dict(
        {
            "identity": "world/job",
            "schedule": "* * * * *",
            "constraints": {"avoid": {"between": ["12:04-12:05"]}},
        }
    )
    made = world(Catchup.ONCE, job)
    made.outage(6 * MINUTE + 30_000)
    assert seen(made) == ["MISSED superseded"] * 2 + [
        "STARTED caught_up",
        "UNSCHEDULABLE no_candidate",
        "UNSCHEDULABLE no_candidate",
        "STARTED due",
    ]


# --- each period once, however time is cut -----------------------------------------------------------


@law(60)
@given(
    catchup=st.sampled_from(Catchup),
    cuts=st.lists(
        st.tuples(st.sampled_from(["sleep", "oversleep", "outage"]), st.integers(0, 400_000)), max_size=8
    ),
    deadline=st.sampled_from([None, timedelta(0), timedelta(seconds=100)]),
)
def test_every_period_of_a_stretch_has_exactly_one_record(
    catchup: Catchup, cuts: list[tuple[str, int]], deadline: timedelta | None
) -> None:
    made = world(catchup, deadline=deadline, max_catchup=4)
    for what, long in cuts:
        {"sleep": made.advance, "oversleep": made.oversleep, "outage": made.outage}[what](long)
    made.oversleep(0)
    listed = list(range(NOON + 60, made.now // 1000 + 1, 60))
    assert sorted(made.records()) == listed
    assert len(made.rows()) + sum(shared.periods for shared in made.ranges()) == len(listed)
    assert len({nominal for _, nominal, _ in made.starts}) == len(made.starts)


@law(40)
@given(wakes=st.lists(st.integers(1, 200_000), max_size=12), catchup=st.sampled_from(Catchup))
def test_more_wakes_change_nothing_where_nothing_overlaps(wakes: list[int], catchup: Catchup) -> None:
    """Without a deadline and with overlaps allowed, when the engine looks does not matter."""
    often, seldom = world(catchup), world(catchup)
    for nap in wakes:
        often.oversleep(nap)
    seldom.oversleep(sum(wakes))
    assert often.records() == seldom.records()
