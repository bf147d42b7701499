"""Rendering: templates, static files, security headers, forms, and error pages for browsers."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from fastapi import FastAPI
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from kron.core.job.outcome import Reason
from kron.core.plan.why import POLICIES
from kron.core.time.instant import rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.auth.principal import ANONYMOUS, READER, UNRESTRICTED, TokenScope, current_caller
from kron.fronts.service.compute_pool import ComputePool
from kron.fronts.service.web.time_text import PageTime, moment_of_text, span

PACKAGE = "kron.fronts.service.web"
# The methods of a page that changes nothing.
READ = ["GET", "HEAD"]
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# No external resources, no inline code, no framing.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# An instant in a document: RFC 3339 in UTC.
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
# Characters that begin a direction of text, each with the one that ends it, and the end of an isolate.
PDI, PDF = "\u2069", "\u202c"
DIRECTIONS = {**dict.fromkeys("\u2066\u2067\u2068", PDI), **dict.fromkeys("\u202a\u202b\u202d\u202e", PDF)}
# The characters of a field's value that a page shows; its form of an edit has them all.
MAX_VALUE = 4_000
# Fields of a form that are read.
MAX_FIELDS = 10
# A longer form is read beside the event loop: its escapes are decoded one by one.
LARGE_FORM = 16_384
IMMUTABLE = "public, max-age=31536000, immutable"
# Paths below these are pages, whatever the client accepts.
PAGES = ("/ui/", "/docs", "/static/")


class Asset(NamedTuple):
    """A static file, and a hash of its content."""

    body: bytes
    media: str
    version: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the static files by name."""
    by_name = {}
    for file in (files(PACKAGE) / "static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in MEDIA:
            body = file.read_bytes()
            by_name[file.name] = Asset(body, MEDIA[suffix], sha256(body).hexdigest()[:12])
    return by_name


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals |= {"asset": asset_url, "url": url_of}
    environment.filters |= {
        "span": span,
        "number": "{:,}".format,
        "prose": prose,
        "instant": instant_of,
        "told": told,
        "why_dropped": why_dropped,
        "closed": closed,
        "bounded": bounded,
        "filled": filled,
        "json": partial(json.dumps, ensure_ascii=False),
    }
    environment.tests["instant"] = is_instant
    return environment


def asset_url(name: str) -> str:
    """Return the URL of a static file, which changes with its content."""
    return f"/static/{quote(name)}?v={assets()[name].version}"


def url_of(path: str, **parameters: str | None) -> str:
    """Return a URL of this service; empty parameters are left out."""
    present = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(present, quote_via=quote, safe='')}" if present else path


@pass_context
def instant_of(context: Context, text: str) -> PageTime:
    """Return an instant of a document as a page shows it: in the page's zone, and relative to its time.

    A page of one schedule has that schedule's zone as its `zone`; others have UTC.
    """
    return moment_of_text(text, context["now"], context.get("zone"))


@pass_context
def told(context: Context, text: str, zone: Zone | None = None) -> Markup:
    """Return a sentence as HTML, with a capital at its beginning and its instants as times.

    They are in a zone, such as that of the sentence's schedule, or in the page's.
    """
    whole, html, end = closed(text[:1].upper() + text[1:]), Markup(), 0
    for found in INSTANT.finditer(whole):
        time = moment_of_text(found[0], context["now"], zone or context.get("zone"))
        shown = Markup('<time datetime="{}" title="{}">{}</time>').format(time.iso, time.utc, time.local)
        html += escape(whole[end : found.start()]) + shown
        end = found.end()
    return html + escape(whole[end:])


def why_dropped(code: str) -> str:
    """Return why a resume drops periods, without the words that tell their outcome."""
    reason = Reason(code)
    return POLICIES.get(reason, reason.sentence.partition(": ")[2])


