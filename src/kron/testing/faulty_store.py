"""A store that fails as it is told: before or after it wrote, without an answer, or late."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from kron.core.errors import InvalidOptionError, StoreError
from kron.core.job.seed import seed_hash, splitmix64, state_of, unit_of
from kron.core.plan.query import Audited, AuditFilter, FoundJob, JobFilter, OpenRuns, RunCursor
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    EpochRecord,
    JobRecord,
    RangeRecord,
    RunRecord,
    RunStatus,
)
from kron.core.plan.step import Change, JobState
from kron.ports import Clock, LoadResult, Ownership, Store, Watch, WriteResult
from kron.testing.clock import SimulatedClock

Arguments = ParamSpec("Arguments")
T = TypeVar("T")

# What chance may strike if nothing else is said: all that a running engine asks a store for.
ENGINE_CALLS = ("load", "settle", "cases", "find_runs", "in_flight", "renew")
# How long a late answer takes, and for how many turns of the event loop others go first.
USUAL_DELAY, YIELDED_TURNS = timedelta(seconds=1), 5


class Fault(StrEnum):
    """What goes wrong with one call.

    BEFORE: it fails, and nothing was written. AFTER: it was written, and the call fails. LOSE: it was
    written, no answer comes for a while, and then the call fails. DELAY: the answer comes late by the
    clock. YIELD: everybody else in the event loop has a few turns first.
    """

    BEFORE = "before"
    AFTER = "after"
    LOSE = "lose"
    DELAY = "delay"
    YIELD = "yield"


class Injected(NamedTuple):
    """One fault: which call, the how manieth of that name, and what goes wrong with it."""

    call: str
    number: int
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Faults drawn from a seed: each call's fate depends on the seed, its name and its number alone."""

    seed: int | str
    odds: float = 0.05
    faults: Sequence[Fault] = tuple(Fault)
    calls: Sequence[str] = ENGINE_CALLS

    def __post_init__(self) -> None:
        """Check that there is something to draw from."""
        if not 0 <= self.odds <= 1:
            raise InvalidOptionError(option="odds", value=self.odds, reason="must lie between 0 and 1")
        if not self.faults:
            raise InvalidOptionError(option="faults", value=(), reason="must not be empty")
        _check_calls(self.calls)

    def drawn(self, call: str, number: int) -> Fault | None:
        """Return what happens to a call, or None."""
        if call not in self.calls:
            return None
        state, first = splitmix64(state_of(seed_hash(str(self.seed), call, str(number))))
        _, second = splitmix64(state)
        return self.faults[second % len(self.faults)] if unit_of(first) < self.odds else None


