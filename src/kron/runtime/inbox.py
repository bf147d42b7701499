"""The inbox: what was reported and not yet written."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kron.core.event import Report
from kron.core.record import IN_FLIGHT, RunRecord
from kron.core.turn import Case
from kron.ports import Launch, Store


@dataclass(slots=True)
class Inbox:
    """Reports in the order in which they came."""

    reports: deque[Report] = field(default_factory=deque)

    def take(self, limit: int, until: int) -> list[Report]:
        """Return the oldest, at most so many, of up to an instant."""
        taken: list[Report] = []
        while self.reports and len(taken) < limit and self.reports[0].at <= until:
            taken.append(self.reports.popleft())
        return taken

    def put_back(self, reports: Sequence[Report]) -> None:
        """Keep what could not be written; it comes first again."""
        self.reports.extendleft(reversed(reports))


def by_identity(reports: Sequence[Report]) -> dict[str, list[Report]]:
    """Return what was reported of each job."""
    heard: dict[str, list[Report]] = {}
    for report in reports:
        heard.setdefault(report.identity, []).append(report)
    return heard


async def with_reports(
    store: Store, namespace: str, cases: list[Case], reports: Sequence[Report]
) -> list[Case]:
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


def known_cases(alone: dict[str, Launch], reports: Sequence[Report]) -> tuple[list[Case], list[str]]:
    """Take out what is known of jobs whose only open run has ended; return it, and the names of all others.

    Nobody needs to read what was just written: had anybody changed it since, the job's revision
    would be another, and the store would refuse the change.
    """
    cases: list[Case] = []
    further: list[str] = []
    for identity, heard in by_identity(reports).items():
        launch = alone.pop(identity, None)
        if launch is not None and all(report.key == launch.run.key for report in heard):
            cases.append(Case(launch.job, (launch.run,), heard))
        else:
            further.append(identity)
    return cases, further
