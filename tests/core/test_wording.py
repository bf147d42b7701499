"""Texts for people: one wording of counts, whatever shows them."""

import pytest

from kron.core.wording import counted


@pytest.mark.parametrize(
    ("number", "nouns", "text"),
    [
        (0, ("job",), "0 jobs"),
        (1, ("job",), "1 job"),
        (2, ("entry", "entries"), "2 entries"),
        (1, ("entry", "entries"), "1 entry"),
        (1_200, ("period",), "1,200 periods"),
    ],
)
def test_a_count_agrees_with_its_noun_and_groups_its_digits(
    number: int, nouns: tuple[str, ...], text: str
) -> None:
    assert counted(number, *nouns) == text
