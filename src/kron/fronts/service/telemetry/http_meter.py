"""Requests that are timed and named: by the template of their route, never by what stands in the path."""

import logging
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kron.fronts.service.auth.principal import calling, present_caller
from kron.fronts.service.telemetry.histogram import CALL_BOUNDS, Histogram
from kron.ports import Clock

_log = logging.getLogger("kron.http")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"


class Requests:
    """What was asked, by route and method, how long that took, and by the class of its status."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.latency: dict[tuple[str, str], Histogram] = {}

    def add(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.counts[route, method, f"{status // 100}xx"] += 1
        self.latency.setdefault((route, method), Histogram(CALL_BOUNDS)).add(seconds)


class HttpMeter:
    """Wraps the API inside of its edge, so that whatever is logged meanwhile carries the request's id."""

    def __init__(self, app: ASGIApp, *, requests: Requests, clock: Clock) -> None:
        self._app = app
        self._requests = requests
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and time it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = self._clock.monotonic()
        with calling(present_caller(), scope.get("request_id")):
            try:
                await self._app(scope, receive, answer)
            finally:
                self._note(scope, status, self._clock.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = route_of(scope), scope["method"]
        self._requests.add(route, method if method in METHODS else OTHER, status, seconds)
        _log.debug("%s %s: %d in %.1f ms", method, route, status, 1000 * seconds)


def route_of(scope: Scope) -> str:
    """Return the template of the route that took a request; what no route of the API took is `other`."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else OTHER
