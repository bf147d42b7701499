"""The DAG part of the benchmark in the smallest size: every figure is there."""

import pytest

from bench import dag


@pytest.mark.slow
def test_every_figure_of_the_dag_runtime_is_measured_and_an_absent_peer_says_why() -> None:
    found = dag.measure_all(lambda _: None, 50, {"Absent": "peer_absent"})
    kron = [row for row in found.rows if row.contender in dag.KRON]
    assert [row.title for row in kron[::2]] == [dag.RUNS, dag.WIDE, dag.CHAIN, dag.RSS]
    assert all(row.cost is not None and row.cost > 0 for row in kron)
    absent = [row for row in found.rows if row.contender == "Absent"]
    assert len(absent) == 3
    assert [(goal.measured, goal.met) for goal in found.goals] == [("-", None)] * 4
    assert {(row.cost, row.note.partition(": ")[2]) for row in absent} == {
        (None, "No module named bench.peer_absent")
    }
