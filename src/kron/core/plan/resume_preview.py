"""Resume preview: what letting a stopped job run again would start, keep waiting and drop, before it does."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kron.core.job.outcome import Reason
from kron.core.job.policy import MAX_CATCHUP
from kron.core.plan.compiled import definitions_of
from kron.core.plan.pause import resume
from kron.core.plan.plan import plan
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import open_runs_after
from kron.core.plan.report import Traits
from kron.core.plan.step import DEFAULT_LIMITS, Change, JobState, Snapshot

# Steps that planning takes for each definition: the longest replay at the engine's pace, the periods whose
# windows are open, and the switch to the next definition; the rest is margin.
MAX_STEPS = MAX_CATCHUP // DEFAULT_LIMITS.replayed_per_wake + 10


class ResumePreview(NamedTuple):
    """The runs a resume would start now, those that would wait, and dropped periods by reason."""

    starts: list[RunRecord]
    waiting: list[RunRecord]
    dropped: Mapping[Reason, int]

    @property
    def total(self) -> int:
        """Return how many periods would run, now or later."""
        return len(self.starts) + len(self.waiting)


def preview_resume(state: JobState, *, now: int, traits: Mapping[str, Traits] | None = None) -> ResumePreview:
    """Plan a resume at an instant, in milliseconds, without writing it.

    A job that is not paused has none, and one that its definition suspends starts nothing by it. A period
    that waits for a running execution, or that is spread over the next minute, is waiting.
    """
    if not state.job.paused or state.job.suspended:
        return ResumePreview([], [], {})
    return _planned(state, resume(state.job, list(state.runs), now=now), now, traits or {})


def preview_change(
    state: JobState, change: Change, *, now: int, traits: Mapping[str, Traits] | None = None
) -> ResumePreview | None:
    """Plan the time after a change that lets a stopped job run: an edit that lifts `suspend`, or a resume.

    None for a change that does not.
    """
    runs_again = state.job.is_stopped and not change.job.is_stopped and state.job.deleted_at is None
    return _planned(state, change, now, traits or {}) if runs_again else None


def _planned(state: JobState, change: Change, now: int, traits: Mapping[str, Traits]) -> ResumePreview:
    starts: dict[str, RunRecord] = {}
    dropped: Counter[Reason] = Counter()
    for _ in range(MAX_STEPS * (1 + len(definitions_of(state.job)))):
        state = state._replace(job=change.job, runs=open_runs_after(state, change), reports=())
        (change,), wake_at = plan(Snapshot([state], now, 0, traits), now)
        starts |= {run.key: run for run in change.starts}
        _count_dropped(change, dropped)
        if wake_at is None or wake_at > now:
            break
    else:
        raise AssertionError(f"planning a resume of {state.job.identity} does not end")
    waiting = [run for run in open_runs_after(state, change) if run.status is RunStatus.PENDING]
    return ResumePreview(sorted(starts.values(), key=_nominal_time), waiting, dict(dropped))


def _count_dropped(change: Change, dropped: Counter[Reason]) -> None:
    for run in (*change.inserts, *change.updates):
        if run.outcome is not None and run.started_at is None:
            dropped[run.reason] += 1
    for together in change.ranges:
        dropped[together.reason] += together.periods


def _nominal_time(run: RunRecord) -> int:
    return run.nominal_time
