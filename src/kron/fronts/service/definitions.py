"""Definitions in a job file's words: stored schedules are read as jobs, and sets of jobs are applied.

A job file means the same wherever it runs: its defaults are those of `kron.Job`, not the service's.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kron.app.apply import AppliedChange, AppliedKind, DefinitionSet, apply_definitions, check_count
from kron.app.budget import Compute, CpuBudget
from kron.app.catalog import JobDefinition
from kron.app.launchers import redact_launcher, settings_of
from kron.core.errors import InvalidJobError, Problem
from kron.core.fields import parse_name
from kron.core.job.notify import IS_REDACTED, parse_notify
from kron.core.job.profile import PROFILE, profile_fields_of
from kron.core.plan.compiled import compiled_job
from kron.core.plan.query import JobFilter
from kron.core.plan.record import JobRecord
from kron.core.redaction import HIDDEN
from kron.fronts.service.auth.principal import current_caller
from kron.fronts.service.documents import Document, notify_view
from kron.fronts.service.errors import InvalidScheduleError
from kron.fronts.service.registrar import (
    Registrar,
    check_etag,
    effect_view,
    etag_of,
    stored_job,
    stored_launcher,
)
from kron.fronts.service.responses import AppliedView, ApplyReceipt, DefinitionView
from kron.fronts.service.schedule_spec import Rules, ScheduleSpec, parse_definition
from kron.launchers.spec import launcher_kind_of

# The set of definitions that name none.
DEFAULT_SET = "default"
# Processor time to read the new documents of schedules that are edited together, in seconds.
EDITS_S = 0.5


class ApplyRequest(NamedTuple):
    """Jobs in a job file's words, to be applied together.

    `if_match` has the ETags that a plan was made from, "" for a schedule that does not exist.
    """

    jobs: Sequence[object]
    name: str = DEFAULT_SET
    prune: bool = False
    dry_run: bool = False
    if_match: Mapping[str, str] | None = None


async def export_definitions(
    registrar: Registrar, wanted: JobFilter, *, after: str = "", limit: int
) -> tuple[list[DefinitionView], bool]:
    """Return stored schedules as jobs, in the order of their names, and whether there are more.

    At most `limit`, fewer if they are long, and no more than the processor time of one answer allows.
    """
    found, has_more = await registrar.catalog.query.job_page(wanted, after=after, limit=limit)

    def views() -> list[DefinitionView]:
        budget, shown = CpuBudget(), list[DefinitionView]()
        for each in found:
            definition, etag = definition_document(each.job), etag_of(each.job)
            shown.append({"definition": definition, "etag": etag, "applied_set": each.job.applied_set})
            if budget.is_spent:
                break
        return shown

    shown = await registrar.compute_pool.run(views)
    return shown, has_more or len(shown) < len(found)


def definition_document(record: JobRecord) -> Document:
    """Return a stored schedule in a job file's words, without secrets."""
    document = compiled_job(record.definition, record.identity).for_job(record.identity).to_dict()
    policy = document["policy"]
    assert isinstance(policy, dict)
    profile = profile_fields_of(record.profile)
    return {
        **document,
        "policy": {**policy, "suspend": bool(record.suspended)},
        "launcher": redact_launcher(record.launcher),
        **({} if record.notify is None else {"notify": notify_view(record)}),
        **{row.word: profile[row.name] for row in PROFILE.rows if profile[row.name] not in (None, [])},
    }


async def apply_jobs(registrar: Registrar, request: ApplyRequest, *, compute: Compute) -> ApplyReceipt:
    """Make the schedules of a set equal its jobs, all or none; a dry run returns the plan.

    `compute` runs long computations outside the event loop.
    """
    specs = await compute(partial(_read_all, registrar, request.jobs))
    await registrar.check_use(specs)
    wanted = DefinitionSet(
        parse_name(request.name),
        {spec.job.identity: partial(_definition_for, spec, registrar.rules) for spec in specs},
        request.prune,
    )
    etags = request.if_match or {}

    def expect(name: str, record: JobRecord | None) -> None:
        check_etag(name, etags.get(name), record)

    changes = await apply_definitions(
        registrar.catalog, wanted, expect=expect, compute=compute, dry_run=request.dry_run
    )
    shown = await compute(lambda: list(map(_applied_view, changes)))
    return {"dry_run": request.dry_run, "changes": shown}


# The stored schedule that an edit changes, and its new document.
Edit = tuple[JobRecord, Callable[[], object]]


async def edited_definition(registrar: Registrar, record: JobRecord, document: object) -> JobDefinition:
    """Return the definition of an edited schedule, which keeps its name, its secrets and its pause."""
    spec = _edited_spec(record, document, registrar.rules)
    await registrar.check_use([spec])
    return _definition_for(spec, registrar.rules, record)


