"""Permissions, authentication and rate limits of every request, before its body is read.

`NEEDS` has the scope that each route requires. A route without an entry is denied to every caller.
"""

import math
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router, compile_path
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from kron.core.errors import KronError, escaped
from kron.core.redaction import RUN_TOKEN_PREFIX
from kron.fronts.service.auth.principal import (
    ANONYMOUS,
    READER,
    UNRESTRICTED,
    Caller,
    ForbiddenError,
    LimitExceededError,
    TokenScope,
    UnauthenticatedError,
    acting_as,
)
from kron.fronts.service.auth.tls import PEER
from kron.fronts.service.auth.token import TokenReader
from kron.fronts.service.auth.turns import CallerTurns
from kron.fronts.service.url import name_of
from kron.launchers.run_token import is_run_token_of
from kron.ports import Clock

# --- permissions ---------------------------------------------------------------------------------

# A page of another site cannot send JSON or lines without a preflight, which is never granted.
JSON_TYPES = ("application/json",)
LINE_TYPES = (
    "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines",
    "application/json",
)  # fmt: skip


class Need(NamedTuple):
    """The requirement of a route: a scope, or None for a public route, and the media types of a body.

    With `run_token`, an executor may use the token of its run. With `page`, a browser may use a cookie. A
    `large` body holds definitions, or the input of runs: it may have as many bytes as the settings allow.
    For a `heavy` answer much is read from the store: callers take turns.
    """

    scope: TokenScope | None
    run_token: bool = False
    page: bool = False
    media_types: tuple[str, ...] = JSON_TYPES
    large: bool = False
    heavy: bool = False


FORM_TYPES = ("application/x-www-form-urlencoded",)


