"""Detects a wrong clock of the host, alone or beside the store's, and corrects the records."""

from collections.abc import Callable, Collection
from datetime import timedelta

from kron.core.errors import StoreError
from kron.core.plan.incident import clock_ahead, clock_behind
from kron.core.plan.plan import UNUSABLE, set_aside
from kron.core.plan.record import ClockEnding, ClockEvent, ClockRecord, IncidentRecord
from kron.core.plan.rewind import NOTHING, Recorded, cursor_at, rewind
from kron.core.plan.step import Change, JobState, Ownership
from kron.core.time.steady import DAY_MS, Judgement, offset_of
from kron.ports import EngineStore, Journal
from kron.runtime.health import Health
from kron.runtime.wakeup import EngineClock

# Jobs corrected in one transaction; and the most transactions of one correction.
BATCH, MAX_BATCHES = 100, 1_000_000
# How often a batch is corrected again because other processes changed its jobs.
MAX_TRIES = 20
# How soon the loop looks again while nothing is planned.
LOOK_AGAIN_MS = 1_000


class ClockWatch:
    """Watches the clock of one engine. `corrected` is called with the instant from which it is steady."""

    def __init__(
        self,
        time: EngineClock,
        store: EngineStore,
        journal: Journal,
        health: Health,
        *,
        namespace: str,
        owner: str,
        corrected: Callable[[int, int], None],
    ) -> None:
        self._time = time
        self._store = store
        self._journal = journal
        self._health = health
        self._namespace = namespace
        self._owner = owner
        self._corrected = corrected
        # The excursion that is not over, and those to be written.
        self._present: ClockRecord | None = None
        self._unwritten: list[ClockRecord] = []
        self._is_ready = False

    @property
    def has_work(self) -> bool:
        """Say whether an excursion is to be written, or the records are to be corrected."""
        return bool(self._unwritten) or self._is_ready

    @property
    def wake_at(self) -> int | None:
        """Return when the clock will be steady, if the records wait for that."""
        return None if self._present is None else self._time.steady_at

    def learn(self, high: int) -> bool:
        """Note an instant that another process recorded, if its clock was ahead; say whether it was.

        Within the lookahead both clocks may be right, and time must not go on to that instant at once. If the
        clock is behind the store's own, the other process may be right.
        """
        is_ahead = high - self._time.wall() > self._time.lookahead_ms and self._health.clock_off_ms >= 0
        if is_ahead:
            self._time.recorded(high)
        return is_ahead

    def judge(self, judgement: Judgement) -> None:
        """Note an excursion that starts or ends with a reading of the clock."""
        wall = self._time.read_at
        if judgement.jump > DAY_MS:
            forward = ClockRecord(
                ClockEvent.FORWARD, wall, self._owner, judgement.expected, wall, ClockEnding.MOVED
            )
            self._note("clock_moved_forward", forward)
            self._unwritten.append(forward)
        self._health.clock_behind_ms = judgement.behind
        present = self._present
        if present is not None and (not judgement.behind or wall < present.found_at):
            self._unwritten.append(present._replace(ended_at=wall, ending=ClockEnding.MOVED))
            self._present = None
        if judgement.behind and self._present is None:
            behind = ClockRecord(ClockEvent.BEHIND, wall, self._owner, judgement.now)
            self._note("clock_behind", behind)
            self._unwritten.append(behind)
            self._present = behind
        self._is_ready = bool(judgement.behind) and judgement.is_steady

    async def work(self, ownership: Ownership) -> None:
        """Write the excursions, and correct the records if the clock is steady."""
        while self._unwritten:
            await self._write(ownership, self._unwritten[0])
            self._unwritten.pop(0)
        if self._is_ready and self._present is not None:
            await self._correct(ownership, self._present)

    async def _write(self, ownership: Ownership, record: ClockRecord) -> None:
        """Write an excursion; one that an earlier owner found and did not correct is continued."""
        if record.ended_at is None:
            for earlier in await self._store.clock_records(self._namespace):
                if earlier.event is ClockEvent.BEHIND and earlier.ended_at is None:
                    is_same = earlier.reference == record.reference and earlier.found_at <= record.found_at
                    if is_same and self._present is record:
                        self._present = earlier
                        return
                    moved = earlier._replace(ended_at=record.found_at, ending=ClockEnding.MOVED)
                    await self._store.note_clock(ownership, moved)
        elif record.event is ClockEvent.BEHIND:
            await self._explain(ownership, record, record.ended_at)
        await self._store.note_clock(ownership, record)

    async def _explain(self, ownership: Ownership, record: ClockRecord, until: int) -> None:
        """Write the incident that explains the periods which waited; repeated, it explains the same."""
        if until > record.found_at:
            waited = clock_behind(
                self._owner, record.found_at, until, reference=record.reference, shards=ownership.shards
            )
            await self._store.note_incidents(ownership, [waited])

    async def _correct(self, ownership: Ownership, present: ClockRecord) -> None:
        """Make the wall clock authoritative: rewind every job that was written while it was ahead."""
        now, after, reopened = self._time.read_at, "", 0
        for _ in range(MAX_BATCHES):
            states = await self._store.ahead(ownership, since=present.found_at, after=after, limit=BATCH)
            if not states:
                break
            reopened += await self._rewind(ownership, states, present, now)
            after = states[-1].job.identity
        await self._explain(ownership, present, now)
        over = present._replace(ended_at=now, ending=ClockEnding.CORRECTED, reopened=reopened)
        await self._store.note_clock(ownership, over, high=now)
        steady_since = self._time.correct()
        self._present, self._is_ready = None, False
        self._health.clock_behind_ms = 0
        self._corrected(steady_since, now)
        self._note("clock_corrected", over)

    async def _rewind(
        self, ownership: Ownership, states: list[JobState], present: ClockRecord, now: int
    ) -> int:
        """Rewind some jobs; return how many periods are open again."""
        reopened = 0
        for _ in range(MAX_TRIES):
            after = {state.job.identity: _cursor_of(state, present.found_at) for state in states}
            recorded = await self._store.recorded(self._namespace, after)
            changes = [
                self._change(state, recorded.get(state.job.identity, NOTHING), present) for state in states
            ]
            settled = await self._store.settle(ownership, changes, now=now)
            written = [change for change in changes if change.job.identity not in settled.stale_jobs]
            reopened += sum(
                each.periods for change in written if change.rewind for each in change.rewind.reopened
            )
            if not settled.stale_jobs:
                return reopened
            states = await self._store.cases(self._namespace, sorted(settled.stale_jobs))
        raise StoreError("The store cannot be used: other callers keep writing the same jobs")

    def _change(self, state: JobState, recorded: Recorded, present: ClockRecord) -> Change:
        try:
            if state.fault is not None:
                raise StoreError(state.fault)
            return rewind(state, recorded, back_to=present.found_at, ahead_to=self._time.high)
        except UNUSABLE as fault:
            return set_aside(state, f"{type(fault).__name__}: {fault}", self._time.high)

    def _note(self, event: str, record: ClockRecord) -> None:
        fields = {"namespace": self._namespace, "by_ms": record.by_ms, "reopened": record.reopened}
        instants = {"clock": record.found_at, "reference": record.reference}
        self._journal.note(event, {**fields, **instants})


