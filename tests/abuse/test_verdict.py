"""What counts as a violation of an abuse experiment."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.abuse.experiment import LONG_QUIET, MIX, QUIET, Row
from tests.abuse.verdict import least_of, summary, violations

HELD = Row(MIX, Counter({"400": 50}), 1.0, 1_000, 0, 0, [0.01] * 999 + [0.9], 150.0, 80.0)


def test_a_run_within_every_limit_holds() -> None:
    assert violations([HELD], 50) == []
    assert summary([replace(HELD, name=QUIET), HELD])[-1] == "held"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (replace(HELD, lost=1), "1 starts of the neighbour were lost"),
        (replace(HELD, doubled=2), "2 starts of the neighbour came twice"),
        (replace(HELD, starts=0), "no start of the neighbour was seen"),
        (replace(HELD, late=[0.01] * 999 + [1.1]), "a start of the neighbour was 1100 ms late"),
        (replace(HELD, late=[0.01, 0.3]), "the 99th percentile is 300 ms, not below 250"),
        (replace(HELD, api_mib=601.0), "the API used 601 MiB, more than 600"),
        (replace(HELD, worker_mib=201.0), "the worker used 201 MiB, more than 200"),
    ],
)
def test_each_limit_is_judged(row: Row, sentence: str) -> None:
    assert violations([row], 50) == [f"{MIX}: {sentence}"]
    assert summary([row], 50)[-1] == "violated"


def test_each_attack_has_to_send_the_requests_that_are_required_of_it() -> None:
    name = "a cookie of backslashes"
    few = replace(HELD, name=name, answers=Counter({"200": 49}))
    assert violations([few], 50) == [f"{name}: only 49 requests were sent"]
    assert violations([replace(few, answers=Counter({"200": 50}))], 50) == []
    assert least_of(name, 10_000) == least_of("1,000 schedules changed at once", 10_000) == 10_000
    assert least_of(MIX, 10_000) == least_of(QUIET, 10_000) == 0


def test_a_control_that_is_harmed_is_a_violation_of_the_machine() -> None:
    lines = summary([replace(HELD, name=LONG_QUIET, late=[2.0]), HELD])
    assert "the machine is too busy" in lines[-2]
    assert lines[-1] == "violated"
