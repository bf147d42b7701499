"""Commands against a server and against a store: `SETTINGS` of the test module are those of both."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from kron.cli.main import run
from tests.service.server import serving

Kron: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=[pytest.param("server", marks=pytest.mark.slow), "store"])
def kron(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Kron]:
    """Return a function that runs a command in a new directory, with a server or a store."""
    monkeypatch.chdir(tmp_path)
    variables: dict[str, str] = request.module.SETTINGS

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(words)
        return code, *capfd.readouterr()

    if request.param == "server":
        with serving(tmp_path, **variables) as (client, _):
            monkeypatch.setenv("KRON_SERVER", str(client.base_url))
            yield call
    else:
        for name, value in {**variables, "KRON_STORE": "sqlite:///kron.db"}.items():
            monkeypatch.setenv(name, value)
        yield call
