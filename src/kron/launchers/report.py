"""Reports: what launchers say of an attempt, in texts that every store can keep."""

from datetime import timedelta

from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent, RunReport
from kron.core.redaction import hide_run_tokens
from kron.core.time.instant import EPOCH
from kron.ports import Clock, Launch

MILLISECOND = timedelta(milliseconds=1)
# What is kept of an error's text; more belongs in the log.
MAX_ERROR = 2_000
# What PostgreSQL cannot store, and what would tear a terminal apart.
_UNPRINTABLE = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\N{REPLACEMENT CHARACTER}")


def report_of(
    clock: Clock, run: RunRecord, happened: RunEvent, error: str | None = None, run_id: str | None = None
) -> RunReport:
    """Return the report that something happened to an attempt just now."""
    at = (clock.now() - EPOCH) // MILLISECOND
    text = None if error is None else tidy(hide_run_tokens(error))
    return RunReport(run.identity, run.key, run.attempt, happened, at, text, run_id)


def tidy(text: str, limit: int = MAX_ERROR) -> str:
    """Return a text cut to a length, without control characters and half characters."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return cut.encode(errors="replace").decode().translate(_UNPRINTABLE)


def plain_request_of(launch: Launch) -> str | None:
    """Return by which request somebody asked for a run, where a header or a variable can hold its id."""
    request_id = launch.request_id
    return request_id if request_id and request_id.isascii() and request_id.isprintable() else None
