"""The tiers of the tests: which cases are slow, and how many examples a profile draws."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import SLOW_TIMEOUT_S
from tests.strategies import law
from tests.tiers import mostly_slow
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("count", "fast", "chosen"),
    [(1, 1, [0]), (5, 1, [0]), (10, 3, [0, 3, 6]), (4, 4, [0, 1, 2, 3]), (2, 5, [0, 1])],
)
def test_all_but_a_few_evenly_spread_cases_are_slow(count: int, fast: int, chosen: list[int]) -> None:
    cases = mostly_slow(range(count), fast=fast)
    assert [case.values for case in cases] == [(number,) for number in range(count)]
    assert [number for number, case in enumerate(cases) if not case.marks] == chosen


def test_a_tuple_is_several_arguments_of_one_case() -> None:
    fast, slow = mostly_slow([("a", 1), ("b", 2)])
    assert (fast.values, slow.values) == (("a", 1), ("b", 2))
    assert slow.marks == (pytest.mark.slow,)


@pytest.mark.parametrize(("profile", "derandomize"), [("fast", True), ("all", True), ("soak", False)])
def test_only_the_long_search_draws_fresh_examples_and_no_profile_has_a_deadline(
    profile: str, derandomize: bool
) -> None:
    active = settings.get_profile(profile)
    assert (active.derandomize, active.deadline) == (derandomize, None)


def test_a_property_draws_its_examples_in_full_and_a_share_of_them_in_the_fast_tier() -> None:
    share = settings().max_examples / settings.get_profile("all").max_examples
    assert law(200).max_examples == 200 * share
    assert law(1).max_examples >= 1
    assert settings.get_profile("fast").max_examples < settings.get_profile("all").max_examples


@pytest.mark.parametrize("tier", ["fast", pytest.param("slow", marks=pytest.mark.slow)])
def test_a_slow_test_has_more_time_before_it_counts_as_hanging(
    tier: str, request: pytest.FixtureRequest
) -> None:
    usual = float(request.config.getini("timeout"))
    marker = request.node.get_closest_marker("timeout")
    assert (marker.args[0] if marker else usual) == (SLOW_TIMEOUT_S if tier == "slow" else usual)
    assert PATIENCE_S < usual < SLOW_TIMEOUT_S


@law(5)
@given(st.booleans())
def test_a_property_has_as_much_time_as_a_slow_test(request: pytest.FixtureRequest, drawn: bool) -> None:
    assert request.node.get_closest_marker("timeout").args == (SLOW_TIMEOUT_S,)


def test_every_change_is_checked_by_all_tests() -> None:
    commands = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert commands[-2:] == ["make check", "make test-all"]
