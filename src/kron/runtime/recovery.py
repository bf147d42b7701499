"""Recovery: runs of an earlier owner are adopted or reported as orphaned, and lost store answers resolved."""

from collections.abc import Mapping, Sequence

from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.report import Launch, RunEvent, RunReport
from kron.core.plan.step import Change, JobState, Ownership
from kron.core.shard import shard_of
from kron.ports import EngineStore, Launcher, ReportSink


async def recover_orphans(
    store: EngineStore,
    launchers: Mapping[str, Launcher],
    ownership: Ownership,
    *,
    shards: frozenset[int],
    report: ReportSink,
    now: int,
) -> list[RunReport]:
    """Let launchers adopt the runs in flight of some shards; return an orphan report for each of the rest.

    A run that was to be replaced is ended again: its owner may have gone before it could do so.
    """
    left = [run for run in await store.in_flight(ownership) if shard_of(run.identity) in shards]
    if not left:
        return []
    states = await store.cases(ownership.namespace, [run.identity for run in left])
    jobs = {state.job.identity: state.job for state in states}
    left = [run for run in left if run.identity in jobs]
    reports: list[RunReport] = []
    for kind in {job.launcher_kind for job in jobs.values()}:
        launcher = launchers.get(kind)
        runs = [run for run in left if jobs[run.identity].launcher_kind == kind]
        launches = [Launch(jobs[run.identity], run) for run in runs]
        adopted = await launcher.adopt(launches, report) if launcher else frozenset()
        for run in runs:
            if launcher is not None and run.key in adopted and run.reason is Reason.REPLACED:
                launcher.end(run)
        reports += [
            RunReport(run.identity, run.key, run.attempt, RunEvent.ORPHANED, now)
            for run in runs
            if run.key not in adopted
        ]
    return reports


def confirm_changes(
    unconfirmed: Sequence[Change], states: Sequence[JobState], now: int
) -> tuple[list[Change], list[Launch], list[Launch]]:
    """Return which changes were committed although the answer was lost, and their starts and ends.

    A start whose run timeout has passed since is not made: the next planning step records it as lost.
    """
    jobs = {state.job.identity: state.job for state in states}
    stored = {run.key: run for state in states for run in state.runs}
    committed = [change for change in unconfirmed if _was_written(change, jobs, stored)]
    starts = [
        Launch(change.job, run)
        for change in unconfirmed
        for run in change.starts
        if _is_unacknowledged(stored.get(run.key), run) and (run.due_at is None or run.due_at > now)
    ]
    ends = [
        Launch(change.job, run)
        for change in unconfirmed
        for run in change.ends
        if run.key not in stored
        or (stored[run.key].attempt, stored[run.key].reason) == (run.attempt, Reason.REPLACED)
    ]
    return committed, starts, ends


def _is_unacknowledged(stored: RunRecord | None, run: RunRecord) -> bool:
    """Say whether a start is stored exactly as it was planned, and not acknowledged since."""
    return stored is not None and (stored.attempt, stored.token, stored.acked) == (run.attempt, run.token, 0)


def _was_written(change: Change, jobs: Mapping[str, JobRecord], stored: Mapping[str, RunRecord]) -> bool:
    """Say whether a change is committed; one that raises no revision is a withheld start."""
    job = jobs.get(change.job.identity)
    if job is None or not change.revision < change.job.revision <= job.revision:
        return False
    if not all(_is_unacknowledged(stored.get(run.key), run) for run in change.starts):
        return False
    started = {run.key for run in change.starts}
    return not any(
        run.key in stored and stored[run.key].in_flight and run.key not in started for run in change.ended
    )
