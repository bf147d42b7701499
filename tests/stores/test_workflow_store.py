"""Workflow stores, in a database and in a folder, and the log of starts."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.core.errors import StoreError
from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord
from kron.dag_ports import IdempotencyLog, WorkflowStore
from kron.stores.folder import FolderWorkflows
from kron.stores.postgres.workflow import PostgresWorkflows
from kron.stores.sqlite.workflow import SqliteWorkflows
from kron.stores.url import WorkflowDatabase, open_workflows

DAG = json.dumps({"nodes": [], "text": "ü\0\ud800"}, separators=(",", ":"))
FIRST = WorkflowRecord("report", 1, DAG, "ann", 1_000)
START = StartRequest("key", 1, "report", 1, 5_000)


@pytest.fixture(params=["sqlite", "postgres"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WorkflowDatabase]:
    database: WorkflowDatabase
    if request.param == "sqlite":
        database = SqliteWorkflows(str(tmp_path / "kron.db"))
    else:
        database = PostgresWorkflows(request.getfixturevalue("postgres_url"))
    yield database
    await database.close()


@pytest.fixture(params=["sqlite", "postgres", "folder"])
async def workflows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[WorkflowStore]:
    workflows: WorkflowStore
    if request.param == "folder":
        workflows = FolderWorkflows(tmp_path / "workflows")
    elif request.param == "sqlite":
        workflows = SqliteWorkflows(str(tmp_path / "kron.db"))
    else:
        workflows = PostgresWorkflows(request.getfixturevalue("postgres_url"))
    yield workflows
    await workflows.close()


# --- versions --------------------------------------------------------------------------------------


async def test_a_version_is_found_by_workflow_and_number(workflows: WorkflowStore) -> None:
    assert await workflows.get("report", 1) is None
    assert await workflows.versions("report") == []
    assert await workflows.put(FIRST) == FIRST
    assert await workflows.get("report", 1) == FIRST
    assert await workflows.get("report", 2) is None
    assert await workflows.get("report", 0) is None
    assert await workflows.get("other", 1) is None


async def test_a_draft_is_replaced_until_it_is_published(workflows: WorkflowStore) -> None:
    draft = FIRST._replace(dag='{"nodes":[],"draft":true}')
    second = draft._replace(dag='{"nodes":[1],"draft":true}', user_id="bob", created_at=2_000)
    assert await workflows.put(draft) == draft
    assert await workflows.put(second) == second
    assert await workflows.put(FIRST) == FIRST
    assert await workflows.put(second) == FIRST


async def test_each_version_has_its_own_content(workflows: WorkflowStore) -> None:
    records = [FIRST._replace(version=version, dag=f'{{"nodes":[{version}]}}') for version in (1, 2, 10)]
    for record in (records[1], records[2], records[0]):
        await workflows.put(record)
    assert [await workflows.get("report", record.version) for record in records] == records


async def test_a_version_that_is_there_never_changes(workflows: WorkflowStore) -> None:
    await workflows.put(FIRST)
    assert await workflows.put(FIRST._replace(dag="{}", user_id="bob", created_at=2_000)) == FIRST
    assert await workflows.get("report", 1) == FIRST


async def test_versions_are_listed_by_number_newest_first(workflows: WorkflowStore) -> None:
    for version in (2, 10, 1, 9):
        await workflows.put(FIRST._replace(version=version))
    await workflows.put(FIRST._replace(workflow_id="reporting", version=99))
    assert [each.version for each in await workflows.versions("report")] == [10, 9, 2, 1]
    (newest,) = await workflows.versions("report", limit=1)
    assert newest == (10, "ann", 1_000)


async def test_workflows_are_listed_by_name_and_owner(workflows: WorkflowStore) -> None:
    assert await workflows.names() == []
    for name, version, user in (("c", 1, "ann"), ("a", 1, "bob"), ("a", 2, "ann"), ("b", 1, "bob")):
        await workflows.put(FIRST._replace(workflow_id=name, version=version, user_id=user))
    assert await workflows.names() == ["a", "b", "c"]
    assert await workflows.names(after="a", limit=1) == ["b"]
    assert await workflows.names(users=["ann"]) == ["a", "c"]
    assert await workflows.names(users=["ann", "bob"], after="b") == ["c"]
    assert await workflows.names(users=[]) == []


async def test_the_versions_below_a_prefix_are_counted_up_to_a_limit(workflows: WorkflowStore) -> None:
    assert await workflows.count_versions("ann.", most=10) == 0
    for name in ("ann.a", "ann.b", "ann", "ann-a", "anna.a", "bob.a"):
        for version in (1, 2):
            await workflows.put(FIRST._replace(workflow_id=name, version=version))
    assert await workflows.count_versions("ann.", most=10) == 4
    assert await workflows.count_versions("ann.", most=3) == 3


async def test_one_of_many_concurrent_writes_of_a_version_wins(workflows: WorkflowStore) -> None:
    records = [FIRST._replace(user_id=f"user{number}") for number in range(8)]
    kept = await asyncio.gather(*map(workflows.put, records))
    assert len(set(kept)) == 1
    assert await workflows.get("report", 1) == kept[0]


async def test_one_of_many_concurrent_publications_of_a_draft_wins(workflows: WorkflowStore) -> None:
    for version in range(1, 31):
        draft = FIRST._replace(version=version, dag='{"nodes":[],"draft":true}')
        await workflows.put(draft)
        published = [draft._replace(dag=f'{{"nodes":[{number}]}}') for number in range(8)]
        kept = await asyncio.gather(*map(workflows.put, published))
        assert len(set(kept)) == 1
        assert await workflows.get("report", version) == kept[0]


async def test_versions_are_there_after_reopening(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/again.db", postgres_url):
        for _ in range(2):
            workflows = open_workflows(url)
            assert await workflows.put(FIRST) == FIRST
            await workflows.close()


# --- a folder --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["..", "../other", "a/b", "", ".", "/etc", "a\0b"])
async def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(json.dumps({**FIRST._asdict(), "dag": {}}))
    workflows = FolderWorkflows(tmp_path / "workflows")
    assert await workflows.get(name, 1) is None
    assert await workflows.versions(name) == []
    with pytest.raises(AssertionError):
        await workflows.put(FIRST._replace(workflow_id=name))


async def test_links_are_not_followed(tmp_path: Path) -> None:
    workflows = FolderWorkflows(tmp_path / "workflows")
    await workflows.put(FIRST)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1.json").write_text(json.dumps({**FIRST._asdict(), "dag": {"secret": 1}}))
    (tmp_path / "workflows" / "linked").symlink_to(elsewhere)
    (tmp_path / "workflows" / "report" / "2.json").symlink_to(elsewhere / "1.json")
    for name, version in (("linked", 1), ("report", 2)):
        with pytest.raises(StoreError, match="cannot be used"):
            await workflows.get(name, version)
        with pytest.raises(StoreError, match="cannot be used"):
            await workflows.put(FIRST._replace(workflow_id=name, version=version))
    assert list(elsewhere.iterdir()) == [elsewhere / "1.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"dag": {}}', '{"dag": NaN, "user_id": "a", "created_at": 1}']
)
async def test_a_damaged_file_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "1.json").write_text(text)
    with pytest.raises(StoreError, match='Version 1 of the workflow "report"'):
        await FolderWorkflows(tmp_path).get("report", 1)


async def test_nothing_but_versions_stays_in_the_folder(tmp_path: Path) -> None:
    workflows = FolderWorkflows(tmp_path)
    await asyncio.gather(*(workflows.put(FIRST) for _ in range(4)))
    (tmp_path / "report" / "notes.json").write_text("{}")
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["1.json", "notes.json"]
    assert [each.version for each in await workflows.versions("report")] == [1]


# --- starts ----------------------------------------------------------------------------------------


async def test_a_start_is_recorded_once_and_kept_when_accepted(database: IdempotencyLog) -> None:
    assert await database.begin(START, old=0) is None
    assert await database.begin(START, old=0) == RecordedStart("report", 1, accepted=False)
    await database.end(START, accepted=True)
    assert await database.begin(START, old=0) == RecordedStart("report", 1, accepted=True)


async def test_the_acceptance_of_a_start_is_that_of_no_other_attempt_or_run(database: IdempotencyLog) -> None:
    others = START._replace(attempt=2), START._replace(key="other")
    for start in (START, *others):
        assert await database.begin(start, old=0) is None
    await database.end(START, accepted=True)
    for other in others:
        assert await database.begin(other, old=0) == RecordedStart("report", 1, accepted=False)


async def test_a_start_that_was_not_accepted_may_be_retried(database: IdempotencyLog) -> None:
    await database.begin(START, old=0)
    await database.end(START, accepted=False)
    assert await database.begin(START, old=0) is None
    await database.end(START, accepted=True)
    # A late removal does not undo another caller's accepted start.
    await database.end(START, accepted=False)
    assert await database.begin(START, old=0) == RecordedStart("report", 1, accepted=True)


async def test_one_of_many_concurrent_starts_is_made(database: IdempotencyLog) -> None:
    begun = await asyncio.gather(*(database.begin(START, old=0) for _ in range(8)))
    assert begun.count(None) == 1


async def test_old_starts_are_forgotten(database: IdempotencyLog) -> None:
    await database.begin(START, old=0)
    await database.end(START, accepted=True)
    later = START._replace(key="later", begun_at=9_000)
    await database.begin(later, old=START.begun_at)
    assert await database.begin(START, old=START.begun_at) is not None
    assert await database.begin(later._replace(key="last"), old=START.begun_at + 1) is None
    assert await database.begin(START, old=0) is None
