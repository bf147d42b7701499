"""Verdicts: what the present moment demands for one decided period."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from kron.core.job.decision import Decision
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import Overlap, Policy
from kron.core.time.instant import milliseconds_of


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before an instant in milliseconds.

    Without one: until the job is resumed, or until its active execution ends.
    """

    until: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """Start an execution; `replace` asks the active one to end first."""

    replace: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """The period ends without an execution."""

    outcome: Outcome
    reason: Reason


Verdict: TypeAlias = Wait | Start | Settle


def judge(decision: Decision, policy: Policy, *, active: bool, now: datetime | int) -> Verdict:
    """Say what a moment demands for one period (SPEC 4: Trigger, Deadline, Concurrency).

    `now` is an aware datetime, or milliseconds since 1970. Order is policy: what stands first wins.
    """
    now = milliseconds_of(now)
    if policy.suspend:
        return Wait(until=None)
    if decision.fire_time is None:
        return Settle(Outcome.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    if now < decision.fire_time:
        return Wait(until=decision.fire_time)
    # Lateness counts in whole seconds: with deadline 0, a start in that very second is on time.
    late_s = now // 1000 - decision.fire_time // 1000
    if policy.deadline is not None and late_s > policy.deadline.total_seconds():
        return Settle(Outcome.MISSED, Reason.DEADLINE)
    if active and policy.overlap is Overlap.SKIP:
        return Settle(Outcome.SKIPPED, Reason.ACTIVE)
    if active and policy.overlap in (Overlap.QUEUE, Overlap.BUFFER_ONE):
        return Wait(until=None)
    return Start(replace=active and policy.overlap is Overlap.REPLACE)
