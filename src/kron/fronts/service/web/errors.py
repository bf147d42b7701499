"""Errors for browsers: whoever asks for a page gets one, also when there is none."""

import json
from collections.abc import Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kron.fronts.service.web.render import page, render

ErrorResponder = Callable[[Request, Exception], JSONResponse]
# What begins like this is a page, whoever asks.
PAGES = ("/ui/", "/docs", "/static/")


def for_browsers(app: FastAPI, answer: ErrorResponder) -> Callable[[Request, Exception], Response]:
    """Return what answers with a page where a page was asked for, and else as the API does."""

    def answered(request: Request, error: Exception) -> Response:
        problem = answer(request, error)
        if not _wants_page(request, app):
            return problem
        document = json.loads(bytes(problem.body))
        return page(render("error.html", problem=document), problem.status_code)

    return answered


def _wants_page(request: Request, app: FastAPI) -> bool:
    path = request.scope["path"]
    if path == "/" or path.startswith(PAGES):
        return True
    own = {_first(known) for known in app.openapi()["paths"]}
    return _first(path) not in own and "text/html" in request.headers.get("accept", "")


def _first(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]
