"""The run orchestrator refuses what is wrong with a code, and starts, catches up and resumes by run key."""

import pytest

from kron.app.dag import orchestrator
from kron.core.dag.contract import DagError
from kron.dag import CatchupTriggerRequest, ScheduledTriggerRequest, SchedulerTriggerService
from tests.app.dag.house import DAY, House, node

HOUR = 3_600_000


async def refusal(work) -> DagError:  # type: ignore[no-untyped-def]
    with pytest.raises(DagError) as caught:
        await work
    return caught.value


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "nodes: has no node"),
        ([node("a", "b")], 'nodes.0.dependsOn "b": no such node'),
        ([node("a", "b"), node("b", "a")], "depends on itself: a -> b -> a"),
        ([node("a", "a")], "depends on itself: a -> a"),
        ([{"id": "a", "type": "procces", "command": "x"}], "unknown kind"),
        ([{"id": "a", "type": "process"}], "nodes.0.command: is missing"),
        ([{"id": "a", "type": "workflow"}], "cannot execute a task"),
        ([{"id": "a", "type": "http", "url": "http://x.test", "reports": True}], "nodes.0.reports"),
        ([{"id": "a", "type": "python"}], "nodes.0.function: is missing"),
        ([node("a", retries=True)], "nodes.0.retries"),
        ([node("a", trigger_rule="some")], "nodes.0.trigger_rule"),
        ([node("a", timeout="soon")], "nodes.0.timeout"),
    ],
)
async def test_an_invalid_definition_is_refused_with_every_problem(
    house: House, nodes: list[dict[str, object]], words: str
) -> None:
    error = await refusal(house.put(*nodes))
    assert (error.code, error.category) == ("DAG_VALIDATION_INVALID_DEFINITION", "validation")
    assert words in str(error)
    assert await house.workflows.versions("etl") == []


async def test_the_latest_published_version_runs_unless_another_is_named(house: House) -> None:
    put = house.orchestrator.put_version
    await put("etl", 0, {"nodes": [node("a")]})
    await put("etl", 3, {"nodes": [node("b")]})
    await put("etl", 4, {"nodes": [node("c")], "draft": True})
    start = house.orchestrator.start_run
    assert (await start(dag_id="etl", logical_date=DAY)).version == 3
    assert (await start(dag_id="etl", logical_date="2026-06-02", version=0)).version == 0
    draft = await refusal(start(dag_id="etl", logical_date="2026-06-03", version=4))
    assert (draft.code, draft.category) == ("DAG_STATE_NOT_PUBLISHED", "state")
    absent = await refusal(start(dag_id="etl", logical_date="2026-06-03", version=9))
    assert (absent.code, absent.category) == ("DAG_DEFINITION_NOT_FOUND", "not_found")
    none = await refusal(start(dag_id="none", logical_date="2026-06-03"))
    assert none.code == "DAG_DEFINITION_NOT_FOUND"


async def test_a_draft_changes_until_it_is_published_and_a_published_version_never(house: House) -> None:
    put = house.orchestrator.put_version
    await put("etl", 1, {"nodes": [node("a")], "draft": True})
    await put("etl", 1, {"nodes": [node("b")], "draft": True})
    await put("etl", 1, {"nodes": [node("c")]})
    await put("etl", 1, {"nodes": [node("c")]})
    error = await refusal(put("etl", 1, {"nodes": [node("d")]}))
    assert (error.code, error.category) == ("DAG_STATE_VERSION_PUBLISHED", "state")
    run_id = await house.start()
    assert await house.statuses(run_id) == {"c": "queued"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"logical_date": "soon"}, "INVALID_LOGICAL_DATE"),
        ({"version": True}, "INVALID_VERSION"),
        ({"version": -1}, "INVALID_VERSION"),
        ({"input": [1]}, "INVALID_INPUT"),
        ({"input": {"a": float("nan")}}, "INVALID_INPUT"),
        ({"input": {"a": "x" * 70_000}}, "INVALID_INPUT"),
        ({"rerun_key": ""}, "INVALID_RERUN_KEY"),
        ({"rerun_key": "a:b"}, "INVALID_RERUN_KEY"),
        ({"trigger": "a b"}, "INVALID_TRIGGER"),
        ({"dag_id": "../x"}, "INVALID_DAG_ID"),
    ],
)
async def test_a_wrong_request_is_refused_with_the_code_of_its_field(
    house: House, fields: dict[str, object], code: str
) -> None:
    await house.put(node("a"))
    request = {"dag_id": "etl", "logical_date": DAY, **fields}
    error = await refusal(house.orchestrator.start_run(**request))  # type: ignore[arg-type]
    assert error.code == f"DAG_VALIDATION_{code}"
    assert await house.store.runs() == []


