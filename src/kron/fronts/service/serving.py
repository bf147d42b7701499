"""Serving: the API and a worker in one process, until a signal says it is enough."""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Protocol

import uvicorn

from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError
from kron.fronts.service.api import api_of
from kron.fronts.service.launching import workflow_launcher, workflows_of
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.run_launcher import RunLauncher, reporter_of
from kron.fronts.service.running import on_signals
from kron.fronts.service.settings import Settings
from kron.fronts.service.worker import Worker
from kron.launchers.callback import Callback
from kron.ports import Clock, Store
from kron.stores.url import open_store, open_workflows

_log = logging.getLogger("kron.service")
# How long a stop waits for requests under way, in seconds.
REQUESTS_S = 5
_BUSY = "something else listens there; stop it, or take another port: --port 8081, or --port 0 for a free one"


class Company(Protocol):
    """Who comes along: prepares the store, brings functions to call, and says where it is served."""

    async def prepare(self, store: Store, clock: Clock) -> None:
        """Do what is to be done before anything runs."""
        ...

    def callbacks(self, clock: Clock) -> Mapping[str, Callback]:
        """Return functions by schedule."""
        ...

    def announce(self, url: str) -> None:
        """Take note that the service answers there."""
        ...


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def serve(settings: Settings, company: Company | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    _check_host(settings)
    try:
        listening = socket.create_server(
            (settings.host, settings.port),
            family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET,
        )
    except OSError as cause:
        address = f"{settings.host}:{settings.port}"
        reason = _BUSY if cause.errno == errno.EADDRINUSE else str(cause)
        raise InvalidOptionError(option="address", value=address, reason=reason) from cause
    # Connections inherit it. Without it each answer waits 40 ms for the caller to acknowledge its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening:
        asyncio.run(_serve(settings, listening, company))


async def _serve(settings: Settings, listening: socket.socket, company: Company | None) -> None:
    store, clock = open_store(settings.store), SystemClock()
    database = open_workflows(settings.store)
    workflows = workflows_of(settings, database)
    worker = Worker(store, clock, settings, workflows=workflows)
    registrar = Registrar(store, clock, rules=settings.rules, call=worker.call, workflows=workflows)
    handing = workflow_launcher(clock, settings, workflows, worker.functions)
    launcher = RunLauncher(clock, handing, database, on_end=reporter_of(registrar))
    app = api_of(registrar, settings, ask_worker=lambda: (worker.state, worker.error), launcher=launcher)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=REQUESTS_S
    )
    server = _Server(config)
    if company is not None:
        await company.prepare(store, clock)
        worker.callbacks.update(company.callbacks(clock))

    def leave() -> None:
        server.should_exit = True
        worker.leave()

    on_signals(leave)
    working = asyncio.create_task(worker.run(), name="kron worker")
    # A worker that fails takes the service with it: whoever supervises it sees that, and starts it again.
    working.add_done_callback(lambda _: leave())
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listening.getsockname()[1]}"
    _log.info("serving on %s", url)
    if company is not None:
        company.announce(url)
    try:
        await server.serve(sockets=[listening])
        await working
    finally:
        await launcher.close()
        await database.close()
        await store.close()


def _check_host(settings: Settings) -> None:
    """Refuse an address that others can reach: nobody has to say who they are."""
    if settings.insecure or is_loopback(settings.host):
        return
    reason = "others could reach it and nobody has to say who they are; use 127.0.0.1, or --insecure"
    raise InvalidOptionError(option="host", value=settings.host, reason=reason)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
