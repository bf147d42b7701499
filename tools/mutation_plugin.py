"""A pytest plugin for `tools/mutation.py`: which test runs which line, and how long each test takes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

# Processes that a test starts inherit this variable; it is the static context of their measurement.
VARIABLE = "MUTATION_TEST"
DURATIONS = "MUTATION_DURATIONS"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Attribute all lines that run from now on to a test."""
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(item.nodeid)
    # A server may serve all tests of a file, so the processes of a test belong to its file.
    os.environ[VARIABLE] = item.nodeid.partition("::")[0]
    return (yield)


class Durations:
    """Writes how long each passed test took."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write all durations."""
        passed = {test: seconds for test, seconds in self._seconds.items() if test not in self._failed}
        self._file.write_text(json.dumps(passed))


def pytest_configure(config: pytest.Config) -> None:
    """Measure durations in the process that sees all tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(Path(os.environ[DURATIONS])))
