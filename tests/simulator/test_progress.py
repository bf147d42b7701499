"""What progress costs in counted steps: it grows no more than linearly with the list and with an absence."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from kron.fronts.embed.scheduler import Scheduler
from kron.testing.simulator import play, simulate
from kron.testing.simulator.compute import DENSE_WITHIN_MS, NEVER, THAWS_WITHIN_MS, ComputeModel
from kron.testing.simulator.judge import FAIR, WITNESSES, steps_of
from kron.testing.simulator.progress import Progress, busy_scenario, measure
from kron.testing.simulator.scenario import Act, Scenario, ScenarioStep, ScenarioTask
from kron.testing.simulator.step_counter import CountedClock
from kron.theory import Kind, Status, Witnesses, check
from kron.theory.checker import costs_of
from kron.theory.environment import EnvironmentClass
from tests.tiers import mostly_slow

pytestmark = pytest.mark.slow

HOUR, YEAR = 3600, 365 * 86_400
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def grown() -> list[Progress]:
    return [measure(tasks) for tasks in (3, 9, 27)]


@pytest.mark.slow
@pytest.mark.parametrize("axiom", ["L1", "L2", "L3"])
def test_steps_grow_no_more_than_linearly_with_the_bits_of_the_list(
    grown: list[Progress], axiom: str
) -> None:
    # The first initialization has everything to find out, which hides what the later ones cost.
    few, some, many = (
        (found.most_expensive if axiom == "L1" else found.least_expensive)[axiom] for found in grown
    )
    first = (some.compute - few.compute) / (some.size - few.size)
    second = (many.compute - some.compute) / (many.size - some.size)
    # Were the growth quadratic, the second would be three times the first.
    assert second <= 1.25 * first


@pytest.mark.slow
def test_one_triple_of_witnesses_does_for_every_size(grown: list[Progress]) -> None:
    assert all(found.conforms for found in grown)
    assert all(found.fitted.a <= WITNESSES.a for found in grown)


@pytest.mark.slow
def test_steps_grow_no_more_than_linearly_with_the_years_of_an_absence() -> None:
    short, middle, long = (measure(1, years * YEAR).most_expensive["L1"].compute for years in (1, 5, 25))
    assert (long - middle) / 20 <= 1.25 * (middle - short) / 4


@pytest.mark.slow
@pytest.mark.parametrize("first", mostly_slow([1, 13]))
def test_random_stories_satisfy_every_axiom_with_the_same_witnesses(first: int) -> None:
    promised = Counter[str]()
    for seed in range(first, first + 3):
        verdict = simulate(seed, environment=FAIR)
        assert verdict.lawful, str(verdict)
        trace = steps_of(verdict.history)
        report = check(trace, WITNESSES, happy=["clock"])
        for axiom in ("EA1", "EA2", "L1", "L2", "L3"):
            assert report[axiom].status in (Status.PASSED, Status.OUT_OF_SCOPE), (
                f"seed {seed}: {report[axiom]}"
            )
        promised.update(cost.axiom for cost in costs_of(trace))
    assert all(promised[axiom] for axiom in ("L1", "L2", "L3")), "stories without promises show nothing"


def test_witnesses_that_are_too_small_are_refused() -> None:
    trace = steps_of(asyncio.run(play(busy_scenario(2, HOUR), compute=ComputeModel(None, 0))))
    report = check(trace, Witnesses(0, 20, 0))
    assert [report[axiom].status for axiom in ("L1", "L2", "L3")] == [Status.FAILED] * 3


def test_the_same_seed_counts_the_same_steps() -> None:
    for kind in (EnvironmentClass.FREEZING, EnvironmentClass.THAWING):
        stories = [simulate(11, environment=kind).history for _ in range(2)]
        assert stories[0].lines == stories[1].lines


# --- what adds nothing -------------------------------------------------------------------------------


class Unpaused(ComputeModel):
    """Compute without pauses: where one falls would depend on the number of steps before it."""

    def next_pause(self) -> tuple[int, int]:
        return NEVER, 0


def steps_in(*does: str, seconds: float = 400) -> int:
    tasks = (ScenarioTask("a", "0 12 * * *", 0, does),)
    waiting = ScenarioStep(Act.WAIT, seconds=seconds)
    scenario = Scenario("UTC", NOON.timestamp() - 30, (ScenarioStep(Act.INIT, tasks=tasks), waiting))
    story = asyncio.run(play(scenario, compute=Unpaused(EnvironmentClass.BURST, 0), folder=None))
    trace = steps_of(story)
    return sum(1 for position in trace for event in position.events if event.kind is Kind.COMPUTE)


def test_io_sleep_and_callbacks_add_nothing_to_compute() -> None:
    """A callback that takes minutes costs what a quicker one does; so does a longer wait."""
    assert steps_in("100s") == steps_in("200s") == steps_in("100s", seconds=700)
    # A callback that ends within the lookahead takes another branch, once.
    assert abs(steps_in("30s") - steps_in("100s")) <= 1


# --- environments ------------------------------------------------------------------------------------

SEEDS = range(2, 4)


@pytest.mark.parametrize("seed", mostly_slow(SEEDS))
def test_safety_holds_where_the_world_freezes_for_ever_longer(seed: int) -> None:
    verdict = simulate(seed, environment="freezing")
    assert verdict.lawful, str(verdict)
    environment = check(steps_of(verdict.history), happy=["clock"]).environment
    assert environment is not None
    assert environment.kind is EnvironmentClass.FREEZING


@pytest.mark.parametrize("seed", mostly_slow(SEEDS))
def test_liveness_holds_where_the_world_always_thaws(seed: int) -> None:
    verdict = simulate(seed, environment="thawing")
    assert verdict.lawful, str(verdict)
    report = check(steps_of(verdict.history), WITNESSES)
    assert report.environment is not None
    assert report.environment.longest_pause <= THAWS_WITHIN_MS
    assert {report[axiom].status for axiom in ("L1", "L2", "L3")} == {Status.PASSED}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_liveness_holds_where_compute_has_a_least_density(seed: int) -> None:
    """Every stretch of U points has a step, so that any T of them have at least T / (U + 1) - 1."""
    verdict = simulate(seed, environment="lower-bounded")
    assert verdict.lawful, str(verdict)
    report = check(steps_of(verdict.history), WITNESSES)
    assert report.environment is not None
    assert report.environment.longest_pause <= DENSE_WITHIN_MS
    assert {report[axiom].status for axiom in ("L1", "L2", "L3")} == {Status.PASSED}


@pytest.mark.parametrize("seed", mostly_slow(SEEDS))
def test_safety_holds_where_compute_comes_in_bursts(seed: int) -> None:
    verdict = simulate(seed, environment="burst")
    assert verdict.lawful, str(verdict)
    environment = check(steps_of(verdict.history), happy=["clock"]).environment
    assert environment is not None
    assert environment.kind is EnvironmentClass.BURST


# --- what they found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [1, 17, 20, 40 * 24])
def test_a_task_starts_once_after_a_freeze_however_many_minutes_it_lost(hours: int) -> None:
    """A program that was stopped and went on (no crash, no clock that was set) lost a thousand periods."""
    calls: list[datetime] = []

    async def live() -> None:
        clock = CountedClock(NOON)

        async def work() -> None:
            calls.append(clock.now())
            await clock.sleep_until(clock.now() + timedelta(seconds=5))

        scheduler = Scheduler("memory://", clock=clock, timezone="UTC")
        await scheduler.initialize([("a", "* * * * *", work, timedelta(0))])
        await clock.advance_to(NOON + timedelta(seconds=30))
        calls.clear()
        clock.freeze(hours * 3_600_000)
        await clock.advance_to(clock.now() + timedelta(seconds=20))
        await scheduler.stop()

    asyncio.run(live())
    assert calls == [NOON + timedelta(hours=hours, seconds=30)]
