"""The inbox: what was reported and not yet written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kron.core.event import Report
from kron.core.turn import Case


@dataclass(slots=True)
class Inbox:
    """Reports in the order in which they came."""

    reports: list[Report] = field(default_factory=list)

    def take(self, limit: int) -> list[Report]:
        """Return the oldest, at most so many."""
        taken, self.reports = self.reports[:limit], self.reports[limit:]
        return taken

    def put_back(self, reports: Sequence[Report]) -> None:
        """Keep what could not be written; it comes first again."""
        self.reports = [*reports, *self.reports]


def by_identity(reports: Sequence[Report]) -> dict[str, list[Report]]:
    """Return what was reported of each job."""
    heard: dict[str, list[Report]] = {}
    for report in reports:
        heard.setdefault(report.identity, []).append(report)
    return heard


def with_reports(cases: list[Case], reports: Sequence[Report]) -> list[Case]:
    """Return jobs with what was reported of them."""
    if not reports:
        return cases
    heard = by_identity(reports)
    return [case._replace(reports=heard.get(case.job.identity, ())) for case in cases]
