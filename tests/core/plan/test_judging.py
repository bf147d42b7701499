"""`kron.judge` and the engine judge a period in one order: whatever comes together, they agree."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

import kron
from kron.core.job.decision import Decision, decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import LOOKAHEAD_MS, Overlap
from kron.core.job.verdict import Settle, Stage, Start, Verdict, Wait, judge, stage_of
from kron.core.plan.plan import plan
from kron.core.plan.record import RunKind, RunRecord, RunStatus
from kron.core.plan.registration import create, request_run
from kron.core.plan.report import Traits
from kron.core.plan.step import Change, JobState, Snapshot
from tests.strategies import law

# The one period of the tests: created half an hour before it, and the next one is an hour later.
NOMINAL = 1_767_268_800
CREATED = 1000 * (NOMINAL - 1_800)
TRAITS = {"callback": Traits()}
# Between these no other period is due and no take-over happened.
BEFORE_MS, AFTER_MS = 40_000, 90_000


@st.composite
def jobs(draw: st.DrawFn, /, **policy: object) -> Job:
    deadline = st.none() | st.sampled_from(["0s", "0.4s", "1s", "2s", "30s"])
    definition: dict[str, Any] = {
        "identity": "world/job",
        "schedule": "0 * * * *",
        "policy": {
            "overlap": draw(st.sampled_from(list(Overlap))).value,
            "deadline": draw(deadline),
            "suspend": draw(st.booleans()),
            **policy,
        },
    }
    if draw(st.booleans()):
        modes = st.sampled_from(["after", "before", "around"])
        definition["window"] = {"mode": draw(modes), "duration": draw(st.sampled_from(["1s", "30s"]))}
    if draw(st.integers(0, 3)) == 0:
        definition["constraints"] = {"avoid": {"hours": "0-23"}}
    return Job.from_dict(definition)


def state_of(job: Job, *, active: bool) -> JobState:
    """Return the job as the engine keeps it, with a run in flight if it is active."""
    paused = int(job.policy.suspend)
    record = create(replace(job, policy=replace(job.policy, suspend=False)), now=CREATED)
    if not active:
        return JobState(record._replace(paused=paused))
    request = request_run(record, request="before", now=CREATED)
    asked = JobState(request.job, request.inserts)
    ((change,), _) = plan(Snapshot([asked], CREATED, 1, TRAITS), CREATED)
    (run,) = change.starts
    return JobState(change.job._replace(paused=paused), [run])


def planned(job: Job, now: int, *, active: bool, taken_over_at: int) -> Change:
    snapshot = Snapshot([state_of(job, active=active)], taken_over_at, 1, TRAITS)
    ((change,), _) = plan(snapshot, now)
    return change


def verdict_of(change: Change, decision: Decision) -> Verdict:
    """Return a change of the engine as a verdict on the one period."""
    runs = [run for run in change.inserts if run.kind is RunKind.PERIOD]
    if not runs:
        waits_for_resume = bool(change.job.paused)
        return Wait(until=None if waits_for_resume else decision.fire_time)
    (run,) = runs
    if run in change.starts:
        return Start(replace=False)
    if run.outcome is not None:
        return Settle(run.outcome, run.reason)
    return verdict_of_waiting(run, change)


def verdict_of_waiting(run: RunRecord, change: Change) -> Verdict:
    assert run.status is RunStatus.PENDING
    if run.reason is Reason.REPLACING:
        assert change.ends
        return Start(replace=True)
    return Wait(until=None if run.reason is Reason.QUEUED else run.fire_time)


moments = st.integers(-BEFORE_MS, AFTER_MS) | st.sampled_from(
    [-1, 0, 1, 999, 1_000, 1_999, 2_000, 30_999, 31_000]
)


@law(400)
@given(jobs(), moments, st.booleans(), st.booleans())
def test_the_engine_and_judge_agree_on_every_period(
    job: Job, late_ms: int, active: bool, taken_over_late: bool
) -> None:
    """A late take-over changes nothing: the default catch-up policy runs every missed period."""
    decision = decide_at(job, NOMINAL)
    now = (decision.fire_time or 1000 * decision.bounds.start) + late_ms
    if decision.unschedulable and now < 1000 * decision.bounds.start:
        # The engine settles it when its window opens; `judge` is asked about a decision that exists.
        now = 1000 * decision.bounds.start
    taken_over_at = now + LOOKAHEAD_MS if taken_over_late else CREATED
    change = planned(job, now, active=active, taken_over_at=taken_over_at)
    verdict = judge(decision, job.policy, active=active, now=now)
    event(f"{type(verdict).__name__} {job.policy.overlap}")
    assert verdict_of(change, decision) == verdict


@law(200)
@given(jobs(catchup="none", suspend=False), moments, st.integers(-5_000, 5_000))
def test_the_engine_catches_up_with_exactly_the_periods_whose_stage_is_missed(
    job: Job, late_ms: int, line_ms: int
) -> None:
    decision = decide_at(job, NOMINAL)
    fire_time = decision.fire_time or 1000 * decision.bounds.end
    now = fire_time + max(late_ms, 0)
    catch_line = min(fire_time + line_ms, now)
    change = planned(job, now, active=False, taken_over_at=catch_line + LOOKAHEAD_MS)
    was_missed = stage_of(decision.fire_time, now, catch_line=catch_line) is Stage.MISSED
    assert (verdict_of(change, decision) == Settle(Outcome.MISSED, Reason.CATCHUP_NONE)) is was_missed


def test_the_stages_are_in_the_order_of_the_design() -> None:
    """The order of judging: suspended, unschedulable, too early, catch-up, deadline, overlap."""
    now = 1_000_000
    assert [stage.name for stage in Stage] == ["SUSPENDED", "UNSCHEDULABLE", "EARLY", "MISSED", "LATE", "DUE"]
    assert stage_of(None, now, suspended=True, catch_line=now, deadline_s=0) is Stage.SUSPENDED
    assert stage_of(None, now, catch_line=now, deadline_s=0) is Stage.UNSCHEDULABLE
    assert stage_of(now + 1, now, catch_line=now + 2, deadline_s=0) is Stage.EARLY
    assert stage_of(now - 5_000, now, catch_line=now, deadline_s=0) is Stage.MISSED
    assert stage_of(now - 5_000, now, catch_line=now - 5_000, deadline_s=0) is Stage.LATE
    assert stage_of(now, now, catch_line=now, deadline_s=0) is Stage.DUE


def test_the_public_judge_is_the_one_the_engine_shares() -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 12 * * *"})
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert kron.judge(kron.decide(job, noon), job.policy, active=False, now=noon) == kron.Start(replace=False)
