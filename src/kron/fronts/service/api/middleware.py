"""Middleware: request ids, size limits, timeouts, large bodies, raw names in paths, and request metrics."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kron.core.errors import InvalidOptionError
from kron.fronts.service.api import problem
from kron.fronts.service.auth.middleware import find
from kron.fronts.service.auth.principal import acting_as, current_caller
from kron.fronts.service.auth.tls import MAX_HEAD
from kron.fronts.service.auth.turns import CallerTurns
from kron.fronts.service.compute_pool import ComputePool
from kron.fronts.service.json_text import MAX_VALUES, MAX_WHOLE_VALUES, read_json
from kron.fronts.service.registrar import new_name
from kron.ports import Clock
from kron.telemetry.counters import RequestCounters

_log = logging.getLogger("kron.http")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
REQUEST_ID = b"x-request-id"
MAX_REQUEST_ID = 128
# The bytes per second that a body needs on average, after the first `patience_s` seconds.
LOWEST_RATE = 1_024
# Read line by line, with a limit for each line.
STREAMED = "/schedules/bulk"
# The largest body of a route that takes no definitions, in bytes.
SMALL_BODY = 65_536
# The largest body of a public route, in bytes: a form with a token.
SIGN_IN, MAX_SIGN_IN = "/login", 16_384
# A body of more bytes than this is received in a turn of its caller: as JSON it may take fifty times its
# length in memory.
LARGE_BODY = 65_536
# A smaller body takes less time to parse than to hand to a thread, in bytes.
LARGE_JSON = 16_384
# A set of definitions is one request, because it is applied as a whole.
WHOLE, MAX_WHOLE = "/definitions", 4 << 20


# For every response that sets none: nothing is cached on the way, and no browser guesses its media type.
SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


def with_security_headers(app: ASGIApp) -> ASGIApp:
    """Return an application whose every response has the security headers, also those to a failure of it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                missing = [header for header in SECURITY_HEADERS if header[0] not in given]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        await app(scope, receive, respond)

    return call


class TurnReceiver:
    """Receives the body of a request; a large one in a turn of its caller, which lasts until the answer."""

    def __init__(self, turns: CallerTurns, receive: Receive, announced: int) -> None:
        self._turns = turns
        self._receive = receive
        self._size = announced
        self._received = 0
        self._is_whole = False
        self._caller: str | None = None

    async def receive(self) -> Message:
        """Return the next part, once the caller has a turn for it."""
        if self._size > LARGE_BODY and self._caller is None and not self._is_whole:
            caller = current_caller().name
            await self._turns.take(caller)
            self._caller = caller
        message = await self._receive()
        self._is_whole = not message.get("more_body", False)
        self._received += len(message.get("body", b""))
        self._size = max(self._size, self._received)
        return message

    def end(self) -> None:
        """End the turn, if there was one."""
        if self._caller is not None:
            self._turns.give_back(self._caller)


class RequestMiddleware:
    """Middleware that gives each request an id, a size limit, a timeout, and a turn if its body is large."""

    def __init__(self, app: ASGIApp, *, max_body: int, patience_s: float, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._patience_s = patience_s
        self._max_body = max_body
        self._turns = CallerTurns(f"with a body of more than {LARGE_BODY} bytes")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; the response repeats its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["request_id"] = request_id
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        # A name may contain a slash: as %2F it is part of the name.
        scope["path"] = raw.decode("latin-1")

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, request_id.encode())]
            await send(message)

        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD:
            error = HTTPException(431, f"the request headers are larger than {MAX_HEAD} bytes")
            await problem.of_http(Request(scope), error)(scope, receive, respond)
            return
        timed = self._timed(receive)
        bounded = timed if scope["path"] == STREAMED else self._bounded(timed, scope)
        turn = TurnReceiver(self._turns, bounded, _announced(scope))
        try:
            await self._app(scope, turn.receive, respond)
        finally:
            turn.end()

    def _max_of(self, scope: Scope) -> int:
        if scope["path"] == WHOLE:
            return max(self._max_body, MAX_WHOLE)
        if scope["path"] == SIGN_IN:
            return min(self._max_body, MAX_SIGN_IN)
        need = find(scope["method"], scope["path"]).need
        return self._max_body if need is not None and need.large else min(self._max_body, SMALL_BODY)

    def _bounded(self, receive: Receive, scope: Scope) -> Receive:
        seen, most = 0, min(self._max_body, MAX_SIGN_IN)

        async def take() -> Message:
            nonlocal seen, most
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                most = self._max_of(scope)
            if seen > most:
                raise HTTPException(413, f"the request body is larger than {most} bytes")
            return message

        return take

    def _timed(self, receive: Receive) -> Receive:
        """Return a receiver with a timeout for each part of the body, and a lowest rate for all of it."""
        is_whole = False
        # Of the client, not for its turn or for what is done with an earlier part.
        received, waited_s = 0, 0.0

        async def take() -> Message:
            nonlocal is_whole, received, waited_s
            if is_whole:
                # Only a disconnect can follow, which has no timeout.
                return await receive()
            since = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._patience_s):
                    message = await receive()
            except TimeoutError as cause:
                raise HTTPException(408, f"no data received for {self._patience_s:g} seconds") from cause
            is_whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            waited_s += self._clock.monotonic() - since
            allowed_s = self._patience_s + received / LOWEST_RATE
            if not is_whole and waited_s > allowed_s:
                raise HTTPException(408, f"fewer than {LOWEST_RATE} bytes per second were received")
            return message

        return take


def _announced(scope: Scope) -> int:
    """Return the length of a body that the head of its request announces; 0 if it announces none."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def _request_id(scope: Scope) -> str:
    """Return the caller's request id if it is valid, or a new one."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    for name, value in headers:
        if name == REQUEST_ID:
            text = value.decode("latin-1")
            if 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable():
                return text
    return new_name()


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
            most = MAX_WHOLE_VALUES if request.scope["path"] == WHOLE else MAX_VALUES
            return await handle(ParsedRequest(request, body, await pool.run_always(_parsed, body, most)))

        return parsed


def _parsed(body: bytes, most: int) -> object | Exception:
    """Return the document of a body, or why it is no JSON: the framework answers that."""
    try:
        return read_json(body, most)
    except (ValueError, RecursionError) as error:
        return error


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

        started = self._clock.monotonic()
        with acting_as(current_caller(), scope.get("request_id")):
            try:
                await self._app(scope, receive, respond)
            finally:
                self._note(scope, status, self._clock.monotonic() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = route_of(scope), scope["method"]
        self._requests.add(route, method if method in METHODS else OTHER, status, seconds)
        _log.debug("%s %s: %d in %.1f ms", method, route, status, 1000 * seconds)


def route_of(scope: Scope) -> str:
    """Return the template of a request's route, or `other` if no route of the API matched."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else OTHER


async def refuse_unknown(request: Request) -> None:
    """Refuse a query parameter that the route does not have: a mistyped filter would list everything.

    Pages ignore the parameters that others add to their links.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute) or not route.include_in_schema:
        return
    known = sorted(_names_in(route.dependant))
    for name, value in request.query_params.items():
        if name not in known:
            allowed = f"this route has {', '.join(known)}" if known else "this route has none"
            raise InvalidOptionError(option=name, value=value, reason=f"unknown query parameter; {allowed}")


def _names_in(dependant: Dependant) -> set[str]:
    """Return the query parameters of a handler and of its dependencies."""
    names = {parameter.alias for parameter in dependant.query_params}
    return names.union(*map(_names_in, dependant.dependencies))
