"""A worker that is killed as soon as its first launch was accepted, before that is recorded."""

import asyncio
import os
import signal

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import read_settings
from kron.ports import ReportSink
from kron.stores.url import open_store
from kron.telemetry.meters import LauncherMeter
from kron.telemetry.request_trail import RequestTrail


class Deadly(LauncherMeter):
    """A launcher whose first word is the last."""

    def start(self, launch: Launch, hear: ReportSink) -> None:
        super().start(launch, lambda report: os.kill(os.getpid(), signal.SIGKILL))


async def main() -> None:
    settings, clock = read_settings(os.environ, {}).settings, SystemClock()
    store = open_store(settings.store)
    trail = RequestTrail(store, NAMESPACE)
    await ServiceWorker(store, clock, settings, wrap=lambda _, launcher: Deadly(launcher, clock, trail)).run()


if __name__ == "__main__":
    asyncio.run(main())
