"""A worker: a real engine in a separate process, whose callbacks write each execution into a ledger.

Run as a program it is a fork server: everything is imported once, and for each line of its input, a `Setting`
as JSON, it forks a worker and prints its process id, so that a restart takes milliseconds.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from kron.clocks.system import SystemClock
from kron.core.errors import OwnedError, StoreError
from kron.core.plan.compiled import compiled_job
from kron.core.plan.registration import edit
from kron.core.plan.report import Launch, Traits
from kron.core.plan.step import Change, Ownership, WriteResult
from kron.core.time.instant import EPOCH
from kron.launchers.callback import CallbackLauncher
from kron.launchers.http.launcher import HttpLauncher
from kron.launchers.process.launcher import ProcessLauncher
from kron.ports import Launcher
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from tests.faults.ledger import Ledger, Line

MILLISECOND = timedelta(milliseconds=1)
ASK_AGAIN_S = 0.02
# The durations of calls in seconds: some end at once, some outlive their owner, some the next period.
DURATIONS_S = (0.0, 0.0, 0.01, 0.05, 0.2, 0.5, 1.3)
# The latencies of the store, so that some owners die between a commit and the start that follows.
ANSWERS_S = (0.0, 0.0, 0.002, 0.01, 0.03)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A worker's settings. `ahead_ms` is the offset of its clock.

    With `last`, the jobs end two seconds later, and the worker stops when no run is open.
    """

    store: str
    ledger: str
    space: str
    owner: str
    state: str
    ahead_ms: int = 0
    last: bool = False
    ttl_ms: int = 300
    margin_ms: int = 100
    balance: bool = False


class ShiftedClock(SystemClock):
    """The system clock with an offset, as after a downtime of the machine."""

    def __init__(self, ahead: timedelta) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        """Return the present instant, shifted."""
        return super().now() + self._ahead

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep until a shifted instant."""
        await super().sleep_until(instant - self._ahead)


class SlowSqlite(SqliteStore):
    """A SQLite store with latency; it keeps its owner's token."""

    token = 0

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        ownership = await super().acquire(namespace, owner, now=now, balance=balance)
        self.token = ownership.token
        return ownership

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        settled = await super().settle(ownership, changes, now=now)
        await asyncio.sleep(ANSWERS_S[now % len(ANSWERS_S)])
        return settled


class SlowPostgres(PostgresStore):
    """A PostgreSQL store with latency; it keeps its owner's token."""

    token = 0

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        ownership = await super().acquire(namespace, owner, now=now, balance=balance)
        self.token = ownership.token
        return ownership

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        settled = await super().settle(ownership, changes, now=now)
        await asyncio.sleep(ANSWERS_S[now % len(ANSWERS_S)])
        return settled


class KeyedLauncher(CallbackLauncher):
    """Calls that may be delivered twice: the ledger keeps the first execution of each key."""

    traits = Traits(reports=True, idempotent=True)


def open_store(setting: Setting) -> SlowSqlite | SlowPostgres:
    """Return the store a worker uses."""
    if not setting.store.startswith("postgresql:"):
        return SlowSqlite(setting.store)
    return SlowPostgres(setting.store, ttl_ms=setting.ttl_ms, margin_ms=setting.margin_ms)


def work_of(key: str, attempt: int) -> tuple[float, bool]:
    """Return the duration of an attempt, and whether it fails: a function of key and attempt."""
    number = int(key[:8], 16) + 7 * attempt
    return DURATIONS_S[number % len(DURATIONS_S)], number % 4 == 0 and attempt < 3


class Worker:
    """One engine, its launchers and its ledger."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._clock = ShiftedClock(timedelta(milliseconds=setting.ahead_ms))
        self._ledger = Ledger(Path(setting.ledger))
        self.store = open_store(setting)
        self._calls = CallbackLauncher(self._clock)
        self._keyed = KeyedLauncher(self._clock)
        launchers: dict[str, Launcher] = {
            "callback": self._calls,
            "keyed": self._keyed,
            "process": ProcessLauncher(self._clock, setting.state),
            "http": HttpLauncher(self._clock),
        }
        self.engine = Engine(
            self.store,
            self._clock,
            launchers,
            namespace=setting.space,
            owner=setting.owner,
            journal=LogJournal(),
            balance=setting.balance,
        )

    def now(self) -> int:
        """Return the worker's time in milliseconds."""
        return (self._clock.now() - EPOCH) // MILLISECOND

    def _write(self, launch: Launch, *what: str) -> None:
        run, now = launch.run, self.now()
        self._ledger.write(*(Line(one, run.identity, run.key, run.attempt, run.token, now) for one in what))

    async def _call(self, launch: Launch) -> None:
        self._write(launch, "begin")
        duration_s, fails = work_of(launch.run.key, launch.run.attempt)
        await asyncio.sleep(duration_s)
        self._write(launch, "raise" if fails else "end")
        if fails:
            raise ValueError("as planned")

    async def _call_once(self, launch: Launch) -> None:
        self._write(launch, "delivered", "once")

    async def begin(self) -> None:
        """Take over as soon as possible, and run the jobs."""
        for case in await self.store.cases(self._setting.space):
            self._calls.callbacks[case.job.identity] = self._call
            self._keyed.callbacks[case.job.identity] = self._call_once
        while True:
            asked_at = self.now()
            with suppress(OwnedError, StoreError):
                await self.engine.acquire()
                break
            await asyncio.sleep(ASK_AGAIN_S)
        token = self.store.token
        self._ledger.write(Line("asked", "", "", os.getpid(), token, asked_at))
        self._ledger.write(Line("owned", "", "", os.getpid(), token, self.now()))
        self.engine.run()

    async def run(self) -> None:
        """Run until killed; the last worker ends the jobs and stops when no run is open."""
        if self._setting.last:
            await self._end_jobs()
        await self.begin()
        if self._setting.last:
            await self._wait_for_the_end()
        else:
            await asyncio.Event().wait()
        await self.engine.stop()
        await self.store.close()

    async def _end_jobs(self) -> None:
        """Let every job end two seconds from now, by an edit."""
        space, now = self._setting.space, self.now()
        for case in await self.store.cases(space):
            job = compiled_job(case.job.definition, case.job.identity).for_job(case.job.identity)
            ending = replace(job, policy=replace(job.policy, end_at=now // 1000 + 2))
            record, kind = case.job, case.job.launcher_kind
            change = edit(record, list(case.runs), ending, now=now, launcher=record.launcher, kind=kind)
            settled = await self.store.put(space, created=[], changed=[change], now=now)
            assert not settled.stale_jobs

    async def _wait_for_the_end(self) -> None:
        while True:
            cases = await self.store.cases(self._setting.space)
            if all(case.job.plan_at is None and not case.runs for case in cases):
                return
            await asyncio.sleep(0.1)


def text_of(setting: Setting) -> str:
    """Return a setting as one line."""
    return json.dumps(asdict(setting))


def _be_worker(text: str) -> None:
    """Run a worker and exit: a fork must not return to its parent's loop."""
    code = 1
    try:
        asyncio.run(Worker(Setting(**json.loads(text))).run())
        code = 0
    except BaseException as error:  # noqa: BLE001 - standard error says why
        print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
    finally:
        os._exit(code)


def main() -> None:
    """Fork a worker for each line of standard input."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _be_worker(line)
        print(pid, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