class FaultyStore:
    """Any store, with faults: those of a script, those told to come next, and those drawn from a seed.

    `injected` says what was done. Given as the `script` of another store, it does the same again: so what
    a seed found is replayed, and made smaller, without the seed. With a simulated clock virtual time passes
    while an answer is late, also for the engine that waits for it.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        script: Iterable[Injected] = (),
        chance: Chance | None = None,
        delay: timedelta = USUAL_DELAY,
    ) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()
        self.injected: list[Injected] = []
        self._clock = clock
        self._script = {(call, number): Fault(fault) for call, number, fault in script}
        _check_calls([call for call, _ in self._script])
        self._next: deque[tuple[str, Fault]] = deque()
        self._chance = chance
        self._delay = delay

    @property
    def waiting(self) -> int:
        """Return how many of the faults told to come next have not come yet."""
        return len(self._next)

    def then(self, call: str, *faults: Fault) -> None:
        """Have the next calls of a name fail, one fault each, after all that were told before."""
        _check_calls([call])
        self._next.extend((call, Fault(fault)) for fault in faults)

    def heal(self) -> None:
        """Let nothing fail any more that was scripted, told to come next, or left to chance."""
        self._script.clear()
        self._next.clear()
        self._chance = None

    # --- one call --------------------------------------------------------------------------------

    async def _call(
        self,
        name: str,
        call: Callable[Arguments, Awaitable[T]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> T:
        self.calls[name] += 1
        fault = self._fault_of(name, self.calls[name])
        if fault is None:
            return await call(*arguments, **named)
        injected = Injected(name, self.calls[name], fault)
        self.injected.append(injected)
        if fault is Fault.BEFORE:
            raise _error_of(injected)
        if fault is Fault.DELAY:
            await self._wait()
        for _ in range(YIELDED_TURNS if fault is Fault.YIELD else 0):
            await asyncio.sleep(0)
        answer = await call(*arguments, **named)
        if fault is Fault.LOSE:
            await self._wait()
        if fault in (Fault.AFTER, Fault.LOSE):
            raise _error_of(injected)
        return answer

    def _fault_of(self, call: str, number: int) -> Fault | None:
        scripted = self._script.pop((call, number), None)
        if scripted is not None:
            return scripted
        if self._next and self._next[0][0] == call:
            return self._next.popleft()[1]
        return None if self._chance is None else self._chance.drawn(call, number)

    async def _wait(self) -> None:
        """Let the delay pass, however often somebody sets the clock meanwhile."""
        clock, ends = self._clock, self._clock.monotonic() + self._delay.total_seconds()
        standing_by = clock.standing_by() if isinstance(clock, SimulatedClock) else nullcontext()
        with standing_by:
            while (rest := ends - clock.monotonic()) > 0:
                await clock.sleep_until(clock.now() + max(timedelta(seconds=rest), timedelta.resolution))

    # --- the store -------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Become an owner."""
        return await self._call("acquire", self.inner.acquire, namespace, owner, now=now, balance=balance)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Return what is still owned."""
        return await self._call("renew", self.inner.renew, ownership, now=now, balance=balance)

    async def release(self, ownership: Ownership) -> None:
        """Let another owner take over."""
        await self._call("release", self.inner.release, ownership)

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs with something to do."""
        return await self._call(
            "load", self.inner.load, ownership, until=until, limit=limit, named=named, without=without
        )

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Write changes."""
        return await self._call("settle", self.inner.settle, ownership, changes, now=now)

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every execution that may be under way."""
        return await self._call("in_flight", self.inner.in_flight, ownership)

    async def put(
        self,
        namespace: str,
        *,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str] = (),
        audit: Sequence[AuditRecord] = (),
        now: int,
    ) -> WriteResult:
        """Forget jobs, and write new and changed ones."""
        put = partial(self.inner.put, created=created, changed=changed, forgotten=forgotten, audit=audit)
        return await self._call("put", put, namespace, now=now)

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs."""
        await self._call("forget", self.inner.forget, namespace, identities)

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs."""
        return await self._call("cases", self.inner.cases, namespace, identities)

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return the jobs somebody wants."""
        return await self._call(
            "find_jobs", self.inner.find_jobs, namespace, wanted, after=after, limit=limit
        )

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs."""
        return await self._call("runs", self.inner.runs, namespace, identity, before=before, limit=limit)

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return the runs with these keys."""
        return await self._call("find_runs", self.inner.find_runs, namespace, keys)

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs."""
        latest = self.inner.latest_runs
        return await self._call(
            "latest_runs", latest, namespace, status=status, users=users, before=before, limit=limit
        )

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        return await self._call("count_jobs", self.inner.count_jobs, namespace, wanted)

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Return how many runs are open."""
        return await self._call("open_runs", self.inner.open_runs, namespace, now=now, limit=limit)

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some jobs."""
        return await self._call("newest_runs", self.inner.newest_runs, namespace, identities, limit=limit)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return changes that somebody made."""
        return await self._call("audits", self.inner.audits, namespace, wanted, before=before, limit=limit)

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's counted records."""
        return await self._call("ranges", self.inner.ranges, namespace, identity, at=at)

    async def epochs(self, namespace: str, identity: str) -> list[EpochRecord]:
        """Return the earlier definitions of a job."""
        return await self._call("epochs", self.inner.epochs, namespace, identity)

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run."""
        return await self._call("attempts", self.inner.attempts, namespace, key)

    async def prune(self, namespace: str, *, before: int, limit: int) -> int:
        """Remove old history."""
        return await self._call("prune", self.inner.prune, namespace, before=before, limit=limit)

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch what others write; watching does not fail."""
        self.calls["watch"] += 1
        return self.inner.watch(namespace, call)

    async def close(self) -> None:
        """Let go of files and connections."""
        await self._call("close", self.inner.close)


CALLS = frozenset(name for part in Store.__mro__ for name in vars(part) if not name.startswith("_")) - {
    "watch"
}


def _check_calls(calls: Iterable[str]) -> None:
    for call in calls:
        if call not in CALLS:
            reason = f"a store has the calls {', '.join(sorted(CALLS))}"
            raise InvalidOptionError(option="call", value=call, reason=reason)


def _error_of(injected: Injected) -> StoreError:
    call, number, fault = injected
    return StoreError(f"The store fails as told: {call} {number}, {fault}", **injected._asdict())
