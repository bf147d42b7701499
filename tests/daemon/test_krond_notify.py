"""krond notifies: channels and a default from its settings, for jobs of files."""

import asyncio
from pathlib import Path

import pytest

from kron.cli.krond import run
from tests.app.sinks import http_sink
from tests.daemon.krond import YEARLY, Krond
from tests.waiting import until

SETTINGS = """\
notify_wait_ms = 0
notify_interval_ms = 0

[channels.ops]
kind = "webhook"
url = "{url}/of-ops"

[notify]
to = ["ops"]
"""


@pytest.mark.slow
async def test_a_job_that_fails_is_sent_to_the_default_channel(tmp_path: Path) -> None:
    async with http_sink() as sink:
        settings = tmp_path / "krond.toml"
        settings.write_text(SETTINGS.format(url=sink.url.rstrip("/")))
        krond = Krond(tmp_path, "--settings", str(settings))
        krond.write("a.yaml", '{identity: a, schedule: "* * * * * *", deadline: 1m, command: "exit 3"}\n')
        await asyncio.to_thread(krond.start)
        await until(lambda: bool(sink.requests))
        request = sink.requests[0]
        assert request.line == "POST /of-ops"
        assert b'"a"' in request.body
        assert b"exit status 3" in request.body
        assert await asyncio.to_thread(krond.stop) == 0
        # The path of a webhook is often a secret.
        assert "of-ops" not in krond.log_text()


def test_a_job_that_names_no_channel_of_the_settings_is_a_problem_of_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, jobs = tmp_path / "krond.toml", tmp_path / "a.yaml"
    settings.write_text(SETTINGS.format(url="http://127.0.0.1:9"))
    jobs.write_text(f'{{identity: a, schedule: "{YEARLY}", command: "true", notify: {{to: [opps]}}}}\n')
    words = ["--check", "--config", str(jobs)]
    assert run([*words, "--settings", str(settings)]) == 2
    assert 'job "a" notifies "opps", which is not a channel' in (error := capsys.readouterr().err)
    assert "ops" in error.replace("opps", "")
    assert run(words) == 2
    assert "krond --settings names them" in capsys.readouterr().err
    jobs.write_text(jobs.read_text().replace("opps", "ops"))
    assert run([*words, "--settings", str(settings)]) == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(None, "krond.toml", id="no such file"),
        pytest.param("listen = 1\n", "unknown setting", id="an unknown setting"),
        pytest.param(
            '[notify]\nto = ["ops"]\n', "of the settings; there are none\n", id="an unknown channel"
        ),
    ],
)
def test_wrong_settings_are_refused(
    text: str | None, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "krond.toml"
    if text is not None:
        settings.write_text(text)
    words = ["--settings", str(settings), "--state", str(tmp_path / "state"), "--config", str(tmp_path)]
    assert run(words) == 2
    assert error in capsys.readouterr().err
