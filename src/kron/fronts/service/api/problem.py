"""Errors as problem documents (RFC 9457): a status, the error's code, and every problem."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from kron.app.budget import TooCostlyError
from kron.core.dag.contract import DagError
from kron.core.errors import (
    ConflictError,
    InputError,
    KronError,
    Problem,
    StoreUnavailableError,
    UnknownRunError,
    quoted,
)
from kron.fronts.service.auth.principal import ForbiddenError, LimitExceededError, UnauthenticatedError
from kron.fronts.service.compute_pool import OverloadedError
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import (
    MAX_LINES,
    ChangedError,
    InvalidLinesError,
    LaunchFailedError,
    NoRunnerError,
    UnknownScheduleError,
    UnknownWorkerError,
)
from kron.launchers.workflow import UnknownWorkflowError

MEDIA_TYPE = "application/problem+json"
# The first class that matches an error determines the status (STYLE 2).
STATUSES: tuple[tuple[type[KronError], HTTPStatus], ...] = (
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (LimitExceededError, HTTPStatus.TOO_MANY_REQUESTS),
    (UnknownScheduleError, HTTPStatus.NOT_FOUND),
    (UnknownWorkerError, HTTPStatus.NOT_FOUND),
    (UnknownRunError, HTTPStatus.NOT_FOUND),
    (UnknownWorkflowError, HTTPStatus.NOT_FOUND),
    (NoRunnerError, HTTPStatus.CONFLICT),
    (LaunchFailedError, HTTPStatus.BAD_GATEWAY),
    (ChangedError, HTTPStatus.PRECONDITION_FAILED),
    (TooCostlyError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (OverloadedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (InputError, HTTPStatus.BAD_REQUEST),
    (ConflictError, HTTPStatus.CONFLICT),
    (StoreUnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)
# The statuses of errors of DAG runs, by their category.
DAG_STATUSES = {
    "validation": HTTPStatus.BAD_REQUEST,
    "not_found": HTTPStatus.NOT_FOUND,
    "state": HTTPStatus.CONFLICT,
    "limit": HTTPStatus.TOO_MANY_REQUESTS,
}
# FastAPI's message for a body it cannot parse, and the one that replaces it.
UNPARSED = "There was an error parsing the body"
UNREADABLE = "cannot be parsed: send JSON in UTF-8, uncompressed, without deep nesting or huge numbers"
# When a caller may retry after the store was unavailable, in seconds.
RETRY_AFTER_S = "1"
# How many problems a document lists, and how long its texts are: some quote what the request has.
MAX_PROBLEMS = 100
MAX_DETAIL, MAX_TEXT = 8_000, 1_000
EXAMPLE: Document = {
    "type": "urn:kron:error:invalid_schedule",
    "title": "Bad Request",
    "status": 400,
    "detail": 'Invalid schedule "report": timezone "Mars": Unknown timezone "Mars"',
    "code": "invalid_schedule",
    "problems": [{"path": "timezone", "value": "Mars", "reason": 'Unknown timezone "Mars"'}],
    "instance": "/schedules/upsert",
    "request_id": "3f0c9a52-6c5f-4f0e-9d0b-0d7f7a1f6f1e",
}


def of_error(request: Request, error: Exception) -> JSONResponse:
    """Return the response for one of Kron's errors."""
    assert isinstance(error, KronError)
    kinds = (status for kind, status in STATUSES if isinstance(error, kind))
    status = next(kinds, HTTPStatus.INTERNAL_SERVER_ERROR)
    if isinstance(error, DagError):
        status = DAG_STATUSES[error.category]
    further: Document = {}
    if isinstance(error, InvalidLinesError):
        further["stored"] = error.stored
        further["wrong"] = error.count
        further["lines"] = [
            {"line": line, "detail": _written(str(fault))} for line, fault in error.errors[:MAX_LINES]
        ]
        further["problems"] = [
            {"line": line, **_shown(problem)}
            for line, fault in error.errors[:MAX_PROBLEMS]
            for problem in _problems_of(fault)
        ]
    elif problems := _problems_of(error):
        further["problems"] = [_shown(problem) for problem in problems[:MAX_PROBLEMS]]
    headers = _headers_of(error)
    return answer(request, status, code=error.code, detail=str(error), further=further, headers=headers)


