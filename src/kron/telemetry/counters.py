"""Counters and histograms as plain integers; metric families are made from them at a scrape.

A busy minute starts a hundred thousand runs, so the runs of one cohort are counted together.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.query import PRUNED_KINDS
from kron.core.plan.record import Result, RunKind, RunRecord
from kron.core.plan.step import Change, Cohort, WriteResult, WriteScope
from kron.runtime.journal import WARNINGS

# Reasons for which an overlap policy drops a period.
OVERLAP_REASONS = frozenset({Reason.ACTIVE, Reason.COALESCED, Reason.QUEUE_FULL})
# Events of the sender of notifications.
NOTIFICATIONS = frozenset({"notified", "notification_failed"})
# Upper bounds in seconds: calls that take milliseconds, and starts that may be hours late.
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAUNCH_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DRIFT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)


class Histogram:
    """Counts values by the first bound that is not below them; the last count is of values beyond all."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that was observed `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Return how many values were counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound with the number of values up to it, as Prometheus expects them."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class RequestCounters:
    """HTTP requests by route, method and status class, and their latency by route and method."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.latency: dict[tuple[str, str], Histogram] = {}

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.counts[route, method, f"{status // 100}xx"] += 1
        self.latency.setdefault((route, method), Histogram(CALL_BOUNDS)).add(seconds)


class Counters:
    """Counts of the engine's commits and events since the process started."""

    def __init__(self) -> None:
        self.due = 0
        self.emitted = 0
        self.outcomes: Counter[tuple[Outcome, Reason]] = Counter()
        self.results: Counter[Result] = Counter(dict.fromkeys(Result, 0))
        self.warnings: Counter[str] = Counter(dict.fromkeys(WARNINGS, 0))
        # From the nominal time (SPEC 3: 9), and from the fire time, which a window or jitter may move.
        self.drift = Histogram(DRIFT_BOUNDS)
        self.fire_drift = Histogram(DRIFT_BOUNDS)
        self.pruned: Counter[str] = Counter(dict.fromkeys(PRUNED_KINDS, 0))
        # Messages by channel and result of an attempt: sent, retried or failed.
        self.notifications: Counter[tuple[str, str]] = Counter()
        # When pruning last ended, in seconds; 0 before the first time.
        self.pruned_at = 0.0

    @property
    def skipped_by_overlap(self) -> int:
        """Return how many periods the overlap policy skipped."""
        return sum(count for (_, reason), count in self.outcomes.items() if reason in OVERLAP_REASONS)

    def note(self, event: str, fields: Mapping[str, object], at: int) -> None:
        """Count a warning of the engine, or the records that were pruned; `at` is the present instant."""
        if event in NOTIFICATIONS:
            self.notifications[str(fields["channel"]), str(fields["result"])] += 1
        if event in WARNINGS:
            self.warnings[event] += 1
        elif event == "pruned":
            counts = {kind: fields.get(kind, 0) for kind in PRUNED_KINDS}
            self.pruned.update({kind: count for kind, count in counts.items() if isinstance(count, int)})
            self.pruned_at = at / 1000

    def settled(self, changes: Sequence[Change], settled: WriteResult, at: int) -> None:
        """Count a commit; `at` is the present instant, just before its runs start."""
        if settled.stale_jobs or settled.existing_runs:
            for change in changes:
                if change.job.identity not in settled.stale_jobs:
                    self._count(change, settled.existing_runs, at)
            return
        cohort: Cohort | None = None
        alike = ended = 0
        for change in changes:
            if change.cohort is not None:
                if change.cohort is not cohort:
                    self._count_cohort(cohort, alike, at)
                    cohort, alike = change.cohort, 0
                alike += 1
            elif change.scope is WriteScope.END:
                ended += 1
            else:
                self._count(change, frozenset(), at)
        self._count_cohort(cohort, alike, at)
        self.results[Result.SUCCESS] += ended

    def _count_cohort(self, cohort: Cohort | None, alike: int, at: int) -> None:
        """Count plain periods of one definition that start together."""
        if cohort is not None:
            self.emitted += alike
            self.outcomes[Outcome.EXECUTED, Reason.DUE] += alike
            self._count_drift(cohort.run, at, alike)

    def _count(self, change: Change, existing: frozenset[str], at: int) -> None:
        for run in change.starts:
            if run.key not in existing:
                self._count_start(run, at)
        for run in change.ended:
            if run.result is not None:
                self.results[run.result] += 1
        for runs in (change.inserts, change.updates):
            for run in runs:
                outcome = run.outcome
                if outcome is not None and outcome is not Outcome.EXECUTED and run.key not in existing:
                    self.outcomes[outcome, run.reason] += 1
        for dropped in change.ranges:
            self.outcomes[dropped.outcome, dropped.reason] += dropped.periods

    def _count_start(self, run: RunRecord, at: int) -> None:
        self.emitted += 1
        if run.attempt == 1:
            self.outcomes[Outcome.EXECUTED, run.reason] += 1
            if run.kind is RunKind.PERIOD:
                self._count_drift(run, at)

    def _count_drift(self, run: RunRecord, at: int, times: int = 1) -> None:
        self.drift.add(abs(at - 1000 * run.nominal_time) / 1000, times)
        self.fire_drift.add(abs(at - run.fire_time) / 1000, times)
