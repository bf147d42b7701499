"""Metrics: everything one process counts, as Prometheus reads it; some gauges ask the store at each scrape.

Every label has few values, none of them a name or a text.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from math import isfinite

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from kron.app.worker import Worker
from kron.core.errors import KronError
from kron.core.plan.query import OpenRuns
from kron.core.plan.record import Result
from kron.core.plan.step import Change, Ownership, WriteResult
from kron.core.shard import SHARDS
from kron.core.time.instant import milliseconds_of
from kron.core.version import VERSION
from kron.ports import Clock, Launcher, Store
from kron.runtime.journal import CLOCK_EVENTS
from kron.telemetry.counters import Counters, Histogram, RequestCounters
from kron.telemetry.decision_log import DecisionLog
from kron.telemetry.meters import LauncherMeter, StoreMeter
from kron.telemetry.request_trail import CurrentRequest, RequestTrail, no_request

# Earlier than any due time.
NEVER = -1
# The states of a worker; the API without one is `none`. In the last four it holds the lease.
STATES = ("none", "waiting", "failed", "drained", "draining", "ready", "running", "degraded")
OWNING = frozenset({"draining", "ready", "running", "degraded"})
# Timeout of each store call of a scrape, in seconds; without an answer the gauge is left out.
STORE_TIMEOUT_S = 1.0
# How many open runs a scrape counts at most.
MAX_OPEN = 100_000
# What both processes have of their own, and together.
ADDED = ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds")


class Metrics:
    """Counts and logs what one process does. It is the journal of the worker's engine.

    `with_process` adds the memory, the processor time and the open files of the process.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        namespace: str,
        kind: str,
        current_request: CurrentRequest = no_request,
        with_process: bool = True,
    ) -> None:
        self.counters = Counters()
        self.requests = RequestCounters()
        self._trail = RequestTrail(store, namespace, current_request)
        self.store = StoreMeter(
            store, clock, found=self._found, written=self._registered, seen=self._trail.follow
        )
        self.launchers: dict[str, LauncherMeter] = {}
        self._log = DecisionLog(request_of=self._trail.request_of)
        self.clock = clock
        self._namespace = namespace
        self._kind = kind
        self._worker: Worker | None = None
        # Returns the metrics of a worker in another process, or None if it does not answer.
        self.other: Callable[[], Awaitable[str | None]] | None = None
        self._oldest_s: float | None = None
        # Whether the worker in another process does not answer.
        self._is_missing = False
        self._open: OpenRuns | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        if with_process:
            ProcessCollector(registry=self._registry)

    def observe(self, worker: Worker) -> None:
        """Export this worker's state."""
        self._worker = worker

    def measured(self, kind: str, launcher: Launcher) -> Launcher:
        """Return a launcher that is measured; callbacks start at once, so theirs is not."""
        if kind == "callback":
            return launcher
        meter = self.launchers[kind] = LauncherMeter(launcher, self.clock, self._trail)
        return meter

    # --- the journal -----------------------------------------------------------------------------

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Count and log a commit of the engine."""
        self.counters.settled(changes, settled, milliseconds_of(self.clock.now()))
        self._log.settled(changes, settled, now)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Count and log an event of the engine."""
        self.counters.note(event, fields, milliseconds_of(self.clock.now()))
        self._log.note(event, fields)

    def _found(self, due: int) -> None:
        self.counters.due += due

    def _registered(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Count and log a commit of the API."""
        self._trail.begin(run for change in changes for run in change.inserts)
        self.counters.settled(changes, settled, now)
        self._log.settled(changes, settled, now)

    # --- a scrape --------------------------------------------------------------------------------

    async def scrape(self) -> bytes:
        """Return all families in the Prometheus text format."""
        self._oldest_s = await self._oldest_due_s()
        self._open = await self._open_runs()
        if self.other is None:
            return generate_latest(self._registry)
        text = await self.other()
        self._is_missing = text is None
        own = generate_latest(self._registry)
        return own if text is None else merged(own.decode(), text)

    async def _open_runs(self) -> OpenRuns | None:
        """Return how many runs are open, by a partial index that holds no others."""
        now = milliseconds_of(self.clock.now())
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                return await self.store.open_runs(self._namespace, now=now, limit=MAX_OPEN)
        except (KronError, TimeoutError):
            return None

    async def _oldest_due_s(self) -> float | None:
        """Return for how many seconds the oldest due job has been due, by one look at an index."""
        # All shards, whichever worker owns them; nothing is written with it.
        everything = Ownership(self._namespace, "metrics", dict.fromkeys(range(SHARDS), 0))
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                loaded = await self.store.load(everything, until=NEVER, limit=0)
        except (KronError, TimeoutError):
            return None
        if loaded.next_at is None:
            return 0.0
        return max(0, milliseconds_of(self.clock.now()) - loaded.next_at) / 1000

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from _engine_families(self.counters)
        yield from _store_families(self.store)
        yield from _launcher_families(self.launchers)
        yield from _request_families(self.requests)
        yield _build_family(self._kind)
        yield from self._worker_families()
        if self._oldest_s is not None:
            means = "Seconds for which the oldest unhandled period has been due."
            yield _gauge("kron_oldest_unhandled_seconds", means, self._oldest_s)
        if self._open is not None:
            yield _open_family(self._open)

    def _worker_families(self) -> Iterator[Metric]:
        worker = self._worker
        yield _state_family("failed" if self._is_missing else None if worker is None else worker.state)
        if worker is None:
            return
        health = worker.health
        lease = health.lease if worker.state in OWNING else None
        since = {} if lease is None else lease.since
        yield _gauge("kron_shards_owned", "Shards this worker owns.", len(since))
        now = milliseconds_of(self.clock.now())
        held = (now - min(since.values(), default=now)) / 1000
        yield _gauge("kron_lease_held_seconds", "Seconds since this worker took over its oldest shard.", held)
        if lease is not None and isfinite(lease.ends):
            left = lease.ends - self.clock.monotonic()
            yield _gauge("kron_lease_left_seconds", "Seconds until the lease expires unless renewed.", left)
        means = "Seconds by which the clock is behind the latest recorded instant; 0 within the lookahead."
        yield _gauge("kron_clock_behind_seconds", means, health.clock_behind_ms / 1000)
        means = "Seconds by which the clock is ahead of the database's, or behind; 0 within the lookahead."
        yield _gauge("kron_clock_off_seconds", means, health.clock_off_ms / 1000)
        waiting = len(health.inbox.reports)
        yield _gauge("kron_reports_waiting", "Reports of launchers not written yet.", waiting)


# --- families ------------------------------------------------------------------------------------------


def _counter(
    name: str, means: str, labels: Iterable[str], counts: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    """Return a counter with a sample for each of its labels' values."""
    family = CounterMetricFamily(name, means, labels=list(labels))
    for values, count in counts:
        family.add_metric(list(values), count)
    return family


def _histogram(
    name: str, means: str, labels: Iterable[str], histograms: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    """Return a histogram for each of its labels' values."""
    family = HistogramMetricFamily(name, means, labels=list(labels))
    for values, each in histograms:
        family.add_metric(list(values), each.buckets(), each.sum)
    return family


def _gauge(name: str, means: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, means, value=value)


def _specified(name: str, means: str, count: float) -> Iterator[Metric]:
    """Yield a counter with Prometheus' suffix `_total`, and under its name in SPEC 3, which has none.

    The format has no counter without the suffix, so the second one is untyped.
    """
    yield CounterMetricFamily(name, means, value=count)
    yield UnknownMetricFamily(name, f"{means} The same as {name}_total.", value=count)


def _engine_families(counters: Counters) -> Iterator[Metric]:
    """Yield the counts of periods and runs; those of SPEC 3 have its names too."""
    yield from _specified("schedules_due", "Schedules found due.", counters.due)
    yield from _specified("runs_emitted", "Runs started, each attempt.", counters.emitted)
    means = "Periods skipped by the overlap policy."
    yield from _specified("runs_skipped_overlap", means, counters.skipped_by_overlap)
    failed = counters.results[Result.LAUNCH_FAILED]
    yield from _specified("runs_failed_launch", "Launches that failed after all retries.", failed)
    means = "Absolute difference between the actual start of a period and its nominal time."
    yield _histogram("scheduling_drift_seconds", means, (), [((), counters.drift)])
    means = "Absolute difference between the actual start of a period and its fire time."
    yield _histogram("kron_fire_drift_seconds", means, (), [((), counters.fire_drift)])
    outcomes = {
        (outcome.value, reason.value): count for (outcome, reason), count in counters.outcomes.items()
    }
    yield _counter("kron_outcomes", "Periods by outcome and reason.", ("outcome", "reason"), outcomes.items())
    results = {(result.value,): count for result, count in counters.results.items()}
    yield _counter("kron_results", "Executions by result.", ("result",), results.items())
    warnings = {(event,): count for event, count in sorted(counters.warnings.items())}
    yield _counter("kron_warnings", "Warnings of the engine.", ("event",), warnings.items())
    pruned = {(kind,): count for kind, count in counters.pruned.items()}
    yield _counter("kron_pruned", "Old records removed by retention.", ("kind",), pruned.items())
    means = "When retention last pruned, in seconds since 1970; 0: not yet."
    yield _gauge("kron_last_prune_timestamp_seconds", means, counters.pruned_at)
    means = "Messages of notifications by channel and result: sent, retried or failed."
    yield _counter("kron_notifications", means, ("channel", "result"), counters.notifications.items())
    jumps = counters.warnings["clock_jumped"]
    means = "Times the wall clock was set, or the machine slept."
    yield CounterMetricFamily("kron_clock_jumps", means, value=jumps)
    excursions = [((event,), counters.warnings[event]) for event in sorted(CLOCK_EVENTS)]
    means = "Times the clock was found wrong, or corrected afterwards."
    yield _counter("kron_clock_excursions", means, ("event",), excursions)


def _store_families(meter: StoreMeter) -> Iterator[Metric]:
    """Yield latency and errors of the store."""
    latency = {(verb,): each for verb, each in meter.latency.items() if each.count}
    yield _histogram("kron_store_seconds", "Latency of store calls.", ("verb",), latency.items())
    errors = {(verb,): count for verb, count in meter.errors.items()}
    yield _counter("kron_store_errors", "Store calls that failed.", ("verb",), errors.items())


def _launcher_families(meters: Mapping[str, LauncherMeter]) -> Iterator[Metric]:
    """Yield latency and backlog of launchers."""
    latency = {(kind,): meter.latency for kind, meter in meters.items()}
    means = "Time from a committed start to the first report about it."
    yield _histogram("kron_launch_seconds", means, ("launcher",), latency.items())
    waiting = GaugeMetricFamily("kron_launches_waiting", "Starts without a report yet.", labels=["launcher"])
    for kind, meter in meters.items():
        waiting.add_metric([kind], meter.waiting)
    yield waiting


def _open_family(runs: OpenRuns) -> Metric:
    """Return the number of open runs by state."""
    family = GaugeMetricFamily("kron_runs_open", "Runs that have not ended, by state.", labels=["state"])
    for state, count in runs._asdict().items():
        family.add_metric([state], count)
    return family


def _request_families(requests: RequestCounters) -> Iterator[Metric]:
    """Yield counts and latency of HTTP requests."""
    labels = ("route", "method")
    counts = requests.counts.items()
    yield _counter("kron_http_requests", "Requests to the API.", (*labels, "status"), counts)
    latency = requests.latency.items()
    yield _histogram("kron_http_seconds", "Latency of requests to the API.", labels, latency)


def _state_family(state: str | None) -> Metric:
    """Return the worker's state: one sample is 1."""
    family = GaugeMetricFamily(
        "kron_engine_state", "The worker's state: 1 for the present one, 0 for the others.", labels=["state"]
    )
    for each in STATES:
        family.add_metric([each], float(each == (state or "none")))
    return family


def _build_family(store: str) -> Metric:
    """Return versions and the kind of the store."""
    about = {"version": VERSION, "python": platform.python_version(), "store": store}
    return InfoMetricFamily("kron_build", "Versions of Kron and Python, and the kind of store.", value=about)


class _Merged(Collector):
    def __init__(self, families: dict[tuple[str, str], Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from self._families.values()


def merged(own: str, worker: str) -> bytes:
    """Return the metrics of the API and of its worker, both in the Prometheus text format, in one text."""
    families = {(each.name, each.type): each for each in text_string_to_metric_families(own)}
    for family in text_string_to_metric_families(worker):
        key = family.name, family.type
        known = families.get(key)
        families[key] = family if known is None else _together(known, family)
    return generate_latest(_Merged(families))


def _together(own: Metric, worker: Metric) -> Metric:
    if own.type in ("gauge", "info") and own.name not in ADDED:
        return worker if worker.samples else own
    values: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in (*own.samples, *worker.samples):
        key = sample.name, tuple(sorted(sample.labels.items()))
        known = values.get(key)
        values[key] = sample if known is None else known._replace(value=known.value + sample.value)
    own.samples = list(values.values())
    return own