def _headers_of(error: KronError) -> Mapping[str, str] | None:
    """Return the headers that say how to retry or authenticate."""
    if isinstance(error, UnauthenticatedError):
        return {"WWW-Authenticate": 'Bearer realm="kron"'}
    if isinstance(error, LimitExceededError | OverloadedError) and error.wait_s is not None:
        return {"Retry-After": str(error.wait_s)}
    if isinstance(error, StoreUnavailableError):
        return {"Retry-After": RETRY_AFTER_S}
    return None


def of_validation(request: Request, error: Exception) -> JSONResponse:
    """Return the response for a body or parameters of the wrong shape."""
    assert isinstance(error, RequestValidationError)
    problems = [_problem_of(fault) for fault in error.errors()[:MAX_PROBLEMS]]
    detail = "; ".join(map(str, problems))
    further: Document = {"problems": [_shown(problem) for problem in problems]}
    return answer(request, HTTPStatus.BAD_REQUEST, code="invalid_request", detail=detail, further=further)


def _problem_of(fault: Mapping[str, object]) -> Problem:
    """Return a validation error of the framework as a problem."""
    place = fault["loc"]
    path = ".".join(map(str, place)) if isinstance(place, Sequence) else str(place)
    match fault["type"], fault.get("ctx"):
        case "json_invalid", {"error": reason}:
            return Problem("body", None, f"is not JSON at character {path.removeprefix('body.')}: {reason}")
        case "is_instance_of" | "model_attributes_type", _ if path == "body":
            reason = "must be a JSON object, sent with the header content-type: application/json"
            return Problem(path, None, reason)
        case "missing", _ if path == "body":
            return Problem(path, None, "is missing; send a JSON object")
    given = fault.get("input")
    reason = "must be a JSON object" if fault["type"] == "is_instance_of" else str(fault["msg"])
    return Problem(path, given if isinstance(given, str | int | float) else None, reason)


def of_http(request: Request, error: Exception) -> JSONResponse:
    """Return the response for an error of the framework."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if error.detail == UNPARSED:
        further: Document = {"problems": [_shown(Problem("body", None, UNREADABLE))]}
        detail = f"body: {UNREADABLE}"
        return answer(request, status, code="invalid_request", detail=detail, further=further)
    code = status.name.lower()
    return answer(request, status, code=code, detail=str(error.detail), headers=error.headers)


def of_disconnect(request: Request, _error: Exception) -> JSONResponse:
    """Return the response for a request whose client went before all of its body came: it is not read."""
    return answer(request, HTTPStatus.BAD_REQUEST, code="bad_request", detail="the request was cut off")


def of_refusal(request: Request, error: Exception) -> JSONResponse:
    """Return the response for a request that the middleware rejects."""
    return of_error(request, error) if isinstance(error, KronError) else of_http(request, error)


def of_mistake(request: Request, _error: Exception) -> JSONResponse:
    """Return the response for a bug in Kron; the log has the traceback."""
    detail = "internal error; the log has the traceback"
    return answer(request, HTTPStatus.INTERNAL_SERVER_ERROR, code="internal", detail=detail)


def answer(
    request: Request,
    status: HTTPStatus,
    *,
    code: str,
    detail: str,
    further: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem document."""
    document = {
        "type": f"urn:kron:error:{code}",
        "title": status.phrase,
        "status": status.value,
        "detail": _written(detail, MAX_DETAIL),
        "code": code,
        **(further or {}),
        "instance": _written(request.url.path),
        "request_id": request.scope.get("request_id"),
    }
    return JSONResponse(document, status, headers=headers, media_type=MEDIA_TYPE)


def _problems_of(error: KronError) -> Sequence[Problem]:
    problems: Sequence[Problem] = getattr(error, "problems", ())
    if problems or not isinstance(error, InputError):
        return problems
    option = error.details.get("option")
    return [Problem(str(option or ""), error.details.get("value"), str(error.details.get("reason", error)))]


def _shown(problem: Problem) -> Document:
    value = None if problem.value is None else _written(quoted(problem.value))
    return {"path": _written(problem.path), "value": value, "reason": _written(problem.reason)}


def _written(text: str, most: int = MAX_TEXT) -> str:
    """Return a text that UTF-8 can encode, cut to a length, whatever the request contained."""
    shown = text if len(text) <= most else f"{text[:most]}..."
    return shown.encode("utf-8", "replace").decode("utf-8")
