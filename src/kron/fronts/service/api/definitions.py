"""Routes of definitions: schedules as the jobs of a job file, exported and applied as a whole."""

from typing import Annotated

from fastapi import APIRouter

from kron.fronts.service.api.middleware import JsonRoute
from kron.fronts.service.api.models import DefinitionsRequest, Filter, model_of, up_to
from kron.fronts.service.client import DEFAULT_PAGE, LocalClient, PageRequest
from kron.fronts.service.definitions import ApplyRequest
from kron.fronts.service.responses import ApplyReceipt, DefinitionPage


def definition_routes(client: LocalClient, most: int) -> APIRouter:
    """Return the routes of definitions; `most` is the longest page."""
    router = APIRouter(tags=["definitions"], route_class=JsonRoute)

    @router.get("/definitions", response_model=model_of(DefinitionPage))
    async def export(
        wanted: Filter,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> DefinitionPage:
        """Export schedules as jobs in a job file's words, in the order of their names; secrets are hidden."""
        return await client.definitions(wanted, PageRequest(limit, cursor))

    @router.post("/definitions", response_model=model_of(ApplyReceipt), response_model_exclude_unset=True)
    async def apply(document: DefinitionsRequest) -> ApplyReceipt:
        """Make the schedules of a set equal its jobs, all or none; repeating it changes nothing."""
        return await client.apply(
            ApplyRequest(
                document.jobs, document.set_name, document.prune, document.dry_run, document.if_match
            )
        )

    return router
