"""The tool that changes one detail of the source at a time: which changes, which sample, which tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiers import mostly_slow
from tools.mutation import ROOMS, SOURCE, CoverageMap, Mutant, Scratch, files_of, mutants_of, sample_of
from tools.mutation_operators import Mutator
from tools.mutation_sql import sql_mutations

MODULE = '''
"""A module."""
LIMIT = 10

def admitted(count: int = 1, *, strict: bool = False) -> bool:
    """Say whether a count is admitted."""
    _log.info("count %d", 7)
    if not strict and count < LIMIT:
        note(count, LIMIT)
        return True
    try:
        return min(count, LIMIT) == 3
    except ValueError:
        return count + 1

async def wait() -> None:
    await sleep(0.5)
'''
STATEMENTS = """
-- name: free
-- Free, and not = taken.
SELECT shard FROM leases WHERE owner IS NULL AND expires_at + %(margin)s <= %(now)s ORDER BY shard DESC

-- name: take
UPDATE leases SET owner = %(owner)s, token = token + 1 WHERE shard = %(shard)s
"""


def changes(text: str, replaced: str) -> Iterator[str]:
    """Yield what mutants have in place of a piece of a text."""
    for mutation in Mutator(text).mutations():
        if text.encode()[mutation.start : mutation.end].decode() == replaced:
            yield mutation.replacement


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        pytest.param("10", ["11", "9"], id="a constant"),
        pytest.param("count < LIMIT", ["(count <= LIMIT)"], id="a comparison"),
        pytest.param("min(count, LIMIT) == 3", ["(min(count, LIMIT) != 3)"], id="an equality"),
        pytest.param("not strict", ["(strict)"], id="a not"),
        pytest.param("False", ["True"], id="a default"),
        pytest.param("note(count, LIMIT)", ["(note(LIMIT, count))", "pass"], id="a call and a statement"),
        pytest.param("min(count, LIMIT)", ["(max(count, LIMIT))"], id="the smaller of two"),
        pytest.param("return True", ["return None"], id="a result"),
        pytest.param("return count + 1", ["raise", "return None"], id="an error that is handled"),
        pytest.param("count + 1", ["(count - 1)"], id="an operator"),
        pytest.param("await sleep(0.5)", ["(sleep(0.5))", "pass"], id="an await"),
        pytest.param("7", [], id="nothing in a log line"),
        pytest.param('"""A module."""', [], id="no documentation"),
    ],
)
def test_an_expression_or_statement_is_changed(replaced: str, expected: list[str]) -> None:
    assert sorted(changes(MODULE, replaced)) == expected


def test_a_statement_of_sql_is_changed_and_neither_its_comment_nor_an_assignment() -> None:
    text = STATEMENTS.encode()
    changed = [
        (mutation.scope, text[mutation.start : mutation.end].decode(), mutation.replacement)
        for mutation in sql_mutations(STATEMENTS)
    ]
    assert sorted(changed) == [
        ("free", "+", "-"),
        ("free", "<=", "<"),
        ("free", "AND", "OR"),
        ("free", "DESC", "ASC"),
        ("free", "IS NULL", "IS NOT NULL"),
        ("take", "=", "<>"),
    ]


@pytest.mark.parametrize("path", mostly_slow(["app/backfill.py", "stores/sql/postgres/statements.sql"]))
def test_every_mutant_has_its_own_name_and_changes_its_file(path: str) -> None:
    mutants, text = mutants_of(path), (SOURCE / path).read_bytes()
    assert len({mutant.key for mutant in mutants}) == len(mutants) > 0
    assert all(mutant.mutation.applied_to(text) != text for mutant in mutants)
    assert all(mutant.spans for mutant in mutants)


def test_a_seed_draws_the_same_sample_every_time_and_another_seed_another_one() -> None:
    first, again, other = (sample_of(["app/backfill"], 20, seed) for seed in (1, 1, 2))
    assert first == again
    assert len(first) == len(other) == 20
    assert first != other


def test_the_rooms_have_their_modules_and_their_statements_but_no_migrations() -> None:
    files = [file for room in ROOMS for file in files_of(room)]
    assert {"app/catalog.py", "fronts/service/auth/token.py", "stores/sql/sqlite/statements.sql"} <= {*files}
    assert not [file for file in files if Path(file).name.startswith("0")]
    assert files_of("app/catalog") == ["app/catalog.py"]


def a_mutant(before: str, after: str, path: str = "app/backfill.py") -> Mutant:
    """Return the mutant of a file with a piece of its text replaced."""
    return next(
        mutant
        for mutant in mutants_of(path)
        if (mutant.before, mutant.mutation.replacement) == (before, after)
    )


def test_the_shortest_tests_that_run_the_line_come_first_within_the_time_for_one_mutant() -> None:
    mutant = a_mutant("self.start >= self.end", "(self.start > self.end)")
    line = mutant.mutation.lines[0]
    seconds = {"a.py::slow": 39.0, "a.py::quick": 0.5, "a.py::long": 39.0, "b.py::one": 0.1, "b.py::two": 0.2}
    tests = CoverageMap(
        seconds, {mutant.path: {line: ["a.py::slow", "a.py::quick", "b.py"], line + 50: ["a.py::long"]}}
    )
    assert tests.tests_of(mutant) == ["b.py::one", "b.py::two", "a.py::quick", "a.py::slow"]
    assert CoverageMap(seconds, {}).tests_of(mutant) == []


def test_a_line_that_runs_at_the_import_is_tested_by_the_modules_beside_it() -> None:
    mutant = a_mutant("self.start >= self.end", "(self.start > self.end)")
    lines = {
        mutant.path: {mutant.mutation.lines[0]: ["", "a.py::first"]},
        "app/query.py": {7: ["a.py::second"]},
        "stores/url.py": {7: ["a.py::third"]},
    }
    tests = CoverageMap({"a.py::first": 0.1, "a.py::second": 0.2, "a.py::third": 0.3}, lines)
    assert tests.tests_of(mutant) == ["a.py::first", "a.py::second"]


@pytest.mark.slow
def test_a_mutant_is_killed_by_a_test_that_fails_and_survives_tests_that_do_not(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    mutant = a_mutant("self.start >= self.end", "(self.start > self.end)")
    noticing = "tests/service/test_runs.py::test_a_backfill_of_too_much_or_of_nothing_is_refused[sqlite]"
    blind = "tests/app/test_redaction.py"
    assert scratch.status_of(mutant, [blind], 300) == ("survived", "")
    assert scratch.status_of(mutant, [blind, noticing], 300) == ("killed", noticing)
    unchanged = mutant._replace(mutation=mutant.mutation._replace(replacement=mutant.before))
    assert scratch.status_of(unchanged, [noticing], 300) == ("survived", "")