READ, WRITE, RUN, ADMIN = (Need(scope) for scope in TokenScope)
OPEN = Need(None)
PAGE = Need(TokenScope.READ, page=True)
ADMIN_PAGE = Need(TokenScope.ADMIN, page=True)
WRITE_FORM = Need(TokenScope.WRITE, page=True, media_types=FORM_TYPES)
ADMIN_FORM = Need(TokenScope.ADMIN, page=True, media_types=FORM_TYPES)
DEFINE = WRITE._replace(large=True)
HEAVY, HEAVY_PAGE = READ._replace(heavy=True), PAGE._replace(heavy=True)
RUN_FORM = Need(TokenScope.RUN, page=True, media_types=FORM_TYPES)
NEEDS: dict[tuple[str, str], Need] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/static/{name}"): OPEN,
    ("GET", "/favicon.ico"): OPEN,
    ("GET", "/login"): OPEN,
    ("POST", "/login"): OPEN,
    ("POST", "/logout"): OPEN,
    ("GET", "/"): PAGE,
    ("GET", "/ui/now"): PAGE,
    ("GET", "/ui/live"): PAGE,
    ("GET", "/ui/schedule"): PAGE,
    ("GET", "/ui/schedule/run"): PAGE,
    ("POST", "/ui/schedule/run"): RUN_FORM,
    ("GET", "/ui/schedule/pause"): PAGE,
    ("POST", "/ui/schedule/pause"): WRITE_FORM,
    ("GET", "/ui/schedule/resume"): PAGE,
    ("POST", "/ui/schedule/resume"): WRITE_FORM,
    ("GET", "/ui/schedule/what-if"): HEAVY_PAGE,
    ("GET", "/ui/schedule/edit"): PAGE,
    ("POST", "/ui/schedule/edit"): WRITE_FORM._replace(large=True),
    ("GET", "/ui/schedule/backfill"): PAGE,
    ("POST", "/ui/schedule/backfill"): RUN_FORM,
    ("GET", "/ui/audit"): PAGE,
    ("GET", "/ui/fleet"): PAGE,
    ("GET", "/ui/fleet/apply"): PAGE,
    ("POST", "/ui/fleet/apply"): WRITE_FORM._replace(large=True),
    ("POST", "/ui/fleet/undo"): WRITE_FORM,
    # Owners are named after hosts, which concern all tenants.
    ("GET", "/ui/workers"): ADMIN_PAGE,
    ("GET", "/ui/workers/drain"): ADMIN_PAGE,
    ("POST", "/ui/workers/drain"): ADMIN_FORM,
    ("GET", "/ui/playground"): PAGE,
    ("GET", "/ui/period"): HEAVY_PAGE,
    ("GET", "/ui/run"): PAGE,
    ("GET", "/ui/run/output"): PAGE,
    ("GET", "/ui/runs"): PAGE,
    ("GET", "/ui/dags"): PAGE,
    ("GET", "/ui/dag"): HEAVY_PAGE,
    ("GET", "/ui/dag/run"): HEAVY_PAGE,
    ("GET", "/ui/dag/catchup"): PAGE,
    ("POST", "/ui/dag/catchup"): RUN_FORM,
    ("POST", "/ui/dag/trigger"): RUN_FORM,
    ("POST", "/ui/dag/pause"): WRITE_FORM,
    ("POST", "/ui/dag/run/cancel"): RUN_FORM,
    ("POST", "/ui/dag/run/retry"): RUN_FORM,
    ("GET", "/metrics"): ADMIN,
    ("GET", "/admin/log-level"): ADMIN,
    ("PUT", "/admin/log-level"): ADMIN,
    ("GET", "/workers"): ADMIN,
    ("POST", "/workers/drain"): ADMIN,
    ("POST", "/schedules/upsert"): DEFINE,
    ("POST", "/schedules/bulk"): Need(TokenScope.WRITE, media_types=LINE_TYPES),
    ("POST", "/schedules/pause"): WRITE,
    ("DELETE", "/schedules/{schedule_id}"): WRITE,
    ("GET", "/schedules"): READ,
    ("GET", "/definitions"): HEAVY,
    ("POST", "/definitions"): DEFINE,
    ("GET", "/schedules/{schedule_id}"): READ,
    ("GET", "/schedules/{schedule_id}/runs"): READ,
    ("GET", "/runs"): READ,
    ("GET", "/schedules/{schedule_id}/periods/{period_id}/why"): HEAVY,
    ("GET", "/schedules/{schedule_id}/periods/{period_id}/runs"): READ,
    ("GET", "/schedules/{schedule_id}/output"): READ,
    ("POST", "/preview"): READ._replace(large=True),
    ("POST", "/schedules/{schedule_id}/resume-preview"): READ,
    ("GET", "/audit"): READ,
    ("PUT", "/workflows/{workflow_id}/versions/{version}"): DEFINE,
    ("GET", "/workflows/{workflow_id}/versions/{version}"): HEAVY,
    ("GET", "/workflows/{workflow_id}"): READ,
    ("GET", "/dags"): READ,
    ("POST", "/dags/{dag_id}/runs"): RUN._replace(large=True),
    ("POST", "/dags/{dag_id}/catchup"): RUN._replace(large=True),
    ("POST", "/dags/{dag_id}/pause"): WRITE,
    ("GET", "/dags/{dag_id}/runs"): READ,
    ("GET", "/dag-runs/{run_id}"): HEAVY,
    ("GET", "/dag-runs/{run_id}/attempts"): HEAVY,
    ("POST", "/dag-runs/{run_id}/cancel"): RUN,
    ("POST", "/dag-runs/{run_id}/retry"): RUN._replace(large=True),
    # For workers on other hosts: with the key of another tenant's run, a caller could start it.
    ("POST", "/run-launcher/start"): ADMIN,
    ("POST", "/schedules/{schedule_id}/run"): RUN,
    ("POST", "/schedules/{schedule_id}/backfill"): RUN,
    ("POST", "/runs/{idempotency_key}/status"): Need(TokenScope.RUN, run_token=True),
}


class UnguardedRouteError(KronError):
    """A route has no entry in the permissions."""

    code = "unguarded_route"

    def __init__(self, routes: Sequence[str]) -> None:
        super().__init__(f"No permission is defined for {', '.join(routes)}", routes=list(routes))


def check_routes(routes: Sequence[BaseRoute]) -> None:
    """Raise for routes without a permission, at startup: the middleware would deny them to every caller."""
    missing = sorted(" ".join(route) for route in methods_of(routes) if route not in NEEDS)
    if missing:
        raise UnguardedRouteError(missing)


def methods_of(routes: Sequence[BaseRoute]) -> list[tuple[str, str]]:
    """Return every method and path, nested routers included; HEAD counts as GET."""
    methods: list[tuple[str, str]] = []
    for route in routes:
        inner = getattr(route, "original_router", None)
        if isinstance(inner, Router):
            methods += methods_of(inner.routes)
        elif isinstance(route, Route):
            methods += [(method, route.path) for method in sorted(route.methods or ()) if method != "HEAD"]
        elif isinstance(route, Mount):
            methods.append(("GET", f"{route.path}/{{path:path}}"))
        else:
            raise UnguardedRouteError([f"a {type(route).__name__}"])
    return methods


