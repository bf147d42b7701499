"""Workers that share a database are restarted one by one while jobs are edited."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from itertools import cycle
from random import Random

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import OwnedError
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.pause import pause, resume
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import create, delete, edit
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, JobState
from kron.stores.postgres.store import PostgresStore
from tests.faults.comparison import faults_of
from tests.faults.fork_server import seed_of
from tests.faults.ledger import Line
from tests.faults.rig import SPACE, Rig, evidence_of, job_of, rig_of
from tests.waiting import PATIENCE_S

EVERY_SECOND = "* * * * * *"
STEADY = [f"steady-{number}" for number in range(24)]
SHAKEN = [f"shaken-{number}" for number in range(12)]
OVERLAPS = [Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE, Overlap.BUFFER_ONE]
TTL_MS, MARGIN_MS = 400, 100
RESTARTS = 4


async def takes_a_moment(launch: Launch) -> None:
    await asyncio.sleep((int(launch.run.key[:4], 16) % 100) / 250)


class Fleet:
    """Two workers at most, each with its own store, and the calls of all workers."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.rigs: list[Rig] = []
        self.workers: list[Rig] = []

    async def start(self) -> None:
        """Start another worker; it gets its share as soon as the others release shards."""
        store = PostgresStore(self._url, ttl_ms=TTL_MS, margin_ms=MARGIN_MS)
        owner = f"worker-{len(self.rigs)}"
        rig = await self._stack.enter_async_context(rig_of(store, SystemClock(), owner=owner, balance=True))
        rig.serve(*STEADY, *SHAKEN, callback=takes_a_moment)
        self.rigs.append(rig)
        async with asyncio.timeout(PATIENCE_S):
            while rig.engine.health.state != "running":
                with suppress(OwnedError):
                    await rig.run()
                await asyncio.sleep(0.05)
        self.workers.append(rig)

    async def stop_oldest(self) -> None:
        """Stop the oldest worker gracefully."""
        await self.workers.pop(0).engine.stop()

    def lines(self) -> list[Line]:
        """Return the lines of all workers, in order of time."""
        return sorted((line for rig in self.rigs for line in rig.lines), key=lambda line: line.at)


class Editor:
    """A client that edits, pauses, resumes and deletes jobs while they are due."""

    def __init__(self, rig: Rig, chance: Random) -> None:
        self._rig = rig
        self._chance = chance
        self.edits: dict[str, list[int]] = {name: [] for name in SHAKEN}

    async def change(self) -> None:
        """Change a random job, and retry on a conflict."""
        name = self._chance.choice(SHAKEN)
        change = self._chance.choice([self._edit, self._pause, self._resume, self._delete])
        for _ in range(20):
            (case,) = await self._rig.store.cases(SPACE, [name])
            now = self._rig.now()
            changed = change(case, now)
            settled = await self._rig.store.put(SPACE, created=[], changed=[changed], now=now)
            if not settled.stale_jobs and not settled.existing_runs:
                if changed.job.epoch != case.job.epoch:
                    self.edits[name].append(now)
                return

    def _edit(self, case: JobState, now: int) -> Change:
        text = self._chance.choice([EVERY_SECOND, "*/2 * * * * *", "1-59/2 * * * * *"])
        overlap = self._chance.choice([Overlap.ALLOW, Overlap.SKIP, Overlap.QUEUE])
        job = job_of(case.job.identity, text, overlap=overlap, catchup=Catchup.ALL)
        return edit(case.job, list(case.runs), job, now=now)

    def _pause(self, case: JobState, now: int) -> Change:
        return pause(case.job, list(case.runs), because="by hand", now=now)

    def _resume(self, case: JobState, now: int) -> Change:
        return resume(case.job, list(case.runs), now=now)

    def _delete(self, case: JobState, now: int) -> Change:
        return delete(case.job, list(case.runs), now=now)


async def again_and_again(work: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        await work()
        await asyncio.sleep(every_s)


@pytest.mark.slow
async def test_a_rolling_restart_with_changes_under_way_loses_and_doubles_nothing(postgres_url: str) -> None:
    chance = Random(seed_of("rolling"))
    async with AsyncExitStack() as stack:
        fleet = Fleet(postgres_url, stack)
        client = await stack.enter_async_context(rig_of(PostgresStore(postgres_url), SystemClock()))
        now = client.now()
        jobs = [
            job_of(name, EVERY_SECOND, overlap=overlap)
            for name, overlap in zip(STEADY, cycle(OVERLAPS), strict=False)
        ]
        jobs += [job_of(name, EVERY_SECOND) for name in SHAKEN]
        await client.store.put(SPACE, created=[create(job, now=now) for job in jobs], changed=[], now=now)
        await fleet.start()
        editor = Editor(client, chance)
        shaking = asyncio.create_task(again_and_again(editor.change, 0.05))
        for _ in range(RESTARTS):
            await fleet.start()
            await asyncio.sleep(chance.uniform(0.2, 0.9))
            await fleet.stop_oldest()
        shaking.cancel()
        with suppress(asyncio.CancelledError):
            await shaking
        await fleet.stop_oldest()
        lines = fleet.lines()
        faults = []
        for name in STEADY:
            evidence = await evidence_of(client.store, name, lines)
            # A queued run has no outcome yet.
            faults += [fault for fault in faults_of(evidence) if "is still PENDING (queued)" not in fault]
        assert faults == []
        for name in SHAKEN:
            check_shaken(await client.runs(name), lines, editor.edits[name])
        assert len({line.token for line in lines}) > 1


def check_shaken(runs: list[RunRecord], lines: list[Line], edits: list[int]) -> None:
    """No run was executed twice, every execution has a record, and no edit started a period of its past."""
    assert len({run.nominal_time for run in runs}) == len(runs)
    begun = [(line.key, line.attempt) for line in lines if line.what == "begin"]
    assert len(set(begun)) == len(begun)
    for run in runs:
        ran = (run.key, run.attempt) in begun
        assert ran == (run.attempt > 0), run
        if run.status in (RunStatus.SUCCESS, RunStatus.STARTED):
            assert run.attempt == 1
        # A row of a later definition has a nominal time after the edit that brought the definition.
        if run.epoch > 1 and run.attempt:
            assert run.nominal_time > edits[run.epoch - 2] // 1000
