"""Every fault that is put in on purpose fits the source, has a test that exists, and a row on its page."""

import pytest

from tools.faults import FAULTS, PAGE, table
from tools.planted import Planted, is_placed


@pytest.mark.parametrize("row", FAULTS, ids=[row.name for row in FAULTS])
def test_a_fault_is_in_one_place_and_has_its_test(row: Planted) -> None:
    assert is_placed(row)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(), "python -m tools.faults --page"
