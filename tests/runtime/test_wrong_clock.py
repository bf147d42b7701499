"""Clocks that were wrong, on every store: shown, corrected once steady, nothing twice, nothing lost.

Each story ends with an exact ledger: one record for each period, and the starts in order.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from kron.app.query import Query
from kron.core.errors import OwnedError
from kron.core.job.job import Job
from kron.core.plan.cause import DELAYING
from kron.core.plan.compiled import compiled_job
from kron.core.plan.counterfactual import what_if
from kron.core.plan.pause import resume
from kron.core.plan.record import ClockEnding, ClockEvent, RunKind
from kron.core.plan.registration import create, edit
from kron.core.plan.step import Change, WriteResult
from kron.core.time.instant import EPOCH
from kron.ports import Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.stores.postgres.store import PostgresStore
from kron.testing.faulty_store import Fault, FaultyStore
from tests.engine_model import periods_of
from tests.engine_stage import DAY, HOUR, MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on
from tests.waiting import until

pytestmark = pytest.mark.slow

TOMORROW = DAY // MINUTE
YEAR_2099 = NOON.replace(year=2099)


@pytest.fixture
async def stage(store: Store) -> AsyncIterator[Stage]:
    async with stage_on(store) as made:
        yield made


async def restart(stage: Stage) -> None:
    """Stop and start again."""
    await stage.engine.stop()
    stage.engine = stage.make_engine()
    await stage.run()


async def ledger(stage: Stage, identity: str = "job") -> dict[int, str]:
    """Return the status of every recorded period by its minute after noon; no period has two records."""
    rows = [run for run in await stage.runs(identity) if run.kind is RunKind.PERIOD]
    found = {(run.nominal_time - NOON_S) // 60: str(run.status) for run in rows}
    assert len(found) == len(rows)
    job = (await stage.case(identity)).job
    terms = compiled_job(job.definition, identity).for_job(identity)
    for shared in await stage.store.ranges(SPACE, identity):
        minutes = [(time - NOON_S) // 60 for time in shown(terms, shared.first, shared.last)]
        assert len(minutes) == shared.periods
        assert not found.keys() & set(minutes)
        found |= dict.fromkeys(minutes, shared.outcome.upper())
    return found


def shown(job: Job, first: int, last: int) -> Iterator[int]:
    """Yield the nominal times of a range, which the story keeps short."""
    assert last - first < 3 * 86_400, "this range is too long for a ledger"
    return periods_of(job, first - 1, last)


def at(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(milliseconds=1)


async def test_a_day_ahead_and_back(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + DAY + 3 * MINUTE + SECOND)
    await stage.until(NOON + DAY + 5 * MINUTE + SECOND)
    stage.clock.jump_to(NOON + 5 * MINUTE + SECOND)
    await stage.until(NOON + 5 * MINUTE + 30 * SECOND)
    behind = timedelta(milliseconds=stage.engine.health.clock_behind_ms)
    assert DAY - MINUTE < behind <= DAY
    await stage.until(NOON + 10 * MINUTE)
    assert stage.engine.health.clock_behind_ms == 0
    ahead = [TOMORROW + 3, TOMORROW + 4, TOMORROW + 5]
    assert stage.starts() == [1, 2, 3, *ahead, 6, 7, 8, 9, 10]
    records = await ledger(stage)
    assert records == {n: "MISSED" if n in (4, 5) else "SUCCESS" for n in (*range(1, 11), *ahead)}
    excursion, forward = await stage.store.clock_records(SPACE)
    assert (excursion.event, excursion.ending) == (ClockEvent.BEHIND, ClockEnding.CORRECTED)
    assert excursion.reopened == 1437
    assert (forward.event, forward.by_ms) == (ClockEvent.FORWARD, DAY // timedelta(milliseconds=1) + 1000)


@pytest.mark.slow
async def test_the_day_that_was_ahead_runs_once(stage: Stage) -> None:
    # On a server, a day of renewed leases takes minutes on a busy machine.
    jump = 3 * HOUR if isinstance(stage.store, PostgresStore) else DAY
    await stage.add(job_of(schedule="*/30 * * * *", catchup="none"))
    await stage.run()
    stage.clock.jump_to(NOON + jump - MINUTE)
    await stage.until(NOON + jump + 40 * MINUTE)
    ahead = [jump // MINUTE, jump // MINUTE + 30]
    stage.clock.jump_to(NOON + 40 * MINUTE)
    await stage.until(NOON + jump + 2 * HOUR)
    later = [n for n in range(60, jump // MINUTE + 121, 30) if n not in ahead]
    assert stage.starts() == [*ahead, *later]
    records = await ledger(stage)
    assert records == {30: "MISSED", **dict.fromkeys([*ahead, *later], "SUCCESS")}


@pytest.mark.parametrize("policy", [{"catchup": "once"}, {"catchup": "all", "max_catchup": 3}], ids=str)
async def test_2099_and_back(stage: Stage, policy: dict[str, Any]) -> None:
    await stage.add(job_of(**policy))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(YEAR_2099 + SECOND)
    await stage.until(YEAR_2099 + MINUTE + SECOND)
    ran = stage.starts()
    stage.clock.jump_to(NOON + 4 * MINUTE + SECOND)
    await stage.until(NOON + 20 * MINUTE)
    assert stage.starts() == [*ran, *range(5, 21)]
    assert all(n > 1_000_000 for n in ran[3:])
    assert {n for n in await ledger(stage) if n < 1_000_000} == set(range(1, 21))


async def test_an_hour_behind_from_the_first_start_on(stage: Stage) -> None:
    """The clock that is read is the only one there is: it is shown, and then believed."""
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON - 57 * MINUTE)
    await stage.until(NOON - 50 * MINUTE)
    assert stage.starts() == [1, 2, 3, *range(-57, -49)]
    await stage.until(NOON + 6 * MINUTE)
    assert stage.starts() == [1, 2, 3, *range(-57, 1), 4, 5, 6]
    assert set((await ledger(stage)).values()) == {"SUCCESS"}


async def test_a_step_back_within_the_lookahead_is_no_excursion(stage: Stage) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + 2 * MINUTE + SECOND)
    await stage.until(NOON + 6 * MINUTE)
    assert stage.starts() == [1, 2, 3, 4, 5, 6]
    assert await stage.store.clock_records(SPACE) == []


@pytest.mark.slow
async def test_a_clock_that_flaps_is_not_trusted_until_it_is_steady(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 2 * MINUTE)
    for flap in range(5):
        real = NOON + 2 * MINUTE + flap * MINUTE
        stage.clock.jump_to(real + 2 * HOUR + 10 * SECOND)
        await stage.advance(20 * SECOND)
        stage.clock.jump_to(real + 30 * SECOND)
        await stage.advance(30 * SECOND)
    flapping = stage.starts()
    assert [n for n in flapping if n < 60] == [1, 2]
    await stage.until(NOON + 130 * MINUTE)
    since = stage.starts()[len(flapping) :]
    assert sorted(since) == since
    assert len(stage.starts()) == len(set(stage.starts()))
    assert set(stage.starts()) >= set(range(7, 131))
    records = await ledger(stage)
    assert set(records) == set(range(1, 131))
    assert {n for n, status in records.items() if status == "MISSED"} == {3, 4, 5, 6}
    endings = [record.ending for record in await stage.store.clock_records(SPACE) if record.event == "behind"]
    assert endings == [ClockEnding.CORRECTED, *[ClockEnding.MOVED] * 4]


@pytest.mark.parametrize("catchup", ["none", "all"])
async def test_a_restart_while_the_clock_is_not_yet_steady_loses_nothing(stage: Stage, catchup: str) -> None:
    await stage.add(job_of(catchup=catchup, max_catchup=2))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + DAY + SECOND)
    await stage.until(NOON + DAY + MINUTE)
    ran = stage.starts()
    await stage.engine.stop()
    stage.clock.jump_to(NOON + 4 * MINUTE + SECOND)
    stage.engine = stage.make_engine()
    await stage.run()
    await stage.until(NOON + 4 * MINUTE + 50 * SECOND)
    assert stage.starts() == ran
    await restart(stage)
    await stage.until(NOON + 8 * MINUTE)
    assert stage.starts() == [*ran, 5, 6, 7, 8]
    (behind, *_) = await stage.store.clock_records(SPACE)
    assert behind.found_at == at(NOON + 4 * MINUTE + SECOND), "the first owner found it"
    records = await ledger(stage)
    assert set(records) >= set(range(1, 9))


async def test_a_correction_that_the_store_interrupts_is_continued(store: Store) -> None:
    """Every call of the correction fails once, before and after its commit."""
    async with stage_on(store) as stage:
        faulty = FaultyStore(store, stage.clock)
        stage.store = faulty
        stage.engine = stage.make_engine(store=faulty)
        names = [f"job {number:03}" for number in range(130)]
        await stage.add(*(job_of(name, "*/5 * * * *", catchup="none") for name in names))
        await stage.run()
        stage.clock.jump_to(NOON + DAY + SECOND)
        await stage.until(NOON + DAY + MINUTE)
        stage.clock.jump_to(NOON + MINUTE)
        await stage.until(NOON + MINUTE + 59 * SECOND)
        for call in ("ahead", "recorded", "note_clock"):
            faulty.then(call, Fault.BEFORE, Fault.AFTER)
        faulty.then("settle", Fault.BEFORE, Fault.AFTER)
        await stage.until(NOON + 11 * MINUTE)
        assert faulty.waiting == 0
        for name in names:
            assert stage.starts(name) == [TOMORROW, 5, 10]
        behind, _ = await store.clock_records(SPACE)
        assert behind.ending is ClockEnding.CORRECTED


async def test_a_job_created_while_the_clock_was_ahead_runs_from_the_present_on(stage: Stage) -> None:
    await stage.add(job_of("old"))
    await stage.run()
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + SECOND)
    await stage.add(job_of("new"))
    stage.clock.jump_to(NOON + MINUTE + SECOND)
    await stage.until(NOON + 5 * MINUTE)
    assert stage.starts("new") == [2, 3, 4, 5]


@pytest.mark.parametrize("corrected_before", [False, True], ids=["first", "second"])
async def test_an_excursion_that_only_another_process_saw(stage: Stage, corrected_before: bool) -> None:
    """It creates, requests, edits and resumes within an instant of the future, and no wake falls into it."""
    await stage.add(job_of("old", "*/2 * * * *"), job_of("edited"), job_of("paused", catchup="none"))
    await stage.run()
    await stage.pause("paused")
    await stage.until(NOON + 2 * MINUTE + 30 * SECOND)
    if corrected_before:
        stage.clock.jump_to(NOON + 2 * DAY)
        await stage.add()
        stage.clock.jump_to(NOON + 2 * MINUTE + 30 * SECOND)
        await stage.advance(SECOND)
    asleep = stage.clock.now()
    stage.clock.jump_to(NOON + DAY)
    await stage.store.put(SPACE, created=[create(job_of("new"), now=stage.now)], changed=[], now=stage.now)
    edited = (await stage.case("edited")).job
    change = edit(edited, (), job_of("edited", deadline="30m"), now=stage.now)
    await stage.store.put(SPACE, created=[], changed=[change], now=stage.now)
    resumed = resume((await stage.case("paused")).job, (), now=stage.now)
    await stage.store.put(SPACE, created=[], changed=[resumed], now=stage.now)
    stage.clock.jump_to(asleep)
    stage.engine.call()
    await stage.until(NOON + 6 * MINUTE)
    assert stage.starts("new") == [3, 4, 5, 6]
    assert stage.starts("edited") == [1, 2, 3, 4, 5, 6]
    assert stage.starts("paused") == [3, 4, 5, 6]
    assert stage.starts("old") == [2, 4, 6]
    excursions = await stage.store.clock_records(SPACE)
    assert [each.ending for each in excursions] == [ClockEnding.CORRECTED] * (1 + corrected_before)
    assert {each.event for each in excursions} == {ClockEvent.BEHIND}
    assert stage.engine.health.clock_behind_ms == 0


class SettingBack(LogJournal):
    """A journal whose first planned run sets the clock back by an hour, in the middle of a wake."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage: Stage | None = stage

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        super().settled(changes, settled, now)
        # A start would be reported, and a report is a wake of its own.
        if self._stage is not None and not any(change.starts for change in changes):
            stage, self._stage = self._stage, None
            stage.clock.jump_to(stage.clock.now() - HOUR)
            # The sleep that follows began after the step, and so does not see it.
            stage.clock._jumped = False


