"""Notices: which outcomes of the real plan are notified, to whom, and once."""

from dataclasses import replace
from datetime import timedelta

import pytest

from kron.core.job.job import Job
from kron.core.job.notify import Notify, NotifyEvent
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.notice import headline, rules_of, summary
from kron.core.plan.record import NoticeEvent, NoticeRecord, NoticeState
from kron.core.plan.report import RunEvent
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth
from tests.engine_world import SPACE, World, at_once, with_policy

OPS = Notify(to="ops")  # type: ignore[arg-type]  # one target may be given without a list
PING = "https://hc.example/abc"


def notifying(job: Job = EVERY_MINUTE, notify: Notify = OPS, **policy: object) -> Job:
    return replace(with_policy(job, **policy) if policy else job, notify=notify)


def world_of(job: Job) -> World:
    world = World(job, 1000 * NOON + 1)
    world.wake()
    return world


def notices(world: World) -> list[NoticeRecord]:
    return at_once(world.store.pending_notices(SPACE, limit=1_000))


def headlines(world: World) -> list[str]:
    return [headline(notice) for notice in notices(world)]


def run_one(world: World, happened: RunEvent, milliseconds: int = MINUTE) -> None:
    world.advance(milliseconds)
    (key,) = world.running
    world.end(key, happened)


def test_a_failure_is_notified_once_to_each_target_and_then_the_recovery() -> None:
    world = world_of(notifying(notify=Notify(to=("ops", "https://hook.example/x"))))
    run_one(world, RunEvent.SUCCESS)
    assert notices(world) == []
    run_one(world, RunEvent.FAILED)
    run_one(world, RunEvent.FAILED)
    run_one(world, RunEvent.SUCCESS)
    run_one(world, RunEvent.SUCCESS)
    to_ops = [notice for notice in notices(world) if notice.target == "ops"]
    assert [headline(notice) for notice in to_ops] == [
        '"world/job" failed',
        '"world/job" failed',
        '"world/job" succeeded again after 2 failures in a row',
    ]
    assert [notice.nominal_time for notice in to_ops] == [nth(2), nth(3), nth(4)]
    to_hook = [notice for notice in notices(world) if notice.target != "ops"]
    assert [notice.event for notice in to_hook] == [notice.event for notice in to_ops]
    ids = [notice.id for notice in notices(world)]
    assert len(set(ids)) == len(ids) == 6
    assert all(notice.state is NoticeState.PENDING for notice in notices(world))


def test_a_run_that_fails_again_at_its_retry_is_notified_once() -> None:
    world = world_of(notifying(retry_delay=timedelta(seconds=5)))
    run_one(world, RunEvent.FAILED)
    for _ in range(3):
        run_one(world, RunEvent.FAILED, 5_000)
    assert headlines(world) == ['"world/job" failed']


def test_the_pause_after_failures_is_notified_with_its_reason() -> None:
    world = world_of(notifying(pause_after_failures=2))
    run_one(world, RunEvent.FAILED)
    run_one(world, RunEvent.FAILED)
    assert world.job.paused_because == "2 failures in a row"
    assert headlines(world)[-1] == '"world/job" was paused: 2 failures in a row'


def test_a_success_after_the_resume_of_a_paused_job_is_a_recovery_and_pings() -> None:
    world = world_of(notifying(notify=Notify(to=("ops",), heartbeat=PING), pause_after_failures=2))
    run_one(world, RunEvent.FAILED)
    run_one(world, RunEvent.FAILED)
    world.advance(5 * MINUTE)
    known = len(notices(world))
    world.resume()
    run_one(world, RunEvent.SUCCESS)
    run_one(world, RunEvent.SUCCESS)
    later = notices(world)[known:]
    assert [
        headline(each) for each in later if each.target == "ops" and each.event != NoticeEvent.MISSED
    ] == ['"world/job" succeeded again after a resume']
    pings = [each.event for each in later if each.target == PING]
    assert pings == [NoticeEvent.PING_START, NoticeEvent.PING_SUCCESS] * 2


