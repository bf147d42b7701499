"""What a run's row says: a status, a reason and a sentence, and nothing of what was run (SPEC 3: 1, 3)."""

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kron.core.plan.record import RunStatus
from kron.fronts.service.client import LocalClient, PageRequest
from kron.fronts.service.runs import run_now
from kron.fronts.service.settings import Settings
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.registrar_rig import MINUTE, MINUTELY, NOON, Office, office_on
from tests.service.server import serving

HTTP = {"kind": "http", "url": "http://127.0.0.1:9/"}
# The planning facts, status and reason, and how an execution went; no output, no nodes, no document.
FACTS = {
    "namespace", "idempotency_key", "schedule_id", "run_at", "fire_at", "status", "reason", "run_id", "kind",
    "attempt", "started_at", "ended_at", "result", "error", "created_at", "updated_at",
}  # fmt: skip
# What PostgreSQL keeps of the same facts for the engine: integers, marks, who may write.
INSIDE = {
    "shard", "nominal_time", "fire_time", "made_at", "epoch", "due_at", "is_open", "token", "began_at",
    "over_at", "acked", "changed_at",
}  # fmt: skip

Then = Callable[[Office], Awaitable[object]]


async def nothing(office: Office) -> None:
    """Change nothing."""


async def deleted(office: Office) -> None:
    await office.registrar.delete_schedule("minutely")


# Fields of a schedule, what happens to its starts, and what is done after the second minute.
STORIES: dict[str, tuple[dict[str, object], list[Step], Then]] = {
    "ENQUEUED": ({"launcher": HTTP}, [Step.SUCCEED], nothing),
    "STARTED": ({}, [Step.HANG], nothing),
    "SUCCESS": ({}, [Step.SUCCEED], nothing),
    "FAILED": ({}, [Step.FAIL], nothing),
    "SKIPPED": ({}, [Step.HANG], nothing),
    "PENDING": ({"overlap_policy": "queue"}, [Step.HANG], nothing),
    "MISSED": ({"deadline": "0s"}, [], nothing),
    "UNSCHEDULABLE": ({"constraints": {"only": {"hours": [3]}}}, [], nothing),
    "CANCELLED": ({"overlap_policy": "queue"}, [Step.HANG], deleted),
}


def test_there_is_a_story_for_every_status() -> None:
    assert set(STORIES) == set(RunStatus)


@pytest.mark.parametrize("status", STORIES)
async def test_a_run_has_this_status_with_a_reason_and_a_sentence(store: Store, status: str) -> None:
    fields, steps, then = STORIES[status]
    async with office_on(store) as office:
        for launcher in office.launchers.values():
            launcher.then("minutely", *steps)
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        if status == "MISSED":
            # Half a minute later than its deadline allows.
            office.clock.jump_to(NOON + 1.5 * MINUTE)
        await office.work()
        await office.until(NOON + 2 * MINUTE)
        await then(office)
        runs = (await LocalClient(office.registrar, Settings()).runs("minutely", PageRequest()))["runs"]
        assert isinstance(runs, list)
        assert status in {run["status"] for run in runs}
        for run in runs:
            assert run["reason"].isidentifier()
            assert " " in run["sentence"]


async def test_a_run_asked_for_by_hand_has_them_too(store: Store) -> None:
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        run = await run_now(office.registrar, "minutely", "one")
        assert (run["status"], run["reason"], run["sentence"]) == (
            "PENDING",
            "asked",
            "started manually",
        )


async def test_a_row_holds_the_facts_of_planning_and_nothing_else(tmp_path: Path, postgres_url: str) -> None:
    from kron.stores.postgres.store import PostgresStore

    for store, connect in (
        (SqliteStore(str(tmp_path / "kron.db")), lambda: sqlite3.connect(tmp_path / "kron.db")),
        (PostgresStore(postgres_url), lambda: psycopg.connect(postgres_url)),
    ):
        await store.acquire("service", "a")
        connection: Any = connect()
        found = {column[0] for column in connection.execute("SELECT * FROM schedule_runs").description}
        connection.close()
        await store.close()
        assert found - INSIDE == FACTS


def test_what_an_executor_would_tell_beyond_that_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        key = "f" * 64
        for field in ("output", "nodes", "dag", "logs"):
            answer = client.post(f"/runs/{key}/status", json={"status": "SUCCESS", field: "x"})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
        description = client.get("/openapi.json").json()["components"]["schemas"]["RunView"]["properties"]
        assert set(description) - {"phase", "outcome", "sentence", "retry_at"} == FACTS - {
            "namespace",
            "updated_at",
        }
