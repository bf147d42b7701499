"""Counterfactuals: the recorded inputs, planned again, give what the engine does under the other policy."""

from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.errors import InvalidOptionError
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome
from kron.core.plan.counterfactual import (
    Counterfactual,
    Records,
    WhatIf,
    counterfactual,
    other_outcomes,
    recording_of,
    what_if,
)
from kron.core.plan.period_history import PeriodHistory
from kron.core.plan.record import Result, RunRecord
from kron.core.plan.replay import Execution, replay
from kron.core.plan.report import RunEvent
from kron.core.plan.why import why
from kron.core.time.instant import seconds_of
from tests.engine_world import CALLS, SPACE, World, at_once
from tests.strategies import law

NOON = seconds_of(datetime(2026, 6, 1, 12, tzinfo=UTC))
MINUTE = 60_000
ASSUMED = Execution(20_000)


class Act(NamedTuple):
    """An input of the world, after some minutes."""

    after: int
    what: str = "wait"
    minutes: int = 1


def job_of(**policy: object) -> Job:
    fields = {"deadline": None, **policy}
    return Job.from_dict({"identity": "a", "schedule": "* * * * *", "policy": fields})


class Player:
    """Plays a story in a world: inputs at whole minutes, and executions of known lengths."""

    def __init__(self, job: Job, executions: dict[tuple[str, int], Execution], seed: int | None) -> None:
        # Not at a whole minute: nothing is requested in the instant in which a period is due.
        self.world = World(job, 1000 * NOON + 7_123)
        self.world.wake()
        self._executions, self._seed = executions, seed
        self._ends: dict[tuple[str, int], int] = {}

    def play(self, story: list[Act]) -> World:
        world = self.world
        for act in story:
            self._wait(act.after * MINUTE)
            if act.what == "pause" and not world.job.paused:
                world.pause()
            elif act.what == "resume" and world.job.paused:
                world.resume()
            elif act.what == "outage":
                self._ends.clear()
                # The last write of the worker is the last that is known of it.
                at_once(world.store.settle(world.ownership, (), now=world.now))
                world.outage(act.minutes * MINUTE)
            elif act.what == "manual":
                world.ask()
            self._end_replaced()
        self._wait(3 * MINUTE)
        return world

    def _execution(self, run: RunRecord) -> Execution:
        if self._seed is None:
            return self._executions.get((run.key, run.attempt), ASSUMED)
        number = (run.nominal_time // 60 * 7919 + run.attempt * 104_729 + self._seed) % 1_000_003
        # Of an odd length, so that no two runs end at once, or when a period is due.
        length = 1_000 * (number % 170) + 1 + number % 499
        return Execution(length, RunEvent.FAILED if number % 5 == 0 else RunEvent.SUCCESS)

    def _wait(self, milliseconds: int) -> None:
        until = self.world.now + milliseconds
        while True:
            for run in self.world.running.values():
                length = self._execution(run).duration
                if length is not None and run.started_at is not None:
                    self._ends.setdefault((run.key, run.attempt), run.started_at + length)
            ends = [at for (key, n), at in self._ends.items() if self._is_running(key, n)]
            at = min((each for each in (self.world.wake_at, *ends) if each is not None), default=until + 1)
            if at > until:
                self.world.now = until
                return
            self.world.now = max(self.world.now, at)
            over = [key for (key, n), end in self._ends.items() if end <= at and self._is_running(key, n)]
            for key in over:
                self.world.end(key, self._execution(self.world.running[key]).event)
            if not over:
                self.world.wake()
            self._end_replaced()

    def _is_running(self, key: str, attempt: int) -> bool:
        run = self.world.running.get(key)
        return run is not None and run.attempt == attempt

    def _end_replaced(self) -> None:
        while self.world.asked_to_end:
            key = self.world.asked_to_end.pop(0)
            if key in self.world.running:
                self.world.end(key, RunEvent.CANCELLED)


def records_of(world: World) -> Records:
    runs = at_once(world.store.runs(SPACE, "a", limit=100_000))
    attempts = [each for run in runs for each in at_once(world.store.attempts(SPACE, run.key))]
    return Records(
        world.job,
        at_once(world.store.epochs(SPACE, "a")),
        runs,
        attempts,
        at_once(world.store.incidents(SPACE, "a", since=0, until=world.now, limit=100_000)),
        (),
        CALLS,
    )


def fates(runs: list[RunRecord]) -> dict[tuple[int, str], tuple[object, ...]]:
    return {
        (run.nominal_time, run.kind): (
            run.status, run.reason, run.attempt, run.started_at, run.ended_at, run.result, run.due_at,
        )
        for run in runs
    }  # fmt: skip


policies = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from(["allow", "skip", "queue", "buffer_one", "replace"]),
        "catchup": st.sampled_from(["none", "once", "all", "spread"]),
        "deadline": st.sampled_from([None, "0s", "90s"]),
        "retry_delay": st.sampled_from([None, "30s"]),
        "on_orphan": st.sampled_from(["restart", "fail"]),
        "queue_max": st.sampled_from([1, 100]),
    }
)
acts = st.builds(
    Act,
    st.integers(1, 4),
    st.sampled_from(["wait", "pause", "resume", "outage", "manual"]),
    st.integers(1, 6),
)


stories = st.lists(acts, max_size=6)
seeds = st.integers(0, 10_000)


