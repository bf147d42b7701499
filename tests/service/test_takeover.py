"""What the next owner does with the starts a killed worker had recorded: real processes, both stores."""

import signal
from pathlib import Path
from threading import Event

import psycopg
import pytest

from kron.core.plan.record import RunRecord
from kron.core.shard import shard_of
from tests.chaos.story import now_ms
from tests.service.executor import executing
from tests.service.server import process
from tests.service.test_worker import SECONDLY, runs_of, upsert
from tests.waiting import PATIENCE_S, wait_for

FAST = {"KRON_TICK_MS": "50", "KRON_LEASE_MS": "1000"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kron.db"
    return str(request.getfixturevalue("postgres_url"))


def in_flight(url: str) -> list[RunRecord]:
    return [run for run in runs_of(url) if run.in_flight]


def leases_of(url: str) -> dict[str, set[int]]:
    """Return the tokens of each owner."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT owner, token FROM leases WHERE owner IS NOT NULL").fetchall()
    return {owner: {token for name, token in rows if name == owner} for owner, _ in rows}


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


@pytest.mark.slow
def test_a_start_that_is_sent_again_has_no_older_token_than_those_sent_before(
    postgres_url: str, tmp_path: Path
) -> None:
    """A worker that shares shards gets new ones, with a newer token, while it sends a start again."""
    words = ("worker", "--store", postgres_url)
    shared = {**FAST, "KRON_LEASE_MS": "5000", "KRON_WORKERS": "shared"}
    # Shards with low numbers are given away last.
    assert shard_of("fast") < 32

    late: list[str] = []
    regained = Event()

    def look(key: str) -> None:
        """Refuse the first start, after a while, and accept it when it is sent again."""
        executor.refused.discard(key)
        if not late:
            late.append(key)
            executor.refused.add(key)
            regained.wait(PATIENCE_S)

    with executing(look) as executor, process(*words, folder=tmp_path, **shared) as first:
        first.logged("lease acquired")
        launcher = {"kind": "http", "url": executor.url, "timeout": "1h"}
        upsert(postgres_url, {**SECONDLY, "launcher": launcher})
        wait_for(lambda: executor.sent)
        with process(*words, folder=tmp_path, **shared) as second:
            wait_for(lambda: len(leases_of(postgres_url)) == 2)
            second.signal(signal.SIGTERM)
            assert second.ended() == 0
        wait_for(lambda: any(len(tokens) > 1 for tokens in leases_of(postgres_url).values()))
        before = len(executor.sent)
        wait_for(lambda: len(executor.sent) > before + 1)
        regained.set()
        wait_for(lambda: executor.keys().count(late[0]) == 2)
        first.signal(signal.SIGTERM)
        assert first.ended() == 0
    tokens = [int(sent.headers["kron-fencing-token"]) for sent in executor.sent]
    assert tokens == sorted(tokens)