def closed(value: object) -> str:
    """Return a text that ends the directions that it begins, so that what stands beside it keeps its own.

    The element <bdi> ends only one isolate: a name with another would turn the words that follow it.
    """
    parts, ends = list[str](), list[str]()
    for character in str(value):
        if character in (PDI, PDF):
            # An end without a beginning would end that of the element. That of an isolate ends all inside it.
            if character not in ends or (character == PDF and ends[-1] != PDF):
                continue
            while ends.pop() != character:
                pass
        elif character in DIRECTIONS:
            ends.append(DIRECTIONS[character])
        parts.append(character)
    return "".join([*parts, *reversed(ends)])


def bounded(text: object) -> str:
    """Return the beginning of a long value: a page stays small, and the API has all of it."""
    whole = str(text)
    if len(whole) <= MAX_VALUE:
        return whole
    return f"{whole[:MAX_VALUE]}... ({len(whole):,} characters; the API has all)"


def filled(document: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields of a document that have a value."""
    return {name: value for name, value in document.items() if value not in (None, {}, [], "")}


def is_instant(value: object) -> bool:
    """Return whether a value of a document is an instant."""
    return isinstance(value, str) and INSTANT.fullmatch(value) is not None


def prose(text: str) -> Markup:
    """Return a sentence as HTML, with the parts between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


def render(template: str, **values: object) -> str:
    """Return the HTML of a template."""
    return _environment().get_template(template).render(values)


def page(text: str, status: int = 200) -> Response:
    """Return a page as a response."""
    return HTMLResponse(text, status, headers=HEADERS)


def to(path: str) -> Response:
    """Return a redirect after a form."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers=HEADERS)


async def rendered(template: str, now: int, code: int = 200, **values: object) -> Response:
    """Return a page for the current caller at an instant in milliseconds.

    It is rendered in a thread: that takes milliseconds, which the event loop of a worker cannot spare.
    """
    known = {"now": rfc3339(now // 1000), **_of_caller(), **values}
    return page(await asyncio.to_thread(render, template, **known), code)


def _of_caller() -> dict[str, object]:
    """Return what every page says of the current caller: who it is, and what it is offered."""
    caller = current_caller()
    return {
        "user": signed_in(),
        "has_token": caller.has_token,
        "may_run": caller.may(TokenScope.RUN),
        "may_write": caller.may(TokenScope.WRITE),
        "may_admin": caller.may(TokenScope.ADMIN),
    }


def signed_in() -> str | None:
    """Return the name of the authenticated caller, if any."""
    caller = current_caller()
    return None if any(caller is each for each in (UNRESTRICTED, READER, ANONYMOUS)) else caller.name


async def form_fields(request: Request) -> dict[str, str]:
    """Return the fields of a form, each with its first value; too many are none."""
    form = await request.body()
    if len(form) <= LARGE_FORM:
        return _fields_of(form)
    pool: ComputePool = request.app.state.compute_pool
    return await pool.run_always(_fields_of, form)


def _fields_of(form: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def asset(name: str) -> Response | None:
    """Return a static file as a response, or None."""
    file = assets().get(name)
    if file is None:
        return None
    headers = {"Cache-Control": IMMUTABLE, "X-Content-Type-Options": "nosniff"}
    return Response(file.body, media_type=file.media, headers=headers)


# --- error pages ---------------------------------------------------------------------------------


def for_browsers(
    app: FastAPI, answer: Callable[[Request, Exception], JSONResponse]
) -> Callable[[Request, Exception], Response]:
    """Return an error handler that answers requests for pages with a page, and others as the API does."""

    def answered(request: Request, error: Exception) -> Response:
        problem = answer(request, error)
        if not _wants_page(request, app):
            return problem
        document = json.loads(bytes(problem.body))
        return page(render("error.html", problem=document, **_of_caller()), problem.status_code)

    return answered


def _wants_page(request: Request, app: FastAPI) -> bool:
    path = request.scope["path"]
    if path == "/" or path.startswith(PAGES):
        return True
    if "text/html" not in request.headers.get("accept", ""):
        return False
    return _first_segment(path) not in map(_first_segment, app.state.api_paths)


def _first_segment(path: str) -> str:
    return path.removeprefix("/").partition("/")[0]
