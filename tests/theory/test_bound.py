"""Lengths, witnesses and what they allow; fitting; kinds of environments."""

from itertools import chain, combinations
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.errors import InvalidOptionError
from kron.theory import Status, Task, Trace, Witnesses, check, fit
from kron.theory.axioms import evaluate
from kron.theory.bound import compute_in, size_of
from kron.theory.encoding import (
    bits_of_number,
    bits_of_tasks,
    bits_of_text,
    bits_of_time,
    encode_number,
    encode_task,
    encode_tasks,
    encode_text,
)
from kron.theory.event import fields_of
from kron.theory.liveness import LivenessBounds
from tests.strategies import law
from tests.theory.notation import computed, trace
from tests.theory.strategies import headers, likely_traces, lines_of

TEXTS = st.text(max_size=6)
TASKS = st.builds(Task, TEXTS, TEXTS, st.integers(0, 10**6), st.none(), st.none())
LISTS = st.lists(TASKS, max_size=3).map(tuple)


@law(100)
@given(numbers=st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), texts=st.tuples(TEXTS, TEXTS))
def test_no_code_begins_with_another(numbers: tuple[int, int], texts: tuple[str, str]) -> None:
    for one, other in ((encode_number(n) for n in numbers), (encode_text(t) for t in texts)):
        assert one == other or not (one.startswith(other) or other.startswith(one))


@law(100)
@given(one=LISTS, other=LISTS)
def test_different_lists_have_different_codes_and_none_begins_with_another(
    one: tuple[Task, ...], other: tuple[Task, ...]
) -> None:
    first, second = encode_tasks(one), encode_tasks(other)
    assert (first == second) == (one == other)
    assert first == second or not first.startswith(second)
    assert bits_of_tasks(one) == len(first)


@law(60)
@given(number=st.integers(0, 10**12), text=TEXTS, task=TASKS)
def test_a_length_is_that_of_the_code(number: int, text: str, task: Task) -> None:
    assert bits_of_number(number) == len(encode_number(number))
    assert bits_of_text(text) == len(encode_text(text))
    assert set(encode_task(task)) <= {"0", "1"}


@pytest.mark.parametrize("t", [0, 1, 2, 3, 4, 7, 8, 1000, 2**40 - 1, -1, -5])
def test_the_length_of_a_time_is_the_theory_s(t: int) -> None:
    assert bits_of_time(t) == 1 + ceil(log2(1 + abs(t)))
    assert size_of(10, t) == 10 + bits_of_time(t)


def test_compute_counts_time_points_once() -> None:
    assert compute_in([1, 1, 2, 5, 9], 1, 5) == 3


def test_positions_of_one_time_point_cost_one_compute_together() -> None:
    """With a bound of 3, four positions with compute keep a promise only if two of them share a time."""
    shared, apart = computed("IS@0 C@1 C@1 C@2"), computed("IS@0 C@1 C@2 C@3")
    for subject, status in ((shared, Status.INCONCLUSIVE), (apart, Status.FAILED)):
        assert check(subject, (0, 2, 1))["L2"].status is status
        assert evaluate(subject, LivenessBounds(Witnesses(0, 2, 1)))["L2"][0] is status


@law(60)
@given(
    points=st.sets(st.integers(0, 6)), end=st.integers(0, 6), bound=st.integers(0, 3), lag=st.integers(0, 3)
)
def test_compute_and_lag_trade_one_for_one(points: set[int], end: int, bound: int, lag: int) -> None:
    """Reading 19: some S with compute(S) <= C and duration(U without S) <= t_lag, if and only if ..."""
    whole = range(end + 1)
    subsets = chain.from_iterable(combinations(whole, size) for size in range(len(whole) + 1))
    possible = any(
        len(points & set(subset)) <= bound and len(whole) - len(subset) <= lag for subset in subsets
    )
    assert possible == (compute_in(points, 0, end) <= Witnesses(0, bound, lag).allowed(99))


