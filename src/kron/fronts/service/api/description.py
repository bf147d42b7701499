"""The OpenAPI document: written beside the event loop when it is read first, and kept."""

import asyncio
import logging
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.requests import Request

from kron.fronts.service.api import problem

PATH = "/openapi.json"
_log = logging.getLogger(__name__)


class ApiDescription:
    """The OpenAPI document of an application. To write it takes 0.2 s, in a thread."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._writing = asyncio.Lock()
        app.openapi = lambda: _described(app)  # type: ignore[method-assign]
        app.add_route(PATH, self._answer, include_in_schema=False)

    async def document(self) -> dict[str, Any]:
        """Return the document."""
        async with self._writing:
            if self._app.openapi_schema is None:
                await asyncio.to_thread(self._app.openapi)
                _log.debug("the description of the API is ready")
        return self._app.openapi()

    async def _answer(self, _: Request) -> JSONResponse:
        return JSONResponse(await self.document())


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document: every error is a problem document, none is a 422."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        content = {problem.MEDIA_TYPE: {"schema": {"type": "object"}, "example": problem.EXAMPLE}}
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem", "content": content}
        app.openapi_schema = document
    return app.openapi_schema
