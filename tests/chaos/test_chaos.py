"""Short chaos experiments with the service; `make chaos` runs longer ones."""

from pathlib import Path

import pytest

from tests.chaos.experiment import ACTS, Plan, Report, play
from tests.faults.fork_server import seed_of
from tests.postgres import Server

# How long faults are injected; setup, recovery and judging take as long again.
SECONDS = 9.0


def check(report: Report) -> None:
    """Check that there is no fault, and that enough happened for that to count."""
    assert not report.faults, "\n".join(report.lines())
    assert report.story.strikes(ACTS) >= report.plan.least_strikes
    assert report.figures["periods"] > report.plan.least_deliveries
    assert report.figures["deliveries"] >= report.plan.least_deliveries


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sharing", ["leader", "shared"])
def test_three_workers_and_an_api_on_postgres_lose_and_double_nothing(
    postgres: Server, tmp_path: Path, sharing: str
) -> None:
    plan = Plan(folder=tmp_path, seed=seed_of("chaos"), seconds=SECONDS, sharing=sharing, database=postgres)
    check(play(plan))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_and_an_api_on_a_file_lose_and_double_nothing(tmp_path: Path) -> None:
    check(play(Plan(folder=tmp_path, seed=seed_of("chaos"), seconds=SECONDS)))
