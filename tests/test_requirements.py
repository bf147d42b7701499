"""The page of requirements is well formed, and every row marked done names tests that exist."""

from pathlib import Path

import pytest

from tools.requirements import (
    PAGE,
    ROOT,
    SPECS,
    Row,
    all_problems,
    evidence_problems,
    form_problems,
    main,
    mark_done,
    missing_test,
    numbering_problems,
    parse_rows,
    refresh_summary,
    summary_problems,
)

THIS = "tests/test_requirements.py"
SHOWN = f"{THIS}::test_a_small_page_has_no_problems"

HEADER = "| id | clause | demands | status | test |\n|---|---|---|---|---|\n"
SUMMARY = "## Summary\n\n| spec | rows | done | open |\n"


def page(*rows: str) -> str:
    """Return a small page: the rows given, under spec 1, and one open row for each other spec."""
    others = [
        f"## Spec {spec}: x\n\n{HEADER}| R{spec}-001 | C | It works. | open | - |\n" for spec in SPECS[1:]
    ]
    text = "\n".join([SUMMARY, f"## Spec 1: x\n\n{HEADER}" + "\n".join(rows) + "\n", *others])
    return refresh_summary(text)


FIRST = "| R1-001 | C | It works. | open | - |"
SECOND = "| R1-002 | C | It works too. | open | - |"


def done(test: str) -> str:
    """Return a page whose first row is done by the text given as its test column."""
    return page(f"| R1-001 | C | It works. | done | {test} |")


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


# --- the page itself -------------------------------------------------------------------------------


def test_every_row_of_the_page_is_well_formed(text: str) -> None:
    assert form_problems(text) == []


def test_ids_of_the_page_are_unique_and_consecutive_for_each_spec(text: str) -> None:
    ids = [row.id for row in parse_rows(text)]
    assert numbering_problems(text) == []
    assert len(set(ids)) == len(ids)


def test_the_page_has_rows_for_all_five_specs(text: str) -> None:
    assert {row.spec for row in parse_rows(text)} == {1, 2, 3, 4, 5}


def test_every_done_row_of_the_page_names_tests_that_exist_and_every_open_row_none(text: str) -> None:
    assert evidence_problems(text, ROOT) == []


def test_the_summary_of_the_page_counts_its_rows(text: str) -> None:
    assert summary_problems(text) == []


# --- the checks detect every problem ---------------------------------------------------------------


def test_a_small_page_has_no_problems() -> None:
    assert all_problems(page(FIRST, SECOND), ROOT) == []
    assert all_problems(done(f"`{SHOWN}`"), ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("| R1-001 | C | It works. | open |", id="four columns"),
        pytest.param("| R1-001 | C | It | works. | open | - |", id="six columns"),
        pytest.param("| R1-1 | C | It works. | open | - |", id="short number"),
        pytest.param("| R6-001 | C | It works. | open | - |", id="no such spec"),
        pytest.param("| R2-001 | C | It works. | open | - |", id="wrong section"),
        pytest.param("| R1-001 | C | It works. | soon | - |", id="unknown status"),
        pytest.param("| R1-001 | | It works. | open | - |", id="no clause"),
        pytest.param("| R1-001 | C | It works | open | - |", id="no sentence"),
        pytest.param("| R1-001 | C | It works. | open | |", id="no test column"),
    ],
)
def test_a_row_out_of_form_is_found(line: str) -> None:
    assert form_problems(page(line)) != []


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([FIRST, FIRST], id="twice"),
        pytest.param([SECOND], id="not from one"),
        pytest.param([SECOND, FIRST], id="out of order"),
        pytest.param([], id="no rows"),
    ],
)
def test_ids_out_of_sequence_are_found(rows: list[str]) -> None:
    assert numbering_problems(page(*rows)) != []


@pytest.mark.parametrize(
    "test",
    [
        pytest.param("-", id="none"),
        pytest.param(f"`{THIS}::test_made_up`", id="made-up function"),
        pytest.param(f"`{THIS}::TestMadeUp::test_made_up`", id="made-up class"),
        pytest.param("`tests/unit/test_made_up.py::test_made_up`", id="made-up file"),
        pytest.param(f"`{SHOWN}`<br>`{THIS}::test_made_up`", id="made-up after a real one"),
        pytest.param(f"`{SHOWN}[one]`", id="parametrized id"),
        pytest.param(f"`{THIS}`", id="a file only"),
        pytest.param(f"`{THIS}::page`", id="no test function"),
        pytest.param(SHOWN, id="no backticks"),
        pytest.param(f"`{SHOWN}` and more", id="more than a name"),
        pytest.param(f"`tests/../{SHOWN}`", id="a way out of tests"),
    ],
)
def test_a_done_row_without_an_existing_test_is_found(test: str) -> None:
    assert evidence_problems(done(test), ROOT) != []


@pytest.mark.parametrize("separator", ["<br>", ", "])
def test_a_done_row_may_name_several_tests(separator: str) -> None:
    assert evidence_problems(done(f"`{SHOWN}`{separator}`{SHOWN}`"), ROOT) == []


def test_an_open_row_that_names_a_test_is_found() -> None:
    assert evidence_problems(page(f"| R1-001 | C | It works. | open | `{SHOWN}` |"), ROOT) != []


def test_methods_and_async_functions_count_as_tests_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "tests" / "unit" / "test_x.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "class TestX:\n    def test_in(self): ...\n\nasync def test_out(): ...\n", encoding="utf-8"
    )
    assert missing_test("tests/unit/test_x.py::TestX::test_in", tmp_path) is None
    assert missing_test("tests/unit/test_x.py::test_out", tmp_path) is None
    assert missing_test("tests/unit/test_x.py::test_in", tmp_path) is not None
    assert missing_test("tests/unit/test_x.py::TestX::test_out", tmp_path) is not None


def test_a_wrong_count_in_the_summary_is_found() -> None:
    right = page(FIRST, SECOND)
    assert summary_problems(right.replace("| spec 1 | 2 | 0 | 2 |", "| spec 1 | 2 | 1 | 1 |")) != []
    assert summary_problems(right.replace("| spec 5 | 1 | 0 | 1 |\n", "")) != []
    assert summary_problems(right.replace("| spec | rows", "| book | rows")) != []


# --- the tool --------------------------------------------------------------------------------------


def test_marking_a_row_changes_that_row_and_the_counts_only() -> None:
    before = page(FIRST, SECOND)
    after = mark_done(before, "R1-002", [SHOWN, SHOWN])
    assert all_problems(after, ROOT) == []
    assert parse_rows(after)[1] == Row(
        id="R1-002", clause="C", demands="It works too.", status="done", test=f"`{SHOWN}`<br>`{SHOWN}`"
    )
    changed = [new for old, new in zip(before.split("\n"), after.split("\n"), strict=True) if old != new]
    assert [line.split("|")[1].strip() for line in changed] == ["spec 1", "all", "R1-002"]


def test_marking_an_unknown_row_is_an_error() -> None:
    with pytest.raises(KeyError):
        mark_done(page(FIRST), "R1-999", [SHOWN])


def test_the_tool_refuses_a_made_up_test_and_leaves_the_page_alone(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mark", "R1-001", f"{THIS}::test_made_up"]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert [row.id for row in parse_rows(PAGE.read_text(encoding="utf-8"))] == [
        row.id for row in parse_rows(text)
    ]


def test_the_tool_lists_the_open_rows_of_one_spec(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["list", "--open", "R5"]) == 0
    expected = [row.id for row in parse_rows(text) if row.spec == 5 and row.status == "open"]
    assert [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")
    ] == expected
