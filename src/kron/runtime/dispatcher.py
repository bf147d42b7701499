"""The dispatcher: starts and ends executions once their changes are committed. It decides nothing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from kron.core.errors import StoreError
from kron.core.plan.record import EpochRecord, JobRecord, RunRecord
from kron.core.plan.report import (
    MAX_EARLIER,
    Launch,
    LeaseStatus,
    RunEvent,
    RunReport,
    launch_of,
    needs_earlier,
    newest_of,
)
from kron.core.plan.step import Change, JobState, WriteResult, WriteScope
from kron.core.shard import shard_of
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.ports import Clock, EngineStore, Journal, Launcher, ReportSink
from kron.runtime.recovery import confirm_changes

# Executions started before other tasks of the event loop run.
STARTS_PER_YIELD = 100
# A job with more text than this is read again when its run ends, instead of kept until then, in characters.
MAX_REMEMBERED = 8_192
# Jobs whose earlier definitions are read at once: each may have 64 KiB, most of which is not kept.
JOBS_READ = 16
START = WriteScope.START

Shards = Mapping[int, int]
# Changes, the store's answer when it wrote them, and the shards owned at that time.
Written = tuple[Sequence[Change], WriteResult, Shards]
NOTHING: Written = ((), WriteResult(frozenset(), frozenset()), {})

# Earlier definitions by job.
Earlier = Mapping[str, Sequence[EpochRecord]]
NO_EARLIER: Earlier = {}


class LocalRuns:
    """Runs executing in this process that no other worker can adopt; their shards are not given away."""

    def __init__(self) -> None:
        self._identities: dict[str, str] = {}

    def add(self, run: RunRecord) -> None:
        """Track a run that is about to start."""
        self._identities[run.key] = run.identity

    def remove_ended(self, changes: Iterable[Change]) -> None:
        """Drop the runs whose end is committed."""
        for change in changes:
            for run in change.updates:
                if not run.in_flight:
                    self._identities.pop(run.key, None)

    def forget_over(self, reports: Sequence[RunReport], states: Sequence[JobState]) -> None:
        """Drop reported runs that the store has no more, or that are over there."""
        in_flight = {run.key for state in states for run in state.runs if run.in_flight}
        for report in reports:
            if report.key not in in_flight:
                self._identities.pop(report.key, None)

    def keep_only(self, is_mine: Callable[[str], bool]) -> None:
        """Drop the runs of jobs that other workers own now."""
        self._identities = {key: name for key, name in self._identities.items() if is_mine(name)}

    def shards(self) -> frozenset[int]:
        """Return the shards with at least one local run."""
        return frozenset(map(shard_of, set(self._identities.values())))


@dataclass(slots=True)
class Dispatcher:
    """Hands executions to launchers as long as the lease holds.

    `sole_runs` are jobs as they were written when their only open run was started, with that run;
    `unconfirmed` are changes whose store call failed, so that they may or may not be committed. `owned` are
    the shards of this owner, each with its fencing token. Only a balancing worker tracks `local_runs`.
    `epochs` reads the earlier definitions of jobs.
    """

    clock: Clock
    launchers: Mapping[str, Launcher]
    journal: Journal
    report: ReportSink
    local_runs: LocalRuns | None = None
    lease_ends: float = inf
    owned: Shards = field(default_factory=dict)
    sole_runs: dict[str, Launch] = field(default_factory=dict)
    unconfirmed: list[Change] = field(default_factory=list)
    epochs: Callable[..., Awaitable[list[EpochRecord]]] | None = None

    @property
    def is_busy(self) -> bool:
        """Say whether a launcher has running executions."""
        return any(launcher.busy for launcher in self.launchers.values())

    def track(self, changes: Sequence[Change], settled: WriteResult) -> None:
        """Track the starts of written changes, so that their shards are not given away."""
        if self.local_runs is not None:
            written = [change for change in changes if change.job.identity not in settled.stale_jobs]
            self.local_runs.remove_ended(written)
            for change in written:
                for run in change.starts:
                    if run.key not in settled.existing_runs:
                        self.local_runs.add(run)

    def forget_over(self, reports: Sequence[RunReport], states: Sequence[JobState]) -> None:
        """Drop reported runs that the store has no more, or whose end was written without an answer."""
        if self.local_runs is not None:
            self.local_runs.forget_over(reports, states)

    def _was_lost(self, run: RunRecord, shards: Shards) -> bool:
        """Say whether another worker may have taken a run over since it was written."""
        shard = shard_of(run.identity)
        return self.owned.get(shard) != shards.get(shard)

    def keep_only(self, is_mine: Callable[[str], bool]) -> None:
        """Forget the jobs that other workers own now."""
        self.sole_runs = {name: launch for name, launch in self.sole_runs.items() if is_mine(name)}
        self.unconfirmed = [change for change in self.unconfirmed if is_mine(change.job.identity)]
        if self.local_runs is not None:
            self.local_runs.keep_only(is_mine)

    def busy_shards(self) -> frozenset[int]:
        """Return the shards that only this owner can handle: with local runs or unconfirmed changes."""
        unconfirmed = frozenset(shard_of(change.job.identity) for change in self.unconfirmed)
        return unconfirmed if self.local_runs is None else unconfirmed | self.local_runs.shards()

    async def dispatch(self, changes: Sequence[Change], settled: WriteResult, shards: Shards) -> bool:
        """Start and end the runs of written changes, except those the store refused.

        Return False if starts have to wait because their earlier definitions cannot be read.
        """
        stale_jobs, existing_runs = settled.stale_jobs, settled.existing_runs
        started = 0
        try:
            earlier: Earlier | None = await self._read_earlier(changes)
        except StoreError:
            earlier = None
        for change in changes:
            if change.job.identity in stale_jobs:
                continue
            if change.fault is not None:
                self.journal.note("quarantined", {"identity": change.job.identity, "error": change.fault})
            for run in change.starts:
                if run.key in existing_runs or (shards is not self.owned and self._was_lost(run, shards)):
                    continue
                self._start(change.job, run, is_sole=change.scope is START, earlier=earlier)
                started += 1
                if started % STARTS_PER_YIELD == 0:
                    await asyncio.sleep(0)
            # After the starts: a run that is sent again after a take-over may be replaced in the same step.
            for run in change.ends:
                self._end(change.job, run)
        if changes:
            # A store that never waits would keep the last of them from running.
            await asyncio.sleep(0)
        return earlier is not None

    async def _read_earlier(self, changes: Sequence[Change]) -> Earlier:
        """Return the earlier definitions of jobs with starts whose data intervals reach back to an edit."""
        names = {
            change.job.identity
            for change in changes
            for run in change.starts
            if change.job.epoch > 1 and needs_earlier(change.job, run)
        }
        if not names or self.epochs is None:
            return NO_EARLIER
        earlier: dict[str, list[EpochRecord]] = {}
        ordered = sorted(names)
        for first in range(0, len(ordered), JOBS_READ):
            read: dict[str, list[EpochRecord]] = {}
            some = ordered[first : first + JOBS_READ]
            for record in await self.epochs(*some, newest=MAX_EARLIER):
                read.setdefault(record.identity, []).append(record)
            earlier.update((name, list(newest_of(records))) for name, records in read.items())
        return earlier

    async def dispatch_unconfirmed(self, store: EngineStore, namespace: str, now: int) -> Sequence[Change]:
        """Dispatch and return the changes that were committed although the store's answer was lost."""
        if not self.unconfirmed or self.clock.monotonic() >= self.lease_ends:
            return ()
        states = await store.cases(namespace, list({change.job.identity for change in self.unconfirmed}))
        earlier = await self._read_earlier(self.unconfirmed)
        unconfirmed, self.unconfirmed = self.unconfirmed, []
        committed, starts, ends = confirm_changes(unconfirmed, states, now)
        self.journal.settled(committed, NOTHING[1], now)
        for launch in starts:
            self._start(launch.job, launch.run, earlier=earlier)
        for launch in ends:
            self._end(launch.job, launch.run)
        return committed

    def _start(
        self,
        job: JobRecord,
        run: RunRecord,
        *,
        is_sole: bool = False,
        earlier: Earlier | None,
    ) -> None:
        """Start a run; one that `is_sole` is the only open run of its job.

        `earlier` are the definitions its data interval may need, None if they cannot be read now.
        """
        if self.lease_ends != inf and self.clock.monotonic() >= self.lease_ends:
            # Another worker may own it by now. If none does when the lease is renewed, it starts then.
            self._withhold(job, run)
            return
        if earlier is None and needs_earlier(job, run):
            self._withhold(job, run)
            return
        known = earlier.get(run.identity, ()) if earlier else ()
        launch = launch_of(job, run, self._lease_check(run), known)
        if is_sole and job.text_size <= MAX_REMEMBERED:
            self.sole_runs[run.identity] = launch
        launcher = self.launchers.get(job.launcher_kind)
        try:
            if launcher is None:
                raise LookupError(f'no launcher of the kind "{job.launcher_kind}"')
            if self.local_runs is not None:
                self.local_runs.add(run)
            launcher.start(launch, self.report)
        except Exception as cause:  # noqa: BLE001 - one launch that fails must not end the loop
            at = (self.clock.now() - EPOCH) // MILLISECOND
            error = f"{type(cause).__name__}: {cause}"
            self.report(RunReport(run.identity, run.key, run.attempt, RunEvent.LAUNCH_FAILED, at, error))

    def _withhold(self, job: JobRecord, run: RunRecord) -> None:
        """Keep a start for a later wake."""
        self.journal.note("start_withheld", {"identity": run.identity, "key": run.key})
        self.unconfirmed.append(Change(job, job.revision, starts=[run]))

    def _lease_check(self, run: RunRecord) -> Callable[[], LeaseStatus] | None:
        """Return a check for launchers that queue a start: whether it may still start later."""
        if self.lease_ends == inf and run.due_at is None:
            return None
        return partial(self._lease_status, shard_of(run.identity), run.token, run.due_at)

    def _lease_status(self, shard: int, token: int, overdue_at: int | None) -> LeaseStatus:
        """Compare the token that a start was written with to the one in force.

        A start that is overdue is never sent: the wake that records it as lost may be about to commit.
        """
        if overdue_at is not None and (self.clock.now() - EPOCH) // MILLISECOND >= overdue_at:
            return LeaseStatus.LOST
        if self.lease_ends == inf:
            return LeaseStatus.HELD
        if self.owned.get(shard) != token:
            return LeaseStatus.LOST
        return LeaseStatus.HELD if self.clock.monotonic() < self.lease_ends else LeaseStatus.LAPSED

    def _end(self, job: JobRecord, run: RunRecord) -> None:
        launcher = self.launchers.get(job.launcher_kind)
        if launcher is not None:
            launcher.end(run)
