"""Pages of a large fleet stay small: what they show is bounded, however many schedules and runs there are."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.service.pages_bench import filled, measured
from tests.service.server import serving

MAX_BYTES = 500_000


@pytest.mark.slow
async def test_every_page_of_a_large_fleet_answers_with_less_than_half_a_megabyte(tmp_path: Path) -> None:
    async with filled(tmp_path, 3_000) as registrar:
        pages = await measured(registrar)
    assert {page.status for page in pages} == {200}
    assert {page.path: page.size for page in pages if page.size > MAX_BYTES} == {}


@pytest.mark.slow
def test_pages_of_the_longest_definition_stay_small(tmp_path: Path) -> None:
    dates = [(date(2020, 1, 1) + timedelta(days=2 * number)).isoformat() for number in range(4_500)]
    with serving(tmp_path, KRON_ALLOWED_COMMANDS="/bin/true") as (client, _):
        for number in range(60):
            document = {
                "schedule_id": "long",
                "cron_expr": "0 * * * *",
                "timezone": "UTC",
                "description": "<" * 2_000,
                "constraints": {"avoid": {"dates": dates[number:]}},
                "launcher": {"kind": "process", "command": ["/bin/true", "<" * 60_000]},
            }
            assert client.post("/schedules/upsert", json=document).status_code == 200
        sizes = {
            path: len(client.get(path, headers={"accept": "text/html"}).content)
            for path in ("/", "/ui/now", "/ui/schedule?id=long", "/ui/schedule/edit?id=long", "/ui/audit")
        }
    assert {path: size for path, size in sizes.items() if size > MAX_BYTES} == {}
