"""Limits for tenants: how many schedules, how close their times, and how their workflows are called."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest

from kron.app.backfill import PeriodRange
from kron.app.budget import CpuBudget, TooCostlyError, inline
from kron.core.errors import ConflictError
from kron.core.plan.query import AuditFilter, JobFilter
from kron.core.plan.report import Launch
from kron.core.workflow import InvalidWorkflowError
from kron.fronts.service.auth.middleware import (
    EXECUTOR,
    MAX_OF_RUN,
    MAX_OF_RUNS,
    Authenticator,
    Need,
    RateLimit,
    RequestLimit,
)
from kron.fronts.service.auth.principal import Caller, LimitExceededError, TokenScope, acting_as
from kron.fronts.service.bulk import upsert_lines
from kron.fronts.service.client import LocalClient
from kron.fronts.service.definitions import ApplyRequest, apply_jobs, export_definitions
from kron.fronts.service.errors import InvalidLinesError, InvalidScheduleError
from kron.fronts.service.launchers import launchers_of, workflow_launcher
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.run_launcher import WorkflowStart, launch_of
from kron.fronts.service.runs import backfill_schedule, run_now
from kron.fronts.service.schedule_spec import Rules
from kron.fronts.service.settings import Settings, read_settings
from kron.launchers.callback import CallbackLauncher
from kron.launchers.process.launcher import ProcessLauncher
from kron.launchers.process.spec import ProcessSettings
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import InvalidLauncherError
from kron.launchers.workflow import UnknownWorkflowError, find_workflow
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows
from kron.testing import SimulatedClock
from tests.service.auth import forge
from tests.service.registrar_rig import json_lines

RIGHTS = frozenset({TokenScope.READ, TokenScope.WRITE, TokenScope.RUN})
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
    launcher = {"kind": "log"}
    return {"schedule_id": name, "cron_expr": cron_expr, "timezone": "UTC", "launcher": launcher}


async def test_a_user_has_a_quota_of_schedules(registrar: Registrar) -> None:
    with acting_as(ANN):
        for number in range(3):
            await registrar.upsert_schedule(a_schedule(f"ann/{number}"))
        await registrar.upsert_schedule(a_schedule("ann/2", "0 10 * * *"))
        with pytest.raises(LimitExceededError, match='"ann" has 3 schedules'):
            await registrar.upsert_schedule(a_schedule("ann/3"))
        await registrar.delete_schedule("ann/0")
        await registrar.upsert_schedule(a_schedule("ann/3"))
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob@example.com/0"))
        assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 1
    assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 4


async def test_a_dry_run_is_refused_where_the_write_is(registrar: Registrar) -> None:
    with acting_as(ANN):
        for number in range(3):
            assert await registrar.upsert_schedule(a_schedule(f"ann/{number}"), dry_run=True)
        assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 0
        for number in range(3):
            await registrar.upsert_schedule(a_schedule(f"ann/{number}"))
        for name, owner, error in (
            ("ann/3", "ann", LimitExceededError),
            ("bob@example.com/0", "ann", InvalidScheduleError),
            ("bob@example.com/0", "bob@example.com", InvalidScheduleError),
        ):
            definition = {
                "identity": name,
                "schedule": "@daily",
                "launcher": {"kind": "log", "user_id": owner},
            }
            for dry_run in (True, False):
                document = {**a_schedule(name), "user_id": owner}
                with pytest.raises(error):
                    await registrar.upsert_schedule(document, dry_run=dry_run)
                with pytest.raises(error):
                    await apply_jobs(registrar, ApplyRequest([definition], dry_run=dry_run), compute=inline)
    with acting_as(BOB):
        assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 0


async def test_a_user_has_a_quota_of_open_runs_that_may_be_requested(registrar: Registrar) -> None:
    registrar.store.max_open = 3
    with acting_as(ANN):
        for number in range(2):
            await registrar.upsert_schedule(a_schedule(f"ann/{number}"))
            await run_now(registrar, f"ann/{number}", "first")
        await run_now(registrar, "ann/0", "second")
        said = '"ann" has 3 open runs, and 1 more would exceed the quota of 3 \\(max_open_runs\\)'
        with pytest.raises(LimitExceededError, match=said):
            await run_now(registrar, "ann/1", "third")
        # The same request again adds none.
        await run_now(registrar, "ann/0", "second")
        await registrar.pause_schedule("ann/0", True)
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob@example.com/0"))
        await run_now(registrar, "bob@example.com/0", "first")
    # An admin is not limited.
    await run_now(registrar, "ann/1", "third")


async def test_a_backfill_counts_against_the_quota_of_open_runs(registrar: Registrar) -> None:
    registrar.store.max_open = 3
    with acting_as(ANN):
        await registrar.upsert_schedule(a_schedule("ann/0"))
        end = int(forge.NOW.timestamp())
        week = PeriodRange(start=end - 7 * 86_400, end=end)
        with pytest.raises(LimitExceededError, match='"ann" has 0 open runs, and 7 more would exceed'):
            await backfill_schedule(registrar, "ann/0", week, request_id="x")
        days = PeriodRange(start=end - 3 * 86_400, end=end)
        assert (await backfill_schedule(registrar, "ann/0", days, request_id="x"))["count"] == 3


async def test_a_page_of_an_export_ends_when_its_processor_time_is_spent(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"ann/{number}" for number in range(3)]
    for name in names:
        await registrar.upsert_schedule(a_schedule(name))
    shown, has_more = await export_definitions(registrar, JobFilter(), limit=2)
    assert ([each["definition"]["identity"] for each in shown], has_more) == (names[:2], True)
    shown, has_more = await export_definitions(registrar, JobFilter(), limit=3)
    assert ([each["definition"]["identity"] for each in shown], has_more) == (names, False)
    monkeypatch.setattr("kron.fronts.service.definitions.CpuBudget", partial(CpuBudget, 0.0))
    for name, after in zip(names, ("", *names), strict=False):
        shown, has_more = await export_definitions(registrar, JobFilter(), after=after, limit=3)
        assert ([each["definition"]["identity"] for each in shown], has_more) == ([name], name != names[-1])


async def test_a_preview_ends_when_its_processor_time_is_spent(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LocalClient(registrar, Settings())
    daily = {"cron_expr": "0 9 * * *", "timezone": "UTC"}
    assert len((await client.preview(daily, 3))["times"]) == 3
    monkeypatch.setattr("kron.fronts.service.client.CpuBudget", partial(CpuBudget, 0.0))
    with pytest.raises(TooCostlyError, match="more than 0 s of processor time"):
        await client.preview(daily, 3)


async def test_restored_and_transferred_schedules_count_against_the_quota(
    registrar: Registrar,
) -> None:
    with acting_as(Caller("ann", RIGHTS, ("ann", "team"))):
        for number in range(3):
            await registrar.upsert_schedule(a_schedule(f"ann/{number}"))
        await registrar.delete_schedule("ann/0")
        await registrar.upsert_schedule(a_schedule("ann/3"))
        with pytest.raises(LimitExceededError, match='"ann" has 3 schedules'):
            await registrar.upsert_schedule(a_schedule("ann/0"))
        await registrar.upsert_schedule({**a_schedule("team/0"), "user_id": "team"})
        with pytest.raises(LimitExceededError, match='"ann" has 3 schedules'):
            await registrar.upsert_schedule({**a_schedule("team/0"), "user_id": "ann"})
        await registrar.upsert_schedule({**a_schedule("ann/3"), "user_id": "team"})
        await registrar.upsert_schedule(a_schedule("ann/0"))


async def test_requests_at_once_do_not_exceed_a_quota_together(
    registrar: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = registrar.whole.count_jobs

    async def counted(namespace: str, wanted: JobFilter) -> int:
        counted = await count(namespace, wanted)
        # As a database in another process gives others their turn.
        await asyncio.sleep(0)
        return counted

    monkeypatch.setattr(registrar.whole, "count_jobs", counted)
    with acting_as(ANN):
        wanted = [registrar.upsert_schedule(a_schedule(f"ann/{number}")) for number in range(10)]
        results = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(result, LimitExceededError) for result in results) == 7
        assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 3


async def test_a_batch_that_would_be_too_many_is_not_stored_at_all(registrar: Registrar) -> None:
    lines = [a_schedule(f"ann/{number}") for number in range(4)]
    with acting_as(ANN), pytest.raises(LimitExceededError):
        await upsert_lines(registrar, json_lines(lines), max_line=10_000)
    assert await registrar.store.count_jobs(NAMESPACE, JobFilter()) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"schedule_id": "bob/1"}, 'must start with "ann/"'),
        ({"user_id": "bob"}, "must be one of ann"),
        ({"launcher": None, "workflow_id": "bob.x", "version": 1}, 'must start with "ann."'),
    ],
)
async def test_a_line_that_is_not_the_callers_is_named(
    wrong: dict[str, object], said: str, registrar: Registrar
) -> None:
    lines = [a_schedule("ann/0"), {**a_schedule("ann/1"), **wrong}]
    with acting_as(ANN), pytest.raises(InvalidLinesError) as refusal:
        await upsert_lines(registrar, json_lines(lines), max_line=10_000)
    assert refusal.value.stored == 0
    assert refusal.value.lines()[0].startswith("line 2: Invalid schedule")
    assert said in refusal.value.lines()[0]


@pytest.mark.parametrize(
    ("cron_expr", "gap"), [("* * * * *", 60), ("*/2 * * * *", 120), ("*/7 * * * *", 240)]
)
async def test_times_too_close_are_refused(cron_expr: str, gap: int, registrar: Registrar) -> None:
    with pytest.raises(InvalidScheduleError, match=f"again after {gap} s"):
        await registrar.upsert_schedule(a_schedule("x", cron_expr))
    await registrar.upsert_schedule(a_schedule("x", "*/5 * * * *"))


async def test_a_tenants_workflows_start_with_their_name_and_are_theirs_only(registrar: Registrar) -> None:
    with acting_as(ANN):
        with pytest.raises(InvalidWorkflowError, match=r'must start with "ann\."'):
            await registrar.deploy_workflow("report", 1, DAG, user_id="ann")
        with pytest.raises(InvalidWorkflowError, match="must be one of ann"):
            await registrar.deploy_workflow("ann.report", 1, DAG, user_id="bob@example.com")
        deployed = await registrar.deploy_workflow("ann.report", 1, DAG, user_id="ann")
        assert [one["schedule_id"] for one in deployed["upserted"]] == ["ann/ann.report/daily"]
        assert [one.version for one in await registrar.workflow_versions("ann.report")] == [1]
    with acting_as(BOB):
        assert await registrar.workflow_versions("ann.report") == []
        with pytest.raises(UnknownWorkflowError):
            await find_workflow(registrar.workflows, "ann.report", 1)
        with pytest.raises(InvalidWorkflowError, match="must start with"):
            await registrar.deploy_workflow("ann.report", 1, DAG, user_id="bob@example.com")
        await registrar.deploy_workflow("bob_40_example_2e_com.x", 1, DAG, user_id="bob@example.com")
        mine = await registrar.list_schedules(JobFilter())
        assert [one["schedule_id"] for one in mine] == ["bob@example.com/bob_40_example_2e_com.x/daily"]
        assert await registrar.workflows.names() == ["bob_40_example_2e_com.x"]
        assert await registrar.workflows.names(users=["ann"]) == []
    assert await registrar.workflows.names() == ["ann.report", "bob_40_example_2e_com.x"]
    assert await registrar.workflows.names(users=["ann"]) == ["ann.report"]


async def test_a_deployment_is_audited_with_its_caller_and_its_request(registrar: Registrar) -> None:
    with acting_as(ANN, "request-9"):
        await registrar.deploy_workflow("ann.report", 1, DAG, user_id="ann")
        audits = await registrar.store.audits(NAMESPACE, AuditFilter(identity="ann.report"))
    ((_, record),) = audits
    assert (record.action, record.who, record.request_id) == ("deploy", "ann", "request-9")
    assert json.loads(str(record.after)) == {"workflow_id": "ann.report", "version": 1}


async def test_deploying_a_newer_version_retires_removed_triggers(registrar: Registrar) -> None:
    with acting_as(ANN, "request-1"):
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


def test_the_limits_are_settings() -> None:
    environment = {"KRON_MAX_SCHEDULES": "7", "KRON_MIN_INTERVAL_S": "60", "KRON_MAX_OPEN_RUNS": "9"}
    rules = read_settings(environment, {}).settings.rules
    assert (rules.max_schedules, rules.min_interval_s, rules.max_open_runs) == (7, 60, 9)


async def test_a_name_that_another_tenant_owns_is_a_conflict(registrar: Registrar) -> None:
    with acting_as(BOB):
        await registrar.upsert_schedule(a_schedule("bob@example.com/0"))
    await registrar.upsert_schedule({**a_schedule("bob@example.com/0"), "user_id": "ann"})
    with acting_as(BOB), pytest.raises(ConflictError, match="is taken: use another"):
        await registrar.upsert_schedule(a_schedule("bob@example.com/0"))


def a_use(workflow_id: str, owner: str = "ann") -> dict[str, object]:
    return {
        "schedule_id": f"{owner}/use", "workflow_id": workflow_id, "version": 1, "user_id": owner,
        "cron_expr": "0 9 * * *", "timezone": "UTC",
    }  # fmt: skip


async def test_a_schedule_of_another_tenants_workflow_is_rejected_whether_it_exists_or_not(
    registrar: Registrar,
) -> None:
    with acting_as(Caller("bob", RIGHTS, ("bob", "team"))):
        for owner in ("bob", "team"):
            await registrar.deploy_workflow(f"{owner}.report", 1, NODES, user_id=owner)
    # From before there were tenants, or an admin's own choice.
    await registrar.deploy_workflow("old", 1, NODES, user_id="ann")
    with acting_as(Caller("ann", RIGHTS, ("ann", "team"))):
        for stranger in ("bob.report", "bob.nothing", "team.report", "what is this?"):
            with pytest.raises(InvalidScheduleError, match=r'workflow_id ".*": must start with "ann\."'):
                await registrar.upsert_schedule(a_use(stranger))
        with pytest.raises(InvalidScheduleError, match=r'the workflow "ann.later" is not deployed here'):
            await registrar.upsert_schedule(a_use("ann.later"))
        await registrar.upsert_schedule(a_use("old"))
        await registrar.upsert_schedule(a_use("team.report", "team"))
    await registrar.upsert_schedule(a_use("bob.report"))


async def test_with_authentication_no_schedule_starts_a_workflow_of_another_tenant(
    registrar: Registrar,
) -> None:
    await registrar.deploy_workflow("bob.report", 1, NODES, user_id="bob")
    for settings, starts in ((Settings(jwt_secret=forge.SECRET), False), (Settings(), True)):
        settings = replace(settings, executor={"kind": "callback", "name": "work"})
        launcher = workflow_launcher(registrar.clock, settings, registrar.workflows, {})
        for owner in ("bob", "ann"):
            job = launch_for(a_use("bob.report", owner))
            if starts or owner == "bob":
                assert (await launcher.ready(job)).payload is not None
            else:
                with pytest.raises(UnknownWorkflowError, match=r'no version 1 of "bob\.report"'):
                    await launcher.ready(job)


def launch_for(document: dict[str, object]) -> Launch:
    wanted = WorkflowStart(str(document["workflow_id"]), 1, str(document["user_id"]), 0, "key")
    return launch_of(wanted, 0)


async def test_no_run_can_use_up_the_rate_limit_of_another(registrar: Registrar) -> None:
    secret = b"s" * 32
    authenticator, rate = Authenticator(None, run_secret=secret), RateLimit(1, registrar.clock)

    async def report(key: str) -> None:
        proof = f"Bearer {run_token_of(secret, key)}".encode()
        scope = {"path": f"/runs/{key}/status", "headers": [(b"authorization", proof)]}
        caller = await authenticator.caller_of(scope, Need(TokenScope.RUN, run_token=True))
        assert caller.scopes == {TokenScope.RUN}
        rate.admit(caller)

    await report("one")
    await report("one")
    with pytest.raises(LimitExceededError):
        await report("one")
    await report("other")


STEERING = [
    "LD_PRELOAD", "PATH", "BASH_ENV", "PYTHONPATH", "PERL5OPT", "NODE_OPTIONS", "BASH_FUNC_ls%%", "HOME",
    "GIT_SSH_COMMAND", "MAKEFILES", "XDG_CONFIG_HOME", "PAGER",
]  # fmt: skip


@pytest.mark.parametrize("name", STEERING)
async def test_a_program_that_is_allowed_cannot_be_made_to_run_other_code(
    name: str, registrar: Registrar
) -> None:
    settings = Settings(allowed_commands=frozenset({"/opt/backup"}), allowed_variables=frozenset({"MODE"}))
    registrar.rules = settings.rules
    launcher = {"kind": "process", "command": ["backup"], "env": {"MODE": "full"}}
    await registrar.upsert_schedule({**a_schedule("x"), "launcher": launcher})
    launcher["env"] = {"MODE": "full", name: "/tmp"}
    with pytest.raises(InvalidScheduleError, match=r"launcher\.env.* decides which code runs"):
        await registrar.upsert_schedule({**a_schedule("x"), "launcher": launcher})
    launchers = launchers_of(
        registrar.clock, settings, calls=CallbackLauncher(registrar.clock), workflows=None, functions={}
    )
    processes = launchers["process"]
    assert isinstance(processes, ProcessLauncher)
    settings_of_process = ProcessSettings.read(launcher)
    with pytest.raises(InvalidLauncherError, match="decides which code runs"):
        processes.check(settings_of_process)
    started = processes.check(replace(settings_of_process, env=()))
    assert started.command == ("/opt/backup",)


def test_an_answered_request_leaves_room_for_one_more_and_no_second() -> None:
    limit, caller = RequestLimit(2), Caller("ann", frozenset(TokenScope), ("ann",))
    limit.begin(caller, "GET")
    limit.begin(caller, "GET")
    limit.end(caller, "GET")
    limit.begin(caller, "GET")
    with pytest.raises(LimitExceededError, match="2 requests of this caller are in progress"):
        limit.begin(caller, "GET")


def test_the_tokens_of_many_runs_take_a_part_of_the_connections_only() -> None:
    limit, reports = RequestLimit(), 0
    for run in range(MAX_OF_RUNS // MAX_OF_RUN):
        executor = EXECUTOR._replace(name=f"run {run}")
        for _ in range(MAX_OF_RUN):
            limit.begin(executor, "POST")
            reports += 1
        with pytest.raises(LimitExceededError, match="10 requests of this caller are in progress"):
            limit.begin(executor, "POST")
    assert reports == MAX_OF_RUNS
    other = EXECUTOR._replace(name="run of another user")
    with pytest.raises(LimitExceededError, match="500 reports on runs are in progress"):
        limit.begin(other, "POST")
    limit.begin(Caller("ann", frozenset(TokenScope), ("ann",)), "POST")
    limit.end(executor, "POST")
    limit.begin(other, "POST")
