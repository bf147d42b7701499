"""Incidents: pauses, edits, requests, blocked periods, take-overs and clock jumps, recorded as they happen.

`SENTENCES` is their one table of sentences: pages, the command line, the API and the log all use it.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kron.core.plan.record import IncidentKind, IncidentRecord, JobRecord, RunKind, RunRecord
from kron.core.shard import SHARDS
from kron.core.time.instant import EpochSeconds, rfc3339

# How many changed fields an edit lists, and how long a value may be.
MAX_FIELDS, MAX_VALUE = 8, 60
# Kinds of requested runs that have a sentence.
REQUESTS = frozenset({RunKind.MANUAL.value, RunKind.BOOT.value})
SENTENCES = {
    "paused": "the job was paused{by} from {start} to {end}{because}{ended_by}",
    "paused_now": "the job is paused{by} since {start}{because}{until}",
    "suspended": "the definition suspended the job (policy.suspend) from {start} to {end}",
    "suspended_now": "the definition suspends the job (policy.suspend) since {start}",
    "edited": "the job was edited{by} at {start}: {changes}",
    "manual": "a manual run was requested{by} at {start}",
    "boot": "the host booted, which krond saw at {start}",
    "backfill": "a backfill was requested{by} at {start}",
    "active": "{blocker}, started at {started}, was still active{over}",
    "started_first": "{blocker} was due as well and started first, at {started}{ran}",
    "queued": "it waited for {blocker}, started at {started}{over}",
    "waits": "it waits for {blocker}, started at {started}",
    "queued_behind_start": (
        "it waited for {blocker}, which was due as well and started first, at {started}{ran}"
    ),
    "queue_full": (
        "{blocker}, started at {started}, was still active{over}, and queue_max other periods waited for it"
    ),
    "coalesced": "{blocker} was due before it could start, and the newest one runs",
    "retry_preempted": "{blocker} was due before its retry",
    "replaced": "{blocker} was due and replaced it",
    "stopped": "worker {old} was stopped at {start}; no worker ran until {new} took over at {end}",
    "killed": (
        "worker {old} ended without a stop, after its last write at {start}; "
        "no worker ran until {new} took over at {end}"
    ),
    "expired": (
        "the lease of worker {old} expired, last renewed at {start}; "
        "no worker ran until {new} took over at {end}"
    ),
    "first": "no worker ran before {new} started at {end}",
    "stopped_now": "worker {old} was stopped at {start}, and no worker has run since",
    "killed_now": (
        "worker {old} ended without a stop, after its last write at {start}, and no worker has run since"
    ),
    "expired_now": (
        "the lease of worker {old} expired, last renewed at {start}, and no worker has run since"
    ),
    "first_now": "no worker has run yet",
    "clock_jump": (
        "the host's clock moved forward by {by_time}, from {start} to {end} "
        "(it was set, or the machine slept)"
    ),
    "clock_behind": (
        "the host's clock was behind the latest recorded instant ({reference}) by {by_time}, "
        "and worker {old} planned nothing from {start} to {end}"
    ),
    "clock_ahead": (
        "worker {old} found its clock {by_time} ahead of the database's at {start}, and planned nothing "
        "until {end} at the latest, so that another worker could take over"
    ),
    "clock_counted": (
        "worker {old} found its clock {by_time} ahead of the database's, and planned nothing from {start} to "
        "{end} by its own clock, which counted then because no other worker had taken over"
    ),
}
# The subject of a pause by the engine: after failures, or because a record cannot be used.
ENGINE = "engine"
STOPPED, KILLED, EXPIRED, FIRST = "stopped", "killed", "expired", "first"


# --- records ---------------------------------------------------------------------------------------------


def paused(
    identity: str, at: int, *, because: str | None, until: int | None, subject: str | None = None
) -> IncidentRecord:
    """Return the incident of a pause; `until` is its planned end, the subject ENGINE if the engine paused."""
    detail = _json({"because": because, "until": until})
    return IncidentRecord(IncidentKind.PAUSED, identity, at, subject=subject, detail=detail)


def suspended(identity: str, at: int) -> IncidentRecord:
    """Return the incident of a definition that suspends its job."""
    return IncidentRecord(IncidentKind.SUSPENDED, identity, at)


def incidents_of_new(created: Sequence[JobRecord]) -> list[IncidentRecord]:
    """Return the incidents of jobs that are created paused or suspended."""
    stops = [
        paused(job.identity, job.edited_at, because="created paused", until=None)
        for job in created
        if job.paused
    ]
    return [*stops, *(suspended(job.identity, job.edited_at) for job in created if job.suspended)]


def ended(kind: IncidentKind, identity: str, at: int) -> IncidentRecord:
    """Return the end of the incident of a kind that lasts."""
    return IncidentRecord(kind, identity, at, at)


def edited(before: JobRecord, after: JobRecord, at: int) -> IncidentRecord:
    """Return the incident of an edit; its subject is the new epoch."""
    detail = _json({"changes": list(_changes(before.definition, after.definition))[:MAX_FIELDS]})
    return IncidentRecord(
        IncidentKind.EDITED, after.identity, at, at, subject=str(after.epoch), detail=detail
    )


def _changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of a definition that differ: name, old value, new value."""
    old, new = _flat(json.loads(before)), _flat(json.loads(after))
    for name in dict.fromkeys((*old, *new)):
        if (old.get(name) or None) != (new.get(name) or None):
            yield name, _value(old.get(name)), _value(new.get(name))


