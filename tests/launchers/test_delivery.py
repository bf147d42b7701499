"""Launches that are not accepted yet: what they may keep in memory while they wait."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from kron.core.plan.record import EpochRecord
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.delivery import MAX_KEPT, TOO_MUCH_KEPT, DeliveryResult, RemoteLauncher
from kron.testing import SimulatedClock
from tests.launchers.ear import NOON, Ear, a_launch

BUSY = DeliveryResult("the executor is full", retry=True)
# Two of these are more than a user's launches may keep, one is not.
LARGE = "x" * (MAX_KEPT // 2 + 10_000)


def of_user(user: str, identity: str, definition: str = LARGE) -> Launch:
    launch = a_launch({"kind": "remote", "user_id": user}, identity=identity)
    return launch._replace(job=launch.job._replace(definition=definition))


class Stage:
    """A launcher with one request at a time, whose executor refuses while it is full, or never answers."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(datetime.fromtimestamp(NOON, UTC))
        self.is_full, self.hangs, self.ear = True, False, Ear()
        self.launcher = RemoteLauncher(self.clock, self._deliver, max_requests=1)

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        if self.hangs:
            await asyncio.Event().wait()
        return BUSY if self.is_full else DeliveryResult()

    async def start(self, *launches: Launch) -> None:
        for launch in launches:
            self.launcher.start(launch, self.ear)
            await asyncio.sleep(0.01)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance_to(self.clock.now() + timedelta(seconds=seconds))


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.launcher.close(wait=False)


async def test_launches_to_be_tried_again_keep_a_bounded_text_for_each_user(stage: Stage) -> None:
    first, second, small = of_user("ann", "a"), of_user("ann", "b"), of_user("ann", "c", "{}")
    others = of_user("bob", "d")
    await stage.start(first, second, small, others)
    (refused,) = stage.ear.reports
    assert (refused.key, refused.happened) == (second.run.key, RunEvent.LAUNCH_FAILED)
    assert refused.error == f"the executor is full, not tried again: {TOO_MUCH_KEPT}"
    stage.is_full = False
    await stage.pass_time(60)
    assert [stage.ear.said(each) for each in (first, small, others)] == [[RunEvent.ACCEPTED]] * 3
    # What has been accepted counts no more.
    stage.is_full = True
    third, fourth = of_user("ann", "e"), of_user("ann", "f")
    await stage.start(third, fourth)
    assert (stage.ear.said(third), stage.ear.said(fourth)) == ([], [RunEvent.LAUNCH_FAILED])


async def test_launches_that_wait_for_a_slot_keep_a_bounded_text_for_each_user(stage: Stage) -> None:
    stage.hangs = True
    sent, waits, refused = (of_user("ann", name) for name in "abc")
    await stage.start(sent, waits, refused, of_user("ann", "d", "{}"), of_user("bob", "e"))
    (report,) = stage.ear.reports
    assert (report.key, report.error) == (refused.run.key, TOO_MUCH_KEPT)
    # One that ended on request counts no more.
    stage.launcher.end(waits.run)
    again = of_user("ann", "f")
    await stage.start(again)
    assert stage.ear.said(again) == []


async def test_the_earlier_definitions_of_a_launch_that_waits_count_as_its_text(stage: Stage) -> None:
    first, second = (
        of_user("ann", name, "{}")._replace(earlier=[EpochRecord(name, 1, 0, LARGE)]) for name in "ab"
    )
    await stage.start(first, second)
    (refused,) = stage.ear.reports
    assert (refused.key, refused.happened) == (second.run.key, RunEvent.LAUNCH_FAILED)
