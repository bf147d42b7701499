"""The HTTP/1.1 client for every outgoing request: starts, key sets, and the command line's calls.

Connections are kept and reused. Redirects are not followed, and neither proxies nor credentials come from the
environment. With an egress policy a connection goes only to addresses that were resolved and checked before.
"""

import asyncio
import os
import socket
import ssl
import string
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit
from weakref import WeakKeyDictionary

from kron.launchers.fair_queue import FairTasks, Share
from kron.launchers.http.egress import EgressPolicy, is_address
from kron.launchers.http.response import MAX_BODY, InvalidResponseError, Response

# How many idle connections are kept, and for how long: many servers close them after five seconds.
MAX_KEPT, KEPT_S = 100, 4.0
# How many addresses of a host are tried for one request.
MAX_ADDRESSES = 4
PORTS = {"http": 80, "https": 443}
# Names that are looked up at once, in all and of one tenant; a worker has 256 threads, for little else.
MAX_LOOKUPS, TENANT_LOOKUPS = 192, 32
# The turns of the lookups of each event loop.
_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, FairTasks] = WeakKeyDictionary()
# Characters of a path that are sent as they are; a percent sign starts an escape.
_IN_PATH = "/%:@!$&'()*+,;=~"


class Origin(NamedTuple):
    """The server of a connection. A `trusted` one is exempt from the egress policy; its pool is separate."""

    scheme: str
    host: str
    port: int
    trusted: bool = False


class HttpTarget(NamedTuple):
    """A parsed URL: its origin, the path with the query, and the Authorization header of its login."""

    url: str
    origin: Origin
    path: str
    login: str | None = None


class EgressError(Exception):
    """The egress policy does not allow a request to its host."""


class ConnectError(OSError):
    """A connection could not be established."""


class ConnectTimeoutError(ConnectError):
    """A connection could not be established in time."""


class ConnectionLostError(OSError):
    """A connection ended before its response did; `untouched` if no byte of a response had arrived."""

    def __init__(self, message: str, *, untouched: bool) -> None:
        super().__init__(message)
        self.untouched = untouched


