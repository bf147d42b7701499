"""Applies a set of definitions: all of them in one transaction, or none.

The plan and the write are one function, so a dry run shows exactly the changes that a write makes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from kron.app.budget import Compute
from kron.app.catalog import Catalog, Decision, JobDefinition, NoWrite, Write, is_changed, upserted
from kron.core.errors import InvalidOptionError
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord
from kron.core.plan.resume_preview import ResumePreview
from kron.core.plan.step import JobState

# Definitions of one request, and schedules of one set: they are written in one transaction.
MAX_APPLIED = 5_000
# The characters that the stored definitions of one request may have together, which are in memory at once.
MAX_STORED = 16 << 20
# Schedules read at once.
PAGE = 100


class AppliedKind(StrEnum):
    """What applying a definition does to its job."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


class AppliedChange(NamedTuple):
    """What happens to one job: its records before and after, None where it does not exist.

    `effect` is what starts if the change lets a stopped job run.
    """

    identity: str
    kind: AppliedKind
    before: JobRecord | None
    after: JobRecord | None
    effect: ResumePreview | None = None


class DefinitionSet(NamedTuple):
    """Definitions that belong together.

    Each function returns its definition for the record that is stored, if there is one. With `prune`, other
    jobs that were applied under this name are deleted.
    """

    name: str
    definitions: Mapping[str, Callable[[JobRecord | None], JobDefinition]]
    prune: bool = False


# Raises if a job is not in the state that its caller has seen; None: it does not exist.
Expect = Callable[[str, JobRecord | None], None]


def check_count(count: int) -> None:
    """Raise InvalidOptionError for more definitions than one request may have."""
    if count > MAX_APPLIED:
        reason = f"apply at most {MAX_APPLIED} at once"
        raise InvalidOptionError(option="jobs", value=count, reason=reason)


async def apply_definitions(
    catalog: Catalog, wanted: DefinitionSet, *, expect: Expect, compute: Compute, dry_run: bool = False
) -> list[AppliedChange]:
    """Create, change and delete jobs so that they equal a set of definitions; return each job's change.

    Applying the same set again changes nothing.
    """
    check_count(len(wanted.definitions))

    async def read() -> tuple[Sequence[JobState], list[str]]:
        members = await _members(catalog, wanted.name) if wanted.prune else []
        gone = [name for name in members if name not in wanted.definitions]
        return await _states(catalog, [*wanted.definitions, *gone]), gone

    def define(live: Mapping[str, JobRecord], gone: Sequence[str]) -> list[JobDefinition]:
        for name in (*wanted.definitions, *gone):
            expect(name, live.get(name))
        return [
            make(live.get(name))._replace(applied_set=wanted.name)
            for name, make in wanted.definitions.items()
        ]

    return await _write(catalog, read, define, compute=compute, dry_run=dry_run)


async def replace_definitions(
    catalog: Catalog,
    definitions: Sequence[JobDefinition],
    *,
    is_gone: Callable[[JobRecord], bool],
    compute: Compute,
    dry_run: bool = False,
) -> list[AppliedChange]:
    """Create and change jobs, and delete the stored others that are gone, in one transaction.

    For an owner of the whole namespace: there is no limit to the number of jobs.
    """
    names = {definition.job.identity for definition in definitions}

    async def read() -> tuple[Sequence[JobState], list[str]]:
        stored = await _all_jobs(catalog)
        gone = [job.identity for job in stored if job.identity not in names and is_gone(job)]
        return await catalog.states([*names, *gone]), gone

    return await _write(catalog, read, lambda live, gone: definitions, compute=compute, dry_run=dry_run)


# The states of the jobs that are defined or gone, and the names of those that are gone.
_Records = tuple[Sequence[JobState], list[str]]


async def _write(
    catalog: Catalog,
    read: Callable[[], Awaitable[_Records]],
    define: Callable[[Mapping[str, JobRecord], Sequence[str]], Sequence[JobDefinition]],
    *,
    compute: Compute,
    dry_run: bool = False,
) -> list[AppliedChange]:
    """Write the definitions that the live jobs get, and delete those that are gone, in one transaction."""

    def decide(records: _Records, now: int) -> Awaitable[Decision[list[AppliedChange]]]:
        return compute(partial(decided, records, now))

    def decided(records: _Records, now: int) -> Decision[list[AppliedChange]]:
        found, gone = records
        states = {state.job.identity: state for state in found}
        live = {name: state.job for name, state in states.items() if state.job.deleted_at is None}
        definitions = define(live, gone)
        decision = upserted(definitions, states, gone, now)
        effects = catalog.effects(decision, states, now)
        changes = [
            change._replace(effect=effects.get(change.identity))
            for change in _changes(definitions, decision.result, live, gone)
        ]
        if isinstance(decision, NoWrite):
            return NoWrite(changes)
        return Write(result=changes, created=decision.created, changed=decision.changed)

    return await catalog.write(read, decide, dry_run=dry_run)


async def _all_jobs(catalog: Catalog) -> list[JobRecord]:
    """Return every job of the namespace."""
    jobs: list[JobRecord] = []
    while True:  # each page starts later, and the names are finite
        after = jobs[-1].identity if jobs else ""
        page = await catalog.query.jobs(JobFilter(), after=after, limit=PAGE)
        jobs += [found.job for found in page]
        if len(page) < PAGE:
            return jobs


async def _states(catalog: Catalog, names: Sequence[str]) -> list[JobState]:
    """Return the named jobs that exist, or raise if they are too long to be applied at once."""
    states: list[JobState] = []
    left = MAX_STORED
    for start in range(0, len(names), PAGE):
        for state in await catalog.states(names[start : start + PAGE]):
            left -= state.job.text_size
            states.append(state)
        if left < 0:
            reason = f"the stored schedules have more than {MAX_STORED:,} characters: apply fewer at once"
            raise InvalidOptionError(option="jobs", value=len(names), reason=reason)
    return states


def _changes(
    definitions: Sequence[JobDefinition],
    after: Sequence[JobRecord],
    live: Mapping[str, JobRecord],
    gone: Sequence[str],
) -> list[AppliedChange]:
    changes = [
        AppliedChange(record.identity, _kind_of(live.get(record.identity), definition), before, record)
        for definition, record in zip(definitions, after, strict=True)
        for before in (live.get(record.identity),)
    ]
    deleted = (AppliedChange(name, AppliedKind.DELETED, live.get(name), None) for name in gone)
    return [*changes, *deleted]


def _kind_of(before: JobRecord | None, definition: JobDefinition) -> AppliedKind:
    if before is None:
        return AppliedKind.CREATED
    return AppliedKind.CHANGED if is_changed(before, definition) else AppliedKind.UNCHANGED


async def _members(catalog: Catalog, name: str) -> list[str]:
    """Return the jobs that were applied under a name."""
    members: list[str] = []
    while len(members) <= MAX_APPLIED:
        after = members[-1] if members else ""
        page = await catalog.query.jobs(JobFilter(applied_set=name), after=after, limit=PAGE)
        members += [found.job.identity for found in page]
        if len(page) < PAGE:
            return members
    raise InvalidOptionError(option="set", value=name, reason=f"has more than {MAX_APPLIED} schedules")
