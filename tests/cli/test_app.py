"""The registry of commands: a new command is a file and a line."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from kron.cli.app import COMMANDS, GROUPS, TAKE_EXPRESSION
from kron.cli.main import BAD, GOOD, run

VERB = '''
"""`kron schedules zone`: the time zone of a schedule."""

from kron.cli.main import GOOD
from kron.cli.support.client import Name, Server, StoreUrl, Target, request


def zone_command(name: Name, server: Server = None, store: StoreUrl = None) -> int:
    """Show the time zone of a schedule."""
    print(request(Target(server, store), lambda client: client.schedule(name))["timezone"])
    return GOOD
'''


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_function_with_help_and_examples(name: str) -> None:
    module, _, function = COMMANDS[name].partition(":")
    text = getattr(import_module(module), function).__doc__
    assert "Examples:" in text
    spellings = {name, name.partition(" ")[2], name.removesuffix(" list")} - {""}
    assert any(f"kron {spelling}" in text for spelling in spellings)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_no_python_types(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*name.split(), "--help"]) == GOOD
    assert not re.search(r"<(?:str|int|float|list|function|read)\b", capsys.readouterr().out)


def test_every_group_has_commands() -> None:
    assert {name.partition(" ")[0] for name in COMMANDS if " " in name} == set(GROUPS)


def test_a_new_verb_over_the_service_is_a_file_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "zone_verb.py").write_text(VERB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "schedules zone", "zone_verb:zone_command")
    store = ["--store", f"sqlite:///{tmp_path}/kron.db"]
    options = ["--id", "a", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo", "--url", "https://example.com/"]
    assert run(["schedules", "upsert", *options, *store]) == GOOD
    capsys.readouterr()
    assert run(["schedules", "zone", "a", *store]) == GOOD
    assert capsys.readouterr() == ("Asia/Tokyo\n", "")
    assert run(["schedules", "--help"]) == GOOD
    assert "zone      Show the time zone of a schedule." in capsys.readouterr().out
    assert run(["schedules", "zone", "a", *store, "--server", "http://127.0.0.1:9"]) == BAD


@pytest.mark.parametrize("name", TAKE_EXPRESSION)
def test_an_expression_alone_is_answered_without_the_packages_for_options(name: str) -> None:
    code = (
        f"import sys; from kron.cli.main import run; assert run(['{name}', '0 9 1 1 *']) == 0; "
        "print([m for m in ('pydantic', 'asyncio') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize("name", TAKE_EXPRESSION)
@pytest.mark.parametrize(
    "subject", ["0 9 1 1 *", "CRON_TZ=Europe/Berlin 0 9 1 1 *", "", "61 * * * *", "none.yaml"]
)
def test_an_expression_alone_is_answered_as_beside_options(
    name: str, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = run([name, subject]), capsys.readouterr()
    assert alone == (run([name, "--", subject]), capsys.readouterr())