def _flat(definition: Mapping[str, Any]) -> dict[str, object]:
    policy = definition.get("policy") or {}
    return {name: value for name, value in definition.items() if name != "policy"} | dict(policy)


def _value(value: object) -> str:
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def requested(identity: str, kind: RunKind, at: int, request: str) -> IncidentRecord:
    """Return the incident of a requested run or backfill; its subject is the kind of the runs."""
    detail = _json({"request": request})
    return IncidentRecord(IncidentKind.REQUESTED, identity, at, at, subject=kind.value, detail=detail)


def blocked(blocker: RunRecord, runs: Sequence[RunRecord], how: str, at: int) -> IncidentRecord:
    """Return the incident of periods that one run kept from starting; its subject is that run's key."""
    times = [run.nominal_time for run in runs]
    detail = {
        "how": how,
        "blocker": blocker.nominal_time,
        "kind": blocker.kind.value,
        "started_at": blocker.started_at,
        "first": min(times),
        "last": max(times),
    }
    return IncidentRecord(
        IncidentKind.BLOCKED, blocker.identity, at, at, subject=blocker.key, detail=_json(detail)
    )


def took_over(
    owner: str,
    at: int,
    *,
    since: int,
    before: str | None,
    ending: str,
    shards: Sequence[int] | None,
    version: str | None = None,
) -> IncidentRecord:
    """Return the incident of a take-over: no worker owned these shards, or any, from `since` to `at`."""
    detail = _json({"ending": ending, "shards": shards, "version": version})
    return IncidentRecord(
        IncidentKind.TAKE_OVER, None, min(since, at), at, actor=before, ended_by=owner, detail=detail
    )


def absence_after(owner: str | None = None, ended_at: int = 0, ending: str = FIRST) -> IncidentRecord:
    """Return the outage since the last owner of a shard ended; no worker has taken over yet."""
    detail = _json({"ending": ending})
    return IncidentRecord(IncidentKind.TAKE_OVER, None, ended_at, actor=owner, detail=detail)


def clock_jump(owner: str, expected: int, at: int) -> IncidentRecord:
    """Return the incident of a clock that was set forward, or stood still while its machine slept."""
    return IncidentRecord(IncidentKind.CLOCK_JUMP, None, expected, at, actor=owner)


def clock_behind(
    owner: str, since: int, until: int, *, reference: int, shards: Collection[int]
) -> IncidentRecord:
    """Return the incident of a clock behind the latest recorded instant, `reference`: nothing was planned."""
    detail = _json({"reference": reference, "shards": _some(shards)})
    return IncidentRecord(IncidentKind.CLOCK_BEHIND, None, since, until, actor=owner, detail=detail)


def clock_ahead(
    owner: str, since: int, until: int, *, by_ms: int, shards: Collection[int], counted: bool = False
) -> IncidentRecord:
    """Return the incident of a clock ahead of the store's: nothing is planned from `since` to `until`.

    Both are times of the store's clock; with `counted`, of the host's, which counts from the end on.
    """
    detail = _json({"by_ms": by_ms, "shards": _some(shards), "counted": counted})
    return IncidentRecord(IncidentKind.CLOCK_AHEAD, None, since, until, actor=owner, detail=detail)


def _some(shards: Collection[int]) -> list[int] | None:
    """Return shards for a detail; None stands for all of them."""
    return None if len(shards) == SHARDS else sorted(shards)


def _json(detail: Mapping[str, object]) -> str:
    return json.dumps({name: value for name, value in detail.items() if value is not None})


# --- sentences -------------------------------------------------------------------------------------------


def detail_of(incident: IncidentRecord) -> dict[str, Any]:
    """Return the detail of an incident."""
    return parsed_detail(incident.detail)


