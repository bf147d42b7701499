"""Shell completion: with the variables that each shell's script sets, and once in a real bash."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kron.cli.app import names
from kron.cli.main import GOOD, run

KRON = Path(sys.executable).with_name("kron")
SHELLS = ("bash", "zsh", "fish")
# Where each shell's script is put, below the home directory.
INSTALLED = {
    "bash": ".bash_completions/kron.sh",
    "zsh": ".zfunc/_kron",
    "fish": ".config/fish/completions/kron.fish",
}
# The shell is detected by default; the variable says that the argument names it.
NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
Kron = Callable[..., str]


@pytest.fixture
def kron(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kron:
    """Return a function that runs kron with variables, and returns its output."""
    for name in ("_KRON_COMPLETE", "COMP_WORDS", "COMP_CWORD", "_TYPER_COMPLETE_ARGS"):
        monkeypatch.delenv(name, raising=False)
    # Set by kron itself; here it is removed after the test.
    monkeypatch.setenv("TERMINAL_WIDTH", "10000")

    def call(*arguments: str, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        try:
            code: object = run(arguments)
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        assert (code, captured.err) == (GOOD, "")
        return captured.out

    return call


def completed(kron: Kron, shell: str, line: str) -> list[str]:
    """Return the words a shell would offer for the last word of a line."""
    if shell == "bash":
        words = line.split(" ")
        return kron(
            _KRON_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)
        ).split()
    if shell == "zsh":
        text = kron(_KRON_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
        return re.findall(r'"([^"]+)":"', text) or re.findall(r'\(\("?([\w-]+)"?\)\)', text)
    text = kron(
        _KRON_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS=line
    )
    return [row.partition("\t")[0] for row in text.splitlines() if row]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("kron ", names(), id="commands"),
        pytest.param("kron next --d", ["--dialect", "--dst-gap", "--dst-repeat"], id="options"),
        pytest.param("kron nothing --d", [], id="nothing"),
    ],
)
def test_every_shell_is_offered(shell: str, line: str, offered: list[str], kron: Kron) -> None:
    assert completed(kron, shell, line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("kron l", [name for name in names() if name.startswith("l")], id="part of a command"),
        pytest.param("kron next", ["next"], id="a whole command"),
        pytest.param("kron explain --act", ["--active"], id="one option"),
        pytest.param("kron next --tz Europe/Berl", ["Europe/Berlin"], id="a zone"),
        pytest.param("kron lint --dialect ", ["posix", "extended"], id="dialects"),
        pytest.param("kron explain --dst-gap ", ["skip", "next"], id="skipped times"),
        pytest.param("kron next --dst-repeat l", ["last"], id="repeated times"),
        pytest.param("kron schema ", ["job", "jobfile"], id="schemas"),
        pytest.param("kron --ver", ["--version"], id="an option of kron itself"),
    ],
)
def test_part_of_a_word_is_completed(line: str, offered: list[str], kron: Kron) -> None:
    assert completed(kron, "bash", line) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_a_command_is_offered(shell: str, kron: Kron) -> None:
    listed = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", kron("lint", "--help"), re.MULTILINE)
    assert "--dst-repeat" in listed
    assert set(completed(kron, shell, "kron lint --")) == set(listed)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_shown_and_installed(shell: str, tmp_path: Path, kron: Kron) -> None:
    shown = kron("--show-completion", shell, **NAMED, HOME=str(tmp_path))
    assert f"_KRON_COMPLETE=complete_{shell}" in shown
    done = kron("--install-completion", shell)
    script = tmp_path / INSTALLED[shell]
    assert str(script) in done
    assert script.read_text().strip() == shown.strip()


def test_bash_completes_with_the_installed_script(tmp_path: Path) -> None:
    """Load the script in a real bash, and call its function as bash does when the tab key is pressed."""
    program = f"""
        kron --install-completion bash > "{tmp_path / "said"}"
        source "{tmp_path / INSTALLED["bash"]}"
        COMP_WORDS=(kron explain --ide) COMP_CWORD=2
        _kron_completion kron
        echo "${{COMPREPLY[@]}}"
        complete -p kron
    """
    path = f"{KRON.parent}:{os.environ['PATH']}"
    environment = {**os.environ, **NAMED, "HOME": str(tmp_path), "PATH": path}
    done = subprocess.run(
        ["bash", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["--identity", "complete -o default -F _kron_completion kron"]


def test_only_the_command_on_the_line_is_loaded() -> None:
    """Completing an option of one command does not import the others."""
    program = """
import sys
from kron.cli.main import run
try:
    run([])
finally:
    print(*sys.modules, file=sys.stderr)
"""
    variables = {"_KRON_COMPLETE": "complete_bash", "COMP_WORDS": "kron\nlint\n--", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name for name in done.stderr.split() if name.startswith("kron.cli.")}
    assert "--strict" in done.stdout.split()
    assert "kron.cli.commands.lint" in loaded
    assert loaded.isdisjoint(
        {"kron.cli.commands.explain", "kron.cli.commands.schema", "kron.cli.commands.next"}
    )
