"""Chaos for jobs: the real engine runs them for years of virtual time among crashes, outages and slow work.

The records are then judged by the jobs' policies: every period has exactly one outcome, starts happen at the
decided time and not after their deadline, and one at a time where the policy says so.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from kron.core.errors import KronError
from kron.core.job.decision import Decision, decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import Overlap
from kron.core.job.seed import jitter_of
from kron.core.plan.record import RangeRecord, RunKind, RunRecord
from kron.core.time.instant import EPOCH
from kron.fronts.embed.runner import Runner
from kron.testing.chaos_report import ChaosReport
from kron.testing.clock import SimulatedClock
from kron.testing.crash import kill
from kron.testing.faulty_store import Chance, Fault, FaultyStore
from kron.testing.simulator.crash_store import InlineStore
from kron.testing.simulator.rng import Rng

NAMESPACE = "runner:main"
YEAR = timedelta(days=365)
UP = tuple(timedelta(hours=hours) for hours in (1, 5, 24, 100, 240, 480))
DOWN = tuple(timedelta(minutes=minutes) for minutes in (0, 1, 7, 60, 600, 4320))
TAKES_S = (0, 0, 0, 0, 1, 20, 90, 600, 7200)
FAILS, CRASHES, FAULTY = 0.1, 0.5, 0.4
# The probability that a store call fails; each delayed call costs a second.
ODDS = 0.02
# The time after the last fault before the records are judged.
SETTLED = timedelta(seconds=30)
ONE_AT_A_TIME = (Overlap.SKIP, Overlap.QUEUE, Overlap.BUFFER_ONE)
EXEMPT = (Reason.SPREAD, Reason.REPLACING)
MAX_FAULTS, MORE_ROWS = 20, 5_000
# Periods this close to a job's creation may or may not be its first.
MINUTE_MS = 60_000
Progress = Callable[[float], None]


def run_chaos(
    jobs: Sequence[Job], *, seed: int, years: float, start: datetime, progress: Progress | None = None
) -> ChaosReport:
    """Run jobs for some years of virtual time, and judge their records."""
    return asyncio.run(_Chaos(jobs, seed, years, start).play(progress))


class _Chaos:
    def __init__(self, jobs: Sequence[Job], seed: int, years: float, start: datetime) -> None:
        self._jobs = [job for job in jobs if not job.policy.suspend]
        self._rng = Rng(seed, "chaos")
        self._clock = SimulatedClock(start)
        self._start, self._end = start, start + years * YEAR
        self._store = InlineStore()
        self._active: Counter[str] = Counter()
        self._process = 0
        # The instant up to which each job has been judged, in epoch seconds.
        self._judged = dict.fromkeys((job.identity for job in self._jobs), self._seconds(start))
        self.report = ChaosReport(seed, years, outcomes={job.identity: Counter() for job in self._jobs})

    async def play(self, progress: Progress | None) -> ChaosReport:
        """Run one process after the other until the end."""
        while self._clock.now() < self._end and len(self.report.violations) < MAX_FAULTS:
            await self._play_once()
            if progress is not None:
                progress(min(1.0, (self._clock.now() - self._start) / (self._end - self._start)))
        await self._store.close()
        return self.report

    async def _play_once(self) -> None:
        rng, self._process = self._rng, self._process + 1
        odds = ODDS if rng.happens(FAULTY) else 0.0
        faults = tuple(fault for fault in Fault if fault is not Fault.YIELD)
        chance = Chance(seed=f"{self.report.seed} {self._process}", odds=odds, faults=faults)
        store = FaultyStore(self._store, self._clock, chance=chance)
        runner = Runner(store, clock=self._clock)
        for job in self._jobs:
            runner.add(job, self._work_of(job, self._process))
        # Concurrent with the clock, because a delayed store call needs virtual time to pass.
        starting = asyncio.ensure_future(runner.start())
        await self._clock.advance_to(min(self._clock.now() + rng.one_of(UP), self._end))
        store.heal()
        await self._clock.advance_to(self._clock.now() + SETTLED)
        with suppress(KronError):
            await starting
            await self._judge()
        await self._end_process(runner)
        self.report.store_faults += len(store.injected)
        await self._clock.advance_to(self._clock.now() + rng.one_of(DOWN))

    async def _end_process(self, runner: Runner) -> None:
        """End by a crash, or by a stop that waits for running executions."""
        if self._rng.happens(CRASHES):
            self.report.crashes += 1
        else:
            self.report.stops += 1
            stopping = asyncio.ensure_future(runner.stop())
            await self._clock.advance_to(self._clock.now() + timedelta(seconds=max(TAKES_S)))
            if not stopping.done():
                stopping.cancel()
        self._process += 1
        self._active.clear()
        await kill(runner)
        self._store.drop_locks()

    def _work_of(self, job: Job, process: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            name = job.identity
            self.report.calls += 1
            self._active[name] += 1
            if self._active[name] > 1 and job.policy.overlap in ONE_AT_A_TIME:
                self._add_violation(f"{name}: runs twice at once, {self._clock.now().isoformat()}")
            takes, fails = self._rng.one_of(TAKES_S), self._rng.happens(FAILS)
            try:
                await self._clock.sleep_until(self._clock.now() + timedelta(seconds=takes))
            finally:
                if process == self._process:
                    self._active[name] -= 1
            if fails:
                raise ValueError("failed by the simulation")

        return work

    # --- judging ---------------------------------------------------------------------------------

    async def _judge(self) -> None:
        """Judge the records of every period that must have an outcome by now."""
        for state in await self._store.cases(NAMESPACE):
            job = next(job for job in self._jobs if job.identity == state.job.identity)
            if state.job.is_stopped or state.job.remaining == 0:
                continue
            since, until = self._judged[job.identity], self._until(job)
            periods = list(_periods(job, since, until))
            runs = await self._store.runs(NAMESPACE, job.identity, limit=len(periods) + MORE_ROWS)
            rows = {run.nominal_time: run for run in runs if run.kind is RunKind.PERIOD}
            ranges = await self._store.ranges(NAMESPACE, job.identity)
            for period in periods:
                decision = decide_at(job, period)
                if (
                    decision.chosen_time is None
                    or 1000 * decision.chosen_time - MINUTE_MS > state.job.born_at
                ):
                    shared = [dropped for dropped in ranges if dropped.first <= period <= dropped.last]
                    self._compare(decision, rows.get(period), shared)
            self._judged[job.identity] = max(until, since)

    def _until(self, job: Job) -> int:
        """Return the last nominal time whose window and jitter have passed."""
        reach = job.window.duration + timedelta(milliseconds=job.policy.jitter_ms)
        return self._seconds(self._clock.now() - reach - SETTLED)

    def _compare(self, decision: Decision, run: RunRecord | None, ranges: list[RangeRecord]) -> None:
        job = decision.job
        at = f"{job.identity}: the period {decision.period_id}"
        if (run is not None) + len(ranges) != 1:
            self._add_violation(f"{at} has {(run is not None) + len(ranges)} records")
            return
        outcome = ranges[0].outcome if run is None else run.outcome
        reason = ranges[0].reason if run is None else run.reason
        self.report.outcomes[job.identity][f"{outcome or 'waiting'}: {reason}"] += 1
        if (outcome is Outcome.UNSCHEDULABLE) != decision.unschedulable and run is not None:
            self._add_violation(f"{at} is {outcome}, which contradicts its decision")
        if run is not None and run.started_at is not None and run.attempt == 1 and run.reason not in EXEMPT:
            for fault in faults_of_start(decision, run):
                self._add_violation(f"{at} {fault}")

    def _add_violation(self, fault: str) -> None:
        if len(self.report.violations) < MAX_FAULTS:
            self.report.violations.append(fault)

    @staticmethod
    def _seconds(instant: datetime) -> int:
        return (instant - EPOCH) // timedelta(seconds=1)


def _periods(job: Job, since: int, until: int) -> Iterator[int]:
    """Yield the nominal times after one instant up to another, within the policy's bounds."""
    policy, plan = job.policy, job.schedule.plan
    if policy.start_at is not None:
        since = max(since, policy.start_at - 1)
    if policy.end_at is not None:
        until = min(until, policy.end_at)
    at = plan.next_after(since)
    while at is not None and at <= until:
        yield at
        at = plan.next_after(at)


def faults_of_start(decision: Decision, run: RunRecord) -> Iterator[str]:
    """Yield the faults of a first start: too early, too late, or not as decided."""
    job, chosen_time, started_at = decision.job, decision.chosen_time, run.started_at
    assert chosen_time is not None
    assert started_at is not None
    fire_time = 1000 * chosen_time + jitter_of(job.identity, decision.period_id, job.policy.jitter_ms)
    if run.fire_time != fire_time:
        yield f"has the fire time {run.fire_time}, but {fire_time} was decided"
    if started_at < fire_time:
        yield f"started at {started_at}, before its fire time"
    deadline = job.policy.deadline
    if deadline is not None and started_at // 1000 - fire_time // 1000 > deadline.total_seconds():
        yield f"started at {started_at}, after its deadline"
