"""Every protection has its words in the source, a test that exists, and a row in the threat model."""

import pytest

from tests.abuse.protections import PAGE, PROTECTIONS, table
from tools.planted import Planted, is_placed


@pytest.mark.parametrize("row", PROTECTIONS, ids=[row.name for row in PROTECTIONS])
def test_a_protection_stands_where_the_table_says_and_has_its_test(row: Planted) -> None:
    assert is_placed(row)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(), "python -m tests.abuse.protections --page"
