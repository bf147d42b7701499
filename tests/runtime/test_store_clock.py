"""A worker whose clock is ahead of the database's starts nothing before its time, and shows why."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.app.query import Query
from kron.app.worker import Worker, WorkerOptions
from kron.clocks.system import SystemClock
from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Overlap
from kron.core.plan.incident import detail_of, moment
from kron.core.plan.record import IncidentKind, IncidentRecord
from kron.core.plan.registration import create
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, Limits, WriteResult
from kron.core.time.instant import rfc3339
from kron.core.time.steady import offset_of
from kron.launchers.callback import CallbackLauncher
from kron.runtime.clock_watch import StoreClock
from kron.runtime.health import Health
from kron.runtime.journal import level_of
from kron.runtime.wakeup import EngineClock
from kron.stores.postgres.store import PostgresStore
from kron.testing import SimulatedClock
from tests.chaos.story import now_ms
from tests.engine_world import with_policy
from tests.waiting import until

SPACE, HOUR_MS, LOOKAHEAD_MS = "runner:clocks", 3_600_000, 60_000
NAMES = [f"job-{number}" for number in range(8)]


class WrongClock(SystemClock):
    """The host's clock, set wrong by some time."""

    def __init__(self, by: timedelta = timedelta(0)) -> None:
        self.by = by

    def now(self) -> datetime:
        return super().now() + self.by

    async def sleep_until(self, instant: datetime) -> None:
        by = self.by
        while self.by == by and self.now() < instant:  # noqa: ASYNC110 - a clock
            await asyncio.sleep(min(0.02, (instant - self.now()).total_seconds()))