async def test_a_clock_that_is_set_back_while_a_wake_works_is_noticed_before_the_next_sleep(
    stage: Stage,
) -> None:
    """The sleep would otherwise last as long as the step, without a sign."""
    stage.journal = SettingBack(stage)
    stage.engine = stage.make_engine()
    await stage.add(job_of(jitter_ms=30_000))
    await stage.run()
    await stage.until(NOON + 5 * MINUTE)
    (excursion,) = await stage.store.clock_records(SPACE)
    assert (excursion.event, excursion.ending) == (ClockEvent.BEHIND, ClockEnding.CORRECTED)
    assert excursion.found_at < at(NOON - 58 * MINUTE)
    assert set(range(-57, 5)) <= set(stage.starts())


async def test_an_instant_of_another_process_within_the_lookahead_starts_nothing_early(stage: Stage) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 10 * SECOND)
    await stage.store.put(SPACE, created=[], changed=[], now=stage.now + 59_000)
    stage.engine.call()
    await stage.advance(SECOND)
    assert stage.starts() == []
    await stage.until(NOON + MINUTE)
    assert stage.starts() == [1]


async def test_a_period_before_the_present_whose_window_is_open_starts_in_it(stage: Stage) -> None:
    """It was missed only because the clock was ahead; its chosen time is still to come."""
    window = {
        "window": {"mode": "after", "duration": "50m"},
        "distribution": {"name": "skewLate", "shape": 9},
    }
    policy = {"deadline": "10m", "catchup": "none"}
    job = {"identity": "job", "schedule": "5 * * * *", **window, "policy": policy}
    await stage.add(Job.from_dict(job))
    await stage.run()
    await stage.until(NOON + 6 * MINUTE)
    (planned,) = await stage.runs()
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + MINUTE)
    assert (await ledger(stage))[5] == "MISSED"
    stage.clock.jump_to(NOON + 7 * MINUTE)
    await stage.until(NOON + 12 * MINUTE)
    assert stage.starts() == []
    await stage.until(NOON + HOUR)
    (run, *_) = await stage.runs()
    assert (run.nominal_time, run.fire_time, run.status) == (NOON_S + 300, planned.fire_time, "SUCCESS")


