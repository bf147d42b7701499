"""Whatever is sent to a route, the answer is one that the description allows (SPEC 3: 4)."""

from pathlib import Path

import pytest

from tests.service.fuzz import fuzzed


@pytest.mark.timeout(300)
def test_no_request_makes_the_api_answer_what_it_does_not_describe(tmp_path: Path) -> None:
    said, server = fuzzed(tmp_path, "--max-examples", "5")
    assert not said, said
    assert "Traceback" not in "".join(server.log)
