"""`kron serve`: the service, its API and a worker in one process."""

import os
from typing import Annotated

import typer

from kron.cli.config import Config
from kron.cli.main import GOOD
from kron.cli.worker import StoreUrl, begin_logging
from kron.core.errors import InvalidOptionError
from kron.fronts.service.settings import read_settings

INSTALL = "the service needs a few packages more: pip install 'kron-scheduler[service]'"
Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen (127.0.0.1, or KRON_HOST).")
]
Port = Annotated[
    int | None, typer.Option("--port", metavar="N", help="The port; 0 takes a free one (8080, or KRON_PORT).")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen on an address others can reach, without authentication.")
]


def serve_command(
    host: Host = None,
    port: Port = None,
    store: StoreUrl = None,
    config: Config = None,
    insecure: Insecure = False,
) -> int:
    """Serve the API over the schedules of a store and look after them, until SIGTERM or Ctrl-C.

    \b
    Examples:
      kron serve
      kron serve --port 0 --store sqlite:///kron.db
      kron serve --store postgresql://kron@db.example/kron
    """  # noqa: D301
    options = {"host": host, "port": port, "store": store, "insecure": insecure or None}
    settings = read_settings(os.environ, options, file=config).settings
    try:
        from kron.fronts.service.serving import serve
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="installation", value=cause.name, reason=INSTALL) from cause
    begin_logging(settings)
    serve(settings)
    return GOOD
