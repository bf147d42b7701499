"""A stage on a store that is slow or fails when told to, and whose traces are judged by the theory."""

from datetime import timedelta
from typing import NamedTuple

import pytest

from kron.core.plan.record import RunRecord
from kron.core.task.errors import SchedulerAlreadyActiveError
from kron.core.time.instant import EPOCH
from kron.ports import Store
from kron.testing import SimulatedClock
from kron.testing.faulty_store import FaultyStore
from kron.theory import Trace, check
from tests.embed.stage import Given, Stage, moment

SPACE = "embed:main"
HOURLY = Given("a", "0 * * * *")
MINUTELY = Given("a", "* * * * *")


class Rig(NamedTuple):
    """A stage whose store is slow or fails when told to; a late answer takes a second."""

    stage: Stage
    store: FaultyStore

    def begin(self, at: str) -> None:
        """Set the clock to the beginning of the story."""
        self.stage.begin(at)
        self.store._clock = self.stage.clock

    async def refuse(self) -> None:
        """Call `initialize` at the wrong moment."""
        with pytest.raises(SchedulerAlreadyActiveError):
            await self.stage.scheduler.initialize(self.stage.listed([HOURLY]))

    def events(self) -> list[str]:
        """Return the trace, one word and the seconds since noon for each event, and check it."""
        self.conforms()
        noon = (moment("12:00") - EPOCH) // timedelta(milliseconds=1)
        return [f"{event['event']} {(event['t'] - noon) / 1000:g}" for event in self.stage.traced()]

    def conforms(self) -> None:
        """Judge the trace; with a store that fails something may come ten seconds late."""
        report = check(Trace.from_jsonl(self.stage.lines.getvalue()), within=10_000)
        assert not report.failed, report.failed

    async def runs(self, name: str = "a") -> list[RunRecord]:
        """Return the records of a task's runs, oldest first."""
        return (await self.store.runs(SPACE, name))[::-1]


def a_rig(kept: Store) -> Rig:
    """Return a stage on a store that outlives crashes."""
    store = FaultyStore(kept, SimulatedClock(moment("00:00")))
    return Rig(Stage(lambda: store, free=lambda: None), store)
