"""One request that starts an execution: where it goes, what it says, and what its answer means."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from kron.core.instant import rfc3339
from kron.launchers.kind import HttpSettings
from kron.launchers.report import tidy
from kron.ports import Launch

# What is quoted of an answer in an error, and how long the name of a run may be.
MAX_QUOTED, MAX_RUN_ID = 200, 200
# What the other side may mean as "not now" although it says that the request is wrong.
NOT_NOW = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
# Shorter secrets are not looked for in errors: they would be found everywhere.
LEAST_SECRET = 4


class Target(NamedTuple):
    """An address taken apart: what may be shown and logged, and what may not."""

    shown: str
    query: str
    login: tuple[str, str] | None
    secrets: tuple[str, ...]


class Answer(NamedTuple):
    """What came of one request: accepted, perhaps with the run's name, or an error that may pass or not."""

    error: str | None = None
    run_id: str | None = None
    again: bool = False
    asked_s: float = 0.0


def target_of(settings: HttpSettings) -> Target:
    """Return what a request is sent to; user, password, query and headers are nobody's business."""
    url = urlsplit(settings.url)
    host = url.netloc.rpartition("@")[2]
    user, password = unquote(url.username or ""), unquote(url.password or "")
    login = (user, password) if url.username is not None else None
    values = (text for pair in parse_qsl(url.query, keep_blank_values=True) for text in pair[1:])
    written = (url.password or "", password, url.query, *values, *(text for _, text in settings.headers))
    secrets = sorted({text for text in written if len(text) >= LEAST_SECRET}, key=len, reverse=True)
    shown = urlunsplit((url.scheme, host, url.path, "", ""))
    return Target(shown, url.query, login, tuple(secrets))


def document_of(launch: Launch, settings: HttpSettings) -> dict[str, object]:
    """Return what is sent: the start arguments of SPEC 3, and which execution it is."""
    run = launch.run
    return {
        "workflow_id": settings.workflow_id,
        "version": settings.version,
        "user_id": settings.user_id,
        "scheduled_for": rfc3339(run.nominal_time),
        "idempotency_key": run.key,
        "identity": run.identity,
        "attempt": run.attempt,
        "fencing_token": run.token,
    }


def headers_of(launch: Launch, settings: HttpSettings, request_id: str | None = None) -> dict[str, str]:
    """Return the headers of a request; `request_id` names the one that somebody asked for the run with."""
    is_sendable = request_id is not None and request_id.isascii() and request_id.isprintable()
    return {
        **dict(settings.headers),
        **({"X-Request-Id": str(request_id)} if is_sendable else {}),
        "Content-Type": "application/json",
        # An answer that unpacks itself could fill the memory.
        "Accept-Encoding": "identity",
        "Idempotency-Key": launch.run.key,
        "Kron-Attempt": str(launch.run.attempt),
        "Kron-Fencing-Token": str(launch.run.token),
    }


def answer_of(target: Target, status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> Answer:
    """Return what an answer means: 2xx is accepted, most of 4xx is final, all else may pass."""
    if 200 <= status < 300:
        return Answer(run_id=_run_id_of(body))
    again = status in NOT_NOW or not 400 <= status < 500
    said = " ".join(tidy(body[: 4 * MAX_QUOTED].decode(errors="replace"), MAX_QUOTED).split())
    if 300 <= status < 400:
        said = "redirects are not followed"
    error = f"{target.shown} answered {status} {_phrase_of(status)}".rstrip() + (f": {said}" if said else "")
    return Answer(hidden(error, target), again=again, asked_s=_asked_s(headers.get("Retry-After"), now))


def hidden(text: str, target: Target) -> str:
    """Return a text without the secrets of a target, should it contain any."""
    for secret in target.secrets:
        text = text.replace(secret, "***")
    return text


def _phrase_of(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else ""


def _run_id_of(body: bytes) -> str | None:
    """Return the name the other side gave the run, if it did; whatever else it says does not matter."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    name = document.get("run_id") if isinstance(document, dict) else None
    if isinstance(name, bool) or not isinstance(name, str | int):
        return None
    text = str(name)
    return text if 0 < len(text) <= MAX_RUN_ID and text == tidy(text) else None


def _asked_s(text: str | None, now: datetime) -> float:
    """Return for how long the other side wishes to be left alone, in seconds."""
    if text is None:
        return 0.0
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    return 0.0
