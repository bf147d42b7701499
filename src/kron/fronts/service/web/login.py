"""Sign-in: a browser sends a token once, and this service keeps it in a cookie."""

from http import HTTPStatus
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kron.fronts.service.auth.middleware import COOKIE, MAX_COOKIE, Authenticator, is_cross_site
from kron.fronts.service.auth.principal import TokenScope, UnauthenticatedError
from kron.fronts.service.web.render import HEADERS, page, render

READ = ["GET", "HEAD"]
NOT_ALLOWED = "not allowed: needs scope read"
# The form has one field; more are not read.
MAX_FIELDS = 10
TOO_LONG = f"the token is longer than {MAX_COOKIE} bytes, which browsers do not store; use a shorter one"
CROSS_SITE = "the request comes from another site"


def login_routes(authenticator: Authenticator) -> APIRouter:
    """Return the routes that sign a browser in and out."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/login", methods=READ)
    async def form() -> Response:
        return page(render("login.html", is_open=authenticator.is_open, error=None))

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        # Else another site could sign a user in as another one, or out.
        if is_cross_site(request.scope):
            return page(render("login.html", is_open=False, error=CROSS_SITE), 403)
        body = (await request.body()).decode("utf-8", "replace")
        token = _token_in(body)
        if len(token) > MAX_COOKIE:
            return page(render("login.html", is_open=False, error=TOO_LONG), 401)
        try:
            caller = await authenticator.caller_with(token)
        except UnauthenticatedError as error:
            return page(render("login.html", is_open=False, error=error.reason), 401)
        if not caller.may(TokenScope.READ):
            return page(render("login.html", is_open=False, error=NOT_ALLOWED), 403)
        response = _redirect("/")
        is_https = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_https, path="/")
        return response

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        if is_cross_site(request.scope):
            return page(render("login.html", is_open=False, error=CROSS_SITE), 403)
        response = _redirect("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    return router


def _token_in(form: str) -> str:
    try:
        return parse_qs(form, max_num_fields=MAX_FIELDS).get("token", [""])[0].strip()
    except ValueError:
        return ""


def _redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=HEADERS)
