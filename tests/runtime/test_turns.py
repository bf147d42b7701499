"""Tenants take turns: the due jobs of one do not wait until all those of another have started."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import StoreError
from kron.core.job.job import Job, schedule_prefix
from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord, RunStatus
from kron.core.plan.registration import create
from kron.core.plan.report import Launch, RunEvent, RunReport
from kron.core.plan.step import MAX_OPEN_RUNS, Change, JobState, LoadResult, Ownership, WriteResult
from kron.launchers.callback import CallbackLauncher
from kron.launchers.launch import user_of
from kron.ports import ReportSink, Store
from kron.runtime import turns
from kron.runtime.engine import BATCH, FIRST_BATCH, Engine
from kron.runtime.journal import LogJournal
from kron.runtime.turns import (
    FIRST_STEP,
    JOBS_PER_S,
    MAX_READ_RUNS,
    MAX_READ_TEXT,
    MAX_STEP,
    MIN_STEP,
    QUANTUM,
    RECOUNT_MS,
    STEP_S,
    LoadLimit,
    OpenLimit,
    Turns,
)
from kron.stores.sqlite.store import SqliteStore
from kron.testing import ScriptedLauncher, Step
from tests.engine_stage import MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on
from tests.waiting import until

AFTER_NOON = 1000 * NOON_S + 1
MANY = 3 * BATCH
# Every two minutes a window of a day, whose constraints reject nearly every time of it.
COSTLY = {
    "schedule": "*/2 * * * *",
    "window": {"mode": "after", "duration": "24h"},
    "distribution": {"name": "skewEarly", "shape": 50},
    "constraints": {"only": {"between": ["23:59-23:59"]}},
}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """In memory: that every store finds the jobs of other tenants is part of the contract."""
    made = SqliteStore()
    yield made
    await made.close()


async def register(store: Store, user: str, jobs: Sequence[Job], now: int) -> None:
    launcher = json.dumps({"kind": "callback", **({"user_id": user} if user else {})})
    created = [create(job, now=now, launcher=launcher, kind="callback") for job in jobs]
    await store.put(SPACE, created=created, changed=[], now=now)


async def order_of_starts(stage: Stage) -> list[str]:
    await stage.run()
    await stage.until(NOON + MINUTE + SECOND)
    return [start.identity.split()[0] for start in stage.launcher.started]


@pytest.mark.slow
async def test_the_jobs_of_a_tenant_start_before_all_due_ones_of_another(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        await register(store, "bad", [job_of(f"bad {n}") for n in range(MANY)], stage.now)
        # As many as make it wait for its share, too.
        good = 3 * QUANTUM
        await register(store, "good", [job_of(f"good {n}") for n in range(good)], stage.now)
        names = await order_of_starts(stage)
        assert (names.count("bad"), names.count("good")) == (MANY, good)
        # Before a whole batch of the others, and then in turn.
        assert names.index("good") == FIRST_BATCH
        last = len(names) - names[::-1].index("good")
        assert last <= FIRST_BATCH + FIRST_STEP + 2 * good


@pytest.mark.slow
async def test_jobs_without_a_user_are_those_of_one_tenant(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        await register(store, "", [job_of(f"none {n}") for n in range(MANY)], stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        names = await order_of_starts(stage)
        assert names.index("good") <= FIRST_BATCH


@pytest.mark.slow
async def test_tenants_together_do_not_keep_another_from_starting(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        for user in range(5):
            jobs = [job_of(f"bad {user} {n}") for n in range(MANY // 5)]
            await register(store, f"bad {user}", jobs, stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        names = await order_of_starts(stage)
        assert len(names) == MANY // 5 * 5 + 1
        assert names.index("good") <= 5 * QUANTUM


class Registering(ScriptedLauncher):
    """Registers a job while a burst starts."""

    register: Callable[[], Coroutine[None, None, None]] | None = None
    registering: asyncio.Task[None] | None = None

    def start(self, launch: Launch, report: ReportSink) -> None:
        super().start(launch, report)
        if len(self.started) == FIRST_BATCH and self.register is not None:
            self.registering = asyncio.create_task(self.register())


@pytest.mark.slow
async def test_a_job_that_becomes_due_during_a_burst_does_not_wait_for_its_end(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.launcher = launcher = Registering(stage.clock)
        stage.engine = stage.make_engine()
        stage.engine.tenant_of = user_of
        await register(store, "bad", [job_of(f"bad {n}") for n in range(MANY)], stage.now)
        await register(store, "good", [job_of("later", "0 0 1 1 *")], stage.now)
        # Its first period is the one that the burst starts.
        launcher.register = partial(register, store, "good", [job_of("good")], AFTER_NOON)
        names = await order_of_starts(stage)
        assert names.count("bad") == MANY
        assert names.index("good") <= 2 * BATCH + FIRST_BATCH


@pytest.mark.slow
async def test_an_end_that_is_not_written_yet_does_not_block_the_next_period(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        jobs = [job_of(f"bad {n}") for n in range(MANY)]
        await register(store, "bad", jobs, stage.now)
        await register(store, "good", [job_of("good", overlap="skip")], stage.now)
        for name in [*(job.identity for job in jobs), "good"]:
            stage.launcher.then(name, Step.HANG)
        await order_of_starts(stage)
        # All end at once, the last of them is the other tenant's, and all are due again.
        stage.clock.jump_to(NOON + 2 * MINUTE + SECOND)
        for run in sorted(stage.launcher.running, key=lambda run: run.identity):
            stage.engine.report(RunReport(run.identity, run.key, 1, RunEvent.SUCCESS, stage.now))
        await stage.advance(SECOND)
        assert await stage.seen("good") == ["SUCCESS due", "SUCCESS due"]
        assert await stage.seen("bad 7") == ["SUCCESS due", "SUCCESS due"]


class Ending(ScriptedLauncher):
    """Ends the run of a job while a burst starts, a second after it began."""

    at_first: Callable[[], None] | None = None

    def start(self, launch: Launch, report: ReportSink) -> None:
        super().start(launch, report)
        if self.at_first is not None:
            end, self.at_first = self.at_first, None
            end()


@pytest.mark.parametrize("owner", ["bad", "bad/er", "100 % bad"])
async def test_an_end_during_a_burst_does_not_wait_for_the_end_of_the_burst(store: Store, owner: str) -> None:
    async with stage_on(store) as stage:
        stage.launcher = launcher = Ending(stage.clock)
        stage.engine = stage.make_engine()
        stage.engine.tenant_of = user_of
        await register(store, "good", [job_of("good/x", "0,1 * * * * *", overlap="queue")], stage.now)
        first = [f"{schedule_prefix(owner)}first {n}" for n in range(MANY)]
        await register(store, owner, [job_of(name, "1 0 12 * * *") for name in first], stage.now)
        for name in [*first, "good/x"]:
            launcher.then(name, Step.HANG)
        await stage.run()
        await stage.until(NOON + 2 * SECOND)
        names = [f"{schedule_prefix(owner)}{n}" for n in range(MANY)]
        await register(store, owner, [job_of(name, "0 1 * * * *") for name in names], stage.now)

        def end() -> None:
            stage.clock.jump_to(NOON + MINUTE + SECOND // 2)
            for run in sorted(launcher.running, key=lambda run: run.identity):
                stage.engine.report(RunReport(run.identity, run.key, 1, RunEvent.SUCCESS, stage.now))

        # The next periods of the job wait for the end of its first run; all ends of the others come before.
        launcher.at_first = end
        await stage.until(NOON + MINUTE + 2 * SECOND)
        started = [start.identity for start in launcher.started if start.identity not in first]
        assert len([name for name in started if name != "good/x"]) == MANY
        assert started.index("good/x", 1) <= FIRST_BATCH + FIRST_STEP


@pytest.mark.slow
async def test_a_store_that_fails_between_two_batches_loses_no_start(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed when the search for other tenants' jobs fails is started all the same, once."""
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        await register(store, "bad", [job_of(f"bad {n}") for n in range(MANY)], stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        searches = 0
        search = store.due_besides

        async def fail(*values: Any, **named: Any) -> list[str]:
            nonlocal searches
            searches += 1
            if searches == 4:
                raise StoreError("it is down")
            return await search(*values, **named)

        monkeypatch.setattr(store, "due_besides", fail)
        await order_of_starts(stage)
        await stage.advance(10 * SECOND)
        names = [start.identity for start in stage.launcher.started]
        assert searches > 4
        assert len(names) == len(set(names)) == MANY + 1


@pytest.mark.slow
async def test_a_batch_that_cannot_be_written_starts_nothing_that_another_tenant_had_started_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is read before jobs of others are started, and some of these may be in it."""
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        for part in range(12):
            await register(store, "bad", [job_of(f"bad {part} {n}") for n in range(200)], stage.now)
            await register(store, "good", [job_of(f"good {part} {n}") for n in range(50)], stage.now)
        written: set[str] = set()
        settle, has_failed = store.settle, False

        async def fail(ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
            nonlocal has_failed
            names = {change.job.identity for change in changes}
            if names & written and not has_failed:
                has_failed = True
                raise StoreError("it is down")
            written.update(names)
            return await settle(ownership, changes, now=now)

        monkeypatch.setattr(store, "settle", fail)
        await order_of_starts(stage)
        await stage.advance(10 * SECOND)
        names = [start.identity for start in stage.launcher.started]
        assert len(names) == len(set(names))
        assert set(names) == written


class Commits(LogJournal):
    """A journal of the jobs in each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[str]] = []

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        self.commits.append([change.job.identity for change in changes])


