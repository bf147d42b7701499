"""The jobs of the shop: plain Django code, called in threads."""

from collections.abc import Callable
from functools import wraps

from django.conf import settings
from django.db import close_old_connections

import kron
from shop.models import Report

# `wait`: of several processes that run the jobs, one does, and the others stand by.
runner = kron.Runner(settings.KRON_STATE, name="shop", wait=True)


def with_database(function: Callable[[kron.Run], None]) -> Callable[[kron.Run], None]:
    """Drop connections that the database has closed, as Django does around a request."""

    @wraps(function)
    def call(run: kron.Run) -> None:
        close_old_connections()
        try:
            function(run)
        finally:
            close_old_connections()

    return call


@runner.job(settings.REPORT_SCHEDULE, timezone="Europe/Berlin", deadline="10m", retry_delay="1m")
@with_database
def write_report(run: kron.Run) -> None:
    Report.objects.get_or_create(key=run.key, defaults={"due_at": run.nominal_time})
