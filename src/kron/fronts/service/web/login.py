"""Signing in: a browser shows a token once, and then by a cookie that only this service reads."""

from http import HTTPStatus
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kron.fronts.service.guard.caller import Right, UnknownCallerError
from kron.fronts.service.guard.sentry import COOKIE, Porter
from kron.fronts.service.web.rendering import HEADERS, page, render

READ = ["GET", "HEAD"]
NOT_ALLOWED = "the token does not have the scope read"


def login_routes(porter: Porter) -> APIRouter:
    """Return the routes by which a browser signs in and out."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/login", methods=READ)
    async def form() -> Response:
        return page(render("login.html", is_open=porter.is_open, error=None))

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        body = (await request.body()).decode("utf-8", "replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        try:
            caller = await porter.caller_with(token)
        except UnknownCallerError as refusal:
            return page(render("login.html", is_open=False, error=refusal.reason), 401)
        if not caller.may(Right.READ):
            return page(render("login.html", is_open=False, error=NOT_ALLOWED), 403)
        response = _to("/")
        is_safe = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_safe, path="/")
        return response

    @router.post("/logout")
    async def sign_out() -> Response:
        response = _to("/login")
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return response

    return router


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=HEADERS)
