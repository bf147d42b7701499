"""Shell completion: the installed command, asked by the variables that each shell's script sets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kron.cli.app import COMMANDS
from kron.cli.main import GOOD

KRON = Path(sys.executable).with_name("kron")
SHELLS = ("bash", "zsh", "fish")
# Where each shell's script is put, below the home directory.
INSTALLED = {
    "bash": ".bash_completions/kron.sh",
    "zsh": ".zfunc/_kron",
    "fish": ".config/fish/completions/kron.fish",
}


def kron(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "COMP_WORDS"}
    return subprocess.run(
        [KRON, *arguments], env=environment | variables, capture_output=True, text=True, check=False
    )


def completed(shell: str, line: str) -> list[str]:
    """Return the words a shell would offer for the last word of a line."""
    if shell == "bash":
        words = line.split(" ")
        done = kron(
            _KRON_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1)
        )
        found = done.stdout.split()
    elif shell == "zsh":
        done = kron(_KRON_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
        found = re.findall(r'"([^"]+)":"', done.stdout) or re.findall(r'\(\("?([\w-]+)"?\)\)', done.stdout)
    else:
        done = kron(
            _KRON_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS=line
        )
        found = [row.partition("\t")[0] for row in done.stdout.splitlines() if row]
    assert (done.returncode, done.stderr) == (GOOD, "")
    return found


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("kron ", list(COMMANDS), id="commands"),
        pytest.param("kron next --d", ["--dialect", "--dst-gap", "--dst-repeat"], id="options"),
        pytest.param("kron nothing --d", [], id="nothing"),
    ],
)
def test_every_shell_is_offered(shell: str, line: str, offered: list[str]) -> None:
    assert completed(shell, line) == offered


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("kron l", [name for name in COMMANDS if name.startswith("l")], id="a command begun"),
        pytest.param("kron next", ["next"], id="a whole command"),
        pytest.param("kron explain --act", ["--active"], id="one option"),
        pytest.param("kron next --tz Europe/Berl", ["Europe/Berlin"], id="a zone"),
        pytest.param("kron lint --dialect ", ["posix", "extended"], id="dialects"),
        pytest.param("kron explain --dst-gap ", ["skip", "next"], id="what becomes of skipped times"),
        pytest.param("kron next --dst-repeat l", ["last"], id="which of repeated times run"),
        pytest.param("kron schema ", ["job", "jobfile"], id="schemas"),
        pytest.param("kron --ver", ["--version"], id="an option of kron itself"),
    ],
)
def test_a_word_begun_is_completed(line: str, offered: list[str]) -> None:
    assert completed("bash", line) == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_every_option_of_a_command_is_offered(shell: str) -> None:
    listed = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", kron("lint", "--help").stdout, re.MULTILINE)
    assert "--dst-repeat" in listed
    assert set(completed(shell, "kron lint --")) == set(listed)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_shown_and_installed(shell: str, tmp_path: Path) -> None:
    """Which shell asks is normally found out; the variable says that the argument names it."""
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    shown = kron("--show-completion", shell, **named)
    assert (shown.returncode, shown.stderr) == (GOOD, "")
    assert f"_KRON_COMPLETE=complete_{shell}" in shown.stdout
    done = kron("--install-completion", shell, **named)
    assert done.returncode == GOOD
    script = tmp_path / INSTALLED[shell]
    assert str(script) in done.stdout
    assert script.read_text().strip() == shown.stdout.strip()


def test_bash_completes_with_the_installed_script(tmp_path: Path) -> None:
    """Load the script in a real bash, and ask its function as bash does when the tab key is pressed."""
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    kron("--install-completion", "bash", **named)
    program = f"""
        source "{tmp_path / INSTALLED["bash"]}"
        COMP_WORDS=(kron explain --ide) COMP_CWORD=2
        _kron_completion kron
        echo "${{COMPREPLY[@]}}"
        complete -p kron
    """
    environment = {**os.environ, "PATH": f"{KRON.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["--identity", "complete -o default -F _kron_completion kron"]


def test_only_the_command_on_the_line_is_loaded() -> None:
    """What completes an option of one command does not wait for the others to be imported."""
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
