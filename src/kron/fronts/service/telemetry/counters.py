"""The tally: what the engine wrote, counted in plain integers; families are made of them when scraped.

A busy minute starts a hundred thousand runs, so those that start together are counted together.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import Result, RunKind, RunRecord
from kron.core.plan.step import Change, Cohort, WriteScope
from kron.fronts.service.telemetry.histogram import DRIFT_BOUNDS, Histogram
from kron.ports import WriteResult
from kron.runtime.journal import WARNINGS

# What a schedule's overlap policy drops a period for.
BY_OVERLAP = frozenset({Reason.ACTIVE, Reason.COALESCED, Reason.QUEUE_FULL})


class Counters:
    """Counts since the process began."""

    def __init__(self) -> None:
        self.due = 0
        self.emitted = 0
        self.outcomes: Counter[tuple[Outcome, Reason]] = Counter()
        self.results: Counter[Result] = Counter(dict.fromkeys(Result, 0))
        self.warnings: Counter[str] = Counter(dict.fromkeys(WARNINGS, 0))
        self.drift = Histogram(DRIFT_BOUNDS)

    @property
    def skipped_by_overlap(self) -> int:
        """Return how many periods were skipped because of another one."""
        return sum(count for (_, reason), count in self.outcomes.items() if reason in BY_OVERLAP)

    def note(self, event: str, _fields: Mapping[str, object]) -> None:
        """Count what somebody should know of."""
        if event in WARNINGS:
            self.warnings[event] += 1

    def settled(self, changes: Sequence[Change], settled: WriteResult, at: int) -> None:
        """Count what was written; `at` is the present instant, when what was written is about to start."""
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
            fire_time = cohort.run[1]
            assert isinstance(fire_time, int)
            self.drift.add(abs(at - fire_time) / 1000, alike)

    def _count(self, change: Change, handled: frozenset[str], at: int) -> None:
        for run in change.starts:
            if run.key not in handled:
                self._count_start(run, at)
        for run in change.ended:
            if run.result is not None:
                self.results[run.result] += 1
        for runs in (change.inserts, change.updates):
            for run in runs:
                outcome = run.outcome
                if outcome is not None and outcome is not Outcome.EXECUTED and run.key not in handled:
                    self.outcomes[outcome, run.reason] += 1
        for dropped in change.ranges:
            self.outcomes[dropped.outcome, dropped.reason] += dropped.periods

    def _count_start(self, run: RunRecord, at: int) -> None:
        self.emitted += 1
        if run.attempt == 1:
            self.outcomes[Outcome.EXECUTED, run.reason] += 1
            if run.kind is RunKind.PERIOD:
                self.drift.add(abs(at - run.fire_time) / 1000)