async def test_executions_that_end_after_the_correction_are_recorded(stage: Stage) -> None:
    await stage.add(job_of(overlap="skip", run_timeout="10m"))
    stage.launcher.then("job")
    await stage.run()
    await stage.until(NOON + MINUTE)
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + SECOND)
    stage.clock.jump_to(NOON + 2 * MINUTE)
    await stage.until(NOON + 6 * MINUTE)
    for run in await stage.runs():
        assert run.ended_at is None or run.started_at is None or run.ended_at >= run.started_at
    assert set((await ledger(stage)).keys()) >= {1, 2, 3, 4, 5, 6}


# --- shown -----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_why_says_what_a_wrong_clock_did_to_a_period(stage: Stage) -> None:
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + 2 * DAY)
    await stage.until(NOON + 2 * DAY + SECOND)
    jumped = await query.why("job", (NOON + HOUR).isoformat())
    assert "the host's clock moved forward by 1 day, 23:57:00" in " ".join(jumped.sentences)
    stage.clock.jump_to(NOON + 5 * MINUTE)
    await stage.until(NOON + 5 * MINUTE + SECOND)
    assert "nothing new starts until it has been steady" in (await query.clock_problem() or "")
    await stage.until(NOON + 8 * MINUTE)
    assert "2874 periods that were dropped are open again" in (await query.clock_problem() or "")
    ran = await query.why("job", (NOON + 7 * MINUTE).isoformat())
    assert (ran.outcome, ran.facts[-1].code) == ("executed", "ended")
    opened = [fact.sentence for fact in ran.facts if fact.code == "reopened"]
    sentence = (
        "it was dropped at 2026-01-03T12:00:00Z, while the host's clock was ahead (missed: due during an "
        "outage or a pause, and the catch-up policy is none); the clock was right again at "
        "2026-01-01T12:05:00Z, and the period is open again in a new epoch"
    )
    assert opened == [sentence]
    to_come = await query.why("job", (NOON + HOUR).isoformat())
    assert (to_come.outcome, to_come.code) == (None, "to_come")
    ahead = await query.why("job", (NOON + 2 * DAY).isoformat())
    assert "handled_ahead" in [fact.code for fact in ahead.facts]
    await stage.until(NOON + 2 * HOUR)
    assert await query.clock_problem() is None


