"""The jobs of krond's files: loaded together, planned, and applied in one transaction.

A file that cannot be read keeps its earlier jobs, and stops no other file. A job with the schedule `@reboot`
has one run of the kind `boot` for each boot of the host.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kron.app.apply import AppliedChange, AppliedKind, replace_definitions
from kron.app.catalog import Catalog, JobDefinition
from kron.app.launchers import read_launcher, settings_of
from kron.app.preview import text_of
from kron.core.fields import suggestion
from kron.core.job.host import OnRemove
from kron.core.job.job import Job
from kron.core.plan.compiled import compiled_job
from kron.core.plan.next_start import next_start
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord, RunKind
from kron.core.plan.step import JobState
from kron.core.time.instant import rfc3339
from kron.launchers.process.spec import ProcessSettings
from kron.launchers.spec import InvalidLauncherError, launcher_kind_of, launcher_text_of

_log = logging.getLogger("kron.krond")
# Jobs read at once at a boot.
BOOT_PAGE = 1_000
NO_COMMAND = "has neither a command nor a launcher"
# The longest identity, in bytes: it is part of the record of each process.
MAX_IDENTITY = 255
# Jobs that a plan lists at most.
MAX_LISTED = 100
# Jobs of files have the path of their file as the name of their set; other sets stay as they are.
IN_FILE = "/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJobs:
    """The jobs of all files, by file; `problems` are by the file that has them, each with its line.

    `lines` have, for each file, the line of its n-th job. `notes` are remarks that stop nothing.
    """

    jobs: Mapping[str, Sequence[Job]] = field(default_factory=dict)
    lines: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def place_of(self, file: str, number: int) -> str:
        """Return a file with the line of its n-th job."""
        return f"{file}:{self.lines[file](number)}" if file in self.lines else file


# Reads all files again.
Load = Callable[[], LoadedJobs]


def definitions_of(
    loaded: LoadedJobs, channels: Collection[str] = ()
) -> tuple[list[JobDefinition], dict[str, list[str]]]:
    """Return the definitions to apply, and the problems of files that only a launcher or the channels show.

    A file with such a problem keeps its earlier jobs, as one that cannot be read.
    """
    problems = {file: list(each) for file, each in loaded.problems.items()}
    definitions: list[JobDefinition] = []
    for file, jobs in loaded.jobs.items():
        own: list[JobDefinition] = []
        for number, job in enumerate(jobs):
            try:
                own.append(_definition_of(job, file, channels))
            except InvalidLauncherError as error:
                place = loaded.place_of(file, number)
                problems.setdefault(file, []).extend(
                    f'{place}: job "{job.identity}": {each}' for each in error.problems
                )
            except LookupError as error:
                place = loaded.place_of(file, number)
                problems.setdefault(file, []).append(f'{place}: job "{job.identity}" {error.args[0]}')
        if file not in problems:
            definitions += own
    return definitions, problems


def _definition_of(job: Job, file: str, channels: Collection[str]) -> JobDefinition:
    if job.launcher is None:
        raise LookupError(NO_COMMAND)
    if len(job.identity.encode()) > MAX_IDENTITY:
        raise LookupError(f"has a name of more than {MAX_IDENTITY} bytes")
    for name in () if job.notify is None else job.notify.channels():
        if name not in channels:
            known = suggestion(name, sorted(channels)) if channels else "krond --settings names them"
            raise LookupError(f'notifies "{name}", which is not a channel: {known}')
    settings = read_launcher(job.launcher)
    return JobDefinition(job, launcher_text_of(settings), launcher_kind_of(settings), None, file)


class Reloaded(NamedTuple):
    """What a reload did, as it passes from the process that loads to the daemon.

    `ends` are removed jobs whose running processes are ended with them.
    """

    plan: Sequence[str]
    errors: Sequence[str]
    notes: Sequence[str]
    ends: Sequence[str]
    jobs: int


def reloaded_of(
    changes: Sequence[AppliedChange], problems: Mapping[str, Sequence[str]], notes: Sequence[str], *, now: int
) -> Reloaded:
    """Return a reload for people: totals, then each job that is not the same as before, and the problems."""
    kinds = [change.kind for change in changes]
    names = {AppliedKind.CREATED: "new", AppliedKind.DELETED: "removed", AppliedKind.UNCHANGED: "preserved"}
    totals = [f"{kinds.count(kind)} {names.get(kind, kind.value)}" for kind in AppliedKind if kind in kinds]
    differing = [change for change in changes if change.kind is not AppliedKind.UNCHANGED]
    more = [f"and {len(differing) - MAX_LISTED} more"] if len(differing) > MAX_LISTED else []
    errors: list[str] = []
    for file, lines in problems.items():
        errors += [*lines, f"{file}: its earlier jobs stay as they were"]
    removed = [change.before for change in changes if change.kind is AppliedKind.DELETED]
    return Reloaded(
        plan=[
            f"jobs: {', '.join(totals) or 'none'}",
            *(_line_of(change, now) for change in differing[:MAX_LISTED]),
            *more,
        ],
        errors=errors,
        notes=notes,
        ends=[record.identity for record in removed if record is not None and _terminates(record)],
        jobs=sum(change.after is not None for change in changes),
    )


def _line_of(change: AppliedChange, now: int) -> str:
    before, after = _next(change.before, now), _next(change.after, now)
    if change.kind is AppliedKind.CREATED:
        return f"+ {change.identity}: starts {after}"
    if change.kind is AppliedKind.DELETED:
        return f"- {change.identity}: would have started {before}"
    moves = f"moves from {before} to {after}" if before != after else f"stays {after}"
    effect = "" if change.effect is None else f"; {text_of(change.effect)}"
    return f"~ {change.identity}: next start {moves}{effect}"


def _next(record: JobRecord | None, now: int) -> str:
    """Return when a job starts next by its definition: the time that is chosen in the window.

    A pause is a person's, and no part of the plan of files.
    """
    if record is None:
        return "never"
    if compiled_job(record.definition, record.identity).job.schedule.is_boot:
        return "at boot"
    start = next_start(JobState(record._replace(deleted_at=None, paused=0)), now).start_at
    if start is not None:
        return rfc3339(start // 1000)
    return "never, it is suspended" if record.suspended else "never"


def _terminates(record: JobRecord) -> bool:
    try:
        settings = settings_of(record.launcher)
    except InvalidLauncherError:
        return False
    return isinstance(settings, ProcessSettings) and settings.on_remove is OnRemove.TERMINATE


async def reload_jobs(
    catalog: Catalog, load: Load, channels: Collection[str] = (), *, dry_run: bool = False
) -> Reloaded:
    """Load all files, plan, and apply the plan in one transaction; a dry run only plans."""
    loaded = await asyncio.to_thread(load)
    definitions, problems = await asyncio.to_thread(definitions_of, loaded, channels)

    def is_gone(record: JobRecord) -> bool:
        file = record.applied_set
        if file is None or not file.startswith(IN_FILE):
            return False
        # A folder that cannot be read is a problem of all files below it.
        return not any(file == broken or file.startswith(f"{broken}/") for broken in problems)

    changes = await replace_definitions(
        catalog, definitions, is_gone=is_gone, compute=partial(asyncio.to_thread), dry_run=dry_run
    )
    return reloaded_of(changes, problems, loaded.notes, now=catalog.now())


def log_reload(reloaded: Reloaded) -> None:
    """Log a plan that was applied, and the problems of files whose earlier jobs stay."""
    for line in reloaded.errors:
        _log.error("%s", line)
    for line in (*reloaded.notes, *reloaded.plan):
        _log.info("%s", line)


# --- `schedule: "@reboot"` -------------------------------------------------------------------------


async def start_boot_jobs(catalog: Catalog, boot_id: str) -> None:
    """Request the run of a boot for every job that has one.

    The boot id is the request: however often krond starts, a boot starts each job once.
    """
    async for record in _boot_jobs(catalog):
        await catalog.run_now(record.identity, boot_id, kind=RunKind.BOOT)


async def _boot_jobs(catalog: Catalog) -> AsyncIterator[JobRecord]:
    after = ""
    while True:  # each page starts after the last name of the one before
        page = await catalog.query.jobs(JobFilter(), after=after, limit=BOOT_PAGE)
        for record, _ in page:
            # Only a job without a next time can be one, so that the others are not compiled.
            if record.next_time is None and _is_boot(record):
                yield record
        if len(page) < BOOT_PAGE:
            return
        after = page[-1].job.identity


def _is_boot(record: JobRecord) -> bool:
    return compiled_job(record.definition, record.identity).job.schedule.is_boot
