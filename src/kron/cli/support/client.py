"""The client of commands: a server, or a store without one, and how responses are printed."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from kron.app.settings import PREFIX
from kron.cli.support.option import StoreUrl, did_you_mean, whole_number
from kron.cli.support.terminal import say
from kron.core.errors import InvalidOptionError, KronError, one_line
from kron.core.plan.query import JobFilter
from kron.fronts.daemon.place import default_place
from kron.fronts.service.client import LocalClient, PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import UnknownScheduleError
from kron.fronts.service.responses import View
from kron.fronts.service.settings import Settings, read_settings
from kron.ports import Store

if TYPE_CHECKING:
    from kron.fronts.service.http_client import RemoteClient

T = TypeVar("T")
# The name of the krond of this user, as a server, and that of the cluster of the kubeconfig.
KROND, CLUSTER = "krond", "kubernetes"
# A misspelt name is searched among those that contain its first characters.
SAME = 3
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Server to use: http://127.0.0.1:8080, krond, unix:PATH, or kubernetes (or KRON_SERVER, with "
        "KRON_TOKEN).",
    ),
]
Name = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name of the schedule.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="Maximum number of entries.  [default: 100]",
        parser=whole_number("--limit", 1, 10_000),
    ),
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", metavar="TEXT", help="Continue after the last page: its cursor.")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="Namespace in the store, e.g. embed:main or runner:main.  [default: service]",
    ),
]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="TEXT", help="Idempotency key: the same request runs once."),
]
__all__ = ["Cursor", "Limit", "Name", "RequestId", "Server", "StoreUrl"]


class Target(NamedTuple):
    """The server or the store that a command's options name; without either, the environment does.

    A namespace other than the service's is in a store.
    """

    server: str | None
    store: str | None
    namespace: str | None = None

    @property
    def server_url(self) -> str | None:
        """Return the URL of the server; None for a store."""
        if self.server is not None and self.store is not None:
            reason = "use --server or --store, not both"
            raise InvalidOptionError(option="--store", value="...", reason=reason)
        if self.server is None and self.store is None and self.namespace is None:
            return default_server() or _running_krond()
        if self.server is not None and self.namespace is not None:
            reason = "a server has one namespace; use --store"
            raise InvalidOptionError(option="--namespace", value=self.namespace, reason=reason)
        return self.server


def request(
    target: Target,
    send: Callable[[ServiceClient], Awaitable[T]],
    *,
    creates_store: bool = False,
    dry_run: bool = False,
) -> T:
    """Return the response of a target.

    A missing SQLite file is an error, unless the command `creates_store`; for its `dry_run` it is an empty
    store and stays missing.
    """
    server = target.server_url
    if server is not None and (socket := socket_of(server)) is not None:
        from kron.cli.support.control import ControlClient

        return asyncio.run(_sent(ControlClient(socket), send))
    if server is not None and (server == CLUSTER or server.startswith(f"{CLUSTER}:")):
        return asyncio.run(_sent_to_cluster(server.partition(":")[2] or None, send))
    if server is not None:
        return asyncio.run(_sent(remote_client(server), send))
    return asyncio.run(_sent_to_store(target, send, creates_store=creates_store, dry_run=dry_run))


def default_server() -> str | None:
    """Return the server that the environment names."""
    return os.environ.get(f"{PREFIX}SERVER") or None


def remote_client(url: str) -> "RemoteClient":
    """Return the client of a service, with the token that the environment has."""
    from kron.fronts.service.http_client import RemoteClient

    return RemoteClient(url, token=os.environ.get(f"{PREFIX}TOKEN") or None)


def socket_of(server: str) -> Path | None:
    """Return the control socket that a server's name stands for: `krond`, or `unix:PATH`; None for a URL."""
    if server == KROND:
        return default_place(os.environ).socket
    scheme, mark, path = server.partition(":")
    return Path(path.removeprefix("//")) if mark and scheme == "unix" else None


def _running_krond() -> str | None:
    """Return the krond of this user, if it has a socket and neither a store nor settings are named."""
    if any(os.environ.get(f"{PREFIX}{name}") for name in ("STORE", "STORE_FILE", "CONFIG")):
        return None
    from kron.stores.url import is_there

    has_store = is_there(read_settings({}, {}).settings.store_url)
    try:
        return KROND if not has_store and default_place(os.environ).socket.is_socket() else None
    except OSError:
        return None


def namespaces_in(target: Target) -> list[str]:
    """Return the namespaces of a store that have jobs; none for a server."""
    if target.server_url is not None:
        return []

    async def listed() -> list[str]:
        async with _opened(target.store) as (store, _):
            return await store.namespaces()

    return asyncio.run(listed())


async def _nowhere_else(_: str) -> str:
    return ""


async def _sent(
    client: ServiceClient,
    send: Callable[[ServiceClient], Awaitable[T]],
    elsewhere: Callable[[str], Awaitable[str]] = _nowhere_else,
) -> T:
    """Return a response; the error of an unknown schedule says where one is, or names the closest one."""
    try:
        return await send(client)
    except UnknownScheduleError as error:
        # The name is quoted in the message; a server's error has no other place for it.
        name = str(error).partition('"')[2].removesuffix('"')
        hint = await elsewhere(name) or await _closest(client, name)
        if not hint:
            raise
        raise MisspeltScheduleError(schedule_id=name, hint=hint) from error


