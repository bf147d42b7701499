"""Every example of the documentation is run, and what it shows must be what comes out."""

import re
import subprocess
import sys
from pathlib import Path
from signal import SIGINT
from xml.etree import ElementTree

import pytest
import typer.main

import kron
from kron.cli.app import SECTIONS, build, names
from kron.core.errors import InvalidCronExpressionError
from kron.core.job.distribution import PARAMETERS
from kron.core.job.job import JOB
from kron.core.job.schema import SCHEMAS
from kron.cron import parse
from tests.docs.field_tables import MARKED, TABLES, with_tables
from tests.docs.page import PAGES, ROOT, Session, agrees, blocks_of, examples_of, table_rows
from tests.docs.refresh import refreshed
from tests.waiting import awaited

DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "assets").glob("*.svg"))
# What `H` is derived from in the tables of cron.md.
IDENTITY = "prod/backup"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


RUNNABLE = [page for page in PAGES if any(block.runs for block in blocks_of(text_of(page)))]


@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_every_example_of_a_page_comes_out_as_shown(page: Path, tmp_path: Path) -> None:
    session = Session(folder=tmp_path)
    wrong = [fault for block in blocks_of(text_of(page)) for fault in session.wrong(block)]
    assert not wrong, f"{name_of(page)} (python -m tests.docs.refresh writes outputs anew)\n" + "\n".join(
        wrong
    )


def test_the_pages_that_teach_have_examples_that_run() -> None:
    names = {name_of(page) for page in RUNNABLE}
    assert names >= {
        "README.md",
        "docs/index.md",
        "docs/tutorial/first-schedule.md",
        "docs/reference/cli.md",
        "docs/reference/cron.md",
        "docs/reference/jobs.md",
        "docs/reference/python.md",
        "docs/explanation/civil-time.md",
        "docs/explanation/decisions.md",
    }


def test_the_shown_parts_of_an_example_are_in_its_file() -> None:
    shown = 0
    for page in PAGES:
        for block in blocks_of(text_of(page)):
            path = re.search(r'title="(examples/[^"]*)"', block.info)
            for part in re.split(r"^\.\.\.\n", block.text, flags=re.MULTILINE) if path else ():
                assert path is not None
                assert part.strip("\n") in text_of(ROOT / path[1]), f"{page.name}, line {block.line}"
                shown += 1
    assert shown >= 5


def test_the_installed_command_prints_what_the_readme_shows(tmp_path: Path) -> None:
    """One example as people run it: a process of its own."""
    session = Session(folder=tmp_path)
    block = next(block for block in blocks_of(text_of(ROOT / "README.md")) if block.language == "console")
    example = next(iter(examples_of(block)))
    assert agrees(example.expected, session._in_shell(example.command))
    assert session.code == 0


# --- tables ----------------------------------------------------------------------------------------

CRON_ROWS = list(table_rows(text_of(DOCS / "reference" / "cron.md")))
SENTENCES = [row for row in CRON_ROWS if "sentence" in row]
ERRORS = [row for row in CRON_ROWS if "error" in row]


# The column that has the expressions says in which dialects they are tried.
COLUMNS = {
    "expression": ("extended",),
    "posix expression": ("posix",),
    "expression in either": ("posix", "extended"),
}


