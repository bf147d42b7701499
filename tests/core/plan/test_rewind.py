"""After a clock that was ahead, what started stays handled; what was dropped and is to come is open again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.job.decision import decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.job.policy import Catchup, Overlap
from kron.core.job.seed import jitter_of
from kron.core.plan.compiled import handled_of
from kron.core.plan.record import ReopenedRecord, RunStatus
from kron.core.plan.registration import edit
from kron.core.plan.rewind import NOTHING, cursor_at, rewind
from kron.core.plan.step import JobState
from kron.core.time.instant import rfc3339
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, started
from tests.engine_model import periods_of
from tests.engine_world import SPACE, World, at_once, with_policy
from tests.strategies import law

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
START = 1000 * NOON + 1


class Excursion(World):
    """A world whose clock can be ahead for some time."""

    def go_ahead(self, milliseconds: int) -> None:
        """Set the clock forward, as a running engine sees it."""
        self.now += milliseconds
        self.taken_over_at = self.now
        self.wake()

    def come_back(self, back_to: int) -> None:
        """Set the clock back, and correct the records."""
        case = self.case
        recorded = at_once(self.store.recorded(SPACE, {self.identity: cursor_at(case.job, back_to)}))
        change = rewind(case, recorded.get(self.identity, NOTHING), back_to=back_to, ahead_to=self.now)
        settled = at_once(self.store.settle(self.ownership, [change], now=back_to))
        assert not settled.stale_jobs
        assert change.rewind is not None
        for run in change.rewind.removed:
            self._outcomes.pop(run.key, None)
        self.now = self.taken_over_at = back_to
        self.wake_at = back_to

    def end_all(self) -> None:
        """Let every execution end."""
        for key in list(self.running):
            self.end(key)


def reopened(world: World, nominal_time: int) -> list[ReopenedRecord]:
    return at_once(world.store.reopened(SPACE, world.identity, at=nominal_time))


def fire_time_of(job: Job, nominal_time: int) -> int | None:
    """Return when a period is to start, from the decision's own definition."""
    chosen = decide_at(job, nominal_time).chosen_time
    if chosen is None:
        return None
    return 1000 * chosen + jitter_of(job.identity, rfc3339(nominal_time), job.policy.jitter_ms)


# --- stories ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("catchup", list(Catchup))
@pytest.mark.parametrize("ahead", [HOUR, DAY, 73 * 365 * DAY], ids=["an hour", "a day", "to 2099"])
def test_periods_after_an_excursion_run_on_time_and_those_that_ran_do_not_run_again(
    catchup: Catchup, ahead: int
) -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=catchup, deadline=None, max_catchup=7)
    world = Excursion(job, START)
    world.wake()
    world.advance(3 * MINUTE)
    world.go_ahead(ahead)
    world.advance(2 * MINUTE)
    before = list(world.starts)
    world.come_back(START + 5 * MINUTE)
    world.wake()
    world.advance(10 * MINUTE)
    since = world.starts[len(before) :]
    assert [(now, nominal) for now, nominal, _ in since] == [(1000 * nth(n), nth(n)) for n in range(6, 16)]
    world.advance(ahead if ahead < DAY else 0)
    first = [nominal for _, nominal, attempt in world.starts if attempt == 1]
    assert len(first) == len(set(first)), "nothing that ran runs twice"
    if ahead < DAY:
        assert set(first) | {nth(4), nth(5)} >= {nth(n) for n in range(1, ahead // MINUTE)}
        world.records()


def test_a_rewind_is_a_new_epoch_and_keeps_what_it_withdrew() -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=Catchup.NONE, deadline=None)
    world = Excursion(job, START)
    world.wake()
    world.advance(3 * MINUTE)
    world.go_ahead(DAY)
    world.come_back(START + 4 * MINUTE)
    assert (world.job.epoch, world.job.cursor) == (2, nth(4))
    (epoch,) = at_once(world.store.epochs(SPACE, world.identity))
    assert epoch.epoch == 1
    (withdrawn,) = reopened(world, nth(100))
    assert (withdrawn.first, withdrawn.reason, withdrawn.reopened_at) == (nth(5), "catchup_none", world.now)
    assert all(dropped.last <= nth(4) for dropped in world.ranges())
    assert reopened(world, nth(3)) == []


def test_a_second_rewind_changes_nothing() -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=Catchup.ONCE, deadline=None)
    world = Excursion(job, START)
    world.wake()
    world.go_ahead(DAY)
    world.come_back(START + 5 * MINUTE)
    once = world.case, world.records()
    world.come_back(START + 5 * MINUTE)
    assert world.records() == once[1]
    assert world.job == once[0].job._replace(revision=once[0].job.revision + 1)


