"""A suggestion of the fleet's page: the plan of what it moves, and the edit of all its schedules at once."""

import json
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from kron.app.budget import CpuBudget
from kron.core.errors import InvalidOptionError
from kron.core.fields import parse_instant
from kron.core.job.decision import starts_between
from kron.core.job.job import Job
from kron.core.plan.compiled import compiled_job
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord
from kron.fronts.service.client import LocalClient
from kron.fronts.service.definitions import definition_document, edited_definitions
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import ChangedError
from kron.fronts.service.registrar import Registrar, check_etag, etag_of
from kron.fronts.service.web.fleet import MAX_SPREAD, Remedy, Suggestion, change_of, remedied
from kron.fronts.service.web.time_text import PageTime, moment_of, span
from kron.fronts.service.web.view_models import zone_of_job

# How far from the full minute a start is looked for, in seconds.
NEAR_S = 3_600
# How many schedules are searched for those of a change that is undone.
MAX_SEARCHED = 10_000


class SpreadRow(NamedTuple):
    """A schedule of a full minute: its expression, and its start before and after."""

    name: str
    change: str
    old: PageTime
    new: PageTime
    by: str


class SpreadPlan(NamedTuple):
    """What a suggestion changes; `states` has the ETag of each schedule, so that no other edit is lost."""

    at: str
    remedy: Remedy
    before: int
    after: int
    rows: list[SpreadRow]
    states: str


class Spreads:
    """Plans and carries out suggestions."""

    def __init__(self, registrar: Registrar, client: LocalClient) -> None:
        self._registrar = registrar
        self._compute = client.compute_pool.run
        self._query = registrar.catalog.query

    async def plan(self, suggestion: Suggestion, remedy: Remedy) -> SpreadPlan:
        """Return what a remedy of a suggestion changes."""
        records, now = await self._records(suggestion.names), self._registrar.now()
        at = parse_instant(suggestion.at)

        def planned() -> list[SpreadRow | None]:
            return [_row_of(record, remedy, at, now) for record in CpuBudget().each(records.values())]

        found = await self._compute(planned)
        rows = [row for row in found if row is not None]
        states = {row.name: etag_of(records[row.name]) for row in rows}
        after = suggestion.after[remedy]
        return SpreadPlan(suggestion.at, remedy, suggestion.before, after, rows, json.dumps(states))

    async def apply(self, remedy: Remedy, states: str) -> tuple[int, int]:
        """Change all schedules of a plan that are still in the states it has seen, or none of them.

        Return how many, and when, in milliseconds.
        """
        etags = _states_of(states)
        records = await self._records(list(etags))
        for name in etags.keys() - records.keys():
            check_etag(name, etags[name], None)
        edits = [(record, partial(_changed, record, remedy)) for record in records.values()]
        definitions = await edited_definitions(self._registrar, edits, compute=self._compute)

        def expect(job: JobRecord | None) -> None:
            if job is None:
                raise ChangedError(schedule_id="one of them", etag=None)
            check_etag(job.identity, etags[job.identity], job)

        saved = await self._registrar.catalog.upsert(definitions, expect=expect)
        return len(definitions), max(record.edited_at for record in saved)

    async def undo(self, at: int) -> int:
        """Return the schedules that were changed together at an instant to the definitions before it.

        One that was changed again since keeps its definition. All others change, or none.
        """
        records = await self._edited_at(at)
        earlier = await self._query.earlier_definitions(*records) if records else []
        before = {each.identity: each for each in sorted(earlier, key=lambda each: each.epoch)}
        if not before or len(records) > MAX_SPREAD:
            reason = "no schedule is as that change has left it"
            raise InvalidOptionError(option="at", value=str(at), reason=reason)
        edits = [
            (records[name], partial(definition_document, records[name]._replace(definition=epoch.definition)))
            for name, epoch in before.items()
        ]
        definitions = await edited_definitions(self._registrar, edits, compute=self._compute)

        def expect(job: JobRecord | None) -> None:
            if job is None or job.edited_at != at:
                raise ChangedError(schedule_id="one of them" if job is None else job.identity, etag=None)

        await self._registrar.catalog.upsert(definitions, expect=expect)
        return len(definitions)

    async def _edited_at(self, at: int) -> Mapping[str, JobRecord]:
        """Return the schedules that were last changed at an instant, up to one more than change at once."""
        records: dict[str, JobRecord] = {}
        left, after, has_more = MAX_SEARCHED, "", True
        while has_more and left > 0 and len(records) <= MAX_SPREAD:  # a page has at least one schedule
            found, has_more = await self._query.job_page(JobFilter(), after=after, limit=left)
            records |= {each.job.identity: each.job for each in found if each.job.edited_at == at}
            left, after = left - len(found), found[-1].job.identity if found else after
        return records

    async def _records(self, names: list[str]) -> Mapping[str, JobRecord]:
        found = await self._query.jobs(JobFilter(names=names), limit=MAX_SPREAD)
        return {each.job.identity: each.job for each in found}


def _job_of(record: JobRecord) -> Job:
    return compiled_job(record.definition, record.identity).for_job(record.identity)


def _states_of(text: str) -> dict[str, str]:
    try:
        states = json.loads(text)
    except ValueError:
        states = None
    if not isinstance(states, dict) or not 0 < len(states) <= MAX_SPREAD:
        raise InvalidOptionError(option="states", value=text[:100], reason="open the plan again")
    return {str(name): str(etag) for name, etag in states.items()}


def _row_of(record: JobRecord, remedy: Remedy, at: int, now: int) -> SpreadRow | None:
    """Return the start of a schedule in the full minute, and where it goes."""
    old = _job_of(record)
    new = remedied(old, remedy)
    before = next((chosen for _, chosen in starts_between(old, at, at + 60) if chosen is not None), None)
    if new is None or before is None:
        return None
    hour = before // NEAR_S * NEAR_S if remedy is Remedy.HASH else before
    times = (chosen for _, chosen in starts_between(new, hour, hour + NEAR_S) if chosen is not None)
    after = next(times, None)
    if after is None:
        return None
    zone = zone_of_job(record)
    change = "window 10m" if remedy is Remedy.WINDOW else new.schedule.text
    shift = after - before
    by = "" if not shift else f"{span(1000 * abs(shift))} {'later' if shift > 0 else 'earlier'}"
    return SpreadRow(
        record.identity, change, moment_of(1000 * before, zone, now), moment_of(1000 * after, zone, now), by
    )


def _changed(record: JobRecord, remedy: Remedy) -> Document:
    """Return a schedule in a job file's words, changed by a remedy."""
    change = change_of(_job_of(record).schedule.text, remedy)
    if change is None:
        reason = f"{record.identity} has no single minute that could become H"
        raise InvalidOptionError(option="remedy", value=remedy.value, reason=reason)
    return {**definition_document(record), **change}