def test_a_failure_while_a_person_paused_the_job_keeps_their_reason_and_is_no_pause() -> None:
    world = world_of(notifying(pause_after_failures=1))
    world.advance(MINUTE)
    world.pause()
    (key,) = world.running
    world.end(key, RunEvent.FAILED)
    assert world.job.paused_because == "by hand"
    assert headlines(world) == ['"world/job" failed']


def test_periods_missed_together_are_one_notice_that_counts_them() -> None:
    world = world_of(notifying(catchup=Catchup.NONE, deadline=None))
    run_one(world, RunEvent.SUCCESS)
    world.outage(10 * MINUTE)
    (missed,) = notices(world)
    assert (missed.event, missed.periods) == (NoticeEvent.MISSED, 9)
    assert headline(missed).startswith('"world/job" missed 9 periods: missed: due during an outage')


@pytest.mark.parametrize(("late_ms", "count"), [(120_000, 0), (121_000, 1)])
def test_a_start_is_late_only_after_its_bound_and_only_if_requested(late_ms: int, count: int) -> None:
    notify = Notify(to=("ops",), on=(NotifyEvent.LATE,), late_after=timedelta(minutes=2))
    hourly = replace(EVERY_MINUTE, schedule=type(EVERY_MINUTE.schedule)("0 * * * *"))
    job = notifying(hourly, notify, deadline=None)
    world, silent = world_of(job), world_of(replace(job, notify=OPS))
    for each in (world, silent):
        each.oversleep(60 * MINUTE - 1 + late_ms)
        assert len(each.starts) == 1
    assert len(notices(world)) == count
    assert notices(silent) == []
    if count:
        assert headlines(world) == ['"world/job" started 2m1s late: started on schedule']


def test_a_heartbeat_is_pinged_at_each_start_and_end_of_an_attempt_in_order() -> None:
    world = world_of(notifying(notify=Notify(heartbeat=PING), overlap=Overlap.ALLOW))
    run_one(world, RunEvent.SUCCESS)
    run_one(world, RunEvent.FAILED)
    assert [(notice.event.value, notice.target) for notice in notices(world)] == [
        ("ping_start", PING),
        ("ping_success", PING),
        ("ping_start", PING),
        ("ping_fail", PING),
    ]


def test_an_edit_of_the_notifications_takes_effect_at_once_and_opens_no_epoch() -> None:
    world = world_of(EVERY_MINUTE)
    run_one(world, RunEvent.FAILED)
    assert notices(world) == []
    world.edit(notifying())
    assert (world.job.epoch, world.job.notify) == (1, '{"to": ["ops"]}')
    run_one(world, RunEvent.FAILED)
    assert headlines(world) == ['"world/job" failed']
    world.edit(notifying(notify=Notify(to=())))
    run_one(world, RunEvent.FAILED)
    assert len(notices(world)) == 1


def test_a_field_that_a_job_leaves_out_is_the_defaults_and_an_empty_list_sends_nothing() -> None:
    default = Notify(to=("ops",), on=(NotifyEvent.MISSED,), late_after=timedelta(minutes=9))
    own = rules_of('{"heartbeat": "https://hc.example/abc"}', default)
    assert own is not None
    assert (own.to, own.on, own.late_ms) == (("ops",), frozenset({NotifyEvent.MISSED}), 540_000)
    assert own.heartbeat == PING
    assert rules_of('{"to": []}', default) is None
    assert rules_of(None, None) is None
    assert rules_of('{"on": ["failed"]}', None) is None


def test_a_summary_counts_events_and_schedules() -> None:
    world = world_of(notifying())
    for _ in range(3):
        run_one(world, RunEvent.FAILED)
    run_one(world, RunEvent.SUCCESS)
    group = notices(world)
    assert summary(group[:1]) == '"world/job" failed'
    assert summary(group) == '3 failed, 1 recovered in "world/job"'
    other = group[0]._replace(identity="other")
    assert summary([*group, other]) == "4 failed, 1 recovered in 2 schedules"
