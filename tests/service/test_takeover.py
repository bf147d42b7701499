"""What the next owner does with the starts a killed worker had recorded: real processes, both stores."""

import signal
from pathlib import Path

import pytest

from kron.core.plan.record import RunRecord
from tests.chaos.story import now_ms
from tests.service.executor import executing
from tests.service.server import process
from tests.service.test_worker import SECONDLY, runs_of, upsert
from tests.waiting import wait_for

FAST = {"KRON_TICK_MS": "50", "KRON_LEASE_MS": "1000"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kron.db"
    return str(request.getfixturevalue("postgres_url"))


def in_flight(url: str) -> list[RunRecord]:
    return [run for run in runs_of(url) if run.in_flight]


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["queue", "skip"])
def test_a_start_whose_timeout_passed_before_the_take_over_is_lost_and_never_sent(
    url: str, tmp_path: Path, overlap: str
) -> None:
    words = ("worker", "--store", url)
    with executing() as executor:
        launcher = {"kind": "http", "url": executor.url, "reports": True}
        document = {**SECONDLY, "overlap_policy": overlap, "launcher": launcher}
        upsert(url, {**document, "policy": {"run_timeout": "3s"}})
        executor.status = 503
        with process(*words, folder=tmp_path, **FAST) as killed:
            wait_for(lambda: executor.sent)
            killed.signal(signal.SIGKILL)
            killed.ended()
        (lost,) = in_flight(url)
        assert not lost.acked
        due_at = lost.due_at
        assert due_at is not None
        wait_for(lambda: now_ms() > due_at)
        executor.status = 202
        executor.sent.clear()
        with process(*words, folder=tmp_path, **FAST) as following:
            wait_for(lambda: [run for run in in_flight(url) if run.acked])
            following.signal(signal.SIGTERM)
            assert following.ended() == 0
    sent = executor.keys()
    assert lost.key not in sent
    (row,) = [run for run in runs_of(url) if run.key == lost.key]
    assert (row.status, row.result) == ("FAILED", "lost")
