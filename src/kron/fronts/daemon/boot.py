"""Jobs that start when the host boots (`schedule: "@reboot"`): one run of the kind `boot` for each boot."""

from collections.abc import AsyncIterator

from kron.app.catalog import Catalog
from kron.core.plan.compiled import compiled_job
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord, RunKind

# Jobs read at once.
PAGE = 1_000


async def start_boot_jobs(catalog: Catalog, boot_id: str) -> None:
    """Request the run of a boot for every job that has one.

    The boot id is the request: however often krond starts, a boot starts each job once.
    """
    async for record in _boot_jobs(catalog):
        await catalog.run_now(record.identity, boot_id, kind=RunKind.BOOT)


async def _boot_jobs(catalog: Catalog) -> AsyncIterator[JobRecord]:
    after = ""
    while True:  # each page starts after the last name of the one before
        page = await catalog.query.jobs(JobFilter(), after=after, limit=PAGE)
        for record, _ in page:
            # Only a job without a next time can be one, so that the others are not compiled.
            if record.next_time is None and _is_boot(record):
                yield record
        if len(page) < PAGE:
            return
        after = page[-1].job.identity


def _is_boot(record: JobRecord) -> bool:
    return compiled_job(record.definition, record.identity).job.schedule.is_boot
