"""Verdicts: what an instant demands for one decided period, in one order of judging.

`stage_of` and `overlap_verdict` are that order. `judge` applies them to one decision, the engine's planning
step to all periods of a job.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import TypeAlias

from kron.core.job.decision import Decision
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import Overlap, Policy
from kron.core.time.instant import milliseconds_of


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before an instant in milliseconds.

    Without one: until the job is resumed, or until its active run ends.
    """

    until: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run; `replace` ends the active one first."""

    replace: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """The period ends without a run."""

    outcome: Outcome
    reason: Reason


Verdict: TypeAlias = Wait | Start | Settle


class Stage(Enum):
    """How far the judging of a period gets, in its order; only a DUE period meets the overlap policy."""

    SUSPENDED = auto()
    UNSCHEDULABLE = auto()
    EARLY = auto()
    MISSED = auto()
    LATE = auto()
    DUE = auto()


START = Start(replace=False)
# What each overlap policy demands while a run is active.
WHILE_ACTIVE: dict[Overlap, Verdict] = {
    Overlap.ALLOW: START,
    Overlap.SKIP: Settle(Outcome.SKIPPED, Reason.ACTIVE),
    Overlap.QUEUE: Wait(until=None),
    Overlap.BUFFER_ONE: Wait(until=None),
    Overlap.REPLACE: Start(replace=True),
}
# The verdicts on periods that do not run; a MISSED one is judged by the catch-up policy.
SETTLED = {
    Stage.UNSCHEDULABLE: Settle(Outcome.UNSCHEDULABLE, Reason.NO_CANDIDATE),
    Stage.LATE: Settle(Outcome.MISSED, Reason.DEADLINE),
}


def stage_of(
    fire_time: int | None,
    now: int,
    *,
    suspended: bool = False,
    catch_line: int | None = None,
    deadline_s: float | None = None,
) -> Stage:
    """Return the first stage that applies to a period, in the order of judging.

    Instants are in milliseconds. A fire time before `catch_line` was missed: no worker was running then.
    """
    if suspended:
        return Stage.SUSPENDED
    if fire_time is None:
        return Stage.UNSCHEDULABLE
    if fire_time > now:
        return Stage.EARLY
    if catch_line is not None and fire_time < catch_line:
        return Stage.MISSED
    # Lateness counts in whole seconds: with deadline 0, a start in that very second is on time.
    if deadline_s is not None and now // 1000 - fire_time // 1000 > deadline_s:
        return Stage.LATE
    return Stage.DUE


def overlap_verdict(overlap: Overlap, *, active: bool) -> Verdict:
    """Return what the overlap policy demands for a period that is due (SPEC 4: Concurrency)."""
    return WHILE_ACTIVE[overlap] if active else START


def judge(decision: Decision, policy: Policy, *, active: bool, now: datetime | int) -> Verdict:
    """Return what an instant demands for one period (SPEC 4: Trigger, Deadline, Concurrency).

    `now` is an aware datetime, or milliseconds since 1970.
    """
    fire_time, now = decision.fire_time, milliseconds_of(now)
    deadline_s = None if policy.deadline is None else policy.deadline.total_seconds()
    stage = stage_of(fire_time, now, suspended=policy.suspend, deadline_s=deadline_s)
    if stage is Stage.DUE:
        return overlap_verdict(policy.overlap, active=active)
    return SETTLED.get(stage) or Wait(until=fire_time if stage is Stage.EARLY else None)
