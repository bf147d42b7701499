"""Families: counts as Prometheus reads them. Every label has few values, none of them a name or a text."""

import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from kron.core.plan.query import OpenRuns
from kron.core.plan.record import Result
from kron.fronts.service.telemetry.counters import Counters
from kron.fronts.service.telemetry.histogram import Histogram
from kron.fronts.service.telemetry.http_meter import Requests
from kron.fronts.service.telemetry.launcher_meter import LauncherMeter
from kron.fronts.service.telemetry.store_meter import StoreMeter

# What a worker may be doing; the API without one is `none`.
STATES = ("none", "waiting", "ready", "running", "degraded", "failed")


def counter(
    name: str, means: str, labels: Iterable[str], counts: Iterable[tuple[tuple[str, ...], float]]
) -> CounterMetricFamily:
    """Return a counter with a sample for each of its labels' values."""
    family = CounterMetricFamily(name, means, labels=list(labels))
    for values, count in counts:
        family.add_metric(list(values), count)
    return family


def histogram(
    name: str, means: str, labels: Iterable[str], found: Iterable[tuple[tuple[str, ...], Histogram]]
) -> HistogramMetricFamily:
    """Return a histogram for each of its labels' values."""
    family = HistogramMetricFamily(name, means, labels=list(labels))
    for values, each in found:
        family.add_metric(list(values), each.buckets(), each.sum)
    return family


def gauge(name: str, means: str, value: float) -> GaugeMetricFamily:
    """Return a gauge without labels."""
    return GaugeMetricFamily(name, means, value=value)


def tally_families(tally: Counters) -> Iterator[Metric]:
    """Yield what came of schedules; the first five have the names of SPEC 3."""
    yield CounterMetricFamily("schedules_due", "Schedules found due.", value=tally.due)
    yield CounterMetricFamily("runs_emitted", "Runs started, each attempt.", value=tally.emitted)
    yield CounterMetricFamily(
        "runs_skipped_overlap",
        "Periods skipped by the overlap policy.",
        value=tally.skipped_by_overlap,
    )
    yield CounterMetricFamily(
        "runs_failed_launch", "Launches that failed for good.", value=tally.results[Result.LAUNCH_FAILED]
    )
    means = "Absolute difference between the actual start of a period and its planned fire time."
    yield histogram("scheduling_drift_seconds", means, (), [((), tally.drift)])
    outcomes = {(outcome.value, reason.value): count for (outcome, reason), count in tally.outcomes.items()}
    yield counter("kron_outcomes", "Periods by outcome and reason.", ("outcome", "reason"), outcomes.items())
    results = {(result.value,): count for result, count in tally.results.items()}
    yield counter("kron_results", "Executions by how they ended.", ("result",), results.items())
    warnings = {(event,): count for event, count in sorted(tally.warnings.items())}
    yield counter("kron_warnings", "What the engine warned of.", ("event",), warnings.items())
    jumps = tally.warnings["clock_jumped"]
    yield CounterMetricFamily("kron_clock_jumps", "Times the wall clock was set, or slept.", value=jumps)


def store_families(meter: StoreMeter) -> Iterator[Metric]:
    """Yield how the store does."""
    latency = {(verb,): each for verb, each in meter.latency.items() if each.count}
    yield histogram("kron_store_seconds", "How long calls of the store took.", ("verb",), latency.items())
    errors = {(verb,): count for verb, count in meter.errors.items()}
    yield counter("kron_store_errors", "Calls of the store that failed.", ("verb",), errors.items())


def launcher_families(meters: Mapping[str, LauncherMeter]) -> Iterator[Metric]:
    """Yield how launchers do."""
    latency = {(kind,): meter.latency for kind, meter in meters.items()}
    means = "From a start on record to the first word about it."
    yield histogram("kron_launch_seconds", means, ("launcher",), latency.items())
    waiting = GaugeMetricFamily(
        "kron_launches_waiting", "Starts without an answer so far.", labels=["launcher"]
    )
    for kind, meter in meters.items():
        waiting.add_metric([kind], meter.waiting)
    yield waiting


def open_family(runs: OpenRuns) -> Metric:
    """Return how many runs are on record and not over."""
    means = "Runs on record that are not over, by what they wait for."
    family = GaugeMetricFamily("kron_runs_open", means, labels=["state"])
    for state, count in runs._asdict().items():
        family.add_metric([state], count)
    return family


def request_families(requests: Requests) -> Iterator[Metric]:
    """Yield what was asked of the API."""
    labels = ("route", "method")
    counts = requests.counts.items()
    yield counter("kron_http_requests", "Requests to the API.", (*labels, "status"), counts)
    latency = requests.latency.items()
    yield histogram("kron_http_seconds", "How long requests to the API took.", labels, latency)


def state_family(state: str | None) -> Metric:
    """Return what the worker is doing: one sample is 1."""
    family = GaugeMetricFamily("kron_engine_state", "What the worker is doing.", labels=["state"])
    for each in STATES:
        family.add_metric([each], float(each == (state or "none")))
    return family


def build_family(store: str) -> Metric:
    """Return what runs here."""
    try:
        release = version("kron-scheduler")
    except PackageNotFoundError:
        release = "unknown"
    about = {"version": release, "python": platform.python_version(), "store": store}
    return InfoMetricFamily("kron_build", "What runs here.", value=about)
