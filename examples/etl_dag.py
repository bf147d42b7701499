"""A DAG in Python: `kron dag run examples/etl_dag.py`."""

from kron.dag import TaskContext, dag, process, task


@task(retries=2, retry_delay="1s", timeout="5m")
def extract(context: TaskContext) -> list[int]:
    """Return some rows; the logical date says which."""
    print("rows of", context.logical_date.date())
    return [1, 2, context.logical_date.day]


@task
async def transform(rows: list[int], factor: int = 10) -> list[int]:
    """Return the rows multiplied."""
    return [factor * row for row in rows]


@task
def load(rows: list[int]) -> int:
    """Load the rows and return their sum."""
    print("loaded", len(rows), "rows")
    return sum(rows)


@dag(schedule="0 3 * * *", timezone="Europe/Berlin", parallelism=4)
def etl() -> None:
    """Extract, transform, load, and tidy up however it ended."""
    loaded = load(transform(extract()))
    loaded >> process("tidy", ["echo", "tidy"], trigger_rule="all_done")