def test_a_run_in_flight_and_a_waiting_retry_keep_their_remaining_time() -> None:
    job = with_policy(
        EVERY_MINUTE, overlap=Overlap.SKIP, run_timeout=EVERY_MINUTE.policy.replace_grace * 60, deadline=None
    )
    world = Excursion(job, START)
    world.wake()
    world.go_ahead(DAY)
    (before,) = world.case.runs
    world.come_back(START + 5 * MINUTE)
    (after,) = world.case.runs
    assert before.due_at is not None
    assert before.started_at is not None
    assert after.due_at is not None
    assert after.due_at - world.now == before.due_at - (START + DAY)
    assert after.started_at == world.now
    assert after.nominal_time == before.nominal_time, "it started, at whatever time"


def test_an_edit_made_while_the_clock_was_ahead_holds_from_the_present_on() -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=Catchup.NONE, deadline=None)
    world = Excursion(job, START)
    world.wake()
    world.advance(2 * MINUTE)
    world.go_ahead(DAY)
    even = Job(identity=job.identity, schedule=Schedule("*/2 * * * *"), policy=job.policy)
    world.edit(even)
    world.come_back(START + 3 * MINUTE)
    world.wake()
    world.advance(10 * MINUTE)
    assert [minute for minute in started(world) if minute < 1000] == [1, 2, 4, 6, 8, 10, 12]
    world.records()


def test_periods_that_ran_ahead_stay_handled_after_an_edit() -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=Catchup.NONE, deadline=None)
    hourly = Job(identity=job.identity, schedule=Schedule("0 * * * *"), policy=job.policy)
    world = Excursion(hourly, START)
    world.wake()
    world.go_ahead(HOUR - MINUTE)
    world.advance(2 * HOUR)
    assert started(world) == [60, 120]
    world.come_back(START + 5 * MINUTE)
    world.edit(job)
    assert handled_of(world.job.handled) == tuple((nth(minute), nth(minute)) for minute in (60, 120))
    world.advance(3 * HOUR)
    assert sorted(started(world)) == list(range(6, 186)), "each once, 60 and 120 ahead of their time"
    world.records()


@pytest.mark.parametrize("catchup", [Catchup.NONE, Catchup.ONCE, Catchup.ALL])
def test_an_outage_later_counts_no_period_that_ran_ahead(catchup: Catchup) -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=catchup, deadline=None, max_catchup=5)
    world = Excursion(job, START)
    world.wake()
    world.go_ahead(HOUR)
    world.advance(3 * MINUTE)
    ran = set(started(world))
    world.come_back(START + 5 * MINUTE)
    world.wake()
    world.end_all()
    world.outage(2 * HOUR)
    records = world.records()
    assert set(records) >= {nth(n) for n in range(6, 125)}
    assert all(records[nth(n)][0] == "SUCCESS" for n in ran)
    assert len(started(world)) == len(set(started(world)))


def test_a_period_dropped_by_a_person_or_without_a_candidate_stays_dropped() -> None:
    job = with_policy(EVERY_MINUTE, overlap=Overlap.ALLOW, catchup=Catchup.NONE, deadline=None)
    world = Excursion(job, START)
    world.wake()
    world.go_ahead(DAY)
    world.delete()
    world.come_back(START + 5 * MINUTE)
    world.wake()
    world.advance(HOUR)
    assert [minute for minute in started(world) if minute < 1000] == []
    case = world.case
    again = edit(case.job, list(case.runs), job, now=world.now)
    assert again.job.next_time == nth(66)


# --- against a model -------------------------------------------------------------------------------