class Lines:
    """A journal that keeps its events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        self.events.append(event)

    def settled(self, changes: object, settled: WriteResult, now: int) -> None:
        pass


class Rig:
    """A worker of a database with a clock of its own; `calls` are jobs and how early each was, in seconds."""

    def __init__(self, url: str, clock: SystemClock, *, balance: bool, lookahead_ms: int) -> None:
        self.store = PostgresStore(url, ttl_ms=1_000)
        self.journal, self.calls = Lines(), list[tuple[str, float]]()
        launcher = CallbackLauncher(clock)
        launcher.callbacks.update(dict.fromkeys(NAMES, self._call))
        options = WorkerOptions(tick_ms=50, balance=balance, limits=Limits(lookahead_ms=lookahead_ms))
        self.worker = Worker(
            self.store, clock, {"callback": launcher}, namespace=SPACE, options=options, journal=self.journal
        )

    async def _call(self, launch: Launch) -> None:
        self.calls.append((launch.run.identity, launch.run.nominal_time - datetime.now(UTC).timestamp()))

    def has_called_all(self) -> bool:
        return {name for name, _ in self.calls} == set(NAMES)


@asynccontextmanager
async def working(
    url: str, clock: SystemClock, *, balance: bool = False, lookahead_ms: int = LOOKAHEAD_MS
) -> AsyncIterator[Rig]:
    rig = Rig(url, clock, balance=balance, lookahead_ms=lookahead_ms)
    running = asyncio.create_task(rig.worker.run())
    try:
        yield rig
    finally:
        rig.worker.leave()
        await running
        await rig.store.close()


async def register(url: str) -> None:
    store = PostgresStore(url)
    jobs = [Job(identity=name, schedule=Schedule("* * * * * *")) for name in NAMES]
    created = [create(with_policy(job, deadline=None, overlap=Overlap.ALLOW), now=now_ms()) for job in jobs]
    await store.put(SPACE, created=created, changed=list[Change](), now=now_ms())
    await store.close()


async def assert_why_names_the_clock(wrong: Rig) -> None:
    """Fail unless `why` explains a period that is due with the clock of the worker that waits."""
    query = Query(wrong.store, SPACE, now=now_ms)
    incidents: list[IncidentRecord] = []
    while not incidents:
        found = await wrong.store.incidents(SPACE, NAMES[0], since=0, until=2 * now_ms())
        incidents = [each for each in found if each.kind is IncidentKind.CLOCK_AHEAD]
        await asyncio.sleep(0.01)
    (incident,) = incidents
    by = timedelta(seconds=detail_of(incident)["by_ms"] // 1000)
    assert timedelta(minutes=59) < by <= timedelta(hours=1)
    since, until_at = (moment(at or 0) for at in (incident.from_at, incident.until_at))
    sentence = (
        f"worker {incident.actor} found its clock {by} ahead of the database's at {since}, and planned "
        f"nothing until {until_at} at the latest, so that another worker could take over"
    )
    due = incident.from_at // 1000 + 1
    while now_ms() < 1000 * due:  # noqa: ASYNC110 - a clock
        await asyncio.sleep(0.01)
    told = await query.why(NAMES[0], rfc3339(due))
    assert (told.outcome, told.code) == (None, "overdue")
    assert sentence in told.sentences, told.sentences
    # A leader lets its lease lapse.
    causes = (sentence, f"the lease of worker {incident.actor} expired")
    assert told.headline.startswith(
        tuple(f"due, and not processed by a worker yet: {each}" for each in causes)
    )


@pytest.mark.slow
@pytest.mark.parametrize("balance", [False, True], ids=["leader", "shared"])
async def test_a_worker_that_is_ahead_leaves_its_shards_to_one_whose_clock_agrees(
    postgres_url: str, balance: bool
) -> None:
    await register(postgres_url)
    async with working(postgres_url, WrongClock(timedelta(hours=1)), balance=balance) as wrong:
        await until(lambda: wrong.worker.health.clock_off_ms)
        assert "ahead of the database's" in str(wrong.worker.error)
        await assert_why_names_the_clock(wrong)
        async with working(postgres_url, SystemClock(), balance=balance) as right:
            await until(right.has_called_all)
            assert right.worker.error is None
            taken = await right.store.incidents(SPACE, NAMES[0], since=0, until=2 * now_ms())
            times = [each.until_at or 0 for each in taken if each.kind is IncidentKind.TAKE_OVER]
            assert len(times) >= 2
            assert max(times) <= now_ms(), "no take-over is recorded with a time to come"
    assert wrong.calls == []
    assert wrong.journal.events.count("clock_off") == 1
    assert max(early for _, early in right.calls) <= 0
    assert "clock_behind" not in right.journal.events


@pytest.mark.slow
@pytest.mark.parametrize("balance", [False, True], ids=["leader", "shared"])
async def test_without_another_worker_the_hosts_clock_counts_after_the_lookahead(
    postgres_url: str, balance: bool
) -> None:
    await register(postgres_url)
    by = timedelta(minutes=10)
    async with working(postgres_url, WrongClock(by), balance=balance, lookahead_ms=500) as alone:
        await until(alone.has_called_all)
        assert alone.worker.health.clock_off_ms > 500_000
        runs = await alone.store.runs(SPACE, NAMES[0], limit=1_000)
        held = await alone.store.incidents(SPACE, NAMES[0], since=0, until=2 * now_ms())
        counted = [each for each in held if detail_of(each).get("counted")]
        assert [each.actor for each in counted] == [alone.worker.engine.owner]
        assert counted[0].until_at is not None
        assert all(run.started_at is None or run.started_at >= counted[0].until_at for run in runs)
    assert "clock_off" in alone.journal.events


@pytest.mark.slow
async def test_a_clock_that_is_set_forward_is_compared_before_anything_starts(postgres_url: str) -> None:
    await register(postgres_url)
    clock = WrongClock()
    async with working(postgres_url, clock) as rig:
        await until(rig.has_called_all)
        clock.by = timedelta(hours=1)
        await until(lambda: "clock_off" in rig.journal.events)
        assert rig.worker.health.clock_off_ms > HOUR_MS / 2
    assert max(early for _, early in rig.calls) <= 0


# --- the comparison -------------------------------------------------------------------------------------


def test_a_comparison_holds_for_the_lookahead_and_ends_when_the_clocks_agree() -> None:
    clock, journal, health = SimulatedClock(datetime(2026, 1, 1, tzinfo=UTC)), Lines(), Health()
    time = EngineClock(clock)
    compared = StoreClock(time, journal, health, SPACE)
    for off_ms in (0, LOOKAHEAD_MS, -LOOKAHEAD_MS):
        compared.compare(time.wall(), time.wall() - off_ms)
        assert (compared.holds, health.clock_off_ms, journal.events) == (False, 0, [])
    compared.doubt()
    assert compared.holds
    assert not compared.is_ahead, "the lease is renewed, and with it compared"
    compared.compare(time.wall(), time.wall() - HOUR_MS)
    assert (compared.holds, compared.is_ahead, health.clock_off_ms) == (True, True, HOUR_MS)
    asyncio.run(clock.advance_to(clock.now() + timedelta(milliseconds=LOOKAHEAD_MS - 1)))
    assert compared.holds
    asyncio.run(clock.advance_to(clock.now() + timedelta(milliseconds=1)))
    assert not compared.holds
    compared.compare(time.wall(), time.wall() - HOUR_MS)
    assert not compared.holds
    compared.compare(time.wall(), time.wall() + HOUR_MS)
    assert (compared.holds, health.clock_off_ms) == (False, -HOUR_MS)
    compared.compare(time.wall(), time.wall())
    assert (health.clock_off_ms, journal.events) == (0, ["clock_off", "clock_agrees"])
    compared.compare(time.wall(), time.wall() - HOUR_MS)
    assert compared.is_ahead, "a clock that was right in between is waited for again"
    assert level_of("clock_off") > level_of("clock_agrees")


times = st.integers(0, 10 * HOUR_MS)


@given(st.integers(-10 * HOUR_MS, 10 * HOUR_MS), times, times, times, st.integers(0, HOUR_MS))
def test_a_slow_answer_never_makes_a_right_clock_wrong(
    off: int, asked: int, took: int, returned: int, lookahead_ms: int
) -> None:
    reference = asked + took
    answered = reference + returned
    found = offset_of(asked + off, answered + off, reference, lookahead_ms=lookahead_ms)
    if abs(off) <= lookahead_ms:
        assert found == 0
    elif abs(off) > lookahead_ms + max(took, returned):
        assert found * off > 0
    assert abs(found) <= abs(off)
