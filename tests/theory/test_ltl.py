"""The temporal operators against their definitions in words, on every small formula."""

from itertools import product

import pytest

from kron.theory.ltl import (
    Formula,
    always,
    at_most_one,
    eventually,
    historically,
    hold,
    hold_plus,
    next_,
    once,
    previous,
    since,
    until,
    weak_next,
    weak_until,
)

SIZES = range(6)
ONE = [list(values) for size in SIZES for values in product((False, True), repeat=size)]
TWO = [
    (list(p), list(q))
    for size in range(5)
    for p in product((False, True), repeat=size)
    for q in product((False, True), repeat=size)
]


def bits(text: str) -> Formula:
    return [sign == "1" for sign in text]


def test_one_place_operators() -> None:
    for p in ONE:
        size = len(p)
        assert next_(p) == [i + 1 < size and p[i + 1] for i in range(size)]
        assert weak_next(p) == [i + 1 >= size or p[i + 1] for i in range(size)]
        assert previous(p) == [i > 0 and p[i - 1] for i in range(size)]
        assert eventually(p) == [True in p[i:] for i in range(size)]
        assert always(p) == [False not in p[i:] for i in range(size)]
        assert once(p) == [True in p[: i + 1] for i in range(size)]
        assert historically(p) == [False not in p[: i + 1] for i in range(size)]


def test_until_and_since_have_their_witness() -> None:
    for p, q in TWO:
        places = range(len(p))
        assert until(p, q) == [any(q[j] and all(p[i:j]) for j in places if j >= i) for i in places]
        assert weak_until(p, q) == [u or all(p[i:]) for i, u in enumerate(until(p, q))]
        assert since(p, q) == [any(q[j] and all(p[j + 1 : i + 1]) for j in places if j <= i) for i in places]


def test_hold_and_its_kin() -> None:
    for set_, clear in TWO:
        held = held_plus = False
        for i, (is_set, is_cleared) in enumerate(zip(set_, clear, strict=True)):
            kept = is_set or (held_plus and not is_cleared)
            held, held_plus = kept and not is_cleared, kept
            assert (hold(set_, clear)[i], hold_plus(set_, clear)[i]) == (held, held_plus)


@pytest.mark.parametrize(
    ("a", "b", "holds"),
    [
        pytest.param("1010", "0100", True, id="one between"),
        pytest.param("1010", "0010", True, id="with the second"),
        pytest.param("1010", "1000", False, id="with the first only"),
        pytest.param("1010", "0001", False, id="after the second"),
        pytest.param("1100", "0000", False, id="none"),
        pytest.param("1000", "0000", True, id="only one"),
        pytest.param("0001", "0000", True, id="at the very end"),
    ],
)
def test_at_most_one_between_two(a: str, b: str, holds: bool) -> None:
    assert at_most_one(bits(b), bits(a))[0] is holds