async def edited_definitions(
    registrar: Registrar, edits: Sequence[Edit], *, compute: Compute
) -> list[JobDefinition]:
    """Return the definitions of edited schedules, or raise TooCostlyError where there are too many."""
    rules = registrar.rules
    specs = await compute(
        lambda: [_edited_spec(record, make(), rules) for record, make in CpuBudget(EDITS_S).each(edits)]
    )
    await registrar.check_use(specs)
    records = [record for record, _ in edits]
    return await compute(
        lambda: [_definition_for(spec, rules, old) for spec, old in zip(specs, records, strict=True)]
    )


def _edited_spec(record: JobRecord, document: object, rules: Rules) -> ScheduleSpec:
    owner = next(iter(current_caller().users or ()), None)
    spec = parse_definition(document, rules, owner=owner)
    if spec.job.identity != record.identity:
        problem = Problem("identity", spec.job.identity, f'must stay "{record.identity}"')
        raise InvalidScheduleError(schedule_id=record.identity, problems=[problem])
    return spec


def _read_all(registrar: Registrar, documents: Sequence[object]) -> list[ScheduleSpec]:
    """Return the jobs of a request, or raise InvalidScheduleError with all problems its budget allows."""
    check_count(len(documents))
    budget = CpuBudget()
    owner = next(iter(current_caller().users or ()), None)
    problems: list[Problem] = []
    specs: dict[str, ScheduleSpec] = {}
    for number, document in enumerate(documents):
        try:
            spec = parse_definition(document, registrar.rules, owner=owner)
            if spec.job.identity in specs:
                problems.append(Problem(f"jobs[{number}].identity", spec.job.identity, "is given twice"))
            specs[spec.job.identity] = spec
        except (InvalidJobError, InvalidScheduleError) as error:
            problems += [
                Problem(f"jobs[{number}].{each.path}", each.value, each.reason) for each in error.problems
            ]
        if problems and budget.is_spent:
            break
    if problems:
        raise InvalidScheduleError(schedule_id=None, problems=problems)
    return list(specs.values())


def _definition_for(spec: ScheduleSpec, rules: Rules, record: JobRecord | None) -> JobDefinition:
    """Return the definition of a job, with the stored secrets if its launcher is the stored one without them.

    A changed launcher must name its secrets: a caller could send those of another to a place of their choice.
    """
    spec = _with_stored_urls(spec, record)
    shown = spec.settings.to_dict()
    if record is not None and shown == redact_launcher(record.launcher):
        settings = settings_of(record.launcher)
        return JobDefinition(stored_job(spec, rules), record.launcher, launcher_kind_of(settings))
    if hidden := next(_hidden(shown, "launcher"), None):
        reason = f'is hidden ("{HIDDEN}"): write the secret, because the launcher is new or has changed'
        problem = Problem(hidden, None, reason)
        raise InvalidScheduleError(schedule_id=spec.job.identity, problems=[problem])
    kind = launcher_kind_of(spec.settings)
    return JobDefinition(stored_job(spec, rules), stored_launcher(spec, rules), kind)


def _with_stored_urls(spec: ScheduleSpec, record: JobRecord | None) -> ScheduleSpec:
    """Return a schedule whose redacted URLs of notifications are the stored ones, or refuse unknown ones."""
    notify = spec.job.notify
    if notify is None or not (notify.hidden() or notify.encrypted()):
        return spec
    given = notify.encrypted()
    if record is not None and record.notify is not None:
        notify = notify.revealed(parse_notify(json.loads(record.notify)))
    if hidden := given or notify.hidden():
        problems = [Problem(f"notify.{name}", None, IS_REDACTED) for name in hidden]
        raise InvalidScheduleError(schedule_id=spec.job.identity, problems=problems)
    return spec._replace(job=replace(spec.job, notify=notify))


def _hidden(value: object, path: str) -> Iterator[str]:
    """Yield the paths of values that redaction has replaced."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _hidden(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _hidden(each, f"{path}[{number}]")
    elif isinstance(value, str) and (value == HIDDEN or value.endswith((f"?{HIDDEN}", f":{HIDDEN}"))):
        yield path


def _applied_view(change: AppliedChange) -> AppliedView:
    before, after = change.before, change.after
    differs = change.kind is not AppliedKind.UNCHANGED
    view: AppliedView = {
        "schedule_id": change.identity,
        "change": change.kind.value,
        "before": definition_document(before) if differs and before is not None else None,
        "after": definition_document(after) if differs and after is not None else None,
        "applied_set": None if before is None else before.applied_set,
        "etag": "" if before is None else etag_of(before),
    }
    if change.effect is not None:
        view["effect"] = effect_view(change.effect)
    return view
