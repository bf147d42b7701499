"""The inbox: reports about runs that are not written yet, and the job states they are planned with."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kron.core.job.job import schedule_prefix
from kron.core.plan.record import IN_FLIGHT, RunRecord
from kron.core.plan.report import Launch, RunReport
from kron.core.plan.step import JobState
from kron.core.shard import SHARDS, shard_of
from kron.ports import JobStore
from kron.runtime.lease import LeaseState


@dataclass(slots=True)
class Inbox:
    """Reports in order of arrival; `early` ones wait until their shard is recovered."""

    reports: deque[RunReport] = field(default_factory=deque)
    early: list[RunReport] = field(default_factory=list)

    def take(self, limit: int, until: int) -> list[RunReport]:
        """Remove and return the oldest reports up to an instant, at most `limit` of them."""
        taken: list[RunReport] = []
        while self.reports and len(taken) < limit and self.reports[0].at <= until:
            taken.append(self.reports.popleft())
        return taken

    def take_jobs(self, jobs: int, limit: int, until: int) -> list[RunReport]:
        """Remove and return reports up to an instant: all about the first `jobs` jobs, at most `limit`."""
        if jobs >= limit:
            return self.take(limit, until)
        first = self.take(jobs, until)
        others = self.take_of(frozenset(report.identity for report in first), until)
        fitting = limit - len(first)
        self.put_back(others[fitting:])
        return [*first, *others[:fitting]]

    def take_of(self, names: Collection[str], until: int) -> list[RunReport]:
        """Remove and return all reports about some jobs up to an instant."""
        taken = [report for report in self.reports if report.identity in names and report.at <= until]
        if taken:
            self.reports = deque(
                report for report in self.reports if report.identity not in names or report.at > until
            )
        return taken

    def names_besides(self, owners: Collection[str], limit: int, until: int) -> list[str]:
        """Return the names of jobs with reports up to an instant, at most `limit`, of none of these owners.

        The owner is told by the prefix of the name.
        """
        prefixes = frozenset(map(schedule_prefix, owners))
        names: dict[str, None] = {}
        for report in self.reports:
            if len(names) == limit:
                break
            if report.at <= until and report.identity[: report.identity.find("/") + 1] not in prefixes:
                names[report.identity] = None
        return list(names)

    def put_back(self, reports: Sequence[RunReport]) -> None:
        """Return reports that were not written to the front of the queue."""
        self.reports.extendleft(reversed(reports))

    def of_shards(
        self, reports: list[RunReport], shards: Mapping[int, int], lease: LeaseState
    ) -> list[RunReport]:
        """Return the reports of jobs in the shards of a wake.

        A wake that began before a take-over may see reports of shards that were taken over since: those wait
        for the next wake, or until the shard is recovered. Reports of shards that other workers own are
        dropped.
        """
        if len(shards) == SHARDS:
            return reports
        others = [report for report in reports if shard_of(report.identity) not in shards]
        self.put_back([report for report in others if lease.has(report.identity)])
        granted = lease.granted.shards.keys() - lease.owned.shards.keys()
        self.early += [report for report in others if shard_of(report.identity) in granted]
        return [report for report in reports if shard_of(report.identity) in shards]

    def restamp(self, latest: int) -> None:
        """Let no report be later than an instant: the clock was ahead when it came."""
        self.reports = deque(report._replace(at=min(report.at, latest)) for report in self.reports)
        self.early = [report._replace(at=min(report.at, latest)) for report in self.early]

    def put_in(self, orphans: Sequence[RunReport]) -> None:
        """Queue the reports of recovered shards: those that came early, and orphans."""
        self.reports += [*self.early, *orphans]
        self.early = []


def by_identity(reports: Sequence[RunReport]) -> dict[str, list[RunReport]]:
    """Return reports grouped by job."""
    grouped: dict[str, list[RunReport]] = {}
    for report in reports:
        grouped.setdefault(report.identity, []).append(report)
    return grouped


async def attach_reports(
    store: JobStore, namespace: str, states: list[JobState], reports: Sequence[RunReport]
) -> list[JobState]:
    """Return job states with their reports, and with the runs that these report on.

    A run whose end is not awaited is not open, and a report still changes it.
    """
    if not reports or not states:
        return states
    grouped = by_identity(reports)
    states = [state._replace(reports=grouped.get(state.job.identity, ())) for state in states]
    loaded = {run.key for state in states for run in state.runs}
    missing = {report.key for state in states for report in state.reports} - loaded
    if not missing:
        return states
    unawaited: dict[str, list[RunRecord]] = {}
    for run in await store.find_runs(namespace, sorted(missing)):
        if run.status in IN_FLIGHT:
            unawaited.setdefault(run.identity, []).append(run)
    return [state._replace(runs=[*state.runs, *unawaited.get(state.job.identity, ())]) for state in states]


def sole_run_states(
    sole_runs: dict[str, Launch], reports: Sequence[RunReport], now: int
) -> tuple[list[JobState], list[str]]:
    """Remove and return the states of jobs whose only open run is reported on; and the names of the others.

    These states need no read: had the job been changed since its start was written, its revision would
    differ, and the store would refuse the change. A job that is due again is read: a later period may run by
    now, and after a failure of the store a second plan of its start would pass for one without an answer.
    """
    states: list[JobState] = []
    others: list[str] = []
    for identity, grouped in by_identity(reports).items():
        launch = sole_runs.pop(identity, None)
        if launch is not None and _is_later(launch.job.plan_at, now) and _is_about(grouped, launch.run.key):
            states.append(JobState(launch.job, (launch.run,), grouped))
        else:
            others.append(identity)
    return states, others


def _is_later(plan_at: int | None, now: int) -> bool:
    return plan_at is None or plan_at > now


def _is_about(reports: Sequence[RunReport], key: str) -> bool:
    """Say whether reports, nearly always one, are all about the run with a key."""
    return reports[0].key == key and (len(reports) == 1 or all(report.key == key for report in reports))
