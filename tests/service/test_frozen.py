"""A worker that was frozen beyond its lease sends nothing more of what others took over."""

import asyncio
import signal
from pathlib import Path
from threading import Event

import pytest

from kron.fronts.service.runs import run_now
from tests.service.executor import executing
from tests.service.server import process
from tests.service.test_worker import SECONDLY, YEARLY, asked, runs_of, upsert
from tests.waiting import PATIENCE_S, wait_for

FAST = {"KRON_TICK_MS": "50", "KRON_LEASE_MS": "1000"}


@pytest.mark.slow
def test_what_a_frozen_worker_was_to_send_again_is_left_to_whoever_took_over(
    postgres_url: str, tmp_path: Path
) -> None:
    words = ("worker", "--store", postgres_url)
    with executing() as executor, process(*words, folder=tmp_path, **FAST) as frozen:
        frozen.logged("lease acquired")
        upsert(postgres_url, {**YEARLY, "launcher": {"kind": "http", "url": executor.url}})
        executor.status = 500
        asyncio.run(asked(postgres_url, lambda registrar: run_now(registrar, "fast", "one")))
        wait_for(lambda: executor.sent)
        frozen.signal(signal.SIGSTOP)
        executor.status = 202
        with process(*words, folder=tmp_path, **FAST) as following:
            following.logged("lease acquired")
            wait_for(lambda: [run for run in runs_of(postgres_url) if run.acked])
            frozen.signal(signal.SIGCONT)
            # It waits for what it has under way, so that nothing can come after this.
            frozen.signal(signal.SIGTERM)
            assert frozen.ended() == 0
    assert len(set(executor.keys())) == 1
    tokens = [int(sent.headers["kron-fencing-token"]) for sent in executor.sent]
    assert tokens == sorted(tokens)
    assert tokens.count(tokens[-1]) == 1


@pytest.mark.slow
def test_a_worker_that_froze_between_request_and_answer_does_not_send_again_what_another_took_over(
    postgres_url: str, tmp_path: Path
) -> None:
    """It was sent over a kept connection, which ends without an answer while another worker is the owner."""
    words = ("worker", "--store", postgres_url)
    frozen_at: list[str] = []
    taken_over = Event()

    def look(key: str) -> None:
        """Freeze the first worker as soon as a start has come over a kept connection."""
        if not frozen_at and key in executor.kept:
            frozen_at.append(key)
            frozen.signal(signal.SIGSTOP)
            taken_over.wait(PATIENCE_S)
            executor.cut.add(key)

    with executing(look) as executor, process(*words, folder=tmp_path, **FAST) as frozen:
        frozen.logged("lease acquired")
        launcher = {"kind": "http", "url": executor.url, "timeout": "1h"}
        upsert(postgres_url, {**SECONDLY, "launcher": launcher})
        (key,) = wait_for(lambda: frozen_at)
        with process(*words, folder=tmp_path, **FAST) as following:
            following.logged("lease acquired")
            wait_for(lambda: [run for run in runs_of(postgres_url) if run.key == key and run.acked])
            taken_over.set()
            wait_for(lambda: executor.keys().count(key) == 2 and not executor.cut)
            frozen.signal(signal.SIGCONT)
            # It waits for its requests, so that none can arrive after this.
            frozen.signal(signal.SIGTERM)
            assert frozen.ended() == 0
    tokens = [int(sent.headers["kron-fencing-token"]) for sent in executor.sent if sent.key == key]
    assert (tokens.count(min(tokens)), tokens.count(max(tokens))) == (1, 1)
