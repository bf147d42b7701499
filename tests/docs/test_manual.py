"""The manual pages: every directive, field and option is there, and the tools of manuals accept them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kron.cli.krond import run
from kron.core.job.constraint import RULE
from kron.core.job.distribution import PARAMETERS
from kron.core.job.krontab import DIRECTIVES
from tests.docs.manual import LISTS, MANUAL, with_fields, word_of
from tests.docs.page import ROOT


def text_of(name: str) -> str:
    return (
        (ROOT / "docs" / "man" / name)
        .read_text(encoding="utf-8")
        .replace("\\-", "-")
        .replace("\\fB", "")
        .replace("\\fR", "")
    )


def test_the_field_lists_are_those_of_the_tables() -> None:
    for page in MANUAL:
        text = page.read_text(encoding="utf-8")
        assert with_fields(text) == text, f"{page.name}: python -m tests.docs.manual writes it"


def test_krontab_has_every_directive_and_every_field() -> None:
    page = text_of("krontab.5")
    for name in DIRECTIVES:
        assert f"@{name}(" in page
    for rows in LISTS.values():
        for row in rows:
            assert f"\n{word_of(row)}\n" in page, row.name
    for kind in RULE.words:
        assert kind in page
    words = set(re.findall(r"\w+", page))
    for name, table in PARAMETERS.items():
        assert {name, *table.words} <= words


def test_krond_has_every_option_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["install", "--help"]):
        with pytest.raises(SystemExit):
            run(words)
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert set(re.findall(r"--[a-z-]+", text_of("krond.8"))) == options


@pytest.mark.parametrize("page", MANUAL, ids=lambda page: page.name)
def test_the_tools_of_manuals_accept_a_page(page: Path) -> None:
    if shutil.which("mandoc") is None and shutil.which("groff") is None:
        pytest.skip("neither mandoc nor groff is installed: manual pages are checked for their content only")
    if shutil.which("mandoc"):
        found = subprocess.run(
            ["mandoc", "-Tlint", "-Wwarning", str(page)], capture_output=True, text=True, check=False
        )
        # Fonts by \f and a page without a date are the style of man(7) that all tools show.
        faults = [line for line in found.stdout.splitlines() if "missing date" not in line]
        assert not faults
    if shutil.which("groff"):
        found = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-K", "utf8", str(page)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.returncode, found.stderr) == (0, "")
