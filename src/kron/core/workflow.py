"""Workflows: DAG JSON parsed for its schedules and checked for cycles."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kron.core.errors import InputError, Problem
from kron.core.fields import text_problems

SCHEDULE_BASED = "schedule_based"
# A name that is a valid file name everywhere, without characters special to a shell or a URL.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
NAME_RULE = "must be 1 to 128 of A-Z a-z 0-9 . _ - and start with a letter, a digit or _"
# The largest DAG, as JSON, and the most nodes and triggers; each trigger becomes a schedule.
MAX_BYTES, MAX_NODES, MAX_TRIGGERS = 1 << 20, 10_000, 100


class InvalidWorkflowError(InputError):
    """A workflow has one or more problems, each with its path."""

    code = "invalid_workflow"

    def __init__(self, *, workflow_id: str, problems: Sequence[Problem]) -> None:
        super().__init__(
            f'Invalid workflow "{workflow_id}": {"; ".join(map(str, problems))}',
            workflow_id=workflow_id,
            problems=tuple(problems),
        )
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        return [str(problem) for problem in self.problems]


class Trigger(NamedTuple):
    """A schedule trigger of a workflow: its name, its path in the document, and its schedule."""

    name: str
    path: str
    schedule: Mapping[str, object]


class WorkflowRecord(NamedTuple):
    """One stored version of a workflow: `dag` is JSON text, `created_at` milliseconds."""

    workflow_id: str
    version: int
    dag: str
    user_id: str
    created_at: int

    def document(self) -> dict[str, object]:
        """Return the DAG as a document."""
        document: dict[str, object] = json.loads(self.dag)
        return document

    @property
    def is_draft(self) -> bool:
        """Return whether the version is a draft: it may still change, and it never runs."""
        return '"draft"' in self.dag and self.document().get("draft") is True


class WorkflowVersion(NamedTuple):
    """A version of a workflow: its number, its owner, and its creation time in milliseconds."""

    version: int
    user_id: str
    created_at: int


class StartRequest(NamedTuple):
    """One start requested of the run launcher; `begun_at` is in milliseconds."""

    key: str
    attempt: int
    workflow_id: str
    version: int
    begun_at: int


class RecordedStart(NamedTuple):
    """An earlier start as recorded: which workflow version, and whether it was accepted."""

    workflow_id: str
    version: int
    accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A valid workflow: the JSON text of its DAG, and its schedule triggers."""

    workflow_id: str
    dag: str
    triggers: tuple[Trigger, ...]


def read_workflow(workflow_id: str, document: object) -> Workflow:
    """Return a workflow from its DAG JSON, or raise with every problem and its path."""
    problems: list[Problem] = []
    if not NAME.fullmatch(workflow_id):
        problems.append(Problem("workflow_id", workflow_id, NAME_RULE))
    if not isinstance(document, Mapping):
        problems.append(Problem("dag", document, "must be an object with nodes and triggers"))
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=problems)
    dag = _text_of(document, problems)
    triggers = list(_read_triggers(document.get("triggers", []), problems))
    _check_nodes(document.get("nodes"), problems)
    if problems:
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=problems)
    return Workflow(workflow_id=workflow_id, dag=dag, triggers=tuple(triggers))


def same_dag(one: str, other: str) -> bool:
    """Return whether two JSON texts are the same DAG, regardless of the order of fields."""
    return one == other or _sorted(json.loads(one)) == _sorted(json.loads(other))


def _sorted(document: object) -> str:
    return json.dumps(document, sort_keys=True)


def _text_of(document: Mapping[str, object], problems: list[Problem]) -> str:
    """Return a DAG as JSON text that every store accepts: ASCII, without a literal NUL."""
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        problems.append(
            Problem("dag", None, "must be a JSON document, without NaN, and not nested too deeply")
        )
        return ""
    if len(text) > MAX_BYTES:
        reason = f"has {len(text)} bytes as text; at most {MAX_BYTES} are allowed"
        problems.append(Problem("dag", None, reason))
    problems += text_problems(document, "")
    return text


# --- triggers --------------------------------------------------------------------------------------


