"""A policy that exists is valid."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kron
from kron.core.job.policy import MAX_LOOKAHEAD_MS, Catchup


@pytest.mark.parametrize(
    ("name", "overlap"),
    [
        ("allow", kron.Overlap.ALLOW),
        ("skip", kron.Overlap.SKIP),
        ("forbid", kron.Overlap.SKIP),
        ("replace", kron.Overlap.REPLACE),
    ],
)
def test_an_overlap_may_be_given_by_its_name(name: Any, overlap: kron.Overlap) -> None:
    policy = kron.Policy(overlap=name)
    assert policy == kron.Policy(overlap=overlap)
    assert policy.overlap is overlap


def test_fire_immediately_is_another_name_for_all() -> None:
    alias: Any = "fire_immediately"
    assert kron.Policy(catchup=alias).catchup is Catchup.ALL


def test_jitter_may_be_as_large_as_the_longest_lookahead_and_no_larger() -> None:
    assert kron.Policy(jitter_ms=MAX_LOOKAHEAD_MS).jitter_ms == MAX_LOOKAHEAD_MS
    with pytest.raises(kron.InvalidOptionError, match="from 0 to 3600000"):
        kron.Policy(jitter_ms=MAX_LOOKAHEAD_MS + 1)


def test_a_policy_given_by_name_is_obeyed() -> None:
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    decision = kron.decide(kron.Job.from_dict({"identity": "a", "schedule": "0 12 * * *"}), noon)
    forbid: Any = "forbid"
    verdict = kron.judge(decision, kron.Policy(overlap=forbid), active=True, now=noon)
    assert verdict == kron.Settle(kron.Outcome.SKIPPED, kron.Reason.ACTIVE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"overlap": "foo"}, 'Invalid overlap "foo": use allow, skip, '),
        ({"overlap": None}, 'Invalid overlap "None": use allow, '),
        ({"deadline": timedelta(-1)}, 'Invalid deadline "-1 day, 0:00:00": must be None or a timedelta'),
        ({"deadline": 5}, 'Invalid deadline "5": must be None or a timedelta that is not negative'),
        ({"suspend": "no"}, 'Invalid suspend "no": must be True or False'),
    ],
)
def test_a_value_a_policy_cannot_have_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(kron.InvalidOptionError) as caught:
        kron.Policy(**values)
    assert str(caught.value).startswith(message)
