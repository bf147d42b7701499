"""APScheduler, really running, judged by the theory."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from threading import Event, Semaphore

import pytest
from apscheduler.events import (
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MISSED,
    EVENT_JOB_SUBMITTED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from kron.fronts.conform.apscheduler import Recorder
from kron.theory import Report, Status, Trace, check
from tests.waiting import PATIENCE_S

# A minute of the trace is so long in the test; nothing depends on how quick the machine is.
MINUTE = 0.5
START = datetime(2026, 3, 1, tzinfo=UTC)


class World:
    """A scheduler with one job that is meant to run every minute, in a world that is in a hurry."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.began = datetime.now(UTC) + timedelta(seconds=MINUTE)
        recorder = Recorder({"job": "* * * * *"}, write=self.lines.append, now=self.now)
        self.scheduler = BackgroundScheduler(timezone=UTC)
        recorder.attach(self.scheduler)

    def now(self) -> datetime:
        """Return the time of the trace: a minute passes in a fraction of a second."""
        return START + timedelta(minutes=(datetime.now(UTC) - self.began) / timedelta(seconds=MINUTE))

    def run(self, work: Callable[[], None], *, instances: int = 1) -> None:
        """Let the scheduler run the job; one that is late by more than a minute starts once."""
        trigger = IntervalTrigger(seconds=MINUTE, start_date=self.began, timezone=UTC)
        options = {"id": "job", "coalesce": True, "misfire_grace_time": None, "max_instances": instances}
        self.scheduler.add_job(work, trigger, **options)
        self.scheduler.add_job(lambda: None, trigger, id="another")
        self.scheduler.start()

    def judged(self) -> Report:
        """Return what the theory says of it."""
        return check(Trace.from_jsonl(self.lines))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    if made.scheduler.running:
        made.scheduler.shutdown(wait=False)


def kinds(lines: list[str]) -> list[str]:
    return [event.kind for position in Trace.from_jsonl(lines) for event in position.events]


def test_a_plain_run_conforms(world: World) -> None:
    runs = Semaphore(0)
    world.run(runs.release)
    for _ in range(4):
        assert runs.acquire(timeout=PATIENCE_S)
    world.scheduler.shutdown(wait=True)
    found = kinds(world.lines)
    assert found[:2] == ["InitStart", "InitSuccess"]
    assert found[-2:] == ["StopStart", "StopEnd"]
    assert found.count("RunStart") == found.count("RunSuccess") >= 4
    report = world.judged()
    assert [finding.message for finding in report.failed] == []


def test_a_failing_job_is_a_failure_and_no_violation(world: World) -> None:
    runs = Semaphore(0)

    def work() -> None:
        runs.release()
        raise RuntimeError("as it must")

    world.run(work)
    assert runs.acquire(timeout=PATIENCE_S)
    world.scheduler.shutdown(wait=True)
    assert "RunFailure" in kinds(world.lines)
    assert world.judged().conforms


def test_two_instances_of_one_job_at_once_break_start_safety(world: World) -> None:
    runs, end = Semaphore(0), Event()

    def work() -> None:
        runs.release()
        assert end.wait(PATIENCE_S)

    world.run(work, instances=2)
    for _ in range(2):
        assert runs.acquire(timeout=PATIENCE_S)
    end.set()
    world.scheduler.shutdown(wait=True)
    finding = world.judged()["S1"]
    assert finding.status is Status.FAILED
    assert finding.message == '"job" starts while it is running'
    assert world.judged().blame == "scheduler"


def test_a_shutdown_that_does_not_wait_breaks_stop_consistency(world: World) -> None:
    runs, end = Semaphore(0), Event()

    def work() -> None:
        runs.release()
        assert end.wait(PATIENCE_S)

    world.run(work)
    assert runs.acquire(timeout=PATIENCE_S)
    world.scheduler.shutdown(wait=False)
    end.set()
    finding = world.judged()["S3"]
    assert finding.status is Status.FAILED
    assert finding.message == 'stop() returns while "job" runs'


def test_what_is_told_out_of_order_is_written_in_order() -> None:
    """APScheduler announces a start after it was made, and the ends of a submission all at once."""
    lines: list[str] = []
    recorder = Recorder({"job": "* * * * *"}, write=lines.append, now=lambda: START)
    one, two, three = (START + timedelta(minutes=number) for number in range(3))
    recorder.note(JobExecutionEvent(EVENT_JOB_EXECUTED, "job", "default", one))
    recorder.note(JobSubmissionEvent(EVENT_JOB_SUBMITTED, "job", "default", [one]))
    recorder.note(JobSubmissionEvent(EVENT_JOB_SUBMITTED, "job", "default", [two, three]))
    recorder.note(JobExecutionEvent(EVENT_JOB_EXECUTED, "job", "default", two))
    recorder.note(JobExecutionEvent(EVENT_JOB_MISSED, "job", "default", three))
    recorder.note(JobSubmissionEvent(EVENT_JOB_SUBMITTED, "another", "default", [one]))
    ends = ["RunSuccess", "RunSuccess", "RunFailure"]
    assert kinds(lines) == [kind for end in ends for kind in ("RunStart", end)]