@law(20)
@given(policies, policies, stories, seeds)
@example(
    {"overlap": "skip", "catchup": "none"}, {"overlap": "queue", "catchup": "all"}, [Act(2, "outage", 4)], 3
)
def test_a_replay_under_another_policy_equals_a_second_run_of_the_engine(
    own: dict[str, object], other: dict[str, object], story: list[Act], seed: int
) -> None:
    check(own, other, story, seed)


@pytest.mark.slow
@law(120)
@given(policies, policies, stories, seeds)
def test_many_replays_equal_a_second_run_of_the_engine(
    own: dict[str, object], other: dict[str, object], story: list[Act], seed: int
) -> None:
    check(own, other, story, seed)


def check(own: dict[str, object], other: dict[str, object], story: list[Act], seed: int) -> None:
    """Check that a replay of recorded inputs gives the records that the engine makes of the same inputs."""
    lived = Player(job_of(**own), {}, seed).play(story)
    records = records_of(lived)
    recording = recording_of(records, ASSUMED.duration)
    made = replay(recording, WhatIf(other).applied, until=lived.now)
    second = Player(job_of(**(own | other)), dict(recording.executions), None).play(story)
    assert fates(list(made.runs.values())) == fates(at_once(second.store.runs(SPACE, "a", limit=100_000)))
    key = lambda each: each.first  # noqa: E731
    assert sorted(made.ranges, key=key) == sorted(second.ranges(), key=key)
    # Under its own policy the replay gives the records themselves.
    same = replay(recording_of(records), lambda job: job, until=lived.now)
    # Of an attempt that was orphaned or replaced, no record says how long it would have lasted.
    results = {run.result for run in records.runs} | {attempt.result for attempt in records.attempts}
    assert not results.isdisjoint({Result.ORPHANED, Result.REPLACED}) or fates(
        list(same.runs.values())
    ) == fates(list(records.runs))


def test_a_period_that_is_due_in_the_instant_of_a_request_starts_first_in_a_replay_too() -> None:
    world = World(job_of(overlap="skip"), 1000 * NOON + 1)
    world.wake()
    world.advance(MINUTE - 1)
    world.ask()
    records = records_of(world)
    assert sorted(run.status for run in records.runs) == ["STARTED", "STARTED"]
    same = replay(recording_of(records), lambda job: job, until=world.now)
    assert fates(list(same.runs.values())) == fates(list(records.runs))


# --- answers -----------------------------------------------------------------------------------------------


def ask(world: World, minute: int, *pairs: str) -> Counterfactual:
    records, nominal_time = records_of(world), NOON + 60 * minute
    run = next((run for run in records.runs if run.nominal_time == nominal_time), None)
    history = PeriodHistory(world.job, records.epochs, run, incidents=records.incidents)
    actual = why(history, nominal_time, now=world.now)
    return counterfactual(records, actual, nominal_time, what_if(pairs), now=world.now)


def blocked_world() -> World:
    """Return a world whose period of 12:02 is skipped, because that of 12:01 takes 90 seconds."""
    world = World(job_of(overlap="skip"), 1000 * NOON + 1)
    world.wake()
    world.advance(2 * MINUTE + 30_000 - 1)
    world.end_period(NOON + 60)
    world.advance(4 * MINUTE)
    return world


def test_a_skipped_period_would_have_run_beside_the_active_one() -> None:
    answer = ask(blocked_world(), 2, "overlap=allow")
    assert answer.explanation.headline == "succeeded"
    assert answer.assumptions == [
        "each of 4 runs without a recorded duration takes 1m30s and succeeds (the median of 1 recorded run)"
    ]


def test_a_skipped_period_would_have_waited_in_a_queue() -> None:
    answer = ask(blocked_world(), 2, "overlap=queue", "duration=5s")
    assert answer.explanation.headline == (
        "succeeded, started 30s late: it waited for the run of the period 2026-06-01T12:01:00Z, "
        "started at 2026-06-01T12:01:00Z until 2026-06-01T12:02:30Z"
    )
    assert answer.to_dict()["if"] == {"overlap": "queue", "duration": "5s"}


def test_all_periods_that_would_have_ended_otherwise_are_named() -> None:
    world = blocked_world()
    records = records_of(world)
    answer = other_outcomes(records, what_if(["overlap=queue", "duration=5s"]), now=world.now)
    skipped = {run.nominal_time for run in records.runs if run.outcome is Outcome.SKIPPED}
    assert NOON + 120 in skipped
    assert (answer.periods, answer.since) == (len(records.runs), records.job.born_at // 1000)
    assert {each.nominal_time for each in answer.changed} >= skipped
    assert answer.changed[-1] == (NOON + 120, Outcome.SKIPPED, Outcome.EXECUTED)
    assert [each.nominal_time for each in answer.changed] == sorted(
        (each.nominal_time for each in answer.changed), reverse=True
    )
    assert answer.assumptions[0].endswith("takes 5s and succeeds (as given)")
    same = other_outcomes(records, what_if(["overlap=skip"]), now=world.now)
    assert (same.changed, same.periods) == ([], answer.periods)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param("deadline", id="no value"),
        pytest.param("=10m", id="no field"),
        pytest.param("overlap=never", id="no such value"),
        pytest.param("colour=red", id="no such field"),
    ],
)
def test_a_change_that_no_job_can_have_is_refused(pair: str) -> None:
    with pytest.raises(InvalidOptionError):
        what_if([pair]).applied(job_of())
