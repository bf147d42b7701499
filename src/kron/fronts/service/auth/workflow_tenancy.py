"""Workflows as the present caller sees them: what belongs to others is as if it did not exist."""

from kron.core.errors import Problem
from kron.core.workflow import MAX_VERSION, NAME, InvalidWorkflowError, WorkflowRecord, WorkflowVersion
from kron.fronts.service.auth.principal import present_caller, slug_of
from kron.fronts.service.errors import InvalidScheduleError
from kron.launchers.spec import WorkflowSettings
from kron.ports import WorkflowStore


class TenantWorkflows:
    """A workflow store around another."""

    def __init__(self, workflows: WorkflowStore) -> None:
        self._workflows = workflows
        self.close = workflows.close

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Keep a version unless there is one already; return what is kept."""
        _check_owner(record.workflow_id, record.user_id)
        return await self._workflows.put(record)

    async def check_use(self, schedule_id: str, settings: WorkflowSettings) -> None:
        """Refuse a schedule of a workflow that is not its owner's, whether there is one or not."""
        workflow_id, owner = settings.workflow_id, settings.user_id
        if present_caller().users is None or workflow_id.startswith(slug_of(owner)):
            return
        possible = NAME.fullmatch(workflow_id) and 0 <= settings.version <= MAX_VERSION
        found = await self._workflows.get(workflow_id, settings.version) if possible else None
        if found is None or found.user_id != owner:
            problem = Problem("workflow_id", workflow_id, f'must begin with "{slug_of(owner)}"')
            raise InvalidScheduleError(schedule_id=schedule_id, problems=[problem])

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None where there is none."""
        found = await self._workflows.get(workflow_id, version)
        return found if found is not None and present_caller().sees(found.user_id) else None

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        found = await self._workflows.versions(workflow_id, limit=limit)
        caller = present_caller()
        return [version for version in found if caller.sees(version.user_id)]


def _check_owner(workflow_id: str, owner: str) -> None:
    """Refuse to deploy for others, and under a name outside of one's own, which others could have."""
    users = present_caller().users
    if users is None:
        return
    if owner not in users:
        problem = Problem("user_id", owner, f"must be one of yours: {', '.join(users)}")
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=[problem])
    if not workflow_id.startswith(slug_of(owner)):
        problem = Problem("workflow_id", workflow_id, f'must begin with "{slug_of(owner)}"')
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=[problem])
