"""An edit that lifts `policy.suspend` says first how many periods start, on every way to make it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kron.cli.main import GOOD, NO, run
from kron.fronts.service.app import app_of
from kron.fronts.service.definitions import ApplyRequest, apply_jobs
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.engine_stage import MINUTE, NOON, SPACE, Stage, stage_on

assert SPACE == NAMESPACE
LAUNCHER = {"kind": "log"}
JOB: dict[str, Any] = {
    "identity": "often",
    "schedule": "* * * * *",
    "launcher": LAUNCHER,
    "policy": {"catchup": "all", "overlap": "allow", "deadline": "3m", "suspend": True},
}
LIFTED = {**JOB, "policy": {**JOB["policy"], "suspend": False}}
# Ten minutes later: the deadline leaves four of ten periods.
EFFECT = {"would_start": 4, "would_wait": 0, "would_drop": {"deadline": 6}}
# By the real clock a minute may pass between two steps.
RUNS_AGAIN = re.compile(
    r"(! often|it) runs again: [34] runs would start, \d+ periods would be dropped \(deadline\)"
)
WORDS = "4 runs would start, 6 periods would be dropped (deadline)"


class Service:
    """A service over a store file in virtual time, with a schedule suspended for ten minutes."""

    def __init__(self, stage: Stage, store: SqliteStore, url: str) -> None:
        self.stage, self.store, self.url = stage, store, url
        app = app_of(Registrar(store, stage.clock), Settings())
        self.web = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")

    async def post(self, path: str, **document: object) -> dict[str, Any]:
        answer = await self.web.post(path, json=document)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def is_suspended(self) -> bool:
        ((job, *_),) = await self.store.cases(NAMESPACE)
        return bool(job.suspended)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    store = SqliteStore(str(tmp_path / "kron.db"))
    async with stage_on(store) as stage:
        made = Service(stage, store, f"sqlite:///{tmp_path / 'kron.db'}")
        await made.post("/definitions", jobs=[JOB])
        await stage.until(NOON + 10 * MINUTE)
        yield made
        await made.web.aclose()
    await store.close()


async def test_an_upsert_says_it_before_and_with_the_write(service: Service) -> None:
    document = {"schedule_id": "often", "cron_expr": "* * * * *", "timezone": "UTC", **LIFTED}
    del document["identity"], document["schedule"]
    for query in ("?dry_run=true", ""):
        assert await service.is_suspended()
        receipt = await service.post(f"/schedules/upsert{query}", **document)
        assert {name: receipt[name] for name in EFFECT} == EFFECT
        assert receipt["starts"][0] == "2026-01-01T12:07:00Z"
        assert receipt["next_run_at"] == "2026-01-01T12:11:00Z"
    assert not await service.is_suspended()
    assert "would_start" not in await service.post("/schedules/upsert", **document)


async def test_applied_definitions_say_it_before_and_with_the_write(service: Service) -> None:
    for dry_run in (True, False):
        assert await service.is_suspended()
        answer = await service.post("/definitions", jobs=[LIFTED], dry_run=dry_run)
        assert answer["changes"][0]["effect"] == {**EFFECT, "starts": [
            f"2026-01-01T12:{minute:02}:00Z" for minute in (7, 8, 9, 10)]}  # fmt: skip
    assert not await service.is_suspended()
    assert "effect" not in (await service.post("/definitions", jobs=[LIFTED]))["changes"][0]


async def test_the_edit_page_says_it_in_its_plan(service: Service) -> None:
    etag = (await service.web.get("/schedules/often")).json()["etag"]
    fields = {"definition": json.dumps(LIFTED), "etag": etag, "do": "plan"}
    page = await service.web.post(
        "/ui/schedule/edit", params={"id": "often"}, data=fields, headers={"Origin": "http://127.0.0.1"}
    )
    assert f"The schedule runs again: {WORDS}." in page.text, page.text
    assert await service.is_suspended()


def test_the_command_line_says_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By the real clock, ten minutes after a clock of its own."""
    store, file = f"sqlite:///{tmp_path / 'kron.db'}", tmp_path / "jobs.json"
    asyncio.run(applied_before(tmp_path / "kron.db"))
    file.write_text(json.dumps({"jobs": [LIFTED]}))
    for command in ("diff", "apply"):
        assert run((command, str(file), "--store", store)) == NO
        assert RUNS_AGAIN.search(capfd.readouterr().out)
    command_line = ("schedules", "upsert", "--id", "often", "--cron", "* * * * *", "--tz", "UTC", "--dry-run")
    fields = ('launcher={"kind": "log"}', f"policy={json.dumps(LIFTED['policy'])}")
    options = [word for field in fields for word in ("--set", field)]
    assert run((*command_line, *options, "--store", store)) == GOOD
    assert RUNS_AGAIN.search(capfd.readouterr().out)
    assert run(("diff", str(file), "--store", store)) == NO, "a dry run writes nothing"


async def applied_before(path: Path) -> None:
    """Store the suspended schedule about ten minutes ago."""
    present = datetime.now(UTC).replace(second=0, microsecond=0)
    store = SqliteStore(str(path))
    registrar = Registrar(store, SimulatedClock(present - timedelta(minutes=9, seconds=30)))
    request = ApplyRequest([JOB])
    await apply_jobs(registrar, request, compute=registrar.compute_pool.run)
    await store.close()