async def _closest(client: ServiceClient, name: str) -> str:
    """Return a question that names the schedule with the closest name, among those that start like it."""
    with suppress(KronError):
        for start in (name[:SAME], ""):
            page = await client.schedules(JobFilter(search=start or None), PageRequest())
            hint = did_you_mean(name, [str(each["schedule_id"]) for each in objects_in(page, "schedules")])
            if hint:
                return hint
    return ""


class MisspeltScheduleError(UnknownScheduleError):
    """A schedule does not exist; the message names another that it may be."""

    def __init__(self, *, schedule_id: str, hint: str) -> None:
        super().__init__(schedule_id=schedule_id)
        self.args = (f"{self.args[0]}{hint}",)


async def _sent_to_cluster(context: str | None, send: Callable[[ServiceClient], Awaitable[T]]) -> T:
    from kron.cli.support.cluster import open_cluster

    async with open_cluster(context) as client:
        return await _sent(client, send)


async def _sent_to_store(
    target: Target, send: Callable[[ServiceClient], Awaitable[T]], *, creates_store: bool, dry_run: bool
) -> T:
    from kron.clocks.system import SystemClock
    from kron.fronts.service.auth.principal import EVERYTHING, Caller, acting_as
    from kron.fronts.service.registrar import NAMESPACE, Registrar

    async with _opened(target.store, creates_store=creates_store, dry_run=dry_run) as (store, settings):
        namespace = target.namespace or NAMESPACE
        if target.namespace is not None:
            check_namespace(namespace, await store.namespaces())
        registrar = Registrar(store, SystemClock(), rules=settings.rules, namespace=namespace)
        # A user who can open the store is admin; the audit log has their name.
        with acting_as(Caller(f"cli:{getuser()}", EVERYTHING, None)):
            elsewhere = partial(_elsewhere, store, namespace, target)
            return await _sent(LocalClient(registrar, settings), send, elsewhere)


async def _elsewhere(store: Store, namespace: str, target: Target, name: str) -> str:
    """Return with which option a schedule is found that a namespace of a store does not have."""
    options = [
        f"--namespace {other}"
        for other in await store.namespaces()
        if other != namespace and await store.cases(other, [name])
    ]
    if target.store is None and await _krond_has(name):
        options.append(f"--server {KROND}")
    where = " and ".join(options)
    return f" in the namespace {namespace} of the store; there is one with {where}" if where else ""


async def _krond_has(name: str) -> bool:
    """Return whether the krond of this user runs and has a schedule."""
    from kron.cli.support.control import ControlClient

    with suppress(KronError, OSError):
        socket = default_place(os.environ).socket
        return socket.is_socket() and bool(await ControlClient(socket).schedule(name))
    return False


def check_namespace(namespace: str, known: Sequence[str]) -> None:
    """Refuse a namespace that a store does not have."""
    if namespace not in known:
        stored = f"the store has {', '.join(known) or 'none'}{did_you_mean(namespace, known)}"
        raise InvalidOptionError(option="--namespace", value=namespace, reason=stored)


def check_store_exists(store_url: str) -> None:
    """Refuse a SQLite file that does not exist; a command that only reads or changes creates none."""
    from kron.stores.url import is_there

    if not is_there(store_url):
        reason = "the file does not exist; name a store, or a server with --server"
        raise InvalidOptionError(option="store", value=store_url, reason=reason)


@asynccontextmanager
async def _opened(
    store_url: str | None, *, creates_store: bool = False, dry_run: bool = False
) -> AsyncIterator[tuple[Store, Settings]]:
    """Open a store with the settings that name it; `request` says what a missing SQLite file is."""
    from kron.stores.url import is_there, open_store

    settings = read_settings(os.environ, {"store": store_url}).settings
    if not creates_store:
        check_store_exists(settings.store_url)
    is_empty = dry_run and not is_there(settings.store_url)
    store = open_store("memory://" if is_empty else settings.store_url)
    try:
        yield store, settings
    finally:
        await store.close()


# --- output --------------------------------------------------------------------------------------


def show_rows(rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows with aligned columns."""
    clean = [tuple(one_line(cell) for cell in row) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*clean, strict=True)]
    for row in clean:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show_fields(document: Mapping[str, object]) -> None:
    """Print the fields of a document that are neither null nor empty."""
    rows = [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in document.items()
        if value not in (None, [], {})
    ]
    show_rows(rows)


def show_more(page: View) -> None:
    """Print how to get the next page, if there is one."""
    if page["next_cursor"] is not None:
        say(f"more: --cursor {page['next_cursor']}")


def objects_in(document: View, name: str) -> list[Document]:
    """Return the list of objects in a field of a document."""
    objects = document.get(name)
    assert isinstance(objects, list), f"the service answers with a list of {name}"
    return objects


def text(value: object) -> str:
    """Format one value of a document; null is a dash."""
    return "-" if value is None else str(value)
