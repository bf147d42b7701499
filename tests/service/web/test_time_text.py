"""Instants and durations as pages write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.time.zone import zone_of
from kron.fronts.service.web.time_text import away, moment_of, moment_of_text, span

NOW = int(datetime(2026, 3, 28, 12, 0, 0, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "now"),
        # A page is older than that when it is read.
        (999, "now"),
        (-999, "now"),
        (-1_000, "1 s ago"),
        (59_999, "in 59 s"),
        (60_000, "in 1 min"),
        (-61_000, "1 min 1 s ago"),
        (599_000, "in 9 min 59 s"),
        (659_000, "in 10 min"),
        (7_500_000, "in 2 h 5 min"),
        (-90_000_000, "1 d 1 h ago"),
        (864_000_000_000, "in 10000 d"),
    ],
)
def test_a_relative_time_has_two_units_at_most(milliseconds: int, text: str) -> None:
    assert away(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(999, "999 ms"), (1_000, "1 s"), (1_099, "1 s"), (1_999, "1.9 s"), (9_999, "9.9 s"), (10_999, "10 s")],
)
def test_a_duration_of_a_few_seconds_has_its_tenths(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


@given(milliseconds=st.integers(10_000, 10**12))
def test_a_duration_is_rounded_down_by_less_than_a_unit(milliseconds: int) -> None:
    sizes = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    words = span(milliseconds).split()
    shown = sum(int(count) * sizes[unit] for count, unit in zip(words[::2], words[1::2], strict=True))
    smallest = sizes[words[-1]]
    seconds = milliseconds // 1000
    assert shown <= seconds
    assert seconds - shown < max(smallest, sizes[words[1]] if len(words) == 2 else smallest)


@pytest.mark.parametrize(
    ("instant", "local"),
    [
        pytest.param("2026-03-29T00:59:59Z", "Sun 29 Mar 01:59:59 CET", id="before the gap"),
        pytest.param("2026-03-29T01:00:00Z", "Sun 29 Mar 03:00 CEST", id="after the gap"),
        pytest.param("2027-01-01T00:30:00Z", "Fri 1 Jan 2027 01:30 CET", id="another year"),
    ],
)
def test_a_moment_is_written_in_the_zone_and_in_utc(instant: str, local: str) -> None:
    at = datetime.fromisoformat(instant)
    moment = moment_of(int(at.timestamp() * 1000), zone_of("Europe/Berlin"), 1000 * NOW)
    assert (moment.iso, moment.local) == (instant, local)
    assert moment.utc == f"{at:%a} {at.day} {at:%b %Y %H:%M:%S} UTC"


@pytest.mark.parametrize(
    ("text", "away"),
    [
        pytest.param("2026-06-01T12:00:00.739Z", "now", id="later in the same second"),
        pytest.param("2026-06-01T11:59:59.999Z", "1 s ago", id="before"),
        pytest.param("2026-06-01T12:00:10Z", "in 10 s", id="to come"),
    ],
)
def test_an_instant_of_a_document_is_told_from_the_second_of_its_page(text: str, away: str) -> None:
    moment = moment_of_text(text, "2026-06-01T12:00:00Z")
    assert (moment.away, moment.iso) == (away, text)
