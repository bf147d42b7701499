"""One request that starts an execution: where it goes, what it says, and what its answer means."""

import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from kron.core.redaction import replace_secrets, secrets_in_url
from kron.core.time.instant import rfc3339
from kron.launchers.celery.spec import CelerySettings
from kron.launchers.http.connection import Origin
from kron.launchers.report import plain_request_of, tidy
from kron.launchers.spec import HttpSettings
from kron.ports import Launch

# What is quoted of an answer in an error, and how long the name of a run may be.
MAX_QUOTED, MAX_RUN_ID = 200, 200
# What the other side may mean as "not now" although it says that the request is wrong.
NOT_NOW = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
# Thousands of launches have the same settings; so many different ones are remembered.
MAX_TARGETS = 1_024
PORTS = {"http": 80, "https": 443}
# Headers that Kron sends with some requests; what the settings say of them holds for the others.
MAYBE_OURS = {"x-request-id": "X-Request-Id", "kron-run-token": "Kron-Run-Token"}
# What a path may contain as it is; what a percent sign begins is encoded already.
_IN_PATH = "/%:@!$&'()*+,;=~"


class Target(NamedTuple):
    """An address taken apart: what may be shown and logged, and what may not.

    `head` is how every request to it begins; `usual` are headers that a request's own ones replace.
    """

    shown: str
    query: str
    origin: Origin
    head: str
    usual: Mapping[str, str]
    secrets: tuple[str, ...]


class DeliveryResult(NamedTuple):
    """What came of one request: accepted, perhaps with the run's name, or an error that may pass or not."""

    error: str | None = None
    run_id: str | None = None
    again: bool = False
    asked_s: float = 0.0


@lru_cache(maxsize=MAX_TARGETS)
def target_of(settings: HttpSettings) -> Target:
    """Return what a request is sent to; user, password, query and headers are nobody's business."""
    url = urlsplit(settings.url)
    host = url.netloc.rpartition("@")[2]
    user, password = unquote(url.username or ""), unquote(url.password or "")
    login = None if url.username is None else f"{user}:{password}"
    inside = secrets_in_url(settings.url, every_parameter=True)
    secrets = (*inside, url.query, *(text for _, text in settings.headers))
    shown = urlunsplit((url.scheme, host, url.path, "", ""))
    port = url.port or PORTS[url.scheme]
    origin = Origin(url.scheme, (url.hostname or "").lower(), port)
    sent = {MAYBE_OURS.get(name.lower(), name): text for name, text in settings.headers}
    usual = {name: sent.pop(name) for name in MAYBE_OURS.values() if name in sent}
    if login is not None:
        sent = {name: text for name, text in sent.items() if name.lower() != "authorization"}
        sent["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    return Target(shown, url.query, origin, _head_of(url, origin, sent), usual, secrets)


def _head_of(url: SplitResult, origin: Origin, headers: Mapping[str, str]) -> str:
    """Return the first line of every request, and the headers that all of them have."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    port = "" if origin.port == PORTS[origin.scheme] else f":{origin.port}"
    path = quote(url.path, safe=_IN_PATH) or "/"
    lines = [f"POST {path}{'?' if url.query else ''}{url.query} HTTP/1.1", f"Host: {host}{port}"]
    if "user-agent" not in map(str.lower, headers):
        lines.append("User-Agent: kron")
    return "\r\n".join([*lines, *(f"{name}: {text}" for name, text in headers.items())])


def written(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a request as it is sent."""
    lines = "".join([f"{name}: {text}\r\n" for name, text in {**target.usual, **headers}.items()])
    return f"{target.head}\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def document_of(launch: Launch, settings: HttpSettings | CelerySettings) -> dict[str, object]:
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


def headers_of(launch: Launch) -> dict[str, str]:
    """Return a request's own headers, among them by which request somebody asked for the run."""
    request_id = plain_request_of(launch)
    return {
        **({} if request_id is None else {"X-Request-Id": request_id}),
        "Content-Type": "application/json",
        # An answer that unpacks itself could fill the memory.
        "Accept-Encoding": "identity",
        "Idempotency-Key": launch.run.key,
        "Kron-Attempt": str(launch.run.attempt),
        "Kron-Fencing-Token": str(launch.run.token),
    }


def answer_of(
    target: Target, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> DeliveryResult:
    """Return what an answer means: 2xx is accepted, most of 4xx is final, all else may pass.

    The names of the headers are in lower case.
    """
    if 200 <= status < 300:
        return DeliveryResult(run_id=_run_id_of(body))
    again = status in NOT_NOW or not 400 <= status < 500
    said = " ".join(tidy(body[: 4 * MAX_QUOTED].decode(errors="replace"), MAX_QUOTED).split())
    if 300 <= status < 400:
        said = "redirects are not followed"
    error = f"{target.shown} answered {status} {_phrase_of(status)}".rstrip() + (f": {said}" if said else "")
    return DeliveryResult(
        hidden(error, target), again=again, asked_s=_asked_s(headers.get("retry-after"), now)
    )


def hidden(text: str, target: Target) -> str:
    """Return a text without the secrets of a target."""
    return replace_secrets(text, target.secrets)


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
