"""`@dag` and `@task` make the JSON definition and the functions of its tasks."""

from typing import Any

import pytest

from kron.core.dag.contract import DagError
from kron.dag import DagRuntime, TaskContext, dag, process, task


@task(retries=1)
def extract() -> dict[str, list[int]]:
    return {"rows": [1, 2]}


@task
async def add(*values: Any, context: TaskContext, more: int = 0) -> int:
    assert context.task_id.startswith("add")
    return sum(sum(value["rows"]) if isinstance(value, dict) else value for value in values) + more


@dag(dag_id="sums", schedule="0 3 * * *", timezone="Europe/Berlin", parallelism=2)
def sums() -> None:
    start = extract()
    first = add(start, more=10)
    second = add(start, first)
    done = process("done", "true", after=[first], retries=3)
    second >> [done]


def test_calls_become_nodes_with_their_dependencies() -> None:
    nodes = {node["id"]: node for node in sums.document["nodes"]}
    assert {name: node["dependsOn"] for name, node in nodes.items()} == {
        "extract": [], "add": ["extract"], "add_2": ["extract", "add"], "done": ["add", "add_2"],
    }  # fmt: skip
    assert nodes["extract"]["retries"] == 1
    assert nodes["add"]["arguments"] == {"args": [{"$result": "extract"}], "kwargs": {"more": 10}}
    assert sums.document["parallelism"] == 2
    assert sums.document["triggers"] == [
        {
            "id": "schedule",
            "type": "schedule_based",
            "schedule": {"cron_expr": "0 3 * * *", "timezone": "Europe/Berlin"},
        }
    ]


async def test_a_deployed_dag_runs_and_is_one_version_until_it_changes() -> None:
    async with DagRuntime() as runtime:
        assert (await runtime.deploy(sums)).version == 1
        assert (await runtime.deploy(sums)).version == 1
        run = await runtime.orchestrator.start_run(dag_id="sums", logical_date="2026-06-01")
        assert await runtime.run_to_end(run.run_id) == "success"
        results = await runtime.store.results(run.run_id, ["add", "add_2"])
        assert results == {"add": "13", "add_2": "16"}
        changed = dag(dag_id="sums")(extract)
        assert (await runtime.deploy(changed)).version == 2


def test_outside_a_dag_a_task_is_its_function_and_a_process_is_refused() -> None:
    assert extract() == {"rows": [1, 2]}
    with pytest.raises(DagError):
        process("a", "true")


def test_a_task_that_is_called_with_wrong_arguments_is_refused_where_the_dag_is_built() -> None:
    @task
    def fetch(run: object) -> None: ...

    @task
    def load(rows: object, context: TaskContext) -> None: ...

    with pytest.raises(DagError) as caught:
        dag(dag_id="etl")(fetch)
    assert caught.value.code == "DAG_VALIDATION_ARGUMENTS"
    assert str(caught.value) == (
        "Task 'fetch' cannot be called: missing a required argument: 'run' "
        "(the parameter for its run is called 'context')"
    )
    with pytest.raises(
        DagError, match="Task 'load' cannot be called: got an unexpected keyword argument 'day'"
    ):
        dag(dag_id="etl")(lambda: load(1, day=2))
    assert len(dag(dag_id="etl")(lambda: load(1)).document["nodes"]) == 1
