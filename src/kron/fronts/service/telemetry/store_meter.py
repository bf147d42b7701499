"""A store that is timed: how long each verb takes, how often it fails, and what is found due."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from kron.core.errors import StoreError
from kron.core.plan.record import AuditRecord, JobRecord, RunRecord
from kron.core.plan.step import Change
from kron.fronts.service.telemetry.histogram import CALL_BOUNDS, Histogram
from kron.ports import Clock, LoadResult, Ownership, Store, WriteResult

Arguments = ParamSpec("Arguments")
T = TypeVar("T")
VERBS = (
    "acquire", "renew", "release", "load", "settle", "in_flight", "put", "forget", "cases", "find_jobs",
    "count_jobs", "open_runs", "runs", "find_runs", "latest_runs", "newest_runs", "ranges", "epochs",
    "attempts", "audits", "prune",
)  # fmt: skip
Written = Callable[[Sequence[Change], WriteResult, int], None]
Seen = Callable[[Iterable[RunRecord]], Awaitable[None]]


class StoreMeter:
    """A store around another.

    `found` is told how many jobs were due, `written` what somebody changed, and `seen` the runs of either
    before anything is done with them.
    """

    def __init__(
        self, store: Store, clock: Clock, *, found: Callable[[int], None], written: Written, seen: Seen
    ) -> None:
        self.latency = {verb: Histogram(CALL_BOUNDS) for verb in VERBS}
        self.errors = dict.fromkeys(VERBS, 0)
        self._clock = clock
        self._found = found
        self._written = written
        self._seen = seen
        self._load = self._timed("load", store.load)
        self._put = self._timed("put", store.put)
        self.acquire = self._timed("acquire", store.acquire)
        self.renew = self._timed("renew", store.renew)
        self.release = self._timed("release", store.release)
        self.settle = self._timed("settle", store.settle)
        self.in_flight = self._timed("in_flight", store.in_flight)
        self.forget = self._timed("forget", store.forget)
        self.cases = self._timed("cases", store.cases)
        self.find_jobs = self._timed("find_jobs", store.find_jobs)
        self.count_jobs = self._timed("count_jobs", store.count_jobs)
        self.open_runs = self._timed("open_runs", store.open_runs)
        self.runs = self._timed("runs", store.runs)
        self.find_runs = self._timed("find_runs", store.find_runs)
        self.latest_runs = self._timed("latest_runs", store.latest_runs)
        self.newest_runs = self._timed("newest_runs", store.newest_runs)
        self.ranges = self._timed("ranges", store.ranges)
        self.epochs = self._timed("epochs", store.epochs)
        self.attempts = self._timed("attempts", store.attempts)
        self.audits = self._timed("audits", store.audits)
        self.prune = self._timed("prune", store.prune)
        self.watch = store.watch
        self.close = store.close

    def _timed(
        self, verb: str, call: Callable[Arguments, Awaitable[T]]
    ) -> Callable[Arguments, Coroutine[Any, Any, T]]:
        clock, histogram = self._clock, self.latency[verb]

        async def timed(*values: Arguments.args, **named: Arguments.kwargs) -> T:
            began = clock.monotonic()
            try:
                return await call(*values, **named)
            except StoreError:
                self.errors[verb] += 1
                raise
            finally:
                histogram.add(clock.monotonic() - began)

        return timed

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return what the store does, and count what is due: all but what was asked for by name."""
        loaded = await self._load(ownership, until=until, limit=limit, named=named, without=without)
        if limit:
            self._found(len(loaded.cases))
        await self._seen(run for case in loaded.cases for run in case.runs)
        return loaded

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
        """Write what somebody changed, and tell of it if all of it was written."""
        settled = await self._put(
            namespace, created=created, changed=changed, forgotten=forgotten, audit=audit, now=now
        )
        if not settled.stale_jobs and not settled.existing_runs:
            await self._seen(run for change in changed for run in change.updates)
            self._written(changed, settled, now)
        return settled
