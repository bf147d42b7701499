"""Pages of a large fleet stay small: what they show is bounded, however many schedules and runs there are."""

from pathlib import Path

import pytest

from tests.service.pages_bench import filled, measured

MAX_BYTES = 500_000


@pytest.mark.slow
async def test_every_page_of_a_large_fleet_answers_with_less_than_half_a_megabyte(tmp_path: Path) -> None:
    async with filled(tmp_path, 3_000) as registrar:
        pages = await measured(registrar)
    assert {page.status for page in pages} == {200}
    assert {page.path: page.size for page in pages if page.size > MAX_BYTES} == {}
