"""ARCHITECTURE.md names files and packages; each has to exist."""

import json
import re
import subprocess
import sys

import pytest

from tests.docs.page import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALK = TEXT.partition("## Where a change goes")[2]
UPSERT = TEXT.partition("## An upsert, file by file")[2].partition("\n## ")[0]
TABLE = TEXT.partition("| below `src/kron/` |")[2].partition("\n\n")[0]
TOPICS = (
    "a field of a definition or policy",
    "an overlap policy",
    "a launcher kind",
    "a store verb",
    "a CLI command",
    "a route",
    "a page",
)


def rows() -> dict[str, list[str]]:
    """Return the files each row of the walk-through names, by what is added."""
    lines = [line.split("|") for line in WALK.splitlines() if line.startswith("| a")]
    return {cells[1].strip(): re.findall(r"`((?:src|tests|docs)/[^`]+)`", cells[2]) for cells in lines}


@pytest.mark.parametrize("topic", TOPICS)
def test_the_walk_through_says_where_it_is_added(topic: str) -> None:
    assert rows()[topic]


@pytest.mark.parametrize("named", sorted({name for names in rows().values() for name in names}))
def test_a_file_of_the_walk_through_exists(named: str) -> None:
    assert (ROOT / named).exists()


@pytest.mark.parametrize("named", re.findall(r"`([a-z_./]+)`(?=[,| ])", TABLE))
def test_a_package_of_the_table_exists(named: str) -> None:
    assert (ROOT / "src" / "kron" / named).exists()


def test_every_package_is_in_the_table() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "kron").glob("*/__init__.py")}
    named = {name.split("/")[0] for name in re.findall(r"`([a-z_./]+)`", TABLE)}
    assert packages <= named


@pytest.mark.slow
def test_the_files_of_an_upsert_are_those_that_run() -> None:
    program = [sys.executable, str(ROOT / "tools" / "trace_files.py")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    _, new, _ = json.loads(done.stdout)
    assert sorted(re.findall(r"`([a-z_/]+\.py)`", UPSERT)) == new
