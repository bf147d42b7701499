"""Permissions: the scope that each route requires. A route without an entry is denied to every caller."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from starlette.routing import BaseRoute, Mount, Route, Router, compile_path

from kron.core.errors import KronError
from kron.fronts.service.auth.principal import TokenScope


class Need(NamedTuple):
    """The requirement of a route: a scope, or None for a public route.

    With `run_token`, an executor may use the token of its run. With `page`, a browser may use a cookie.
    """

    scope: TokenScope | None
    run_token: bool = False
    page: bool = False


READ, WRITE, RUN, ADMIN = (Need(scope) for scope in TokenScope)
OPEN = Need(None)
PAGE = Need(TokenScope.READ, page=True)
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
    ("GET", "/ui/schedule"): PAGE,
    ("GET", "/ui/period"): PAGE,
    ("GET", "/ui/runs"): PAGE,
    ("GET", "/metrics"): ADMIN,
    ("GET", "/admin/log-level"): ADMIN,
    ("PUT", "/admin/log-level"): ADMIN,
    ("POST", "/schedules/upsert"): WRITE,
    ("POST", "/schedules/bulk"): WRITE,
    ("POST", "/schedules/pause"): WRITE,
    ("DELETE", "/schedules/{schedule_id}"): WRITE,
    ("GET", "/schedules"): READ,
    ("GET", "/schedules/{schedule_id}"): READ,
    ("GET", "/schedules/{schedule_id}/runs"): READ,
    ("GET", "/runs"): READ,
    ("GET", "/schedules/{schedule_id}/periods/{period_id}/why"): READ,
    ("GET", "/schedules/{schedule_id}/periods/{period_id}/runs"): READ,
    ("POST", "/preview"): READ,
    ("POST", "/schedules/{schedule_id}/resume-preview"): READ,
    ("GET", "/audit"): READ,
    ("PUT", "/workflows/{workflow_id}/versions/{version}"): WRITE,
    ("GET", "/workflows/{workflow_id}/versions/{version}"): READ,
    ("GET", "/workflows/{workflow_id}"): READ,
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
