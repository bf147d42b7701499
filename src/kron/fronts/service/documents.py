"""Records as documents in the words of SPEC 3: what callers see of schedules and runs."""

import json
from collections.abc import Iterator
from hashlib import sha256

from kron.app.launchers import redact_launcher
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.query import FoundJob
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunRecord
from kron.core.plan.registration import is_period
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.service.schedule_spec import FLAT_POLICY, SCHEDULE, WORKFLOW

Document = dict[str, object]
# How many coming times are shown, and how many periods are looked at for them.
PREVIEW, MAX_LOOKED_AT = 5, 1_000


def time_text(milliseconds: int | None) -> str | None:
    """Write an instant in UTC, with milliseconds where there are any."""
    if milliseconds is None:
        return None
    text, rest = rfc3339(milliseconds // 1000), milliseconds % 1000
    return f"{text[:-1]}.{rest:03}Z" if rest else text


def etag_of(job: JobRecord) -> str:
    """Return the name of a schedule's present state: its definition, launcher and pause, not its progress."""
    state = (job.epoch, job.definition, job.launcher, job.paused, job.deleted_at)
    return f'"{sha256(json.dumps(state).encode()).hexdigest()[:20]}"'


def schedule_view(found: FoundJob, *, now: int) -> Document:
    """Return a schedule with all its fields."""
    job = found.job
    terms = compiled_job(job.definition, job.identity)
    definition, policy = terms.for_job(job.identity).to_dict(), terms.policy
    launcher = json.loads(job.launcher)
    # An edit may have left periods before it to be judged; they do not come any more.
    following = next(coming(job, now), None) if job.paused else job.next_time
    return {
        "schedule_id": job.identity,
        **{name: launcher.get(name) for name in WORKFLOW},
        "cron_expr": definition["schedule"],
        "timezone": definition["timezone"],
        "next_run_at": None if following is None else rfc3339(following),
        "paused": bool(job.paused),
        "paused_because": job.paused_because,
        **{
            word: SCHEDULE.words[word].type.write(getattr(policy, name)) for name, word in FLAT_POLICY.items()
        },
        **{name: definition[name] for name in _DEFINED},
        "launcher": redact_launcher(job.launcher),
        "sentence": terms.job.schedule.expression.describe(),
        "failures": job.failures,
        "last_start_at": time_text(job.last_start_at),
        "last_success_at": time_text(job.last_success_at),
        "last_failure_at": time_text(job.last_failure_at),
        "created_at": time_text(job.born_at),
        "updated_at": time_text(found.changed_at),
    }


_DEFINED = ("dialect", "dst_gap", "dst_repeat", "window", "distribution", "seed", "constraints")


def coming(job: JobRecord, now: int) -> Iterator[EpochSeconds]:
    """Yield the nominal times of a job's present definition from now on, as long as it has any."""
    terms = compiled_job(job.definition, job.identity)
    first = max(now // 1000 - terms.late - terms.jitter_ms // 1000 - 1, _before_start(terms))
    found = terms.plan.next_after(first)
    while found is not None and is_period(terms, found) and job.remaining != 0:
        fire_time = terms.fire_time(job.identity, found)
        if (1000 * found if fire_time is None else fire_time) > now:
            yield found
        found = terms.plan.next_after(found)


def _before_start(terms: CompiledJob) -> EpochSeconds:
    start_at = terms.policy.start_at
    return -(1 << 62) if start_at is None else start_at - 1


def preview_of(job: JobRecord, now: int) -> list[str]:
    """Return the next times at which a schedule fires, at most five."""
    terms = compiled_job(job.definition, job.identity)
    most = PREVIEW if job.remaining is None else min(PREVIEW, job.remaining)
    times: list[int] = []
    for _, nominal_time in zip(range(MAX_LOOKED_AT), coming(job, now), strict=False):
        if len(times) >= most:
            break
        fire_time = terms.fire_time(job.identity, nominal_time)
        if fire_time is not None:
            times.append(fire_time)
    return [str(time_text(time)) for time in sorted(times)]


def run_view(run: RunRecord) -> Document:
    """Return a run with its status, and why it has it."""
    return {
        "idempotency_key": run.key,
        "schedule_id": run.identity,
        "run_at": rfc3339(run.nominal_time),
        "fire_at": time_text(run.fire_time),
        "status": run.status.value,
        "outcome": None if run.outcome is None else run.outcome.value,
        "reason": run.reason.value,
        "sentence": run.reason.sentence,
        "kind": run.kind.value,
        "attempt": run.attempt,
        "run_id": run.run_id,
        "started_at": time_text(run.started_at),
        "ended_at": time_text(run.ended_at),
        "result": None if run.result is None else run.result.value,
        "error": run.error,
        "created_at": time_text(run.created_at),
    }


def attempt_view(attempt: AttemptRecord) -> Document:
    """Return an earlier attempt of a run."""
    return {
        "attempt": attempt.attempt,
        "run_id": attempt.run_id,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "result": None if attempt.result is None else attempt.result.value,
        "error": attempt.error,
    }


def range_view(dropped: RangeRecord) -> Document:
    """Return periods that were dropped together."""
    return {
        "first_run_at": rfc3339(dropped.first),
        "last_run_at": rfc3339(dropped.last),
        "periods": dropped.periods,
        "outcome": dropped.outcome.value,
        "reason": dropped.reason.value,
        "sentence": dropped.reason.sentence,
        "created_at": time_text(dropped.created_at),
    }
