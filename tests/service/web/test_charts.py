"""Charts of a schedule as values: the days of a year, durations, policies, windows and attempts."""

import json
import subprocess
from bisect import bisect_right
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from kron.core.job.decision import decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import FRONT_DEFAULTS, Catchup, Overlap
from kron.core.job.verify import verify
from kron.core.plan.query import RunCount
from kron.core.plan.record import AttemptRecord, RangeRecord, Result, RunStatus
from kron.core.time.instant import DAY
from kron.core.time.zone import Zone, zone_of
from kron.fronts.service.web.charts import (
    COLUMNS,
    SCALE_WIDTH,
    WEEKS,
    attempts_chart,
    midnights_of,
    policy_of,
    proof_of,
    trend_of,
    window_of,
    year_of,
)
from kron.fronts.service.web.timeline import HOUR, MINUTE
from tests.service.web.test_timeline import NOW, a_run

BERLIN = zone_of("Europe/Berlin")


def counted(times: dict[int, RunStatus], zone: Zone) -> list[RunCount]:
    """Count runs by day as a store does."""
    bounds = midnights_of(zone, NOW)
    parts = Counter((bisect_right(bounds, at // 1000) - 1, status) for at, status in times.items())
    return [RunCount(part, status, runs) for (part, status), runs in parts.items()]


def test_a_day_has_the_look_of_its_worst_outcome_in_the_zone_of_the_schedule() -> None:
    # 2026-03-27 23:30 UTC is a Saturday in Berlin, as is noon of the 28th.
    late = NOW - 12 * HOUR - 30 * MINUTE
    year = year_of(counted({NOW: RunStatus.SUCCESS, late: RunStatus.FAILED}, BERLIN), [], BERLIN, NOW)
    marked = [cell for cell in year.cells if cell.look != "empty"]
    assert [(cell.look, cell.title) for cell in marked] == [("bad", "Sat 28 Mar 2026: 1 failed, 1 success")]
    assert marked[0] == year.cells[-1]
    assert max(cell.x for cell in year.cells) == 14 * (WEEKS - 1)
    assert year.summary == "1 failed, 1 success"


@pytest.mark.parametrize("key", ["UTC", "Europe/Berlin", "Asia/Beirut", "America/Havana", "Asia/Kathmandu"])
def test_the_days_of_the_year_begin_where_the_local_date_changes(key: str) -> None:
    zone = zone_of(key)
    bounds = midnights_of(zone, NOW)
    days = [_date(at, zone) for at in bounds]
    assert days == [days[0] + timedelta(days=number) for number in range(len(days))]
    assert [_date(at - 1, zone) for at in bounds[1:]] == days[:-1]
    assert days[-2] == _date(NOW // 1000, zone)


def _date(at: int, zone: Zone) -> date:
    return datetime.fromtimestamp(at, zone.tzinfo).date()


def test_dropped_periods_mark_their_days_and_count_as_many() -> None:
    first = NOW // 1000 - 2 * DAY
    dropped = RangeRecord("job", first, first + DAY, 48, Outcome.MISSED, Reason.CATCHUP_NONE, 1, NOW)
    year = year_of(counted({NOW: RunStatus.SUCCESS}, BERLIN), [dropped], BERLIN, NOW)
    assert [cell.look for cell in year.cells[-3:]] == ["miss", "miss", "ok"]
    assert year.summary == "48 missed, 1 success"
    assert year.legend == [("miss", "48 missed"), ("ok", "1 success")]
    # A range longer than the chart costs no more than the chart.
    old = dropped._replace(first=first - 40_000 * DAY)
    assert all(cell.look == "miss" for cell in year_of([], [old], BERLIN, NOW).cells[:-1])


def test_slow_executions_are_marked_between_the_lines_of_two_percentiles() -> None:
    took = [1000] * 80 + [1500] * 14 + [2500] * 3 + [9000] * 3
    runs = [
        a_run(NOW - number * MINUTE)._replace(ended_at=NOW - number * MINUTE + length)
        for number, length in enumerate(took)
    ]
    trend = trend_of(runs)
    assert trend is not None
    # Those of 2.5 s took more than two medians, and are none beyond the 95th percentile.
    assert (trend.p50, trend.p95, trend.slow) == (1000, 2500, 3)
    assert [point.is_slow for point in trend.points] == [*[True] * 3, *[False] * 97]
    assert trend.points[0].y < trend.p95_y < trend.p50_y
    # The labels of the scale stand beside the points.
    assert all(SCALE_WIDTH < point.x < 100 for point in trend.points)
    assert trend_of(runs[:4]) is None


def test_the_effective_policy_says_where_each_value_comes_from() -> None:
    job = Job.from_dict({"identity": "job", "schedule": "* * * * *"})
    policy = replace(FRONT_DEFAULTS["service"], overlap=Overlap.QUEUE, catchup=Catchup.ONCE)
    rows = {row.name: row for row in policy_of(replace(job, policy=policy), {"overlap": Overlap.QUEUE})}
    assert rows["overlap"][1:] == ("queue", "default, from the settings of the service")
    assert rows["catchup"][1:] == ("once", "definition")
    assert rows["deadline"][1:] == ("none", "default")


WINDOWED = Job.from_dict(
    {
        "identity": "job",
        "schedule": "0 * * * *",
        "window": {"mode": "after", "duration": "1h"},
        "distribution": {"name": "skewLate", "shape": 3},
        "constraints": {"avoid": {"between": ["11:30-13:00"]}},
    }
)


def test_a_window_shows_its_curve_the_rejected_candidates_and_the_chosen_one() -> None:
    nominal = NOW // 1000 - 3600
    chart = window_of(WINDOWED, nominal)
    decision = decide_at(WINDOWED, nominal)
    assert chart is not None
    assert [sample.is_rejected for sample in chart.samples] == [True] * (decision.attempts - 1) + [False]
    assert decision.chosen_time is not None
    assert chart.samples[-1].x == round(100 * (decision.chosen_time - nominal) / 3600, 2)
    assert chart.nominal_x == 0
    ((x, width),) = chart.forbidden
    assert abs(x - 50) < 100 / COLUMNS
    assert abs(x + width - 100) < 1
    # The curve of a late distribution rises.
    heights = [float(point.split(" ")[1]) for point in chart.curve.split("L")[1:-1]]
    assert heights[-1] < heights[COLUMNS // 2] < heights[0]
    assert window_of(Job.from_dict({"identity": "job", "schedule": "0 * * * *"}), nominal) is None


@pytest.mark.parametrize("identity", ["job", r"C:\new 'job' \"%s\" $HOME `id` !", "نسخة/日本"])
def test_the_command_of_a_certificate_recomputes_it(identity: str) -> None:
    job = Job.from_dict({**WINDOWED.to_dict(), "identity": identity})
    proof = proof_of(job, NOW // 1000)
    say, _, into = proof.command.rpartition(" | ")
    assert into == "kron verify -"
    # As it is typed: the shell must not read anything in it.
    said = subprocess.run(["/bin/sh", "-c", say], capture_output=True, check=True).stdout
    assert json.loads(said) == proof.document
    verified = verify(json.loads(said))
    assert (verified.differences, verified.problems) == ((), ())


def test_attempts_are_bars_from_the_first_start_to_the_last_end() -> None:
    run = a_run(NOW + 60_000)._replace(attempt=2, ended_at=NOW + 100_000, result=Result.SUCCESS)
    first = AttemptRecord(run.key, 1, 1, NOW, NOW + 20_000, Result.FAILED, "no route", None)
    chart = attempts_chart(run, [first], NOW)
    assert chart is not None
    bars = chart.bars
    assert chart.length == 100_000
    assert [(bar.x, bar.width, bar.look, bar.label) for bar in bars] == [
        (0.0, 20.0, "bad", "Attempt 1"),
        (60.0, 40.0, "ok", "Attempt 2"),
    ]
    assert bars[0].title == "20 s, no route"
    running = attempts_chart(run._replace(ended_at=None), [first], NOW + 200_000)
    assert running is not None
    assert running.length == 200_000
    assert (running.bars[1].look, running.bars[1].x + running.bars[1].width) == ("run", 100.0)
    assert attempts_chart(run._replace(started_at=None), [], NOW) is None