class RouteAccess(NamedTuple):
    """The permission of a request's method and path, and the methods that its path has."""

    need: Need | None
    methods: frozenset[str]


def find(method: str, path: str) -> RouteAccess:
    """Return the permission of a request; a path without parameters takes precedence.

    Where no path has this method, the methods are those of the first path that matches.
    """
    method = "GET" if method == "HEAD" else method
    methods: frozenset[str] = frozenset()
    for pattern, needs in _PATTERNS:
        if pattern.match(path):
            if method in needs:
                return RouteAccess(needs[method], frozenset(needs))
            methods = methods or frozenset(needs)
    return RouteAccess(None, methods)


def _patterns() -> list[tuple[re.Pattern[str], dict[str, Need]]]:
    paths = sorted({path for _, path in NEEDS}, key=lambda path: (path.count("{"), path))
    return [
        (compile_path(path)[0], {method: need for (method, other), need in NEEDS.items() if other == path})
        for path in paths
    ]


_PATTERNS = _patterns()


# --- sites ---------------------------------------------------------------------------------------

SAFE_METHODS = frozenset({"GET", "HEAD"})
# Probes name the host as they like, and learn nothing that others may not.
PROBES = frozenset({"/healthz", "/readyz"})
DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# A name or an address, and a port: what else a URL may have around them is no host.
AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/?#\s]+))(?::[0-9]{1,5})?")


class SitePolicy:
    """Which hosts a service answers for, and which web pages may write to it.

    Without authentication (`is_open`) any page that its owner visits could send requests, and a page whose
    name is rebound to this address could read the answers too. `trusted` are further hosts; with
    authentication, None accepts every host.
    """

    def __init__(self, *, is_open: bool, host: str = "127.0.0.1", trusted: frozenset[str] | None = None):
        self._is_open = is_open
        self._checks_hosts = is_open or trusted is not None
        self._names = {"localhost", host.lower(), *(trusted or ())}
        # A name can be rebound to another address; an address cannot.
        self._any_address = is_open and not is_loopback(host)

    def check(self, scope: ASGIScope) -> None:
        """Raise HTTPException for a host that is not served, or a write by a page of another site."""
        if self._checks_hosts and scope["path"] not in PROBES:
            self._check_host(_header_of(scope, b"host") or "")
        if self._is_open and scope["method"] not in SAFE_METHODS and is_cross_site(scope):
            raise HTTPException(HTTPStatus.FORBIDDEN, "the request comes from a page of another site")

    def _check_host(self, given: str) -> None:
        name = host_name(given)
        is_served = name in self._names or is_loopback(name) or (self._any_address and _is_address(name))
        if name and is_served:
            return
        detail = f'this service does not answer for the host "{escaped(given)}"; trusted_hosts has to list it'
        raise HTTPException(HTTPStatus.MISDIRECTED_REQUEST, detail)


def is_cross_site(scope: ASGIScope) -> bool:
    """Return whether a browser says that a page of another origin sent a request."""
    if (_header_of(scope, b"sec-fetch-site") or "none") not in ("same-origin", "none"):
        return True
    origin = _header_of(scope, b"origin")
    if origin is None:
        return False
    try:
        parts = urlsplit(origin.lower())
    except ValueError:
        return True
    port = DEFAULT_PORTS.get(parts.scheme)
    if port is None or origin.lower() != f"{parts.scheme}://{parts.netloc}":
        # The page of an extension, or no origin.
        return True
    host = (_header_of(scope, b"host") or "").lower()
    return not parts.netloc or parts.netloc.removesuffix(port) != host.removesuffix(port)


def check_form(scope: ASGIScope, need: Need) -> None:
    """Raise HTTPException for a write by a form unless the browser says that a page of this service sent it.

    A request with an Authorization header is not sent by a form.
    """
    if not need.page or scope["method"] in SAFE_METHODS or _header_of(scope, b"authorization") is not None:
        return
    has_origin = any(_header_of(scope, name) is not None for name in (b"origin", b"sec-fetch-site"))
    if not has_origin or is_cross_site(scope):
        raise HTTPException(HTTPStatus.FORBIDDEN, "the request does not come from a page of this service")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(authority: str) -> str:
    """Return the name or address in a `Host` header, without its port; it is empty if there is none."""
    match = AUTHORITY.fullmatch(authority.lower())
    return "" if match is None else match[1] or match[2]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def check_media_type(scope: ASGIScope, need: Need) -> None:
    """Raise HTTPException for a body of another media type than those of the route; forms are public."""
    has_body = _header_of(scope, b"transfer-encoding") or (_header_of(scope, b"content-length") or "0") != "0"
    if scope["method"] in SAFE_METHODS or need.scope is None or not has_body:
        return
    given = (_header_of(scope, b"content-type") or "").partition(";")[0].strip().lower()
    is_json = given.startswith("application/") and given.endswith("+json")
    if given in need.media_types or (is_json and need.media_types is JSON_TYPES):
        return
    detail = f"the body must be sent with the header content-type: {' or '.join(need.media_types)}"
    raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)