async def test_why_names_a_clock_that_is_behind(stage: Stage) -> None:
    """For a period that was dropped, one to come, one that is due, and later for one that waited."""
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + 2 * DAY)
    await stage.until(NOON + 2 * DAY + SECOND)
    stage.clock.jump_to(NOON + 4 * MINUTE + 30 * SECOND)
    await stage.add(job_of("fresh"))
    await stage.until(NOON + 5 * MINUTE + SECOND)
    behind = (
        "the host's clock (2026-01-01T12:04:30Z) is behind the latest recorded instant "
        "(2026-01-03T12:00:00Z) by 1 day, 23:55:30: nothing new starts until it has been steady for "
        "the lookahead"
    )
    dropped = await query.why("job", (NOON + 5 * MINUTE).isoformat())
    assert (dropped.outcome, dropped.code) == ("missed", "catchup_none")
    assert dropped.facts[-2][:2] == ("clock_wrong", behind)
    to_come = await query.why("job", (NOON + 2 * DAY + MINUTE).isoformat())
    assert (to_come.outcome, to_come.code, to_come.facts[-2][:2]) == (
        None,
        "to_come",
        ("clock_wrong", behind),
    )
    due = await query.why("fresh", (NOON + 5 * MINUTE).isoformat())
    assert (due.outcome, due.code) == (None, "overdue")
    assert due.headline == f"due, and not processed by a worker yet: {behind}"
    await stage.until(NOON + 8 * MINUTE)
    ran = await query.why("job", (NOON + 5 * MINUTE).isoformat())
    waited = (
        "the host's clock was behind the latest recorded instant (2026-01-03T12:00:00Z) by 1 day, 23:55:30, "
        f"and worker {stage.engine.owner} planned nothing from 2026-01-01T12:04:30Z to 2026-01-01T12:05:30Z"
    )
    assert [fact.sentence for fact in ran.facts if fact.code == "clock_behind"] == [waited]
    assert ran.headline == f"succeeded, started 30s late: {waited}"
    assert "clock_wrong" not in [fact.code for fact in ran.facts]


