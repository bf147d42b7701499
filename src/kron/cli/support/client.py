"""Where the service's verbs are asked: at a server, or directly at a store, with the same answers."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from getpass import getuser
from typing import Annotated, NamedTuple, TypeVar

import typer

from kron.cli.commands.worker import StoreUrl
from kron.cli.main import one_line
from kron.core.errors import InvalidOptionError
from kron.fronts.service.client import LocalClient, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.settings import PREFIX, read_settings

T = TypeVar("T")
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="The service to ask, e.g. http://127.0.0.1:8080 (or KRON_SERVER, with KRON_TOKEN).",
    ),
]
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule's name.")]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="Go on where the last page ended.")
]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="TEXT", help="Names the request: the same one runs once."),
]
__all__ = ["Cursor", "Name", "RequestId", "Server", "StoreUrl"]


class Where(NamedTuple):
    """Which desk the options of a command name; neither is what the environment says."""

    server: str | None
    store: str | None


def ask(where: Where, verb: Callable[[ServiceClient], Awaitable[T]], *, makes: bool = False) -> T:
    """Return what a desk answers; a SQLite file that is not there is made only by what `makes` schedules."""
    server, token = where.server, os.environ.get(f"{PREFIX}TOKEN") or None
    if server is not None and where.store is not None:
        raise InvalidOptionError(option="--store", value="...", reason="--server has a store of its own")
    if where.store is None:
        server = server or os.environ.get(f"{PREFIX}SERVER") or None
    if server is not None:
        from kron.fronts.service.http_client import RemoteClient

        return asyncio.run(_asked(RemoteClient(server, token=token), verb))
    return asyncio.run(_at_store(where.store, verb, makes=makes))


async def _asked(desk: ServiceClient, verb: Callable[[ServiceClient], Awaitable[T]]) -> T:
    return await verb(desk)


async def _at_store(
    store_url: str | None, verb: Callable[[ServiceClient], Awaitable[T]], *, makes: bool
) -> T:
    from kron.clocks.system import SystemClock
    from kron.fronts.service.auth.principal import EVERYTHING, Caller, calling
    from kron.fronts.service.registrar import Registrar
    from kron.stores.url import is_there, open_store

    settings = read_settings(os.environ, {"store": store_url}).settings
    if not makes and not is_there(settings.store_url):
        reason = "there is no such file; name a store, or a server with --server"
        raise InvalidOptionError(option="store", value=settings.store_url, reason=reason)
    store = open_store(settings.store_url)
    try:
        registrar = Registrar(store, SystemClock(), rules=settings.rules)
        # Whoever can open the store may do everything; the audit says who it was.
        with calling(Caller(f"cli:{getuser()}", EVERYTHING, None)):
            return await verb(LocalClient(registrar, settings))
    finally:
        await store.close()


def show_json(document: Mapping[str, object]) -> None:
    """Print a document for machines."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def show_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows with aligned columns, whatever stands in them."""
    clean = [tuple(one_line(cell) for cell in row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*clean, strict=True)]
    for row in clean:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_fields(document: Mapping[str, object]) -> None:
    """Print a document field by field; what is null or empty is left out."""
    shown = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in document.items()
        if value not in (None, [], {})
    ]
    show_rows(shown)


def objects_in(document: Document, name: str) -> list[Document]:
    """Return the objects that a document lists under a name."""
    found = document.get(name)
    assert isinstance(found, list), f"the service answers with a list of {name}"
    return found


def text(value: object) -> str:
    """Write one value of a document; what is null is a dash."""
    return "-" if value is None else str(value)
