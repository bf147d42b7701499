"""Jobs set aside: their records are refused for now, so each is tried again later and delays no other."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from kron.core.plan.record import JobRecord
from kron.core.plan.report import RunReport
from kron.core.plan.step import Change, WriteResult
from kron.ports import Clock
from kron.runtime.inbox import Inbox

# How long a job waits after its first refusal, and at most; the delay doubles with each.
FIRST_S, LONGEST_S = 0.1, 30.0


@dataclass(slots=True)
class RefusedJob:
    """A job that was refused: how often in a row, until when it waits, and the reports about its runs.

    `until` is an instant of the monotonic clock.
    """

    job: JobRecord
    failures: int
    until: float
    reports: list[RunReport] = field(default_factory=list)


class SetAside:
    """The jobs of one engine whose records were refused, and the reports about them."""

    def __init__(self, clock: Clock, inbox: Inbox) -> None:
        self._clock = clock
        self._inbox = inbox
        self._jobs: dict[str, RefusedJob] = {}

    @property
    def has_reports(self) -> bool:
        """Say whether reports wait until their jobs are tried again."""
        return any(each.reports for each in self._jobs.values())

    def note(self, changes: Sequence[Change], settled: WriteResult) -> list[str]:
        """Set the refused jobs of a write aside, and end that of the others; return those that are new."""
        if not self._jobs and not settled.refused_jobs:
            return []
        new: list[str] = []
        for change in changes:
            identity = change.job.identity
            before = self._jobs.pop(identity, None)
            if before is not None:
                self._inbox.put_back(before.reports)
            if identity not in settled.refused_jobs:
                continue
            failures = 1 if before is None else before.failures + 1
            delay = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 16))
            self._jobs[identity] = RefusedJob(change.job, failures, self._clock.monotonic() + delay)
            if before is None:
                new.append(identity)
        return new

    def jobs(self) -> list[JobRecord]:
        """Return the jobs that wait."""
        if not self._jobs:
            return []
        now = self._clock.monotonic()
        return [each.job for each in self._jobs.values() if each.until > now]

    def waits(self, identity: str) -> bool:
        """Say whether a job waits."""
        found = self._jobs.get(identity)
        return found is not None and found.until > self._clock.monotonic()

    def held_back(self, reports: list[RunReport]) -> list[RunReport]:
        """Keep the reports about jobs that wait; return the others."""
        if not self._jobs:
            return reports
        others = []
        for report in reports:
            if self.waits(report.identity):
                self._jobs[report.identity].reports.append(report)
            else:
                others.append(report)
        return others

    def release(self) -> None:
        """Let jobs whose wait is over be tried again, with the reports about them."""
        now = self._clock.monotonic()
        for identity, each in list(self._jobs.items()):
            if each.until > now:
                continue
            self._inbox.put_back(each.reports)
            each.reports = []
            if each.until + LONGEST_S < now:
                # It was not due since, or is gone.
                del self._jobs[identity]

    def clear(self) -> None:
        """Let all jobs be tried again."""
        for each in self._jobs.values():
            self._inbox.put_back(each.reports)
        self._jobs.clear()

    def wake_at(self, wall: int) -> int | None:
        """Return when the first job that waits is tried again, by a wall clock that shows `wall` now."""
        if not self._jobs:
            return None
        now = self._clock.monotonic()
        waits = [each.until - now for each in self._jobs.values() if each.until > now]
        return wall + ceil(1000 * min(waits)) + 1 if waits else None
