"""Definitions of DAGs: the nodes of a workflow read as tasks, with their dependencies and policies."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from kron.core.choice import Choice
from kron.core.dag.contract import DagError
from kron.core.errors import Problem
from kron.core.fields import FieldReader, FieldTable, parse_text, row, table_of
from kron.core.plan.compiled import cached_by_text
from kron.core.time.instant import MILLISECOND
from kron.core.value_types import DURATION, FLAG, NAME_TEXT, choice, names_of, nullable, whole_number
from kron.core.workflow import InvalidWorkflowError, read_workflow

MAX_RETRIES, MAX_TASKS = 1_000, 100_000
# The largest result of a task, and the largest input of a run, as JSON text.
MAX_RESULT = 65_536
# The largest document of a task, in characters: its input, its arguments, and the results it needs.
MAX_DOCUMENT = 1 << 20
# How many definitions are kept read, and of long ones how many characters, which take ten times the memory; a
# published version never changes.
MAX_CACHED, MAX_TEXT = 256, 4 << 20
# Fields of a node that every type of task has; all others belong to its executor.
NODE = frozenset({"id", "type", "dependsOn"})
PYTHON, FUNCTION, ARGUMENTS = "python", "function", "arguments"


class TriggerRule(Choice):
    """When a task runs, by how the tasks it depends on have ended."""

    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ONE_FAILED = "one_failed"
    NONE_FAILED = "none_failed"


class ResultSource(Choice):
    """Where the result of a task comes from."""

    NONE = "none"
    LAST_LINE = "last_line"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """How one task of a DAG is run."""

    table: ClassVar[FieldTable]

    trigger_rule: TriggerRule = field(
        default=TriggerRule.ALL_SUCCESS,
        metadata=row(choice(names_of(TriggerRule)), "when it runs, depending on how its dependencies ended"),
    )
    retries: int = field(
        default=0, metadata=row(whole_number(0, MAX_RETRIES), "how many times a failed attempt is retried")
    )
    retry_delay: timedelta = field(
        default=timedelta(seconds=10), metadata=row(DURATION, "the delay before the first retry")
    )
    retry_backoff: int = field(
        default=2, metadata=row(whole_number(1, 10), "the factor by which each further delay grows")
    )
    max_retry_delay: timedelta = field(
        default=timedelta(minutes=10), metadata=row(DURATION, "the longest delay before a retry")
    )
    timeout: timedelta | None = field(
        default=None, metadata=row(nullable(DURATION), "how long an attempt may take")
    )
    pool: str | None = field(
        default=None, metadata=row(nullable(NAME_TEXT), "the pool whose slots it shares with other tasks")
    )
    branch: bool = field(
        default=False,
        metadata=row(FLAG, "whether its result names the downstream tasks to run; the others are skipped"),
    )
    result: ResultSource = field(
        default=ResultSource.NONE,
        metadata=row(choice(names_of(ResultSource)), "`last_line`: the last line of its output is JSON"),
    )

    def delay_ms(self, failures: int) -> int:
        """Return how long the retry after a number of failures waits, in milliseconds."""
        first, most = self.retry_delay // MILLISECOND, self.max_retry_delay // MILLISECOND
        # A large power is not computed: the longest delay is reached long before.
        factor: int = self.retry_backoff ** min(failures - 1, 40)
        return min(first * factor, most)


TaskPolicy.table = table_of(TaskPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class DagLimits:
    """How many tasks run at once."""

    table: ClassVar[FieldTable]

    parallelism: int = field(
        default=16, metadata=row(whole_number(1, MAX_TASKS), "how many tasks of one run execute at once")
    )
    max_active_tasks: int = field(
        default=64, metadata=row(whole_number(1, MAX_TASKS), "how many tasks of all its runs execute at once")
    )


DagLimits.table = table_of(DagLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task: what it depends on, how it is run, and the launcher object that executes it."""

    task_id: str
    depends_on: tuple[str, ...]
    policy: TaskPolicy
    launcher: Mapping[str, object]
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class DagDefinition:
    """The tasks of one version of a DAG, in the order of its document."""

    tasks: Mapping[str, TaskSpec]
    limits: DagLimits
    # The tasks that depend on each task.
    dependants: Mapping[str, tuple[str, ...]]

    @property
    def pools(self) -> frozenset[str]:
        """Return the pools that its tasks use."""
        return frozenset(task.policy.pool for task in self.tasks.values() if task.policy.pool is not None)


