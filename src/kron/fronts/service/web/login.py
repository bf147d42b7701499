"""Sign-in: a browser sends a token once, and this service keeps it in a cookie."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from kron.fronts.service.auth.middleware import COOKIE, MAX_COOKIE, Authenticator, is_cross_site
from kron.fronts.service.auth.principal import TokenScope, UnauthenticatedError
from kron.fronts.service.web.render import READ, form_fields, page, render, to

NOT_ALLOWED = "not allowed: needs scope read"
TOO_LONG = f"the token is longer than {MAX_COOKIE} bytes, which browsers do not store; use a shorter one"
# The pages that a login may return to.
OWN_PAGES = ("/?", "/ui/", "/docs")
CROSS_SITE = "the request comes from another site"


def login_routes(authenticator: Authenticator) -> APIRouter:
    """Return the routes that sign a browser in and out."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/login", methods=READ)
    async def form(following: Annotated[str, Query(alias="next")] = "/") -> Response:
        return _form(own_page(following), is_open=authenticator.is_open)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        # Else another site could sign a user in as another one, or out.
        if is_cross_site(request.scope):
            return _form("/", error=CROSS_SITE, status=403)
        fields = await form_fields(request)
        token, following = fields.get("token", "").strip(), own_page(fields.get("next", "/"))
        if len(token) > MAX_COOKIE:
            return _form(following, error=TOO_LONG, status=401)
        try:
            caller = await authenticator.caller_with(token)
        except UnauthenticatedError as error:
            return _form(following, error=error.reason, status=401)
        if not caller.may(TokenScope.READ):
            return _form(following, error=NOT_ALLOWED, status=403)
        response = to(following)
        is_https = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
        return response

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        if is_cross_site(request.scope):
            return _form("/", error=CROSS_SITE, status=403)
        response = to("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    return router


def own_page(target: str) -> str:
    """Return a page of this service to return to; anything else, such as another site, is the overview."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return "/"
    is_plain = target.isascii() and target.isprintable() and "\\" not in target
    is_own = is_plain and target.startswith(OWN_PAGES) and not (parts.scheme or parts.netloc)
    return target if is_own else "/"


def _form(following: str, *, is_open: bool = False, error: str | None = None, status: int = 200) -> Response:
    return page(render("login.html", is_open=is_open, error=error, following=following), status)
