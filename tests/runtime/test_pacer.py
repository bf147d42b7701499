"""Catch-up counts once: a step that is planned again takes no room from others of its tick."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.policy import Catchup
from kron.core.plan.pace import Pace
from kron.core.plan.registration import create
from kron.core.plan.step import Change, Limits, Ownership, WriteResult
from kron.runtime.wakeup import Pacer
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore
from tests.engine_case import EVERY_MINUTE, NOON
from tests.runtime.test_engine import MINUTE, SECOND, SPACE, Rig, job_of, rig_on
from tests.runtime.test_engine import NOON as RIG_NOON

LIMITS = Limits(catchup_per_tick=5)
MISSED = 20
JOB = create(EVERY_MINUTE, now=1000 * NOON)


class Disturbed(SqliteStore):
    """A store in which another process changes the jobs that are about to start missed periods, once."""

    is_disturbed = False

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        caught_up = [change for change in changes if change.caught_up]
        if caught_up and not self.is_disturbed:
            self.is_disturbed = True
            for change in caught_up:
                (case,) = await self.cases(SPACE, [change.job.identity])
                touched = case.job._replace(revision=case.job.revision + 1)
                await self.put(SPACE, created=[], changed=[Change(touched, case.job.revision)], now=now)
        return await super().settle(ownership, changes, now=now)


async def missing(rig: Rig) -> None:
    """Let a job miss periods, and set the next engine up."""
    await rig.add(job_of(catchup=Catchup.ALL))
    await rig.run()
    await rig.engine.stop()
    await rig.clock.advance_to(RIG_NOON + (MISSED + 2) * MINUTE - SECOND / 2)
    rig.engine = rig.make_engine()
    rig.engine.limits = LIMITS


def caught_up(rig: Rig) -> int:
    return sum(at - nominal > 120 for at, nominal in rig.starts())


async def test_a_refused_step_that_is_planned_again_starts_as_many_as_the_tick_allows() -> None:
    async with rig_on(":memory:") as rig:
        rig.file = store = Disturbed(":memory:")
        rig.store = FaultyStore(store, rig.clock)
        rig.engine = rig.make_engine()
        await missing(rig)
        await rig.run()
        await rig.clock.advance_to(rig.clock.now() + SECOND / 10)
        assert store.is_disturbed
        assert caught_up(rig) == 5
        await rig.clock.advance_to(rig.clock.now() + SECOND)
        assert caught_up(rig) == 10


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_a_failed_write_counts_once_whether_or_not_it_was_committed(
    fault: Fault, tmp_path: Path
) -> None:
    async with rig_on(str(tmp_path / "kron.db")) as rig:
        await missing(rig)
        await rig.engine.acquire()
        rig.fail(("settle", fault))
        rig.engine.run()
        await rig.clock.advance_to(rig.clock.now() + SECOND / 2)
        assert caught_up(rig) == 5
        await rig.clock.advance_to(rig.clock.now() + SECOND)
        assert caught_up(rig) == 10


# --- the rule -------------------------------------------------------------------------------------------

counts = st.tuples(st.integers(0, 7), st.integers(0, 7))
batches = st.lists(st.tuples(st.lists(counts, max_size=4), st.sampled_from(["written", "refused", "lost"])))


def changes_of(batch: list[tuple[int, int]]) -> list[Change]:
    return [
        Change(JOB._replace(identity=f"job-{number}"), 1, caught_up=starts, waiting=waits)
        for number, (starts, waits) in enumerate(batch)
    ]


@given(batches)
def test_the_pace_is_that_of_the_written_changes_alone(
    story: list[tuple[list[tuple[int, int]], str]],
) -> None:
    pacer, expected = Pacer(LIMITS), Pace(5)
    for second, (batch, ending) in enumerate(story):
        now, changes = 1000 * (NOON + second), changes_of(batch)
        before = pacer.pace
        pacer.plan(changes, now)
        planned = before
        for starts, waits in batch:
            planned = planned.after(now, starts=starts, waits=waits)
        assert pacer.pace == planned
        if ending == "lost":
            # Its answer was lost: the first half was committed.
            written = changes[: len(changes) // 2]
            pacer.resolve(written)
        else:
            stale = {change.job.identity for change in changes[::2]} if ending == "refused" else set()
            written = [change for change in changes if change.job.identity not in stale]
            pacer.settle(changes, frozenset(stale))
        for change in written:
            expected = expected.after(now, starts=change.caught_up, waits=change.waiting)
        assert pacer.pace == expected


def test_what_is_planned_but_not_written_yet_takes_its_room() -> None:
    pacer = Pacer(LIMITS)
    first, second = changes_of([(3, 0), (2, 0)])
    pacer.plan([first], 1000 * NOON)
    pacer.plan([second], 1000 * NOON)
    pacer.settle([first], frozenset())
    assert not pacer.pace.has_room(1000 * NOON)
    pacer.settle([second], frozenset({second.job.identity}))
    assert pacer.pace.has_room(1000 * NOON)
    assert pacer.pace.started == 3
