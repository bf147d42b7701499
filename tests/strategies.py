"""Strategies for Hypothesis: strict cron expressions, texts that are nearly one, zones and instants."""

from datetime import UTC, datetime
from functools import cache
from zoneinfo import available_timezones

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kron.core.time.zone import HOST_KEYS
from tests.reference import LIMITS, read

# Sets have no order; Hypothesis can only replay what comes from a list.
ZONE_KEYS = sorted(available_timezones() - HOST_KEYS)

# Characters of cron expressions, of other dialects, and of neither.
NEAR_CHARACTERS = "0123456789*,-/ \t\n?LWH#@+.eExX_janmonTZ=\x0b\u00a0\u0663\uff11\x00"

# The position of an edit, how many characters it removes, and the one it inserts.
EDITS = st.tuples(st.integers(0, 99), st.integers(0, 1), st.sampled_from(["", *NEAR_CHARACTERS]))


def law(examples: int) -> settings:
    """Return settings with this many examples, scaled by the active profile (tests/conftest.py)."""
    return settings(max_examples=max(1, examples * settings().max_examples // 100))


def strict_fields(low: int, high: int) -> SearchStrategy[str]:
    """Draw one field: `*`, or a list of numbers, some with leading zeros, and ranges."""
    values = range(low, high + 1)
    numbers = [zeros + str(value) for value in values for zeros in ("", "0", "00")]
    ranges = [f"{first}-{last}" for first in values for last in range(first, high + 1)]
    elements = st.sampled_from(numbers) | st.sampled_from(ranges)
    return st.just("*") | st.lists(elements, min_size=1, max_size=5).map(",".join)


@cache
def strict_expressions() -> SearchStrategy[str]:
    """Draw an expression of the strict dialect that matches at least one day, with any legal blanks."""
    gap, edge = st.sampled_from((" ", " ", "\t", " \t  ")), st.sampled_from(("", "", " ", "\t "))
    minute, *others = (strict_fields(low, high) for low, high in LIMITS)
    parts = [edge, minute]
    for field in others:
        parts += [gap, field]
    return st.tuples(*parts, edge).map("".join).filter(_is_possible)


@cache
def near_misses() -> SearchStrategy[str]:
    """Draw an expression with a few characters inserted, removed or replaced: most are invalid."""
    return st.builds(_edited, strict_expressions(), st.lists(EDITS, min_size=1, max_size=3))


def zones() -> SearchStrategy[str]:
    """Draw the name of any zone."""
    return st.sampled_from(ZONE_KEYS)


def instants(first: int = 1900, last: int = 2100) -> SearchStrategy[datetime]:
    """Draw an instant between two years, in UTC, with microseconds."""
    return st.datetimes(datetime(first, 1, 1), datetime(last, 1, 1), timezones=st.just(UTC))


def seconds(first: int = 1900, last: int = 2100) -> SearchStrategy[int]:
    """Draw an instant between two years in whole seconds since 1970."""
    return instants(first, last).map(lambda instant: int(instant.replace(microsecond=0).timestamp()))


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for place, length, character in edits:
        start = place % (len(text) + 1)
        text = text[:start] + character + text[start + length :]
    return text


def _is_possible(text: str) -> bool:
    wanted = read(text)
    return wanted is not None and wanted.possible
