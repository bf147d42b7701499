"""What the tests of launchers share: launches made by hand, and an ear that remembers and waits."""

import asyncio
import json
from collections.abc import Callable, Mapping

from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord, RunStatus, key_of
from kron.core.plan.report import Launch, RunEvent, RunReport
from tests.waiting import PATIENCE_S

NOON = 1_772_366_400  # 2026-03-01T12:00:00Z
ENDS = frozenset(RunEvent) - {RunEvent.ACCEPTED, RunEvent.STARTED}

HOURLY = '{"schedule":"0 * * * *"}'


def a_launch(
    settings: Mapping[str, object] | str = "{}",
    *,
    identity: str = "backup",
    nominal_time: int = NOON,
    attempt: int = 1,
    token: int = 7,
) -> Launch:
    text = settings if isinstance(settings, str) else json.dumps(settings)
    kind = "callback" if isinstance(settings, str) else str(settings.get("kind"))
    job = JobRecord(identity, HOURLY, text, kind, 1, 0, 0, 1, NOON, None, None)
    run = RunRecord(
        key_of(identity, nominal_time),
        identity,
        nominal_time,
        1000 * nominal_time,
        RunStatus.STARTED,
        Reason.DUE,
        1000 * nominal_time,
        1,
        is_open=1,
        attempt=attempt,
        token=token,
        started_at=1000 * nominal_time,
    )
    return Launch(job, run)


def on_record(launch: Launch, report: RunReport) -> Launch:
    """Return a launch as the owner records it after its acceptance."""
    assert report.happened is RunEvent.ACCEPTED
    return launch._replace(run=launch.run._replace(acked=1, run_id=report.run_id))


class Ear:
    """Hears reports."""

    def __init__(self) -> None:
        self.reports: list[RunReport] = []
        self._heard = asyncio.Event()

    def __call__(self, report: RunReport) -> None:
        self.reports.append(report)
        self._heard.set()

    def of(self, launch: Launch) -> list[RunReport]:
        run = launch.run
        return [report for report in self.reports if (report.key, report.attempt) == (run.key, run.attempt)]

    def said(self, launch: Launch) -> list[RunEvent]:
        return [report.happened for report in self.of(launch)]

    def ends(self) -> list[RunReport]:
        return [report for report in self.reports if report.happened in ENDS]

    async def until(self, enough: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not enough():
                self._heard.clear()
                await self._heard.wait()

    async def accepted(self, launch: Launch) -> RunReport:
        await self.until(lambda: self.of(launch))
        return self.of(launch)[0]

    async def end_of(self, launch: Launch) -> RunReport:
        await self.until(lambda: any(report.happened in ENDS for report in self.of(launch)))
        (end,) = (report for report in self.of(launch) if report.happened in ENDS)
        return end
