"""Edits of a schedule from its page: the plan of what an edit moves, and then the edit itself."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from kron.app.budget import CpuBudget, TooCostlyError
from kron.app.preview import text_of
from kron.core.cron.count import count_between
from kron.core.errors import ConflictError, InputError, InvalidOptionError
from kron.core.job.difference import Difference, ShiftKind, changed_fields, difference_of
from kron.core.job.job import Job
from kron.core.job.notify import parse_notify
from kron.core.plan.compiled import compiled_job
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord
from kron.core.time.instant import DAY, EpochSeconds, rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.client import LocalClient
from kron.fronts.service.definitions import definition_document, edited_definition
from kron.fronts.service.errors import ChangedError
from kron.fronts.service.json_text import read_json
from kron.fronts.service.registrar import Registrar, check_etag, etag_of, unknown_as_schedule
from kron.fronts.service.web.time_text import PageTime, moment_of, span
from kron.fronts.service.web.view_models import value_text, zone_of_job

# The intervals a plan may have, in seconds; the first in which a schedule has few enough periods is taken.
INTERVALS, MAX_PERIODS = (28 * DAY, 7 * DAY, DAY, 3600), 500
# Other schedules and their periods that are searched for collisions, and the starts and collisions listed.
MAX_OTHERS, MAX_OTHER_PERIODS, MAX_LISTED = 200, 5_000, 30
# What an edit is told that would undo another one, or that differs from the plan that was shown.
STALE = (
    "The schedule has changed since this page was opened. What is typed here is kept: "
    '"Show the plan" compares it with the definition of now, and shows what saving it would undo'
)
UNPLANNED = (
    "The definition has changed since its plan was shown. This is its plan now: save again to carry it out"
)


class ShiftRow(NamedTuple):
    """A start that changes."""

    kind: str
    old: PageTime | None
    new: PageTime | None
    by: str


class EditPlan(NamedTuple):
    """What an edit does: changed fields, how many starts move, appear and vanish, and full minutes."""

    fields: list[tuple[str, str, str]]
    counts: dict[str, int]
    stay: int
    interval: str | None
    shifts: list[ShiftRow]
    collisions: list[tuple[str, int, list[str]]]
    # How many minutes are fuller than before, and how many other schedules were looked at.
    fuller: int = 0
    others: int = 0
    # What starts if the edit lets a stopped schedule run.
    effect: str | None = None


class EditPage(NamedTuple):
    """The page of an edit: the text that is edited, the state it started from, and its plan."""

    text: str
    etag: str
    plan: EditPlan | None = None
    problem: str | None = None
    notice: str | None = None

    @property
    def planned(self) -> str:
        """Return the name of what the plan is of: a save sends it back, so that nothing else is saved."""
        # Browsers send other ends of lines than they are given.
        return sha256(self.text.replace("\r\n", "\n").strip().encode()).hexdigest()[:16]


class Edits:
    """Plans and makes edits of schedules."""

    def __init__(self, registrar: Registrar, client: LocalClient) -> None:
        self._registrar = registrar
        self._compute = client.compute_pool.run
        self._query = registrar.catalog.query

    async def page(self, name: str) -> EditPage:
        """Return the page with the stored definition."""
        record = await self._record(name)
        text = json.dumps(definition_document(record), indent=2, ensure_ascii=False)
        return EditPage(text, etag_of(record))

    async def suggestion(self, name: str, window: str) -> EditPage:
        """Return the page with a window after the nominal time written into the definition, and its plan."""
        record = await self._record(name)
        document = {**definition_document(record), "window": {"mode": "after", "duration": window}}
        page, _ = await self.plan(name, json.dumps(document, indent=2, ensure_ascii=False), etag_of(record))
        return page

    async def earlier(self, name: str, epoch: int) -> EditPage:
        """Return the page with a definition that the schedule had before, and the plan of returning to it."""
        record = await self._record(name)
        known = await self._query.earlier_definitions(name)
        found = next((each for each in known if each.epoch == epoch), None)
        if found is None:
            raise InvalidOptionError(option="epoch", value=str(epoch), reason="no such definition is kept")
        document = definition_document(record._replace(definition=found.definition))
        page, _ = await self.plan(name, json.dumps(document, indent=2, ensure_ascii=False), etag_of(record))
        return page

    async def plan(self, name: str, text: str, etag: str) -> tuple[EditPage, JobRecord]:
        """Return the page with the plan of an edit, or with its problem, and the stored record."""
        record = await self._record(name)
        page = EditPage(text, etag)
        try:
            document = await self._compute(_document, text)
            definition = await edited_definition(self._registrar, record, document)
            check_etag(name, etag, record)
            old, new = Job.from_dict(definition_document(record)), _as_typed(definition.job, document)
        except ChangedError:
            return page._replace(etag=etag_of(record), problem=STALE), record
        except (InputError, ConflictError) as error:
            return page._replace(problem=str(error)), record
        others = await self._others(record)
        now = self._registrar.now()
        plan = await self._compute(plan_of, old, new, others, zone_of_job(record), now)
        ((_, effect),) = await self._registrar.catalog.define([definition], dry_run=True)
        plan = plan._replace(effect=None if effect is None else text_of(effect))
        return page._replace(plan=plan), record

    async def save(self, name: str, text: str, etag: str) -> int | None:
        """Change a schedule that is still in the state the edit started from.

        Return the number of its earlier definition; None if only other fields have changed.
        """
        record = await self._record(name)
        document = await self._compute(_document, text)
        definition = await edited_definition(self._registrar, record, document)
        (saved,) = await self._registrar.catalog.upsert(
            [definition], expect=lambda job: check_etag(name, etag, job)
        )
        return record.epoch if saved.epoch != record.epoch else None

    async def _record(self, name: str) -> JobRecord:
        with unknown_as_schedule():
            return (await self._query.find(name)).job

    async def _others(self, record: JobRecord) -> list[Job]:
        found, _ = await self._query.job_page(JobFilter(), after="", limit=MAX_OTHERS)
        jobs = [
            each.job for each in found if each.job.identity != record.identity and not each.job.is_stopped
        ]
        return await self._compute(
            lambda: [compiled_job(job.definition, job.identity).for_job(job.identity) for job in jobs]
        )


def _document(text: str) -> object:
    try:
        return read_json(text)
    except (ValueError, RecursionError) as cause:
        raise InvalidOptionError(option="definition", value="", reason=f"must be JSON: {cause}") from cause


def plan_of(old: Job, new: Job, others: Sequence[Job], zone: Zone, now: int) -> EditPlan:
    """Return what an edit changes from now on.

    A schedule that is too dense, or whose windows take too long to decide, has no plan of its starts.
    """
    start = now // 1000
    fields = [(each.path, value_text(each.old), value_text(each.new)) for each in changed_fields(old, new)]
    without_starts = EditPlan(fields, {kind.value: 0 for kind in ShiftKind}, 0, None, [], [])
    length = next((each for each in INTERVALS if _is_sparse((old, new), start, each)), None)
    if length is None:
        return without_starts
    end = start + length
    near, periods = list[Job](), 0
    for job in others:
        periods += count_between(job.schedule.plan, start, end)
        if periods > MAX_OTHER_PERIODS:
            break
        near.append(job)
    budget = CpuBudget()
    try:
        difference = difference_of(
            [old, *near], [new, *near], start, end, edited_at=start, check=budget.check
        )
    except TooCostlyError:
        return without_starts
    return _with_starts(without_starts._replace(others=len(near)), difference, length, zone, now)


def _is_sparse(jobs: Sequence[Job], start: EpochSeconds, length: int) -> bool:
    return all(count_between(job.schedule.plan, start, start + length) <= MAX_PERIODS for job in jobs)


def _with_starts(plan: EditPlan, difference: Difference, length: int, zone: Zone, now: int) -> EditPlan:
    """Return a plan with the starts of an interval that change."""
    change = difference.changes[0] if difference.changes else None
    shifts = [] if change is None else list(change.shifts)
    counts = Counter(shift.kind.value for shift in shifts)

    def moment(at: EpochSeconds | None) -> PageTime | None:
        return None if at is None else moment_of(1000 * at, zone, now)

    rows = [
        ShiftRow(
            shift.kind.value,
            moment(shift.old_at),
            moment(shift.new_at),
            _by(shift.seconds),
        )
        for shift in islice(sorted(shifts, key=lambda shift: shift.at), MAX_LISTED)
    ]
    return plan._replace(
        counts={kind.value: counts[kind.value] for kind in ShiftKind},
        stay=0 if change is None else change.stay,
        interval=span(1000 * length),
        shifts=rows,
        fuller=len(difference.collisions),
        collisions=[
            (rfc3339(each.minute_at), each.before, list(each.identities))
            for each in difference.collisions[:MAX_LISTED]
        ],
    )


def _as_typed(job: Job, document: object) -> Job:
    """Return an edited job as it was typed: hidden secrets, which it has from the store, stay hidden."""
    assert isinstance(document, dict)
    launcher, notify = document.get("launcher"), document.get("notify")
    launcher = launcher if isinstance(launcher, dict) else None
    return replace(job, launcher=launcher, notify=None if notify is None else parse_notify(notify))


def _by(seconds: int | None) -> str:
    """Return how far a start moves."""
    if not seconds:
        return ""
    return f"{span(1000 * abs(seconds))} {'later' if seconds > 0 else 'earlier'}"
