"""The faults that are put in on purpose fit the source, and the page says of each what found it."""

from pathlib import Path

import pytest

from tools.mutants import BEGIN, END, MUTANTS, PAGE, ROOT, Caught, Mutant, hunt, table

ROWS = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_fault_is_in_one_place_and_on_the_page(mutant: Mutant) -> None:
    source = (ROOT / "src" / "kron" / mutant.path).read_text()
    assert source.count(mutant.old) == 1
    assert mutant.old != mutant.new
    rows = [row for row in ROWS if row.startswith(f"| {mutant.name} | `{mutant.path}` |")]
    assert len(rows) == 1
    assert "not found" not in rows[0]


def test_the_page_has_no_fault_that_is_gone() -> None:
    head, line, *rows = [row for row in ROWS if row]
    assert [head, line] == list(table([]))
    assert len(rows) == len(MUTANTS)


@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.test], ids=lambda mutant: mutant.name
)
def test_a_test_that_hunts_a_fault_exists(mutant: Mutant) -> None:
    path, _, name = mutant.test.partition("::")
    assert f"def {name}(" in Path(ROOT, path).read_text()


@pytest.mark.slow
def test_a_fault_that_the_first_story_shows_is_found() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "every run is started twice")
    assert hunt(mutant) == Caught(mutant, True, "calls", 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["every list is refused", "every initialize raises"])
def test_a_scheduler_that_refuses_everything_is_found_by_the_first_story(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert hunt(mutant) == Caught(mutant, True, "S5", 0)


def test_what_was_not_found_is_said() -> None:
    missed = Caught(MUTANTS[0], False, "within a moment")
    assert str(missed) == "NOT FOUND within a moment"
    assert list(table([missed]))[-1].endswith("| **not found** | - |")