@pytest.mark.slow
async def test_jobs_that_are_costly_to_plan_do_not_delay_another_tenants(store: Store) -> None:
    clock, journal = SystemClock(), Commits()
    engine = Engine(
        store, clock, {"callback": CallbackLauncher(clock)}, namespace=SPACE, owner="me", journal=journal
    )
    engine.tenant_of = user_of
    now = engine.now()
    costly = [Job.from_dict({**COSTLY, "identity": f"bad {n}"}) for n in range(8)]
    await register(store, "bad", costly, now)
    # It is due, but not for as long as the windows of the others have been open.
    await register(store, "good", [job_of("good", "* * * * * *")], now - 2_000)
    await engine.acquire()
    engine.run()

    def planned() -> list[str]:
        return [name for names in journal.commits for name in names]

    await until(lambda: {job.identity for job in costly} <= set(planned()) and "good" in planned())
    engine.kill()
    names = planned()
    assert names.index("good") < max(names.index(job.identity) for job in costly)


def a_record(user: str) -> JobRecord:
    return create(job_of(user or "none"), now=0, launcher=json.dumps({"user_id": user}))


def test_a_tenant_is_over_its_share_by_its_jobs_or_by_their_time() -> None:
    turns = Turns(user_of)
    assert turns.over_share() == []
    turns.count([Change(a_record("ann"), 1)] * QUANTUM)
    turns.count([Change(a_record("bob"), 1)] * (QUANTUM - 1))
    assert turns.over_share() == ["ann"]
    turns.spend(a_record("cat"), (QUANTUM - 1) / JOBS_PER_S)
    assert turns.over_share() == ["ann"], "a millisecond counts as ten jobs"
    turns.spend(a_record("bob"), 1.0)
    assert turns.over_share() == ["bob"]


