"""Serves an operator until a signal: its loop, its probes and its metrics."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from kron.app.process import prepare_process
from kron.app.signals import on_stop
from kron.clocks.system import SystemClock
from kron.fronts.operator.operator import Operator, OperatorOptions, lease_name_of
from kron.fronts.operator.probes import ProbeServer
from kron.launchers.kubernetes.access import UNVERIFIED, ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from kron.stores.url import open_store

_log = logging.getLogger("kron.operator")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of a process that runs an operator.

    By default its Lease is in the namespace of its access, and that of one namespace has its name.
    """

    namespace: str | None = None
    lease_namespace: str | None = None
    lease_name: str | None = None
    lease_seconds: int = 15
    host: str = "127.0.0.1"
    port: int = 8081
    history_url: str | None = None


async def serve_operator(access: ClusterAccess, settings: OperatorSettings) -> None:
    """Run an operator until SIGTERM or SIGINT."""
    if access.is_unverified:
        _log.warning("%s", UNVERIFIED)
    prepare_process()
    api = ApiClient(access)
    options = OperatorOptions(
        namespace=settings.namespace,
        lease_namespace=settings.lease_namespace or access.namespace,
        lease_name=settings.lease_name or lease_name_of(settings.namespace),
        lease_duration=timedelta(seconds=settings.lease_seconds),
    )
    history = None if settings.history_url is None else open_store(settings.history_url)
    operator = Operator(api, SystemClock(), options, history=history)
    probes = ProbeServer(operator)
    port = await probes.start(settings.host, settings.port)
    _log.info("probes and metrics on http://%s:%d", settings.host, port)
    on_stop(operator.leave)
    try:
        await operator.run()
    finally:
        await probes.stop()
        api.close()
        await asyncio.sleep(0)
