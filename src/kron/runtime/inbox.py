"""The inbox: what was reported and not yet written."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kron.core.plan.record import IN_FLIGHT, RunRecord
from kron.core.plan.report import RunReport
from kron.core.plan.step import JobState
from kron.core.shard import SHARDS, shard_of
from kron.ports import Launch, Store
from kron.runtime.lease import LeaseState


@dataclass(slots=True)
class Inbox:
    """Reports in the order in which they came; those that came too `early` wait for their shards."""

    reports: deque[RunReport] = field(default_factory=deque)
    early: list[RunReport] = field(default_factory=list)

    def take(self, limit: int, until: int) -> list[RunReport]:
        """Return the oldest, at most so many, of up to an instant."""
        taken: list[RunReport] = []
        while self.reports and len(taken) < limit and self.reports[0].at <= until:
            taken.append(self.reports.popleft())
        return taken

    def put_back(self, reports: Sequence[RunReport]) -> None:
        """Keep what could not be written; it comes first again."""
        self.reports.extendleft(reversed(reports))

    def of_shards(
        self, reports: list[RunReport], shards: Mapping[int, int], tenure: LeaseState
    ) -> list[RunReport]:
        """Return the reports of jobs in the shards of a wake.

        A wake that began before a take-over may hear of what was taken over since: that is for the next one,
        or for when it is recovered. Of jobs that others look after nothing is kept.
        """
        if len(shards) == SHARDS:
            return reports
        others = [report for report in reports if shard_of(report.identity) not in shards]
        self.put_back([report for report in others if tenure.has(report.identity)])
        granted = tenure.granted.shards.keys() - tenure.owned.shards.keys()
        self.early += [report for report in others if shard_of(report.identity) in granted]
        return [report for report in reports if shard_of(report.identity) in shards]

    def put_in(self, orphans: Sequence[RunReport]) -> None:
        """Take reports of shards that are looked after from now on, and what came early."""
        self.reports += [*self.early, *orphans]
        self.early = []


def by_identity(reports: Sequence[RunReport]) -> dict[str, list[RunReport]]:
    """Return what was reported of each job."""
    heard: dict[str, list[RunReport]] = {}
    for report in reports:
        heard.setdefault(report.identity, []).append(report)
    return heard


async def with_reports(
    store: Store, namespace: str, cases: list[JobState], reports: Sequence[RunReport]
) -> list[JobState]:
    """Return jobs with what was reported of them, and with the runs it was reported of.

    A run whose end nobody waits for is not open, and what is reported of it still moves it (DESIGN 7).
    """
    if not reports:
        return cases
    heard = by_identity(reports)
    cases = [case._replace(reports=heard.get(case.job.identity, ())) for case in cases]
    known = {run.key for case in cases for run in case.runs}
    further = {report.key for case in cases for report in case.reports} - known
    if not further:
        return cases
    unwaited: dict[str, list[RunRecord]] = {}
    for run in await store.find_runs(namespace, sorted(further)):
        if run.status in IN_FLIGHT:
            unwaited.setdefault(run.identity, []).append(run)
    return [case._replace(runs=[*case.runs, *unwaited.get(case.job.identity, ())]) for case in cases]


def known_cases(alone: dict[str, Launch], reports: Sequence[RunReport]) -> tuple[list[JobState], list[str]]:
    """Take out what is known of jobs whose only open run has ended; return it, and the names of all others.

    Nobody needs to read what was just written: had anybody changed it since, the job's revision
    would be another, and the store would refuse the change.
    """
    cases: list[JobState] = []
    further: list[str] = []
    for identity, heard in by_identity(reports).items():
        launch = alone.pop(identity, None)
        if launch is not None and all(report.key == launch.run.key for report in heard):
            cases.append(JobState(launch.job, (launch.run,), heard))
        else:
            further.append(identity)
    return cases, further
