"""`kron.Runner`: jobs with every policy inside a program, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kron
from kron.core.errors import ConflictError, InvalidOptionError, OwnedError
from kron.fronts.embed.answer import Run
from kron.fronts.embed.runner import Runner
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, SimulatedClock, kill

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def a_job(identity: str = "job", schedule: str = "* * * * *", **fields: Any) -> kron.Job:
    return kron.Job.from_dict({"identity": identity, "schedule": schedule, **fields})


class Rig:
    """A runner on a file, its clock, and what its functions were called with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = SimulatedClock(NOON + SECOND)
        self.calls: list[Run] = []
        self.runner = self.make()

    def make(self, **options: Any) -> Runner:
        return Runner(self.url, clock=self.clock, **options)

    async def note(self, run: Run) -> None:
        self.calls.append(run)

    def slow(self, seconds: float) -> Callable[[Run], Any]:
        async def work(run: Run) -> None:
            self.calls.append(run)
            await self.clock.sleep_until(self.clock.now() + seconds * SECOND)

        return work

    async def to(self, seconds: float) -> None:
        await self.clock.advance_to(NOON + seconds * SECOND)

    def seen(self) -> list[int]:
        """Return which periods were called, in seconds after noon."""
        return [(run.nominal_time - NOON) // SECOND for run in self.calls]

    async def statuses(self, identity: str = "job") -> list[str]:
        return [f"{run.status} {run.reason}" for run in await self.runner.runs(identity)][::-1]


@pytest.fixture(params=["memory", "file"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/kron.db")
    yield made
    await kill(made.runner)


async def test_jobs_are_added_before_and_after_the_start(rig: Rig) -> None:
    rig.runner.add(a_job("before"), rig.note)
    async with rig.runner:
        await rig.to(60)
        await rig.runner.add(a_job("after", "2 * * * *"), rig.note)
        await rig.to(120)
    assert [(run.job, run.nominal_time - NOON) for run in rig.calls] == [
        ("before", MINUTE),
        ("before", 2 * MINUTE),
        ("after", 2 * MINUTE),
    ]
    await rig.to(600)
    assert len(rig.calls) == 3


async def test_a_function_may_take_the_run_or_nothing(rig: Rig) -> None:
    plain: list[str] = []

    async def takes_nothing() -> None:
        plain.append("called")

    rig.runner.add(a_job("plain"), takes_nothing)
    rig.runner.add(a_job("told"), rig.note)
    async with rig.runner:
        await rig.to(60)
    assert plain == ["called"]
    (run,) = rig.calls
    assert (run.job, run.attempt, run.kind, run.fire_time) == ("told", 1, "period", NOON + MINUTE)
    assert run.outcome is kron.Outcome.EXECUTED


def test_a_function_that_cannot_be_called_is_refused() -> None:
    def yields() -> Iterator[int]:
        yield 1

    async def yields_async() -> AsyncIterator[int]:
        yield 1

    def needs(one: str, two: str) -> str:
        return one + two

    for function, fault in ((yields, "yield"), (yields_async, "yield"), (needs, "needs one, two")):
        with pytest.raises(InvalidOptionError, match=fault):
            Runner("memory://").add(a_job(), function)


async def test_windows_constraints_and_decisions_hold(rig: Rig) -> None:
    job = a_job(
        schedule="0 * * * *",
        window={"mode": "after", "duration": "10m"},
        constraints={"avoid": {"hours": [14]}},
    )
    rig.runner.add(job, rig.note)
    async with rig.runner:
        await rig.clock.advance_to(NOON + timedelta(hours=4))
        expected = [kron.decide(job, NOON + timedelta(hours=hour)).fire_time for hour in (0, 1, 3)]
        assert [run.started_at for run in (await rig.runner.runs("job"))[::-1] if run.started_at] == [
            datetime.fromtimestamp((fire or 0) / 1000, UTC) for fire in expected
        ]
        skipped = await rig.runner.why("job", NOON + timedelta(hours=2))
        assert skipped.outcome is kron.Outcome.UNSCHEDULABLE


@pytest.mark.parametrize(
    ("overlap", "seen", "statuses"),
    [
        pytest.param("forbid", [60, 180], ["SUCCESS due", "SKIPPED active", "STARTED due"], id="forbid"),
        pytest.param("allow", [60, 120, 180], ["SUCCESS due", "STARTED due", "STARTED due"], id="allow"),
        pytest.param("queue", [60, 120], ["SUCCESS due", "STARTED due", "PENDING queued"], id="queue"),
        pytest.param(
            "replace",
            [60, 120, 180],
            ["CANCELLED replaced", "CANCELLED replaced", "STARTED due"],
            id="replace",
        ),
    ],
)
async def test_every_overlap_policy(rig: Rig, overlap: str, seen: list[int], statuses: list[str]) -> None:
    rig.runner.add(a_job(policy={"overlap": overlap, "deadline": None}), rig.slow(90))
    await rig.runner.start()
    await rig.to(181)
    assert (rig.seen(), await rig.statuses()) == (seen, statuses)


async def test_a_changed_job_follows_its_new_definition(rig: Rig) -> None:
    rig.runner.add(a_job(), rig.note)
    async with rig.runner:
        await rig.to(60)
        await rig.runner.add(a_job(schedule="5 * * * *"), rig.note)
        await rig.to(300)
    assert rig.seen() == [60, 300]


async def test_a_removed_job_does_not_start_and_its_runs_stay(rig: Rig) -> None:
    rig.runner.add(a_job(), rig.note)
    async with rig.runner:
        await rig.to(60)
        await rig.runner.remove("job")
        await rig.to(300)
        assert await rig.statuses() == ["SUCCESS due"]
    assert rig.seen() == [60]


@pytest.mark.parametrize(
    ("catchup", "deadline", "starts"),
    [("all", None, 4), ("once", None, 1), ("none", None, 0), ("spread", None, 4), ("all", "0s", 0)],
)
async def test_resuming_tells_how_many_start(
    rig: Rig, catchup: str, deadline: str | None, starts: int
) -> None:
    policy = {"catchup": catchup, "deadline": deadline, "overlap": "allow"}
    rig.runner.add(a_job(policy=policy), rig.note)
    async with rig.runner:
        await rig.to(60)
        await rig.runner.pause("job", because="for the test")
        await rig.to(330)
        assert rig.seen() == [60]
        assert await rig.runner.preview_resume("job") == starts
        assert await rig.runner.preview_resume("job") == starts
        assert await rig.runner.resume("job") == starts
        assert await rig.runner.preview_resume("job") == 0 or catchup == "spread"
        await rig.to(359 if catchup != "spread" else 395)
    again = [nominal for nominal in rig.seen() if nominal not in (60, 360)]
    assert len(again) == starts


async def test_a_changed_suspend_counts_after_a_restart_and_an_edit_lifts_it(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/kron.db")
    policy = {"deadline": None, "concurrency": "allow"}
    rig.runner.add(a_job(policy=policy), rig.note)
    async with rig.runner:
        await rig.to(60)
    rig.runner = rig.make()
    rig.runner.add(a_job(policy={**policy, "suspend": True}), rig.note)
    async with rig.runner:
        await rig.to(200)
        assert rig.seen() == [60]
        assert (await rig.runner.why("job", NOON + 2 * MINUTE)).code == "suspended"
        assert await rig.runner.resume("job") == 0
        await rig.to(250)
        assert rig.seen() == [60]
        await rig.runner.add(a_job(policy=policy), rig.note)
        await rig.to(310)
    assert rig.seen() == [60, 120, 180, 240, 300]
    assert [str(run.reason) for run in rig.calls] == ["due", *["caught_up"] * 3, "due"]


async def test_a_job_added_suspended_runs_once_its_definition_no_longer_suspends_it(rig: Rig) -> None:
    policy = {"deadline": None, "catchup": "none"}
    rig.runner.add(a_job(policy={**policy, "suspend": True}), rig.note)
    async with rig.runner:
        await rig.to(130)
        await rig.runner.add(a_job(policy=policy), rig.note)
        await rig.to(190)
        assert await rig.statuses() == ["SUCCESS due"]


async def test_a_jitter_beyond_the_lookahead_is_refused_with_the_field_the_value_and_the_remedy(
    rig: Rig,
) -> None:
    rig.runner.add(a_job(policy={"jitter_ms": 60_000}), rig.note)
    with pytest.raises(InvalidOptionError, match=r'policy.jitter_ms "60001".*use at most 60000'):
        rig.runner.add(a_job(policy={"jitter_ms": 60_001}), rig.note)


async def test_a_pause_may_end_at_an_instant(rig: Rig) -> None:
    rig.runner.add(a_job(), rig.note)
    async with rig.runner:
        await rig.runner.pause("job", because="the target is down", until=NOON + 90 * SECOND)
        await rig.to(80)
        assert (await rig.runner.why("job", NOON + MINUTE)).code == "paused"
        await rig.to(130)
        assert rig.seen() == [120]
        with pytest.raises(InvalidOptionError, match="must lie in the future"):
            await rig.runner.pause("job", until=NOON)


async def test_run_now_is_a_run_beside_the_schedule_and_one_request_runs_once(rig: Rig) -> None:
    rig.runner.add(a_job(schedule="0 0 1 1 *"), rig.note)
    async with rig.runner:
        key = await rig.runner.run_now("job", request="mine")
        assert await rig.runner.run_now("job", request="mine") == key
        assert await rig.runner.run_now("job") != key
        await rig.to(5)
        assert sorted(run.kind for run in rig.calls) == ["manual", "manual"]
        assert key in {run.key for run in rig.calls}


async def test_why_has_the_chain_of_facts(rig: Rig) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    rig.runner.add(a_job(policy={"retry_delay": "10s", "overlap": "allow", "deadline": None}), fails)
    async with rig.runner:
        await rig.to(75)
        answer = await rig.runner.why("job", NOON + MINUTE)
        codes = [fact.code for fact in answer.facts]
        assert codes == ["schedule", "nominal_time", "recorded", "attempt", "started", "ended", "retry"]
        to_come = await rig.runner.why("job", NOON + 10 * MINUTE)
        assert to_come.facts[-1].code == "to_come"
        with pytest.raises(InvalidOptionError, match="there is no such job"):
            await rig.runner.why("nobody", NOON)


async def test_why_has_datetimes_and_is_the_latest_period_by_default(rig: Rig) -> None:
    rig.runner.add(a_job(timezone="Europe/Berlin"), rig.note)
    async with rig.runner:
        await rig.to(150)
        answer = await rig.runner.why("job")
        assert answer.nominal_time == NOON + 2 * MINUTE
        assert answer.outcome is kron.Outcome.EXECUTED
        assert answer.headline
        instants = [fact.at for fact in answer.facts if fact.at is not None]
        assert NOON + 2 * MINUTE in instants
        assert {instant.tzinfo for instant in [answer.nominal_time, *instants]} == {UTC}
        wall = await rig.runner.why("job", datetime(2026, 1, 1, 13, 1))
        assert wall.nominal_time == NOON + MINUTE
        assert wall.sentences == [fact.sentence for fact in wall.facts]
        gap = await rig.runner.why("job", datetime(2026, 3, 29, 2, 30))
        assert (gap.nominal_time, gap.code) == (None, "dst_gap")


async def test_the_problem_of_a_store_that_fails_can_be_read() -> None:
    clock = SimulatedClock(NOON + SECOND)
    store = FaultyStore(SqliteStore(), clock)
    runner = Runner(store, clock=clock)
    runner.job("* * * * *", identity="job", deadline=None)(print)
    assert runner.error is None
    async with runner:
        await clock.advance_to(NOON + 2 * SECOND)
        assert runner.error is None
        store.then("settle", *[Fault.BEFORE] * 3)
        await clock.advance_to(NOON + MINUTE)
        assert "injected fault" in str(runner.error)
        await clock.advance_to(NOON + 2 * MINUTE)
        assert runner.error is None
    await store.close()


async def test_jobs_are_listed_with_the_next_start_that_every_front_gives(rig: Rig) -> None:
    window = a_job("b", "30 * * * *", window={"mode": "after", "duration": "10m"})
    never = a_job("c", "0 13 * * *", constraints={"avoid": {"hours": [13]}})
    for job in (window, a_job("a"), never):
        rig.runner.add(job, rig.slow(90))
    await rig.runner.start()
    await rig.to(61)
    await rig.runner.pause("c", because="for the test", until=NOON + timedelta(days=1))
    first, second, third = await rig.runner.jobs()
    starts = [await rig.runner.next_start(name) for name in "abc"]
    fire_time = kron.decide(window, NOON + 30 * MINUTE).fire_time
    assert [first.identity, second.identity, third.identity] == ["a", "b", "c"]
    for listed, start in zip((first, second, third), starts, strict=True):
        assert listed.next_nominal_at == start.next_nominal_at
        assert (listed.next_start_at, listed.passed_over) == (start.next_start_at, start.passed_over)
    assert (first.running, first.last_start_at, first.next_start_at) == (1, NOON + MINUTE, NOON + 2 * MINUTE)
    assert second.next_nominal_at == NOON + 30 * MINUTE
    assert second.next_start_at == datetime.fromtimestamp((fire_time or 0) / 1000, UTC)
    assert second.definition == window
    assert (third.is_paused, third.paused_because) == (True, "for the test")
    assert (third.paused_until, third.next_start_at) == (NOON + timedelta(days=1), None)


async def test_a_stored_job_without_a_function_is_logged_and_listed_as_such(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/kron.db")
    stored = a_job("old", "0 5 * * *", policy={"deadline": "1m"})
    rig.runner.add(stored, rig.note)
    async with rig.runner:
        pass
    rig.runner = rig.make()
    rig.runner.add(a_job("new"), rig.note)
    async with rig.runner:
        listed = await rig.runner.jobs()
        assert "1 stored jobs have no function here; add or remove() them: 'old'" in caplog.text
        await rig.runner.remove("old")
        assert [job.identity for job in await rig.runner.jobs()] == ["new"]
    assert [(job.identity, job.has_function) for job in listed] == [("new", True), ("old", False)]
    assert listed[1].definition.to_dict() == stored.to_dict()


async def test_the_deadline_and_pause_after_failures_hold(rig: Rig) -> None:
    async def fails() -> None:
        raise ValueError("broken")

    rig.runner.add(a_job(policy={"pause_after_failures": 2}), fails)
    async with rig.runner:
        await rig.to(600)
        assert await rig.statuses() == ["FAILED due", "FAILED due"]
        answer = await rig.runner.why("job", NOON + 5 * MINUTE)
        assert answer.facts[-1].code == "paused"


async def test_what_was_stored_is_there_after_a_crash(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/kron.db")
    policy = {"on_orphan": "restart", "overlap": "queue", "deadline": None}
    rig.runner.add(a_job(policy=policy), rig.slow(10_000))
    await rig.runner.start()
    await rig.to(61)
    await kill(rig.runner)
    rig.runner = rig.make()
    rig.runner.add(a_job(policy=policy), rig.note)
    async with rig.runner:
        await rig.to(62)
        assert await rig.statuses() == ["SUCCESS restarted"]
    assert [run.attempt for run in rig.calls] == [1, 2]


async def test_at_most_so_many_functions_run_at_once(rig: Rig) -> None:
    rig.runner = rig.make(max_calls=2)
    for name in "abcd":
        rig.runner.add(a_job(name), rig.slow(10))
    async with rig.runner:
        await rig.to(65)
        assert len(rig.calls) == 2
        await rig.to(75)
        assert len(rig.calls) == 4
        await rig.to(85)


async def test_calls_at_the_wrong_moment_are_refused(rig: Rig) -> None:
    rig.runner.add(a_job(), rig.note)
    for call in (rig.runner.pause("job"), rig.runner.resume("job"), rig.runner.run_now("job")):
        with pytest.raises(ConflictError, match="not running"):
            await call
    await rig.runner.stop()
    async with rig.runner:
        with pytest.raises(ConflictError, match="already running"):
            await rig.runner.start()
    await rig.runner.stop()


async def test_a_second_runner_with_the_same_state_is_refused(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/kron.db")
    async with rig.runner:
        with pytest.raises(OwnedError):
            await rig.make().start()
        async with rig.make(name="other") as other:
            other.add(a_job(), rig.note)


async def test_a_function_cannot_wait_for_stop(rig: Rig) -> None:
    refused: list[str] = []

    async def stops() -> None:
        try:
            await rig.runner.stop()
        except ConflictError as error:
            refused.append(str(error))

    rig.runner.add(a_job(), stops)
    async with rig.runner:
        await rig.to(60)
    assert len(refused) == 1


async def test_killing_an_engine_drops_its_locks(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/kron.db")
    rig.runner.add(a_job(), rig.note)
    await rig.runner.start()
    engine = rig.runner._wiring.engine
    await kill(engine)
    assert engine.health.state == "killed"
    async with rig.make():
        await asyncio.sleep(0)
    await kill(rig.runner)


async def test_a_job_that_is_removed_and_added_again_is_new(rig: Rig) -> None:
    """It is not paused, and it runs as often as its policy says."""
    job = a_job(policy={"remaining": 1})
    rig.runner.add(job, rig.note)
    async with rig.runner:
        await rig.to(150)
        await rig.runner.pause("job")
        await rig.runner.remove("job")
        with pytest.raises(InvalidOptionError, match="there is no such job"):
            await rig.runner.run_now("job")
        await rig.runner.add(job, rig.note)
        await rig.to(330)
    assert rig.seen() == [60, 180]
