"""Taking over: what an earlier owner left behind is found, or reported as lost."""

from collections.abc import Mapping, Sequence

from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import Change, JobState
from kron.core.shard import shard_of
from kron.ports import Launch, Launcher, Ownership, ReportSink, Store


async def recover_orphans(
    store: Store,
    launchers: Mapping[str, Launcher],
    ownership: Ownership,
    *,
    shards: frozenset[int],
    hear: ReportSink,
    now: int,
) -> list[RunReport]:
    """Have launchers adopt the executions of some shards; return a report for each that is not found."""
    left = [run for run in await store.in_flight(ownership) if shard_of(run.identity) in shards]
    if not left:
        return []
    cases = await store.cases(ownership.namespace, [run.identity for run in left])
    jobs = {case.job.identity: case.job for case in cases}
    left = [run for run in left if run.identity in jobs]
    reports: list[RunReport] = []
    for kind in {job.launcher_kind for job in jobs.values()}:
        launcher = launchers.get(kind)
        mine = [run for run in left if jobs[run.identity].launcher_kind == kind]
        launches = [Launch(jobs[run.identity], run) for run in mine]
        found = await launcher.adopt(launches, hear) if launcher else frozenset()
        reports += [
            RunReport(run.identity, run.key, run.attempt, RunEvent.ORPHANED, now)
            for run in mine
            if run.key not in found
        ]
    return reports


def sort_out(
    unsure: Sequence[Change], cases: Sequence[JobState]
) -> tuple[list[Change], list[Launch], list[Launch]]:
    """Return which changes are on record although the answer was lost, and what to start and end of them."""
    jobs = {case.job.identity: case.job for case in cases}
    found = {run.key: run for case in cases for run in case.runs}
    known = [change for change in unsure if _was_written(change, jobs, found)]
    starts = [
        Launch(change.job, run)
        for change in unsure
        for run in change.starts
        if _is_unacknowledged(found.get(run.key), run)
    ]
    ends = [
        Launch(change.job, run)
        for change in unsure
        for run in change.ends
        if run.key not in found
        or (found[run.key].attempt, found[run.key].reason) == (run.attempt, Reason.REPLACED)
    ]
    return known, starts, ends


def _is_unacknowledged(found: RunRecord | None, run: RunRecord) -> bool:
    """Say whether a start is on record just as it was to be, and nobody has heard of it since."""
    return found is not None and (found.attempt, found.token, found.acked) == (run.attempt, run.token, 0)


def _was_written(change: Change, jobs: Mapping[str, JobRecord], found: Mapping[str, RunRecord]) -> bool:
    """Say whether a change is on record; one that raises no revision was withheld, and told of already."""
    job = jobs.get(change.job.identity)
    if job is None or not change.revision < change.job.revision <= job.revision:
        return False
    if not all(_is_unacknowledged(found.get(run.key), run) for run in change.starts):
        return False
    begun = {run.key for run in change.starts}
    return not any(
        run.key in found and found[run.key].in_flight and run.key not in begun for run in change.ended
    )