async def test_why_names_the_clock_that_was_ahead_when_a_job_was_created(stage: Stage) -> None:
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    await stage.add(job_of("old"))
    await stage.run()
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + SECOND)
    await stage.add(job_of("new"))
    stage.clock.jump_to(NOON + 2 * MINUTE + SECOND)
    await stage.until(NOON + 2 * MINUTE + 30 * SECOND)
    waits = await query.why("new", (NOON + 2 * HOUR).isoformat())
    assert [fact.code for fact in waits.facts[-2:]] == ["clock_wrong", "to_come"]
    for _ in range(2):
        before = await query.why("new", (NOON + MINUTE).isoformat())
        assert before.code == "before_creation"
        assert "created while the host's clock was ahead" in before.headline
        await stage.until(NOON + 5 * MINUTE)
    assert (await query.why("new", (NOON + 4 * MINUTE).isoformat())).outcome == "executed"


@pytest.mark.parametrize(("lookahead_ms", "is_named"), [(3_600_000, False), (600_000, True)])
async def test_why_takes_the_lookahead_of_the_workers(
    stage: Stage, lookahead_ms: int, is_named: bool
) -> None:
    """A job was created half an hour ahead, and no worker has run since."""
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    query.lookahead_ms = lookahead_ms
    stage.clock.jump_to(NOON + 30 * MINUTE)
    await stage.add(job_of("new"))
    stage.clock.jump_to(NOON)
    told = await query.why("new", (NOON + 3 * MINUTE).isoformat())
    assert told.code == ("to_come" if is_named else "before_creation")
    assert ("clock_wrong" in [fact.code for fact in told.facts]) == is_named


