"""Deployment: what a version of a workflow asks for, as schedules (SPEC 3: 5, Register)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kron.core.errors import Problem
from kron.core.identity import identity_fault
from kron.core.plan.record import JobRecord
from kron.core.workflow import (
    MAX_VERSION,
    InvalidWorkflowError,
    Trigger,
    WorkflowRecord,
    read_workflow,
    same_dag,
)
from kron.fronts.service.auth import principal as caller
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import ChangedVersionError, InvalidScheduleError
from kron.fronts.service.schedule_spec import MAX_NAME, WORKFLOW, Rules, ScheduleSpec, parse_schedule_spec
from kron.launchers.spec import InvalidLauncherError, settings_of

# What the workflow itself says, so that its triggers cannot.
NOT_HERE = (*WORKFLOW, "schedule_id", "launcher")


class Deployment(NamedTuple):
    """A version of a workflow that can be deployed: what is kept, and the schedules it asks for."""

    record: WorkflowRecord
    wishes: list[ScheduleSpec]

    @property
    def names(self) -> list[str]:
        """Return the names of its schedules."""
        return [wish.job.identity for wish in self.wishes]


def read_deployment(
    workflow_id: str, version: int, dag: object, *, user_id: object, rules: Rules, now: int
) -> Deployment:
    """Return what is to be deployed, or raise with every problem and its path."""
    workflow = read_workflow(workflow_id, dag)
    problems = list(_faults_of(version, user_id))
    owner = user_id if isinstance(user_id, str) else ""
    said: Document = {"workflow_id": workflow_id, "version": version, "user_id": owner}
    wishes = [] if problems else [_wish_of(trigger, said, rules, problems) for trigger in workflow.triggers]
    if problems:
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=problems)
    record = WorkflowRecord(workflow_id, version, workflow.dag, owner, now)
    return Deployment(record, [wish for wish in wishes if wish is not None])


def _faults_of(version: int, user_id: object) -> Iterator[Problem]:
    if not 0 <= version <= MAX_VERSION:
        yield Problem("version", version, f"outside 0-{MAX_VERSION}")
    if user_id is None:
        yield Problem("user_id", None, "is missing; it stands in the DAG or is a parameter of the request")
    elif (fault := identity_fault(user_id)) is not None:
        yield Problem("user_id", user_id, fault)
    elif len(str(user_id).encode()) > MAX_NAME:
        yield Problem("user_id", user_id, f"is longer than {MAX_NAME} bytes")


def _wish_of(trigger: Trigger, said: Document, rules: Rules, problems: list[Problem]) -> ScheduleSpec | None:
    """Return the schedule of a trigger; its name is always the same, so that the next version changes it."""
    schedule = {"timezone": "UTC", **trigger.schedule}
    wrong = [name for name in NOT_HERE if name in schedule]
    problems += [
        Problem(f"{trigger.path}.{name}", schedule[name], "is the workflow's, not a trigger's")
        for name in wrong
    ]
    name = f"{prefix_of(str(said['workflow_id']), str(said['user_id']))}{trigger.name}"
    try:
        fields = {field: value for field, value in schedule.items() if field not in wrong}
        return parse_schedule_spec({**fields, **said, "schedule_id": name}, rules, schedule_id=name)
    except InvalidScheduleError as error:
        problems += [
            Problem(f"{trigger.path}.{each.path}", each.value, each.reason) for each in error.problems
        ]
    return None


def prefix_of(workflow_id: str, user_id: str) -> str:
    """Return how the names of a workflow's schedules begin; neither part of such a name has a slash.

    Those of a workflow that has its owner's name before its own stand among its owner's schedules.
    """
    owned = workflow_id.startswith(caller.workflow_prefix(user_id))
    return f"{caller.schedule_prefix(user_id) if owned else ''}{workflow_id}/"


def check_kept(deployment: Deployment, kept: WorkflowRecord | None) -> None:
    """Refuse to deploy what is not the version that is kept."""
    record = deployment.record
    if kept is None or (kept.user_id == record.user_id and same_dag(kept.dag, record.dag)):
        return
    raise ChangedVersionError(workflow_id=record.workflow_id, version=record.version)


def obsolete(jobs: Sequence[JobRecord], deployment: Deployment) -> list[str]:
    """Return the schedules of a workflow that its version no longer asks for."""
    wanted = frozenset(deployment.names)
    return [
        job.identity
        for job in jobs
        if job.identity not in wanted and _workflow_of(job) == deployment.record.workflow_id
    ]


def _workflow_of(job: JobRecord) -> object:
    try:
        return settings_of(job.launcher).to_dict().get("workflow_id")
    except InvalidLauncherError:
        return None
