"""The scripted launcher, alone and under the real engine."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from kron.core.job.job import Job
from kron.core.plan.record import Result, RunRecord, RunStatus
from kron.core.plan.registration import create
from kron.core.plan.report import RunEvent, Traits
from kron.core.plan.step import Change, WriteResult
from kron.runtime.engine import Engine
from kron.stores.sqlite.store import SqliteStore
from kron.testing.clock import SimulatedClock
from kron.testing.launcher import ScriptedLauncher, Started, Step
from tests.launchers.ear import NOON, Ear, a_launch

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPACE = "runner:scripted"


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(START)


@pytest.mark.parametrize(
    ("step", "said", "effects"),
    [
        (Step.SUCCEED, [RunEvent.ACCEPTED, RunEvent.SUCCESS], 1),
        (Step.FAIL, [RunEvent.ACCEPTED, RunEvent.FAILED], 1),
        (Step.HANG, [RunEvent.ACCEPTED], 1),
        (Step.REFUSE, [RunEvent.LAUNCH_FAILED], 0),
        (Step.LOSE, [], 1),
    ],
    ids=[*Step],
)
async def test_what_each_step_does(
    clock: SimulatedClock, step: Step, said: list[RunEvent], effects: int
) -> None:
    launcher, ear, launch = ScriptedLauncher(clock, {"backup": [step]}), Ear(), a_launch()
    launcher.start(launch, ear)
    await asyncio.sleep(0)
    assert ear.said(launch) == said
    assert launcher.effects[launch.run.key] == effects
    assert launcher.started == [Started("backup", launch.run.key, 1, 7, NOON)]
    assert launcher.busy is (step is Step.HANG)


async def test_each_job_has_its_own_script_and_succeeds_after_it(clock: SimulatedClock) -> None:
    launcher, ear = ScriptedLauncher(clock, {"a": [Step.FAIL, Step.REFUSE]}), Ear()
    launcher.then("b", Step.FAIL)
    for attempt in (1, 2, 3):
        for name in "ab":
            launcher.start(a_launch(identity=name, attempt=attempt), ear)
    await asyncio.sleep(0)
    ends = {name: [end.happened for end in ear.ends() if end.identity == name] for name in "ab"}
    assert ends == {
        "a": [RunEvent.FAILED, RunEvent.LAUNCH_FAILED, RunEvent.SUCCESS],
        "b": [RunEvent.FAILED, RunEvent.SUCCESS, RunEvent.SUCCESS],
    }


async def test_what_hangs_ends_when_told_and_closing_waits_for_it(clock: SimulatedClock) -> None:
    launcher, ear, launch = ScriptedLauncher(clock, {"backup": [Step.HANG]}), Ear(), a_launch()
    launcher.start(launch, ear)
    closing = asyncio.create_task(launcher.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    assert launcher.running == [launch.run]
    launcher.finish(launch.run, RunEvent.FAILED, "told so")
    await closing
    assert [(end.happened, end.error) for end in ear.ends()] == [(RunEvent.FAILED, "told so")]


async def test_what_hangs_can_be_ended_and_what_was_lost_cannot(clock: SimulatedClock) -> None:
    launcher, ear = ScriptedLauncher(clock, {"a": [Step.HANG], "b": [Step.LOSE]}), Ear()
    hanging, lost = a_launch(identity="a"), a_launch(identity="b")
    for launch in (hanging, lost):
        launcher.start(launch, ear)
        launcher.end(launch.run)
        launcher.end(launch.run)
    await asyncio.sleep(0)
    assert ear.said(hanging) == [RunEvent.ACCEPTED, RunEvent.CANCELLED]
    assert ear.said(lost) == []
    assert [run.identity for run in launcher.asked_to_end] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(("idempotent", "effects"), [(True, 1), (False, 2)])
async def test_an_executor_honours_the_key_if_its_traits_say_so(
    clock: SimulatedClock, idempotent: bool, effects: int
) -> None:
    launcher = ScriptedLauncher(clock, {"backup": [Step.LOSE]}, traits=Traits(idempotent=idempotent))
    ear, launch = Ear(), a_launch()
    launcher.start(launch, ear)
    launcher.start(launch, ear)
    await asyncio.sleep(0)
    assert launcher.effects[launch.run.key] == effects


async def test_without_reports_nothing_is_said_of_ends(clock: SimulatedClock) -> None:
    launcher, ear, launch = ScriptedLauncher(clock, traits=Traits(reports=False)), Ear(), a_launch()
    launcher.start(launch, ear)
    await asyncio.sleep(0)
    assert ear.said(launch) == [RunEvent.ACCEPTED]
    assert not launcher.busy


# --- under the engine ----------------------------------------------------------------------------


class Silent:
    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        pass

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        pass


def an_engine(store: SqliteStore, clock: SimulatedClock, launcher: ScriptedLauncher, owner: str) -> Engine:
    return Engine(store, clock, {"callback": launcher}, namespace=SPACE, owner=owner, journal=Silent())


async def a_store(now: datetime, **policy: object) -> SqliteStore:
    store = SqliteStore()
    job = Job.from_dict({"identity": "backup", "schedule": "* * * * *", "policy": policy})
    record = create(job, now=int(now.timestamp() * 1000))
    await store.put(SPACE, created=[record], changed=[], now=record.born_at)
    return store


async def run_of(store: SqliteStore, minute: int) -> RunRecord:
    runs = {run.nominal_time: run for run in await store.runs(SPACE, "backup")}
    return runs[NOON + 60 * minute]


async def test_the_engine_writes_down_what_the_script_says(clock: SimulatedClock) -> None:
    store = await a_store(START, deadline=None, retry_delay="10s")
    script = [Step.SUCCEED, Step.FAIL, Step.SUCCEED, Step.REFUSE]
    launcher = ScriptedLauncher(clock, {"backup": script})
    engine = an_engine(store, clock, launcher, "a")
    await engine.acquire()
    engine.run()
    await clock.advance_to(START + timedelta(minutes=2, seconds=5))
    assert [(start.nominal_time, start.attempt) for start in launcher.started] == [
        (NOON, 1),
        (NOON + 60, 1),
        (NOON + 60, 2),
        (NOON + 120, 1),
    ]
    assert len({start.token for start in launcher.started}) == 1
    found = [await run_of(store, minute) for minute in range(3)]
    assert [(run.status, run.result) for run in found] == [
        (RunStatus.SUCCESS, Result.SUCCESS),
        (RunStatus.SUCCESS, Result.SUCCESS),
        (RunStatus.FAILED, Result.LAUNCH_FAILED),
    ]
    await engine.stop()
    await store.close()


@pytest.mark.parametrize(
    ("survives", "status", "result"),
    [
        pytest.param(True, RunStatus.SUCCESS, Result.SUCCESS, id="adopted"),
        pytest.param(False, RunStatus.FAILED, Result.ORPHANED, id="orphaned"),
    ],
)
async def test_the_next_owner_finds_what_outlived_the_first(
    clock: SimulatedClock, survives: bool, status: RunStatus, result: Result
) -> None:
    store = await a_store(START, deadline=None)
    launcher = ScriptedLauncher(clock, {"backup": [Step.HANG]}, survives=survives)
    first = an_engine(store, clock, launcher, "a")
    await first.acquire()
    first.run()
    await clock.advance_to(START + timedelta(seconds=10))
    (running,) = launcher.running
    ownership = first._lease.granted
    first.kill()
    await store.release(ownership)
    second = an_engine(store, clock, launcher, "b")
    await second.acquire()
    second.run()
    await clock.advance_to(START + timedelta(seconds=20))
    if survives:
        launcher.finish(running)
        await clock.advance_to(START + timedelta(seconds=30))
    run = await run_of(store, 0)
    assert (run.status, run.result, run.attempt) == (status, result, 1)
    assert len(launcher.started) == 1
    await second.stop()
    await store.close()
