"""Pages: every item of a listing is on one of them, and none is much longer than the bound."""

from collections.abc import Sequence

import pytest

from kron.app.page import MAX_CHARACTERS, PART, read_page

QUARTER = MAX_CHARACTERS // 4


async def pages_of(items: Sequence[str], limit: int) -> tuple[list[list[str]], list[int]]:
    """Return the pages of a listing, and how many items were asked for at once."""
    pages: list[list[str]] = []
    asked: list[int] = []
    listed, has_more = 0, True
    while has_more:
        first = listed

        async def read(shown: Sequence[str], most: int, first: int = first) -> Sequence[str]:
            asked.append(most)
            start = first + len(shown)
            return items[start : start + most]

        page, has_more = await read_page(read, limit=limit, length=len)
        pages.append(page)
        listed += len(page)
    return pages, asked


@pytest.mark.parametrize(
    ("lengths", "limit", "sizes"),
    [
        pytest.param([], 10, [0], id="none"),
        pytest.param([1] * 25, 10, [10, 10, 5], id="short ones"),
        pytest.param([1] * 20, 10, [10, 10], id="as many as pages have"),
        pytest.param([1] * 350, 1_000, [350], id="parts of a page"),
        pytest.param([QUARTER] * 9, 100, [4, 4, 1], id="long ones"),
        pytest.param([5 * QUARTER] * 3, 100, [1, 1, 1], id="each longer than a page"),
        pytest.param([1, 5 * QUARTER, 1], 100, [1, 1, 1], id="one longer than a page"),
    ],
)
async def test_a_page_ends_at_its_limit_or_where_it_is_long(
    lengths: list[int], limit: int, sizes: list[int]
) -> None:
    items = [f"{number}".rjust(length) for number, length in enumerate(lengths)]
    pages, asked = await pages_of(items, limit)
    assert [len(page) for page in pages] == sizes
    assert [item for page in pages for item in page] == items
    assert max(asked) <= PART
