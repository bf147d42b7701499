"""The DAG part of the benchmark in the smallest size: every figure is there."""

import pytest

from bench import dag


@pytest.mark.slow
def test_every_figure_of_the_dag_runtime_is_measured() -> None:
    found = dag.run(lambda _: None, quick=True)
    assert len(found.rows) == 7
    assert all(row.cost is not None and row.cost > 0 for row in found.rows)
