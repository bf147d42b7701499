"""Deploying workflows: schedules follow the newest version, whatever happens on the way (SPEC 3: 2, 5)."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kron.core.errors import ConflictError, StoreError
from kron.core.plan.query import AuditFilter, JobFilter
from kron.core.workflow import InvalidWorkflowError, WorkflowRecord, WorkflowVersion
from kron.dag_ports import WorkflowStore
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import ChangedVersionError
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.schedule_spec import Rules
from kron.launchers.secret import Vault
from kron.ports import Store
from kron.stores.folder import FolderWorkflows
from kron.stores.postgres.workflow import PostgresWorkflows
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows
from tests.service.registrar_rig import HOURLY, MINUTE, NOON, Office, office_on

NODES = [{"id": "a", "type": "t"}]


def dag(**crons: str) -> Document:
    """Return a DAG with a schedule for each name."""
    triggers = [
        {"id": name, "type": "schedule_based", "schedule": {"cron_expr": cron}}
        for name, cron in crons.items()
    ]
    return {"triggers": [*triggers, {"id": "hook", "type": "webhook"}], "nodes": NODES}


@pytest.fixture(params=["sqlite", "postgres", "folder"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Store, WorkflowStore]]:
    from kron.stores.postgres.store import PostgresStore

    store: Store = SqliteStore(str(tmp_path / "kron.db"))
    workflows: WorkflowStore = FolderWorkflows(tmp_path / "workflows")
    if request.param == "sqlite":
        workflows = SqliteWorkflows(str(tmp_path / "kron.db"))
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        store, workflows = PostgresStore(url), PostgresWorkflows(url)
    yield store, workflows
    await workflows.close()
    await store.close()


@asynccontextmanager
async def deploying(stores: tuple[Store, WorkflowStore]) -> AsyncIterator[tuple[Office, Registrar]]:
    store, workflows = stores
    async with office_on(store) as office:
        yield office, Registrar(store, office.clock, workflows=workflows, wake=office.engine.call)


async def schedules(registrar: Registrar) -> dict[str, tuple[object, object]]:
    """Return the cron expression and the version of every schedule."""
    found = await registrar.list_schedules(JobFilter())
    return {str(each["schedule_id"]): (each["cron_expr"], each["version"]) for each in found}


async def test_each_schedule_trigger_becomes_a_schedule_and_the_next_version_changes_it(
    stores: tuple[Store, WorkflowStore],
) -> None:
    async with deploying(stores) as (_, registrar):
        first = await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *", b="30 2 * * *"), user_id="ann")
        assert [each["schedule_id"] for each in listed(first["upserted"])] == ["wf/a", "wf/b"]
        assert listed(first["upserted"])[0]["next_run_at"] == "2026-01-01T13:00:00Z"
        found = await registrar.get_schedule("wf/a")
        assert (found["workflow_id"], found["version"], found["user_id"]) == ("wf", 1, "ann")
        assert (found["timezone"], found["launcher"]) == (
            "UTC",
            {"kind": "workflow", "workflow_id": "wf", "version": 1, "user_id": "ann"},
        )
        await registrar.pause_schedule("wf/a", True)
        await registrar.deploy_workflow("wf", 2, dag(a="5 * * * *", c="0 0 * * *"), user_id="ann")
        assert await schedules(registrar) == {"wf/a": ("5 * * * *", 2), "wf/c": ("0 0 * * *", 2)}
        assert (await registrar.get_schedule("wf/a"))["paused"] is True


def listed(value: object) -> list[Document]:
    assert isinstance(value, list)
    return value


async def test_deploying_again_changes_nothing_and_adds_nothing(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        first = await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")
        before = await registrar.get_schedule("wf/a")
        again = await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")
        assert again == {**first, "new": False}
        after = await registrar.get_schedule("wf/a")
        assert {**after, "updated_at": None} == {**before, "updated_at": None}
        assert len(await schedules(registrar)) == 1


async def test_a_version_that_is_there_is_not_changed(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")
        for other, user in ((dag(a="1 * * * *"), "ann"), (dag(a="0 * * * *"), "bob")):
            for dry_run in (True, False):
                with pytest.raises(ChangedVersionError):
                    await registrar.deploy_workflow("wf", 1, other, user_id=user, dry_run=dry_run)
        assert await schedules(registrar) == {"wf/a": ("0 * * * *", 1)}


async def test_each_change_of_a_draft_and_its_publication_are_audited(
    stores: tuple[Store, WorkflowStore],
) -> None:
    async with deploying(stores) as (_, registrar):
        draft = {**dag(a="0 * * * *"), "draft": True}
        for document in (draft, {**draft, "nodes": []}, dag(a="0 * * * *"), dag(a="0 * * * *")):
            await registrar.deploy_workflow("wf", 1, document, user_id="ann")
        records = [each.record for each in await stores[0].audits(NAMESPACE, AuditFilter(identity="wf"))]
        deployed = [json.loads(record.after or "") for record in records if record.action == "deploy"]
        assert deployed[::-1] == [
            {"workflow_id": "wf", "version": 1, "draft": True},
            {"workflow_id": "wf", "version": 1, "draft": True},
            {"workflow_id": "wf", "version": 1},
        ]


async def test_an_older_version_is_kept_and_moves_nothing_back(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        await registrar.deploy_workflow("wf", 7, dag(a="0 * * * *"), user_id="ann")
        answer = await registrar.deploy_workflow("wf", 3, dag(a="9 9 * * *", z="1 1 * * *"), user_id="ann")
        assert (answer["newest_version"], answer["upserted"], answer["retired"]) == (7, [], [])
        assert await schedules(registrar) == {"wf/a": ("0 * * * *", 7)}
        assert [each.version for each in await registrar.workflow_versions("wf")] == [7, 3]


async def test_a_dry_run_says_what_would_be_and_writes_nothing(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *", b="0 0 * * *"), user_id="ann")
        would = await registrar.deploy_workflow("wf", 2, dag(b="5 0 * * *"), user_id="ann", dry_run=True)
        assert [each["schedule_id"] for each in listed(would["upserted"])] == ["wf/b"]
        assert (would["retired"], would["new"], would["dry_run"]) == (["wf/a"], True, True)
        assert await schedules(registrar) == {"wf/a": ("0 * * * *", 1), "wf/b": ("0 0 * * *", 1)}
        assert [each.version for each in await registrar.workflow_versions("wf")] == [1]
        did = await registrar.deploy_workflow("wf", 2, dag(b="5 0 * * *"), user_id="ann")
        assert {**did, "dry_run": True, "upserted": []} == {**would, "upserted": []}
        assert listed(did["upserted"])[0]["next_run_at"] == listed(would["upserted"])[0]["next_run_at"]


async def test_only_schedules_of_the_workflow_are_retired(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")
        await registrar.deploy_workflow("wf2", 1, dag(a="0 * * * *"), user_id="ann")
        # One by hand for the same workflow, and one of another whose name begins alike.
        await registrar.upsert_schedule({**HOURLY, "schedule_id": "by-hand", "version": 1})
        await registrar.deploy_workflow("other", 1, dag(), user_id="ann")
        other = {"schedule_id": "wf/other", "workflow_id": "other", "version": 1}
        await registrar.upsert_schedule({**HOURLY, **other})
        answer = await registrar.deploy_workflow("wf", 2, dag(), user_id="ann")
        assert answer["retired"] == ["wf/a"]
        assert sorted(await schedules(registrar)) == ["by-hand", "wf/other", "wf2/a"]


async def test_a_workflow_with_more_triggers_than_a_page_is_retired_whole(
    stores: tuple[Store, WorkflowStore],
) -> None:
    async with deploying(stores) as (_, registrar):
        many = {f"t{number}": "0 0 1 1 *" for number in range(99)}
        await registrar.deploy_workflow("wf", 1, dag(**many), user_id="ann")
        # Names that begin like this belong to the deployment.
        for number in range(5):
            await registrar.upsert_schedule({**HOURLY, "schedule_id": f"wf/x{number}", "version": 1})
        answer = await registrar.deploy_workflow("wf", 2, dag(a="0 0 1 1 *"), user_id="ann")
        assert len(listed(answer["retired"])) == 104
        assert list(await schedules(registrar)) == ["wf/a"]


async def test_what_runs_is_retired_with_its_history_and_comes_back(
    stores: tuple[Store, WorkflowStore],
) -> None:
    async with deploying(stores) as (office, registrar):
        await office.work()
        await registrar.deploy_workflow("wf", 1, dag(a="* * * * *"), user_id="ann")
        await office.until(NOON + 2.5 * MINUTE)
        await registrar.deploy_workflow("wf", 2, dag(), user_id="ann")
        await office.until(NOON + 4.5 * MINUTE)
        await registrar.deploy_workflow("wf", 3, dag(a="* * * * *"), user_id="ann")
        await office.until(NOON + 5.5 * MINUTE)
        runs = await office.runs("wf/a")
        assert [(run.nominal_time - int(NOON.timestamp())) // 60 for run in runs] == [1, 2, 5]


async def test_whoever_deploys_last_the_newest_version_counts(stores: tuple[Store, WorkflowStore]) -> None:
    async with deploying(stores) as (_, registrar):
        versions = {
            number: dag(**{f"t{number}": f"{number} * * * *", "a": "0 0 * * *"}) for number in range(1, 6)
        }
        await asyncio.gather(
            *(
                registrar.deploy_workflow("wf", number, each, user_id="ann")
                for number, each in versions.items()
            )
        )
        assert await schedules(registrar) == {"wf/a": ("0 0 * * *", 5), "wf/t5": ("5 * * * *", 5)}


async def test_whoever_deploys_last_a_version_with_encrypted_secrets_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    store, workflows = SqliteStore(path), Overtaken(path)
    rules = Rules(runs_dags=True, vault=Vault(["a key that is long enough for a test"]))
    task = {"id": "a", "type": "http", "url": "https://ann.example/", "headers": {"X": "a secret of ann"}}
    versions = {number: {**dag(a=f"{number} * * * *"), "nodes": [task]} for number in (1, 2)}
    async with office_on(store) as office:
        registrar = Registrar(store, office.clock, workflows=workflows, rules=rules)
        workflows.overtake = lambda: registrar.deploy_workflow("wf", 2, versions[2], user_id="ann")
        await registrar.deploy_workflow("wf", 1, versions[1], user_id="ann")
        assert await schedules(registrar) == {"wf/a": ("2 * * * *", 2)}
    record = await workflows.get("wf", 2)
    assert record is not None
    assert "a secret of ann" not in record.dag
    await workflows.close()
    await store.close()


class Overtaken(SqliteWorkflows):
    """Lets another deployment happen after a deployment has looked for newer versions."""

    overtake: Callable[[], Awaitable[object]] | None = None

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        found = await super().versions(workflow_id, limit=limit)
        if found and self.overtake is not None:
            overtake, self.overtake = self.overtake, None
            await overtake()
        return found


class Interrupted(SqliteWorkflows):
    """Stores a version, and fails before it answers."""

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        await super().put(record)
        raise StoreError("the connection broke")


async def test_a_deployment_that_was_interrupted_is_finished_by_repeating_it(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    store, broken, whole = SqliteStore(path), Interrupted(path), SqliteWorkflows(path)
    async with office_on(store) as office:
        with pytest.raises(StoreError):
            await Registrar(store, office.clock, workflows=broken).deploy_workflow(
                "wf", 1, dag(a="0 * * * *"), user_id="ann"
            )
        registrar = Registrar(store, office.clock, workflows=whole)
        assert await schedules(registrar) == {}
        await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")
        assert await schedules(registrar) == {"wf/a": ("0 * * * *", 1)}
    for each in (broken, whole, store):
        await each.close()


SCHEDULE = "triggers.0.schedule"


@pytest.mark.parametrize(
    ("schedule", "paths"),
    [
        ({}, [f"{SCHEDULE}.cron_expr"]),
        ({"cron_expr": "x", "timezone": "Mars"}, [f"{SCHEDULE}.cron_expr", f"{SCHEDULE}.timezone"]),
        ({"cron_expr": "* * * * *", "overlap_policy": "maybe"}, [f"{SCHEDULE}.overlap_policy"]),
        ({"cron_expr": "* * * * *", "croon": 1}, [f"{SCHEDULE}.croon"]),
        (
            {"cron_expr": "* * * * *", "version": 2, "launcher": {}},
            [f"{SCHEDULE}.version", f"{SCHEDULE}.launcher"],
        ),
        ({"cron_expr": "* * * * *", "schedule_id": "x"}, [f"{SCHEDULE}.schedule_id"]),
    ],
)
async def test_a_wrong_schedule_is_said_with_its_path_and_nothing_is_kept(
    schedule: Document, paths: list[str]
) -> None:
    workflows = SqliteWorkflows()
    async with office_on(SqliteStore()) as office:
        registrar = Registrar(office.store, office.clock, workflows=workflows)
        wrong = {"triggers": [{"id": "a", "type": "schedule_based", "schedule": schedule}], "nodes": NODES}
        with pytest.raises(InvalidWorkflowError) as refused:
            await registrar.deploy_workflow("wf", 1, wrong, user_id="ann")
        assert sorted(problem.path for problem in refused.value.problems) == sorted(paths)
        assert await workflows.versions("wf") == []
    await workflows.close()


@pytest.mark.parametrize(
    ("version", "user_id", "path"),
    [(-1, "ann", "version"), (2**31, "ann", "version"), (1, None, "user_id"), (1, "", "user_id"),
     (1, 7, "user_id"), (1, "a\0", "user_id"), (1, "\ud800", "user_id"), (1, "x" * 501, "user_id")],
)  # fmt: skip
async def test_version_and_user_are_checked(version: int, user_id: object, path: str) -> None:
    async with office_on(SqliteStore()) as office:
        registrar = Registrar(office.store, office.clock, workflows=SqliteWorkflows())
        with pytest.raises(InvalidWorkflowError) as refused:
            await registrar.deploy_workflow("wf", version, dag(), user_id=user_id)
        assert [problem.path for problem in refused.value.problems] == [path]


async def test_the_operators_rules_hold_for_triggers_too() -> None:
    rules = Rules(timezones=frozenset({"Europe/Berlin"}))
    async with office_on(SqliteStore()) as office:
        registrar = Registrar(office.store, office.clock, rules=rules, workflows=SqliteWorkflows())
        with pytest.raises(InvalidWorkflowError, match="not among those allowed here"):
            await registrar.deploy_workflow("wf", 1, dag(a="0 * * * *"), user_id="ann")


async def test_a_registrar_without_a_workflow_store_says_so() -> None:
    async with office_on(SqliteStore()) as office:
        with pytest.raises(ConflictError, match="has no workflow store"):
            await office.registrar.deploy_workflow("wf", 1, dag(), user_id="ann")
