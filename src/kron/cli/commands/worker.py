"""`kron worker`: runs the schedules of a store, without the API."""

import os

from kron.cli.main import GOOD
from kron.cli.support.extra import importing
from kron.cli.support.option import Config, StoreUrl
from kron.fronts.service.settings import Settings, read_settings


def worker_command(store: StoreUrl = None, config: Config = None) -> int:
    """Run the schedules of a store, without the API.

    It runs until SIGTERM or Ctrl-C.
    Of several workers on one store, one runs all schedules; the others stand by, and take over when it stops
    or crashes. With KRON_WORKERS=shared, on PostgreSQL, they share the schedules.

    \b
    Examples:
      kron worker --store sqlite:///kron.db
      kron worker --store postgresql://kron@db.example/kron
    """  # noqa: D301

    def read() -> Settings:
        return read_settings(os.environ, {"store": store}, file=config).settings

    settings = read()
    with importing("service"):
        from kron.fronts.service.serve import begin_logging, run_worker
    begin_logging(settings)
    run_worker(settings, reread=read)
    return GOOD
