"""DAGs written in Python: `@dag` and `@task` make the JSON definition and the functions of its tasks."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, overload

from kron.app.dag.task_call import RESULT, TaskContext, TaskFunction
from kron.core.dag.contract import DagError

ARGS, KWARGS = "args", "kwargs"
# The parameter by which a function gets the context of its task.
CONTEXT = "context"


@dataclass(slots=True)
class _Draft:
    """The nodes of a DAG while its function is called."""

    dag_id: str
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    functions: dict[str, TaskFunction] = field(default_factory=dict)

    def add(self, name: str, node: Mapping[str, object]) -> "TaskRef":
        """Add a node; the second one of a name is called name_2."""
        task_id, number = name, 1
        while task_id in self.nodes:
            number += 1
            task_id = f"{name}_{number}"
        self.nodes[task_id] = {"id": task_id, **node}
        return TaskRef(task_id, self)


_DRAFT: ContextVar[_Draft | None] = ContextVar("kron dag", default=None)


@dataclass(frozen=True, slots=True, eq=False)
class TaskRef:
    """A task of a DAG that is being built; as an argument of another task it stands for its result."""

    task_id: str
    _draft: _Draft = field(repr=False)

    def __rshift__(self, other: "TaskRef | list[TaskRef]") -> "TaskRef | list[TaskRef]":
        """Make other tasks depend on this one: `extract() >> [load(), report()]`."""
        for each in other if isinstance(other, list) else [other]:
            needs = self._draft.nodes[each.task_id].setdefault("dependsOn", [])
            if self.task_id not in needs:
                needs.append(self.task_id)
        return other


class PythonTask:
    """A function as a task: called inside a `@dag` it adds a node, otherwise it is the plain function."""

    def __init__(self, function: Callable[..., object], options: Mapping[str, object]) -> None:
        self._function = function
        self._options = dict(options)
        update_wrapper(self, function)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Add the task to the DAG that is being built, or call the function."""
        draft = _DRAFT.get()
        if draft is None:
            return self._function(*args, **kwargs)
        name = self._function.__name__
        _check_arguments(self._function, args, kwargs)
        function = f"{draft.dag_id}.{name}"
        draft.functions[function] = _adapted(self._function)
        arguments = {ARGS: _plain(list(args)), KWARGS: _plain(kwargs)}
        needs = list(dict.fromkeys(each.task_id for each in _refs((args, kwargs))))
        node = {"type": "python", "function": function, "dependsOn": needs, **self._options}
        return draft.add(name, {**node, "arguments": arguments})


def process(
    name: str, command: str | list[str], *, after: "list[TaskRef] | None" = None, **fields: object
) -> TaskRef:
    """Add a process to the DAG that is being built; `fields` are those of its node."""
    draft = _DRAFT.get()
    if draft is None:
        raise DagError("DAG_VALIDATION_NO_DAG", "process() can only be called inside the function of a @dag")
    needs = [each.task_id for each in after or []]
    return draft.add(name, {"type": "process", "command": command, "dependsOn": needs, **fields})


@overload
def task(function: Callable[..., object], /) -> PythonTask: ...
@overload
def task(**options: object) -> Callable[[Callable[..., object]], PythonTask]: ...
def task(function: Callable[..., object] | None = None, /, **options: object) -> Any:
    """Make a function a task; options are the fields of its node: `@task(retries=2, timeout="5m")`."""
    if function is not None:
        return PythonTask(function, options)
    return lambda function: PythonTask(function, options)


class PythonDag:
    """A DAG written in Python: its id, its JSON definition, and the functions of its tasks."""

    def __init__(
        self, dag_id: str, document: Mapping[str, Any], functions: Mapping[str, TaskFunction]
    ) -> None:
        self.dag_id = dag_id
        self.document = document
        self.functions = functions

    def __repr__(self) -> str:
        return f"PythonDag({self.dag_id!r}, {len(self.document['nodes'])} tasks)"


@overload
def dag(function: Callable[[], object], /) -> PythonDag: ...
@overload
def dag(
    *, dag_id: str | None = None, schedule: str | None = None, timezone: str = "UTC", **fields: object
) -> Callable[[Callable[[], object]], PythonDag]: ...
def dag(
    function: Callable[[], object] | None = None,
    /,
    *,
    dag_id: str | None = None,
    schedule: str | None = None,
    timezone: str = "UTC",
    **fields: object,
) -> Any:
    """Make a function that calls tasks a DAG: `@dag(schedule="0 3 * * *", parallelism=4)`.

    The function is called once, here. Further options are fields of the definition.
    """

    def build(function: Callable[[], object]) -> PythonDag:
        draft = _Draft(dag_id or function.__name__)
        token = _DRAFT.set(draft)
        try:
            function()
        finally:
            _DRAFT.reset(token)
        triggers = [] if schedule is None else [_trigger(schedule, timezone)]
        document = {"nodes": list(draft.nodes.values()), "triggers": triggers, **fields}
        return PythonDag(draft.dag_id, json.loads(json.dumps(document)), draft.functions)

    return build if function is None else build(function)


def _trigger(schedule: str, timezone: str) -> dict[str, object]:
    timing = {"cron_expr": schedule, "timezone": timezone}
    return {"id": "schedule", "type": "schedule_based", "schedule": timing}


def _plain(value: object) -> object:
    """Return an argument as plain data, with references in the place of tasks."""
    if isinstance(value, TaskRef):
        return {RESULT: value.task_id}
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _refs(value: object) -> Iterator[TaskRef]:
    if isinstance(value, TaskRef):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _refs(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _refs(each)


def _check_arguments(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Raise DagError where a task is called with other arguments than its function takes."""
    signature = inspect.signature(function)
    given = {**({CONTEXT: None} if CONTEXT in signature.parameters else {}), **kwargs}
    try:
        signature.bind(*args, **given)
    except TypeError as error:
        message = f"Task {function.__name__!r} cannot be called: {error}"
        if not args and not kwargs:
            message += f" (the parameter for its run is called {CONTEXT!r})"
        raise DagError("DAG_VALIDATION_ARGUMENTS", message) from None


def _adapted(function: Callable[..., Any]) -> TaskFunction:
    """Return a function that takes the context of a task and calls one that takes arguments."""
    takes_context = CONTEXT in inspect.signature(function).parameters

    def arguments(context: TaskContext) -> tuple[list[object], dict[str, object]]:
        kwargs = dict(context.arguments.get(KWARGS, {}))
        if takes_context:
            kwargs.setdefault(CONTEXT, context)
        return list(context.arguments.get(ARGS, [])), kwargs

    if inspect.iscoroutinefunction(function):

        async def called(context: TaskContext) -> object:
            args, kwargs = arguments(context)
            return await function(*args, **kwargs)

        return called

    def called_in_thread(context: TaskContext) -> object:
        args, kwargs = arguments(context)
        return function(*args, **kwargs)

    return called_in_thread
