"""Random stories from seeds: stops, crashes, edits, retries and failing stores; a failure names its seed."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from kron.core.errors import KronError
from kron.theory import Trace, check
from tests.embed.stage import Failing, Given, Stage

SEEDS = range(40)
MAX_ACTS = 25
AXIOMS = ("S1", "S2", "S3", "S4", "S5", "S6", "L1", "L2", "L3", "EA3", "EA6", "EA7")
# As long as a store that fails a few times is asked again.
MAX_LATE_MS = 20_000
CRONS = ("* * * * *", "*  * * * *", "0,1 * * * *", "1,3 * * * *", "2 * * * *", "0-10 * * * *", "30 12 * * *")
STEPS = ("ok", "ok", "fail", "30s", "fail 30s", "90s", "fail 70s", "200s", "hang")
FAULTS = ("before", "after", "load")
PAUSES = (0.001, 1, 5, 20, 30, 60, 61, 119, 180, 400)


def a_list(chance: Random) -> list[Given]:
    names = [name for name in "abc" if chance.random() < 0.8]
    return [
        Given(
            name,
            chance.choice(CRONS),
            chance.choice((0, 0.0005, 1, 30, 60, 200)),
            ", ".join(chance.choices(STEPS, k=chance.randrange(5))),
        )
        for name in names
    ]


async def random_story(seed: int) -> Stage:
    """Play a story and return the stage at its end; its trace can be judged."""
    chance, store = Random(seed), Failing()
    stage = Stage(lambda: store, free=lambda: None)
    stage.begin(f"12:00:{chance.choice(('00', '30', '59.999'))}")
    calls: list[asyncio.Task[None]] = []

    async def try_to(call: Coroutine[object, object, None]) -> None:
        with suppress(KronError, asyncio.CancelledError):
            await call

    for _ in range(chance.randrange(5, MAX_ACTS)):
        match chance.choices(("init", "stop", "crash", "fault", "wait"), (25, 15, 8, 8, 44))[0]:
            case "init":
                calls.append(
                    asyncio.create_task(try_to(stage.scheduler.initialize(stage.listed(a_list(chance)))))
                )
            case "stop":
                calls.append(asyncio.create_task(try_to(stage.scheduler.stop())))
            case "crash":
                await asyncio.sleep(0)
                await stage.crash()
            case "fault":
                store.faults = chance.choices(FAULTS, k=chance.randrange(1, 4))
            case _:
                pass
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        else:
            await stage.clock.advance_to(stage.clock.now() + timedelta(seconds=chance.choice(PAUSES)))
    store.faults = []
    await stage.clock.advance_to(stage.clock.now() + timedelta(minutes=5))
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    return stage


def judge(lines: list[str]) -> None:
    """Have the theory judge a trace; a start that a crash overtook before it was told is not in it."""
    report = check(Trace.from_jsonl(lines), reading="kron", within=MAX_LATE_MS)
    for axiom in AXIOMS:
        assert str(report[axiom].status) != "failed", report[axiom]


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_tasks_start_only_when_they_may_and_one_at_a_time(seed: int) -> None:
    stage = await random_story(seed)
    stage.traced()
    judge(stage.lines.getvalue().splitlines())
    assert stage.scheduler.quarantined == ()
    if stage.scheduler.state == "running":
        assert stage.scheduler._wiring.engine.health.state in ("running", "ready")
    await stage.close()


async def test_the_same_seed_tells_the_same_story() -> None:
    traces = []
    for _ in range(2):
        stage = await random_story(7)
        traces.append(stage.lines.getvalue())
        await stage.close()
    assert traces[0] == traces[1]