@pytest.mark.parametrize("wrong", [{"a": -1}, {"b": 1.5}, {"t_lag": True}])
def test_witnesses_are_whole_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidOptionError):
        Witnesses(**wrong)


# --- fitting ---


def broken(subject: Trace, witnesses: Witnesses) -> bool:
    report = check(subject, witnesses, happy=["store", "clock"])
    return any(report[axiom].status is Status.FAILED for axiom in ("L1", "L2", "L3"))


@law(80)
@given(lines=likely_traces(), b=st.integers(0, 2), t_lag=st.integers(0, 2))
def test_fitted_witnesses_are_the_smallest_that_do(lines: list[str], b: int, t_lag: int) -> None:
    subject = Trace.from_jsonl(lines)
    if not subject.header.computed:
        with pytest.raises(InvalidOptionError):
            fit(subject)
        return
    found = fit(subject, b=b, t_lag=t_lag, happy=["store", "clock"])
    assert (found.b, found.t_lag) == (b, t_lag)
    assert not broken(subject, found)
    assert found.a == 0 or broken(subject, Witnesses(found.a - 1, b, t_lag))


def test_a_larger_b_needs_a_smaller_a() -> None:
    subject = computed("IS " + "C " * 200 + "IEs")
    assert fit(subject).a == 3
    assert fit(subject, b=150).a == 1
    assert fit(subject, b=150, t_lag=52) == Witnesses(0, 150, 52)


# --- negative times ---


@pytest.mark.slow
def test_before_time_zero_a_promise_grows_stricter() -> None:
    """|t| shrinks towards zero: an obligation since t = -255 is due again at t = 0, and sooner."""
    task = Task("a", "* * * * *", 0)
    events: list[dict[str, object]] = [
        {"i": 0, "t": -255, "event": "Compute"},
        {"i": 0, "t": -255, "event": "InitStart", "call": 1, "tasks": [fields_of(task)]},
        {"i": 1, "t": -255, "event": "InitSuccess", "call": 1},
        {"i": 2, "t": -255, "event": "Due", "task": "a"},
        *({"i": 3 + n, "t": n, "event": "Compute"} for n in range(200)),
    ]
    subject = Trace.from_jsonl(lines_of({"kron_trace": 1, "unit": "s"}, events))
    allowed = size_of(bits_of_tasks([task]), 0)
    finding = check(subject, Witnesses(1, 0, 0))["L1"]
    assert (finding.status, finding.position) == (Status.FAILED, 3 + allowed)
    assert evaluate(subject, LivenessBounds(Witnesses(1, 0, 0)))["L1"] == (Status.FAILED, 3 + allowed)


# --- environments ---


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("Min Min@50", "freezing", id="no compute"),
        pytest.param("C C@50 C", "freezing", id="one long pause"),
        pytest.param("C C C C C C", "lower-bounded", id="always"),
        pytest.param("C@0 C@10 C@20 C@30 C@40", "lower-bounded", id="evenly"),
        pytest.param("C C C C C C@12 C C C C C@23 C C@25 C C C", "thawing", id="now and then"),
        pytest.param(" ".join(f"C@{100 * (n // 40) + n % 40}" for n in range(200)), "burst", id="in spikes"),
    ],
)
def test_an_environment_is_classified(text: str, kind: str) -> None:
    environment = check(trace(text, compute=None)).environment
    assert environment is not None
    assert environment.kind == kind


def test_an_environment_says_what_it_grants() -> None:
    environment = check(trace("C C@3 C@4 Min@6", compute=None)).environment
    assert environment is not None
    assert environment.to_dict() == {"class": "lower-bounded", "points": 7, "compute": 3, "longest_pause": 2}
    assert check(trace("Min")).environment is None


@law(20)
@given(header=headers(compute=True))
def test_an_empty_trace_conforms(header: dict[str, object]) -> None:
    report = check(Trace.from_jsonl(lines_of(header, [])))
    assert report.conforms
    assert report.environment is None
