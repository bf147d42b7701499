"""Counters agree with the records: every counter against the exact ledger of a run in virtual time."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import Result, RunKind, RunRecord, RunStatus
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.runs import run_now
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.counters import OVERLAP_REASONS, Counters, Histogram
from kron.testing.faulty_store import Fault, Injected
from tests.strategies import law
from tests.telemetry.rig import EVERY_MINUTE, SCHEDULES, UTC_CALL, Rig, rig_on


class Ledger:
    """What a store's records say happened."""

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[Outcome, Reason]] = Counter()
        self.results: Counter[Result] = Counter()
        self.executed = self.emitted = self.drifts = 0
        self.drift_s = self.fire_drift_s = 0.0

    @classmethod
    async def of(cls, rig: Rig) -> "Ledger":
        ledger = cls()
        for name in SCHEDULES:
            await ledger.read(rig, name)
        return ledger

    async def read(self, rig: Rig, name: str) -> None:
        store = rig.panel.store
        for dropped in await store.ranges(NAMESPACE, name):
            self.outcomes[dropped.outcome, dropped.reason] += dropped.periods
        for run in await rig.runs(name):
            earlier = await store.attempts(NAMESPACE, run.key)
            self.emitted += run.attempt
            ends = [*(attempt.result for attempt in earlier), run.result]
            self.results.update(result for result in ends if result is not None)
            if run.outcome is Outcome.EXECUTED:
                self.executed += 1
                started_at = (earlier[0] if earlier else run).started_at
                if run.kind is RunKind.PERIOD and started_at is not None:
                    self.drifts += 1
                    self.drift_s += abs(started_at - 1000 * run.nominal_time) / 1000
                    self.fire_drift_s += abs(started_at - run.fire_time) / 1000
            elif run.outcome is not None:
                self.outcomes[run.outcome, run.reason] += 1


async def test_every_counter_equals_what_the_records_say() -> None:
    async with rig_on(SqliteStore()) as rig:
        await rig.busy_hour()
        ledger, tally = await Ledger.of(rig), rig.panel.counters
    executed = {key: count for key, count in tally.outcomes.items() if key[0] is Outcome.EXECUTED}
    others = {key: count for key, count in tally.outcomes.items() if key[0] is not Outcome.EXECUTED}
    assert others == ledger.outcomes
    assert {key[0] for key in others} == {Outcome.SKIPPED, Outcome.MISSED, Outcome.UNSCHEDULABLE}
    assert sum(executed.values()) == ledger.executed
    assert tally.emitted == ledger.emitted > ledger.executed
    assert +tally.results == ledger.results
    assert {Result.SUCCESS, Result.FAILED, Result.LAUNCH_FAILED, Result.REPLACED} <= set(ledger.results)
    overlaps = sum(count for (_, reason), count in ledger.outcomes.items() if reason in OVERLAP_REASONS)
    assert tally.skipped_by_overlap == overlaps > 20
    assert tally.drift.count == ledger.drifts
    assert tally.drift.sum == pytest.approx(ledger.drift_s)
    assert tally.fire_drift.count == ledger.drifts
    assert tally.fire_drift.sum == pytest.approx(ledger.fire_drift_s) != pytest.approx(ledger.drift_s)
    assert tally.warnings["clock_jumped"] == 1


async def test_the_depth_of_the_queue_is_what_is_on_record_and_not_over() -> None:
    async with rig_on(SqliteStore()) as rig:
        await rig.begin(SCHEDULES)
        # Ten seconds after a minute whose starts found no launcher that answers.
        await rig.until(12.1)
        runs = [run for name in SCHEDULES for run in await rig.runs(name) if run.is_open]
        waiting = Counter(_state_of(run, rig.now) for run in runs)
        text = (await rig.panel.scrape()).decode()
    found = dict(re.findall(r'^kron_runs_open\{state="(\w+)"\} (\d+)\.0$', text, re.MULTILINE))
    assert {state: int(count) for state, count in found.items()} == {**dict.fromkeys(STATES, 0), **waiting}
    assert {"planned", "held", "under_way"} <= set(waiting)


STATES = ("planned", "due", "held", "under_way", "retrying")


def _state_of(run: RunRecord, now: int) -> str:
    if run.status is not RunStatus.PENDING:
        return "retrying" if run.status is RunStatus.FAILED else "under_way"
    return "held" if run.due_at is None else "planned" if run.due_at > now else "due"


async def test_what_was_committed_and_nobody_starts_is_in_the_queue() -> None:
    async with rig_on(SqliteStore()) as rig:
        await rig.registrar.upsert_schedule({"schedule_id": "plain", **SCHEDULES["plain"]})
        for number in range(3):
            await run_now(rig.registrar, "plain", f"request {number}")
        assert b'kron_runs_open{state="due"} 3.0' in await rig.panel.scrape()
        await rig.engine.acquire()
        rig.engine.run()
        await rig.until(0.5)
        assert b'kron_runs_open{state="due"} 0.0' in await rig.panel.scrape()


