"""The page of complaints has a row for each of them, and every row names tests that exist."""

import re

from tools.requirements import ROOT, missing_test

ROW = re.compile(r"\| (\d+) \| [^|]+ \| (.+) \|")


def test_every_complaint_names_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/complaints.md").read_text(encoding="utf-8")
    rows = {int(number): re.findall(r"`([^`]+)`", names) for number, names in ROW.findall(page)}
    assert list(rows) == list(range(1, 41))
    assert all(rows.values())
    missing = [missing_test(name, ROOT) for names in rows.values() for name in names]
    assert [problem for problem in missing if problem is not None] == []


def test_every_test_of_a_complaint_is_on_the_page() -> None:
    page = (ROOT / "docs/explanation/complaints.md").read_text(encoding="utf-8")
    source = (ROOT / "tests/runtime/test_complaints.py").read_text(encoding="utf-8")
    tested = {int(number) for number in re.findall(r"def test_row_(\d+)_", source)}
    named = {int(number) for number, names in ROW.findall(page) if "test_row_" in names}
    assert tested == named
