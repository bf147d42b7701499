"""tools/figures.py counts lines, importers, class names and wording, here over a small source."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.figures import ROOT, Figure, figures_of, traced

SOURCE = {
    "__init__.py": '"""A small package."""\n',
    "single.py": '"""Retry a commit."""\n\n\nclass Shared:\n    """Nobody knows what is shared."""\n',
    "popular.py": "class Shared:\n    pass  # on record, for whoever reads\n\n\nclass Unshared:\n    pass\n",
    "first.py": "from pkg import single\nfrom pkg.popular import Unshared\n",
    "second.py": "import pkg.popular\n\n\ndef outer():\n    a = 1\n\n    async def inner(): ...\n",
    "cli/commands/verb.py": '"""One module imports this command, and that is by design."""\n',
    "cli/main.py": "import pkg.cli.commands.verb\n",
    "ports.py": '"""The boundary."""\n\n\nclass Clock: ...\n',
}
WORDS = 3 + 3 + 5 + 5 + 10 + 2


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in SOURCE.items():
        file = tmp_path / "pkg" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path / "pkg"


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "figures.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_small_source_has_the_figures_counted_by_hand(source: Path) -> None:
    assert {figure.name: figure.value for figure in figures_of(source)} == {
        "lines": sum(text.count("\n") for text in SOURCE.values()),
        "modules": len(SOURCE),
        "longest function, lines": 4,
        "the page of the ports, lines": 4,
        # `single`; the command has one importer too, but every command has.
        "modules with exactly one importer, %": round(100 / len(SOURCE), 1),
        "class names with two homes": 1,
        # Nobody, what is; on record, whoever.
        "vague words per 1,000": round(1000 * 4 / WORDS, 2),
        # Retry, commit.
        "field terms per 1,000": round(1000 * 2 / WORDS, 1),
    }


@pytest.mark.slow
def test_the_source_keeps_its_goals() -> None:
    assert not [figure for figure in figures_of(ROOT / "src" / "kron") if figure.missed]


@pytest.mark.slow
def test_an_upsert_and_a_due_process_run_few_files() -> None:
    assert not [figure for figure in traced() if figure.missed]


def test_a_figure_is_missed_above_its_bound_only() -> None:
    assert not Figure("lines", 100).missed
    assert not Figure("longest function, lines", 50, 50).missed
    assert Figure("longest function, lines", 51, 50).missed


def test_a_missed_figure_is_marked_and_fails_the_command(source: Path) -> None:
    done = tool("--no-trace", "--source", str(source))
    assert done.returncode == 1
    missed = [line.split("  ")[0] for line in done.stdout.splitlines() if line.endswith("MISSED")]
    assert missed == ["vague words per 1,000"]


def test_figures_within_their_bounds_pass_and_can_be_read_by_a_program(source: Path) -> None:
    for name in ("single.py", "popular.py"):
        (source / name).write_text('"""A lease."""\n\n\ndef short(): ...\n', encoding="utf-8")
    done = tool("--no-trace", "--json", "--source", str(source))
    assert done.returncode == 0
    assert json.loads(done.stdout) == [figure._asdict() for figure in figures_of(source)]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("vague", ["popular.py:2: on record, whoever", "single.py:4: Nobody, what is"]),
        ("importers", ["pkg.single"]),
        ("classes", ["Shared"]),
    ],
)
def test_places_are_listed(source: Path, what: str, expected: list[str]) -> None:
    done = tool("--list", what, "--source", str(source))
    assert [line.removeprefix(f"{source}/") for line in done.stdout.splitlines()] == expected