@cached_by_text(MAX_CACHED, MAX_TEXT)
def definition_of(text: str, dag_id: str) -> DagDefinition:
    """Return the definition in a stored DAG, or raise DagError with every problem and its path."""
    return read_definition(dag_id, json.loads(text))


def read_definition(dag_id: str, document: object) -> DagDefinition:
    """Return the definition in a DAG's document, or raise DagError with every problem and its path."""
    try:
        read_workflow(dag_id, document)
    except InvalidWorkflowError as error:
        raise _invalid(dag_id, list(error.problems)) from error
    assert isinstance(document, Mapping), "a workflow is an object"
    problems: list[Problem] = []
    nodes: list[Mapping[str, object]] = document["nodes"]
    if not nodes:
        problems.append(Problem("nodes", None, "has no node; a DAG needs at least one"))
    tasks = [_read_task(node, f"nodes.{number}", problems) for number, node in enumerate(nodes)]
    known = DagLimits.table.words
    given = {name: document[name] for name in known if name in document}
    limits = DagLimits.table.build(FieldReader(given, "", problems, known=known), DagLimits)
    if problems:
        raise _invalid(dag_id, problems)
    dependants: dict[str, list[str]] = {task.task_id: [] for task in tasks}
    for task in tasks:
        for needed in task.depends_on:
            dependants[needed].append(task.task_id)
    return DagDefinition(
        tasks={task.task_id: task for task in tasks},
        limits=limits,
        dependants={name: tuple(users) for name, users in dependants.items()},
    )


def _read_task(node: Mapping[str, object], path: str, problems: list[Problem]) -> TaskSpec:
    words = TaskPolicy.table.words
    given = {name: value for name, value in node.items() if name in words}
    policy = TaskPolicy.table.build(FieldReader(given, path, problems, known=words), TaskPolicy)
    rest = _executor_fields(node)
    arguments = node.get(ARGUMENTS, {})
    if not isinstance(arguments, Mapping):
        problems.append(Problem(f"{path}.{ARGUMENTS}", arguments, "must be an object"))
        arguments = {}
    kind = str(node["type"])
    launcher = _python_launcher(rest, path, problems) if kind == PYTHON else {**rest, "kind": kind}
    needs = node.get("dependsOn", ())
    assert isinstance(needs, list | tuple), "a workflow's dependencies are lists"
    return TaskSpec(
        task_id=str(node["id"]),
        depends_on=tuple(dict.fromkeys(map(str, needs))),
        policy=policy,
        launcher=launcher,
        arguments=arguments,
    )


def _executor_fields(node: Mapping[str, object]) -> dict[str, object]:
    known = {*TaskPolicy.table.words, *NODE, ARGUMENTS}
    return {name: value for name, value in node.items() if name not in known}


def node_launcher(node: Mapping[str, object]) -> dict[str, object] | None:
    """Return the launcher object in a node of a stored DAG; a function has none."""
    return None if node["type"] == PYTHON else {**_executor_fields(node), "kind": str(node["type"])}


def _python_launcher(rest: Mapping[str, object], path: str, problems: list[Problem]) -> Mapping[str, object]:
    """Return the launcher object of a task that is a function, registered with the worker by name."""
    reader = FieldReader(rest, path, problems, known=(FUNCTION,))
    if not reader.has(FUNCTION):
        reader.problem(FUNCTION, None, "is missing: the name of a registered function")
    return {"kind": "callback", "name": reader.read(FUNCTION, parse_text, "")}


def _invalid(dag_id: str, problems: list[Problem]) -> DagError:
    return DagError(
        "DAG_VALIDATION_INVALID_DEFINITION",
        f'The DAG "{dag_id}" is invalid: {"; ".join(map(str, problems))}',
        context={"dag_id": dag_id, "problems": tuple(problems)},
    )