def target_of(url: str) -> HttpTarget:
    """Parse a URL of the schemes http and https, or raise ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("it has no host, or another scheme than http and https")
    host = parts.hostname.lower()
    origin = Origin(
        parts.scheme,
        host if host.isascii() else host.encode("idna").decode(),
        parts.port or PORTS[parts.scheme],
    )
    query = quote(parts.query, safe=string.punctuation)
    path = (quote(parts.path, safe=_IN_PATH) or "/") + (f"?{query}" if query else "")
    if parts.username is None:
        return HttpTarget(url, origin, path)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return HttpTarget(url, origin, path, f"Basic {b64encode(login.encode()).decode()}")


def request_head(method: str, target: HttpTarget, headers: Mapping[str, str]) -> str:
    """Return the request line and the headers of a request, without the last line end."""
    origin = target.origin
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    port = "" if origin.port == PORTS[origin.scheme] else f":{origin.port}"
    lines = [f"{method} {target.path} HTTP/1.1", f"Host: {host}{port}"]
    if "user-agent" not in map(str.lower, headers):
        lines.append("User-Agent: kron")
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items())])


def request_of(
    method: str, target: HttpTarget, headers: Mapping[str, str], body: bytes | None = None
) -> bytes:
    """Return a request as it is sent; without a body it has no length either."""
    login = {} if target.login is None else {"Authorization": target.login}
    length = {} if body is None else {"Content-Length": str(len(body))}
    # A compressed response could expand without bound.
    fixed = {"Accept-Encoding": "identity", **login, **headers, **length}
    return f"{request_head(method, target, fixed)}\r\n\r\n".encode() + (body or b"")


class Connection(asyncio.Protocol):
    """A connection to one origin that carries one request at a time."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        self._response: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._received = 0
        self._has_received = False
        self.is_open = False
        # Called when the connection has ended.
        self.on_end: Callable[[Connection], None] | None = None

    @property
    def progress(self) -> int:
        """Return a number that grows with every byte sent or received."""
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._received - unsent

    async def request(self, data: bytes, *, max_body: int = MAX_BODY) -> Response:
        """Send a request; return its response as soon as its head has arrived."""
        assert self._transport is not None
        response = self._response = Response(max_body=max_body)
        self._has_received = False
        self._transport.write(data)
        await self._wait()
        return response

    async def read_rest(self, response: Response) -> None:
        """Wait until a response has arrived completely."""
        while not response.is_over:  # a lost connection raises
            await self._wait()

    async def read_part(self, response: Response) -> bytes:
        """Wait for more of a body and take it out of the response; nothing is left at its end."""
        while not response.body and not response.is_over:  # a lost connection raises
            await self._wait()
        part = bytes(response.body)
        response.body.clear()
        return part

    async def _wait(self) -> None:
        if not self.is_open:
            raise ConnectionLostError("the connection is closed", untouched=not self._has_received)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            # Bytes that arrive now belong to an abandoned request.
            self.close()
            raise

    async def start_tls(self, tls: ssl.SSLContext, name: str) -> None:
        """Continue over TLS, with the server that a proxy has connected to."""
        assert self._transport is not None
        self._response = None
        loop = asyncio.get_running_loop()
        self._transport = await loop.start_tls(self._transport, self, tls, server_hostname=name)

    def close(self) -> None:
        """End the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the transport."""
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response; bytes without a request end the connection."""
        response, self._has_received = self._response, True
        self._received += len(data)
        if response is None or response.is_over:
            self.close()
            return
        try:
            response.feed(data)
        except InvalidResponseError as error:
            # The frames of its traceback have what was received, and may stay until a collection.
            self._fail(error.with_traceback(None))
            self._response = None
            self.close()
            return
        if response.status:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, which may also end the response."""
        self.is_open = False
        if self._response is not None and exc is None and self._response.close():
            self._wake()
        else:
            reason = "the server closed the connection" if exc is None else str(exc)
            self._fail(ConnectionLostError(reason, untouched=not self._has_received))
        if self.on_end is not None:
            self.on_end(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


class Route(NamedTuple):
    """How a connection gets to its origin: over TLS, under which name, and through which proxy.

    Without `server_name` the server's certificate has to be valid for the origin's host. `proxy_tls` is the
    TLS of the connection to the proxy itself.
    """

    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: HttpTarget | None = None
    proxy_tls: ssl.SSLContext | None = None


async def connect(address: str, origin: Origin, route: Route, *, seconds: float) -> Connection:
    """Connect to an address of an origin, or to its proxy, which resolves the origin's name then."""
    try:
        async with asyncio.timeout(seconds):
            if route.proxy is not None:
                return await _tunnelled(origin, route, route.proxy)
            return await _opened(address, origin.port, origin, route.tls, route.server_name)
    except TimeoutError as cause:
        raise ConnectTimeoutError("connecting timed out") from cause
    except OSError as cause:
        raise ConnectError(_reason_of(cause)) from cause


async def _opened(
    address: str, port: int, origin: Origin, tls: ssl.SSLContext | None, name: str | None
) -> Connection:
    name = None if tls is None else name or origin.host
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        partial(Connection, origin), address, port, ssl=tls, server_hostname=name
    )
    return connection


async def _tunnelled(origin: Origin, route: Route, proxy: HttpTarget) -> Connection:
    """Connect to a proxy, and let it connect to the origin: nothing but TLS passes through it then."""
    host, port = proxy.origin.host, proxy.origin.port
    try:
        connection = await _opened(host, port, origin, route.proxy_tls, host)
    except OSError as cause:
        raise ConnectError(f"the proxy {host}:{port} cannot be used: {_reason_of(cause)}") from cause
    try:
        response = await connection.request(_tunnel_request(origin, proxy))
        if response.status != HTTPStatus.OK:
            raise ConnectError(f"the proxy {host}:{port} refuses with status {response.status}")
        if route.tls is not None:
            await connection.start_tls(route.tls, route.server_name or origin.host)
    except BaseException:
        connection.close()
        raise
    return connection


