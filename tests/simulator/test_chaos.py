"""What chaos holds against a start: not as decided, too early, or after its deadline."""

import pytest

from kron.core.job.decision import decide_at
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunRecord, RunStatus
from kron.testing.simulator.chaos import faults_of_start

NOON = 1767268800
AT_NOON = decide_at(Job.from_dict({"identity": "a", "schedule": "0 12 * * *"}), NOON)


@pytest.mark.parametrize(
    ("fire_time", "started_at", "messages"),
    [
        (1000 * NOON, 1000 * NOON, []),
        (1000 * NOON, 1000 * NOON + 999, []),
        (1000 * NOON, 1000 * NOON + 1000, ["deadline"]),
        (1000 * NOON, 1000 * NOON - 1, ["before its fire time"]),
        (1000 * NOON + 1, 1000 * NOON + 1, ["decided"]),
    ],
)
def test_a_start_is_held_to_its_decision(fire_time: int, started_at: int, messages: list[str]) -> None:
    run = RunRecord("k", "a", NOON, fire_time, RunStatus.SUCCESS, Reason.DUE, NOON, 1, started_at=started_at)
    faults = list(faults_of_start(AT_NOON, run))
    assert len(faults) == len(messages)
    assert all(word in fault for word, fault in zip(messages, faults, strict=True))
