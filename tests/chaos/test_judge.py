"""The judge detects every kind of fault: each case spoils one record or delivery."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import RangeRecord, Result, RunKind, RunRecord, RunStatus, key_of, request_key_of
from kron.core.plan.registration import create
from kron.core.shard import shard_of
from tests.chaos.audit import Lease, Start
from tests.chaos.client import TEXTS, TIMED
from tests.chaos.delivery import Answer, Delivery
from tests.chaos.executor import REPORTS
from tests.chaos.judge import ON_ITS_WAY_MS, STRUCK_MS, Evidence, History, faults_of, seconds_of
from tests.engine_world import with_policy

BORN_MS, NAME = 1_000_000_000_000, "steady-1"
SHARD = shard_of(NAME)
TIMES = range(1_000_000_000, 1_000_000_005)


def run_at(time: int, **changes: object) -> RunRecord:
    run = RunRecord(
        key_of(NAME, time), NAME, time, 1000 * time, RunStatus.ENQUEUED, Reason.DUE, 1000 * time, 1, None, 0,
        RunKind.PERIOD, 1, 7, 1000 * time, None, None, None, None, 1,
    )  # fmt: skip
    return run._replace(**changes)  # type: ignore[arg-type]


def delivery_of(run: RunRecord, **changes: object) -> Delivery:
    at = 1000 * run.nominal_time + 5
    found = Delivery(NAME, run.key, 1, 7, at, run.nominal_time, True, Answer.ACCEPTED)
    found = found._replace(**changes)  # type: ignore[arg-type]
    return found if "sent_at" in changes else found._replace(sent_at=found.at // 1000)


def good() -> Evidence:
    job = with_policy(Job(identity=NAME, schedule=Schedule("*/1 * * * * *")), deadline=None)
    record = create(job, now=BORN_MS)._replace(cursor=TIMES[-1])
    manual = run_at(TIMES[0], key=request_key_of(NAME, RunKind.MANUAL, "one"), kind=RunKind.MANUAL)
    runs = [manual, *map(run_at, TIMES)]
    return Evidence(
        histories=[History(record, runs, [], [])],
        deliveries=[delivery_of(run) for run in runs],
        leases=[Lease(SHARD, 7, "host:11:x", False), Lease(SHARD, 8, "host:12:x", True)],
        starts=[Start(SHARD, run.key, 1, 7) for run in runs],
        asked={"one": True, "two": False},
        struck=[(11, BORN_MS + 1_100)],
    )


def with_runs(evidence: Evidence, runs: list[RunRecord], ranges: list[RangeRecord] | None = None) -> Evidence:
    (history,) = evidence.histories
    return replace(evidence, histories=[history._replace(runs=runs, ranges=ranges or [])])


def with_first(evidence: Evidence, **changes: object) -> Evidence:
    """Change the record of the first period."""
    manual, first, *rest = evidence.histories[0].runs
    return with_runs(evidence, [manual, first._replace(**changes), *rest])  # type: ignore[arg-type]


def delivered_again(evidence: Evidence, **changes: object) -> Evidence:
    again = delivery_of(run_at(TIMES[1]), ran=False, token=8, at=BORN_MS + 1_500)
    return replace(evidence, deliveries=[*evidence.deliveries, again._replace(**changes)])  # type: ignore[arg-type]


def delivered_late(evidence: Evidence) -> Evidence:
    """Deliver a start of the former owner once more, after one of the owner that took over."""
    newer = delivery_of(evidence.histories[0].runs[-1], token=8)
    late = delivery_of(run_at(TIMES[1]), ran=False, at=newer.at + 5)
    return replace(evidence, deliveries=[*evidence.deliveries[:-1], newer, late])


def lost(evidence: Evidence, *, sent_at: int, name: str = f"{TIMED}-0") -> Evidence:
    """Lose the first period of a schedule with a run timeout at its fire time plus 3 s, and send it."""
    (history,) = evidence.histories
    run = run_at(TIMES[0], status=RunStatus.FAILED, result=Result.LOST, ended_at=BORN_MS + 3_000, token=8)
    run = run._replace(identity=name, key=key_of(name, TIMES[0]))
    timed = History(history.job._replace(identity=name), [run], [missed(name, TIMES[1], TIMES[-1])], [])
    timed = timed._replace(ranges=[timed.ranges[0]._replace(outcome=Outcome.SKIPPED, reason=Reason.ACTIVE)])
    sent = [delivery_of(run, identity=name, ran=False, at=BORN_MS + 5, answer=Answer.REFUSED)]
    sent += [delivery_of(run, identity=name, token=8, at=sent_at)] if sent_at else []
    return replace(evidence, histories=[history, timed], deliveries=[*evidence.deliveries, *sent])


def overlapping(evidence: Evidence, started_at: int) -> Evidence:
    """Add a reporting schedule whose runs take 900 ms, and whose second one starts at an instant."""
    name, (history,) = f"{REPORTS}-1", evidence.histories
    runs = [
        run_at(
            time, key=key_of(name, time), identity=name, status=RunStatus.SUCCESS, ended_at=1000 * time + 900
        )
        for time in TIMES
    ]
    runs[1] = runs[1]._replace(started_at=started_at)
    reporting = History(history.job._replace(identity=name), runs, [], [])
    sent = [delivery_of(run, identity=name) for run in runs]
    return replace(evidence, histories=[history, reporting], deliveries=[*evidence.deliveries, *sent])


def missed(name: str, first: int, last: int) -> RangeRecord:
    count = last - first + 1
    return RangeRecord(name, first, last, count, Outcome.MISSED, Reason.CATCHUP_NONE, 1, 1000 * first)


def test_what_is_right_is_not_complained_about() -> None:
    assert faults_of(good()) == []
    assert faults_of(delivered_again(good())) == []
    assert faults_of(lost(good(), sent_at=0)) == []
    assert faults_of(lost(good(), sent_at=BORN_MS + 2_000)) == []
    # The executor of a busy machine notes late what was sent in time.
    spoilt = lost(good(), sent_at=BORN_MS + 9_000)
    noted = [each._replace(sent_at=BORN_MS // 1000) for each in spoilt.deliveries]
    assert faults_of(replace(spoilt, deliveries=noted)) == []
    assert faults_of(overlapping(good(), BORN_MS + 1_000)) == []


SPOILT: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "a lost period": (lambda e: with_runs(e, e.histories[0].runs[:-1]), "has no record"),
    "a period twice": (lambda e: with_runs(e, [*e.histories[0].runs, run_at(TIMES[0])]), "has 2 records"),
    "no period": (lambda e: with_runs(e, [*e.histories[0].runs, run_at(TIMES[-1] + 9)]), "is no period"),
    "dropped": (
        lambda e: with_runs(e, e.histories[0].runs[:-1], [missed(NAME, TIMES[-1], TIMES[-1])]),
        "was dropped",
    ),
    "open": (lambda e: with_first(e, is_open=1), "not over"),
    "missed": (lambda e: with_first(e, status=RunStatus.MISSED, attempt=0), "late enough"),
    "skipped": (lambda e: with_first(e, status=RunStatus.SKIPPED, reason=Reason.QUEUE_FULL), "its policy is"),
    "orphaned": (lambda e: with_first(e, status=RunStatus.FAILED, result=Result.ORPHANED), "orphaned"),
    "a launch that failed and was accepted": (
        lambda e: with_first(e, status=RunStatus.FAILED, result=Result.LAUNCH_FAILED),
        "was accepted",
    ),
    "never delivered": (lambda e: replace(e, deliveries=e.deliveries[:-1]), "was not run"),
    "run twice": (lambda e: delivered_again(e, ran=True), "was run 2 times"),
    "not on record": (
        lambda e: replace(e, deliveries=[*e.deliveries, delivery_of(run_at(77))]),
        "has no record",
    ),
    "too early": (
        lambda e: replace(e, deliveries=[e.deliveries[0]._replace(at=BORN_MS - 5_000), *e.deliveries[1:]]),
        "before its time",
    ),
    "repeated for no reason": (
        lambda e: replace(delivered_again(e), leases=[lease._replace(forced=False) for lease in e.leases]),
        "no owner had died",
    ),
    "repeated though another shard was taken over": (
        lambda e: replace(delivered_again(e), leases=[lease._replace(shard=SHARD + 1) for lease in e.leases]),
        "no owner had died",
    ),
    "repeated by the same owner": (lambda e: delivered_again(e, token=7), "with the token 7"),
    "repeated though its sender was not struck": (
        lambda e: replace(delivered_again(e), struck=[(12, BORN_MS + 1_100)]),
        "no owner had died",
    ),
    "repeated long after its sender was struck": (
        lambda e: replace(delivered_again(e), struck=[(11, BORN_MS + 1_004 - STRUCK_MS)]),
        "no owner had died",
    ),
    "sent by a former owner": (delivered_late, "arrived with token 7 after 8"),
    "sent when it was recorded as lost": (lambda e: lost(e, sent_at=BORN_MS + 4_001), "sent by that owner"),
    "lost, and sent long after that": (
        lambda e: replace(
            spoilt := lost(e, sent_at=0),
            deliveries=[
                *spoilt.deliveries,
                spoilt.deliveries[-1]._replace(at=BORN_MS + 3_001 + ON_ITS_WAY_MS),
            ],
        ),
        "and arrived at",
    ),
    "lost without a timeout": (lambda e: lost(e, sent_at=0, name=f"{REPORTS}-0"), "lost, None"),
    "two at once": (lambda e: overlapping(e, BORN_MS + 899), "one before ended at"),
    "an older token": (
        lambda e: replace(e, starts=[Start(SHARD, "k", 1, 8), *e.starts]),
        "has token 7 after 8",
    ),
    "a token given back": (lambda e: replace(e, leases=e.leases[::-1]), "was given after"),
    "a request without a run": (
        lambda e: replace(e, asked={"one": True, "three": True}),
        "three was acknowledged",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_spoilt_is_seen(what: str) -> None:
    spoil, said = SPOILT[what]
    faults = faults_of(spoil(good()))
    assert any(said in fault for fault in faults), faults


def test_seconds_are_read_as_the_desk_writes_them() -> None:
    for text in TEXTS:
        schedule = Schedule(f"{text} * * * * *")
        listed = {instant.second for instant in schedule.between(*map(_minute, (0, 1)))}
        assert listed == set(seconds_of(json.dumps({"schedule": f"{text} * * * * *"})))


def _minute(number: int) -> datetime:
    return datetime(2026, 1, 1, 0, number, tzinfo=UTC)