Story = Callable[[Stage], Awaitable[int]]


async def ahead_while_running(stage: Stage) -> int:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + DAY + 3 * MINUTE + SECOND)
    await stage.until(NOON + DAY + 5 * MINUTE + SECOND)
    stage.clock.jump_to(NOON + 5 * MINUTE + SECOND)
    await stage.until(NOON + 10 * MINUTE)
    return 1


async def ahead_until_a_restart(stage: Stage) -> int:
    stage.clock.jump_to(NOON + DAY)
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + DAY + 2 * MINUTE)
    await stage.engine.stop()
    stage.clock.jump_to(NOON + 2 * MINUTE + 10 * SECOND)
    stage.engine = stage.make_engine()
    await stage.run()
    await stage.until(NOON + 10 * MINUTE)
    return 3


async def edited_while_ahead(stage: Stage) -> int:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 3 * MINUTE)
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + SECOND)
    await stage.edit(job_of(deadline="30m"))
    stage.clock.jump_to(NOON + 4 * MINUTE)
    await stage.until(NOON + 10 * MINUTE)
    return 1


async def ahead_twice(stage: Stage) -> int:
    await ahead_while_running(stage)
    stage.clock.jump_to(NOON + 2 * DAY)
    await stage.until(NOON + 2 * DAY + SECOND)
    stage.clock.jump_to(NOON + 11 * MINUTE + SECOND)
    await stage.until(NOON + 15 * MINUTE)
    return 1


