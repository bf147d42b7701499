"""Deployment: a version of a workflow read into the schedules of its triggers (SPEC 3: 5, Register)."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from kron.app.dag.orchestrator import checked_document
from kron.app.dag.secret import sealed_dag, task_problems, unsealed_dag
from kron.app.launchers import settings_of
from kron.core.dag.contract import DagError
from kron.core.errors import InputError, Problem
from kron.core.job.job import schedule_prefix
from kron.core.plan.record import JobRecord
from kron.core.value_types import NAME_TEXT, VERSION
from kron.core.workflow import (
    InvalidWorkflowError,
    Trigger,
    WorkflowRecord,
    read_workflow,
    same_dag,
)
from kron.fronts.service.auth import principal as caller
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import ChangedVersionError, InvalidScheduleError
from kron.fronts.service.schedule_spec import Rules, ScheduleSpec, is_default, parse_schedule_spec
from kron.launchers.spec import WORKFLOW_FIELDS, InvalidLauncherError, LauncherSettings

# Fields that the workflow sets, so that its triggers cannot.
SET_BY_WORKFLOW = (*WORKFLOW_FIELDS, "schedule_id", "launcher")


class Deployment(NamedTuple):
    """A version of a workflow to deploy: its record, and the schedules of its triggers."""

    record: WorkflowRecord
    specs: list[ScheduleSpec]
    is_draft: bool = False

    @property
    def names(self) -> list[str]:
        """Return the names of its schedules."""
        return [spec.job.identity for spec in self.specs]


def read_deployment(
    workflow_id: str, version: int, dag: object, *, user_id: object, rules: Rules, now: int
) -> Deployment:
    """Return the deployment of a DAG, or raise with every problem and its path."""
    workflow = read_workflow(workflow_id, dag)
    if rules.runs_dags:
        _check_tasks(workflow_id, dag)
    problems = list(_faults_of(version, user_id))
    is_owned = not problems
    owner = user_id if isinstance(user_id, str) else ""
    fields: Document = {"workflow_id": workflow_id, "version": version, "user_id": owner}
    specs = [] if problems else [_spec_of(trigger, fields, rules, problems) for trigger in workflow.triggers]
    text = workflow.dag
    if rules.runs_dags and is_owned:
        problems += task_problems(text, owner, partial(_task_faults, rules))
        if rules.vault is not None:
            text = sealed_dag(workflow_id, text, rules.vault)
    if problems:
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=problems)
    record = WorkflowRecord(workflow_id, version, text, owner, now)
    return Deployment(record, [spec for spec in specs if spec is not None], record.is_draft)


def _task_faults(rules: Rules, settings: LauncherSettings) -> list[Problem]:
    """Return why a worker would not start a task with this launcher."""
    if settings.kind in rules.unavailable:
        return [Problem("launcher.kind", settings.kind, rules.unavailable[settings.kind])]
    return [] if is_default(settings.to_dict(), rules) else rules.faults_of(settings)


def _faults_of(version: int, user_id: object) -> Iterator[Problem]:
    if user_id is None:
        yield Problem("user_id", None, "is missing; set it in the DAG or as a parameter of the request")
    given = (("version", VERSION, version), ("user_id", NAME_TEXT, user_id))
    for name, kind, value in given if user_id is not None else given[:1]:
        try:
            kind.parse(value)
        except InputError as error:
            yield Problem(name, value, str(error.details["reason"]))


def _spec_of(
    trigger: Trigger, workflow: Document, rules: Rules, problems: list[Problem]
) -> ScheduleSpec | None:
    """Return the schedule of a trigger; its name is stable, so that the next version edits it."""
    schedule = {"timezone": "UTC", **trigger.schedule}
    wrong = [name for name in SET_BY_WORKFLOW if name in schedule]
    problems += [
        Problem(f"{trigger.path}.{name}", schedule[name], "is the workflow's, not a trigger's")
        for name in wrong
    ]
    name = f"{prefix_of(str(workflow['workflow_id']), str(workflow['user_id']))}{trigger.name}"
    try:
        fields = {field: value for field, value in schedule.items() if field not in wrong}
        return parse_schedule_spec({**fields, **workflow, "schedule_id": name}, rules, schedule_id=name)
    except InvalidScheduleError as error:
        problems += [
            Problem(f"{trigger.path}.{each.path}", each.value, each.reason) for each in error.problems
        ]
    return None


def prefix_of(workflow_id: str, user_id: str) -> str:
    """Return the prefix of the names of a workflow's schedules; neither part of such a name has a slash.

    A workflow whose name starts with its owner's has its schedules among the owner's.
    """
    owned = workflow_id.startswith(caller.workflow_prefix(user_id))
    return f"{schedule_prefix(user_id) if owned else ''}{workflow_id}/"


def _check_tasks(workflow_id: str, dag: object) -> None:
    """Refuse a DAG that Kron's runtime cannot execute."""
    try:
        checked_document(workflow_id, dag)
    except DagError as error:
        problems = error.context.get("problems") or (Problem("dag", None, str(error)),)
        assert isinstance(problems, tuple), "the error of a definition lists its problems"
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=problems) from error


def document_of(record: WorkflowRecord, rules: Rules) -> Document:
    """Return a stored version as it was deployed, or raise SecretUnavailableError."""
    if rules.vault is None or not rules.runs_dags:
        return record.document()
    document: Document = json.loads(unsealed_dag(record.workflow_id, record.dag, rules.vault))
    return document


def check_deployed(deployment: Deployment, known: WorkflowRecord | None, rules: Rules) -> None:
    """Refuse to deploy a version that is published with another content; a draft may change."""
    if known is None or not known.is_draft:
        check_stored(deployment, known, rules)


def check_stored(deployment: Deployment, stored: WorkflowRecord | None, rules: Rules) -> None:
    """Refuse to deploy a version that is stored with another content."""
    record = deployment.record
    vault = rules.vault if rules.runs_dags else None
    if stored is None or (stored.user_id == record.user_id and same_dag(stored.dag, record.dag)):
        return
    # One whose secrets were stored before there was a key, or with an earlier one, is the same.
    if vault is not None and stored.user_id == record.user_id:
        texts = [unsealed_dag(each.workflow_id, each.dag, vault) for each in (stored, record)]
        if same_dag(*texts):
            return
    raise ChangedVersionError(workflow_id=record.workflow_id, version=record.version)


def obsolete(jobs: Sequence[JobRecord], deployment: Deployment) -> list[str]:
    """Return the schedules of a workflow that its new version no longer has."""
    wanted = frozenset(deployment.names)
    return [
        job.identity
        for job in jobs
        if job.identity not in wanted and _workflow_of(job) == deployment.record.workflow_id
    ]


def _workflow_of(job: JobRecord) -> object:
    try:
        return settings_of(job.launcher).workflow_id
    except InvalidLauncherError:
        return None
