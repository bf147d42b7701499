"""The shapes of what the API takes and gives of workflows, for OpenAPI."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kron.core.workflow import MAX_VERSION

EXAMPLE = {
    "user_id": "ann",
    "triggers": [
        {
            "id": "nightly",
            "type": "schedule_based",
            "schedule": {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"},
        }
    ],
    "nodes": [
        {"id": "fetch", "type": "http", "dependsOn": []},
        {"id": "report", "type": "mail", "dependsOn": ["fetch"]},
    ],
}
LONGEST = 2**53


class DeployedSchedule(BaseModel):
    """A schedule of a workflow, and when it runs next."""

    schedule_id: str = Field(examples=["report/nightly"])
    next_run_at: str | None


class Deployed(BaseModel):
    """What deploying a version did, or would do."""

    workflow_id: str
    version: int
    newest_version: int
    new: bool
    dry_run: bool
    upserted: list[DeployedSchedule]
    retired: list[str]


class WorkflowView(BaseModel):
    """A version of a workflow."""

    workflow_id: str
    version: int
    user_id: str
    created_at: str
    dag: dict[str, Any]


class WorkflowVersionView(BaseModel):
    """Which version there is, whose it is, and since when."""

    version: int
    user_id: str
    created_at: str


class WorkflowVersions(BaseModel):
    """The versions of a workflow."""

    workflow_id: str
    versions: list[WorkflowVersionView]


class StartRequest(BaseModel):
    """The start of a run (SPEC 3: 4); a worker also says which execution of which schedule it is."""

    model_config = ConfigDict(extra="forbid", strict=True)
    workflow_id: str = Field(examples=["report"])
    version: int = Field(ge=0, le=MAX_VERSION, examples=[3])
    user_id: str = Field(examples=["ann"])
    scheduled_for: str = Field(examples=["2026-06-01T06:30:00Z"])
    idempotency_key: str | None = Field(default=None, examples=["daily-2026-06-01"])
    identity: str | None = Field(default=None, description="the schedule it is a run of")
    attempt: int = Field(default=1, ge=1, le=LONGEST)
    fencing_token: int = Field(default=0, ge=0, le=LONGEST)


class Accepted(BaseModel):
    """That a run was accepted, now or when it was asked for before."""

    accepted: bool
    run_id: str | None
    repeated: bool