def _header_of(scope: ASGIScope, name: bytes) -> str | None:
    """Return a header of a request; several of one name are joined, and so equal no single value."""
    values: list[bytes] = [value for other, value in scope["headers"] if other == name]
    return b",".join(values).decode("latin-1") if values else None


# --- rate limits ---------------------------------------------------------------------------------

# How many callers are tracked; the least recent one is dropped first, and starts again with a full bucket.
MAX_CALLERS = 10_000


class RateLimit:
    """Limits the requests of each caller to a rate per second, with bursts of twice the rate."""

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s = per_s
        self._burst = 2 * per_s
        self._clock = clock
        # The tokens left in each caller's bucket, and when they were counted.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def tracked(self) -> int:
        """Return how many callers are tracked."""
        return len(self._buckets)

    def admit(self, caller: Caller) -> None:
        """Count a request of an authenticated caller, or raise LimitExceededError."""
        if caller is not UNRESTRICTED and caller is not ANONYMOUS:
            self.take(caller.name)

    def take(self, name: str) -> None:
        """Count a request under a name, or raise LimitExceededError."""
        if not self._per_s:
            return
        now = self._clock.monotonic()
        left, at = self._buckets.pop(name, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if left < 1:
            self._buckets[name] = left, now
            wait = math.ceil((1 - left) / self._per_s)
            message = f"Rate limit exceeded: {self._per_s} requests per second; retry after {wait} s"
            raise LimitExceededError(message, wait_s=wait)
        self._buckets[name] = left - 1, now
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)


# Requests of one caller that may be in progress at once; those with the token of one run, and with those of
# all runs: one user may have thousands of runs, and each of their tokens is a caller.
MAX_IN_PROGRESS, MAX_OF_RUN, MAX_OF_RUNS = 100, 10, 500


class RequestLimit:
    """Limits the requests of each caller that are in progress; a slow one may take many connections.

    Reads of public routes, such as health checks, and callers of an open service are not limited.
    """

    def __init__(self, most: int = MAX_IN_PROGRESS) -> None:
        self._most = most
        self._counts: Counter[str] = Counter()
        # Of all runs together.
        self._of_runs = 0

    def begin(self, caller: Caller, method: str) -> None:
        """Count a request that starts, or raise LimitExceededError."""
        if _is_limited(caller, method):
            most = MAX_OF_RUN if _is_executor(caller) else self._most
            if self._counts[caller.name] >= most:
                message = f"{most} requests of this caller are in progress: wait for their answers"
                raise LimitExceededError(message, wait_s=1)
            if _is_executor(caller) and self._of_runs >= MAX_OF_RUNS:
                raise LimitExceededError(f"{MAX_OF_RUNS} reports on runs are in progress", wait_s=1)
            self._of_runs += _is_executor(caller)
            self._counts[caller.name] += 1

    def end(self, caller: Caller, method: str) -> None:
        """Count a request that ends."""
        if _is_limited(caller, method):
            self._of_runs -= _is_executor(caller)
            self._counts[caller.name] -= 1
            if not self._counts[caller.name]:
                del self._counts[caller.name]


# Bytes of the answers of one caller that may be in flight at once; a single longer one is not refused.
MAX_UNREAD = 64 << 20


class UnreadLimit:
    """Limits the bytes of answers that each caller has not read yet: each of them is in memory."""

    def __init__(self, most: int = MAX_UNREAD) -> None:
        self._most = most
        self._bytes: Counter[str] = Counter()

    def has_room(self, caller: Caller, size: int) -> bool:
        """Return whether another answer may be sent now."""
        return not self._bytes[caller.name] or self._bytes[caller.name] + size <= self._most

    def change(self, caller: Caller, size: int) -> None:
        """Count an answer that starts, or with a negative size one that ends."""
        self._bytes[caller.name] += size
        if not self._bytes[caller.name]:
            del self._bytes[caller.name]


