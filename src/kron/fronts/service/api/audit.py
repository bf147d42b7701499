"""What the API shows of the audit: to each caller what is theirs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from kron.core.plan.query import AuditFilter
from kron.fronts.service.api.models import up_to
from kron.fronts.service.client import DEFAULT_PAGE, LocalClient, PageRequest
from kron.fronts.service.documents import Document


class AuditEntry(BaseModel):
    """One change: when, who, by which request, what they did, to what, and what was before and after."""

    at: str
    who: str
    request_id: str | None
    action: str
    name: str
    user_id: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditPage(BaseModel):
    """Some changes, the latest first."""

    entries: list[AuditEntry]
    next_cursor: str | None


def audit_routes(desk: LocalClient, most: int) -> APIRouter:
    """Return the route of the audit; a page has at most so many entries."""
    router = APIRouter(tags=["audit"])

    @router.get("/audit", response_model=AuditPage)
    async def audit(
        name: Annotated[str | None, Query(description="what was changed")] = None,
        who: Annotated[str | None, Query(description="who changed it")] = None,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> Document:
        """List the changes that somebody made, the latest first."""
        return await desk.audit(AuditFilter(identity=name, who=who), PageRequest(limit, cursor))

    return router
