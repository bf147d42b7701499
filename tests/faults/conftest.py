from collections.abc import Iterator

import pytest

from tests.faults.fork_server import ForkServer
from tests.postgres import Server, running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    return postgres.fresh()


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()
