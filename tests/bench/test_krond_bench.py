"""The krond part of the benchmark measures a real krond, and says which others are missing."""

import pytest

from bench import krond
from bench.row import Kind

pytestmark = pytest.mark.slow


def test_a_small_idle_krond_is_measured_and_stays_small() -> None:
    found = krond.measure(lambda _text: None, counts=(5,), burst=0, names=("krond",))
    (row,) = found.rows
    assert (row.contender, row.kind, row.ratio) == ("krond", Kind.SIZE, 1.0)
    # Far less than with the packages of a service, and more than a bare interpreter.
    assert row.cost is not None
    assert 10e6 < row.cost < 60e6
    assert [goal.what for goal in found.goals] == ["memory of an idle daemon, 5 jobs"]


def test_a_program_that_is_not_installed_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = krond.measure(lambda _text: None, counts=(5,), burst=5, names=("cron",))
    assert {(row.cost, row.note) for row in found.rows} == {(None, "the package cron is not installed")}
