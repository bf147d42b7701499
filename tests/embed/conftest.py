from collections.abc import Iterator

import pytest

from tests.postgres import Server, running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("postgres")) as server:
        yield server
