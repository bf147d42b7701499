"""krond runs crontabs unchanged."""

import os
from pathlib import Path

import pytest

from tests.daemon.krond import Krond

CRONTAB = """\
# what cron runs
SHELL=/bin/bash
COLOUR="dark blue"
17 * * * * {user}echo "$COLOUR" $((1 + 1)) $BASH
@daily {user}cat%one%two \\% three
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param("spool", id="of a user"),
        pytest.param(
            "cron.d",
            id="of the system",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users"),
        ),
    ],
)
def test_a_crontab_runs_with_its_variables_its_shell_and_its_input(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder / "mine"
    place.parent.mkdir()
    place.write_text(CRONTAB.format(user="root " if folder == "cron.d" else ""))
    krond = Krond(tmp_path, "--crontab", str(place))
    krond.start()
    outputs = set()
    for name in krond.names():
        run = krond.run(name)
        assert run["status"] == "SUCCESS", run
        outputs.add(krond.output(name, run["idempotency_key"]))
    assert outputs == {"dark blue 2 /bin/bash\n", "one\ntwo % three\n"}
    assert krond.stop() == 0
