"""The process of krond's pages: the API and the pages of the service, over the store of a krond."""

import asyncio
import os
import socket
import sys
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import Scope

from kron.app.notify.sender import NotifyOptions
from kron.app.signals import on_stop
from kron.cli.support.control import ControlClient, ControlError, registrar_of
from kron.clocks.system import SystemClock
from kron.fronts.daemon.control import may_control, name_of
from kron.fronts.daemon.daemon import NAMESPACE
from kron.fronts.daemon.pages import user_of_connection
from kron.fronts.daemon.place import StateFolder
from kron.fronts.service.app import app_of
from kron.fronts.service.auth.middleware import Authenticator, Need
from kron.fronts.service.auth.principal import ANONYMOUS, EVERYTHING, Caller, current_request_id
from kron.fronts.service.http_server import Server, server_of
from kron.fronts.service.security import server_options
from kron.fronts.service.settings import read_settings
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.metrics import Metrics

STRANGER = "only root and the user of this krond may use it"
# They name no job, and Prometheus has a user of its own.
FOR_ALL = "/metrics"


class HostUsers(Authenticator):
    """Knows callers by the user of the process at the other end of their connection, as the socket does.

    It is open: a browser of an admitted user sends no secret, so hosts and origins are checked.
    """

    def __init__(self) -> None:
        super().__init__(None, is_open=True)

    async def caller_of(self, scope: Scope, need: Need) -> Caller:
        """Return the caller of a request, or raise HTTPException for a user who may not control krond."""
        uid = await asyncio.to_thread(user_of_connection, tuple(scope["client"]), tuple(scope["server"]))
        if uid is not None and (may_control(uid) or scope["path"] == FOR_ALL):
            return Caller(f"krond:{name_of(uid)}", EVERYTHING, None, has_token=False)
        if need.scope is None:
            return ANONYMOUS
        raise HTTPException(HTTPStatus.FORBIDDEN, STRANGER)


def serve_pages(place: StateFolder, notify: NotifyOptions, number: int) -> None:
    """Serve on an open socket until the standard input ends, or SIGTERM."""
    asyncio.run(_serve(place, notify, socket.socket(fileno=number)))


async def _serve(place: StateFolder, notify: NotifyOptions, listening: socket.socket) -> None:
    clock, store, control = SystemClock(), SqliteStore(str(place.database)), ControlClient(place.socket)
    metrics = Metrics(store, clock, namespace=NAMESPACE, kind="sqlite", current_request=current_request_id)

    async def worker_status() -> tuple[str | None, str | None]:
        try:
            health = await control.call("health")
        except ControlError as error:
            return "failed", str(error)
        return health["worker"], health["error"]

    async def worker_metrics() -> str | None:
        try:
            text = await control.call("metrics")
        except ControlError:
            return None
        return None if text is None else str(text)

    metrics.other = worker_metrics
    own = {"host": listening.getsockname()[0], "process_folder": str(place.processes)}
    settings = read_settings({}, own).settings
    app = app_of(
        registrar_of(metrics.store, clock, notify),
        settings,
        authenticator=HostUsers(),
        worker_status=worker_status,
        metrics=metrics,
    )
    # A client's own word for its address would be another user's.
    server = server_of(app, {**server_options(settings), "proxy_headers": False})
    server.on_shutdown = app.state.live.close
    _end_with_input(server)
    try:
        await server.serve(sockets=[listening])
    finally:
        await store.close()


def _end_with_input(server: Server) -> None:
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def leave() -> None:
        server.should_exit = True

    def on_input() -> None:
        if not os.read(number, 4_096):
            loop.remove_reader(number)
            leave()

    loop.add_reader(number, on_input)
    on_stop(leave)