async def test_a_store_that_cannot_be_asked_leaves_its_gauges_out() -> None:
    async with rig_on(SqliteStore(), [Injected("open_runs", 1, Fault.BEFORE)]) as rig:
        assert b"kron_runs_open{" not in await rig.panel.scrape()
        assert b"kron_runs_open{" in await rig.panel.scrape()


async def test_schedules_are_counted_whenever_they_are_found_due() -> None:
    schedules = {
        "one": EVERY_MINUTE,
        "two": EVERY_MINUTE,
        "with a window": {"cron_expr": "*/5 * * * *", "window": {"duration": "2m"}, **UTC_CALL},
    }
    async with rig_on(SqliteStore()) as rig:
        await rig.begin(schedules)
        await rig.until(10.5)
        plain = [run for name in ("one", "two") for run in await rig.runs(name)]
        wide = await rig.runs("with a window")
        assert len(plain) == 20
        # A window is found when it opens and when the chosen time has come.
        started = [run for run in wide if run.status is RunStatus.SUCCESS]
        apart = [run for run in started if run.fire_time > 1000 * run.nominal_time]
        assert rig.panel.counters.due == len(plain) + len(wide) + len(apart)


async def test_what_somebody_else_wrote_is_not_counted() -> None:
    """A change that the store refused did not happen, whoever wanted it."""
    from kron.core.job.job import Job
    from kron.core.plan.plan import plan
    from kron.core.plan.registration import create
    from kron.core.plan.step import JobState, Snapshot, WriteResult

    now = 1_780_315_200_000
    names = [f"job {number}" for number in range(6)]
    jobs = [Job.from_dict({"identity": name, "schedule": "* * * * *"}) for name in names]
    cases = [JobState(create(job, now=now - 1)) for job in jobs]
    changes, _ = plan(Snapshot(cases, now, 1, {}), now)
    handled = frozenset({changes[1].starts[0].key})
    tally = Counters()
    tally.settled(changes, WriteResult(frozenset({names[0]}), handled), now + 40)
    tally.settled(changes, WriteResult(frozenset(), frozenset()), now + 40)
    assert tally.emitted == tally.outcomes[Outcome.EXECUTED, Reason.DUE] == 4 + 6
    assert tally.drift.count == 10
    assert tally.drift.sum == pytest.approx(10 * 0.04)


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_a_store_that_fails_is_counted_and_nothing_is_counted_twice(fault: Fault) -> None:
    inner = SqliteStore()
    async with rig_on(inner, script=[Injected("settle", 3, fault)]) as rig:
        await rig.begin({"plain": SCHEDULES["plain"]})
        await rig.until(5.5)
        runs = await rig.runs("plain")
        panel = rig.panel
        assert panel.store.errors["settle"] == panel.counters.warnings["store_failed"] == 1
        assert len(runs) == panel.counters.emitted == panel.counters.drift.count == 5
        assert (
            panel.counters.results[Result.SUCCESS]
            == sum(run.status is RunStatus.SUCCESS for run in runs)
            == 5
        )


@law(50)
@given(values=st.lists(st.floats(0, 100), max_size=20), bounds=st.sets(st.floats(0, 50), max_size=5))
def test_a_histogram_counts_every_value_in_each_bucket_it_does_not_exceed(
    values: list[float], bounds: set[float]
) -> None:
    histogram = Histogram(sorted(bounds))
    for value in values:
        histogram.add(value)
    expected = [sum(value <= bound for value in values) for bound in sorted(bounds)]
    assert [count for _, count in histogram.buckets()] == [*expected, len(values)]
    assert histogram.sum == pytest.approx(sum(values))


async def test_launches_are_timed_from_their_start_to_the_first_word() -> None:
    async with rig_on(SqliteStore()) as rig:
        await rig.begin({"sent out": SCHEDULES["sent out"]})
        await rig.until(3.5)
        meter = rig.panel.launchers["http"]
        assert (meter.latency.count, meter.waiting) == (3, 0)
        kinds = {"log", "process", "http", "http:reports", "celery", "celery:reports", "workflow"}
        assert set(rig.panel.launchers) >= kinds | {"dag"}


def test_pruned_records_are_counted_by_kind_with_the_time_of_the_last_pruning() -> None:
    counters = Counters()
    assert set(counters.pruned) == {"runs", "attempts", "ranges", "definitions", "schedules", "audit"}
    counters.note("pruned", {"namespace": "service", "duration_ms": 3, "runs": 7}, 5_000)
    counters.note("pruned", {"namespace": "service", "runs": 1, "audit": 2}, 9_000)
    assert (counters.pruned["runs"], counters.pruned["audit"], counters.pruned["ranges"]) == (8, 2, 0)
    assert counters.pruned_at == 9.0
