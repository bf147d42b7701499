"""The profiles and timeouts of the tests, and the PostgreSQL server that the tests of one worker share."""

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The contract of stores is a test of this project; the rest of Kron is imported as its users import it.
pytest.register_assert_rewrite("kron.testing.contract")

from tests.postgres import Server, running  # noqa: E402 - assertions are rewritten from here on
from tests.service.browser import MISSING  # noqa: E402

# A busy machine is slow to draw and to run an example, which is no fault of the code under test.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `make test` and `make test-all` draw the same examples every time; `make soak` draws fresh ones.
# `tests.strategies.law` scales each test's examples by its profile: `all` counts as a hundred per cent.
settings.register_profile("fast", PATIENT, max_examples=10, derandomize=True)
settings.register_profile("all", PATIENT, max_examples=100, derandomize=True)
settings.register_profile("soak", PATIENT, max_examples=1000, derandomize=False)
settings.load_profile("all")  # unless `--hypothesis-profile` names another

# A slow test that has not ended by then hangs; pyproject.toml has the timeout of the others.
SLOW_TIMEOUT_S = 240


@pytest.hookimpl(trylast=True)  # after Hypothesis has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests and properties more time, unless they say how much, or no test has a timeout."""
    if not float(config.getini("timeout")):
        return
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        if markers & {"slow", "hypothesis"} and "timeout" not in markers:
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_configure() -> None:
    """Let the processes of tests be interrupted, also under nohup and in the background of a script.

    These ignore signals, and children would inherit that; a handler is reset to the default in a child.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection() -> None:
    """Collect no garbage among the tests that are collected: they stay, and a look at them all takes long."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt the thousands of collected tests from every later garbage collection."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    return postgres.fresh()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report prominently that no page was opened in a browser."""
    if any(MISSING in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(f"SKIPPED: {MISSING}", red=True, bold=True)
