"""The service struck at random, for a moment: `make chaos` does the same for as long as one likes."""

from pathlib import Path

import pytest

from tests.chaos.drama import ACTS, Plan, Report, play
from tests.faults.nursery import seed_of
from tests.postgres import Server

# How long processes are struck; setting up, coming to rest and judging take as long again.
SECONDS = 9.0


def check(report: Report) -> None:
    """See that nothing is wrong, and that enough happened for that to mean something."""
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