POLICIES = st.fixed_dictionaries(
    {
        "overlap": st.sampled_from([Overlap.ALLOW, Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.QUEUE]),
        "catchup": st.sampled_from(list(Catchup)),
        "max_catchup": st.integers(1, 9),
        "jitter_ms": st.sampled_from([0, 0, 20_000]),
    }
)
WINDOWS = st.sampled_from([None, None, ("after", "7m"), ("before", "11m"), ("around", "6m")])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.integers(1, 20)),
        st.tuples(st.just("outage"), st.integers(1, 90)),
        st.tuples(st.just("end"), st.just(0)),
        st.tuples(st.just("ahead"), st.integers(2, 500)),
        st.tuples(st.just("back"), st.integers(2, 500)),
    ),
    max_size=9,
)


def job_with(policy: dict[str, Any], window: tuple[str, str] | None) -> Job:
    """Return a job of every third minute."""
    fields: dict[str, Any] = {"identity": "world/job", "schedule": "*/3 * * * *"}
    if window is not None:
        fields["window"] = {"mode": window[0], "duration": window[1]}
    return with_policy(Job.from_dict(fields), deadline=None, **policy)


def check_return(world: Excursion, job: Job, back_to: int) -> None:
    """Come back, and compare every period's record with the model's."""
    before = world.records()
    open_before = {run.nominal_time for run in world.case.runs if run.status is RunStatus.PENDING}
    ran = {nominal for _, nominal, _ in world.starts}
    world.come_back(back_to)
    after = world.records()
    for nominal_time in periods_of(job, back_to // 1000 - 3600, max(before, default=NOON)):
        if nominal_time not in before:
            assert nominal_time not in after
            continue
        fire_time = fire_time_of(job, nominal_time)
        is_open = nominal_time not in ran and fire_time is not None and fire_time >= back_to
        assert (nominal_time not in after) is is_open, rfc3339(nominal_time)
        if is_open:
            was_dropped = nominal_time not in open_before
            latest = [each for each in reopened(world, nominal_time) if each.reopened_at == back_to]
            assert len(latest) == was_dropped
        else:
            assert after[nominal_time] == before[nominal_time]


@law(20)
@given(POLICIES, WINDOWS, MOVES)
def test_every_period_has_one_record_whatever_the_clock_did(
    policy: dict[str, Any], window: tuple[str, str] | None, moves: list[tuple[str, int]]
) -> None:
    job = job_with(policy, window)
    world = Excursion(job, START)
    world.wake()
    for number, (move, minutes) in enumerate(moves):
        match move:
            case "advance":
                world.advance(minutes * MINUTE)
            case "outage":
                world.outage(minutes * MINUTE)
            case "end":
                world.end_all()
            case "ahead":
                world.go_ahead(minutes * MINUTE)
            case _:
                check_return(world, job, max(world.now - minutes * MINUTE, START + MINUTE) + number)
                world.wake()
    check_return(world, job, START + 2 * MINUTE)
    world.wake()
    began = world.now
    for _ in range(30):
        world.advance(MINUTE)
        world.end_all()
    records = world.records()
    first = [attempt for attempt in world.starts if attempt[2] == 1]
    assert len(first) == len({nominal for _, nominal, _ in first}), "nothing runs twice"
    for nominal_time in periods_of(job, began // 1000 + 1200, world.now // 1000 - 1200):
        assert nominal_time in records, "no silent period"
        assert records[nominal_time][1] not in {Reason.CATCHUP_NONE, Reason.SUPERSEDED, Reason.CATCHUP_LIMIT}


def test_the_periods_that_an_edit_kept_are_forgotten_with_the_time_they_were_kept_for() -> None:
    """Nothing of the future is kept in the new epoch; a clock that was ahead of nothing changes nothing."""
    record = World(EVERY_MINUTE, START).job._replace(kept_until=NOON + 600, edited_at=START)
    ahead = JobState(record._replace(cursor=NOON + 900))
    assert rewind(ahead, NOTHING, back_to=START + MINUTE, ahead_to=START + HOUR).job.kept_until is None
    behind = JobState(record._replace(cursor=NOON))
    assert rewind(behind, NOTHING, back_to=START + MINUTE, ahead_to=START + HOUR).job.kept_until == NOON + 600
