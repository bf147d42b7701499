"""Workflows as they are read: every problem has its path, and an order exists or a circle is shown."""

import json
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.workflow import (
    MAX_BYTES,
    MAX_NODES,
    MAX_TRIGGERS,
    InvalidWorkflowError,
    read_workflow,
    same_dag,
)

NIGHTLY = {"id": "nightly", "type": "schedule_based", "schedule": {"cron_expr": "30 2 * * *"}}
FETCH = {"id": "fetch", "type": "http", "url": "https://example.com"}
REPORT = {"id": "report", "type": "mail", "dependsOn": ["fetch"]}


def nodes(**needs: list[str]) -> list[object]:
    return [{"id": name, "type": "t", "dependsOn": wanted} for name, wanted in needs.items()]


def test_a_workflow_has_its_text_and_its_schedules() -> None:
    document = {"triggers": [NIGHTLY], "nodes": [FETCH, REPORT], "owner": {"any": [1, None, "ü"]}}
    found = read_workflow("report", document)
    assert json.loads(found.dag) == document
    assert found.dag.isascii()
    assert [(trigger.name, trigger.path) for trigger in found.triggers] == [
        ("nightly", "triggers.0.schedule")
    ]


def test_triggers_that_are_no_schedules_are_ignored_whatever_they_say() -> None:
    others: list[object] = [
        {"type": "webhook", "url": 7},
        {"id": "nightly", "type": "event", "schedule": "nothing of ours"},
        {"id": None, "type": "webhook"},
    ]
    found = read_workflow("report", {"triggers": [*others, NIGHTLY], "nodes": []})
    assert [trigger.path for trigger in found.triggers] == ["triggers.3.schedule"]


def trigger(**fields: object) -> dict[str, object]:
    return {"triggers": [{**NIGHTLY, **fields}], "nodes": []}


WRONG = [
    pytest.param([], ["dag"], "must be an object", id="no object"),
    pytest.param({}, ["nodes"], "is missing", id="no nodes"),
    pytest.param({"nodes": {}}, ["nodes"], "must be a list", id="nodes that are no list"),
    pytest.param({"nodes": [7]}, ["nodes.0"], "must be an object", id="a node that is no object"),
    pytest.param({"nodes": [{}]}, ["nodes.0.id", "nodes.0.type"], "is missing", id="an empty node"),
    pytest.param(
        {"nodes": [{"id": " ", "type": 7}]},
        ["nodes.0.id", "nodes.0.type"],
        "a non-empty string",
        id="no texts",
    ),
    pytest.param(
        {"nodes": [FETCH, REPORT, FETCH]}, ["nodes.2.id"], "nodes.0 has the same id", id="two of one name"
    ),
    pytest.param({"nodes": nodes(a=["b", "b"])}, ["nodes.0.dependsOn"], "no such node", id="unknown node"),
    pytest.param(
        {"nodes": [{"id": "a", "type": "t", "dependsOn": "b"}]}, ["nodes.0.dependsOn"], "a list", id="no list"
    ),
    pytest.param(
        {"nodes": [{"id": "a", "type": "t", "dependsOn": [1]}]}, ["nodes.0.dependsOn"], "a list", id="numbers"
    ),
    pytest.param({"nodes": nodes(a=["a"])}, ["nodes.0.dependsOn"], "a -> a", id="needs itself"),
    pytest.param(
        {"nodes": nodes(z=["c"], a=[], b=["a", "c"], c=["d"], d=["b"])},
        ["nodes.2.dependsOn"],
        "b -> c -> d -> b",
        id="a circle of three",
    ),
    pytest.param(
        {"nodes": nodes(**{f"n{i}": [] for i in range(MAX_NODES + 1)})}, ["nodes"], "at most", id="many"
    ),
    pytest.param(
        {"triggers": {}, "nodes": []}, ["triggers"], "must be a list", id="triggers that are no list"
    ),
    pytest.param({"triggers": [1], "nodes": []}, ["triggers.0"], "must be an object", id="no trigger"),
    pytest.param({"triggers": [{}], "nodes": []}, ["triggers.0.type"], "must be a string", id="no type"),
    pytest.param(trigger(id=None), ["triggers.0.id"], "is missing", id="a trigger without a name"),
    pytest.param(trigger(id="../x"), ["triggers.0.id"], "must be 1 to 128", id="a name with a slash"),
    pytest.param(trigger(id="x" * 129), ["triggers.0.id"], "must be 1 to 128", id="a long name"),
    pytest.param(trigger(schedule=None), ["triggers.0.schedule"], "is missing", id="no schedule"),
    pytest.param(
        trigger(schedule="* * * * *"), ["triggers.0.schedule"], "an object", id="a schedule as text"
    ),
    pytest.param({"triggers": [NIGHTLY] * 2, "nodes": []}, ["triggers.1.id"], "twice", id="two of one name "),
    pytest.param(
        {"triggers": [NIGHTLY] * (MAX_TRIGGERS + 1), "nodes": []}, ["triggers"], "at most", id="many triggers"
    ),
    pytest.param({"nodes": [], "x": float("nan")}, ["dag"], "without NaN", id="not a number"),
    pytest.param({"nodes": [], "x": "x" * MAX_BYTES}, ["dag"], "bytes as text", id="too large"),
    pytest.param({"nodes": {}, "triggers": {}}, ["triggers", "nodes"], "a list", id="all at once"),
]


@pytest.mark.parametrize(("document", "paths", "reason"), WRONG)
def test_what_is_wrong_is_said_with_its_path(document: object, paths: list[str], reason: str) -> None:
    with pytest.raises(InvalidWorkflowError) as refused:
        read_workflow("report", document)
    assert [problem.path for problem in refused.value.problems] == paths
    assert reason in str(refused.value)
    assert len(refused.value.lines()) == len(paths)


def test_a_document_that_is_nested_too_deeply_is_refused() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidWorkflowError, match="nested too deeply"):
        read_workflow("report", {"nodes": [], "deep": deep})


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", ".a", "-a", "ä", "a b", "a\0", "a\n", "x" * 129]
)
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidWorkflowError) as refused:
        read_workflow(name, {"nodes": []})
    assert [problem.path for problem in refused.value.problems] == ["workflow_id"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ],
)
def test_two_texts_are_the_same_dag_whatever_the_order_of_their_fields(
    one: object, other: object, same: bool
) -> None:
    assert same_dag(json.dumps(one), json.dumps(other)) is same


@given(st.dictionaries(st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefg"), max_size=3)))
def test_a_workflow_is_accepted_if_and_only_if_its_nodes_have_an_order(needs: dict[str, list[str]]) -> None:
    known = {name: [wanted for wanted in some if wanted in needs] for name, some in needs.items()}
    try:
        list(TopologicalSorter(known).static_order())
    except CycleError:
        with pytest.raises(InvalidWorkflowError, match="depends on itself") as refused:
            read_workflow("w", {"nodes": nodes(**known)})
        (problem,) = refused.value.problems
        circle = problem.reason.removeprefix("depends on itself: ").split(" -> ")
        assert circle[0] == circle[-1]
        assert all(after in known[name] for name, after in pairwise(circle))
    else:
        read_workflow("w", {"nodes": nodes(**known)})