async def test_a_catchup_of_24_slots_of_which_3_ran_starts_21(house: House) -> None:
    await house.put(node("a"))
    service = SchedulerTriggerService(house.orchestrator)
    for hour in (0, 7, 23):
        day = f"2026-06-01T{hour:02}:00:00Z"
        await service.trigger_scheduled_run(ScheduledTriggerRequest(dag_id="etl", logical_date=day))
    request = CatchupTriggerRequest(
        dag_id="etl",
        range_start_logical_date="2026-06-01",
        range_end_logical_date="2026-06-01T23:00:00Z",
        slot_interval_ms=HOUR,
        max_slots=24,
    )
    result = await service.trigger_catchup(request)
    assert result.requested_slot_count == len(result.started_runs) == 24
    assert sum(run.created for run in result.started_runs) == 21
    again = await service.trigger_catchup(request)
    assert sum(run.created for run in again.started_runs) == 0
    assert len(await house.store.runs()) == 24
    assert {run.trigger for run in await house.store.runs()} == {"scheduled"}


async def test_the_error_of_a_missing_definition_passes_through_a_catchup(house: House) -> None:
    request = CatchupTriggerRequest(
        dag_id="none",
        range_start_logical_date="2026-06-01",
        range_end_logical_date="2026-06-02",
        slot_interval_ms=HOUR,
        max_slots=25,
    )
    error = await refusal(SchedulerTriggerService(house.orchestrator).trigger_catchup(request))
    assert (error.code, error.started_runs) == ("DAG_DEFINITION_NOT_FOUND", ())


async def test_a_task_that_executes_cannot_be_cleared(house: House) -> None:
    from kron.dag_ports import DagClaimRequest

    await house.put(node("a"), node("b", "a"))
    run_id = await house.start()
    await house.store.claim(DagClaimRequest("w", 1 << 50, 1 << 51, 10))
    error = await refusal(house.orchestrator.clear(run_id, ["a"]))
    assert (error.code, error.category) == ("DAG_STATE_TASK_RUNNING", "state")
    error = await refusal(house.orchestrator.clear(run_id, ["z"]))
    assert error.code == "DAG_VALIDATION_UNKNOWN_TASK"


async def test_a_user_has_a_limit_of_open_runs_that_counts_their_tasks(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orchestrator, "MAX_OPEN_TASKS", 6)
    house.orchestrator = orchestrator.RunOrchestrator(house.store, house.workflows, house.clock, max_open=4)
    await house.put(node("a"), node("b"), node("c"), dag_id="large")
    await house.put(node("a"), dag_id="small")
    days = [f"2026-06-{day:02}" for day in range(1, 7)]
    first, _ = [await house.start("large", day) for day in days[:2]]
    error = await refusal(house.start("large", days[2]))
    assert (error.code, error.category) == ("DAG_LIMIT_OPEN_RUNS", "limit")
    assert "has 2 open runs of DAGs; with 3 tasks each, at most 2 may be open (max_open_runs)" in str(error)
    # One that exists is returned.
    assert await house.start("large", days[0]) == first
    for day in days[:2]:
        await house.start("small", day)
    assert (await refusal(house.start("small", days[2]))).category == "limit"
    await house.orchestrator.cancel(first)
    await house.start("small", days[2])