def _read_triggers(value: object, problems: list[Problem]) -> Iterator[Trigger]:
    """Yield the schedule triggers; other types of triggers are ignored."""
    if not isinstance(value, list):
        problems.append(Problem("triggers", value, "must be a list"))
        return
    if len(value) > MAX_TRIGGERS:
        problems.append(Problem("triggers", None, f"has {len(value)} entries; at most {MAX_TRIGGERS}"))
        return
    seen: set[str] = set()
    for number, entry in enumerate(value):
        path = f"triggers.{number}"
        if not isinstance(entry, Mapping):
            problems.append(Problem(path, entry, "must be an object with id and type"))
        elif not isinstance(entry.get("type"), str):
            problems.append(Problem(f"{path}.type", entry.get("type"), "must be a string"))
        elif entry["type"] == SCHEDULE_BASED:
            yield from _read_trigger(entry, path, seen, problems)


def _read_trigger(
    entry: Mapping[str, object], path: str, seen: set[str], problems: list[Problem]
) -> Iterator[Trigger]:
    name, schedule = entry.get("id"), entry.get("schedule")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        problems.append(Problem(f"{path}.id", name, "is missing" if name is None else NAME_RULE))
    elif name in seen:
        problems.append(Problem(f"{path}.id", name, "occurs twice"))
    elif not isinstance(schedule, Mapping):
        reason = "is missing" if schedule is None else "must be an object with cron_expr"
        problems.append(Problem(f"{path}.schedule", schedule, reason))
    else:
        seen.add(name)
        yield Trigger(name, f"{path}.schedule", schedule)


# --- nodes -----------------------------------------------------------------------------------------


def _check_nodes(value: object, problems: list[Problem]) -> None:
    """Check that nodes have unique ids and form no cycle."""
    if not isinstance(value, list):
        problems.append(Problem("nodes", value, "is missing" if value is None else "must be a list"))
        return
    if len(value) > MAX_NODES:
        problems.append(Problem("nodes", None, f"has {len(value)} entries; at most {MAX_NODES}"))
        return
    before = len(problems)
    places: dict[str, int] = {}
    for number, node in enumerate(value):
        _check_node(node, number, places, problems)
    if len(problems) > before:
        return
    needs = {node["id"]: list(node.get("dependsOn", [])) for node in value}
    for name, place in places.items():
        unknown = [needed for needed in dict.fromkeys(needs[name]) if needed not in places]
        path = f"nodes.{place}.dependsOn"
        problems += [Problem(path, needed, "no such node") for needed in unknown]
    cycle = [] if len(problems) > before else _cycle_in(needs)
    if cycle:
        path = f"nodes.{places[cycle[0]]}.dependsOn"
        problems.append(Problem(path, cycle[0], f"depends on itself: {' -> '.join([*cycle, cycle[0]])}"))


def _check_node(node: object, number: int, places: dict[str, int], problems: list[Problem]) -> None:
    path = f"nodes.{number}"
    if not isinstance(node, Mapping):
        problems.append(Problem(path, node, "must be an object with id, type and dependsOn"))
        return
    for field in ("id", "type"):
        text = node.get(field)
        if not isinstance(text, str) or not text.strip():
            reason = "is missing" if node.get(field) is None else "must be a non-empty string"
            problems.append(Problem(f"{path}.{field}", node.get(field), reason))
    needs = node.get("dependsOn", [])
    if not isinstance(needs, list) or not all(isinstance(name, str) for name in needs):
        problems.append(Problem(f"{path}.dependsOn", needs, "must be a list of the ids of nodes"))
    name = node.get("id")
    if isinstance(name, str) and places.setdefault(name, number) != number:
        problems.append(Problem(f"{path}.id", name, f"nodes.{places[name]} has the same id"))


def _cycle_in(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a dependency cycle, or none; nodes without open dependencies are removed first."""
    left = {name: set(wanted) for name, wanted in needs.items()}
    users: dict[str, list[str]] = {}
    for name, wanted in left.items():
        for needed in wanted:
            users.setdefault(needed, []).append(name)
    ready = [name for name, wanted in left.items() if not wanted]
    while ready:
        done = ready.pop()
        del left[done]
        for user in users.get(done, ()):
            left[user].discard(done)
            if not left[user]:
                ready.append(user)
    return _walk(left) if left else []


def _walk(left: Mapping[str, set[str]]) -> list[str]:
    """Return one cycle among nodes that each depend on another: follow them until one repeats."""
    seen: dict[str, int] = {}
    name = min(left)
    while name not in seen:
        seen[name] = len(seen)
        name = min(left[name])
    return list(seen)[seen[name] :]
