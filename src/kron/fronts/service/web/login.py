"""Signing in: a browser shows a token once, and then by a cookie that only this service reads."""

from http import HTTPStatus
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kron.fronts.service.auth.middleware import COOKIE, Authenticator
from kron.fronts.service.auth.principal import TokenScope, UnauthenticatedError
from kron.fronts.service.web.render import HEADERS, page, render

READ = ["GET", "HEAD"]
NOT_ALLOWED = "the token does not have the scope read"
# Browsers drop longer cookies without a word, and whoever signed in would be asked to again.
MAX_COOKIE = 4_000
TOO_LONG = f"the token has more than {MAX_COOKIE} bytes, which browsers do not keep; use one with less in it"
FOREIGN = "the request comes from another site"


def login_routes(authenticator: Authenticator) -> APIRouter:
    """Return the routes by which a browser signs in and out."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/login", methods=READ)
    async def form() -> Response:
        return page(render("login.html", is_open=authenticator.is_open, error=None))

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        if _is_foreign(request):
            return page(render("login.html", is_open=False, error=FOREIGN), 403)
        body = (await request.body()).decode("utf-8", "replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        if len(token) > MAX_COOKIE:
            return page(render("login.html", is_open=False, error=TOO_LONG), 401)
        try:
            caller = await authenticator.caller_with(token)
        except UnauthenticatedError as refusal:
            return page(render("login.html", is_open=False, error=refusal.reason), 401)
        if not caller.may(TokenScope.READ):
            return page(render("login.html", is_open=False, error=NOT_ALLOWED), 403)
        response = _to("/")
        is_safe = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_safe, path="/")
        return response

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        if _is_foreign(request):
            return page(render("login.html", is_open=False, error=FOREIGN), 403)
        response = _to("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    return router


def _is_foreign(request: Request) -> bool:
    """Say whether a form is another site's, to sign people in as somebody else, or out."""
    return request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=HEADERS)
