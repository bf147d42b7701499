"""The audit: every change that somebody makes, with what was before and what is after, without secrets."""

import json
from collections.abc import Mapping, Sequence

from kron.core.job.outcome import Reason
from kron.core.plan.record import AuditRecord, JobRecord, RunKind
from kron.core.plan.step import Change
from kron.core.workflow import WorkflowRecord
from kron.fronts.service.auth.owner import owner_of
from kron.fronts.service.auth.principal import present_caller, present_request
from kron.fronts.service.documents import launcher_view

# How many of the runs that somebody asked for at once are written out.
MAX_RUNS = 100


def audit_of(
    created: Sequence[JobRecord], changed: Sequence[Change], before: Mapping[str, JobRecord], *, now: int
) -> list[AuditRecord]:
    """Return what is written for the audit of a change; reports of executors change nothing of a schedule."""
    entries = [_entry("create", job, None, _state_of(job), now=now) for job in created]
    for change in changed:
        old = before.get(change.job.identity)
        if old is not None:
            entries += _changes(old, change, now)
    return entries


def _changes(old: JobRecord, change: Change, now: int) -> list[AuditRecord]:
    was, is_now = _state_of(old), _state_of(change.job)
    entries = []
    if change.job.deleted_at is not None and old.deleted_at is None:
        entries.append(_entry("delete", old, was, None, now=now))
    elif change.job.deleted_at is None and old.deleted_at is not None:
        entries.append(_entry("create", change.job, None, is_now, now=now))
    elif was != is_now:
        entries.append(_entry(_action_of(old, change.job), change.job, was, is_now, now=now))
    asked = [run for run in change.inserts if run.reason is Reason.ASKED]
    for action in ("run", "backfill"):
        # A period from before the schedule's creation is backfilled as itself.
        keys = [run.key for run in asked if (run.kind is RunKind.MANUAL) == (action == "run")]
        if keys:
            after = {"runs": len(keys), "idempotency_keys": keys[:MAX_RUNS]}
            entries.append(_entry(action, change.job, None, after, now=now))
    return entries


def _action_of(old: JobRecord, new: JobRecord) -> str:
    if (old.definition, old.launcher) != (new.definition, new.launcher):
        return "edit"
    return "pause" if new.paused else "resume"


def _state_of(job: JobRecord) -> dict[str, object]:
    return {
        "definition": json.loads(job.definition),
        "launcher": launcher_view(job.launcher),
        "paused": bool(job.paused),
    }


def _entry(
    action: str,
    job: JobRecord,
    before: Mapping[str, object] | None,
    after: Mapping[str, object] | None,
    *,
    now: int,
) -> AuditRecord:
    return AuditRecord(
        at=now,
        who=present_caller().name,
        request_id=present_request(),
        action=action,
        identity=job.identity,
        user_id=owner_of(job.launcher),
        before=None if before is None else json.dumps(before),
        after=None if after is None else json.dumps(after),
    )


def deployment_entry(record: WorkflowRecord) -> AuditRecord:
    """Return what is written for the audit of a workflow's new version."""
    return AuditRecord(
        at=record.created_at,
        who=present_caller().name,
        request_id=present_request(),
        action="deploy",
        identity=record.workflow_id,
        user_id=record.user_id,
        before=None,
        after=json.dumps({"workflow_id": record.workflow_id, "version": record.version}),
    )
