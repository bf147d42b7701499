"""Downtime: the cost of a job with a period every second after a long time without a worker."""

from datetime import UTC, datetime, timedelta
from functools import partial

from bench.row import Kind, Row, Say
from bench.timing import ALL, Sample, repeated, round_robin, rows_of, seconds_of
from kron.core.job.job import Job
from kron.core.plan.compiled import segment_of
from kron.core.plan.plan import plan
from kron.core.plan.registration import create
from kron.core.plan.report import Traits
from kron.core.plan.step import JobState, Snapshot
from kron.core.time.instant import datetime_of

TITLE = "newest missed period of a job that is due every second"
NOW = 1_772_323_200_000  # 2026-03-01T00:00:00Z
YEARS, HOUR, DAY = "kron, ten years down", "kron, an hour down", "kron, a day down"
ALONE = "kron, ten years down, only finding it"
GAPS = {YEARS: timedelta(days=3652), DAY: timedelta(days=1), HOUR: timedelta(hours=1)}
# A list of every missed second of ten years would not fit into memory.
PEER_GAPS = {"APScheduler 3, an hour down": 3_600, "APScheduler 3, a day down": 86_400}
CALLS = {"callback": Traits()}


def rows(say: Say, *, rounds: int) -> list[Row]:
    """Measure whole steps of such a job: the newest period is found, the others are counted and dropped."""
    measures = {name: partial(repeated, partial(_time, _case(gap)), least=0.02) for name, gap in GAPS.items()}
    measures[ALONE] = partial(repeated, partial(_time_newest, _case(GAPS[YEARS])), least=0.02)
    measures |= {name: partial(_time_peer, count) for name, count in PEER_GAPS.items()}
    series = round_robin(measures, repetitions=rounds, say=lambda text: say(f"{TITLE}: {text}"))
    return rows_of(TITLE, Kind.TIME, series, reference=YEARS)


def _case(gap: timedelta) -> JobState:
    job = Job.from_dict({"identity": "bench/job", "schedule": "* * * * * *", "policy": {"catchup": "once"}})
    case = JobState(create(job, now=NOW - gap // timedelta(milliseconds=1)))
    (change,), _ = plan(Snapshot([case], NOW, 1, CALLS), NOW)
    assert [run.nominal_time for run in change.starts] == [NOW // 1000]
    assert sum(dropped.periods for dropped in change.ranges) == gap // timedelta(seconds=1)
    return case


def _time(case: JobState) -> Sample:
    return {ALL: seconds_of(lambda: plan(Snapshot([case], NOW, 1, CALLS), NOW))}


def _time_newest(case: JobState) -> Sample:
    """Measure finding the period alone, without counting and judging the others."""
    return {ALL: seconds_of(lambda: segment_of(case.job).last_until(NOW // 1000))}


def _time_peer(missed: int) -> Sample:
    """Measure how APScheduler finds the run: it lists every missed time, even to coalesce them."""
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.cron import CronTrigger

    now = datetime_of(NOW // 1000)
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start(paused=True)
    begin = now - timedelta(seconds=missed - 1)
    trigger = CronTrigger(second="*", timezone=UTC)
    job = scheduler.add_job(print, trigger, next_run_time=begin, misfire_grace_time=None, coalesce=True)
    times: list[datetime] = []
    seconds = seconds_of(lambda: times.extend(job._get_run_times(now)))
    scheduler.shutdown()
    assert len(times) == missed
    return {ALL: seconds}
