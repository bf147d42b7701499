"""Limits for tenants: how many schedules, how close their times, and how their workflows are called."""

from collections.abc import AsyncIterator

import pytest

from kron.core.workflow import InvalidWorkflowError
from kron.fronts.service.guard.caller import Caller, Right, TooManyError, calling, slug_of
from kron.fronts.service.refusal import InvalidScheduleError
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.request import Rules
from kron.fronts.service.settings import read_settings
from kron.launchers.workflow import UnknownWorkflowError, find_workflow
from kron.ports import AuditFilter, JobFilter
from kron.stores.sqlite import SqliteStore
from kron.stores.sqlite_workflow import SqliteWorkflows
from kron.testing import SimulatedClock
from tests.service.guard import forge

RIGHTS = frozenset({Right.READ, Right.WRITE, Right.RUN})
ANN, BOB = Caller("ann", RIGHTS, ("ann",)), Caller("bob@example.com", RIGHTS, ("bob@example.com",))
NODES: dict[str, object] = {"nodes": [{"id": "one", "type": "task", "dependsOn": []}]}
DAILY = {"id": "daily", "type": "schedule_based", "schedule": {"cron_expr": "0 9 * * *"}}
DAG = {**NODES, "triggers": [DAILY]}


@pytest.fixture
async def registrar() -> AsyncIterator[Registrar]:
    store, workflows = SqliteStore(), SqliteWorkflows(":memory:")
    rules = Rules(max_schedules=3, min_interval_s=300)
    yield Registrar(store, SimulatedClock(forge.NOW), rules=rules, workflows=workflows)
    await workflows.close()
    await store.close()


def a_schedule(name: str, cron_expr: str = "0 9 * * *") -> dict[str, object]:
    launcher = {"kind": "callback"}
    return {"schedule_id": name, "cron_expr": cron_expr, "timezone": "UTC", "launcher": launcher}


async def test_a_user_has_at_most_so_many_schedules(registrar: Registrar) -> None:
    with calling(ANN):
        for number in range(3):
            await registrar.upsert_schedule(a_schedule(f"ann/{number}"))
        await registrar.upsert_schedule(a_schedule("ann/2", "0 10 * * *"))
        with pytest.raises(TooManyError, match='"ann" has 3 schedules'):
            await registrar.upsert_schedule(a_schedule("ann/3"))
        await registrar.delete_schedule("ann/0")
        await registrar.upsert_schedule(a_schedule("ann/3"))
    with calling(BOB):
        await registrar.upsert_schedule(a_schedule("bob@example.com/0"))
        assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 1
    assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 4


async def test_a_batch_that_would_be_too_many_is_not_stored_at_all(registrar: Registrar) -> None:
    lines = [(number, a_schedule(f"ann/{number}")) for number in range(4)]
    with calling(ANN), pytest.raises(TooManyError):
        await registrar.upsert_schedules(lines)
    assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 0


@pytest.mark.parametrize(
    ("cron_expr", "gap"), [("* * * * *", 60), ("*/2 * * * *", 120), ("*/7 * * * *", 240)]
)
async def test_times_too_close_are_refused(cron_expr: str, gap: int, registrar: Registrar) -> None:
    with pytest.raises(InvalidScheduleError, match=f"again after {gap} s"):
        await registrar.upsert_schedule(a_schedule("x", cron_expr))
    await registrar.upsert_schedule(a_schedule("x", "*/5 * * * *"))


async def test_a_tenants_workflows_begin_with_their_name_and_are_theirs_alone(registrar: Registrar) -> None:
    with calling(ANN):
        with pytest.raises(InvalidWorkflowError, match=r'must begin with "ann\."'):
            await registrar.deploy_workflow("report", 1, DAG, user_id="ann")
        with pytest.raises(InvalidWorkflowError, match="must be one of yours"):
            await registrar.deploy_workflow("ann.report", 1, DAG, user_id="bob@example.com")
        deployed = await registrar.deploy_workflow("ann.report", 1, DAG, user_id="ann")
        assert [one["schedule_id"] for one in _upserted(deployed)] == ["ann/ann.report/daily"]
        assert [one.version for one in await registrar.workflow_versions("ann.report")] == [1]
    with calling(BOB):
        assert await registrar.workflow_versions("ann.report") == []
        with pytest.raises(UnknownWorkflowError):
            await find_workflow(registrar.workflows, "ann.report", 1)
        with pytest.raises(InvalidWorkflowError, match="must begin with"):
            await registrar.deploy_workflow("ann.report", 1, DAG, user_id="bob@example.com")
        await registrar.deploy_workflow(f"{slug_of('bob@example.com')}x", 1, DAG, user_id="bob@example.com")
        mine = await registrar.list_schedules(JobFilter())
        assert [one["schedule_id"] for one in mine] == ["bob@example.com/bob_40_example_2e_com.x/daily"]


async def test_deploying_a_newer_version_retires_what_it_no_longer_has(registrar: Registrar) -> None:
    with calling(ANN, "request-1"):
        await registrar.deploy_workflow("ann.report", 1, DAG, user_id="ann")
        answer = await registrar.deploy_workflow("ann.report", 2, {**NODES, "triggers": []}, user_id="ann")
        assert answer["retired"] == ["ann/ann.report/daily"]
        audits = await registrar.store.audits(NAMESPACE, AuditFilter())
    actions = [(one.record.action, one.record.identity) for one in reversed(audits)]
    assert actions == [
        ("deploy", "ann.report"),
        ("create", "ann/ann.report/daily"),
        ("deploy", "ann.report"),
        ("delete", "ann/ann.report/daily"),
    ]


def _upserted(answer: dict[str, object]) -> list[dict[str, object]]:
    upserted = answer["upserted"]
    assert isinstance(upserted, list)
    return upserted


def test_the_limits_are_settings() -> None:
    environment = {"KRON_MAX_SCHEDULES": "7", "KRON_MIN_INTERVAL_S": "60"}
    rules = read_settings(environment, {}).settings.rules
    assert (rules.max_schedules, rules.min_interval_s) == (7, 60)
