"""Documents: records rendered in SPEC 3's words, for the API, the pages and the CLI."""

import json
from itertools import islice

from kron.app.launchers import redact_launcher
from kron.core.fields import NO_DEFAULT
from kron.core.job.job import Job
from kron.core.job.notify import parse_notify
from kron.core.job.profile import profile_fields_of
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.lifecycle import Phase, phase_of
from kron.core.plan.next_start import NextStart, starts_ahead
from kron.core.plan.query import FoundJob
from kron.core.plan.record import AttemptRecord, AuditRecord, JobRecord, RangeRecord, RunRecord
from kron.core.plan.step import JobState
from kron.core.time.instant import instant_text, rfc3339
from kron.fronts.service.responses import AttemptView, AuditView, RangeView, RunView, ScheduleState
from kron.fronts.service.schedule_spec import DEFINITION_WORDS, FLAT_POLICY, SCHEDULE

Document = dict[str, object]
# How many fire times a preview has.
PREVIEW = 5


# --- schedules -----------------------------------------------------------------------------------


def time_text(milliseconds: int | None) -> str | None:
    """Return an instant in UTC, or None where there is none."""
    return None if milliseconds is None else instant_text(milliseconds)


def schedule_view(found: FoundJob, following: NextStart, phase: Phase | None) -> Document:
    """Return a schedule: its state with its next start, and the fields of its definition."""
    job = found.job
    compiled = compiled_job(job.definition, job.identity)
    return {
        **_state_of(found, compiled, following, phase),
        **_definition_of(compiled.for_job(job.identity)),
        **profile_fields_of(job.profile),
    }


def _state_of(
    found: FoundJob, compiled: CompiledJob, following: NextStart, phase: Phase | None
) -> ScheduleState:
    job = found.job
    launcher = json.loads(job.launcher)
    nominal_at = None if following.nominal_time is None else rfc3339(following.nominal_time)
    return {
        "schedule_id": job.identity,
        "workflow_id": launcher.get("workflow_id"),
        "version": launcher.get("version"),
        "user_id": launcher.get("user_id"),
        "next_run_at": nominal_at,
        "next_nominal_at": nominal_at,
        "next_start_at": time_text(following.start_at),
        "passed_over": following.passed_over,
        "phase": None if phase is None else phase.value,
        "suspended": bool(job.suspended),
        "paused": bool(job.paused),
        "paused_because": job.paused_because,
        "paused_until": time_text(job.paused_until),
        "launcher": redact_launcher(job.launcher),
        "applied_set": job.applied_set,
        "notify": notify_view(job),
        "sentence": compiled.job.schedule.sentence,
        "failures": job.failures,
        "last_start_at": time_text(job.last_start_at),
        "last_success_at": time_text(job.last_success_at),
        "last_failure_at": time_text(job.last_failure_at),
        "created_at": instant_text(job.born_at),
        "updated_at": instant_text(found.changed_at),
    }


def notify_view(job: JobRecord) -> Document | None:
    """Return the notifications of a schedule, URLs reduced to their hosts; None if it defines none."""
    return None if job.notify is None else parse_notify(json.loads(job.notify)).redacted()


def _definition_of(job: Job) -> Document:
    """Return the fields of a definition, by the words of a schedule document."""
    definition = job.to_dict()
    policy = {
        word: SCHEDULE.words[word].type.write(getattr(job.policy, name)) for name, word in FLAT_POLICY.items()
    }
    return {**{word: definition[name] for name, word in DEFINITION_WORDS.items()}, **policy}


def default_definition() -> Document:
    """Return the fields of a definition that have a default, with their defaults."""
    job = Job.from_dict({"identity": "*", "schedule": "* * * * *"})
    own = (word for word, row in SCHEDULE.words.items() if row.default is not NO_DEFAULT)
    fields = _definition_of(job)
    return {word: fields[word] for word in own if word in fields and word != "cron_expr"}


def preview_of(state: JobState, now: int) -> list[str]:
    """Return the next fire times of a schedule, at most five, as if it were neither paused nor suspended."""
    active = state._replace(job=state.job._replace(paused=0, suspended=0))
    return [instant_text(start.fire_time) for start in islice(starts_ahead(active, now), PREVIEW)]


# --- runs ----------------------------------------------------------------------------------------


def run_view(run: RunRecord, now: int) -> RunView:
    """Return a run with its status and the reason for it; `now` is in milliseconds."""
    return {
        "idempotency_key": run.key,
        "schedule_id": run.identity,
        "run_at": rfc3339(run.nominal_time),
        "fire_at": instant_text(run.fire_time),
        "status": run.status.value,
        "phase": phase_of(run, now).value,
        "outcome": None if run.outcome is None else run.outcome.value,
        "reason": run.reason.value,
        "sentence": sentence_of(run),
        "kind": run.kind.value,
        "attempt": run.attempt,
        "run_id": run.run_id,
        "started_at": time_text(run.started_at),
        "ended_at": time_text(run.ended_at),
        "result": None if run.result is None else run.result.value,
        "error": run.error,
        "retry_at": time_text(run.due_at) if run.waits_for_retry else None,
        "created_at": instant_text(run.created_at),
    }


def sentence_of(run: RunRecord) -> str:
    """Return the reason of a run's status; one that failed may wait for its next attempt."""
    if not run.waits_for_retry:
        return run.reason.sentence
    when = "after a resume" if run.due_at is None else f"at {instant_text(run.due_at)}"
    return f"waiting to retry: attempt {run.attempt} failed, the next one starts {when}"


def attempt_view(attempt: AttemptRecord) -> AttemptView:
    """Return an earlier attempt of a run."""
    return {
        "attempt": attempt.attempt,
        "run_id": attempt.run_id,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "result": None if attempt.result is None else attempt.result.value,
        "error": attempt.error,
    }


def range_view(dropped: RangeRecord) -> RangeView:
    """Return periods that were dropped together."""
    return {
        "first_run_at": rfc3339(dropped.first),
        "last_run_at": rfc3339(dropped.last),
        "periods": dropped.periods,
        "outcome": dropped.outcome.value,
        "reason": dropped.reason.value,
        "sentence": dropped.reason.sentence,
        "created_at": instant_text(dropped.created_at),
    }


# --- the audit log -------------------------------------------------------------------------------


def audit_view(record: AuditRecord) -> AuditView:
    """Return an entry of the audit log."""
    return {
        "at": instant_text(record.at),
        "who": record.who,
        "request_id": record.request_id,
        "action": record.action,
        "name": record.identity,
        "user_id": record.user_id,
        "before": None if record.before is None else json.loads(record.before),
        "after": None if record.after is None else json.loads(record.after),
    }
