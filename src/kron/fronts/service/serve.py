"""Serving: the API and a worker in one process, until a signal says it is enough."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Protocol

from kron.app.signals import on_stop
from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError
from kron.fronts.service.app import app_of
from kron.fronts.service.launchers import workflow_launcher, workflows_of
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.run_launcher import RunLauncher, reporter_of
from kron.fronts.service.run_worker import Reread, metrics_of, reload_log_level
from kron.fronts.service.security import (
    authenticator_of,
    check_security,
    requires_authentication,
    server_options,
)
from kron.fronts.service.settings import Settings
from kron.fronts.service.telemetry.server import address_of, listen, server_of
from kron.fronts.service.worker import ServiceWorker
from kron.launchers.callback import Callback
from kron.ports import Clock, Store
from kron.stores.url import open_store, open_workflows

_log = logging.getLogger("kron.service")


class ServeHooks(Protocol):
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


def serve(settings: Settings, company: ServeHooks | None = None, *, reread: Reread | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the settings again."""
    _check_host(settings)
    with listen(settings.host, settings.port) as listening:
        asyncio.run(_serve(settings, listening, company, reread))


async def _serve(
    settings: Settings, listening: socket.socket, company: ServeHooks | None, reread: Reread | None
) -> None:
    clock = SystemClock()
    authenticator = authenticator_of(settings, clock)
    await authenticator.begin()
    opened = open_store(settings.store_url, lease_ms=settings.lease_ms)
    panel = metrics_of(settings, opened, clock)
    store = panel.store
    database = open_workflows(settings.store_url)
    workflows = workflows_of(settings, database)
    worker = ServiceWorker(store, clock, settings, workflows=workflows, journal=panel, wrap=panel.measured)
    panel.observe(worker)
    registrar = Registrar(store, clock, rules=settings.rules, call=worker.call, workflows=workflows)
    handing = workflow_launcher(clock, settings, workflows, worker.functions)
    launcher = RunLauncher(clock, handing, database, on_end=reporter_of(registrar))
    app = app_of(
        registrar,
        settings,
        authenticator=authenticator,
        ask_worker=lambda: (worker.state, worker.error),
        launcher=launcher,
        panel=panel,
    )
    server = server_of(app, server_options(settings))
    if company is not None:
        await company.prepare(store, clock)
        worker.callbacks.update(company.callbacks(clock))

    def leave() -> None:
        server.should_exit = True
        worker.leave()

    on_stop(leave)
    reload_log_level(reread)
    working = asyncio.create_task(worker.run(), name="kron worker")
    # A worker that fails takes the service with it: whoever supervises it sees that, and starts it again.
    working.add_done_callback(lambda _: leave())
    url = _say_where(settings, listening)
    if company is not None:
        company.announce(url)
    try:
        await server.serve(sockets=[listening])
        await working
    finally:
        await launcher.close()
        await database.close()
        await store.close()


def _say_where(settings: Settings, listening: socket.socket) -> str:
    """Say and return where the service is, and who may use it if that is everybody."""
    scheme = "http" if settings.tls_certificate is None else "https"
    url = address_of(settings.host, listening, scheme=scheme)
    _log.info("serving on %s", url)
    if not (requires_authentication(settings) or is_loopback(settings.host)):
        _log.warning("others can reach it, nobody has to say who they are, and everybody may do everything")
    return url


def _check_host(settings: Settings) -> None:
    """Refuse an address that others can reach where nobody has to say who they are."""
    check_security(settings)
    if settings.insecure or requires_authentication(settings) or is_loopback(settings.host):
        return
    reason = (
        "others could reach it and nobody has to say who they are; "
        "set jwt_keys or jwt_secret_file (see kron token), use 127.0.0.1, or --insecure"
    )
    raise InvalidOptionError(option="host", value=settings.host, reason=reason)


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
