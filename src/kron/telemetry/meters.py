"""Meters: a store and launchers that are timed, for the metrics."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from kron.core.errors import StoreError
from kron.core.plan.record import AuditRecord, JobRecord, RunRecord
from kron.core.plan.report import Launch, RunReport
from kron.core.plan.step import Change, LoadResult, Ownership, WriteResult
from kron.ports import Clock, Launcher, ReportSink, Store
from kron.telemetry.counters import CALL_BOUNDS, LAUNCH_BOUNDS, Histogram
from kron.telemetry.request_trail import RequestTrail

Arguments = ParamSpec("Arguments")
T = TypeVar("T")
Written = Callable[[Sequence[Change], WriteResult, int], None]
Seen = Callable[[Iterable[RunRecord]], Awaitable[None]]


class StoreMeter:
    """Wraps a store: measures every verb, and counts errors and due jobs.

    `found` receives how many jobs were due, `written` the changes by people, and `seen` the runs of either
    before they are used.
    """

    def __init__(
        self, store: Store, clock: Clock, *, found: Callable[[int], None], written: Written, seen: Seen
    ) -> None:
        self.latency: dict[str, Histogram] = {}
        self.errors: dict[str, int] = {}
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
        self.ahead = self._timed("ahead", store.ahead)
        self.due_besides = self._timed("due_besides", store.due_besides)
        self.recorded = self._timed("recorded", store.recorded)
        self.note_clock = self._timed("note_clock", store.note_clock)
        self.clock_records = self._timed("clock_records", store.clock_records)
        self.absence = self._timed("absence", store.absence)
        self.read_clock = self._timed("read_clock", store.read_clock)
        self.leases = self._timed("leases", store.leases)
        self.is_drained = self._timed("is_drained", store.is_drained)
        self.set_drain = self._timed("set_drain", store.set_drain)
        self.version = self._timed("version", store.version)
        self.reopened = self._timed("reopened", store.reopened)
        self.note_incidents = self._timed("note_incidents", store.note_incidents)
        self.incidents = self._timed("incidents", store.incidents)
        self.pending_notices = self._timed("pending_notices", store.pending_notices)
        self.give_up_notices = self._timed("give_up_notices", store.give_up_notices)
        self.note_notices = self._timed("note_notices", store.note_notices)
        self.notices = self._timed("notices", store.notices)
        self.watch = store.watch
        self.close = store.close
        self._time_history(store)

    def _time_history(self, store: Store) -> None:
        """Measure the verbs that list jobs, runs and audit entries, and that prune them."""
        self.find_jobs = self._timed("find_jobs", store.find_jobs)
        self.namespaces = self._timed("namespaces", store.namespaces)
        self.count_jobs = self._timed("count_jobs", store.count_jobs)
        self.group_jobs = self._timed("group_jobs", store.group_jobs)
        self.count_made = self._timed("count_made", store.count_made)
        self.tally_runs = self._timed("tally_runs", store.tally_runs)
        self.open_runs = self._timed("open_runs", store.open_runs)
        self.open_by_user = self._timed("open_by_user", store.open_by_user)
        self.serves_others = self._timed("serves_others", store.serves_others)
        self.runs = self._timed("runs", store.runs)
        self.find_runs = self._timed("find_runs", store.find_runs)
        self.latest_runs = self._timed("latest_runs", store.latest_runs)
        self.newest_runs = self._timed("newest_runs", store.newest_runs)
        self.run_counts = self._timed("run_counts", store.run_counts)
        self.ranges = self._timed("ranges", store.ranges)
        self.epochs = self._timed("epochs", store.epochs)
        self.attempts = self._timed("attempts", store.attempts)
        self.audits = self._timed("audits", store.audits)
        self.prune = self._timed("prune", store.prune)

    def _timed(
        self, verb: str, call: Callable[Arguments, Awaitable[T]]
    ) -> Callable[Arguments, Coroutine[Any, Any, T]]:
        clock, histogram = self._clock, Histogram(CALL_BOUNDS)
        self.latency[verb], self.errors[verb] = histogram, 0

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
        """Load jobs, and count those that are due; named ones do not count."""
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
        """Write changes by people, and report them if all were written."""
        settled = await self._put(
            namespace, created=created, changed=changed, forgotten=forgotten, audit=audit, now=now
        )
        if not settled.stale_jobs and not settled.existing_runs:
            await self._seen(run for change in changed for run in change.updates)
            self._written(changed, settled, now)
        return settled


class LauncherMeter:
    """Wraps a launcher: measures the time from a start to its first report, and passes on the request."""

    def __init__(self, launcher: Launcher, clock: Clock, trail: RequestTrail) -> None:
        self.traits = launcher.traits
        self.latency = Histogram(LAUNCH_BOUNDS)
        self._launcher = launcher
        self._clock = clock
        self._trail = trail
        self._began: dict[tuple[str, int], float] = {}

    @property
    def waiting(self) -> int:
        """Return how many starts have no report yet."""
        return len(self._began)

    @property
    def busy(self) -> bool:
        """Return whether executions are in flight."""
        return self._launcher.busy

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Start an execution and its measurement."""

        def reported(report: RunReport) -> None:
            self._stop(report.key, report.attempt)
            sink(report)

        attempt = launch.run.key, launch.run.attempt
        self._began[attempt] = self._clock.monotonic()
        try:
            self._launcher.start(self._trail.on(launch), reported)
        except BaseException:
            self._stop(*attempt)
            raise

    def _stop(self, key: str, attempt: int) -> None:
        began = self._began.pop((key, attempt), None)
        if began is not None:
            self.latency.add(self._clock.monotonic() - began)

    def end(self, run: RunRecord) -> None:
        """Request that an execution stop."""
        self._launcher.end(run)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Resume tracking executions that outlived their owner."""
        return await self._launcher.adopt(runs, sink)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for running executions, or abandon them and their measurements."""
        await self._launcher.close(wait=wait)
        if not wait:
            self._began.clear()
