"""Foresight: what a schedule would do, worked out by the engine's own planning step and written nowhere."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice

from kron.core.cron.preview import Line, preview
from kron.core.plan.compiled import compiled_job
from kron.core.plan.plan import plan
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import create, resume
from kron.core.plan.report import Traits
from kron.core.plan.step import Change, JobState, Snapshot
from kron.core.time.instant import rfc3339
from kron.fronts.service.documents import MAX_LOOKED_AT, Document, coming, time_text
from kron.fronts.service.edit import applied
from kron.fronts.service.schedule_spec import ScheduleSpec
from kron.launchers.delivery import traits_of
from kron.launchers.plugin.spec import plugin_kinds, reports_of
from kron.launchers.spec import launcher_kind_of, read_launcher

# How each kind of launcher behaves, as far as planning asks.
TRAITS: Mapping[str, Traits] = {
    "callback": Traits(),
    "process": Traits(),
    "http": traits_of(reports=False),
    "http:reports": traits_of(reports=True),
    "celery": traits_of(reports=False),
    "celery:reports": traits_of(reports=True),
    "workflow": Traits(),
}
# A replay takes a hundred periods a wake and has ten thousand at most.
MAX_WAKES = 200
# How many of the periods that would start are named.
MAX_NAMED = 100
# How many coming times an unsaved schedule may be asked for.
MAX_COMING = 1_000


def traits_for(executor: Mapping[str, object] | None) -> Mapping[str, Traits]:
    """Return how each kind behaves where workflows are run by an executor, and with what is installed."""
    own = {kind: traits_of(reports=reports_of(kind)) for kind in plugin_kinds()}
    known = {**own, **TRAITS}
    if executor is None:
        return known
    return {**known, "workflow": known[launcher_kind_of(read_launcher(executor))]}


def resumption_of(case: JobState, *, now: int, traits: Mapping[str, Traits] = TRAITS) -> Document:
    """Return what resuming a schedule would start, keep waiting, and drop."""
    starts: dict[str, RunRecord] = {}
    dropped: Counter[str] = Counter()
    change = resume(case.job, list(case.runs), now=now)
    case = _after(case, change)
    for _ in range(MAX_WAKES):
        if case.job.plan_at is None or case.job.plan_at > now:
            break
        changes, _ = plan(Snapshot([case], now, 0, traits), now)
        starts |= {run.key: run for change in changes for run in change.starts}
        for change in changes:
            _count_dropped(change, dropped)
            case = _after(case, change)
    waiting = [run for run in case.runs if run.status is RunStatus.PENDING]
    times = sorted(run.nominal_time for run in starts.values())
    return {
        "would_start": len(starts),
        "would_wait": len(waiting),
        "would_drop": dict(sorted(dropped.items())),
        "starts": [rfc3339(time) for time in times[:MAX_NAMED]],
    }


def _after(case: JobState, change: Change) -> JobState:
    return case._replace(job=change.job, runs=applied(list(case.runs), change), reports=())


def _count_dropped(change: Change, dropped: Counter[str]) -> None:
    for run in (*change.inserts, *change.updates):
        if run.outcome is not None and run.started_at is None:
            dropped[run.reason.value] += 1
    for together in change.ranges:
        dropped[together.reason.value] += together.periods


def coming_of(wish: ScheduleSpec, *, now: int, count: int) -> Document:
    """Return the next times of a schedule that is not stored, with what changes of the clocks do to them."""
    job = create(wish.job, now=now)
    terms = compiled_job(job.definition, job.identity)
    times = [
        {"run_at": rfc3339(time), "fire_at": time_text(terms.fire_time(job.identity, time))}
        for time in islice(coming(job, now), min(count, MAX_LOOKED_AT))
    ]
    lines = preview(wish.job.schedule, now // 1000 + 1, count)
    return {
        "sentence": wish.job.schedule.expression.describe(),
        "timezone": wish.job.schedule.timezone,
        "times": times,
        "clock_changes": [_note(line) for line in lines if line.note is not None],
    }


def _note(line: Line) -> Document:
    return {
        "at": rfc3339(line.at),
        "wall_time": line.wall.isoformat(),
        "run_at": None if line.instant is None else rfc3339(line.instant),
        "mark": None if line.mark is None else line.mark.value,
        "note": line.note,
    }
