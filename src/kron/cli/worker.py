"""`kron worker`: looks after the schedules of a store, without the API."""

import logging
import os
from typing import Annotated

import typer

from kron.cli.config import Config
from kron.cli.main import GOOD
from kron.fronts.service.settings import Settings, read_settings

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where schedules are kept, e.g. sqlite:///kron.db (or KRON_STORE).",
    ),
]
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def worker_command(store: StoreUrl = None, config: Config = None) -> int:
    """Look after the schedules of a store until SIGTERM or Ctrl-C.

    Of several workers on one store one works; the others wait and take over when it stops or dies.

    \b
    Examples:
      kron worker --store sqlite:///kron.db
      kron worker --store postgresql://kron@db.example/kron
    """  # noqa: D301
    from kron.fronts.service.running import run_worker

    settings = read_settings(os.environ, {"store": store}, file=config).settings
    begin_logging(settings)
    run_worker(settings)
    return GOOD


def begin_logging(settings: Settings) -> None:
    """Log to standard error, as much as the settings say."""
    logging.basicConfig(level=settings.log_level.upper(), format=LOG_FORMAT)
    # Its line for each request says nothing that the run's own record does not.
    logging.getLogger("httpx").setLevel(logging.WARNING)
