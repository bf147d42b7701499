"""`kron serve`: the service, its API and a worker in two processes."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from kron.app.settings import Effective
from kron.app.signals import exiting_at_once
from kron.cli.main import GOOD
from kron.cli.support.extra import importing
from kron.cli.support.option import Config, StoreUrl
from kron.cli.support.terminal import say
from kron.core.errors import InvalidOptionError
from kron.fronts.service.settings import Settings, read_settings
from kron.launchers.callback import Callback
from kron.ports import Clock, Store

Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen (127.0.0.1, or KRON_HOST).")
]
Port = Annotated[
    int | None, typer.Option("--port", metavar="N", help="The port; 0 takes a free one (8080, or KRON_PORT).")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on an address others can reach, without authentication.")
]

Demo = Annotated[
    bool,
    typer.Option("--demo", help="Serve demo schedules with a history, stored in .kron/demo."),
]
Records = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", help="Show the records of another front, read-only, e.g. operator."
    ),
]


def serve_command(
    host: Host = None,
    port: Port = None,
    store: StoreUrl = None,
    config: Config = None,
    insecure: Insecure = False,
    demo: Demo = False,
    namespace: Records = None,
) -> int:
    """Serve the API and the pages of a store, and run its schedules.

    It runs until SIGTERM or Ctrl-C.

    \b
    Examples:
      kron serve
      kron serve --port 0 --store sqlite:///kron.db
      kron serve --store postgresql://kron@db.example/kron
      kron serve --demo
      kron serve --store postgresql://kron@db.example/kron --namespace operator
    """  # noqa: D301
    options = {"host": host, "port": port, "store": store, "insecure": insecure or None}

    def read() -> Settings:
        effective = read_settings(os.environ, options, file=config)
        return _for_demo(effective) if demo else effective.settings

    settings = read()
    with importing("service"):
        from kron.fronts.service.serve import begin_logging, serve, serve_records
    begin_logging(settings)
    if namespace is not None:
        if demo:
            reason = "a demo has its own schedules: use it without --demo"
            raise InvalidOptionError(option="--namespace", value=namespace, reason=reason)
        serve_records(settings, namespace, reread=read)
        return GOOD
    serve(settings, _Guide(settings) if demo else None, reread=read)
    return GOOD


def _for_demo(effective: Effective[Settings]) -> Settings:
    """Return the settings with the defaults of a demo: a small store, harmless commands, a short drain."""
    from kron.fronts.service.demo import COMMANDS, STORE

    usual = {"store": STORE, "allowed_commands": COMMANDS, "drain_ms": 500, "log_level": "warning"}
    unsaid = {name: value for name, value in usual.items() if name not in effective.given}
    return replace(effective.settings, **unsaid)  # type: ignore[arg-type]


class _Guide:
    """Prepares the demo, and prints its URLs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def prepare(self, store: Store, clock: Clock) -> None:
        from kron.fronts.service.demo import Demo
        from kron.testing import SimulatedClock

        # The demo fails on purpose, in the past and from now on; its pages show that better than a log.
        for name in ("kron.launchers", "kron.engine"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with exiting_at_once():
            is_new = await Demo(SimulatedClock).prepare(store, clock)
        if is_new:
            say("The demo's history was made by the engine, in virtual time.")
        else:
            say("The demo continues where it stopped.")

    def callbacks(self, clock: Clock) -> Mapping[str, Callback]:
        from kron.fronts.service.demo import callbacks

        return callbacks(clock)

    def announce(self, url: str) -> None:
        scheme, _, place = self._settings.store_url.partition(":///")
        say("", f"  Kron is running:  {url}", "")
        say(f"    the API         {url}/docs")
        if scheme == "sqlite":
            say(f"    the data        {place} (remove it to start over)")
        say("    Ctrl-C          stops it; the next start continues", "")
        sys.stdout.flush()
