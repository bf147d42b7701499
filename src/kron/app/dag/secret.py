"""Secrets in the tasks of a DAG: encrypted before a version is stored, hidden where it is shown."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from kron.app.launchers import read_launcher, settings_of
from kron.core.dag.definition import node_launcher
from kron.core.errors import Problem
from kron.core.redaction import HIDDEN
from kron.launchers.secret import Vault
from kron.launchers.spec import SEALED, InvalidLauncherError, LauncherSettings


def task_identity(dag_id: str, task_id: str) -> str:
    """Return the name that the secrets of a task are encrypted for."""
    return f"{dag_id}/{task_id}"


def sealed_dag(dag_id: str, text: str, vault: Vault) -> str:
    """Return a valid DAG with the secrets of its tasks encrypted."""

    def sealed(task_id: str, launcher: Mapping[str, object]) -> Mapping[str, object]:
        return _object(vault.seal(read_launcher(launcher), task_identity(dag_id, task_id)))

    return _changed(text, lambda task_id, launcher: _marked(sealed(task_id, launcher)))


def unsealed_dag(dag_id: str, text: str, vault: Vault) -> str:
    """Return a stored DAG as it was deployed, or raise SecretUnavailableError."""

    def unsealed(task_id: str, launcher: Mapping[str, object]) -> Mapping[str, object]:
        if SEALED not in launcher:
            return {}
        return _object(vault.unseal(json.dumps(launcher), task_identity(dag_id, task_id)))

    return _changed(text, unsealed)


def shown_dag(text: str) -> dict[str, object]:
    """Return a stored DAG without the secrets of its tasks."""
    return _object(_changed(text, lambda _, launcher: _redacted(launcher)))


def task_problems(
    text: str, owner: str, check: Callable[[LauncherSettings], Iterable[Problem]]
) -> Iterator[Problem]:
    """Yield what a check says of the launcher of each task, as its owner's, with the path of the task."""
    for number, node in enumerate(_nodes(_object(text))):
        launcher = node_launcher(node)
        if launcher is None:
            continue
        for problem in check(read_launcher({**launcher, "user_id": owner})):
            path = problem.path.replace("launcher.kind", f"nodes.{number}.type", 1)
            path = path.replace("launcher", f"nodes.{number}", 1)
            yield Problem(path, problem.value, f'{problem.reason} (in the task "{node["id"]}")')


def _redacted(launcher: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return settings_of(json.dumps(launcher)).redacted()
    except InvalidLauncherError:
        # Of a kind that is no longer installed.
        return dict.fromkeys(launcher, HIDDEN)


def _marked(launcher: Mapping[str, object]) -> Mapping[str, object]:
    return launcher if SEALED in launcher else {}


def _changed(text: str, change: Callable[[str, Mapping[str, object]], Mapping[str, object]]) -> str:
    """Return a DAG whose tasks have the values of other launcher objects in their own fields."""
    document = _object(text)
    for node in _nodes(document):
        launcher = node_launcher(node)
        if launcher is None:
            continue
        other = change(str(node["id"]), launcher)
        if other:
            own = {name: other[name] for name in (*launcher, SEALED) if name in other and name != "kind"}
            if SEALED not in other:
                node.pop(SEALED, None)
            node.update(own)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _nodes(document: Mapping[str, object]) -> list[dict[str, object]]:
    nodes = document["nodes"]
    assert isinstance(nodes, list), "a stored DAG has a list of nodes"
    return nodes


def _object(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return document
