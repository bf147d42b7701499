"""A cluster for each test: the double, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from tests.kubernetes.api_server import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as running:
        yield running


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[ApiClient]:
    client = ApiClient(ClusterAccess(server.url), request_s=5)
    yield client
    client.close()
