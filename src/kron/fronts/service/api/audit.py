"""The route of the audit log, which shows callers the entries of their tenant."""

from typing import Annotated

from fastapi import APIRouter, Query

from kron.core.plan.query import AuditFilter
from kron.fronts.service.api.models import model_of, up_to
from kron.fronts.service.client import DEFAULT_PAGE, LocalClient, PageRequest
from kron.fronts.service.responses import AuditPage


def audit_routes(client: LocalClient, most: int) -> APIRouter:
    """Return the route of the audit log; `most` is the longest page."""
    router = APIRouter(tags=["audit"])

    @router.get("/audit", response_model=model_of(AuditPage))
    async def audit(
        name: Annotated[str | None, Query(description="the name of a schedule or workflow")] = None,
        who: Annotated[str | None, Query(description="the caller")] = None,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> AuditPage:
        """List the audit log, latest entry first."""
        return await client.audit(AuditFilter(identity=name, who=who), PageRequest(limit, cursor))

    return router