def _tunnel_request(origin: Origin, proxy: HttpTarget) -> bytes:
    place = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}", "User-Agent: kron"]
    if proxy.login is not None:
        lines.append(f"Proxy-Authorization: {proxy.login}")
    return "\r\n".join([*lines, "", ""]).encode()


def _reason_of(cause: OSError) -> str:
    """Return why there is no connection; asyncio says "Connect call failed", whatever the reason."""
    return os.strerror(cause.errno) if isinstance(cause, ConnectionError) and cause.errno else str(cause)


class ConnectionPool:
    """Idle connections for reuse; the last used one is taken first, so that the others can expire."""

    def __init__(self, *, max_kept: int = MAX_KEPT, kept_s: float = KEPT_S) -> None:
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._kept: dict[Connection, float] = {}
        self._by_origin: dict[Origin, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many connections are kept."""
        return len(self._kept)

    def take(self, origin: Origin) -> Connection | None:
        """Return an idle connection to an origin, if there is one."""
        kept = self._by_origin.get(origin)
        if not kept:
            return None
        connection = kept[-1]
        self._forget(connection)
        return connection

    def put(self, connection: Connection) -> None:
        """Keep a connection that can be reused."""
        if len(self._kept) >= self._max_kept:
            self._drop(next(iter(self._kept)))
        loop = asyncio.get_running_loop()
        self._kept[connection] = loop.time() + self._kept_s
        self._by_origin.setdefault(connection.origin, []).append(connection)
        connection.on_end = self._forget
        if self._timer is None:
            self._timer = loop.call_later(self._kept_s, self._sweep)

    def close(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._kept):
            self._drop(connection)

    def _sweep(self) -> None:
        """Close expired connections, and schedule the next sweep for when another one expires."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for connection, until in list(self._kept.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        connection.on_end = None
        if self._kept.pop(connection, None) is not None:
            kept = self._by_origin[connection.origin]
            kept.remove(connection)
            if not kept:
                del self._by_origin[connection.origin]


class HttpClient:
    """Sends requests over a pool of connections, within an egress policy if it has one."""

    def __init__(
        self,
        *,
        egress: EgressPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        max_kept: int = MAX_KEPT,
        server_name: str | None = None,
        proxy: HttpTarget | None = None,
    ) -> None:
        assert egress is None or proxy is None, "a policy cannot check the addresses that a proxy resolves"
        self._egress = egress
        self._tls = tls
        self._server_name = server_name
        self._proxy = proxy
        self._lookups: dict[tuple[str, str], asyncio.Future[list[str]]] = {}
        self.pool = ConnectionPool(max_kept=max_kept)

    async def send(
        self,
        data: bytes,
        target: HttpTarget,
        *,
        connect_s: float,
        max_body: int = MAX_BODY,
        check: Callable[[], None] = lambda: None,
        tenant: str = "",
    ) -> tuple[Connection, Response]:
        """Send a request over a kept connection or a new one; return when the response's head has arrived.

        The caller gives the connection back with `release`. `check` is called before each time the request
        is sent, with nothing awaited in between; what it raises is raised here. Names are looked up in the
        turns of a `tenant`.
        """
        origin = self._origin_of(target)
        connection = self.pool.take(origin)
        if connection is not None:
            try:
                return connection, await _checked(connection, check).request(data, max_body=max_body)
            except ConnectionLostError as error:
                # The server may have closed it before the request arrived; if not, idempotency makes it safe.
                if not error.untouched:
                    raise
        connection = await self._connected(target.url, origin, connect_s, tenant)
        return connection, await _checked(connection, check).request(data, max_body=max_body)

    def release(self, connection: Connection, response: Response) -> None:
        """Keep a connection for reuse if its response allows it, else close it."""
        if response.is_over and response.is_kept and connection.is_open:
            self.pool.put(connection)
        else:
            connection.close()

    async def fetch(self, data: bytes, target: HttpTarget, *, idle_s: float, max_body: int) -> Response:
        """Send a request over a new connection and return the complete response.

        It is given up when for `idle_s` seconds no byte was sent or received.
        """
        connection = await self._connected(target.url, self._origin_of(target), idle_s)
        exchange = asyncio.create_task(_exchange(connection, data, max_body))
        try:
            while not exchange.done():  # each round makes progress, or is the last
                before = connection.progress
                await asyncio.wait({exchange}, timeout=idle_s)
                if not exchange.done() and connection.progress == before:
                    raise TimeoutError(f"no answer within {idle_s:g} s")
            return exchange.result()
        finally:
            exchange.cancel()
            connection.close()

    def _origin_of(self, target: HttpTarget) -> Origin:
        """Return the origin of a request, or raise EgressError as far as its URL alone is refused."""
        if self._egress is None:
            return target.origin
        fault = self._egress.fault_of(target.url)
        if fault is not None:
            raise EgressError(f"{target.origin.host} {fault}")
        return target.origin._replace(trusted=target.url in self._egress.urls)

    async def _connected(self, url: str, origin: Origin, seconds: float, tenant: str = "") -> Connection:
        """Connect to the first reachable address; a name that resolves differently later has no effect."""
        route = self._route_to(origin)
        last = ConnectError(f"{origin.host} has no address")
        for address in await self._addresses(url, origin.host, tenant):
            try:
                return await connect(address, origin, route, seconds=seconds)
            except ConnectTimeoutError:
                raise
            except ConnectError as error:
                last = error
        try:
            raise last
        finally:
            # Its traceback has this frame, and so the request: a cycle would keep both until a collection.
            del last

    def _route_to(self, origin: Origin) -> Route:
        tls = self._context() if origin.scheme == "https" else None
        proxy = self._proxy
        over = self._context() if proxy is not None and proxy.origin.scheme == "https" else None
        return Route(tls, self._server_name, proxy, over)

    async def _addresses(self, url: str, host: str, tenant: str) -> list[str]:
        """Return the addresses a request may go to; without an egress policy the host itself, unresolved."""
        if self._egress is None:
            return [host]
        addresses = [host] if is_address(host) else await self._resolved(host, tenant)
        fault = self._egress.fault_of_addresses(url, addresses)
        if fault is not None:
            raise EgressError(f"{host} {fault}")
        return addresses[:MAX_ADDRESSES]

    async def _resolved(self, host: str, tenant: str) -> list[str]:
        """Return the addresses of a host; requests of a tenant for the same host share one lookup.

        A lookup has a thread that cannot be interrupted, so a slow name server must not get one per request,
        and the slow ones of a tenant not those of others: each has its turn.
        """
        key = tenant, host
        lookup = self._lookups.get(key)
        if lookup is None:
            loop = asyncio.get_running_loop()
            lookup = self._lookups[key] = loop.create_future()
            lookup.add_done_callback(partial(self._looked_up, key))
            _turns_of(loop).start(partial(_look_up, host, lookup), Share(tenant))
        return await asyncio.shield(lookup)

    def _looked_up(self, key: tuple[str, str], lookup: asyncio.Future[list[str]]) -> None:
        self._lookups.pop(key, None)
        if not lookup.cancelled():
            lookup.exception()  # every request that waited for it may have timed out

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def close(self) -> None:
        """Close the idle connections."""
        self.pool.close()


def _checked(connection: Connection, check: Callable[[], None]) -> Connection:
    """Return a connection if the check passes, else close it."""
    try:
        check()
    except BaseException:
        connection.close()
        raise
    return connection


async def _exchange(connection: Connection, data: bytes, max_body: int) -> Response:
    response = await connection.request(data, max_body=max_body)
    await connection.read_rest(response)
    return response


# --- names ---------------------------------------------------------------------------------------


def _turns_of(loop: asyncio.AbstractEventLoop) -> FairTasks:
    """Return the turns of the lookups of a loop: all of its clients share its threads."""
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = FairTasks(
            most=MAX_LOOKUPS, per_tenant=TENANT_LOOKUPS, per_target=TENANT_LOOKUPS, reserved=1
        )
    return turns


async def _look_up(host: str, lookup: asyncio.Future[list[str]]) -> None:
    """Look a name up, and set the result of all that wait for it."""
    try:
        found = await _resolved(host)
    except asyncio.CancelledError:
        lookup.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
        lookup.set_exception(error)
    else:
        lookup.set_result(found)


async def _resolved(host: str) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
