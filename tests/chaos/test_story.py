"""A story of the chaos, told on purpose: what is drawn by lot comes too seldom to be relied on."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.chaos.audit import Audit
from tests.chaos.client import COMMON
from tests.chaos.delivery import read_deliveries
from tests.chaos.executor import ACCEPTED, Executor, Manner, Server, handler_of
from tests.chaos.experiment import Plan, evidence_of, prepared
from tests.chaos.fleet import Fleet, Slot
from tests.chaos.judge import faults_of, repeats_of
from tests.chaos.story import Story
from tests.service.test_worker import runs_of, upsert
from tests.waiting import PATIENCE_S, wait_for

NAME = "steady-1"


class HoldingExecutor(Executor):
    """Accepts and notes every delivery, and answers when it is told to."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(str(ledger), "", "")
        self.may_answer = Event()

    def _manner(self) -> Manner:
        return ACCEPTED

    def take(self, identity: str, headers: Mapping[str, str]) -> Manner:
        manner = super().take(identity, headers)
        self.may_answer.wait(PATIENCE_S)
        return manner


@contextmanager
def serving(executor: Executor) -> Iterator[str]:
    """Serve an executor, and give its URL."""
    with Server(("127.0.0.1", 0), handler_of(executor)) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/start"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Let no other process write to a file."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=PATIENCE_S)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def has_lease(audit: Audit, slot: Slot) -> bool:
    assert slot.process is not None
    return str(slot.process.pid) in {lease.owner.split(":")[1] for lease in audit.leases()}


@pytest.mark.slow
def test_the_next_owner_repeats_what_a_worker_was_killed_before_it_could_record(tmp_path: Path) -> None:
    """A worker is frozen between send and answer, thawed, and killed before the answer is recorded."""
    plan, story = Plan(folder=tmp_path, seed="", seconds=0), Story()
    url, audit = prepared(plan)
    executor = HoldingExecutor(plan.ledger)
    fleet = Fleet(tmp_path, url, workers=2, sharing="leader", story=story)
    first, second, _ = fleet.slots
    with serving(executor) as place:
        document = {**COMMON, "schedule_id": NAME, "cron_expr": "* * * * * *", "overlap_policy": "allow"}
        upsert(url, {**document, "launcher": {"kind": "http", "url": place}})
        try:
            fleet.start(first)
            wait_for(lambda: read_deliveries(plan.ledger))
            fleet.freeze(first)
            with locked(f"{tmp_path}/kron.db"):
                executor.may_answer.set()
                fleet.thaw(first)
                fleet.end(first, "kill")
            fleet.start(second)
            wait_for(lambda: has_lease(audit, second) and all(run.acked for run in runs_of(url, NAME)))
            fleet.end(second, "stop")
        finally:
            executor.may_answer.set()
            fleet.close()
    evidence = evidence_of(plan, url, audit, story, {})
    assert repeats_of(evidence) >= 1
    assert faults_of(evidence) == []
    # The judge allows it for the death of the sender only.
    unseen = faults_of(replace(evidence, struck=[]))
    assert [fault.count("no owner had died") for fault in unseen] == [1] * repeats_of(evidence)
