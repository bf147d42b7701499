from collections.abc import Iterator

import pytest

from tests.postgres import Server, running
from tests.service.browser import MISSING


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it loudly when the pages were not tried in a browser."""
    if any(MISSING in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(f"SKIPPED: {MISSING}", red=True, bold=True)


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    return postgres.fresh()
