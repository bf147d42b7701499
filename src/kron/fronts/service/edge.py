"""The edge of the API: every request gets an id and a bound, and names in its path stay as they were sent."""

from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kron.core.errors import InvalidOptionError
from kron.fronts.service.registrar import new_name

REQUEST_ID = b"x-request-id"
MAX_REQUEST_ID = 128
# What is read line by line has a bound for each line instead.
STREAMED = "/schedules/bulk"


class Edge:
    """Wraps the API."""

    def __init__(self, app: ASGIApp, *, max_body: int) -> None:
        self._app = app
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

        bounded = receive if scope["path"] == STREAMED else self._bounded(receive)
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


def _request_id(scope: Scope) -> str:
    """Return the id a caller gave, if it can be one, or a new one."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    for name, value in headers:
        if name == REQUEST_ID:
            text = value.decode("latin-1")
            if 0 < len(text) <= MAX_REQUEST_ID and text.isascii() and text.isprintable():
                return text
    return new_name()


def name_of(part: str) -> str:
    """Return the name in a part of a path."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as cause:
        raise InvalidOptionError(option="path", value=ascii(part), reason="must be UTF-8") from cause
