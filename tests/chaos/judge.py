"""The judge compares the records with the deliveries, period by period.

Nothing of the engine is used here: periods are listed by counting seconds, and every delivery is checked.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from kron.core.plan.record import EpochRecord, JobRecord, RangeRecord, RunKind, RunRecord, request_key_of
from kron.core.shard import shard_of
from tests.chaos.audit import Lease, Start
from tests.chaos.client import MAYFLY, TIMED
from tests.chaos.delivery import Answer, Delivery
from tests.chaos.executor import REPORTS

# A response this long before a drain was cut short may not have been recorded; generous, for a busy machine.
UNDER_WAY_MS = 15_000
# A worker that was struck, or cut off from its store, loses its lease within this time, or never.
STRUCK_MS = 45_000
# A request may be on its way for this long after its run was recorded as lost; generous, for a busy machine.
ON_ITS_WAY_MS = 15_000
# A period this close to a creation or an edit may have been fired before it, where fire times vary.
CLOSE_MS = 1_000
# The reasons for a skipped period, and the overlap policy of each.
SKIPPED = {"active": "skip", "queue_full": "queue", "coalesced": "buffer_one"}


class History(NamedTuple):
    """One schedule with all its records."""

    job: JobRecord
    runs: list[RunRecord]
    ranges: list[RangeRecord]
    epochs: list[EpochRecord]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The records, deliveries and audit of an experiment.

    `asked` are requests for a run, and whether they were acknowledged. A file has one shard. `broken_off` are
    the times at which a drain was cut short, `struck` the processes that were killed or frozen, and when,
    and `outages` the times at which the database was cut off or away.
    """

    histories: list[History]
    deliveries: list[Delivery]
    leases: list[Lease]
    starts: list[Start]
    asked: dict[str, bool]
    is_file: bool = False
    broken_off: list[int] = field(default_factory=list)
    struck: list[tuple[int, int]] = field(default_factory=list)
    outages: list[int] = field(default_factory=list)

    def by_key(self) -> dict[str, list[Delivery]]:
        """Return the deliveries of each run, in order."""
        found: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            found[delivery.key].append(delivery)
        return found


def faults_of(evidence: Evidence) -> list[str]:
    """Return every fault as a sentence."""
    return [fault for check in CHECKS for fault in check(evidence)]


# --- periods ---------------------------------------------------------------------------------------


def each_period_has_one_record(evidence: Evidence) -> Iterator[str]:
    """Every period has a record, no period has two, and no record lacks a period."""
    for history in evidence.histories:
        name = history.job.identity
        seen: dict[int, int] = defaultdict(int)
        for run in history.runs:
            seen[run.nominal_time] += run.kind == "period"
        yield from (f"{name}: {time} has {count} records" for time, count in seen.items() if count > 1)
        if name.startswith(MAYFLY):
            continue
        expected, perhaps = periods_of(history)
        for shared in history.ranges:
            for time in expected:
                seen[time] += shared.first <= time <= shared.last
        found = {time for time, count in seen.items() if count}
        yield from (f"{name}: {time} has no record" for time in sorted(expected - found - perhaps))
        yield from (f"{name}: {time} is no period" for time in sorted(found - expected - perhaps))


