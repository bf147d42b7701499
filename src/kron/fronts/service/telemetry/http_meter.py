"""HTTP metrics: requests by the template of their route, never by the path itself."""

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kron.fronts.service.auth.principal import calling, present_caller
from kron.ports import Clock
from kron.telemetry.counters import RequestCounters

_log = logging.getLogger("kron.http")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"


class HttpMeter:
    """Middleware that measures requests, and gives every log line of a request its id."""

    def __init__(self, app: ASGIApp, *, requests: RequestCounters, clock: Clock) -> None:
        self._app = app
        self._requests = requests
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, and measure it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = self._clock.monotonic()
        with calling(present_caller(), scope.get("request_id")):
            try:
                await self._app(scope, receive, respond)
            finally:
                self._note(scope, status, self._clock.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = route_of(scope), scope["method"]
        self._requests.add(route, method if method in METHODS else OTHER, status, seconds)
        _log.debug("%s %s: %d in %.1f ms", method, route, status, 1000 * seconds)


def route_of(scope: Scope) -> str:
    """Return the template of a request's route, or `other` if no route of the API matched."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else OTHER
