"""Verdicts: the whole cross product of what can come together, against a table written by hand."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InvalidInstantError
from kron.core.job.decision import Decision, decide
from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.policy import Policy
from kron.core.job.verdict import Settle, Start, Verdict, Wait, judge
from tests.job_strategies import policies
from tests.strategies import law

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRE = 1000 * int(NOON.timestamp())

# When now is, in milliseconds after the chosen time, and what that is under each deadline:
# too early, in time, or late. Lateness counts in whole seconds.
LATENESS = (-86_400_000, -1_000, -1, 0, 1, 999, 1_000, 1_999, 2_000, 600_000, 600_999, 601_000, 10**13)
TIMING = {
    "0s": "early early early intime intime intime late late late late late late late",
    "0.4s": "early early early intime intime intime late late late late late late late",
    "1s": "early early early intime intime intime intime intime late late late late late",
    "10m": "early early early intime intime intime intime intime intime intime intime late late",
    None: "early early early intime intime intime intime intime intime intime intime intime intime",
}
# What a period in time gets, by concurrency and whether an execution is active.
IN_TIME: dict[tuple[str, bool], str] = {
    ("allow", False): "start",
    ("allow", True): "start",
    ("forbid", False): "start",
    ("forbid", True): "skipped",
    ("replace", False): "start",
    ("replace", True): "replace",
}
# Everything there is: suspended, unschedulable, timing -> what is said.
TABLE: dict[tuple[bool, bool, str], str] = {
    (True, True, "early"): "suspended",
    (True, True, "intime"): "suspended",
    (True, True, "late"): "suspended",
    (True, False, "early"): "suspended",
    (True, False, "intime"): "suspended",
    (True, False, "late"): "suspended",
    (False, True, "early"): "unschedulable",
    (False, True, "intime"): "unschedulable",
    (False, True, "late"): "unschedulable",
    (False, False, "early"): "wait",
    (False, False, "intime"): "by concurrency",
    (False, False, "late"): "missed",
}
SAID: dict[str, Verdict] = {
    "suspended": Wait(until=None),
    "wait": Wait(until=FIRE),
    "start": Start(replace=False),
    "replace": Start(replace=True),
    "skipped": Settle(Outcome.SKIPPED, Reason.ACTIVE),
    "missed": Settle(Outcome.MISSED, Reason.DEADLINE),
    "unschedulable": Settle(Outcome.UNSCHEDULABLE, Reason.NO_CANDIDATE),
}


def decision_of(*, unschedulable: bool = False) -> Decision:
    rules = {"avoid": {"hours": [12]}} if unschedulable else {}
    decision = decide(Job.from_dict({"identity": "a", "schedule": "0 12 * * *", "constraints": rules}), NOON)
    assert decision.unschedulable is unschedulable
    return decision


def policy_of(concurrency: str, deadline: str | None, *, suspend: bool) -> Policy:
    definition = {"concurrency": concurrency, "deadline": deadline, "suspend": suspend}
    return Job.from_dict({"identity": "a", "schedule": "0 12 * * *", "policy": definition}).policy


@pytest.mark.parametrize(
    ("concurrency", "active", "deadline", "suspend", "unschedulable"),
    list(product(("allow", "forbid", "replace"), (False, True), TIMING, (False, True), (False, True))),
)
def test_the_whole_cross_product_is_judged_as_the_table_says(
    concurrency: str, active: bool, deadline: str | None, suspend: bool, unschedulable: bool
) -> None:
    decision = decision_of(unschedulable=unschedulable)
    policy = policy_of(concurrency, deadline, suspend=suspend)
    for late_ms, timing in zip(LATENESS, TIMING[deadline].split(), strict=True):
        word = TABLE[suspend, unschedulable, timing]
        expected = SAID[IN_TIME[concurrency, active] if word == "by concurrency" else word]
        assert judge(decision, policy, active=active, now=FIRE + late_ms) == expected, late_ms


@law(200)
@given(policies(), st.booleans(), st.integers(-10_000_000, 10_000_000))
def test_nothing_starts_early_late_or_while_suspended(
    definition: dict[str, object], active: bool, late_ms: int
) -> None:
    policy = Job.from_dict({"identity": "a", "schedule": "0 12 * * *", "policy": definition}).policy
    verdict = judge(decision_of(), policy, active=active, now=FIRE + late_ms)
    if isinstance(verdict, Start):
        assert late_ms >= 0
        assert not policy.suspend
        assert policy.deadline is None or late_ms // 1000 <= policy.deadline.total_seconds()
    if isinstance(verdict, Wait) and verdict.until is not None:
        assert FIRE + late_ms < verdict.until == FIRE


@law(60)
@given(policies(), st.booleans(), st.integers(-10_000_000, 10_000_000))
def test_a_suspended_job_handles_no_period(definition: dict[str, object], active: bool, late_ms: int) -> None:
    suspended = {**definition, "suspend": True}
    policy = Job.from_dict({"identity": "a", "schedule": "0 12 * * *", "policy": suspended}).policy
    for unschedulable in (False, True):
        decision = decision_of(unschedulable=unschedulable)
        assert judge(decision, policy, active=active, now=FIRE + late_ms) == Wait(until=None)


def test_the_usual_policy_forbids_overlap_and_lateness() -> None:
    decision, usual = decision_of(), Policy()
    assert judge(decision, usual, active=False, now=FIRE + 999) == Start(replace=False)
    assert judge(decision, usual, active=False, now=FIRE + 1000) == Settle(Outcome.MISSED, Reason.DEADLINE)
    assert judge(decision, usual, active=True, now=FIRE) == Settle(Outcome.SKIPPED, Reason.ACTIVE)


def test_a_period_late_and_overlapping_is_missed_not_skipped() -> None:
    assert judge(decision_of(), Policy(), active=True, now=FIRE + 5000) == SAID["missed"]


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_a_sentence_of_its_own(reason: Reason) -> None:
    assert reason.sentence
    assert reason.sentence != reason.value
    assert [other for other in Reason if other.sentence == reason.sentence] == [reason]


@pytest.mark.parametrize("late", [timedelta(0), timedelta(milliseconds=999), timedelta(seconds=1)])
def test_a_moment_may_be_a_datetime(late: timedelta) -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    job = Job.from_dict({"identity": "a", "schedule": "0 12 * * *"})
    decision = decide(job, noon)
    milliseconds = 1000 * decision.nominal_time + late // timedelta(milliseconds=1)
    spoken = judge(decision, job.policy, active=False, now=(noon + late).astimezone(ZoneInfo("Asia/Tokyo")))
    assert spoken == judge(decision, job.policy, active=False, now=milliseconds)


def test_a_moment_without_a_zone_is_refused() -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 12 * * *"})
    decision = decide(job, datetime(2026, 6, 1, 12, tzinfo=UTC))
    with pytest.raises(InvalidInstantError):
        judge(decision, job.policy, active=False, now=datetime(2026, 6, 1, 12))


@pytest.mark.parametrize("now", [1.5, True, "x", None])
def test_what_is_no_moment_is_refused(now: Any) -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 12 * * *"})
    decision = decide(job, datetime(2026, 6, 1, 12, tzinfo=UTC))
    with pytest.raises(InvalidInstantError):
        judge(decision, job.policy, active=False, now=now)
