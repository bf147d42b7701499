"""Carrying out: what was decided and written is started and ended. Nothing is decided here."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.report import LeaseStatus, RunEvent, RunReport
from kron.core.plan.step import MILLISECOND, Change, JobState, WriteScope
from kron.core.shard import shard_of
from kron.core.time.instant import EPOCH
from kron.ports import Clock, Journal, Launch, Launcher, ReportSink, Store, WriteResult
from kron.runtime.local_runs import LocalRuns
from kron.runtime.recovery import sort_out

# How many executions are started before others get their turn in the event loop.
STARTS_PER_TURN = 100

Shards = Mapping[int, int]
# Changes, what a store said when it wrote them, and the shards that were owned then.
Written = tuple[Sequence[Change], WriteResult, Shards]
NOTHING: Written = ((), WriteResult(frozenset(), frozenset()), {})


@dataclass(slots=True)
class Dispatcher:
    """Hands executions to launchers as long as the lease holds.

    `alone` are jobs as they were written when their only open run was started, and that run; `unsure` is
    what was to be started and ended when a store's answer was lost. `owned` are the shards looked after, each
    with its token. Only an owner that shares its work has to know what it has in `hand`.
    """

    clock: Clock
    launchers: Mapping[str, Launcher]
    journal: Journal
    hear: ReportSink
    hand: LocalRuns | None = None
    lease_ends: float = inf
    owned: Shards = field(default_factory=dict)
    alone: dict[str, Launch] = field(default_factory=dict)
    unsure: list[Change] = field(default_factory=list)

    @property
    def is_busy(self) -> bool:
        """Say whether a launcher still has executions under way."""
        return any(launcher.busy for launcher in self.launchers.values())

    def take_note(self, changes: Sequence[Change], settled: WriteResult) -> None:
        """Note what was written, so that nothing that is about to start is given to others."""
        if self.hand is not None:
            mine = [change for change in changes if change.job.identity not in settled.stale_jobs]
            self.hand.let_go(mine)
            for change in mine:
                for run in change.starts:
                    if run.key not in settled.existing_runs:
                        self.hand.take(run)

    def forget(self, reports: Sequence[RunReport], cases: Sequence[JobState]) -> None:
        """Note what was said of jobs that are gone."""
        if self.hand is not None:
            self.hand.forget(reports, (case.job.identity for case in cases))

    def _was_lost(self, run: RunRecord, shards: Shards) -> bool:
        """Say whether somebody else may have taken a run over since it was written."""
        shard = shard_of(run.identity)
        return self.owned.get(shard) != shards.get(shard)

    def keep_only(self, is_mine: Callable[[str], bool]) -> None:
        """Forget jobs that others look after by now."""
        self.alone = {name: launch for name, launch in self.alone.items() if is_mine(name)}
        self.unsure = [change for change in self.unsure if is_mine(change.job.identity)]
        if self.hand is not None:
            self.hand.keep_only(is_mine)

    def busy_shards(self) -> frozenset[int]:
        """Return the shards in which something is under way that nobody else could look after."""
        unsure = frozenset(shard_of(change.job.identity) for change in self.unsure)
        return unsure if self.hand is None else unsure | self.hand.shards()

    async def carry_out(self, changes: Sequence[Change], settled: WriteResult, shards: Shards) -> None:
        """Start and end what the changes say, except where somebody else was quicker."""
        changed, handled = settled
        begun = 0
        for change in changes:
            if change.job.identity in changed:
                continue
            if change.fault is not None:
                self.journal.note("quarantined", {"identity": change.job.identity, "error": change.fault})
            for run in change.ends:
                self._end(change.job, run)
            for run in change.starts:
                if run.key in handled or (shards is not self.owned and self._was_lost(run, shards)):
                    continue
                self._start(change.job, run, alone=change.scope is WriteScope.START)
                begun += 1
                if begun % STARTS_PER_TURN == 0:
                    await asyncio.sleep(0)
        if changes:
            # A store that never waits would keep the last of them from their turn.
            await asyncio.sleep(0)

    async def carry_out_unsure(self, store: Store, namespace: str) -> None:
        """Carry out what a store wrote although its answer was lost: it is on record, and nobody did it."""
        if not self.unsure or self.clock.monotonic() >= self.lease_ends:
            return
        cases = await store.cases(namespace, list({change.job.identity for change in self.unsure}))
        unsure, self.unsure = self.unsure, []
        known, starts, ends = sort_out(unsure, cases)
        self.journal.settled(known, NOTHING[1], (self.clock.now() - EPOCH) // MILLISECOND)
        for launch in starts:
            self._start(launch.job, launch.run)
        for launch in ends:
            self._end(launch.job, launch.run)

    def _start(self, job: JobRecord, run: RunRecord, *, alone: bool = False) -> None:
        """Start a run; one that is `alone` is the only open one of its job."""
        if self.lease_ends != inf and self.clock.monotonic() >= self.lease_ends:
            # Somebody else may look after it by now. If nobody does when the lease is renewed, it starts.
            self.journal.note("start_withheld", {"identity": run.identity, "key": run.key})
            self.unsure.append(Change(job, job.revision, starts=[run]))
            return
        launch = Launch(job, run, None, self._hold_of(run))
        if alone:
            self.alone[run.identity] = launch
        launcher = self.launchers.get(job.launcher_kind)
        try:
            if launcher is None:
                raise LookupError(f'no launcher of the kind "{job.launcher_kind}"')
            if self.hand is not None:
                self.hand.take(run)
            launcher.start(launch, self.hear)
        except Exception as cause:  # noqa: BLE001 - one launch that fails must not end the loop
            at = (self.clock.now() - EPOCH) // MILLISECOND
            error = f"{type(cause).__name__}: {cause}"
            self.hear(RunReport(run.identity, run.key, run.attempt, RunEvent.LAUNCH_FAILED, at, error))

    def _hold_of(self, run: RunRecord) -> Callable[[], LeaseStatus] | None:
        """Return what says whether a run that is started now may still be begun later."""
        if self.lease_ends == inf:
            return None
        shard = shard_of(run.identity)
        return partial(self._hold, shard, self.owned.get(shard))

    def _hold(self, shard: int, token: int | None) -> LeaseStatus:
        if self.owned.get(shard) != token:
            return LeaseStatus.LOST
        return LeaseStatus.HELD if self.clock.monotonic() < self.lease_ends else LeaseStatus.LAPSED

    def _end(self, job: JobRecord, run: RunRecord) -> None:
        launcher = self.launchers.get(job.launcher_kind)
        if launcher is not None:
            launcher.end(run)
