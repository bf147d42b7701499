"""The routes of workers, for operators: they serve every tenant."""

from fastapi import APIRouter

from kron.fronts.service.api.models import DrainRequest, model_of
from kron.fronts.service.client import LocalClient
from kron.fronts.service.responses import WorkerList, WorkerView


def worker_routes(client: LocalClient) -> APIRouter:
    """Return the routes of workers."""
    router = APIRouter(tags=["operation"])

    @router.get("/workers", response_model=model_of(WorkerList))
    async def workers() -> WorkerList:
        """List the workers with the shards they hold."""
        return await client.workers()

    @router.post("/workers/drain", response_model=model_of(WorkerView))
    async def drain(document: DrainRequest) -> WorkerView:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        return await client.drain(document.worker, document.drain)

    return router
