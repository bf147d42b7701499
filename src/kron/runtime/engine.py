"""The loop: load, plan, settle, start, sleep. It decides nothing; `plan` does."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from kron.core.errors import OwnedError, StoreError
from kron.core.plan.plan import plan
from kron.core.plan.report import RunReport, Traits
from kron.core.plan.step import USUAL_LIMITS, Change, JobState, Snapshot
from kron.ports import Clock, Journal, Launcher, Ownership, Store, WriteResult
from kron.runtime.batch import CHUNK, FIRST_CHUNK, NO_CHUNK, Chunk, earliest, nothing
from kron.runtime.burst import burst
from kron.runtime.dispatcher import NOTHING, Dispatcher, Written
from kron.runtime.engine_clock import EngineClock
from kron.runtime.health import Health
from kron.runtime.inbox import Inbox, known_cases, with_reports
from kron.runtime.lease import no_lease
from kron.runtime.local_runs import LocalRuns
from kron.runtime.recovery import recover_orphans
from kron.runtime.wakeup import Wakeup, first_of

# How many chunks of reports one wake hears, and how many chunks of what is due it does after that.
MAX_REPORT_CHUNKS, MAX_DUE_CHUNKS = 20, 100_000
# Earlier than anything is due.
NEVER = -1
# How long an owner waits before it asks a store that failed again: at first, and at most.
BACKOFF_MS, MAX_BACKOFF_MS = 100, 5_000


class Engine:
    """Looks after the jobs of one namespace in one store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        launchers: Mapping[str, Launcher],
        *,
        namespace: str,
        owner: str,
        journal: Journal,
        balance: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._launchers = launchers
        self._traits: dict[str, Traits] = {kind: launcher.traits for kind, launcher in launchers.items()}
        self._namespace = namespace
        self._owner = owner
        self._journal = journal
        self._balance = balance
        self._time = EngineClock(clock)
        self._tenure = no_lease(namespace, owner)
        self._inbox = Inbox()
        self._carrier = Dispatcher(clock, launchers, journal, self.hear, LocalRuns() if balance else None)
        # Held until what was written is known to be under way here: no shard is given back before.
        self._writing = asyncio.Lock()
        self._pace = Wakeup(clock, self._rested)
        self._renewal = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._draining = False
        self._was_set_back = False
        # Told whenever a wake is over.
        self.on_rest: Callable[[], None] | None = None
        self.health = Health(inbox=self._inbox)
        # An operator may set others before the engine runs.
        self.limits = USUAL_LIMITS

    # --- life ------------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the engine's time in milliseconds: the wall clock, made monotone."""
        return self._time.look()

    @property
    def is_written(self) -> bool:
        """Say whether nothing that was decided or heard is still on its way to the store."""
        return not self._pace.is_working and not self._inbox.reports and not self._carrier.unsure

    async def acquire(self, *, not_before: int = 0) -> None:
        """Take over: from now on every write of anybody else is refused."""
        self._time.high = max(self._time.high, not_before)
        self._time.read()  # from here on a jump is noticed, also before the first wake
        asked = self._clock.monotonic()
        ownership = await self._store.acquire(self._namespace, self._owner, balance=self._balance)
        await self._take(ownership, asked)
        self.health.state = "ready"

    async def _take(self, ownership: Ownership, asked: float) -> None:
        """Look after what is owned from now on; what is new is recovered first."""
        self._time.high = max(self._time.high, ownership.high)
        tenure = self.health.tenure = self._tenure
        now, had = self.now(), len(tenure.owned.shards)
        new = tenure.renewed(ownership, asked)
        self._carrier.lease_ends, self._carrier.owned = tenure.ends, tenure.owned.shards
        if len(tenure.owned.shards) < had:
            # Whoever has the others now finds what was left behind.
            self._carrier.keep_only(tenure.has)
        if new:
            # Should this fail, they are still new when the lease is renewed the next time.
            orphans = await recover_orphans(
                self._store, self._launchers, ownership, shards=new, hear=self.hear, now=now
            )
            self._inbox.put_in(orphans)
            tenure.recovered(new, now)
            self._carrier.owned = tenure.owned.shards

    def run(self) -> None:
        """Begin to look after the jobs."""
        granted = self._tenure.granted
        assert granted.shards, "own first"
        self._draining = False
        self.health.state = "running"
        self._pace.begin_work()
        self._task = asyncio.create_task(self._loop(), name=f"kron {self._namespace}")
        if granted.ttl_ms is not None:
            self._keeper = asyncio.create_task(self._keep(granted.ttl_ms // 3))

    def drain(self) -> None:
        """Decide no start from now on; what was decided already is carried out."""
        self._draining = True
        self._pace.hurry(is_running=self._is_running())

    async def stop(self) -> None:
        """Start nothing more, wait for what runs, note how it ended, and let others take over."""
        self.drain()
        for launcher in self._launchers.values():
            await launcher.close()
        self._pace.hurry(is_running=self._is_running())
        if self._task is not None:
            # Whoever does not wait to the end does not break it off.
            await asyncio.wait([self._task])
            self._task.result()
            self._task = None
        if self._keeper is not None:
            self._keeper.cancel()
            # A renewal that is broken off lets go of its connection first.
            await asyncio.wait([self._keeper])
            self._keeper = None
        # Who shares is counted, also while it waits for its share.
        if (self._tenure.granted.shards or self._balance) and self.health.state != "lost":
            with self._clock.working():
                await self._store.release(self._tenure.granted)
        self._tenure = no_lease(self._namespace, self._owner)
        self.health.state = "stopped"

    def kill(self) -> None:
        """Drop everything without writing, as a crash would."""
        for task in (self._task, self._keeper):
            if task is not None:
                task.cancel()
        self._task = self._keeper = None
        self._pace.end_work()
        self._tenure = no_lease(self._namespace, self._owner)
        self.health.state = "killed"

    def hear(self, report: RunReport) -> None:
        """Take note of what happened to an execution; not before now, whatever the wall clock was set to."""
        at = self._time.high = max(self._time.high, report.at)
        self._inbox.reports.append(report if report.at == at else report._replace(at=at))
        if not self._pace.is_called:
            self.call()

    def call(self) -> None:
        """Have the engine look again at once: something changed."""
        self._pace.call(is_running=self._is_running())

    def renew_soon(self) -> None:
        """Have the lease renewed at once: somebody let go of shards, or wants some."""
        self._renewal.set()

    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    # --- the loop --------------------------------------------------------------------------------

    async def _keep(self, every_ms: int) -> None:
        """Renew the lease in good time, whatever the loop is doing; without it nothing starts."""
        while True:
            await first_of(self._clock, self._renewal, self._time.wall() + every_ms)
            self._renewal.clear()
            before = self._tenure.owned.shards
            try:
                await self._renew()
            except StoreError as error:
                self._degrade(error)
            except Exception as error:
                self._fail(error)
                raise
            if before != self._tenure.owned.shards or self._carrier.unsure or self.health.state == "degraded":
                self.call()

    async def _renew(self) -> None:
        """Ask for another while; what is under way here is not given to others."""
        with self._clock.working():
            async with self._writing:
                asked = self._clock.monotonic()
                mine = self._tenure.granted._replace(busy=self._carrier.busy_shards())
                await self._take(await self._store.renew(mine, balance=self._balance), asked)

    async def _loop(self) -> None:
        backoff_ms = BACKOFF_MS
        try:
            while True:
                self._pace.look()
                try:
                    wake_at = await self._wake_as_owner(self._tenure.owned)
                except StoreError as error:
                    self._degrade(error)
                    # By the wall clock: the engine's own time stands still while one set back catches up.
                    await self._pace.pause(self._time.wall() + backoff_ms)
                    backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)
                    continue
                backoff_ms = BACKOFF_MS
                self.health.recover()
                if self._inbox.reports:
                    continue
                if self._draining and not self._carrier.is_busy:
                    return
                await self._pace.wait(None if self._draining else wake_at)
        except OwnedError as error:
            self.health.state, self.health.error = "lost", str(error)
            self._carrier.owned = {}
            self._journal.note("ownership_lost", {"namespace": self._namespace, "error": str(error)})
        except Exception as error:
            self._fail(error)
            raise
        finally:
            if self._keeper is not None:
                # A lease that nobody works under is for somebody else.
                self._keeper.cancel()
            self._pace.end_work()

    async def _wake_as_owner(self, ownership: Ownership) -> int | None:
        """Wake; where somebody else has taken over some shards, the others are still looked after."""
        try:
            return await self._wake(ownership)
        except OwnedError:
            if self._tenure.owned.shards == ownership.shards and ownership.ttl_ms is not None:
                await self._renew()
            if self._tenure.owned.shards == ownership.shards:
                raise
            self._journal.note("ownership_lost", {"namespace": self._namespace})
            self._pace.look_again()
            return None

    async def _wake(self, ownership: Ownership) -> int | None:
        """Note what has ended, then do all that is due; return when to look again.

        Everything is judged by the instant the wake began, so that no burst makes itself late.
        """
        now = self._read_time()
        await self._carrier.carry_out_unsure(self._store, ownership.namespace)
        if self._was_set_back:
            # Kept in mind at once, so that nothing is repeated after a crash either (SPEC 2: reading 16).
            await self._store.put(self._namespace, created=[], changed=[], now=now)
            self._was_set_back = False
        with burst() if len(self._inbox.reports) > FIRST_CHUNK else nullcontext():
            for _ in range(MAX_REPORT_CHUNKS):
                reports = self._inbox.take(CHUNK, now)
                if not reports:
                    # What ends after the wake began stands after what the wake starts.
                    break
                await self._take_note(ownership, reports, now)
        return None if self._draining else await self._do_due(ownership, now)

    async def _take_note(self, ownership: Ownership, reports: list[RunReport], now: int) -> None:
        """Plan, settle and carry out what some reports come to."""
        reports = self._inbox.of_shards(reports, ownership.shards, self._tenure)
        try:
            known, further = known_cases(self._carrier.alone, reports)
            loaded = await self._store.load(ownership, until=NEVER, limit=0, named=further)
            heard = await with_reports(self._store, self._namespace, loaded.cases, reports)
            cases = [*known, *heard]
            changes, _ = self._plan(cases, now)
            settled = await self._write(ownership, changes, now)
        except (StoreError, OwnedError):
            self._inbox.put_back(reports)
            raise
        await self._carry_out((changes, settled, ownership.shards), now)
        self._carrier.forget(reports, cases)
        if settled.stale_jobs:
            # What was heard of these jobs is heard again, with what the store knows of them now.
            self._inbox.put_back([report for report in reports if report.identity in settled.stale_jobs])

    async def _do_due(self, ownership: Ownership, now: int) -> int | None:
        """Do what is due: a first few at once, and if there is more, the rest as a burst."""
        chunk = await self._next_chunk(ownership, now, FIRST_CHUNK)
        settled = await self._write(ownership, chunk.changes, now)
        await self._carry_out((chunk.changes, settled, ownership.shards), now)
        if self._draining or chunk.is_last(now):
            return chunk.wake_at
        with burst():
            return await self._do_burst(ownership, now)

    async def _do_burst(self, ownership: Ownership, now: int) -> int | None:
        """Do what is due chunk by chunk: while one is written and the next is read, the last is started."""
        written = NOTHING
        chunk = await self._next_chunk(ownership, now, CHUNK)
        for _ in range(MAX_DUE_CHUNKS):
            settled, following = await self._do_chunk(ownership, now, chunk, written)
            written = chunk.changes, settled, ownership.shards
            if self._draining or chunk.is_last(now):
                break
            try:
                if isinstance(following, BaseException):
                    raise following
                chunk = following or await self._next_chunk(ownership, now, CHUNK)
            except Exception:
                # It is on record, and nobody else will start it.
                await self._carry_out(written, now)
                raise
        await self._carry_out(written, now)
        return chunk.wake_at

    async def _do_chunk(
        self, ownership: Ownership, now: int, chunk: Chunk, before: Written
    ) -> tuple[WriteResult, Chunk | BaseException | None]:
        """Write a chunk; meanwhile read and plan the next, if there may be one, and carry out the last."""
        # In this order: a store that does one thing at a time reads first, so that planning need not wait.
        ahead = self._next_chunk(ownership, now, CHUNK, in_hand=chunk) if chunk.is_full else nothing()
        reading = asyncio.create_task(ahead)
        writing = asyncio.create_task(self._write(ownership, chunk.changes, now))
        try:
            await asyncio.sleep(0)
            await self._carry_out(before, now)
            settled, following = await asyncio.gather(writing, reading, return_exceptions=True)
        finally:
            reading.cancel()
            writing.cancel()
        if isinstance(settled, BaseException):
            raise settled
        return settled, following

    async def _next_chunk(
        self, ownership: Ownership, now: int, limit: int, in_hand: Chunk = NO_CHUNK
    ) -> Chunk:
        """Read and plan some of what is due, beside what is in hand already and about to be written."""
        without = [change.job for change in in_hand.changes]
        loaded = await self._store.load(ownership, until=now, limit=limit, without=without)
        changes, again_at = self._plan(loaded.cases, now)
        wake_at = earliest(loaded.next_at, again_at, in_hand.again_at)
        return Chunk(changes, again_at, wake_at, is_full=len(loaded.cases) >= limit)

    async def _carry_out(self, written: Written, now: int) -> None:
        """Say what was written, then do it."""
        changes, settled, shards = written
        if changes:
            self._journal.settled(changes, settled, now)
        if settled.stale_jobs:
            self._pace.look_again()
        await self._carrier.carry_out(changes, settled, shards)

    def _plan(self, cases: list[JobState], now: int) -> tuple[list[Change], int | None]:
        """Return what to write and do of some jobs, and when to look at them again."""
        cases, since = self._tenure.with_since(cases), min(self._tenure.since.values(), default=now)
        token, draining, limits = self._tenure.token, self._draining, self.limits
        return plan(Snapshot(cases, since, token, self._traits, draining=draining, limits=limits), now)

    async def _write(self, ownership: Ownership, changes: Sequence[Change], now: int) -> WriteResult:
        """Write first, then start: what is not on record does not happen."""
        if not changes:
            return NOTHING[1]
        async with self._writing:
            try:
                settled = await self._store.settle(ownership, changes, now=now)
            except StoreError:
                self._carrier.unsure += changes
                raise
            self._carrier.take_note(changes, settled)
        return settled

    # --- time and work ---------------------------------------------------------------------------

    def _read_time(self) -> int:
        now, jump = self._time.read()
        if jump:
            self.health.jumps += 1
            self._was_set_back = self._was_set_back or jump < 0
            fields = {"by_ms": jump, "now": now, "passed": self._time.passed}
            self._journal.note("clock_jumped", {"namespace": self._namespace, **fields})
            if jump > self.limits.lookahead_ms:
                self._tenure.since = dict.fromkeys(self._tenure.since, now)
        return now

    def _fail(self, error: Exception) -> None:
        self.health.fail(error)
        self._journal.note("engine_failed", {"namespace": self._namespace, "error": str(error)})

    def _degrade(self, error: StoreError) -> None:
        self.health.degrade(error)
        self._journal.note("store_failed", {"namespace": self._namespace, "error": str(error)})

    def _rested(self) -> None:
        if self.on_rest is not None:
            self.on_rest()
