"""Foresight: what a change would start, before anybody makes it."""

from kron.core.plan.plan import plan
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import resume
from kron.core.plan.step import Change, JobState, Snapshot

# Wakes that are looked ahead; a replay of the most periods there can be needs a hundred.
MAX_WAKES = 110


def starts_on_resume(case: JobState, *, now: int) -> int:
    """Return how many periods would start, at once or soon, if a paused job were resumed now.

    What waits for an execution that is under way, or was spread over the next minute, counts too.
    """
    if not case.job.paused:
        return 0
    change = resume(case.job, list(case.runs), now=now)
    started: set[str] = set()
    for _ in range(MAX_WAKES):
        case = case._replace(job=change.job, runs=_open_runs(case, change))
        (change,), wake_at = plan(Snapshot([case], now, 0, {}), now)
        started |= {run.key for run in change.starts}
        if wake_at is None or wake_at > now:
            break
    waiting = {run.key for run in _open_runs(case, change) if run.status is RunStatus.PENDING}
    return len(started | waiting)


def _open_runs(case: JobState, change: Change) -> list[RunRecord]:
    written = {run.key: run for run in (*case.runs, *change.inserts, *change.updates)}
    return [run for run in written.values() if run.is_open]
