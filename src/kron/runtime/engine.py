"""The engine: the only loop. It loads, plans, writes, dispatches and sleeps; `plan` makes every decision."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from math import inf
from typing import NamedTuple

from kron.core.errors import OwnedError, StoreError
from kron.core.job.notify import Notify
from kron.core.plan.incident import clock_jump, sentence_of
from kron.core.plan.plan import plan
from kron.core.plan.record import IncidentRecord
from kron.core.plan.report import RunReport, Traits
from kron.core.plan.step import DEFAULT_LIMITS, Change, JobState, Ownership, Snapshot, WriteResult
from kron.core.shard import shard_of
from kron.core.time.steady import DAY_MS
from kron.ports import Clock, EngineStore, Journal, Launcher
from kron.runtime.burst import burst
from kron.runtime.clock_watch import ClockWatch, StoreClock
from kron.runtime.dispatcher import NOTHING, Dispatcher, LocalRuns, Written
from kron.runtime.health import Health
from kron.runtime.inbox import Inbox, attach_reports, sole_run_states
from kron.runtime.lease import no_lease, take_overs
from kron.runtime.recovery import recover_orphans
from kron.runtime.set_aside import SetAside
from kron.runtime.turns import FIRST_STEP, LoadLimit, OpenLimit, TenantOf, Turns, may_open_more
from kron.runtime.wakeup import EngineClock, Pacer, Wakeup, first_of

# The first batch of a wake is small so that the first start comes soon; later ones fill a transaction.
FIRST_BATCH, BATCH = 64, 1_000
# Bounds of one wake: batches of reports written first, then batches of due jobs.
MAX_REPORT_BATCHES, MAX_DUE_BATCHES = 20, 100_000
# How long a batch is planned, in seconds; the jobs beyond that are due in the next batch.
SLICE_S = 0.05
# How often in a row jobs of other tenants are started between two batches of a burst.
MAX_INTERLUDES = 16
# How long a burst is shared without asking again whether there are several tenants, in seconds.
SHARED_S = 60.0
# Earlier than any due time: loads named jobs only.
NEVER = -1
# Backoff after a store failure: the first delay and the longest.
BACKOFF_MS, MAX_BACKOFF_MS = 100, 5_000


class Batch(NamedTuple):
    """Planned changes of some due jobs, to be written in one transaction.

    `again_at` is when the first of these jobs is due again, `wake_at` when any job of the namespace is.
    `is_full` means that more jobs may be due.
    """

    changes: Sequence[Change] = ()
    again_at: int | None = None
    wake_at: int | None = None
    is_full: bool = False

    def is_last(self, now: int) -> bool:
        """Say whether no other job is due."""
        return not self.is_full and (self.wake_at is None or self.wake_at > now)

    def without(self, names: Collection[str]) -> "Batch":
        """Return the batch without some jobs, which were started since it was read."""
        if not names:
            return self
        return self._replace(changes=[change for change in self.changes if change.job.identity not in names])


EMPTY_BATCH = Batch()


class Engine:
    """Runs the jobs of one namespace in one store, as long as it holds the lease.

    The public attributes may be replaced before it runs: the limits, the notifications of jobs that define
    none, functions that are called when notices were written and whenever a wake ends, and one that returns
    the tenant of a job: then no tenant's jobs wait until all due jobs of another have started, and the open
    runs of each tenant are limited. With `compares_clocks` the clock is compared with the store's own.
    """

    limits = DEFAULT_LIMITS
    notify: Notify | None = None
    on_notice: Callable[[], None] | None = None
    on_rest: Callable[[], None] | None = None
    tenant_of: TenantOf | None = None
    compares_clocks = False

    _task: asyncio.Task[None] | None = None
    _renewer: asyncio.Task[None] | None = None
    # Why the lease was lost, once a renewal has found out.
    _lost: OwnedError | None = None
    _draining = False
    # Since when it plans no starts, while it drains.
    _drained_at: int | None = None
    _is_leaving_runs = False
    _was_set_back = False
    _has_notices = False
    _open_limit: OpenLimit | None = None
    _shared_until = -inf
    _step = FIRST_STEP

    def __init__(
        self,
        store: EngineStore,
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
        self.owner = owner
        self._journal = journal
        self._balance = balance
        self._time = EngineClock(clock)
        self._lease = no_lease(namespace, owner)
        self._inbox = Inbox()
        self._aside = SetAside(clock, self._inbox)
        self._dispatcher = Dispatcher(
            clock,
            launchers,
            journal,
            self.report,
            LocalRuns() if balance else None,
            epochs=partial(store.epochs, namespace),
        )
        # Held until written starts are tracked as local runs: no shard is given back before.
        self._writing = asyncio.Lock()
        self._wakeup, self._renewal_due = Wakeup(clock, self._rested), asyncio.Event()
        # Jumps of the clock that are not written yet.
        self._jumps: list[IncidentRecord] = []
        self.health = Health(inbox=self._inbox)
        self._watch = ClockWatch(
            self._time,
            store,
            journal,
            self.health,
            namespace=namespace,
            owner=owner,
            corrected=self._clock_corrected,
        )
        self._store_clock = StoreClock(self._time, journal, self.health, namespace)
        self._pacer = Pacer(self.limits)
        # One for each kind of batch: due jobs, those of other tenants, and reports.
        self._load_limit, self._others_limit, self._report_limit = LoadLimit(), LoadLimit(), LoadLimit()

    # --- life cycle ------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the engine's time in milliseconds: the wall clock, made monotone."""
        return self._time.look()

    @property
    def is_written(self) -> bool:
        """Say whether every decision and report has reached the store."""
        waiting = self._inbox.reports or self._aside.has_reports or self._dispatcher.unconfirmed
        return not self._wakeup.is_working and not waiting

    @property
    def owns_first_shard(self) -> bool:
        """Say whether this engine owns the first shard, and with it the chores of the whole namespace."""
        return 0 in self._lease.owned.shards

    def is_idle(self, for_ms: int) -> bool:
        """Say whether the loop is waiting, and no job is due for at least this long."""
        wake_at = self._wakeup.wake_at
        return not self._wakeup.is_working and (wake_at is None or wake_at - self.now() >= for_ms)

    async def acquire(self, *, not_before: int = 0) -> None:
        """Take over: from now on the store refuses the writes of every earlier owner."""
        self._time.lookahead_ms = self.limits.lookahead_ms
        self._time.recorded(not_before)
        self._aside.clear()
        self._time.read()  # from here on a clock jump is noticed, even before the first wake
        requested_at, asked_at = self._clock.monotonic(), self._time.wall()
        ownership = await self._store.acquire(self._namespace, self.owner, balance=self._balance)
        self._compare_clocks(asked_at, ownership.granted_at)
        await self._take(ownership, requested_at)
        self.health.state = "ready"

    def _compare_clocks(self, asked_at: int, granted_at: int | None) -> None:
        if self.compares_clocks and granted_at is not None:
            self._store_clock.compare(asked_at, granted_at)

    async def _take(self, ownership: Ownership, requested_at: float) -> None:
        """Switch to a granted lease; shards that are new to this owner are recovered first."""
        self._time.recorded(ownership.high)
        lease = self.health.lease = self._lease
        now, had = self.now(), len(lease.owned.shards)
        new = lease.renewed(ownership, requested_at)
        self._dispatcher.lease_ends, self._dispatcher.owned = lease.ends, lease.owned.shards
        if len(lease.owned.shards) < had:
            # The owners of the lost shards recover the runs that were left there.
            self._dispatcher.keep_only(lease.has)
        if new:
            # If this fails, the shards are still new at the next renewal, and their orphans are read again.
            at = self._store_clock.recorded_at(now, ownership.granted_at)
            orphans = await recover_orphans(
                self._store, self._launchers, ownership, shards=new, report=self.report, now=at
            )
            await self._note(ownership, take_overs(ownership, new, at))
            lease.recovered(new, now)
            self._dispatcher.owned = lease.owned.shards
            self._inbox.put_in(orphans)
            if self.on_notice is not None:
                # The owner of the first shard sends what its predecessor left.
                self.on_notice()

    async def _note(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace, and log each with the sentence that explains periods later."""
        await self._store.note_incidents(ownership, incidents)
        self._tell(incidents)

    def _tell(self, incidents: Sequence[IncidentRecord]) -> None:
        for incident in incidents:
            fields: dict[str, object] = {"namespace": self._namespace, "why": sentence_of(incident)}
            if incident.identity is not None:
                fields["schedule_id"] = incident.identity
            self._journal.note(incident.kind, fields)

    def run(self) -> None:
        """Start the loop and the renewal of the lease."""
        granted = self._lease.granted
        assert granted.shards, "acquire first"
        self._draining, self._drained_at = False, None
        self._pacer = Pacer(self.limits)
        if self.tenant_of is not None and self.limits.open_per_tenant is not None:
            self._open_limit = OpenLimit(self.tenant_of, self.limits.open_per_tenant)
        self.health.state = "running"
        self._wakeup.begin_work()
        self._task = asyncio.create_task(self._loop(), name=f"kron {self._namespace}")
        if granted.ttl_ms is not None:
            self._renewer = asyncio.create_task(self._renew_regularly(granted.ttl_ms // 3))

    def drain(self) -> None:
        """Plan no more starts; those already planned are still dispatched.

        A balancing worker hands over each shard as soon as nothing of it runs here.
        """
        self._draining = True
        if self._drained_at is None:
            self._drained_at = self.now()
        if self._balance:
            self.renew_soon()
        self._wakeup.hurry(is_running=self._is_running())

    async def stop(self) -> None:
        """Drain, wait for running executions, write their results, and release the lease."""
        self.drain()
        for launcher in self._launchers.values():
            await launcher.close()
        await self._end()

    async def hand_over(self, *, most_s: float | None = None) -> None:
        """Drain, wait at most so long for running executions, and release the lease.

        The launchers stay open for another engine; what still runs is left for the next owner to adopt.
        """
        self.drain()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=most_s)
        self._is_leaving_runs = True
        await self._end()

    async def _end(self) -> None:
        """Wait for the loop, which ends once nothing runs, and release the lease."""
        self._wakeup.hurry(is_running=self._is_running())
        if self._task is not None:
            # A caller that is cancelled here does not cancel the loop.
            await asyncio.wait([self._task])
            self._task.result()
            self._task = None
        if self._renewer is not None:
            self._renewer.cancel()
            # A cancelled renewal returns its connection first.
            await asyncio.wait([self._renewer])
            self._renewer = None
        # A balancing worker is registered even before it is granted a shard.
        if (self._lease.granted.shards or self._balance) and self.health.state != "lost":
            with self._clock.working():
                # The successor is told since when nothing was planned, not when the last execution ended.
                await self._store.release(self._lease.granted, now=self._drained_at)
        self._lease, self._drained_at = no_lease(self._namespace, self.owner), None
        self.health.state = "stopped"

    def kill(self) -> None:
        """Stop at once without writing anything, as a crash would."""
        for task in (self._task, self._renewer):
            if task is not None:
                task.cancel()
        self._task = self._renewer = None
        self._wakeup.end_work()
        self._lease = no_lease(self._namespace, self.owner)
        self.health.state = "killed"

    def report(self, report: RunReport) -> None:
        """Queue a report about a run, stamped no earlier than the engine's time."""
        if report.at != self._time.state.high:
            at = self._time.recorded(report.at)
            report = report if report.at == at else report._replace(at=at)
        self._inbox.reports.append(report)
        if not self._wakeup.is_called:
            self.call()

    def call(self, at: int | None = None) -> None:
        """Wake the loop now, for a job was changed; if nothing of it is due before `at`, by then."""
        if at is None or not self._wakeup.wakes_by(at):
            self._wakeup.call(is_running=self._is_running())

    def renew_soon(self) -> None:
        """Renew the lease now: another worker released shards, or joined."""
        self._renewal_due.set()

    def _is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    # --- the loop --------------------------------------------------------------------------------

    async def _renew_regularly(self, every_ms: int) -> None:
        """Renew the lease in time, independently of the loop; after it lapses nothing starts."""
        # A cancellation that meets the end of a call of psycopg is lost in Python 3.11 (`asyncio.wait_for`).
        while self._is_running():
            await first_of(self._clock, self._renewal_due, self._time.wall() + every_ms)
            self._renewal_due.clear()
            if self._store_clock.is_ahead and not self._balance:
                # Another worker takes over, if there is one; one that balances yields its shards.
                continue
            before, held = self._lease.owned.shards, self._store_clock.holds
            try:
                await self._renew()
            except StoreError as error:
                self._degrade(error)
            except OwnedError as error:
                # The loop ends, and says so.
                self._lost = error
                self.call()
                return
            except Exception as error:
                self._fail(error)
                raise
            if (
                before != self._lease.owned.shards
                or self._dispatcher.unconfirmed
                or self.health.state == "degraded"
                or held
            ):
                self.call()

    async def _renew(self) -> None:
        """Extend the lease; shards with local runs are marked busy, so that they stay here."""
        with self._clock.working():
            async with self._writing:
                requested_at, asked_at = self._clock.monotonic(), self._time.wall()
                # The latest instant counts at a take-over only: a correction may have lowered it since.
                granted = self._lease.granted._replace(
                    busy=self._dispatcher.busy_shards(),
                    high=0,
                    leaving_since=self._drained_at if self._balance else None,
                    yields=self.health.clock_off_ms > 0,
                )
                renewed = await self._store.renew(granted, balance=self._balance)
                self._compare_clocks(asked_at, renewed.granted_at)
                await self._take(renewed, requested_at)

    async def _loop(self) -> None:
        backoff_ms = BACKOFF_MS
        try:
            while True:
                self._wakeup.start_wake()
                if self._lost is not None:
                    raise self._lost
                try:
                    wake_at = await self._wake_as_owner(self._lease.owned)
                except StoreError as error:
                    self._degrade(error)
                    # By the wall clock: the engine's time stands still after a set-back.
                    await self._wakeup.back_off(self._time.wall() + backoff_ms)
                    backoff_ms = min(2 * backoff_ms, MAX_BACKOFF_MS)
                    continue
                backoff_ms = BACKOFF_MS
                if self.health.state == "degraded" and not self._dispatcher.unconfirmed:
                    self.health.recover()
                # A sleep that begins after a step back of the clock would last as long as the step.
                if self._time.was_set or (self._inbox.reports and not self._is_on_hold()):
                    continue
                if self._draining and (self._is_leaving_runs or not self._has_work()):
                    return
                await self._wakeup.wait(None if self._draining else wake_at)
        except OwnedError as error:
            self.health.state, self.health.error = "lost", str(error)
            self._dispatcher.owned = {}
            self._journal.note("ownership_lost", {"namespace": self._namespace, "error": str(error)})
        except Exception as error:
            self._fail(error)
            raise
        finally:
            if self._renewer is not None:
                # Without a loop the lease must lapse, so that another worker takes over.
                self._renewer.cancel()
            self._wakeup.end_work()

    async def _wake_as_owner(self, ownership: Ownership) -> int | None:
        """Wake; if some shards were lost to another worker, keep running the rest."""
        try:
            return await self._wake(ownership)
        except OwnedError:
            if self._lease.owned.shards == ownership.shards and ownership.ttl_ms is not None:
                await self._renew()
            if self._lease.owned.shards == ownership.shards:
                raise
            self._journal.note("ownership_lost", {"namespace": self._namespace})
            self._wakeup.skip_wait()
            return None

    async def _wake(self, ownership: Ownership) -> int | None:
        """Write pending reports, then start everything due; return when to wake next.

        Every job is planned at the instant the wake began, so that a burst does not make itself late.
        """
        now = self._read_time()
        committed = await self._dispatcher.dispatch_unconfirmed(self._store, ownership.namespace, now)
        if self._dispatcher.unconfirmed:
            # The lease lapsed. A start that is planned again before they are confirmed would be made twice.
            return None
        self._pacer.resolve(committed)
        if self._was_set_back:
            # Written at once, so that no period repeats after a crash either (SPEC 2: reading 16).
            await self._store.settle(ownership, (), now=now)
            self._was_set_back = False
        if self._jumps:
            await self._note(ownership, self._jumps)
            self._jumps = []
        if self._watch.has_work:
            await self._watch.work(ownership)
            now = self._time.high
        for incident in self._store_clock.unwritten(self.owner, ownership.shards):
            await self._store.note_incidents(ownership, [incident])
            self._store_clock.written()
        if self._is_waiting_for_clock():
            return self._watch.wake_at or self._store_clock.wake_at
        self._aside.release()
        with burst() if len(self._inbox.reports) > FIRST_BATCH else nullcontext():
            await self._write_all_reports(ownership, now)
        if self._draining:
            return None
        wake_at = await self._start_due(ownership, now)
        return _earliest(wake_at, self._aside.wake_at(self._time.wall()))

    async def _write_all_reports(self, ownership: Ownership, now: int) -> None:
        """Write the reports up to an instant in batches; between two, start the due jobs of other tenants."""
        turns = self._shared_turns()
        for _ in range(MAX_REPORT_BATCHES):
            limit = BATCH if turns is None else turns.step
            jobs = self._report_limit.fitting(limit)
            reports = self._inbox.take_jobs(jobs, limit, now)
            if not reports:
                # A run that ends after the wake began is written after the starts of this wake.
                return
            began = self._clock.monotonic()
            changes = await self._write_reports(ownership, reports, now)
            if self._draining or len(reports) < jobs:
                continue
            turns = turns or await self._turns(ownership, changes)
            if turns is not None:
                self._step_took(turns, len(reports), began)
                await self._start_others(ownership, now, turns, changes)

    def _step_took(self, turns: Turns, count: int, began: float) -> None:
        """Adapt the size of batches to how long one took since `began`, in this burst and the next."""
        turns.took(count, self._clock.monotonic() - began)
        self._step = turns.step

    async def _write_reports(
        self, ownership: Ownership, reports: list[RunReport], now: int
    ) -> Sequence[Change]:
        """Plan, write, dispatch and return the changes that follow from some reports."""
        reports = self._aside.held_back(self._inbox.of_shards(reports, ownership.shards, self._lease))
        try:
            known, others = sole_run_states(self._dispatcher.sole_runs, reports, now)
            reported = await self._reported(ownership, others, reports)
            states = await self._limited([*known, *reported], now)
            self._dispatcher.forget_over(reports, states)
            changes, _ = self._plan(ownership, states, now)
            settled = await self._write(ownership, changes, now)
        except (StoreError, OwnedError):
            self._inbox.put_back(reports)
            raise
        await self._dispatch((changes, settled, ownership.shards), now)
        if self._draining and self._balance:
            self.renew_soon()
        if settled.stale_jobs:
            # These jobs changed in the store: their reports are planned again with the current records.
            self._inbox.put_back([report for report in reports if report.identity in settled.stale_jobs])
        return changes

    async def _reported(
        self, ownership: Ownership, names: list[str], reports: list[RunReport]
    ) -> list[JobState]:
        """Return the jobs with some names, read with the reports about them."""
        cases: list[JobState] = []
        if names:
            cases = (await self._store.load(ownership, until=NEVER, limit=0, named=names)).cases
        self._report_limit.saw(cases)
        return await attach_reports(self._store, self._namespace, cases, reports)

    async def _start_due(self, ownership: Ownership, now: int) -> int | None:
        """Start everything due: a small first batch, and if more is due, the rest as a burst."""
        batch = await self._next_batch(ownership, now, FIRST_BATCH)
        settled = await self._write(ownership, batch.changes, now)
        await self._dispatch((batch.changes, settled, ownership.shards), now)
        if self._draining or batch.is_last(now):
            return batch.wake_at
        with burst():
            return await self._start_burst(ownership, now, batch.changes)

    async def _start_burst(self, ownership: Ownership, now: int, first: Sequence[Change]) -> int | None:
        """Start due jobs in batches: while one is written and the next is read, the last is dispatched."""
        written, turns = NOTHING, await self._turns(ownership, first)
        await self._start_others(ownership, now, turns, first)
        batch = await self._next_batch(ownership, now, BATCH if turns is None else turns.step)
        for _ in range(MAX_DUE_BATCHES):
            limit, began = BATCH if turns is None else turns.step, self._clock.monotonic()
            settled, following = await self._write_batch(ownership, now, batch, written, limit)
            written = batch.changes, settled, ownership.shards
            if turns is not None:
                self._step_took(turns, len(batch.changes), began)
            if self._draining or batch.is_last(now):
                break
            try:
                if isinstance(following, BaseException):
                    raise following
                started = await self._start_others(ownership, now, turns, batch.changes)
                batch = following or await self._next_batch(ownership, now, limit)
                # A start that is planned twice would pass for one without an answer, if its write fails.
                batch = batch.without(started)
            except Exception:
                # It is committed, and no other worker will start it.
                await self._dispatch(written, now)
                raise
        await self._dispatch(written, now)
        return batch.wake_at

    def _shared_turns(self) -> Turns | None:
        """Return the turns of a burst if there were several tenants a short time ago."""
        if self.tenant_of is None or self._clock.monotonic() >= self._shared_until:
            return None
        return Turns(self.tenant_of, step=self._step)

    async def _turns(self, ownership: Ownership, changes: Sequence[Change]) -> Turns | None:
        """Return the turns of a burst; None if there is one tenant, which then costs nothing more."""
        if self.tenant_of is None or not changes:
            return None
        shared = self._shared_turns()
        if shared is not None:
            return shared
        if await self._store.serves_others(ownership.namespace, self.tenant_of(changes[0].job)):
            self._shared_until = self._clock.monotonic() + SHARED_S
        return self._shared_turns()

    async def _start_others(
        self, ownership: Ownership, since: int, turns: Turns | None, batch: Sequence[Change]
    ) -> set[str]:
        """Start the due jobs of tenants that have had less than their share of a burst that began at `since`.

        `batch` is the burst's last one. Jobs that were due when it began are planned at that instant too.
        Reports about their runs are written with them, as a start may wait for the end of another run.
        Return the names of all that were planned.
        """
        started: set[str] = set()
        if turns is None:
            return started
        turns.count(batch)
        if not turns.may_search(self._clock.monotonic()):
            return started
        for _ in range(MAX_INTERLUDES):
            now, began = self.now(), self._clock.monotonic()
            if self._draining or now - since > self.limits.lookahead_ms:
                # After a jump of the clock only a wake can judge which jobs are due.
                return started
            tenants = turns.over_share()
            limit = self._others_limit.fitting(FIRST_BATCH)
            due = await self._store.due_besides(ownership, tenants, until=now, limit=limit)
            reported = self._inbox.names_besides(tenants, limit, now)
            own = [name for name in reported if shard_of(name) in ownership.shards]
            names = [name for name in dict.fromkeys((*due, *own)) if not self._aside.waits(name)]
            turns.searched(began, self._clock.monotonic())
            if not names:
                return started
            planned = await self._start_named(ownership, names, since, now, turns)
            started.update(planned)
            if len(due) < limit and len(planned) == len(names):
                return started
        return started

    async def _start_named(
        self, ownership: Ownership, names: list[str], since: int, now: int, turns: Turns
    ) -> list[str]:
        """Start jobs with the reports about them, as far as the time lasts; return those planned."""
        own_reports = self._inbox.take_of(frozenset(names), now)
        try:
            loaded = await self._store.load(ownership, until=NEVER, limit=0, named=names)
            self._others_limit.saw(loaded.cases)
            attached = await attach_reports(self._store, self._namespace, loaded.cases, own_reports)
            states = await self._limited(attached, now)
            self._dispatcher.forget_over(own_reports, states)
            earlier = [state for state in states if _is_known(state, since)]
            later = [state for state in states if not _is_known(state, since)]
            slices = ((earlier, since), (later, now))
            planned = [self._plan_slice(ownership, each, at, turns) for each, at in slices]
            changes = [change for batch in planned for change in batch.changes]
            settled = await self._write(ownership, changes, now)
        except (StoreError, OwnedError):
            self._inbox.put_back(own_reports)
            raise
        turns.count(changes)
        await self._dispatch((changes, settled, ownership.shards), now)
        written = {change.job.identity for change in changes} - settled.stale_jobs
        # Those of jobs that were not planned, or have changed in the store, are planned again.
        self._inbox.put_back([report for report in own_reports if report.identity not in written])
        return [change.job.identity for change in changes]

    async def _write_batch(
        self, ownership: Ownership, now: int, batch: Batch, before: Written, limit: int
    ) -> tuple[WriteResult, Batch | BaseException | None]:
        """Write a batch, and at the same time read and plan the next, of `limit`, and dispatch the last."""
        # In this order: a store that serialises calls reads first, so that planning need not wait.
        ahead = self._next_batch(ownership, now, limit, writing=batch) if batch.is_full else _no_batch()
        reading = asyncio.create_task(ahead)
        writing = asyncio.create_task(self._write(ownership, batch.changes, now))
        try:
            await asyncio.sleep(0)
            await self._dispatch(before, now)
            settled, following = await asyncio.gather(writing, reading, return_exceptions=True)
        finally:
            reading.cancel()
            writing.cancel()
        if isinstance(settled, BaseException):
            raise settled
        return settled, following

    async def _next_batch(
        self, ownership: Ownership, now: int, limit: int, writing: Batch = EMPTY_BATCH
    ) -> Batch:
        """Read and plan some due jobs, except those of the batch that is being written."""
        without = [*(change.job for change in writing.changes), *self._aside.jobs()]
        limit = self._load_limit.fitting(limit)
        loaded = await self._store.load(ownership, until=now, limit=limit, without=without)
        self._load_limit.saw(loaded.cases)
        if loaded.high > self._time.high and self._watch.learn(loaded.high):
            self._wakeup.skip_wait()
        planned = self._plan_slice(ownership, await self._limited(loaded.cases, now), now)
        wake_at = _earliest(loaded.next_at, planned.again_at, writing.again_at)
        is_full = len(loaded.cases) >= limit or planned.is_full
        return planned._replace(wake_at=wake_at, is_full=is_full)

    async def _limited(self, states: list[JobState], now: int) -> list[JobState]:
        """Return jobs, each with the room that its tenant has for open runs."""
        limit = self._open_limit
        if limit is None or not any(may_open_more(state, now) for state in states):
            # A job without open runs may always start one.
            return states
        unsure = limit.unsure(states, now)
        if unsure:
            limit.count(await self._store.open_by_user(self._namespace, unsure), now)
        return limit.marked(states, now)

    def _plan_slice(
        self, ownership: Ownership, states: list[JobState], now: int, turns: Turns | None = None
    ) -> Batch:
        """Plan jobs for a bounded time; the rest stays due."""
        started = last = self._clock.monotonic()

        def is_over(change: Change) -> bool:
            nonlocal last
            before, last = last, self._clock.monotonic()
            if turns is not None:
                turns.spend(change.job, last - before)
            return last - started > SLICE_S

        changes, again_at = self._plan(ownership, states, now, is_over)
        return Batch(changes, again_at, is_full=len(changes) < len(states))

    async def _dispatch(self, written: Written, now: int) -> None:
        """Journal the written changes, then dispatch them."""
        changes, settled, shards = written
        if changes:
            self._journal.settled(changes, settled, now)
            for change in changes:
                if change.incidents and change.job.identity not in settled.stale_jobs:
                    self._tell(change.incidents)
        if settled.stale_jobs - settled.refused_jobs.keys():
            self._wakeup.skip_wait()
        if not await self._dispatcher.dispatch(changes, settled, shards):
            self._wakeup.skip_wait()

    def _plan(
        self,
        ownership: Ownership,
        states: list[JobState],
        now: int,
        stops_after: Callable[[Change], bool] | None = None,
    ) -> tuple[list[Change], int | None]:
        """Return the changes to write and dispatch, and when these jobs are due again."""
        since = min(self._lease.since.values(), default=now)
        # A renewal during the wake may leave other shards than those it was begun with.
        is_even = self._lease.is_even and ownership is self._lease.owned
        snapshot = Snapshot(
            states if is_even else self._lease.fenced(states, ownership.shards),
            since,
            ownership.token,
            self._traits,
            draining=self._draining,
            limits=self.limits,
            pace=self._pacer.pace,
            notify=self.notify,
        )
        changes, wake_at = plan(snapshot, now, stops_after=stops_after)
        self._pacer.plan(changes, now)
        self._has_notices |= any(change.notices for change in changes)
        return changes, wake_at

    async def _write(self, ownership: Ownership, changes: Sequence[Change], now: int) -> WriteResult:
        """Write first, dispatch later: a start that is not committed does not happen."""
        if not changes:
            return NOTHING[1]
        async with self._writing:
            try:
                settled = await self._store.settle(ownership, changes, now=now)
            except StoreError:
                self._dispatcher.unconfirmed += changes
                raise
            self._dispatcher.track(changes, settled)
            self._pacer.settle(changes, settled.stale_jobs)
            for identity in self._aside.note(changes, settled):
                fields = {"schedule_id": identity, "error": settled.refused_jobs[identity]}
                self._journal.note("record_refused", {"namespace": self._namespace, **fields})
        if self._has_notices and self.on_notice is not None:
            self._has_notices = False
            self.on_notice()
        return settled

    # --- time and health -------------------------------------------------------------------------

    def _read_time(self) -> int:
        judgement = self._time.read()
        now, jump = judgement.now, judgement.jump
        if jump:
            self.health.jumps += 1
            self._was_set_back = self._was_set_back or jump < 0
            fields = {"by_ms": jump, "now": now, "passed": self._time.passed}
            self._journal.note("clock_jumped", {"namespace": self._namespace, **fields})
            if self.compares_clocks and self._lease.granted.granted_at is not None:
                self._store_clock.doubt()
                self.renew_soon()
            if jump > self.limits.lookahead_ms:
                self._lease.since = dict.fromkeys(self._lease.since, now)
                if jump <= DAY_MS:
                    # The clock watch records longer ones.
                    self._jumps.append(clock_jump(self.owner, now - jump, now))
        self._watch.judge(judgement)
        return now

    def _has_work(self) -> bool:
        """Say whether executions run, or wait for the renewal of a lease that lapsed during an outage."""
        return self._dispatcher.is_busy or bool(self._dispatcher.unconfirmed)

    def _is_on_hold(self) -> bool:
        """Say whether nothing is planned until the lease is renewed, or until the clock is steady."""
        return bool(self._dispatcher.unconfirmed) or self._is_waiting_for_clock()

    def _is_waiting_for_clock(self) -> bool:
        """Say whether nothing is planned, because the clock is behind and not steady yet, or ahead."""
        return (self._watch.wake_at is not None or self._store_clock.holds) and not self._draining

    def _clock_corrected(self, steady_since: int, now: int) -> None:
        """Forget the times of a clock that was ahead: of take-overs, ticks, reports and jobs in memory."""
        self._lease.since = dict.fromkeys(self._lease.since, steady_since)
        self._pacer = Pacer(self.limits)
        self._aside.clear()
        self._inbox.restamp(now)
        self._dispatcher.sole_runs.clear()

    def _fail(self, error: Exception) -> None:
        self.health.fail(error)
        self._journal.note("engine_failed", {"namespace": self._namespace, "error": str(error)})

    def _degrade(self, error: StoreError) -> None:
        self.health.degrade(error)
        self._journal.note("store_failed", {"namespace": self._namespace, "error": str(error)})

    def _rested(self) -> None:
        if self.on_rest is not None:
            self.on_rest()


def _earliest(*instants: int | None) -> int | None:
    """Return the first of some instants; None is no instant."""
    return min((at for at in instants if at is not None), default=None)


def _is_known(state: JobState, now: int) -> bool:
    """Say whether a job was due at an instant, or reported on, and has no later report."""
    if state.reports:
        return all(report.at <= now for report in state.reports)
    return _is_due(state, now)


def _is_due(state: JobState, now: int) -> bool:
    """Say whether a job, or a run of it, is due at an instant."""
    times = (state.job.plan_at, *(run.due_at for run in state.runs))
    return any(at is not None and at <= now for at in times)


async def _no_batch() -> None:
    """Read nothing: no other job is due."""
