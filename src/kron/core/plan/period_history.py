"""The stored records around one period, and the definition that the period follows."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kron.core.job.outcome import Reason
from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import (
    AttemptRecord,
    ClockRecord,
    EpochRecord,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunRecord,
    present_definition,
)
from kron.core.plan.registration import is_period
from kron.core.time.instant import EpochSeconds

# Reasons that a run gets after its start; before that its reason says why it started.
AFTER_START = frozenset({Reason.RETRY_PREEMPTED, Reason.REPLACED, Reason.BY_HAND})
# Reasons that a waiting run gets some time after its record.
AFTER_RECORD = frozenset({Reason.EDITED, Reason.COALESCED, Reason.QUEUE_FULL, Reason.DEADLINE})
NO_RUNS: Mapping[str, RunRecord] = {}


class PeriodHistory(NamedTuple):
    """The stored records of one job around one period.

    `epochs` are its earlier definitions, `run` is the period's record, `dropped` a record shared by several.
    """

    job: JobRecord
    epochs: Sequence[EpochRecord] = ()
    run: RunRecord | None = None
    attempts: Sequence[AttemptRecord] = ()
    dropped: RangeRecord | None = None
    # Its records that were withdrawn because the clock had been ahead, and the excursions of the clock.
    reopened: Sequence[ReopenedRecord] = ()
    excursions: Sequence[ClockRecord] = ()
    # The incidents around it, the runs that blocked it, by key, and the runs requested for it or after it.
    incidents: Sequence[IncidentRecord] = ()
    blockers: Mapping[str, RunRecord] = NO_RUNS
    requested: Sequence[RunRecord] = ()
    # The notifications about it.
    notices: Sequence[NoticeRecord] = ()
    # The present outage: no worker owns the job; and the worker that owns it, None without a worker.
    absence: IncidentRecord | None = None
    owner: str | None = None
    # How far the clock may go back before it counts as wrong, as its workers are configured.
    lookahead_ms: int = LOOKAHEAD_MS


def definition_at(history: PeriodHistory, nominal_time: EpochSeconds) -> EpochRecord | None:
    """Return the definition a period follows: periods up to an edit follow the old one.

    None if it was pruned.
    """
    definitions = [*history.epochs, present_definition(history.job)]
    oldest = definitions[0]
    if history.run is not None:
        return next((known for known in reversed(definitions) if known.epoch <= history.run.epoch), None)
    if oldest.epoch > 1 and nominal_time <= oldest.since:
        return None
    later = [known for known in definitions[1:] if nominal_time > known.since]
    return later[-1] if later else oldest


def span_of(history: PeriodHistory, nominal_time: EpochSeconds, now: int) -> tuple[int, int]:
    """Return the interval of the incidents that can explain a period.

    It lasts from its record, or from the edit that the period follows, to its end.
    """
    run, dropped = history.run, history.dropped
    if run is not None:
        instants = (run.created_at, run.fire_time, run.started_at, run.ended_at)
        is_over = not run.is_open and run.reason not in AFTER_RECORD | AFTER_START
        last = max(at for at in instants if at is not None) if is_over else now
        return min(run.created_at, 1000 * nominal_time), last
    if dropped is not None:
        return 1000 * nominal_time, dropped.created_at
    followed = definition_at(history, nominal_time)
    if followed is not None and not is_period(
        compiled_job(followed.definition, history.job.identity), nominal_time
    ):
        return followed.edited_at, followed.edited_at
    return 1000 * nominal_time, max(now, 1000 * nominal_time)