def test_a_batch_is_as_large_as_its_time_allows() -> None:
    turns = Turns(user_of)
    assert turns.step == FIRST_STEP
    turns.took(FIRST_STEP, STEP_S / 10)
    assert turns.step == 2 * FIRST_STEP
    turns.took(2 * FIRST_STEP, STEP_S / 10)
    turns.took(MAX_STEP, 0.0)
    assert turns.step == MAX_STEP
    turns.took(MAX_STEP, 4 * STEP_S)
    assert turns.step == MAX_STEP // 4
    # The last batch of a burst, which is small, says nothing.
    turns.took(3, STEP_S)
    assert turns.step == MAX_STEP // 4
    turns.took(MAX_STEP // 4, 100 * STEP_S)
    assert turns.step == MIN_STEP


def test_the_search_for_jobs_of_others_takes_a_bounded_part_of_the_time() -> None:
    turns = Turns(user_of)
    assert turns.may_search(0.0)
    turns.searched(10.0, 11.0)
    assert not turns.may_search(14.9)
    assert turns.may_search(15.0)


# --- open runs -------------------------------------------------------------------------------------


def skipping(stage: Stage, most: int) -> None:
    stage.engine.tenant_of = user_of
    stage.engine.limits = stage.engine.limits._replace(open_per_tenant=most)


SKIPPED = "SKIPPED open_limit"


async def test_a_tenants_open_runs_are_limited_and_those_of_others_are_not(store: Store) -> None:
    async with stage_on(store) as stage:
        skipping(stage, 5)
        await register(store, "bad", [job_of("bad 1"), job_of("bad 2")], stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        await register(store, "", [job_of("none")], stage.now)
        for name in ("bad 1", "bad 2", "good", "none"):
            stage.launcher.then(name, *[Step.HANG] * 9)
        await stage.run()
        await stage.until(NOON + 4 * MINUTE + SECOND)
        bad = await stage.seen("bad 1"), await stage.seen("bad 2")
        assert sorted(map(len, bad)) == [4, 4]
        both = [*bad[0], *bad[1]]
        # Three were open at the first check of the third minute, so one of two was the last.
        assert (both.count("STARTED due"), both.count(SKIPPED)) == (5, 3)
        assert await stage.seen("good") == await stage.seen("none") == ["STARTED due"] * 4


async def test_ends_make_room_for_more_open_runs(store: Store) -> None:
    async with stage_on(store) as stage:
        skipping(stage, 2)
        await register(store, "ann", [job_of("ann")], stage.now)
        stage.launcher.then("ann", *[Step.HANG] * 9)
        await stage.run()
        await stage.until(NOON + 3 * MINUTE + SECOND)
        assert await stage.seen("ann") == ["STARTED due", "STARTED due", SKIPPED]
        await stage.report(stage.launcher.running[0], RunEvent.SUCCESS)
        await stage.until(NOON + 4 * MINUTE + SECOND)
        assert await stage.seen("ann") == ["SUCCESS due", "STARTED due", SKIPPED, "STARTED due"]


async def test_a_job_without_an_open_run_always_starts_one(store: Store) -> None:
    async with stage_on(store) as stage:
        skipping(stage, 1)
        await register(store, "ann", [job_of("ann 1"), job_of("ann 2"), job_of("ann 3")], stage.now)
        for number in (1, 2, 3):
            stage.launcher.then(f"ann {number}", *[Step.HANG] * 9)
        await stage.run()
        await stage.until(NOON + 2 * MINUTE + SECOND)
        for number in (1, 2, 3):
            assert await stage.seen(f"ann {number}") == ["STARTED due", SKIPPED]


@pytest.mark.parametrize(
    ("overlap", "second"),
    [
        ("allow", SKIPPED),
        # The run that is active is the reason: the limit changes nothing for it.
        ("skip", "SKIPPED active"),
        ("queue", SKIPPED),
        ("buffer_one", SKIPPED),
        # What runs is not ended for a period that may not start.
        ("replace", SKIPPED),
    ],
)
async def test_every_overlap_policy_keeps_the_limit(overlap: str, second: str, store: Store) -> None:
    async with stage_on(store) as stage:
        skipping(stage, 1)
        await register(store, "ann", [job_of("ann", overlap=overlap)], stage.now)
        stage.launcher.then("ann", Step.HANG)
        await stage.run()
        await stage.until(NOON + 2 * MINUTE + SECOND)
        assert await stage.seen("ann") == ["STARTED due", second]


async def test_planned_windows_and_retries_keep_their_runs(store: Store) -> None:
    """Only runs that are not open yet are skipped."""
    window = {"window": {"mode": "after", "duration": "90s"}, "seed": {"strategy": "stable", "salt": "9"}}
    job = Job.from_dict({**job_of("windows").to_dict(), **window})
    async with stage_on(store) as stage:
        skipping(stage, 1)
        await register(store, "ann", [job, job_of("retries", retry_delay="10s")], stage.now)
        stage.launcher.then("retries", Step.FAIL)
        await stage.run()
        await stage.until(NOON + MINUTE + 15 * SECOND)
        assert await stage.seen("retries") == ["SUCCESS retry"]
        await stage.until(NOON + 4 * MINUTE)
        seen = await stage.seen("windows")
        assert SKIPPED in seen
        assert "SUCCESS due" in seen
        states = await store.cases(SPACE, ["windows"])
        assert len(states[0].runs) <= 1


def a_state(user: str, *, runs: int = 1) -> JobState:
    job = a_record(user)
    run = RunRecord("k", job.identity, 0, 0, RunStatus.STARTED, Reason.DUE, 0, 1, is_open=1)
    return JobState(job._replace(plan_at=0), [run] * runs)


def test_open_runs_are_counted_rarely_and_again_before_a_tenant_is_full() -> None:
    limit = OpenLimit(user_of, 10)
    busy = [a_state("ann")] * 2
    assert limit.unsure(busy, 0) == ["ann"]
    idle = a_state("ann", runs=0), a_state("")._replace(job=a_state("ann").job._replace(plan_at=1))
    assert limit.unsure([*idle, a_state("")], 0) == []
    limit.count({"ann": 2}, 0)
    assert limit.unsure(busy, 5_000) == []
    assert [state.room for state in limit.marked(busy, 5_000)] == [8, 7]
    limit.marked(busy, 5_000)
    # It may have six now: more than half of ten.
    assert limit.unsure(busy, 5_000) == ["ann"]
    limit.count({"ann": 9}, 5_000)
    assert limit.unsure(busy, 5_000 + RECOUNT_MS - 1) == []
    assert [state.room for state in limit.marked(busy, 5_000)] == [1, 0]
    assert limit.unsure(busy, 5_000 + RECOUNT_MS) == ["ann"]
    limit.count({"ann": 3}, 6_000)
    assert [state.room for state in limit.marked(busy, 6_000)] == [7, 6]


def test_a_job_with_thousands_of_open_runs_is_full_whatever_its_tenant_has() -> None:
    limit = OpenLimit(user_of, 10 * MAX_OPEN_RUNS)
    states = [a_state("ann", runs=MAX_OPEN_RUNS - 1), a_state("ann", runs=MAX_OPEN_RUNS)]
    assert [state.room for state in limit.marked(states, 0)] == [1, 0]


@pytest.mark.parametrize(
    "fields",
    [
        {"window": {"mode": "before", "duration": "16m"}},
        {"window": {"mode": "after", "duration": "16m"}},
        {"window": {"mode": "around", "duration": "16m"}},
        {"policy": {"jitter_ms": 480_000}},
    ],
    ids=["before", "after", "around", "jitter"],
)
async def test_periods_that_wait_for_their_times_are_open_runs(fields: dict[str, Any], store: Store) -> None:
    """Hundreds of periods of each job are near: the first takes the room of all, then each has one."""
    common = {"schedule": "* * * * * *", **fields}
    jobs = [Job.from_dict({"identity": f"bad {number}", **common}) for number in range(5)]
    async with stage_on(store) as stage:
        skipping(stage, 300)
        await register(store, "bad", jobs, stage.now)
        await stage.run()
        await stage.until(NOON + 2 * SECOND)
        opened = (await store.open_by_user(SPACE, ["bad"]))["bad"]
        assert 200 < opened <= 300 + len(jobs)
        held = [len(state.runs) for state in await store.cases(SPACE, [job.identity for job in jobs])]
        assert min(held) <= 1


def test_a_batch_reads_fewer_jobs_where_each_has_many_open_runs() -> None:
    limit = LoadLimit()
    assert limit.fitting(MAX_STEP) == MAX_STEP
    limit.saw([a_state("ann", runs=1_000)] * 64)
    assert limit.fitting(MAX_STEP) == MAX_READ_RUNS // 1_000
    limit.saw([a_state("ann", runs=2 * MAX_READ_RUNS)])
    assert limit.fitting(MAX_STEP) == 1
    sizes = []
    for _ in range(11):
        limit.saw([a_state("ann")])
        sizes.append(limit.fitting(MAX_STEP))
    assert sizes == [2, 4, 8, 16, 32, 64, 128, 256, 512, MAX_STEP, MAX_STEP]


def test_a_batch_reads_fewer_jobs_where_each_has_a_long_definition() -> None:
    limit, state = LoadLimit(), a_state("ann")
    long = state._replace(job=state.job._replace(profile="x" * (MAX_READ_TEXT // 32)))
    limit.saw([long] * 64)
    assert limit.fitting(MAX_STEP) == 31
    edited, again = state._replace(definitions={1: "x" * (MAX_READ_TEXT // 32)}), LoadLimit()
    again.saw([edited] * 64)
    assert again.fitting(MAX_STEP) == 31


class CountingStore(SqliteStore):
    """Counts the open runs that are read for reports."""

    read = 0

    async def load(self, *words: Any, **options: Any) -> LoadResult:
        loaded = await super().load(*words, **options)
        if options.get("named"):
            self.read += sum(len(state.runs) for state in loaded.cases)
        return loaded


async def test_the_open_runs_of_a_job_are_read_once_for_all_their_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch reads few of the jobs, and then writes all that happened to their runs."""
    monkeypatch.setattr(turns, "MAX_READ_RUNS", 60)
    store = CountingStore()
    async with stage_on(store) as stage:
        jobs = [job_of(f"job {number}", "* * * * * *") for number in range(6)]
        await stage.add(*jobs, script=[Step.LOSE] * 30)
        await stage.run()
        await stage.until(NOON + 30 * SECOND)
        held = sorted(stage.launcher.running, key=lambda run: run.nominal_time)
        assert len(held) == 6 * 30
        # From the first reports on, a batch reads fewer of them.
        for ended in held[:6], held[6:]:
            store.read = 0
            for run in ended:
                stage.engine.report(
                    RunReport(run.identity, run.key, run.attempt, RunEvent.SUCCESS, stage.now)
                )
            await stage.advance(timedelta(0))
        assert not any(state.runs for state in await store.cases(SPACE, [job.identity for job in jobs]))
        assert store.read <= 2 * len(held)
    await store.close()
