"""A browser of its own for each test."""

from collections.abc import Iterator

import pytest

from tests.service.chromium import Chromium, chromium


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Give an empty browser; whatever it complains about fails the test."""
    with chromium(tmp_path_factory.mktemp("browser")) as tab:
        tab.show()
        yield tab
        assert tab.console == []
