"""Bodies: a large one is parsed beside the event loop, in a turn of its caller."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from kron.fronts.service.compute_pool import ComputePool
from kron.fronts.service.json_text import read_json

# A smaller body takes less time than handing it to a thread.
LARGE_JSON = 16_384


class ParsedRequest(Request):
    """A request whose body has been parsed, or could not be."""

    def __init__(self, request: Request, body: bytes, parsed: object | Exception) -> None:
        super().__init__(request.scope, request.receive)
        self._whole = body
        self._parsed = parsed

    async def body(self) -> bytes:
        """Return the body."""
        return self._whole

    async def json(self) -> object:
        """Return the document, or raise what its parser raised."""
        if isinstance(self._parsed, Exception):
            raise self._parsed
        return self._parsed


class JsonRoute(APIRoute):
    """A route that parses a large body in the compute pool of its application."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route's requests."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def parsed(request: Request) -> Response:
            body = await request.body()
            if len(body) <= LARGE_JSON:
                return await handle(request)
            pool: ComputePool = request.app.state.compute_pool
            return await handle(ParsedRequest(request, body, await pool.run_always(_parsed, body)))

        return parsed


def _parsed(body: bytes) -> object | Exception:
    """Return the document of a body, or why it is no JSON: the framework answers that."""
    try:
        return read_json(body)
    except (ValueError, RecursionError) as error:
        return error