def _cursor_of(state: JobState, back_to: int) -> int:
    """Return the nominal time after which a job's records matter; a damaged record has none."""
    try:
        return cursor_at(state.job, back_to)
    except UNUSABLE:
        return back_to // 1000


class StoreClock:
    """Compares the host's clock with the store's, whenever a lease is granted.

    A worker that is ahead would start runs before their time. It plans nothing and lets its lease lapse, so
    that a worker whose clock agrees takes over. If none has within the lookahead, the host's clock counts:
    the store's may be the wrong one, and a scheduler must not stand still for it.
    """

    def __init__(self, time: EngineClock, journal: Journal, health: Health, namespace: str) -> None:
        self._time = time
        self._journal = journal
        self._health = health
        self._namespace = namespace
        # When the host's clock was found ahead, by the monotonic clock, in seconds.
        self._found_at: float | None = None
        # Whether the clock was set since the last comparison.
        self._was_set = False
        # The host's and the store's clock when it was found ahead, and which ends of it are to be written.
        self._found: tuple[int, int] = (0, 0)
        self._is_new = self._is_counted = False

    @property
    def is_ahead(self) -> bool:
        """Say whether the lease is to lapse, because the host's clock is ahead and another may agree."""
        if self._found_at is None or self._was_set:
            return False
        return 1000 * (self._time.clock.monotonic() - self._found_at) < self._time.lookahead_ms

    @property
    def holds(self) -> bool:
        """Say whether nothing is planned: the host's clock is ahead, or has to be compared first."""
        return self._was_set or self.is_ahead

    @property
    def wake_at(self) -> int:
        """Return when the loop looks again."""
        return self._time.wall() + LOOK_AGAIN_MS

    def recorded_at(self, now: int, granted_at: int | None) -> int:
        """Return the instant of a take-over: by the store's clock while the host's is ahead of it."""
        return granted_at if granted_at is not None and self.is_ahead else now

    def doubt(self) -> None:
        """Plan nothing until the next comparison: the host's clock was set."""
        self._was_set = True

    def compare(self, asked_at: int, granted_at: int) -> None:
        """Compare the store's clock with the host's, which showed `asked_at` before the store was asked."""
        self._was_set = False
        off = offset_of(asked_at, self._time.wall(), granted_at, lookahead_ms=self._time.lookahead_ms)
        before, self._health.clock_off_ms = self._health.clock_off_ms, off
        if off <= 0:
            self._found_at = None
        elif self._found_at is None:
            self._found_at = self._time.clock.monotonic()
            self._found, self._is_new, self._is_counted = (asked_at, granted_at), True, False
        fields = {"namespace": self._namespace, "by_ms": off, "clock": asked_at, "reference": granted_at}
        if off and not before:
            self._journal.note("clock_off", {**fields, "why": sentence_of(off)})
        elif before and not off:
            self._journal.note("clock_agrees", fields)

    def unwritten(self, owner: str, shards: Collection[int]) -> list[IncidentRecord]:
        """Return the incidents to be written: the clock was found ahead, or counts although it is ahead."""
        wall, reference = self._found
        lasts, by_ms = self._time.lookahead_ms, wall - reference
        if not shards:
            return []
        if self._is_new:
            return [clock_ahead(owner, reference, reference + lasts, by_ms=by_ms, shards=shards)]
        if self._found_at is not None and not self.holds and not self._is_counted:
            return [clock_ahead(owner, wall, wall + lasts, by_ms=by_ms, shards=shards, counted=True)]
        return []

    def written(self) -> None:
        """Note that the incidents are written."""
        if not self._is_new:
            self._is_counted = True
        self._is_new = False


def sentence_of(off_ms: int) -> str:
    """Return the fault of the host's clock, and its remedy."""
    by = timedelta(seconds=abs(off_ms) // 1000)
    how = "ahead of" if off_ms > 0 else "behind"
    return f"this host's clock is {by} {how} the database's; set the wrong one of them"
