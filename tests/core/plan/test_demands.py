"""The policies of SPEC 4 as the engine follows them, and changes of a definition."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kron
from kron.core.job.job import Job
from kron.core.job.policy import POLICY, Catchup, Overlap
from kron.core.job.verdict import judge
from kron.core.plan.report import RunEvent
from kron.testing import SimulatedClock
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen, started
from tests.engine_world import SPACE, World, at_once, with_policy
from tests.strategies import law

START = 1000 * NOON + 1


def world_of(job: Job) -> World:
    world = World(job, START)
    world.wake()
    return world


# --- suspend ---------------------------------------------------------------------------------------


def test_while_suspended_nothing_starts_and_no_period_is_handled() -> None:
    suspended = with_policy(EVERY_MINUTE, suspend=True, catchup=Catchup.ALL, deadline=None)
    world = world_of(suspended)
    cursor = world.job.cursor
    for _ in range(5):
        world.advance(MINUTE)
        world.wake()
        assert (started(world), world.records(), world.job.cursor) == ([], {}, cursor)
        assert at_once(world.store.ranges(SPACE, world.identity)) == []
    world.edit(with_policy(suspended, suspend=False))
    world.wake()
    assert started(world)[0] == 1, "none of the periods was handled, so all are judged now"


@pytest.mark.parametrize("end", [RunEvent.SUCCESS, RunEvent.FAILED], ids=["a success", "a failure"])
def test_the_end_of_a_run_plans_no_period_of_a_suspended_job(end: RunEvent) -> None:
    policy = {"catchup": Catchup.ALL, "deadline": None, "retry_delay": timedelta(seconds=20)}
    active = with_policy(EVERY_MINUTE, **policy)
    world = world_of(active)
    world.advance(MINUTE)
    world.edit(with_policy(active, suspend=True))
    world.advance(3 * MINUTE)
    cursor = world.job.cursor
    world.end_period(nth(1), end)
    world.advance(2 * MINUTE)
    assert (started(world), len(world.records()), world.job.cursor) == ([1], 1, cursor)
    assert world.wake_at is None, "what is due is held, so nothing wakes for it"


# --- deadline --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deadline_s", "late_ms", "expected"),
    [
        pytest.param(0, 0, "STARTED due", id="none, at the time"),
        pytest.param(0, 999, "STARTED due", id="none, within the second"),
        pytest.param(0, 1_000, "MISSED deadline", id="none, in the next second"),
        pytest.param(10, 0, "STARTED due", id="10 s, at the time"),
        pytest.param(10, 10_000, "STARTED due", id="10 s, at its end"),
        pytest.param(10, 11_000, "MISSED deadline", id="10 s, past its end"),
    ],
)
def test_a_deadline_decides_whether_a_late_period_starts_or_is_missed(
    deadline_s: int, late_ms: int, expected: str
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, deadline=timedelta(seconds=deadline_s)))
    world.oversleep(1000 * nth(1) - START + late_ms)
    assert seen(world) == [expected]
    assert started(world) == ([1] if expected.startswith("STARTED") else [])


# --- the order of judging --------------------------------------------------------------------------

NEVER_POSSIBLE = {"only": {"hours": [3]}}


def impossible(**policy: Any) -> Job:
    """Return a job that has no time in its window, with a policy."""
    return with_policy(Job.from_dict({**EVERY_MINUTE.to_dict(), "constraints": NEVER_POSSIBLE}), **policy)


def test_a_suspended_job_is_not_even_unschedulable() -> None:
    world = world_of(impossible(suspend=True))
    world.advance(2 * MINUTE)
    assert seen(world) == []


def test_a_period_without_a_possible_time_is_unschedulable_before_it_is_late() -> None:
    world = world_of(impossible(deadline=timedelta(0)))
    world.oversleep(1000 * nth(1) - START + 30_000)
    assert seen(world) == ["UNSCHEDULABLE no_candidate"]


def test_catch_up_drops_a_period_before_the_deadline_does() -> None:
    world = world_of(with_policy(EVERY_MINUTE, catchup=Catchup.NONE, deadline=timedelta(0)))
    world.outage(1000 * nth(1) - START + 2 * MINUTE - 1)
    # The first is too old for catch-up; the second, within the grace of a take-over, only for its deadline.
    assert seen(world) == ["MISSED catchup_none", "MISSED deadline"]


def test_a_late_period_is_missed_before_an_active_execution_skips_it() -> None:
    world = world_of(with_policy(EVERY_MINUTE, overlap=Overlap.SKIP, deadline=timedelta(seconds=10)))
    world.advance(MINUTE)
    world.oversleep(MINUTE + 30_000)
    assert seen(world) == ["STARTED due", "MISSED deadline"]


# --- concurrency -----------------------------------------------------------------------------------


def test_the_policy_counts_what_is_active_at_the_start_not_at_the_nominal_time() -> None:
    window = {"window": {"mode": "after", "duration": "50s"}}
    job = Job.from_dict({**EVERY_MINUTE.to_dict(), **window})
    assert 1000 * nth(2) < 1000 * _chosen(job, nth(2)) < START + 3 * MINUTE
    world = world_of(with_policy(job, overlap=Overlap.SKIP))
    world.advance(2 * MINUTE)
    # The first execution is active at the chosen time of the second period; at that of the third it is over.
    assert seen(world)[:2] == ["STARTED due", "SKIPPED active"]
    world.end_period(NOON)
    world.advance(MINUTE - 2)
    assert seen(world)[2] == "STARTED due"


def _chosen(job: Job, nominal_time: int) -> int:
    chosen = kron.decide(job, _instant(nominal_time)).to_dict()["chosen_time"]
    return int(datetime.fromisoformat(str(chosen)).timestamp())


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def test_the_executions_of_other_jobs_do_not_count() -> None:
    clock = SimulatedClock(_instant(NOON + 1))
    runner = kron.Runner("memory://", clock=clock)
    begun: Counter[str] = Counter()
    go = asyncio.Event()

    async def hang(run: Any) -> None:
        begun[run.job] += 1
        await go.wait()

    async def at_once_over(run: Any) -> None:
        begun[run.job] += 1

    for name, function in (("hangs", hang), ("short", at_once_over)):
        runner.add(replace(EVERY_MINUTE, identity=name), function)
    async with runner:
        await clock.advance_to(_instant(nth(3) + 1))
        go.set()
    assert begun == {"hangs": 1, "short": 3}


@pytest.mark.parametrize(
    ("overlap", "expected", "starts"),
    [
        (Overlap.ALLOW, ["STARTED due", "STARTED due", "STARTED due"], [1, 2, 3]),
        (Overlap.SKIP, ["STARTED due", "SKIPPED active", "SKIPPED active"], [1]),
    ],
)
def test_an_active_execution_holds_up_the_next_period_only_under_forbid(
    overlap: Overlap, expected: list[str], starts: list[int]
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, overlap=overlap))
    world.advance(3 * MINUTE)
    assert (seen(world), started(world)) == (expected, starts)


# --- now -------------------------------------------------------------------------------------------

CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "now", "utcnow", "today", "localtime", "gmtime"}


@contextmanager
def calls_of_c() -> Iterator[set[str]]:
    """Collect the names of the built-in functions that are called."""
    names: set[str] = set()

    def profile(_frame: object, event: str, argument: Any) -> None:
        if event == "c_call":
            names.add(argument.__name__)

    sys.setprofile(profile)
    try:
        yield names
    finally:
        sys.setprofile(None)


def test_neither_a_decision_nor_a_verdict_reads_a_clock() -> None:
    job = Job.from_dict({"identity": "new", "schedule": "7 * * * *", "window": {"duration": "9m"}})
    with calls_of_c() as called:
        decision = kron.decide(job, _instant(NOON + 420))
        judge(decision, job.policy, active=False, now=_instant(NOON + 1_000))
    assert "sha256" in called or "openssl_sha256" in called, "built-in functions are seen"
    assert not called & CLOCKS


@pytest.mark.parametrize("era", [datetime(1975, 3, 1, tzinfo=UTC), datetime(2150, 3, 1, tzinfo=UTC)])
def test_the_given_instant_is_taken_as_true_whatever_the_host_shows(era: datetime) -> None:
    now = 1000 * int(era.timestamp())
    world = World(with_policy(EVERY_MINUTE, deadline=timedelta(seconds=10)), now + 1)
    world.wake()
    world.advance(MINUTE)
    world.end_period(now // 1000 + 60)
    world.oversleep(MINUTE + 30_000)
    assert seen(world) == ["SUCCESS due", "MISSED deadline"]
    assert [at for at, _, _ in world.starts] == [now + MINUTE]


@pytest.mark.parametrize("jitter_ms", [0, 1, 999])
@pytest.mark.parametrize("since_ms", [0, 1, 999])
def test_milliseconds_change_no_decision(jitter_ms: int, since_ms: int) -> None:
    job = Job.from_dict({**EVERY_MINUTE.to_dict(), "window": {"mode": "after", "duration": "40s"}})
    expected = kron.decide(job, _instant(nth(3))).to_dict()
    job = with_policy(job, jitter_ms=jitter_ms, deadline=timedelta(seconds=5))
    assert kron.decide(job, _instant(nth(3))).to_dict() == expected
    world = World(job, START + since_ms)
    world.wake()
    world.advance(4 * MINUTE)
    assert abs(world.rows()[nth(3)].fire_time - 1000 * _chosen(job, nth(3))) <= jitter_ms


# --- histories -------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["advance", "oversleep", "outage"]), st.integers(1, 4 * MINUTE)),
        st.tuples(st.sampled_from(["pause", "resume", "edit", "die", "fail", "end"]), st.integers(0, 2)),
    ),
    min_size=1,
    max_size=12,
)
OVERLAPS = (Overlap.SKIP, Overlap.ALLOW, Overlap.QUEUE)


def _step(world: World, name: str, number: int) -> None:
    match name:
        case "advance" | "oversleep" | "outage":
            getattr(world, name)(number)
        case "pause":
            world.pause()
        case "resume" if world.job.paused:
            world.resume()
        case "edit":
            world.edit(with_policy(EVERY_MINUTE, overlap=OVERLAPS[number]))
        case "die":
            world.crash()
            world.take_over_and_die()
            world.take_over()
        case "fail" | "end" if world.running:
            key = sorted(world.running)[number % len(world.running)]
            world.end(key, RunEvent.FAILED if name == "fail" else RunEvent.SUCCESS)


@law(60)
@given(steps=STEPS, overlap=st.sampled_from(OVERLAPS), catchup=st.sampled_from(Catchup))
def test_in_every_history_a_period_is_executed_at_most_once_and_keeps_its_outcome(
    steps: list[tuple[str, int]], overlap: Overlap, catchup: Catchup
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, overlap=overlap, catchup=catchup, deadline=None))
    outcomes: dict[int, str] = {}
    for name, number in steps:
        _step(world, name, number)
        for nominal, run in world.rows().items():
            assert outcomes.get(nominal, run.outcome) == run.outcome, "an outcome stays the same for ever"
            if run.outcome is not None:
                outcomes[nominal] = run.outcome
        for shared in world.ranges():
            inside = [nominal for nominal in outcomes if shared.first <= nominal <= shared.last]
            assert {outcomes[nominal] for nominal in inside} <= {shared.outcome}
    counts = Counter(nominal for _, nominal, _ in world.starts)
    assert set(counts.values()) <= {1}, "at most one execution of a period"


# --- changes of the definition ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlap", "second", "asked"),
    [
        (Overlap.SKIP, "SKIPPED active", False),
        (Overlap.ALLOW, "STARTED due", False),
        (Overlap.REPLACE, "PENDING replacing", True),
    ],
)
def test_an_execution_active_at_an_edit_goes_on_and_meets_the_new_policy_at_the_next_start(
    overlap: Overlap, second: str, asked: bool
) -> None:
    world = world_of(with_policy(EVERY_MINUTE, overlap=Overlap.QUEUE))
    world.advance(MINUTE)
    before = world.rows()[nth(1)]
    world.edit(with_policy(EVERY_MINUTE, overlap=overlap))
    assert (world.rows()[nth(1)], world.asked_to_end) == (before, [])
    world.advance(MINUTE)
    assert seen(world) == ["STARTED replaced" if asked else "STARTED due", second]
    assert (world.asked_to_end == [before.key]) is asked
    world.end(before.key, RunEvent.CANCELLED if asked else RunEvent.SUCCESS)
    assert seen(world)[0].split()[0] == ("CANCELLED" if asked else "SUCCESS")


BASE: dict[str, object] = {
    "identity": "world/job",
    "schedule": "*/5 * * * *",
    "timezone": "UTC",
    "window": {"mode": "after", "duration": "60s"},
    "distribution": {"name": "skewLate", "shape": 2},
    "seed": {"strategy": "stable", "salt": "a"},
    "constraints": {"only": {"hours": [12]}},
}
CHANGES: dict[str, dict[str, object]] = {
    "schedule": {"schedule": "*/7 * * * *"},
    "timezone": {"timezone": "Asia/Kolkata"},
    "window mode": {"window": {"mode": "before", "duration": "60s"}},
    "window duration": {"window": {"mode": "after", "duration": "61s"}},
    "distribution": {"distribution": {"name": "uniform"}},
    "parameter": {"distribution": {"name": "skewLate", "shape": 3}},
    "only": {"constraints": {"only": {"hours": [12, 13]}}},
    "avoid": {"constraints": {"only": {"hours": [12]}, "avoid": {"dow": [0]}}},
    "seed strategy": {"seed": {"strategy": "daily", "salt": "a"}},
    "salt": {"seed": {"strategy": "stable", "salt": "b"}},
}
POLICIES: dict[str, object] = {
    "overlap": "allow",
    "catchup": "once",
    "deadline": "7s",
    "jitter_ms": 5,
    "queue_max": 7,
    "retry_delay": "7s",
    "on_orphan": "restart",
    "run_timeout": "7m",
    "replace_grace": "7s",
    "start_at": "2026-01-01T00:00:00Z",
    "end_at": "2030-01-01T00:00:00Z",
    "max_catchup": 7,
    "pause_after_failures": 7,
    "remaining": 7,
}
CHANGES |= {f"policy {name}": {"policy": {name: value}} for name, value in POLICIES.items()}


def test_every_policy_field_is_among_the_changes() -> None:
    """Except `suspend`: it decides no period differently, so it takes effect at once, without a new epoch."""
    assert POLICIES.keys() == {row.name for row in POLICY.rows} - {"suspend"}
    world = world_of(Job.from_dict(BASE))
    world.edit(Job.from_dict({**BASE, "policy": {"suspend": True}}))
    assert (world.job.suspended, world.job.epoch) == (1, 1)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_field_is_a_change_of_the_definition(change: dict[str, object]) -> None:
    world = world_of(Job.from_dict(BASE))
    before = world.job
    world.now += MINUTE
    world.edit(Job.from_dict(BASE))
    assert (world.job.epoch, world.job.edited_at) == (before.epoch, before.edited_at), "the same definition"
    world.edit(Job.from_dict({**BASE, **change}))
    assert (world.job.epoch, world.job.edited_at) == (before.epoch + 1, world.now)
    (earlier,) = at_once(world.store.epochs(SPACE, world.identity))
    assert (earlier.epoch, earlier.definition) == (before.epoch, before.definition), "it is kept for the past"