def _size_of(message: Message) -> int:
    """Return the length that the head of an answer announces; a stream has none, and is sent in parts."""
    sizes = [int(value) for name, value in message["headers"] if name.lower() == b"content-length"]
    return sizes[0] if sizes else 0


def _is_executor(caller: Caller) -> bool:
    """Return whether a request has the token of a run."""
    return caller.users is None and caller.scopes == EXECUTOR.scopes


def _is_limited(caller: Caller, method: str) -> bool:
    return caller is not UNRESTRICTED and (caller is not ANONYMOUS or method == "POST")


# --- authentication ------------------------------------------------------------------------------

ErrorResponder = Callable[[Request, Exception], Response]
COOKIE = "kron_token"
# Browsers drop longer cookies silently, and the user would be asked to sign in again.
MAX_COOKIE = 4_000
# The caller of a request with a run token: it can report on its run and nothing else.
EXECUTOR = Caller("executor", frozenset({TokenScope.RUN}), None)


class Authenticator:
    """Authenticates callers by token or client certificate; with `is_open`, every caller is unrestricted."""

    def __init__(
        self,
        reader: TokenReader | None,
        *,
        subjects: Callable[[str], Caller | None] = lambda _: None,
        run_secret: bytes | None = None,
        is_open: bool = False,
    ) -> None:
        self._reader = reader
        self._subjects = subjects
        self._run_secret = run_secret
        self.is_open = is_open
        # No caller may do more than read.
        self.is_read_only = False

    async def start(self) -> None:
        """Load the token keys, and raise if they can never be loaded."""
        if self._reader is not None:
            await self._reader.keyring.start()

    async def caller_of(self, scope: ASGIScope, need: Need) -> Caller:
        """Return the caller of a request, or raise UnauthenticatedError."""
        if self.is_open:
            return UNRESTRICTED
        if need.scope is None:
            return ANONYMOUS
        token = _bearer_of(scope) or (_cookie_of(scope) if need.page else None)
        if token is not None and need.run_token and token.startswith(RUN_TOKEN_PREFIX):
            return self._executor(token, scope)
        return self._peer(scope) if token is None else await self.caller_with(token)

    async def caller_with(self, token: str) -> Caller:
        """Return the caller a token authenticates, or raise UnauthenticatedError."""
        if self._reader is None:
            raise UnauthenticatedError("tokens are not accepted here")
        return await self._reader.caller_of(token)

    def _executor(self, token: str, scope: ASGIScope) -> Caller:
        key = name_of(scope["path"].split("/")[2])
        if self._run_secret is None or not is_run_token_of(token, self._run_secret, key):
            raise UnauthenticatedError("the token belongs to another run")
        # Each run has a name and so a rate limit, so that others cannot use it up.
        return EXECUTOR._replace(name=f"run {key}")

    def _peer(self, scope: ASGIScope) -> Caller:
        subject = scope.get(PEER)
        caller = self._subjects(subject) if isinstance(subject, str) else None
        if caller is not None:
            return caller
        if isinstance(subject, str):
            raise UnauthenticatedError(f"client_subjects has no entry for the certificate of {subject}")
        raise UnauthenticatedError("no token; send one as `Authorization: Bearer ...`")


def login_url(scope: ASGIScope) -> str:
    """Return the login page's URL, with the requested page to return to; the overview is the default.

    After a form that was sent too late, that is the page of its schedule.
    """
    query, path = scope["query_string"].decode("latin-1"), scope["path"]
    path = path if scope["method"] in SAFE_METHODS else path.rpartition("/")[0]
    target = quote(path) + (f"?{query}" if query else "")
    return "/login" if target == "/" else f"/login?next={quote(target, safe='')}"


READ_ONLY = "these records are read-only here: change them where they are made"


