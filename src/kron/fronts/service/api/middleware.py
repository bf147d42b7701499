"""The edge of the API: every request gets an id and a bound, and names in its path stay as they were sent."""

import asyncio
import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kron.fronts.service.api import problem
from kron.fronts.service.auth.principal import acting_as, current_caller
from kron.fronts.service.auth.tls import MAX_HEAD
from kron.fronts.service.registrar import new_name
from kron.ports import Clock
from kron.telemetry.counters import RequestCounters

_log = logging.getLogger("kron.http")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
REQUEST_ID = b"x-request-id"
MAX_REQUEST_ID = 128
# What is read line by line has a bound for each line instead.
STREAMED = "/schedules/bulk"


class RequestMiddleware:
    """Wraps the API."""

    def __init__(self, app: ASGIApp, *, max_body: int, patience_s: float) -> None:
        self._app = app
        self._patience_s = patience_s
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with an id that the answer repeats."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["request_id"] = request_id
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        # A name may hold a slash: as %2F it is part of the name.
        scope["path"] = raw.decode("latin-1")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, request_id.encode())]
            await send(message)

        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD:
            error = HTTPException(431, f"the headers of a request have {MAX_HEAD} bytes at most")
            await problem.of_http(Request(scope), error)(scope, receive, answer)
            return
        prompt = self._prompt(receive)
        bounded = prompt if scope["path"] == STREAMED else self._bounded(prompt)
        await self._app(scope, bounded, answer)

    def _bounded(self, receive: Receive) -> Receive:
        seen = 0

        async def take() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body:
                raise HTTPException(413, f"a request has {self._max_body} bytes at most")
            return message

        return take

    def _prompt(self, receive: Receive) -> Receive:
        """Return what receives a request's body and does not wait for ever for its next part."""
        is_whole = False

        async def take() -> Message:
            nonlocal is_whole
            if is_whole:
                # All that can come is that the caller goes away, which may take as long as it likes.
                return await receive()
            try:
                async with asyncio.timeout(self._patience_s):
                    message = await receive()
            except TimeoutError as cause:
                raise HTTPException(
                    408, f"no more of the request came for {self._patience_s:g} seconds"
                ) from cause
            is_whole = not message.get("more_body", False)
            return message

        return take


def _request_id(scope: Scope) -> str:
    """Return the id a caller gave, if it can be one, or a new one."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    for name, value in headers:
        if name == REQUEST_ID:
            text = value.decode("latin-1")
            if 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable():
                return text
    return new_name()


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
        with acting_as(current_caller(), scope.get("request_id")):
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
