"""Whatever is sent to a route, the answer is one that the description allows (SPEC 3: 4)."""

from pathlib import Path

import pytest

from tests.service.fuzz import CALLERS, OPEN, fuzzed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("caller", [OPEN, *CALLERS])
def test_no_request_makes_the_api_answer_what_it_does_not_describe(caller: str, tmp_path: Path) -> None:
    # With a token the guard is what is tried; the routes behind it have been tried without.
    few = ("--max-examples", "2", "--phases", "examples,fuzzing")
    said, server = fuzzed(tmp_path, *(("--max-examples", "5") if caller == OPEN else few), caller=caller)
    assert not said, said
    assert "Traceback" not in "".join(server.log)