def parsed_detail(text: str | None) -> dict[str, Any]:
    """Return the detail that an incident stores."""
    detail: dict[str, Any] = json.loads(text or "{}")
    return detail


class BlockDetail(NamedTuple):
    """The detail of a blocked incident: the blocking run, and the periods it blocked."""

    how: str
    blocker: EpochSeconds
    kind: RunKind
    started_at: int | None
    first: EpochSeconds
    last: EpochSeconds


def block_of(incident: IncidentRecord) -> BlockDetail:
    """Return the detail of a blocked incident."""
    detail = detail_of(incident)
    return BlockDetail(
        detail["how"],
        detail["blocker"],
        RunKind(detail["kind"]),
        detail.get("started_at"),
        detail["first"],
        detail["last"],
    )


def covers(incident: IncidentRecord, shard: int) -> bool:
    """Say whether an incident of a namespace concerns the jobs of a shard."""
    shards = detail_of(incident).get("shards")
    return shards is None or shard in shards


def sentence_of(incident: IncidentRecord, blocker: RunRecord | None = None, *, waits: bool = False) -> str:
    """Return an incident in words.

    `blocker` is the present record of the blocking run; `waits` says that a period still waits for it.
    """
    values = {"start": moment(incident.from_at), "end": moment(incident.until_at or incident.from_at)}
    values["by"] = "" if incident.actor is None else f" by {incident.actor}"
    match incident.kind:
        case IncidentKind.PAUSED | IncidentKind.SUSPENDED:
            code = f"{incident.kind}{'_now' if incident.until_at is None else ''}"
            values |= _pause_values(incident)
        case IncidentKind.EDITED:
            code = "edited"
            changes = [f"{name} from {old} to {new}" for name, old, new in detail_of(incident)["changes"]]
            values["changes"] = ", ".join(changes) or "the launcher"
        case IncidentKind.REQUESTED:
            code = incident.subject if incident.subject in REQUESTS else "backfill"
        case IncidentKind.BLOCKED:
            code, further = _block_values(incident, blocker)
            code = "waits" if waits else code
            values |= further
        case IncidentKind.TAKE_OVER:
            code = detail_of(incident)["ending"] + ("_now" if incident.until_at is None else "")
            values |= {"old": incident.actor or "unknown", "new": f"worker {incident.ended_by}"}
        case IncidentKind.CLOCK_JUMP:
            code = "clock_jump"
            passed = ((incident.until_at or incident.from_at) - incident.from_at) // 1000
            values["by_time"] = str(timedelta(seconds=passed))
        case IncidentKind.CLOCK_BEHIND | IncidentKind.CLOCK_AHEAD:
            code, further = _clock_values(incident)
            values |= further
    return SENTENCES[code].format_map(values)


def _pause_values(incident: IncidentRecord) -> dict[str, str]:
    detail = detail_of(incident)
    because, until = detail.get("because"), detail.get("until")
    ended_by = "" if incident.ended_by is None else f" (resumed by {incident.ended_by})"
    if incident.ended_by is None and until is not None and until == incident.until_at:
        ended_by = " (its planned end)"
    return {
        "because": "" if because is None else f": {because}",
        "until": "" if until is None else f", until {moment(until)}",
        "ended_by": ended_by,
    }


def _clock_values(incident: IncidentRecord) -> tuple[str, dict[str, str]]:
    detail, values = detail_of(incident), {"old": incident.actor or "unknown"}
    if incident.kind is IncidentKind.CLOCK_BEHIND:
        by_ms, values["reference"] = detail["reference"] - incident.from_at, moment(detail["reference"])
    else:
        by_ms = detail["by_ms"]
    values["by_time"] = str(timedelta(seconds=by_ms // 1000))
    return "clock_counted" if detail.get("counted") else str(incident.kind), values


def _block_values(incident: IncidentRecord, run: RunRecord | None) -> tuple[str, dict[str, str]]:
    block = block_of(incident)
    code = block.how
    if block.started_at == incident.from_at and code in ("active", "queued"):
        code = "started_first" if code == "active" else "queued_behind_start"
    over = "" if run is None or run.ended_at is None else f" until {moment(run.ended_at)}"
    ran = f", and ran{over}" if over else ""
    started = "" if block.started_at is None else moment(block.started_at)
    name = "run of the period" if code in ("active", "queued", "queue_full") else "period"
    blocker = (
        f"the {name} {rfc3339(block.blocker)}" if block.kind is RunKind.PERIOD else f"the {block.kind} run"
    )
    return code, {"blocker": blocker, "started": started, "over": over, "ran": ran}


def moment(instant: int) -> str:
    """Return an instant in milliseconds as text, to the second, in UTC."""
    return rfc3339(instant // 1000)
