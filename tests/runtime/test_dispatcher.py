"""A committed start is launched, unless another worker may own it by now."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from kron.core.job.job import Job
from kron.core.plan.record import EpochRecord
from kron.core.plan.registration import create, edit, request_run
from kron.core.plan.report import (
    MAX_EARLIER,
    MAX_EARLIER_TEXT,
    Launch,
    LeaseStatus,
    RunEvent,
    RunReport,
)
from kron.core.plan.step import with_job
from kron.core.shard import shard_of
from kron.core.time.instant import milliseconds_of
from kron.launchers.callback import CallbackLauncher
from kron.launchers.delivery import DeliveryResult, RemoteLauncher
from kron.runtime.dispatcher import JOBS_READ, MAX_REMEMBERED, Dispatcher, LocalRuns
from kron.runtime.journal import LogJournal
from kron.stores.sqlite.store import SqliteStore
from kron.testing import ScriptedLauncher, SimulatedClock, Step
from kron.testing.contract.sample import CLEAN, a_job, cohort_of
from tests.engine_stage import NOON, SPACE

SHARD = shard_of("backup")


def ignore(report: RunReport) -> None:
    """Take no note of what happens."""


@pytest.mark.parametrize(
    ("owned", "begun"),
    [
        pytest.param({SHARD: 7}, 1, id="renewed"),
        pytest.param({}, 0, id="lost"),
        pytest.param({SHARD: 8}, 0, id="lost and taken over again"),
        pytest.param({SHARD: 7, SHARD + 1: 8}, 1, id="more than before"),
    ],
)
async def test_what_was_written_before_a_shard_was_lost_does_not_start(
    owned: Mapping[int, int], begun: int
) -> None:
    clock = SimulatedClock(NOON)
    launcher = ScriptedLauncher(clock, {"backup": [Step.HANG]})
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), ignore, LocalRuns(), owned=owned)
    await dispatcher.dispatch(cohort_of([a_job()]), CLEAN, {SHARD: 7})
    assert len(launcher.started) == begun


async def test_what_is_written_keeps_its_shard_from_being_given_away() -> None:
    clock = SimulatedClock(NOON)
    dispatcher = Dispatcher(clock, {}, LogJournal(), ignore, LocalRuns())
    changes = cohort_of([a_job()])
    dispatcher.track(changes, CLEAN)
    assert dispatcher.busy_shards() == {SHARD}
    dispatcher.track(changes, CLEAN._replace(stale_jobs=frozenset({"backup"})))
    assert dispatcher.busy_shards() == {SHARD}


async def test_a_shard_that_was_lost_is_no_longer_kept_from_others() -> None:
    dispatcher = Dispatcher(SimulatedClock(NOON), {}, LogJournal(), ignore, LocalRuns())
    dispatcher.track(cohort_of([a_job("a"), a_job("b")]), CLEAN)
    dispatcher.keep_only(lambda identity: identity == "a")
    assert dispatcher.busy_shards() == {shard_of("a")}


@pytest.mark.parametrize("field", ["definition", "launcher", "profile", "past", "notify", "handled"])
async def test_a_job_with_a_long_definition_is_read_again_when_its_run_ends(field: str) -> None:
    clock = SimulatedClock(NOON)
    launcher = ScriptedLauncher(clock, {"short": [Step.HANG], "long": [Step.HANG]})
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), ignore)
    short, long = cohort_of([a_job("short"), a_job("long")])
    long = with_job(long, long.job._replace(**{field: "x" * (MAX_REMEMBERED + 1)}))  # type: ignore[arg-type]
    await dispatcher.dispatch([short, long], CLEAN, {})
    assert len(launcher.started) == 2
    assert list(dispatcher.sole_runs) == ["short"]


async def test_what_is_begun_later_asks_whether_it_is_still_this_owners() -> None:
    clock = SimulatedClock(NOON)
    launcher, begun = CallbackLauncher(clock), []

    async def call(launch: Launch) -> None:
        begun.append(launch.lease_status)

    launcher.callbacks["backup"] = call
    owned = {SHARD: 1}
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), ignore, owned=owned)
    dispatcher.lease_ends = clock.monotonic() + 5
    await dispatcher.dispatch(cohort_of([a_job()]), CLEAN, owned)
    await launcher.close()
    (hold,) = begun
    assert hold is not None
    assert hold() is LeaseStatus.HELD
    dispatcher.lease_ends = clock.monotonic()
    assert hold() is LeaseStatus.LAPSED
    dispatcher.lease_ends, dispatcher.owned = clock.monotonic() + 5, {SHARD: 1, SHARD + 1: 8}
    assert hold() is LeaseStatus.HELD
    for others in ({}, {SHARD: 9}):
        dispatcher.owned = others
        assert hold() is LeaseStatus.LOST


async def test_a_start_that_is_replaced_in_the_same_step_is_not_sent() -> None:
    clock, sent, events = SimulatedClock(NOON), [], []

    async def deliver(launch: Launch) -> DeliveryResult:
        sent.append(launch.run.key)
        return DeliveryResult()

    def hear(report: RunReport) -> None:
        events.append(report.happened)

    launcher = RemoteLauncher(clock, deliver)
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), hear)
    (change,) = cohort_of([a_job()])
    await dispatcher.dispatch([replace(change, cohort=None, ends=change.starts)], CLEAN, {})
    await launcher.close()
    assert not sent
    assert events == [RunEvent.CANCELLED]


def yearly(identity: str, **fields: Any) -> Job:
    return Job.from_dict({"identity": identity, "schedule": "0 0 1 1 *", **fields})


async def test_a_start_after_many_edits_reads_and_keeps_a_bounded_text_of_earlier_definitions() -> None:
    clock, store, sizes, launches = SimulatedClock(NOON), SqliteStore(), list[int](), list[Launch]()
    now = milliseconds_of(NOON)
    names = [f"job {number}" for number in range(JOBS_READ + 1)]
    created = [create(yearly(name), now=now, launcher="{}", kind="callback") for name in names]
    await store.put(SPACE, created=created, changed=[], now=now)
    for number in range(2 * MAX_EARLIER):
        salt = f"{number}".rjust(10_000)
        states = await store.cases(SPACE, names)
        edits = [
            edit(state.job, [], yearly(state.job.identity, salt=salt), now=now + number) for state in states
        ]
        assert await store.put(SPACE, created=[], changed=edits, now=now) == CLEAN

    async def epochs(*identities: str, newest: int | None = None) -> list[EpochRecord]:
        read = await store.epochs(SPACE, *identities, newest=newest)
        sizes.append(len(read))
        return read

    async def deliver(launch: Launch) -> DeliveryResult:
        launches.append(launch)
        return DeliveryResult()

    wishes = [request_run(state.job, request="x", now=now) for state in await store.cases(SPACE, names)]
    launcher = RemoteLauncher(clock, deliver)
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), ignore, epochs=epochs)
    changes = [replace(wish, starts=[run._replace(due_at=None) for run in wish.inserts]) for wish in wishes]
    await dispatcher.dispatch(changes, CLEAN, {})
    await launcher.close()
    await store.close()
    assert sizes == [JOBS_READ * MAX_EARLIER, MAX_EARLIER]
    kept = [sum(len(known.definition) for known in launch.earlier) for launch in launches]
    assert len(kept) == len(names)
    assert 0 < min(kept) <= max(kept) <= MAX_EARLIER_TEXT


@pytest.mark.parametrize("lease_s", [inf, 60], ids=["sole owner", "leased"])
async def test_a_start_that_is_overdue_is_not_sent_again(lease_s: float) -> None:
    """Its loss may be recorded by a wake that has not committed yet, and then it must not arrive."""
    clock, sent = SimulatedClock(NOON), []

    async def deliver(launch: Launch) -> DeliveryResult:
        sent.append(clock.now() - NOON)
        return DeliveryResult("no answer", retry=True)

    launcher = RemoteLauncher(clock, deliver)
    dispatcher = Dispatcher(clock, {"callback": launcher}, LogJournal(), ignore, owned={SHARD: 1})
    dispatcher.lease_ends = clock.monotonic() + lease_s
    (change,) = cohort_of([a_job()])
    due_at = milliseconds_of(NOON) + 3_000
    overdue = replace(change, cohort=None, starts=[run._replace(due_at=due_at) for run in change.starts])
    await dispatcher.dispatch([overdue], CLEAN, {SHARD: 1})
    await clock.advance_to(NOON + timedelta(seconds=50))
    assert sent
    assert max(sent) < timedelta(seconds=3)
    assert not launcher.busy
    await launcher.close(wait=False)
