"""Hostile requests over real HTTP: each costs a bounded time of the processor and a bounded memory."""

from collections.abc import Iterator

import httpx
import pytest

from tests.abuse.attacks import REQUESTS, bulk, prepare
from tests.service.server import Process, serving

pytestmark = pytest.mark.slow
# The processor time one request may use on average: the budget of an answer, and the rest of the request.
BUDGET_S = 0.4
REPEATED = 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(tmp_path_factory.mktemp("abuse")) as (client, server):
        prepare(client)
        yield client, server


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_costs_no_more_processor_time_than_its_budget(
    name: str, served: tuple[httpx.Client, Process]
) -> None:
    client, server = served
    request, statuses = REQUESTS[name]
    assert request(client, "").status_code in statuses
    before = server.processor_s
    for _ in range(REPEATED):
        request(client, "")
    assert (server.processor_s - before) / REPEATED < BUDGET_S


def test_bulk_lines_of_nested_lists_do_not_fill_the_memory(served: tuple[httpx.Client, Process]) -> None:
    client, server = served
    before = server.memory_bytes
    assert bulk(client, "").status_code == 400
    assert server.memory_bytes - before < 200 * 1024 * 1024
