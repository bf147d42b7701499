"""Whatever is sent to a route, the answer is one that the description allows (SPEC 3: 4)."""

from pathlib import Path

import pytest

from tests.service.fuzz import CALLERS, OPEN, SAME, fuzzed


@pytest.mark.slow
@pytest.mark.timeout(480)
@pytest.mark.parametrize("caller", [OPEN, *CALLERS])
def test_no_request_makes_the_api_answer_what_it_does_not_describe(caller: str, tmp_path: Path) -> None:
    # With a token only authentication is tested; the routes behind it are tested without.
    few = ("--max-examples", "2", "--phases", "examples,fuzzing")
    options = ("--max-examples", "3") if caller == OPEN else few
    failures, server = fuzzed(tmp_path, SAME, *options, caller=caller)
    assert not failures, failures
    assert "Traceback" not in "".join(server.log)
