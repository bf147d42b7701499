"""The route of the audit log, which shows callers the entries of their tenant."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from kron.core.plan.query import AuditFilter
from kron.fronts.service.api.models import up_to
from kron.fronts.service.client import DEFAULT_PAGE, LocalClient, PageRequest
from kron.fronts.service.documents import Document


class AuditEntry(BaseModel):
    """One change: its time, caller, request, action and target, with the state before and after."""

    at: str
    who: str
    request_id: str | None
    action: str
    name: str
    user_id: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditPage(BaseModel):
    """A page of changes, latest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


def audit_routes(client: LocalClient, most: int) -> APIRouter:
    """Return the route of the audit log; `most` is the longest page."""
    router = APIRouter(tags=["audit"])

    @router.get("/audit", response_model=AuditPage)
    async def audit(
        name: Annotated[str | None, Query(description="the name of a schedule or workflow")] = None,
        who: Annotated[str | None, Query(description="the caller")] = None,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> Document:
        """List the audit log, latest entry first."""
        return await client.audit(AuditFilter(identity=name, who=who), PageRequest(limit, cursor))

    return router
