"""One job file in a program and in a service: the same starts, outcomes and keys, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import kron
from kron.app.worker import Worker, WorkerOptions
from kron.cli.support.job_file import load_jobs
from kron.core.plan.record import RangeRecord, RunRecord
from kron.core.plan.report import Launch
from kron.fronts.service.client import LocalClient
from kron.fronts.service.definitions import ApplyRequest
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.settings import read_settings
from kron.launchers.callback import CallbackLauncher
from kron.ports import Store
from kron.stores.url import open_store
from kron.testing import SimulatedClock

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
# Both words and both forms; a clock change, a window, constraints, jitter, retries and every overlap policy.
FILE = """\
jobs:
  - identity: night/backup
    schedule: "30 2 * * *"
    timezone: Europe/Berlin
    dst_gap: next
    window: { mode: after, duration: 2h }
    distribution: { name: skewLate, shape: 2.5 }
    policy: { deadline: 10m, catchup: once }
  - schedule_id: often/slow
    cron_expr: "*/20 * * * *"
    overlap_policy: queue
    catchup_policy: fire_immediately
    deadline: 6h
    queue_max: 2
  - identity: office/mail
    schedule: "*/30 * * * *"
    window_mode: around
    window_duration: 20m
    seed_strategy: daily
    salt: x
    constraints: { avoid: { between: ["14:00-15:00"] } }
    deadline: 1m
  - identity: flaky
    schedule: "15 * * * *"
    policy: { concurrency: replace, deadline: null, retry_delay: 4m, jitter_ms: 900, catchup: spread }
  - identity: plain
    schedule: "0 * * * *"
"""
SLOW = {"often/slow": 35 * MINUTE, "flaky": 2 * MINUTE}
Picture = dict[str, list[tuple[object, ...]]]


def work_on(clock: SimulatedClock, calls: list[tuple[str, datetime]]) -> Callable[[str], Awaitable[None]]:
    """Return the work of every job: it takes its time, and the first attempts of one fail."""

    async def work(identity: str) -> None:
        calls.append((identity, clock.now()))
        if identity in SLOW:
            await clock.sleep_until(clock.now() + SLOW[identity])
        if identity == "flaky" and sum(name == identity for name, _ in calls) % 3:
            raise ValueError("not this time")

    return work


def picture(runs: Sequence[RunRecord], ranges: Sequence[RangeRecord]) -> list[tuple[object, ...]]:
    """Return the records of a job without what names its owner."""
    shown = [(run.key, run.nominal_time, run.fire_time, run.status, run.reason, run.attempt) for run in runs]
    ends = [(run.started_at, run.ended_at, run.result, run.error) for run in runs]
    dropped = [(each.first, each.last, each.periods, each.outcome, each.reason) for each in ranges]
    return [*(one + other for one, other in zip(shown, ends, strict=True)), *dropped]


async def lived(clock: SimulatedClock, start: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]) -> None:
    """Live through a day: six hours, an outage of two, and the rest of it."""
    for until in (NOON + 6 * HOUR + 7 * MINUTE, NOON + 26 * HOUR):
        stop = await start()
        await clock.advance_to(until)
        ending = asyncio.ensure_future(stop())
        await clock.advance_to(until + 2 * HOUR)
        await ending


async def in_a_program(file: str, url: str) -> tuple[Picture, list[tuple[str, datetime]]]:
    clock, calls = SimulatedClock(NOON + timedelta(milliseconds=1)), list[tuple[str, datetime]]()
    work, jobs = work_on(clock, calls), load_jobs(file)

    async def call(run: kron.Run) -> None:
        await work(run.job)

    async def start() -> Callable[[], Awaitable[None]]:
        runner = kron.Runner(url, clock=clock)
        for job in jobs:
            runner.add(job, call)
        await runner.start()
        return runner.stop

    await lived(clock, start)
    return await pictures(open_store(url), "runner:main", jobs), calls


async def in_a_service(file: str, url: str) -> tuple[Picture, list[tuple[str, datetime]]]:
    clock, calls = SimulatedClock(NOON + timedelta(milliseconds=1)), list[tuple[str, datetime]]()
    work, jobs = work_on(clock, calls), load_jobs(file)
    settings = read_settings({"KRON_DEFAULT_LAUNCHER": '{"kind": "callback"}'}, {}).settings

    async def start() -> Callable[[], Awaitable[None]]:
        store = open_store(url)
        launcher = CallbackLauncher(clock)

        async def call(launch: Launch) -> None:
            await work(launch.job.identity)

        launcher.callbacks.update({job.identity: call for job in jobs})
        options = WorkerOptions(owner=f"worker {len(calls)}")
        worker = Worker(store, clock, {"callback": launcher}, namespace=NAMESPACE, options=options)
        await worker.take_over()
        registrar = Registrar(store, clock, rules=settings.rules, wake=worker.engine.call)
        with clock.working():
            client = LocalClient(registrar, settings)
            await client.apply(ApplyRequest([job.to_dict() for job in jobs]))
        worker.start()

        async def stop() -> None:
            await worker.stop()
            await store.close()

        return stop

    await lived(clock, start)
    return await pictures(open_store(url), NAMESPACE, jobs), calls


async def pictures(store: Store, namespace: str, jobs: Sequence[kron.Job]) -> Picture:
    try:
        return {
            job.identity: picture(
                await store.runs(namespace, job.identity, limit=1000),
                await store.ranges(namespace, job.identity),
            )
            for job in jobs
        }
    finally:
        await store.close()


@pytest.mark.slow
async def test_a_job_file_has_the_same_starts_outcomes_and_keys_in_a_program_and_in_a_service(
    tmp_path: Path,
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(FILE)
    program, called = await in_a_program(str(file), f"sqlite:///{tmp_path}/program.db")
    service, started = await in_a_service(str(file), f"sqlite:///{tmp_path}/service.db")
    assert program == service
    assert called == started
    # The day had every kind of outcome, and retries, so that the comparison means something.
    runs = [record for records in program.values() for record in records if len(record) > 5]
    statuses = {str(record[3]) for record in runs}
    assert statuses >= {"SUCCESS", "SKIPPED", "MISSED", "UNSCHEDULABLE"}
    assert any(record[5] == 3 for record in runs)
