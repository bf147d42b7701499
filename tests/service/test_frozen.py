"""A worker that was frozen beyond its lease sends nothing more of what others took over."""

import asyncio
import signal
from pathlib import Path

import pytest

from kron.fronts.service.runs import run_now
from tests.service.executor import executing
from tests.service.server import process
from tests.service.test_worker import YEARLY, asked, runs_of, upsert
from tests.waiting import wait_for

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