def periods_of(history: History) -> tuple[set[int], set[int]]:
    """Return the nominal times of a schedule by its definitions, and those that are uncertain."""
    job = history.job
    spans = [(epoch.edited_at, epoch.definition) for epoch in history.epochs]
    spans = sorted([*spans, (job.edited_at, job.definition)])
    expected: set[int] = set()
    perhaps: set[int] = set()
    for number, (start, text) in enumerate(spans):
        end = spans[number + 1][0] if number + 1 < len(spans) else 1000 * job.cursor
        # At its creation the schedule has the period of that very instant; an edit leaves it to the past.
        first = -(-start // 1000) if number == 0 else start // 1000 + 1
        expected |= {time for time in range(first, end // 1000 + 1) if time % 60 in seconds_of(text)}
        if json.loads(text)["policy"].get("jitter_ms"):
            perhaps |= set(range((start - CLOSE_MS) // 1000, (start + CLOSE_MS) // 1000 + 1))
    return expected, perhaps


def seconds_of(definition: str) -> range:
    """Return the seconds of a minute a definition names: `*/2` or `1-59/2`."""
    field = json.loads(definition)["schedule"].split()[0]
    part, _, step = field.partition("/")
    return range(0 if part == "*" else int(part.split("-")[0]), 60, int(step or 1))


def each_run_has_an_outcome(evidence: Evidence) -> Iterator[str]:
    """No run is open at the end, and no period was dropped that should have run."""
    for history in evidence.histories:
        overlap = {"forbid": "skip"}.get(policy := _overlap_of(history.job), policy)
        for run in history.runs:
            said = f"{history.job.identity}: {run.nominal_time} is {run.status} ({run.reason})"
            if run.is_open or run.outcome is None:
                yield f"{said}, and not over"
            elif run.status == "MISSED":
                yield f"{said}, and nothing was ever late enough"
            elif run.status == "SKIPPED" and run.reason != "edited" and SKIPPED.get(run.reason) != overlap:
                yield f"{said}, and its policy is {overlap}"
            elif run.status == "FAILED" and run.result not in _results_of(history.job):
                yield f"{said}: {run.result}, {run.error}"
        for shared in history.ranges:
            if shared.outcome != "skipped" or SKIPPED.get(shared.reason) != overlap:
                yield f"{history.job.identity}: {shared} was dropped, and its policy is {overlap}"


def _results_of(job: JobRecord) -> tuple[str, ...]:
    """Return the ways in which a run of a schedule may fail."""
    return ("launch_failed", "lost") if job.identity.startswith(TIMED) else ("launch_failed",)


def _overlap_of(job: JobRecord) -> str:
    return str(json.loads(job.definition)["policy"].get("concurrency", "forbid"))


# --- deliveries ------------------------------------------------------------------------------------


def records_and_deliveries_agree(evidence: Evidence) -> Iterator[str]:
    """Every recorded start was delivered and run once, and every delivery has a record."""
    by_key = evidence.by_key()
    for history in evidence.histories:
        for run in history.runs:
            name, found = f"{history.job.identity}: {run.nominal_time} ({run.kind})", by_key.pop(run.key, [])
            ran = sum(delivery.ran for delivery in found)
            answers = [str(delivery.answer) for delivery in found]
            if ran > 1:
                yield f"{name} was run {ran} times"
            if not run.attempt and found:
                yield f"{name} is {run.status} and was delivered"
            if run.status in ("ENQUEUED", "STARTED", "SUCCESS") and ran != 1:
                yield f"{name} is {run.status} and was not run: {answers}"
            if run.result == "launch_failed" and Answer.ACCEPTED in answers:
                yield f"{name} is launch_failed and was accepted"
            if any(delivery.at < 1000 * run.nominal_time - CLOSE_MS for delivery in found):
                yield f"{name} was delivered before its time"
    yield from (
        f"{found[0].identity}: {key[:8]} was delivered and has no record" for key, found in by_key.items()
    )


def nothing_lost_arrives_later(evidence: Evidence) -> Iterator[str]:
    """A run that is recorded as lost was sent before that, if at all, and never much later."""
    by_key = evidence.by_key()
    lost = [run for history in evidence.histories for run in history.runs if run.result == "lost"]
    for run in lost:
        found = by_key.get(run.key, [])
        # A take-over that finds it lost gives it the token of the new owner, which has to send nothing.
        by_its_owner = [delivery.sent_at for delivery in found if delivery.token == run.token]
        assert run.ended_at is not None
        said = f"{run.identity}: {run.nominal_time} was lost at {run.ended_at} and"
        yield from (f"{said} sent by that owner at {at} s" for at in by_its_owner if 1000 * at > run.ended_at)
        late = [delivery.at for delivery in found if delivery.at > run.ended_at + ON_ITS_WAY_MS]
        yield from (f"{said} arrived at {at}" for at in late)


def no_two_runs_overlap(evidence: Evidence) -> Iterator[str]:
    """Of a schedule with reporting runs that may not overlap, each starts after the one before has ended."""
    for history in evidence.histories:
        if not history.job.identity.startswith(REPORTS) or _overlap_of(history.job) == "allow":
            continue
        spans = sorted((run.started_at, run.ended_at or 0) for run in history.runs if run.started_at)
        for (_, ended_at), (started_at, _) in pairwise(spans):
            if started_at < ended_at:
                yield f"{history.job.identity}: a run started at {started_at}, one before ended at {ended_at}"


def repeats_have_a_reason(evidence: Evidence) -> Iterator[str]:
    """A delivery is repeated when its response was lost, or when its owner's lease expired.

    A lease expires when its worker is killed, frozen or cut off. A worker that releases its shards has
    recorded every response before.
    """
    for key, found in evidence.by_key().items():
        for before, after in pairwise(found):
            if before.answer is Answer.ACCEPTED and not _was_taken_over(evidence, before, after):
                yield (
                    f"{before.identity}: {key[:8]} was delivered again after it was accepted, with the token "
                    f"{after.token} at {after.at} after {before.token} at {before.at} (sent "
                    f"at {after.sent_at} s and {before.sent_at} s), and no owner had died"
                    f"; leases: {_leases_of(evidence, before, after)}"
                )


def _leases_of(evidence: Evidence, before: Delivery, after: Delivery) -> list[tuple[int, str, bool]]:
    """Return the tokens, owners and forced take-overs that a repeated delivery is judged by."""
    shard = 0 if evidence.is_file else shard_of(before.identity)
    return [
        (lease.token, lease.owner, lease.forced)
        for lease in evidence.leases
        if lease.shard == shard and before.token <= lease.token <= after.token
    ]


def _was_taken_over(evidence: Evidence, before: Delivery, after: Delivery) -> bool:
    shard = 0 if evidence.is_file else shard_of(before.identity)
    forced = any(
        lease.forced and lease.shard == shard and before.token < lease.token <= after.token
        for lease in evidence.leases
    )
    if forced and _was_struck(evidence, shard, before, after):
        return True
    return any(before.at - UNDER_WAY_MS <= at <= after.at for at in evidence.broken_off)


def _was_struck(evidence: Evidence, shard: int, before: Delivery, after: Delivery) -> bool:
    """Return whether the sender of a delivery was killed, frozen or cut off before the next."""
    senders = {
        int(lease.owner.split(":")[1])
        for lease in evidence.leases
        if (lease.shard, lease.token) == (shard, before.token)
    }
    times = [at for pid, at in evidence.struck if pid in senders] + evidence.outages
    return any(before.at - STRUCK_MS <= at <= after.at for at in times)


def repeats_of(evidence: Evidence) -> int:
    """Return the number of deliveries repeated although the one before was accepted."""
    return sum(
        before.answer is Answer.ACCEPTED
        for found in evidence.by_key().values()
        for before, _ in pairwise(found)
    )


# --- tokens and requests ---------------------------------------------------------------------------


def tokens_never_go_back(evidence: Evidence) -> Iterator[str]:
    """Of each shard, no start is written with an older token than one before it."""
    highest: dict[int, int] = {}
    for start in evidence.starts:
        if start.token < highest.get(start.shard, 0):
            yield f"shard {start.shard}: {start.key[:8]} has token {start.token} after {highest[start.shard]}"
        highest[start.shard] = max(start.token, highest.get(start.shard, 0))
    taken: dict[int, int] = {}
    for lease in evidence.leases:
        if lease.token <= taken.get(lease.shard, 0):
            yield f"shard {lease.shard}: token {lease.token} was given after {taken[lease.shard]}"
        taken[lease.shard] = lease.token


def executors_never_see_tokens_go_back(evidence: Evidence) -> Iterator[str]:
    """Of each schedule, no start arrives with an older token than one before it."""
    highest: dict[str, int] = {}
    for delivery in evidence.deliveries:
        name, token = delivery.identity, delivery.token
        if token < highest.get(name, 0) and not _is_cut_short(evidence, delivery):
            yield f"{name}: {delivery.key[:8]} arrived with token {token} after {highest[name]}"
        highest[name] = max(token, highest.get(name, 0))


def _is_cut_short(evidence: Evidence, delivery: Delivery) -> bool:
    """Return whether a request may have been given up by a drain that was cut short."""
    return any(abs(delivery.at - at) <= UNDER_WAY_MS for at in evidence.broken_off)


def each_request_is_run_once(evidence: Evidence) -> Iterator[str]:
    """Every acknowledged request has exactly one run."""
    names = [history.job.identity for history in evidence.histories]
    keys = {run.key: run for history in evidence.histories for run in history.runs if run.kind == "manual"}
    for request, was_heard in evidence.asked.items():
        found = [name for name in names if request_key_of(name, RunKind.MANUAL, request) in keys]
        if len(found) > 1 or (was_heard and not found):
            yield f"{request} was acknowledged and has the runs {found}"


CHECKS: list[Callable[[Evidence], Iterator[str]]] = [
    each_period_has_one_record,
    each_run_has_an_outcome,
    records_and_deliveries_agree,
    nothing_lost_arrives_later,
    no_two_runs_overlap,
    repeats_have_a_reason,
    tokens_never_go_back,
    executors_never_see_tokens_go_back,
    each_request_is_run_once,
]
