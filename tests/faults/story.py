"""Real workers on one store, one after the other or together, with a ledger of their executions."""

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Policy
from kron.core.plan.compiled import compiled_job
from kron.core.plan.registration import create
from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from tests.faults.comparison import Evidence, Life
from tests.faults.fork_server import ForkServer
from tests.faults.ledger import Ledger
from tests.faults.worker import Setting
from tests.waiting import wait_for

SPACE = "runner:story"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A job with a period every `every_s` seconds, and its launcher."""

    name: str
    every_s: int = 1
    policy: Policy
    kind: str = "callback"
    launcher: dict[str, object] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        """Return the job's definition."""
        schedule = Schedule(f"*/{self.every_s} * * * * *")
        return Job(identity=self.name, schedule=schedule, policy=self.policy)


def policy_of(overlap: str, catchup: str, **more: Any) -> Policy:
    """Return a policy without a deadline, with small limits for catch-up and queue."""
    defaults = {"deadline": None, "max_catchup": 7, "queue_max": 3}
    return Policy(**{"overlap": overlap, "catchup": catchup, **defaults, **more})


def store_at(url: str) -> Store:
    """Return a store for the test."""
    return PostgresStore(url) if url.startswith("postgresql:") else SqliteStore(url)


class Story:
    """Workers on one store. `lives` are those that took over; `ahead_ms` is the offset of their clocks."""

    def __init__(
        self, fork_server: ForkServer, store_url: str, folder: Path, ttl_ms: int = 300, margin_ms: int = 100
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.fork_server = fork_server
        self.ledger = Ledger(folder / "ledger")
        self.ahead_ms = 0
        self.lives: list[Life] = []
        self._setting = Setting(
            store=store_url,
            ledger=str(self.ledger.path),
            space=SPACE,
            owner="",
            state=str(folder / "state"),
            ttl_ms=ttl_ms,
            margin_ms=margin_ms,
        )

    def now(self) -> int:
        """Return the workers' time."""
        return time.time_ns() // 1_000_000 + self.ahead_ms

    async def create(self, parts: Iterable[Part]) -> None:
        """Create the jobs."""
        store, now = store_at(self._setting.store), self.now()
        created = [
            create(part.job, now=now, launcher=json.dumps(part.launcher), kind=part.kind) for part in parts
        ]
        await store.put(SPACE, created=created, changed=[], now=now)
        await store.close()

    def start(self, owner: str, *, last: bool = False) -> int:
        """Start a worker."""
        setting = replace(self._setting, owner=owner, ahead_ms=self.ahead_ms, last=last)
        return self.fork_server.start(setting)

    def wait_until_owner(self, pid: int) -> Life:
        """Wait until a worker has taken over."""
        wait_for(lambda: self.life_of(pid) is not None)
        life = self.life_of(pid)
        assert life is not None
        return life

    def life_of(self, pid: int) -> Life | None:
        """Return a worker's take-over as recorded in the ledger."""
        mine = [line for line in self.ledger.lines() if not line.key and line.attempt == pid]
        asked = [line for line in mine if line.what == "asked"]
        owned = [line for line in mine if line.what == "owned"]
        return Life(owned[0].token, asked[0].at, owned[0].at) if owned else None

    def kill(self, pid: int) -> None:
        """Kill a worker, and keep its life if it took over."""
        self.fork_server.kill(pid)
        life = self.life_of(pid)
        if life is not None:
            self.lives.append(life._replace(killed_at=self.now()))

    def freeze(self, pid: int) -> None:
        """Freeze a worker."""
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        """Thaw a worker."""
        os.kill(pid, signal.SIGCONT)

    def finish(self) -> None:
        """Let a last worker end the jobs, and wait until it has finished."""
        pid = self.start("last", last=True)
        self.fork_server.wait(pid)
        life = self.life_of(pid)
        assert life is not None
        self.lives.append(life)

    async def evidence(self, part: Part) -> Evidence:
        """Return the records and executions of a job."""
        store = store_at(self._setting.store)
        (case,) = await store.cases(SPACE, [part.name])
        until = compiled_job(case.job.definition, part.name).policy.end_at
        assert until is not None
        rows = await store.runs(SPACE, part.name, limit=1_000_000)
        evidence = Evidence(
            identity=part.name,
            every_s=part.every_s,
            policy=part.policy,
            born_at=case.job.born_at,
            until=until,
            lives=self.lives,
            rows=rows,
            ranges=await store.ranges(SPACE, part.name),
            attempts={row.key: await store.attempts(SPACE, row.key) for row in rows if row.attempt > 1},
            lines=self.ledger.lines(),
            honours=part.kind in ("keyed", "http"),
            outlives=part.kind == "process",
        )
        await store.close()
        return evidence