class AuthMiddleware:
    """Authenticates, rate limits and authorizes each request, then passes it on in its caller's name.

    Unknown routes are answered here, so that no route without a permission can be reached.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        answer: ErrorResponder,
        admit: Callable[[Caller], None] = lambda _: None,
        sites: SitePolicy | None = None,
    ) -> None:
        self._app = app
        self._sites = sites or SitePolicy(is_open=authenticator.is_open)
        self._answer = answer
        self._authenticator = authenticator
        self._admit = admit
        self._requests = RequestLimit()
        self._unread = UnreadLimit()
        self._heavy = CallerTurns("for answers that need much memory")

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass an authorized request on, or answer with the error."""
        if scope["type"] != "http":
            raise AssertionError("only HTTP requests are served")
        caller = UNRESTRICTED if self._authenticator.is_open else ANONYMOUS
        try:
            self._sites.check(scope)
            caller = await self._caller_of(scope)
            caller, need = self._allowed(caller, scope)
            self._requests.begin(caller, scope["method"])
        except (KronError, HTTPException) as error:
            # An error page has the navigation of its caller.
            with acting_as(caller, scope.get("request_id")):
                refusal = self._refusal(scope, error)
            await refusal(scope, receive, send)
            return
        try:
            # No route reads cookies. The framework parses them for each, in quadratic time.
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"cookie"]
            with acting_as(caller, scope.get("request_id")):
                await (self._in_turn if need.heavy else self._answered)(caller, scope, receive, send)
        finally:
            self._requests.end(caller, scope["method"])

    async def _in_turn(self, caller: Caller, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass a request on whose answer needs much memory, in a turn of its caller, or refuse it."""
        try:
            await self._heavy.take(caller.name)
        except HTTPException as error:
            await self._refusal(scope, error)(scope, receive, send)
            return
        try:
            await self._answered(caller, scope, receive, send)
        finally:
            self._heavy.give_back(caller.name)

    async def _answered(self, caller: Caller, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass a request on; its answer is refused if the caller has not read the ones before it."""
        size, is_refused = 0, False

        async def respond(message: Message) -> None:
            nonlocal size, is_refused
            if message["type"] == "http.response.start":
                announced = _size_of(message)
                # What a request has written is always said.
                is_safe = scope["method"] in SAFE_METHODS
                is_refused = is_safe and not self._unread.has_room(caller, announced)
                if not is_refused:
                    size = announced
                    self._unread.change(caller, size)
            if not is_refused:
                await send(message)

        try:
            await self._app(scope, receive, respond)
        finally:
            self._unread.change(caller, -size)
        if is_refused:
            error = LimitExceededError("the answers before this one have not been read", wait_s=1)
            await self._refusal(scope, error)(scope, receive, send)

    def _refusal(self, scope: ASGIScope, error: Exception) -> Response:
        """Return the response to a denied request; a browser is redirected to the login page."""
        need = find(scope["method"], scope["path"]).need
        if isinstance(error, UnauthenticatedError) and need is not None and need.page:
            return RedirectResponse(login_url(scope), HTTPStatus.SEE_OTHER)
        return self._answer(Request(scope), error)

    async def _caller_of(self, scope: ASGIScope) -> Caller:
        # Whether a path exists is shown to authenticated callers only; a browser that is signed in is one.
        need = find(scope["method"], scope["path"]).need or PAGE
        return await self._authenticator.caller_of(scope, need)

    def _allowed(self, caller: Caller, scope: ASGIScope) -> tuple[Caller, Need]:
        """Return the caller of an allowed request with the scopes it has here, and its route's needs."""
        self._admit(caller)
        need, methods = find(scope["method"], scope["path"])
        if need is None and methods:
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(sorted(methods))})
        if need is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        if need.scope is not None and not caller.may(need.scope):
            raise ForbiddenError(scope=need.scope)
        if self._authenticator.is_read_only:
            if need.scope not in (None, TokenScope.READ):
                raise HTTPException(HTTPStatus.FORBIDDEN, READ_ONLY)
            scopes = caller.scopes and frozenset({TokenScope.READ})
            caller = READER if caller is UNRESTRICTED else caller._replace(scopes=scopes)
        check_form(scope, need)
        check_media_type(scope, need)
        return caller, need


def _bearer_of(scope: ASGIScope) -> str | None:
    """Return the bearer token of a request, or None; any other `Authorization` is an error."""
    headers: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if not headers:
        return None
    kind, _, token = headers[0].decode("latin-1").strip().partition(" ")
    if len(headers) > 1 or kind.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("the Authorization header must be `Bearer` and one token")
    return token.strip()


def _cookie_of(scope: ASGIScope) -> str | None:
    """Return the token in a cookie; it has no character that a cookie would have to escape."""
    for header, text in scope["headers"]:
        if header == b"cookie":
            for pair in text.decode("latin-1").split(";"):
                name, _, value = pair.partition("=")
                if name.strip() == COOKIE:
                    token = value.strip().strip('"')
                    return token if len(token) <= MAX_COOKIE else None
    return None
