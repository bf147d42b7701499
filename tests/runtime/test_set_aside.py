"""Jobs whose records are refused wait on their own, with the reports about them."""

from datetime import UTC, datetime, timedelta

from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import Change, WriteResult
from kron.runtime.inbox import Inbox
from kron.runtime.set_aside import LONGEST_S, SetAside
from kron.testing import SimulatedClock
from kron.testing.contract.sample import a_job

START = datetime(2026, 6, 1, tzinfo=UTC)
CLEAN = WriteResult(frozenset(), frozenset())


class Rig:
    """The jobs set aside of an engine, in simulated time."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(START)
        self.inbox = Inbox()
        self.aside = SetAside(self.clock, self.inbox)

    def refuse(self, *names: str) -> list[str]:
        changes = [Change(a_job(name), 1) for name in names]
        return self.aside.note(
            changes, WriteResult(frozenset(names), frozenset(), dict.fromkeys(names, "no"))
        )

    def waiting(self) -> list[str]:
        return [job.identity for job in self.aside.jobs()]

    async def after(self, seconds: float) -> None:
        await self.clock.advance_to(self.clock.now() + timedelta(seconds=seconds))


def a_report(identity: str) -> RunReport:
    return RunReport(identity, f"{identity}/1", 1, RunEvent.SUCCESS, 0)


async def test_a_refused_job_waits_twice_as_long_after_each_refusal_up_to_a_bound() -> None:
    rig = Rig()
    assert rig.aside.wake_at(0) is None
    assert rig.refuse("a") == ["a"]
    assert rig.aside.wake_at(1_000) == 1_101
    await rig.after(0.102)
    assert rig.waiting() == []
    assert rig.refuse("a") == []
    assert rig.aside.wake_at(0) == 201
    for _ in range(100):
        rig.refuse("a")
    assert rig.aside.wake_at(0) == 1000 * LONGEST_S + 1


async def test_the_reports_about_a_refused_job_wait_with_it() -> None:
    rig = Rig()
    rig.refuse("a")
    assert rig.aside.held_back([a_report("a"), a_report("b")]) == [a_report("b")]
    assert rig.aside.has_reports
    rig.aside.release()
    assert not rig.inbox.reports
    await rig.after(0.2)
    rig.aside.release()
    assert list(rig.inbox.reports) == [a_report("a")]
    assert not rig.aside.has_reports
    assert rig.aside.held_back([a_report("a")]) == [a_report("a")]


async def test_a_job_that_was_written_waits_no_longer() -> None:
    rig = Rig()
    rig.refuse("a", "b")
    rig.aside.held_back([a_report("a")])
    rig.aside.note([Change(a_job("a"), 1)], CLEAN)
    assert rig.waiting() == ["b"]
    assert list(rig.inbox.reports) == [a_report("a")]
    rig.aside.clear()
    assert rig.waiting() == []


async def test_a_job_that_was_not_due_since_is_forgotten() -> None:
    rig = Rig()
    rig.refuse("a")
    await rig.after(0.2)
    rig.aside.release()
    assert rig.refuse("a") == []
    await rig.after(2 * LONGEST_S)
    rig.aside.release()
    assert rig.refuse("a") == ["a"]
