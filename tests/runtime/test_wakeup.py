"""The pace of the loop while a store fails: it asks again later and later, whatever it hears meanwhile."""

from datetime import datetime, timedelta

from kron.core.plan.report import Launch
from kron.stores.sqlite.file import MEMORY
from kron.testing import Fault, SimulatedClock
from kron.testing.faulty_store import Chance
from tests.runtime.test_engine import MINUTE, NOON, SECOND, Rig, job_of

JOBS = 200
TENTH = timedelta(milliseconds=100)
# What an engine that is patient asks for in twenty seconds: after 0.1, 0.2, 0.4 ... and at most 5 seconds.
MAX_ASKED = 10


async def stage(rig: Rig) -> None:
    """Have a call end every tenth of a second from one minute on, while the store answers nothing."""
    ends = {f"job-{number}": NOON + MINUTE + (number + 1) * TENTH for number in range(JOBS)}

    async def wait(launch: Launch) -> None:
        await rig.clock.sleep_until(ends[launch.run.identity])

    await rig.run()
    await rig.add(*(job_of(name, remaining=1) for name in ends), callback=wait)
    await rig.clock.advance_to(NOON + MINUTE)
    assert len(rig.calls) == JOBS
    rig.store._chance = Chance(seed=1, odds=1.0, faults=[Fault.BEFORE])


async def test_reports_do_not_shorten_the_wait_for_a_store_that_fails() -> None:
    rig = Rig(MEMORY, SimulatedClock(NOON + TENTH))
    await stage(rig)
    before = rig.store.calls.total()
    await rig.clock.advance_to(NOON + MINUTE + 20 * SECOND)
    assert 0 < rig.store.calls.total() - before <= MAX_ASKED
    rig.store.heal()
    await rig.clock.advance_to(NOON + 2 * MINUTE)
    found = [
        run.status for name in rig.launcher.callbacks for run in await rig.store.runs("runner:test", name)
    ]
    assert found == ["SUCCESS"] * JOBS
    await rig.engine.stop()


async def test_a_stop_does_not_wait_for_the_next_try() -> None:
    rig = Rig(MEMORY, SimulatedClock(NOON + TENTH))
    await stage(rig)
    await rig.clock.advance_to(NOON + MINUTE + 20 * SECOND)
    assert rig.engine.health.state == "degraded"
    rig.store.heal()
    # Virtual time stands still from here on.
    await rig.engine.stop()
    assert rig.engine.health.state == "stopped"
    runs = [run for name in rig.launcher.callbacks for run in await rig.store.runs("runner:test", name)]
    assert {run.status for run in runs} == {"SUCCESS"}


async def test_a_job_that_is_not_due_before_the_next_wake_does_not_wake_the_loop() -> None:
    rig = Rig(MEMORY, SimulatedClock(NOON + TENTH))
    await rig.run()
    await rig.add(job_of("hourly", "0 * * * *"))
    await rig.clock.advance_to(NOON + SECOND)

    async def loads_of(at: datetime | None) -> int:
        before = rig.store.calls["load"]
        rig.engine.call(None if at is None else 1000 * int(at.timestamp()))
        await rig.clock.advance_to(rig.clock.now() + TENTH)
        return rig.store.calls["load"] - before

    hour = timedelta(hours=1)
    assert [await loads_of(at) for at in (NOON + hour, NOON + 2 * hour)] == [0, 0]
    assert [await loads_of(at) for at in (NOON + hour - SECOND, None)] == [1, 1]
    await rig.engine.stop()
