"""Past and future operators of linear-time temporal logic, over finite traces.

A formula is the list of its values, one for each position. The past needs no convention: `Y p` is
false at the first position. The end of a trace does: an unfulfilled promise is false (`X`, `F` and `U`
need their witness inside the trace), a prohibition that was not violated holds (`G` and `W` demand
nothing after the end, and `weak_next` holds at the last position). So a formula built from `G`, `W` and
`weak_next` over past formulas is false on a trace exactly if no continuation can make it true again.
"""

from collections.abc import Iterable
from typing import TypeAlias

Formula: TypeAlias = list[bool]


def negate(p: Formula) -> Formula:
    """Return not p."""
    return [not value for value in p]


def both(*parts: Formula) -> Formula:
    """Return the conjunction."""
    return [all(values) for values in zip(*parts, strict=True)]


def either(*parts: Formula) -> Formula:
    """Return the disjunction."""
    return [any(values) for values in zip(*parts, strict=True)]


def implies(p: Formula, q: Formula) -> Formula:
    """Return p -> q."""
    return either(negate(p), q)


def next_(p: Formula) -> Formula:
    """X p: p at the next position, and there is one."""
    return [*p[1:], False][: len(p)]


def weak_next(p: Formula) -> Formula:
    """X p, also true where the trace ends."""
    return [*p[1:], True][: len(p)]


def previous(p: Formula) -> Formula:
    """Y p: p at the preceding position, and there is one."""
    return [False, *p[:-1]][: len(p)]


def eventually(p: Formula) -> Formula:
    """F p: p now or later."""
    return [any(p[i:]) for i in range(len(p))]


def always(p: Formula) -> Formula:
    """G p: p now and at every later position."""
    return [all(p[i:]) for i in range(len(p))]


def once(p: Formula) -> Formula:
    """O p: p now or earlier."""
    return [any(p[: i + 1]) for i in range(len(p))]


def historically(p: Formula) -> Formula:
    """H p: p now and at every earlier position."""
    return [all(p[: i + 1]) for i in range(len(p))]


def until(p: Formula, q: Formula) -> Formula:
    """P U q: q holds now or later, and p at every position before it."""
    return [_reached(p, q, range(i, len(q))) for i in range(len(q))]


def weak_until(p: Formula, q: Formula) -> Formula:
    """P W q: p U q, or p to the end."""
    return either(until(p, q), always(p))


def since(p: Formula, q: Formula) -> Formula:
    """P S q: q at some position up to now, and p at every later one up to now."""
    return [_reached(p, q, range(i, -1, -1)) for i in range(len(q))]


def _reached(p: Formula, q: Formula, positions: Iterable[int]) -> bool:
    """Return whether q holds at one of the positions, and p at every one before it."""
    for j in positions:
        if q[j]:
            return True
        if not p[j]:
            return False
    return False


def hold(set_: Formula, clear: Formula) -> Formula:
    """Hold(set, clear): set once and not cleared since; false where both occur."""
    return both(since(negate(clear), set_), negate(clear))


def hold_plus(set_: Formula, clear: Formula) -> Formula:
    """Hold+(set, clear): as Hold, and true where both occur."""
    return either(hold(set_, clear), set_)


def at_most_one(b: Formula, a: Formula) -> Formula:
    """AtMostOne(B, A) := G(A -> X(not A W B)): at most one A between consecutive B's."""
    return always(implies(a, weak_next(weak_until(negate(a), b))))