@pytest.mark.parametrize(
    "play", [ahead_while_running, ahead_until_a_restart, edited_while_ahead, ahead_twice]
)
async def test_a_what_if_after_an_excursion_gives_what_the_records_say(stage: Stage, play: Story) -> None:
    first = await play(stage)
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    for minute in range(first, (stage.clock.now() - NOON) // MINUTE + 2):
        actual = await query.why("job", (NOON + minute * MINUTE).isoformat())
        other = await query.what_if(actual, what_if(["description=other"]))
        assert (other.explanation.outcome, other.explanation.code) == (actual.outcome, actual.code), minute
        assert "the clock was ahead, up to " in other.assumptions[-1]


async def test_a_what_if_tells_what_another_policy_had_made_of_an_excursion(stage: Stage) -> None:
    await ahead_while_running(stage)
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    missed = await query.why("job", (NOON + 4 * MINUTE).isoformat())
    assert (missed.outcome, missed.code) == ("missed", "catchup_none")
    other = await query.what_if(missed, what_if(["catchup=all", "max_catchup=10"]))
    assert other.explanation.outcome == "executed"
    changed = await query.what_if_all("job", what_if(["catchup=all", "max_catchup=10"]))
    times = {(each.nominal_time - NOON_S) // 60: each.after for each in changed.changed}
    assert times == dict.fromkeys((4, 5), "executed")


async def test_why_names_the_clock_before_a_worker_has_found_it_behind(stage: Stage) -> None:
    """A job was created while the clock was ahead, and no worker has run since."""
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    await stage.run()
    stage.clock.jump_to(NOON + DAY)
    await stage.until(NOON + DAY + SECOND)
    await stage.add(job_of("new"))
    await stage.engine.stop()
    stage.clock.jump_to(NOON + 2 * MINUTE + SECOND)
    ahead = (
        "the job was created while the host's clock was ahead: it showed 2026-01-02T12:00:01Z, which is "
        "23:58:00 after the present, and no worker has corrected that yet"
    )
    before = await query.why("new", (NOON + MINUTE).isoformat())
    assert before.code == "before_creation"
    assert before.headline == f"its fire time was before the job was created: {ahead}"
    to_come = await query.why("new", (NOON + 3 * MINUTE).isoformat())
    assert (to_come.facts[-2][:2], to_come.code) == (("clock_wrong", ahead), "to_come")
    stage.engine = stage.make_engine()
    await stage.run()
    await stage.until(NOON + 5 * MINUTE)
    assert stage.starts("new") == [3, 4, 5]


@pytest.mark.parametrize("deadline", ["5s", "2m"])
async def test_waiting_for_a_steady_clock_keeps_to_the_deadline_and_why_names_the_clock(
    stage: Stage, deadline: str
) -> None:
    """Worker and job are a day ahead from their first start on; a restart finds the right clock."""
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    stage.clock.jump_to(NOON + DAY)
    await stage.add(job_of(deadline=deadline))
    await stage.run()
    await stage.until(NOON + DAY + 2 * MINUTE)
    await stage.engine.stop()
    stage.clock.jump_to(NOON + 2 * MINUTE + 10 * SECOND)
    stage.engine = stage.make_engine()
    await stage.run()
    await stage.until(NOON + 5 * MINUTE)
    in_time = [3] if deadline == "2m" else []
    assert stage.starts() == [TOMORROW, TOMORROW + 1, TOMORROW + 2, *in_time, 4, 5]
    waited = (
        "the host's clock was behind the latest recorded instant (2026-01-02T12:02:00Z) by 23:59:50, "
        f"and worker {stage.engine.owner} planned nothing from 2026-01-01T12:02:10Z to 2026-01-01T12:03:10Z"
    )
    told = await query.why("job", (NOON + 3 * MINUTE).isoformat())
    expected = f"succeeded, started 10s late: {waited}"
    assert told.headline == (expected if in_time else f"did not run: {waited}, and the deadline had passed")
    assert [fact.code for fact in told.facts if fact.code in DELAYING] == ["clock_behind"]


async def test_a_wrong_clock_is_logged_at_level_error(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.add(job_of())
    await stage.run()
    stage.clock.jump_to(NOON + 2 * DAY)
    await stage.until(NOON + 2 * DAY + SECOND)
    stage.clock.jump_to(NOON)
    await stage.until(NOON + 2 * MINUTE)
    lines = [(line.levelname, line.getMessage().split()[0]) for line in caplog.records]
    assert ("ERROR", "clock_moved_forward") in lines
    assert ("ERROR", "clock_behind") in lines
    assert ("WARNING", "clock_corrected") in lines


# --- several workers -------------------------------------------------------------------------------


async def test_shards_of_a_worker_whose_clock_was_ahead_are_corrected_when_they_are_taken_over(
    postgres_url: str,
) -> None:
    """The worker that takes them over has run steadily, so it corrects them at once."""
    # The leases end by the database's clock, which is real.
    store = PostgresStore(postgres_url, ttl_ms=3_600_000)
    names = [f"job {number}" for number in range(20)]
    async with stage_on(store, NOON + DAY) as wrong, stage_on(store) as right:
        engines = [
            Engine(
                store,
                stage.clock,
                {"callback": stage.launcher},
                namespace=SPACE,
                owner=owner,
                journal=stage.journal,
                balance=True,
            )
            for stage, owner in ((wrong, "wrong"), (right, "right"))
        ]
        wrong.engine, right.engine = engines
        await wrong.run()
        await wrong.add(*(job_of(name, catchup="none") for name in names))
        await wrong.advance(2 * MINUTE)
        with pytest.raises(OwnedError):
            await right.engine.acquire()
        wrong.engine.renew_soon()
        await until(lambda: wrong.engine.health.lease is not None and len(shards_of(wrong)) == 32)
        await right.run()
        await right.advance(2 * MINUTE)
        mine = {name for name in names if right.starts(name)}
        assert 0 < len(mine) < len(names), "each has a share"
        await wrong.engine.stop()
        right.engine.renew_soon()
        await until(lambda: len(shards_of(right)) == 64)
        await right.advance(3 * MINUTE)
        for name in names:
            assert [n for n in right.starts(name) if n < 60][-3:] == [3, 4, 5]
        assert right.engine.health.clock_behind_ms == 0
    await store.close()


def shards_of(stage: Stage) -> set[int]:
    """Return the shards of a stage's engine."""
    lease = stage.engine.health.lease
    return set() if lease is None else set(lease.owned.shards)
