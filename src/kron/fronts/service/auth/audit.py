"""The audit log: every change a caller makes, with the state before and after, secrets redacted."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kron.app.launchers import redact_launcher
from kron.core.job.notify import parse_notify
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import cached_by_length
from kron.core.plan.record import AuditRecord, JobRecord, RunKind
from kron.core.plan.step import Change
from kron.core.workflow import WorkflowRecord
from kron.fronts.service.auth.principal import current_caller, current_request_id, owner_of

# How many keys of runs that one request started are listed.
MAX_RUNS = 100
# States whose texts are kept: many schedules that are written together differ in nothing but the name.
MAX_STATES = 1_000


class _State(NamedTuple):
    """The fields of a stored job that an entry shows."""

    definition: str
    launcher: str
    notify: str | None
    suspended: bool
    paused: bool
    profile: str | None
    applied_set: str | None


def _length(state: _State) -> int:
    """Return the length of a state's texts."""
    texts = state.definition, state.launcher, state.notify, state.profile, state.applied_set
    return sum(len(text) for text in texts if text)


def audit_of(
    created: Sequence[JobRecord], changed: Sequence[Change], before: Mapping[str, JobRecord], *, now: int
) -> list[AuditRecord]:
    """Return the audit records of a write; reports of executors change no schedule and have none."""
    entries = [_entry("create", job, None, _state_of(job), now=now) for job in created]
    for change in changed:
        old = before.get(change.job.identity)
        if old is not None:
            entries += _changes(old, change, now)
    return entries


def _changes(old: JobRecord, change: Change, now: int) -> list[AuditRecord]:
    before, after = _state_of(old), _state_of(change.job)
    entries: list[AuditRecord] = []
    if change.job.deleted_at is not None and old.deleted_at is None:
        entries.append(_entry("delete", old, before, None, now=now))
    elif change.job.deleted_at is None and old.deleted_at is not None:
        entries.append(_entry("create", change.job, None, after, now=now))
    elif before != after:
        entries.append(_entry(_action_of(old, change.job), change.job, before, after, now=now))
    manual = [run for run in change.inserts if run.reason is Reason.ASKED]
    for action in ("run", "backfill"):
        # A period from before the schedule's creation is backfilled as a period, not as a manual run.
        keys = [run.key for run in manual if (run.kind is RunKind.MANUAL) == (action == "run")]
        if keys:
            started = {"runs": len(keys), "idempotency_keys": keys[:MAX_RUNS]}
            entries.append(_entry(action, change.job, None, json.dumps(started), now=now))
    return entries


def _action_of(old: JobRecord, new: JobRecord) -> str:
    if _defined(old) != _defined(new):
        return "edit"
    return "pause" if new.paused else "resume"


def _defined(job: JobRecord) -> tuple[object, ...]:
    return job.definition, job.launcher, job.notify, job.suspended, job.profile, job.applied_set


def _state_of(job: JobRecord) -> str:
    """Return the state that an entry shows, as JSON."""
    suspended, paused = bool(job.suspended), bool(job.paused)
    return _text_of(
        _State(job.definition, job.launcher, job.notify, suspended, paused, job.profile, job.applied_set)
    )


@cached_by_length(MAX_STATES, _length)
def _text_of(state: _State) -> str:
    """Return a state as JSON; a field that a schedule does not have is left out."""
    document: dict[str, object] = {
        "definition": json.loads(state.definition),
        "launcher": redact_launcher(state.launcher),
    }
    if state.notify is not None:
        document["notify"] = parse_notify(json.loads(state.notify)).redacted()
    document |= {"suspended": state.suspended, "paused": state.paused}
    if state.profile is not None:
        document["profile"] = json.loads(state.profile)
    if state.applied_set is not None:
        document["applied_set"] = state.applied_set
    return json.dumps(document)


def _entry(
    action: str,
    job: JobRecord,
    before: str | None,
    after: str | None,
    *,
    now: int,
) -> AuditRecord:
    return AuditRecord(
        at=now,
        who=current_caller().name,
        request_id=current_request_id(),
        action=action,
        identity=job.identity,
        user_id=owner_of(job.launcher),
        before=before,
        after=after,
    )


def drain_entry(owner: str, drain: bool, *, now: int) -> AuditRecord:
    """Return the audit record of a worker's drain, or of its end; workers serve every tenant."""
    states = {"draining": not drain}, {"draining": drain}
    before, after = map(json.dumps, states)
    return AuditRecord(
        at=now,
        who=current_caller().name,
        request_id=current_request_id(),
        action="drain" if drain else "end_drain",
        identity=owner,
        user_id=None,
        before=before,
        after=after,
    )


def deployment_entry(record: WorkflowRecord, *, is_draft: bool) -> AuditRecord:
    """Return the audit record of a new workflow version, or of a changed or published draft."""
    after: dict[str, object] = {"workflow_id": record.workflow_id, "version": record.version}
    if is_draft:
        after["draft"] = True
    return dag_entry("deploy", record.workflow_id, record.user_id, after, now=record.created_at)


def dag_entry(
    action: str,
    dag_id: str,
    user_id: str,
    after: Mapping[str, object],
    *,
    now: int,
    before: Mapping[str, object] | None = None,
) -> AuditRecord:
    """Return the audit record of a change of a DAG or of its runs."""
    return AuditRecord(
        at=now,
        who=current_caller().name,
        request_id=current_request_id(),
        action=action,
        identity=dag_id,
        user_id=user_id,
        before=None if before is None else json.dumps(before),
        after=json.dumps(after),
    )
