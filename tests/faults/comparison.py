"""Compare the records with the ledger of executions, period by period.

Nothing of the engine is used here: periods are listed by dividing, policies are judged by their text.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from kron.core.job.policy import Policy
from kron.core.plan.record import AttemptRecord, RangeRecord, RunRecord
from tests.faults.ledger import Line

# A take-over applies the catch-up policy to periods older than this; later ones are only late.
GRACE_MS = 60_000
NOT_RUN = frozenset({"MISSED", "SKIPPED"})
MISSED_BY = {"none": "catchup_none", "once": "superseded", "all": "catchup_limit"}
SKIPPED_BY = {
    "allow": frozenset[str](),
    "skip": frozenset({"active"}),
    "queue": frozenset({"queue_full"}),
    "buffer_one": frozenset({"coalesced"}),
}
TRIED_AGAIN = frozenset({"failed", "launch_failed", "lost"})


class Life(NamedTuple):
    """One owner: its token, when it requested and got the lease, and when it was killed, if it was."""

    token: int
    asked_at: int
    owned_at: int
    killed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A job with a period every `every_s` seconds, with its records and its executions.

    `honours`: its executor runs one key and attempt once, however often it is delivered. `outlives`: its
    executions survive their owner.
    """

    identity: str
    every_s: int
    policy: Policy
    born_at: int
    until: int
    lives: list[Life]
    rows: list[RunRecord]
    ranges: list[RangeRecord] = field(default_factory=list)
    attempts: dict[str, list[AttemptRecord]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    honours: bool = False
    outlives: bool = False

    def periods(self) -> range:
        """Return the nominal times between the job's birth and its end, both included."""
        first = -(-self.born_at // (1000 * self.every_s)) * self.every_s
        return range(first, self.until + 1, self.every_s)

    def tries_of(self, row: RunRecord) -> list[AttemptRecord]:
        """Return every attempt of a row, including the last."""
        if not row.attempt:
            return []
        last = AttemptRecord(
            row.key, row.attempt, row.token, row.started_at, row.ended_at, row.result, row.error, row.run_id
        )
        return [*self.attempts.get(row.key, []), last]

    def life_at(self, instant: int) -> Life | None:
        """Return the owner of an instant."""
        return max((life for life in self.lives if life.asked_at <= instant), default=None)

    @cached_property
    def _said(self) -> dict[tuple[str, str, int], list[Line]]:
        found: dict[tuple[str, str, int], list[Line]] = {}
        for line in self.lines:
            if line.identity == self.identity:
                found.setdefault((line.what, line.key, line.attempt), []).append(line)
        return found

    def said(self, what: str, key: str, attempt: int) -> list[Line]:
        """Return the ledger's lines about one attempt."""
        return self._said.get((what, key, attempt), [])


class Entry(NamedTuple):
    """The record of one period, in its row or in a range."""

    nominal_time: int
    status: str
    reason: str
    made_at: int


def faults_of(evidence: Evidence) -> list[str]:
    """Return every fault as a sentence."""
    return [f"{evidence.identity}: {fault}" for check in CHECKS for fault in check(evidence)]


def entries_of(evidence: Evidence) -> list[Entry]:
    """Return the records of all periods, oldest first."""
    found = [Entry(row.nominal_time, row.status, row.reason, row.created_at) for row in evidence.rows]
    for shared in evidence.ranges:
        listed = range(shared.first, shared.last + 1, evidence.every_s)
        found += [Entry(time, shared.outcome.upper(), shared.reason, shared.created_at) for time in listed]
    return sorted(found)


def each_period_has_one_record(evidence: Evidence) -> Iterator[str]:
    """Every period has a record, no period has two, and no record lacks a period."""
    seen: dict[int, int] = {}
    for entry in entries_of(evidence):
        seen[entry.nominal_time] = seen.get(entry.nominal_time, 0) + 1
    expected = evidence.periods()
    yield from (f"{time} has no record" for time in expected if time not in seen)
    yield from (f"{time} has {count} records" for time, count in seen.items() if count > 1)
    yield from (f"{time} is no period" for time in seen if time not in expected)
    for shared in evidence.ranges:
        counted = len(range(shared.first, shared.last + 1, evidence.every_s))
        if counted != shared.periods:
            yield f"{shared.first} to {shared.last} are {counted} periods, not {shared.periods}"


def each_period_has_an_outcome(evidence: Evidence) -> Iterator[str]:
    """No run is open at the end."""
    for row in evidence.rows:
        if row.is_open or row.outcome is None:
            yield f"{row.nominal_time} is still {row.status} ({row.reason})"


def missed_as_the_policy_says(evidence: Evidence) -> Iterator[str]:
    """Catch-up drops exactly the periods its policy says; periods that are only late run."""
    judged: dict[Life, list[Entry]] = {}
    for entry in entries_of(evidence):
        life = evidence.life_at(entry.made_at)
        if life is None:
            yield f"{entry.nominal_time} was recorded before the first take-over"
        else:
            judged.setdefault(life, []).append(entry)
    for life, entries in judged.items():
        yield from _missed_in(evidence, life, entries)


def _missed_in(evidence: Evidence, life: Life, entries: list[Entry]) -> Iterator[str]:
    policy = evidence.policy
    line = life.asked_at - GRACE_MS, life.owned_at - GRACE_MS
    certain = [entry for entry in entries if 1000 * entry.nominal_time < line[0]]
    perhaps = [entry for entry in entries if line[0] <= 1000 * entry.nominal_time < line[1]]
    kept = {"none": 0, "once": 1, "all": policy.max_catchup}[policy.catchup]
    # Periods that may have been missed take the places of those that were.
    sure = certain[len(certain) - max(0, kept - len(perhaps)) :] if kept > len(perhaps) else []
    dropped = certain[: len(certain) - kept] if kept < len(certain) else []
    for entry in entries:
        by_catchup = entry.status == "MISSED" and entry.reason == MISSED_BY[policy.catchup]
        if entry in dropped and not by_catchup:
            yield f"{entry.nominal_time} should have been missed, and is {entry.status} ({entry.reason})"
        elif by_catchup and (entry in sure or (entry not in certain and entry not in perhaps)):
            yield f"{entry.nominal_time} should not have been missed ({entry.reason})"
        elif entry.status == "MISSED" and not by_catchup and entry.reason != "deadline":
            yield f"{entry.nominal_time} was missed for a wrong reason ({entry.reason})"
    yield from _late_in(evidence, [entry for entry in entries if entry not in dropped])


def _late_in(evidence: Evidence, entries: Iterable[Entry]) -> Iterator[str]:
    """The deadline counts in whole seconds, from the instant the period was recorded."""
    deadline = evidence.policy.deadline
    for entry in entries:
        late_s = entry.made_at // 1000 - entry.nominal_time
        is_late = deadline is not None and late_s > deadline.total_seconds()
        if entry.reason == "deadline" and not is_late:
            yield f"{entry.nominal_time} was dropped by a deadline {late_s} s later"
        if is_late and entry.status not in NOT_RUN:
            yield f"{entry.nominal_time} ran {late_s} s late, after its deadline"


def skipped_as_the_policy_says(evidence: Evidence) -> Iterator[str]:
    """An overlap policy drops a period only for its own reason, and only while a run was active."""
    allowed = SKIPPED_BY[evidence.policy.overlap]
    newest = max(evidence.periods(), default=0)
    for entry in entries_of(evidence):
        if entry.status != "SKIPPED":
            continue
        if entry.reason not in allowed:
            yield f"{entry.nominal_time} was skipped for a wrong reason ({entry.reason})"
        elif entry.reason == "active" and not _active_at(evidence, entry):
            yield f"{entry.nominal_time} was skipped although nothing was active"
        elif entry.reason == "queue_full" and _waiting_at(evidence, entry) < evidence.policy.queue_max:
            yield f"{entry.nominal_time} was skipped although the queue had room"
        elif entry.reason == "coalesced" and entry.nominal_time == newest:
            yield f"{entry.nominal_time} was the newest and was skipped"


def _active_at(evidence: Evidence, entry: Entry) -> bool:
    tries = [one for row in evidence.rows for one in evidence.tries_of(row)]
    return any((one.started_at or 0) <= entry.made_at <= (one.ended_at or entry.made_at) for one in tries)


def _waiting_at(evidence: Evidence, entry: Entry) -> int:
    count = 0
    for row in evidence.rows:
        tries = evidence.tries_of(row)
        begun = tries[0].started_at if tries else None
        count += row.created_at <= entry.made_at and (begun is None or begun >= entry.made_at)
    return count


def records_and_ledger_agree(evidence: Evidence) -> Iterator[str]:
    """Every recorded attempt was executed once, and every execution has a record."""
    known: set[tuple[str, int]] = set()
    for row in evidence.rows:
        if row.attempt and row.status in NOT_RUN:
            yield f"{row.nominal_time} is {row.status} and was executed"
        for one in evidence.tries_of(row):
            known.add((one.key, one.attempt))
            for fault in _executed(evidence, row, one):
                yield f"{row.nominal_time}, attempt {one.attempt}: {fault}"
    for line in evidence.lines:
        if line.identity == evidence.identity and line.key and (line.key, line.attempt) not in known:
            yield f"{line.key[:8]}, attempt {line.attempt}: {line.what} without a record"


def _executed(evidence: Evidence, row: RunRecord, one: AttemptRecord) -> Iterator[str]:
    begun = evidence.said("begin", one.key, one.attempt)
    if len(begun) > 1:
        yield f"executed {len(begun)} times"
    if any(0 <= line.at < 1000 * row.nominal_time for line in begun):
        yield "executed before its time"
    if any(line.token > one.token or (line.token != one.token and not evidence.honours) for line in begun):
        yield f"executed with the tokens {[line.token for line in begun]}, not {one.token}"
    needed = {"success": "end", "failed": "raise", None: "begin"}.get(one.result, "")
    if needed and not evidence.said(needed, one.key, one.attempt):
        yield f"{one.result or row.status} recorded, and no such end in the ledger"
    if one.result == "orphaned" and not _was_killed(evidence, one):
        yield "orphaned, and its owner was not killed"
    tokens = [line.token for line in evidence.said("delivered", one.key, one.attempt)]
    if any(earlier >= later for earlier, later in pairwise(tokens)):
        yield f"delivered again by the same owner: {tokens}"
    if any(not _is_killed(evidence, token) for token in tokens[:-1]):
        yield f"delivered again although no owner was killed: {tokens}"


def _is_killed(evidence: Evidence, token: int) -> bool:
    return any(life.token == token and life.killed_at is not None for life in evidence.lives)


def _was_killed(evidence: Evidence, one: AttemptRecord) -> bool:
    """Return whether an attempt's owner, or one that had adopted it, was killed before it was found lost."""
    dead = [life for life in evidence.lives if life.killed_at is not None and life.token >= one.token]
    return any(life.killed_at is not None and life.killed_at <= (one.ended_at or 0) for life in dead)


def tried_again_by_the_rules(evidence: Evidence) -> Iterator[str]:
    """A new attempt follows a failure that is retried or an orphan that is restarted."""
    policy = evidence.policy
    for row in evidence.rows:
        tries = evidence.tries_of(row)
        if [one.attempt for one in tries] != list(range(1, len(tries) + 1)):
            yield f"{row.nominal_time} has the attempts {[one.attempt for one in tries]}"
        for before, after in pairwise(tries):
            if not _leads_on(policy, before):
                yield f"{row.nominal_time} was tried again after {before.result}"
            elif _too_soon(policy, before, after):
                yield f"{row.nominal_time} was tried again before its delay was over"
        if tries and _leads_on(policy, tries[-1]) and row.reason != "retry_preempted":
            yield f"{row.nominal_time} was not tried again after {row.result} ({row.reason})"


def _leads_on(policy: Policy, one: AttemptRecord) -> bool:
    if one.result == "orphaned":
        return policy.on_orphan == "restart"
    return one.result in TRIED_AGAIN and policy.retry_delay is not None


def _too_soon(policy: Policy, before: AttemptRecord, after: AttemptRecord) -> bool:
    if before.result == "orphaned" or policy.retry_delay is None:
        return False
    return (after.started_at or 0) - (before.ended_at or 0) < 1000 * policy.retry_delay.total_seconds()


def none_overlap(evidence: Evidence) -> Iterator[str]:
    """Unless the policy allows it, no two executions of one owner are under way at once."""
    if evidence.policy.overlap == "allow" or evidence.honours:
        return
    running: dict[int, Line] = {}
    for line in evidence.lines:
        owner = 0 if evidence.outlives else line.token
        if line.identity != evidence.identity or not line.key:
            continue
        if line.what == "begin":
            if owner in running:
                yield f"{line.key[:8]} began while {running[owner].key[:8]} was under way"
            running[owner] = line
        elif line.what in ("end", "raise"):
            running.pop(owner, None)


CHECKS: list[Callable[[Evidence], Iterator[str]]] = [
    each_period_has_one_record,
    each_period_has_an_outcome,
    missed_as_the_policy_says,
    skipped_as_the_policy_says,
    records_and_ledger_agree,
    tried_again_by_the_rules,
    none_overlap,
]


def fenced(lines: Iterable[Line]) -> list[str]:
    """Return the executions that started after one of the same job with a later token.

    Different jobs are not compared: the owner of a shard just taken over has a later token than the others.
    """
    faults: list[str] = []
    highest: dict[str, int] = {}
    for line in lines:
        if line.what == "begin":
            if line.token < highest.get(line.identity, 0):
                faults.append(
                    f"{line.identity}: token {line.token} began after token {highest[line.identity]}"
                )
            highest[line.identity] = max(line.token, highest.get(line.identity, 0))
    return faults