def test_the_program_of_the_tutorial_runs_as_titled_until_ctrl_c(tmp_path: Path) -> None:
    page = text_of(ROOT / "docs" / "tutorial" / "embed.md")
    (block,) = [block for block in blocks_of(page) if block.file == "program.py"]
    (tmp_path / "program.py").write_text(block.text)
    started = subprocess.Popen(
        [sys.executable, "-u", "program.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with awaited(started) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline() == "running; Ctrl-C stops it\n", program.stderr.read()
        program.send_signal(SIGINT)
        assert (program.wait(), program.stderr.read()) == (0, "")
    assert (tmp_path / "kron.db").exists()


def expressions_of(row: dict[str, str]) -> tuple[str, tuple[str, ...]]:
    column = next(name for name in COLUMNS if name in row)
    return row[column], COLUMNS[column]


def id_of(row: dict[str, str]) -> str:
    return expressions_of(row)[0]


@pytest.mark.parametrize("row", SENTENCES, ids=id_of)
def test_an_expression_in_a_table_means_its_sentence(row: dict[str, str]) -> None:
    text, dialects = expressions_of(row)
    for dialect in dialects:
        assert parse(text, dialect, identity=IDENTITY).describe() == row["sentence"]


@pytest.mark.parametrize("row", ERRORS, ids=id_of)
def test_an_expression_in_a_table_is_refused_with_its_error(row: dict[str, str]) -> None:
    text, dialects = expressions_of(row)
    for dialect in dialects:
        with pytest.raises(InvalidCronExpressionError) as refused:
            parse(text, dialect)
        assert str(refused.value) == f'Invalid cron expression "{text}": {row["error"]}'


def test_the_tables_are_found() -> None:
    assert len(SENTENCES) > 30
    assert len(ERRORS) > 15


# --- nothing is left out ---------------------------------------------------------------------------


@pytest.mark.parametrize("command", names())
def test_the_reference_has_every_option_of_a_command(command: str) -> None:
    page = text_of(DOCS / "reference" / "cli.md")
    section = re.search(rf"^## kron {command}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, f"cli.md has no section `## kron {command}`"
    group = typer.main.get_command(build(command))
    asked = getattr(group, "commands")[command]  # noqa: B009
    verbs = getattr(asked, "commands", {}).values()
    parameters = [parameter for each in (asked, *verbs) for parameter in each.params]
    words = [word for parameter in parameters for word in (*parameter.opts, *parameter.secondary_opts)]
    options = {option for option in words if option.startswith("-")}
    shared = re.search(r"^## Shared options$(.*?)(?=^## )", page, re.MULTILINE | re.DOTALL)
    assert shared
    known = set(re.findall(r"`(--?[a-z-]+)", section[1] + shared[1]))
    assert options - {"-h", "--help"} <= known


def test_the_reference_lists_every_command_in_the_section_of_the_help() -> None:
    page = text_of(DOCS / "reference" / "cli.md")
    table = page[page.index("| command | does |") : page.index("`kron COMMAND --help`")]
    _, *parts = re.split(r"^\| \*\*(\w+)\*\* \| \|$", table, flags=re.MULTILINE)
    listed = {
        title: set(re.findall(r"\[`kron (\w+)`\]\(#kron-\1\)", rows))
        for title, rows in zip(parts[::2], parts[1::2], strict=True)
    }
    assert listed == {title: {name.split()[0] for name in members} for title, members in SECTIONS.items()}


@pytest.mark.parametrize("name", sorted(kron.__all__))
def test_the_reference_has_every_public_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", text_of(DOCS / "reference" / "python.md"))


def fields_of(schema: object) -> set[str]:
    """Return the name of every field anywhere in a schema."""
    if isinstance(schema, list):
        return {name for item in schema for name in fields_of(item)}
    if not isinstance(schema, dict):
        return set()
    properties = schema.get("properties", {})
    return set(properties) | {name for value in schema.values() for name in fields_of(value)} - {"default"}


def test_the_reference_has_every_field_of_a_job() -> None:
    known = set(re.findall(r"`([a-z_]+)`", text_of(DOCS / "reference" / "jobs.md")))
    assert set(JOB.words) <= fields_of(SCHEMAS["job"])
    assert fields_of(SCHEMAS["jobfile"]) <= known


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- fields:" in text_of(page)], ids=name_of)
def test_a_table_of_fields_is_the_one_of_the_code(page: Path) -> None:
    text = text_of(page)
    assert with_tables(text) == text, "python -m tests.docs.refresh writes the tables anew"


def test_every_field_table_is_on_some_page() -> None:
    marked = [found["name"] for page in PAGES for found in MARKED.finditer(text_of(page))]
    assert sorted(marked) == sorted(TABLES)


def test_the_reference_has_every_parameter_of_a_distribution_with_its_default() -> None:
    rows = [row for row in table_rows(text_of(DOCS / "reference" / "jobs.md")) if "parameters" in row]
    named = {row["name"]: row["parameters"] for row in rows}
    assert set(named) == set(PARAMETERS)
    for name, table in PARAMETERS.items():
        for word, spec in table.words.items():
            assert word in named[name]
            if isinstance(spec.default, float):
                assert f"default {spec.default:g}" in named[name]


# --- links and pictures ----------------------------------------------------------------------------


def test_the_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text_of(ROOT / "README.md"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("picture", PICTURES, ids=name_of)
def test_a_picture_says_what_it_shows_and_fetches_nothing(picture: Path) -> None:
    root = ElementTree.fromstring(text_of(picture))
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert {"title", "desc"} <= names
    assert not names & {"image", "script", "foreignObject", "use"}
    assert "url(" not in text_of(picture).replace("url(#", "")
    assert "prefers-color-scheme: dark" in text_of(picture)


# --- the runner itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "output", "expected"),
    [
        pytest.param("a\nb\n", "a\nb\n", True, id="the same"),
        pytest.param("a\n\n", "a  \n", True, id="blanks at the ends"),
        pytest.param("a\n", "b\n", False, id="another"),
        pytest.param("a\n", "a\nb\n", False, id="a line more"),
        pytest.param("a.c\n", "abc\n", False, id="no pattern"),
        pytest.param("a\n...\nd\n", "a\nb\nc\nd\n", True, id="dots for lines"),
        pytest.param("a\n...\nd\n", "a\nb\nc\n", False, id="dots hide no other end"),
        pytest.param("", "a\n", False, id="nothing shown"),
    ],
)
def test_an_output_agrees_or_not(shown: str, output: str, expected: bool) -> None:
    assert agrees(shown, output) is expected


@pytest.mark.parametrize(
    ("block", "wrong"),
    [
        pytest.param("```python\n1 + 1  # -> 2\n```", 0, id="a value"),
        pytest.param("```python\n1 + 1  # -> 3\n```", 1, id="a wrong value"),
        pytest.param("```python\nprint('a')  # -> a\n```", 0, id="an output"),
        pytest.param(
            "```python\nfor n in (1, 2):\n    print(n)\n# -> 1\n# -> 3\n```", 1, id="a wrong output"
        ),
        pytest.param("```python\n>>> 1 + 1\n3\n```", 1, id="a wrong doctest"),
        pytest.param(
            '```python\nn = 2\n```\n\n```python title="x.py"\n1/0\n```\n\n```python\nn  # -> 3\n```',
            1,
            id="names are kept, files are not run",
        ),
        pytest.param("```console\n$ kron schema nothing\n```", 1, id="an output not shown"),
        pytest.param(
            "```console\n$ kron schema x\n"
            'kron: Invalid schema "x": use one of job, jobfile\n$ echo $?\n2\n```',
            0,
            id="an error and its exit code",
        ),
        pytest.param("```{.console .no-run}\n$ kron nothing\nno\n```", 0, id="not run"),
        pytest.param(
            "    ```console\n    $ kron schema x | cat\n    no\n    ```", 1, id="indented, by a shell"
        ),
    ],
)
def test_what_a_block_shows_is_compared(block: str, wrong: int, tmp_path: Path) -> None:
    session = Session(folder=tmp_path)
    assert len([fault for part in blocks_of(block) for fault in session.wrong(part)]) == wrong


def test_a_page_is_refreshed_where_its_outputs_are_wrong_and_nowhere_else(tmp_path: Path) -> None:
    error = 'kron: Invalid schema "x": use one of job, jobfile'
    indented = "\n\nText.\n\n    ```console\n    $ kron schema \\\n    x\n"
    wrong = f"```console\n$ kron schema x\nold\nlines\n$ echo $?\n```{indented}    ```\n"
    right = f"```console\n$ kron schema x\n{error}\n$ echo $?\n2\n```{indented}    {error}\n    ```\n"
    assert refreshed(wrong, tmp_path) == right
    assert refreshed(right, tmp_path) == right
    elided = "```console\n$ kron schema job\n{\n...\n}\n```\n"
    assert refreshed(elided, tmp_path) == elided


def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    block = next(blocks_of("```console\n$ kron schema job | head -1\n{\n$ rm -r folder\n```"))
    with pytest.raises(AssertionError, match="cannot be run"):
        Session(folder=tmp_path).wrong(block)
