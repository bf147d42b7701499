"""Rendering: templates, the files they use, and what a browser may do with a page."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from kron.fronts.service.web.time_text import span

PACKAGE = "kron.fronts.service.web"
MEDIA = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# Nothing comes from elsewhere, nothing is inline, nobody may frame a page.
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
FOR_EVER = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A file for browsers, and a name for its present content."""

    body: bytes
    media: str
    version: str


@cache
def assets() -> Mapping[str, Asset]:
    """Return the files of the pages by name."""
    found = {}
    for file in (files(PACKAGE) / "static").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in MEDIA:
            body = file.read_bytes()
            found[file.name] = Asset(body, MEDIA[suffix], sha256(body).hexdigest()[:12])
    return found


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
    environment.filters |= {"span": span, "number": "{:,}".format, "prose": prose}
    return environment


def asset_url(name: str) -> str:
    """Return where a file is; another content has another address."""
    return f"/static/{quote(name)}?v={assets()[name].version}"


def url_of(path: str, **parameters: str | None) -> str:
    """Return an address on this service; what is None or empty is left out."""
    given = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(given, quote_via=quote, safe='')}" if given else path


def prose(text: str) -> Markup:
    """Return a sentence in which what stands between backticks is code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


def render(template: str, **values: object) -> str:
    """Return a page."""
    return _environment().get_template(template).render(values)


def page(text: str, status: int = 200) -> Response:
    """Answer with a page."""
    return HTMLResponse(text, status, headers=HEADERS)


def asset(name: str) -> Response | None:
    """Answer with a file; None if there is no such file."""
    found = assets().get(name)
    if found is None:
        return None
    headers = {"Cache-Control": FOR_EVER, "X-Content-Type-Options": "nosniff"}
    return Response(found.body, media_type=found.media, headers=headers)
