"""What the machine of plan and model found, each as one example."""

from dataclasses import replace
from datetime import timedelta

import pytest

from kron.core.job.job import Job
from kron.core.job.policy import Catchup, Overlap
from kron.core.job.window import Window, WindowMode
from kron.core.plan.plan import plan
from kron.core.plan.record import RunStatus
from kron.core.plan.report import RunEvent
from kron.core.plan.step import JobState, Snapshot
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth, seen
from tests.engine_model import fire_time_of
from tests.engine_world import World, with_policy


def every_minute(**policy: object) -> Job:
    return with_policy(EVERY_MINUTE, **{"deadline": None, "overlap": Overlap.ALLOW, **policy})


def world(**policy: object) -> World:
    made = World(every_minute(**policy), 1000 * NOON + 1)
    made.wake()
    return made


# --- retries and pauses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paused_ms", "waits_ms"),
    [
        pytest.param(0, 30_000, id="resumed at once"),
        pytest.param(29_999, 1, id="resumed before its time"),
        pytest.param(45_000, 0, id="resumed after its time"),
    ],
)
def test_a_retry_keeps_the_time_it_got_when_its_run_failed(paused_ms: int, waits_ms: int) -> None:
    """The delay was changed while it ran: neither the old one nor a pause counts any more."""
    made = world(retry_delay=timedelta(seconds=90))
    made.advance(MINUTE)
    made.edit(every_minute(retry_delay=timedelta(seconds=30)))
    made.end_period(nth(1), RunEvent.FAILED)
    made.pause()
    made.advance(paused_ms)
    made.resume()
    if waits_ms:
        made.advance(waits_ms - 1)
        assert seen(made) == ["FAILED retry"]
        made.advance(1)
    assert seen(made) == ["STARTED retry"]


def test_a_retry_whose_time_comes_during_a_pause_wakes_once_and_waits() -> None:
    made = world(retry_delay=timedelta(seconds=30))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.pause()
    wakes = made.wakes
    made.advance(20 * MINUTE)
    assert (made.wakes - wakes, made.wake_at, seen(made)) == (1, None, ["FAILED retry"])


def test_a_job_paused_by_the_failure_keeps_the_time_of_its_retry() -> None:
    made = world(retry_delay=timedelta(seconds=30), pause_after_failures=1)
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    made.edit(every_minute(retry_delay=None))
    made.resume()
    made.advance(29_999)
    assert seen(made) == ["FAILED retry"]
    made.advance(1)
    assert seen(made) == ["STARTED retry"]


def test_a_job_set_aside_keeps_the_time_of_its_retry() -> None:
    made = world(retry_delay=timedelta(seconds=30))
    made.advance(MINUTE)
    made.end_period(nth(1), RunEvent.FAILED)
    sound, runs = made.job, made.case.runs
    damaged = sound._replace(definition="{}", plan_at=made.now)
    snapshot = Snapshot([JobState(damaged, runs)], made.taken_over_at, made.ownership.token, made.traits)
    (change,), wake_at = plan(snapshot, made.now)
    assert (change.job.paused, change.updates, wake_at) == (1, [], None)
    (again,), wake_at = plan(snapshot, made.now + 30_000)
    assert ([run.due_at for run in again.updates], wake_at) == ([None], None)


# --- what is spread --------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.BUFFER_ONE])
def test_what_is_spread_stays_exempt_from_the_deadline_while_it_waits(overlap: Overlap) -> None:
    made = world(overlap=overlap, catchup=Catchup.SPREAD, deadline=timedelta(seconds=30), end_at=nth(1))
    made.ask()
    made.now = made.taken_over_at = made.now + 3 * MINUTE
    made.wake()
    made.advance(30_000)
    assert seen(made) == ["PENDING spread"]
    made.now += MINUTE
    (asked,) = made.running
    made.end(asked)
    assert seen(made) == ["STARTED spread"]


def test_each_definition_spreads_its_own_missed_periods() -> None:
    """Those of a later definition were planned and missed with them, and take no place among them."""
    before, after = (
        replace(every_minute(catchup=catchup), window=Window(WindowMode.AFTER, timedelta(minutes=9)))
        for catchup in (Catchup.SPREAD, Catchup.NONE)
    )
    made = World(before, 1000 * NOON + 1)
    made.wake()
    made.advance(3 * MINUTE)
    made.edit(after)
    made.advance(2 * MINUTE)
    planned = [run for run in made.rows().values() if run.status is RunStatus.PENDING]
    first = sorted(run.nominal_time for run in planned if run.epoch == 1)
    assert 0 < len(first) < len(planned)
    made.now = made.taken_over_at = made.now + 20 * MINUTE
    made.wake()
    places = [made.rows()[nominal].fire_time - made.now for nominal in first]
    assert places == [number * MINUTE // (len(first) + 1) for number in range(1, len(first) + 1)]


# --- limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("catchup", [Catchup.ALL, Catchup.SPREAD])
@pytest.mark.parametrize("limit", [1, 2, 12])
def test_no_more_missed_periods_run_than_the_limit_whatever_their_windows(
    catchup: Catchup, limit: int
) -> None:
    """Some were planned, some were certainly missed, and of some the window was still open: the newest."""
    window = Window(WindowMode.AFTER, timedelta(minutes=9))
    job = replace(every_minute(catchup=catchup, max_catchup=limit), window=window)
    made = World(job, 1000 * NOON + 1)
    made.wake()
    made.advance(5 * MINUTE)
    handled = {run.nominal_time for run in made.rows().values() if run.status is not RunStatus.PENDING}
    made.outage(30 * MINUTE)
    since = made.now - MINUTE
    fire_times = {n: fire_time_of(job, n) for n in map(nth, range(1, 36)) if n not in handled}
    missed = [
        nominal for nominal, fire_time in fire_times.items() if fire_time is not None and fire_time < since
    ]
    run = [n for n, (_, reason) in sorted(made.records().items()) if reason in ("caught_up", "spread")]
    assert run == missed[-limit:]


def test_a_success_among_several_open_runs_is_dated_by_its_end() -> None:
    made = World(every_minute(), 1000 * NOON + 1)
    made.wake()
    made.advance(2 * MINUTE)
    first, _ = sorted(made.running, key=lambda key: made.running[key].nominal_time)
    made.now += 5_000
    made.end(first)
    assert made.case.job.last_success_at == made.now
