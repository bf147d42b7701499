"""Chaos for jobs: the real engine runs them for years of virtual time among crashes, outages and slow work.

What is on record afterwards is judged by the jobs' own policies: every period has exactly one outcome, starts
come at the time that was decided and not after their deadline, and one at a time where the policy says so.
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
from kron.testing.chaos_report import Aftermath
from kron.testing.clock import SimulatedClock
from kron.testing.crash import kill
from kron.testing.faulty_store import Chance, Fault, FaultyStore
from kron.testing.simulator.crash_store import PromptStore
from kron.testing.simulator.rng import Draw

SPACE = "runner:main"
YEAR = timedelta(days=365)
UP = tuple(timedelta(hours=hours) for hours in (1, 5, 24, 100, 240, 480))
DOWN = tuple(timedelta(minutes=minutes) for minutes in (0, 1, 7, 60, 600, 4320))
TAKES_S = (0, 0, 0, 0, 1, 20, 90, 600, 7200)
FAILS, CRASHES, FAULTY = 0.1, 0.5, 0.4
# A store that is asked for years fails now and then; each answer that is late costs a second.
ODDS = 0.02
# What a store says once more before it is asked for the record.
SETTLED = timedelta(seconds=30)
ONE_AT_A_TIME = (Overlap.SKIP, Overlap.QUEUE, Overlap.BUFFER_ONE)
EXEMPT = (Reason.SPREAD, Reason.REPLACING)
MAX_FAULTS, MORE_ROWS = 20, 5_000
# Periods as near as this to a job's birth may or may not be its first.
MINUTE_MS = 60_000
Tell = Callable[[float], None]


def unleash(
    jobs: Sequence[Job], *, seed: int, years: float, start: datetime, tell: Tell | None = None
) -> Aftermath:
    """Let jobs live through so many years of virtual time, and judge what is on record."""
    return asyncio.run(_Chaos(jobs, seed, years, start).live(tell))


class _Chaos:
    def __init__(self, jobs: Sequence[Job], seed: int, years: float, start: datetime) -> None:
        self._jobs = [job for job in jobs if not job.policy.suspend]
        self._draw = Draw(seed, "chaos")
        self._clock = SimulatedClock(start)
        self._start, self._end = start, start + years * YEAR
        self._file = PromptStore()
        self._active: Counter[str] = Counter()
        self._life = 0
        # Up to here the record has been judged, in epoch seconds.
        self._judged = dict.fromkeys((job.identity for job in self._jobs), self._seconds(start))
        self.found = Aftermath(seed, years, outcomes={job.identity: Counter() for job in self._jobs})

    async def live(self, tell: Tell | None) -> Aftermath:
        """Live one life after the other until the end."""
        while self._clock.now() < self._end and len(self.found.violations) < MAX_FAULTS:
            await self._live_once()
            if tell is not None:
                tell(min(1.0, (self._clock.now() - self._start) / (self._end - self._start)))
        await self._file.close()
        return self.found

    async def _live_once(self) -> None:
        draw, self._life = self._draw, self._life + 1
        odds = ODDS if draw.happens(FAULTY) else 0.0
        usual = tuple(fault for fault in Fault if fault is not Fault.YIELD)
        chance = Chance(seed=f"{self.found.seed} {self._life}", odds=odds, faults=usual)
        store = FaultyStore(self._file, self._clock, chance=chance)
        runner = Runner(store, clock=self._clock)
        for job in self._jobs:
            runner.add(job, self._work_of(job, self._life))
        # Beside the clock, for a store that is late lets virtual time pass.
        starting = asyncio.create_task(runner.start())
        await self._clock.advance_to(min(self._clock.now() + draw.one_of(UP), self._end))
        store.heal()
        await self._clock.advance_to(self._clock.now() + SETTLED)
        with suppress(KronError):
            await starting
            await self._judge()
        await self._die(runner)
        self.found.store_faults += len(store.injected)
        await self._clock.advance_to(self._clock.now() + draw.one_of(DOWN))

    async def _die(self, runner: Runner) -> None:
        """End by a crash, or by a stop that waits for what runs."""
        if self._draw.happens(CRASHES):
            self.found.crashes += 1
        else:
            self.found.stops += 1
            stopping = asyncio.create_task(runner.stop())
            await self._clock.advance_to(self._clock.now() + timedelta(seconds=max(TAKES_S)))
            if not stopping.done():
                stopping.cancel()
        self._life += 1
        self._active.clear()
        await kill(runner)
        self._file.drop_locks()

    def _work_of(self, job: Job, life: int) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            name = job.identity
            self.found.calls += 1
            self._active[name] += 1
            if self._active[name] > 1 and job.policy.overlap in ONE_AT_A_TIME:
                self._blame(f"{name}: runs twice at once, {self._clock.now().isoformat()}")
            takes, fails = self._draw.one_of(TAKES_S), self._draw.happens(FAILS)
            try:
                await self._clock.sleep_until(self._clock.now() + timedelta(seconds=takes))
            finally:
                if life == self._life:
                    self._active[name] -= 1
            if fails:
                raise ValueError("as the chaos says")

        return work

    # --- judging ---------------------------------------------------------------------------------

    async def _judge(self) -> None:
        """Judge what is on record of every period that must have an outcome by now."""
        for case in await self._file.cases(SPACE):
            job = next(job for job in self._jobs if job.identity == case.job.identity)
            if case.job.paused or case.job.remaining == 0:
                continue
            since, until = self._judged[job.identity], self._until(job)
            periods = list(_periods(job, since, until))
            runs = await self._file.runs(SPACE, job.identity, limit=len(periods) + MORE_ROWS)
            rows = {run.nominal_time: run for run in runs if run.kind is RunKind.PERIOD}
            ranges = await self._file.ranges(SPACE, job.identity)
            for period in periods:
                decision = decide_at(job, period)
                if decision.chosen_time is None or 1000 * decision.chosen_time - MINUTE_MS > case.job.born_at:
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
            self._blame(f"{at} has {(run is not None) + len(ranges)} records")
            return
        outcome = ranges[0].outcome if run is None else run.outcome
        reason = ranges[0].reason if run is None else run.reason
        self.found.outcomes[job.identity][f"{outcome or 'waiting'}: {reason}"] += 1
        if (outcome is Outcome.UNSCHEDULABLE) != decision.unschedulable and run is not None:
            self._blame(f"{at} is {outcome}, but decided otherwise")
        if run is not None and run.started_at is not None and run.attempt == 1 and run.reason not in EXEMPT:
            for fault in faults_of_start(decision, run):
                self._blame(f"{at} {fault}")

    def _blame(self, fault: str) -> None:
        if len(self.found.violations) < MAX_FAULTS:
            self.found.violations.append(fault)

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
    """Say what is wrong with a first start: too early, too late, or not as decided."""
    job, chosen_time, started_at = decision.job, decision.chosen_time, run.started_at
    assert chosen_time is not None
    assert started_at is not None
    fire_time = 1000 * chosen_time + jitter_of(job.identity, decision.period_id, job.policy.jitter_ms)
    if run.fire_time != fire_time:
        yield f"was to start at {run.fire_time}, but {fire_time} was decided"
    if started_at < fire_time:
        yield f"started at {started_at}, before its time"
    deadline = job.policy.deadline
    if deadline is not None and started_at // 1000 - fire_time // 1000 > deadline.total_seconds():
        yield f"started at {started_at}, after its deadline"
