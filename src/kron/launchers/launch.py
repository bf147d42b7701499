"""What every launcher does with a launch: check its lease, describe the start, report on it."""

from typing import TypeAlias

from kron.core.plan.compiled import cached_by_text
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.report import Launch, LeaseStatus, RunEvent, RunReport, full_report
from kron.core.redaction import hide_run_tokens
from kron.core.time.instant import EPOCH, MILLISECOND, rfc3339
from kron.launchers.backoff import sleep_for
from kron.launchers.spec import MAX_CACHED, InvalidLauncherError, LauncherSettings, launcher_document
from kron.ports import Clock

# The key of a run, and the number of its attempt.
Attempt: TypeAlias = tuple[str, int]
# How long a launch with a lapsed lease waits before it checks again; a renewal takes longer.
LAPSED_S = 0.25
# How much of an error a report keeps; the rest belongs in the log.
MAX_ERROR = 2_000
# Characters that PostgreSQL cannot store, or that would garble a terminal.
_UNPRINTABLE = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 127), "\N{REPLACEMENT CHARACTER}")


class StartWithheldError(Exception):
    """A start was not sent, because its lease is not held any more."""


def tenant_of(launch: Launch) -> str:
    """Return the user a run is for; that of a workflow is in its metadata, its launcher is the executor's."""
    if launch.payload is not None:
        return launch.payload.facts.get("user_id", "")
    return user_of(launch.job)


def user_of(job: JobRecord) -> str:
    """Return the user a job is for, or an empty text."""
    return _user_in(job.launcher)


@cached_by_text(MAX_CACHED)
def _user_in(launcher: str) -> str:
    try:
        return str(launcher_document(launcher).get("user_id") or "")
    except InvalidLauncherError:
        return ""


def check_lease(launch: Launch) -> None:
    """Raise StartWithheldError unless the lease is held; to be called directly before anything is sent."""
    if launch.lease_status is not None and launch.lease_status() is not LeaseStatus.HELD:
        raise StartWithheldError


def lease_is_lost(launch: Launch) -> bool:
    """Return whether another worker owns the run now, or has owned it since."""
    return launch.lease_status is not None and launch.lease_status() is LeaseStatus.LOST


async def may_start(clock: Clock, launch: Launch) -> bool:
    """Return True at once while the lease is held, else when it is renewed; False where it was lost."""
    if launch.lease_status is None:
        return True
    # A lapsed lease is renewed, or it is lost to another worker or with its owner.
    while (status := launch.lease_status()) is LeaseStatus.LAPSED:
        await sleep_for(clock, LAPSED_S)
    return status is LeaseStatus.HELD


def start_arguments(launch: Launch, settings: LauncherSettings) -> dict[str, object]:
    """Return the start arguments of SPEC 3, with the run's identity, attempt, token and data interval."""
    run = launch.run
    return {
        "workflow_id": settings.workflow_id,
        "version": settings.version,
        "user_id": settings.user_id,
        "scheduled_for": rfc3339(run.nominal_time),
        "idempotency_key": run.key,
        "identity": run.identity,
        "attempt": run.attempt,
        "fencing_token": run.token,
        **launch.data_interval.to_dict(),
    }


def plain_request_of(launch: Launch) -> str | None:
    """Return the id of the request that created a run, if a header or a variable can carry it."""
    request_id = launch.request_id
    return request_id if request_id and request_id.isascii() and request_id.isprintable() else None


def report_of(
    clock: Clock, run: RunRecord, event: RunEvent, error: str | None = None, run_id: str | None = None
) -> RunReport:
    """Return the report of an event of an attempt, at the present time."""
    at = (clock.now() - EPOCH) // MILLISECOND
    text = None if error is None else tidy(hide_run_tokens(error))
    return full_report((run.identity, run.key, run.attempt, event, at, text, run_id))


def tidy(text: str, limit: int = MAX_ERROR) -> str:
    """Return a text cut to a length, without control characters and lone surrogates."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return cut.encode(errors="replace").decode().translate(_UNPRINTABLE)
