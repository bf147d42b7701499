"""Runs of random DAGs with random ends always finish, in states that the tables allow."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.dag.contract import DagError
from kron.core.dag.definition import definition_of, read_definition
from kron.core.dag.plan import (
    TaskEnd,
    cancelled,
    cleared,
    ended,
    ended_together,
    leased_to,
    new_tasks,
    retried,
    run_id_of,
    run_key_of,
)
from kron.core.dag.record import (
    RUN_ENDS,
    RUN_MOVES,
    TASK_ENDS,
    TASK_MOVES,
    AttemptOutcome,
    DagChange,
    DagRun,
    DagRunStatus,
    DagState,
    DagTaskStatus,
    LeasedTask,
)

RULES = ("all_success", "all_done", "one_failed", "none_failed")
GOOD, BAD = AttemptOutcome.SUCCESS, AttemptOutcome.FAILED


def document(draw: st.DrawFn) -> dict[str, object]:
    nodes = []
    for number in range(draw(st.integers(1, 7))):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        rule = draw(st.sampled_from(RULES)) if needs else "all_success"
        nodes.append(
            {
                "id": f"t{number}", "type": "python", "function": "f", "retries": draw(st.integers(0, 2)),
                "dependsOn": [f"t{needed}" for needed in sorted(needs)], "trigger_rule": rule,
            }
        )  # fmt: skip
    return {"nodes": nodes}


dags = st.composite(document)()


def state_of(dag: dict[str, object]) -> DagState:
    key = run_key_of("d", 0, None)
    run = DagRun(
        run_id_of(key), key, "d", 1, "manual", 0, None, "u", "x", json.dumps(dag), "{}",
        DagRunStatus.QUEUED, 0, 100, 100,
    )  # fmt: skip
    return DagState(run, {task.task_id: task for task in new_tasks(run, 0)})


def after(state: DagState, change: DagChange) -> DagState:
    assert change.revision == state.run.revision
    for task in change.tasks:
        before = state.tasks[task.task_id].status
        assert task.status is before or task.status in TASK_MOVES[before] or before in TASK_ENDS
    run = change.run._replace(revision=change.revision + 1)
    return DagState(run, {**state.tasks, **{task.task_id: task for task in change.tasks}})


def claim_one(state: DagState, name: str, now: int) -> DagState:
    claim, attempt = leased_to("w", LeasedTask(state.run, state.tasks[name]), now, now + 10)
    assert attempt is not None
    assert attempt.attempt == claim.task.attempt
    revision = state.run.revision + 1
    return DagState(claim.run._replace(revision=revision), {**state.tasks, name: claim.task})


def queued(state: DagState) -> list[str]:
    return [name for name, task in state.tasks.items() if task.status is DagTaskStatus.QUEUED]


def played(state: DagState, ends: Iterator[AttemptOutcome]) -> DagState:
    now = 0
    for now in range(1, 1_000):
        names = queued(state)
        if not names:
            break
        state = claim_one(state, names[0], now)
        change = ended(state, state.tasks[names[0]], TaskEnd(next(ends)), now)
        assert change is not None
        state = after(state, change)
    return state


def forever(data: st.DataObject) -> Iterator[AttemptOutcome]:
    while True:
        yield data.draw(st.sampled_from([GOOD, GOOD, BAD, AttemptOutcome.LOST, AttemptOutcome.TIMEOUT]))


@given(dags, st.data())
def test_every_run_ends_and_every_task_has_an_end_that_its_dependencies_explain(
    dag: dict[str, object], data: st.DataObject
) -> None:
    state = played(state_of(dag), forever(data))
    assert state.run.status in RUN_ENDS
    statuses = {name: task.status for name, task in state.tasks.items()}
    assert set(statuses.values()) <= TASK_ENDS
    has_failed = bool({DagTaskStatus.FAILED, DagTaskStatus.UPSTREAM_FAILED} & set(statuses.values()))
    assert (state.run.status is DagRunStatus.FAILED) == has_failed
    for name, spec in read_definition("d", dag).tasks.items():
        task = state.tasks[name]
        above = [statuses[needed] for needed in spec.depends_on]
        assert task.attempt <= spec.policy.retries + 1
        if spec.policy.trigger_rule == "all_success":
            assert (task.attempt > 0) == all(each is DagTaskStatus.SUCCESS for each in above)
        elif spec.policy.trigger_rule == "all_done":
            assert task.attempt > 0
        elif spec.policy.trigger_rule == "one_failed":
            failed = [each for each in above if each in ("failed", "upstream_failed")]
            assert (task.attempt > 0) == bool(failed)


@given(dags, st.data())
def test_a_retry_after_a_failure_runs_only_what_failed_and_what_follows_it(
    dag: dict[str, object], data: st.DataObject
) -> None:
    state = played(state_of(dag), forever(data))
    change = retried(state, 5_000)
    if change is None:
        assert state.run.status is DagRunStatus.SUCCESS
        return
    kept = {name for name in state.tasks if name not in {task.task_id for task in change.tasks}}
    again = played(after(state, change), iter(lambda: GOOD, None))
    assert {name: again.tasks[name] for name in kept} == {name: state.tasks[name] for name in kept}
    assert again.run.status is DagRunStatus.SUCCESS


@given(dags, st.data(), st.integers(0, 5))
def test_a_cancelled_run_ends_when_its_executing_tasks_have_ended(
    dag: dict[str, object], data: st.DataObject, steps: int
) -> None:
    state = state_of(dag)
    for now in range(steps):
        if names := queued(state):
            state = claim_one(state, names[-1], now)
    change = cancelled(state, 100)
    assert change is not None
    state = after(state, change)
    assert queued(state) == []
    for name, task in list(state.tasks.items()):
        if task.status is DagTaskStatus.RUNNING:
            end = ended(state, task, TaskEnd(data.draw(st.sampled_from([BAD, GOOD]))), 101)
            assert end is not None
            state = after(state, end)
            assert state.tasks[name].status in TASK_ENDS
    assert state.run.status is DagRunStatus.CANCELLED
    assert cancelled(state, 102) is None


@given(dags, st.data())
def test_clearing_a_task_opens_it_and_all_behind_it(dag: dict[str, object], data: st.DataObject) -> None:
    state = played(state_of(dag), forever(data))
    name = data.draw(st.sampled_from(list(state.tasks)))
    change = cleared(state, [name], 9_000)
    opened = {task.task_id for task in change.tasks}
    assert name in opened
    definition = read_definition("d", dag)
    for each in opened:
        assert set(definition.dependants[each]) <= opened
    again = played(after(state, change), iter(lambda: GOOD, None))
    assert again.run.status in RUN_ENDS


def test_retries_wait_longer_each_time_up_to_the_longest_delay() -> None:
    dag = {
        "nodes": [
            {
                "id": "a",
                "type": "python",
                "function": "f",
                "retries": 9,
                "retry_delay": "1s",
                "max_retry_delay": "5s",
            }
        ]
    }
    policy = read_definition("d", dag).tasks["a"].policy
    assert [policy.delay_ms(failures) for failures in range(1, 6)] == [1_000, 2_000, 4_000, 5_000, 5_000]
    assert policy.delay_ms(1_000) == 5_000


def test_a_move_that_the_table_does_not_have_is_refused() -> None:
    state = state_of({"nodes": [{"id": "a", "type": "python", "function": "f"}]})
    with pytest.raises(DagError) as caught:
        state.tasks["a"].moved(DagTaskStatus.SUCCESS)
    assert (caught.value.code, caught.value.category) == ("DAG_STATE_INVALID_TRANSITION", "state")
    with pytest.raises(DagError):
        state.run.moved(DagRunStatus.SUCCESS)
    assert set(RUN_MOVES) == set(DagRunStatus)
    assert set(TASK_MOVES) == set(DagTaskStatus)


def test_long_definitions_that_are_kept_have_a_bounded_length() -> None:
    def text(number: int) -> str:
        nodes = [{"id": f"t{number}", "type": "log", "dependsOn": [], "message": "x" * 500_000}]
        return json.dumps({"nodes": nodes})

    first = definition_of(text(0), "d")
    assert definition_of(text(0), "d") is first
    for number in range(1, 12):
        definition_of(text(number), "d")
    assert definition_of(text(0), "d") is not first


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ('["b","c"]', None),
        ('"b"', None),
        ("null", None),
        ('["b","c","b"]', "its result names a task twice; name each once"),
        ('["b",7]', "its result names 7, which is not a downstream task"),
        ('[["b"]]', 'its result names ["b"], which is not a downstream task'),
    ],
)
def test_a_branch_names_each_task_after_it_once(result: str, error: str | None) -> None:
    nodes = [
        {"id": "a", "type": "python", "function": "f", "branch": True},
        *({"id": name, "type": "python", "function": "f", "dependsOn": ["a"]} for name in "bc"),
    ]
    state = state_of({"nodes": nodes})
    claim, _ = leased_to("w", LeasedTask(state.run, state.tasks["a"]), 0, 1)
    state = state._replace(run=claim.run, tasks={**state.tasks, "a": claim.task})
    change = ended(state, claim.task, TaskEnd(GOOD, result=result), 1)
    assert change is not None
    assert change.attempts[0].error == error


def test_tasks_after_several_that_ended_are_decided_once_for_all() -> None:
    nodes = [
        *({"id": name, "type": "python", "function": "f"} for name in "ab"),
        {"id": "c", "type": "python", "function": "f", "dependsOn": ["a", "b"]},
    ]
    state = state_of({"nodes": nodes})
    claims = [leased_to("w", LeasedTask(state.run, state.tasks[name]), 0, 1)[0] for name in "ab"]
    state = state._replace(
        run=claims[0].run, tasks={**state.tasks, **{each.task.task_id: each.task for each in claims}}
    )
    change = ended_together(state, [(claims[0].task, TaskEnd(GOOD)), (claims[1].task, TaskEnd(BAD))], 1)
    assert change is not None
    assert {task.task_id: str(task.status) for task in change.tasks} == {
        "a": "success",
        "b": "failed",
        "c": "upstream_failed",
    }
