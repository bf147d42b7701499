"""Every protection has its words in the source, a test that exists, and a row in the threat model."""

import pytest

from tests.abuse.protections import PAGE, PROTECTIONS, ROOT, Protection, page_table


@pytest.mark.parametrize("row", PROTECTIONS, ids=[row.promise for row in PROTECTIONS])
def test_a_protection_stands_where_the_table_says_and_has_its_test(row: Protection) -> None:
    text = (ROOT / "src" / "kron" / row.path).read_text()
    assert [text.count(old) for old in (row.old, *(old for old, _ in row.more))] == [1] * (1 + len(row.more))
    file, _, name = row.test.partition("[")[0].partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def test_the_page_has_the_table() -> None:
    assert page_table() in PAGE.read_text(), "python -m tests.abuse.protections --page"
