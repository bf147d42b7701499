"""The id of a request is in every log line about the run it requested, in every process (real processes)."""

import json
import signal
from pathlib import Path

import pytest

from kron.app.backfill import PeriodRange
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunRecord, RunStatus
from kron.fronts.service.auth.principal import PROGRAM, acting_as, current_request_id
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.runs import backfill_schedule, run_now
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.request_trail import MAX_KNOWN, RequestTrail
from kron.testing.faulty_store import Fault, FaultyStore, Injected
from tests.service.executor import executing
from tests.service.registrar_rig import HOURLY, MINUTELY, office_on
from tests.service.server import Process, process, serving
from tests.waiting import wait_for

YEARLY = {"schedule_id": "s", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
JSON = {"KRON_LOG_FORMAT": "json", "KRON_LOG_LEVEL": "debug"}
TICKET = {"X-Request-Id": "ticket-12"}


def lines_of(server: Process, event: str) -> list[dict[str, object]]:
    whole = [line for line in list(server.log) if line.startswith("{") and line.endswith("}\n")]
    return [line for line in map(json.loads, whole) if line.get("event") == event]


def wait_for_lines(server: Process, event: str, count: int = 1) -> list[dict[str, object]]:
    wait_for(lambda: len(lines_of(server, event)) >= count, lambda: "".join(server.log))
    return lines_of(server, event)


def test_a_run_asked_for_over_http_is_asked_started_and_ended_under_the_id_of_the_request(
    tmp_path: Path,
) -> None:
    launcher = {"kind": "process", "command": ["/bin/sh", "-c", "echo $KRON_REQUEST_ID > asked"]}
    variables = {**JSON, "KRON_ALLOWED_COMMANDS": "/bin/sh"}
    with serving(tmp_path, **variables) as (client, server):
        client.post("/schedules/upsert", json={**YEARLY, "launcher": {**launcher, "cwd": str(tmp_path)}})
        client.post("/schedules/s/run", headers=TICKET).raise_for_status()
        for event in ("asked", "started", "ended"):
            (line,) = wait_for_lines(server, event)
            assert (event, line["request_id"], line.get("via_request_id")) == (event, "ticket-12", None)
    assert (tmp_path / "asked").read_text() == "ticket-12\n"


@pytest.mark.slow
def test_the_line_of_an_end_that_an_executor_reports_has_both_requests(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path, **JSON) as (client, server):
        client.post("/schedules/upsert", json={**YEARLY, "launcher": {"kind": "http", "url": executor.url}})
        run = client.post("/schedules/s/run", headers=TICKET).json()
        wait_for_lines(server, "started")
        wait_for(lambda: executor.sent)
        report = {"status": "FAILED", "error": "no"}
        place = f"/runs/{run['idempotency_key']}/status"
        client.post(place, json=report, headers={"X-Request-Id": "report-1"}).raise_for_status()
        (line,) = wait_for_lines(server, "ended")
        assert (line["request_id"], line["via_request_id"]) == ("ticket-12", "report-1")


@pytest.mark.slow
def test_every_run_of_a_backfill_is_started_under_its_request(tmp_path: Path) -> None:
    """Also those of which the audit says no more than how many they were."""
    with executing() as executor, serving(tmp_path, **JSON) as (client, server):
        launcher = {"kind": "http", "url": executor.url}
        hourly = {**YEARLY, "cron_expr": "0 * * * *", "overlap_policy": "allow", "launcher": launcher}
        client.post("/schedules/upsert", json=hourly)
        span = {"from": "2024-01-01T00:00:00Z", "to": "2024-01-07T00:00:00Z"}
        answer = client.post("/schedules/s/backfill", json=span, headers=TICKET).json()
        assert answer["count"] == 144
        started = wait_for_lines(server, "started", 144)
        assert {line["request_id"] for line in started} == {"ticket-12"}


@pytest.mark.slow
def test_another_process_than_the_one_that_was_asked_knows_the_request(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kron.db"
    with (
        executing() as executor,
        process("worker", "--store", url, folder=tmp_path, KRON_TICK_MS="50", **JSON) as worker,
    ):
        worker.logged("lease acquired")
        with serving(tmp_path, KRON_STORE=url, **JSON) as (client, server):
            launcher = {"kind": "http", "url": executor.url}
            client.post("/schedules/upsert", json={**YEARLY, "launcher": launcher})
            client.post("/schedules/s/run", headers=TICKET).raise_for_status()
            (line,) = wait_for_lines(worker, "started")
            wait_for(lambda: executor.sent)
            assert lines_of(server, "started") == []
    assert line["request_id"] == executor.sent[0].headers["x-request-id"] == "ticket-12"


@pytest.mark.slow
def test_a_run_that_ends_after_a_restart_is_still_known_by_its_request(tmp_path: Path) -> None:
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    launcher = {"kind": "process", "command": ["/bin/sh", "-c", wait], "survive": True}
    variables = {**JSON, "KRON_ALLOWED_COMMANDS": "/bin/sh", "KRON_DRAIN_MS": "0"}
    with serving(tmp_path, **variables) as (client, server):
        client.post("/schedules/upsert", json={**YEARLY, "launcher": launcher})
        client.post("/schedules/s/run", headers=TICKET).raise_for_status()
        wait_for_lines(server, "started")
        server.signal(signal.SIGTERM)
        server.ended()
    with serving(tmp_path, **variables) as (_, server):
        server.logged("lease acquired")
        (tmp_path / "go").touch()
        (line,) = wait_for_lines(server, "ended")
        assert (line["request_id"], line["result"]) == ("ticket-12", "success")


@pytest.mark.slow
def test_who_takes_over_a_start_sends_it_again_under_the_same_request(tmp_path: Path) -> None:
    with executing() as executor:
        executor.status = 503
        with serving(tmp_path, **JSON) as (client, server):
            launcher = {"kind": "http", "url": executor.url}
            client.post("/schedules/upsert", json={**YEARLY, "launcher": launcher})
            client.post("/schedules/s/run", headers=TICKET).raise_for_status()
            wait_for(lambda: executor.sent)
            server.signal(signal.SIGKILL)
            server.ended()
        before = len(executor.sent)
        executor.status = 202
        with serving(tmp_path, **JSON):
            wait_for(lambda: len(executor.sent) > before)
        assert {sent.headers.get("x-request-id") for sent in executor.sent} == {"ticket-12"}


@pytest.mark.slow
def test_what_is_handed_to_an_executor_of_workflows_has_the_id_of_who_asked(tmp_path: Path) -> None:
    with executing() as executor:
        variables = {**JSON, "KRON_EXECUTOR": json.dumps({"kind": "http", "url": executor.url})}
        with serving(tmp_path, **variables) as (client, server):
            dag = {"nodes": [{"id": "a", "type": "t"}], "triggers": []}
            client.put("/workflows/wf/versions/1", params={"user_id": "ann"}, json=dag).raise_for_status()
            start = {
                "workflow_id": "wf",
                "version": 1,
                "user_id": "ann",
                "scheduled_for": "2026-01-01T00:00:00Z",
                "idempotency_key": "k1",
            }
            client.post("/run-launcher/start", json=start, headers=TICKET).raise_for_status()
            line = json.loads(server.logged(r'\{.*"started version 1 of wf \[k1\]"\}')[0])
            assert line["request_id"] == executor.sent[0].headers["x-request-id"] == "ticket-12"
            client.post(
                "/schedules/upsert", json={**YEARLY, "workflow_id": "wf", "version": 1, "user_id": "ann"}
            )
            client.post("/schedules/s/run", headers={"X-Request-Id": "ticket-13"}).raise_for_status()
            wait_for(lambda: len(executor.sent) == 2)
            assert executor.sent[1].headers["x-request-id"] == "ticket-13"


@pytest.mark.slow
def test_lines_for_people_name_the_request_too(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, server):
        client.post("/schedules/upsert", json={**YEARLY, "launcher": {"kind": "http", "url": executor.url}})
        client.post("/schedules/s/run", headers=TICKET).raise_for_status()
        server.logged(r"kron.engine asked s .*\(request ticket-12\)")
        server.logged(r"kron.engine started s .*\(request ticket-12\)")


def a_run(key: str) -> RunRecord:
    return RunRecord(key, "s", 0, 0, RunStatus.PENDING, Reason.ASKED, 0, 1)


async def test_runs_of_several_schedules_are_followed_at_once_and_a_store_that_fails_is_asked_again() -> None:
    script = [Injected("audits", 1, Fault.BEFORE)]
    async with office_on(SqliteStore()) as office:
        for number, schedule in enumerate((HOURLY, MINUTELY)):
            await office.registrar.upsert_schedule(schedule)
            with acting_as(PROGRAM, f"ticket-{number}"):
                await run_now(office.registrar, str(schedule["schedule_id"]), "by hand")
        faulty = FaultyStore(office.store, office.clock, script=script)
        trail = RequestTrail(faulty, NAMESPACE)
        runs = [*await office.runs("hourly"), *await office.runs("minutely")]
        assert len(runs) == 2
        await trail.follow(runs)
        assert [trail.request_of(run) for run in runs] == [None, None]
        await trail.follow(runs)
        assert [trail.request_of(run) for run in runs] == ["ticket-0", "ticket-1"]
        await trail.follow(runs)
        assert faulty.calls["audits"] == 2


async def test_of_a_long_backfill_also_those_are_followed_that_the_audit_does_not_name() -> None:
    async with office_on(SqliteStore()) as office:
        await office.registrar.upsert_schedule(HOURLY)
        start = 1_704_067_200
        with acting_as(PROGRAM, "ticket"):
            span = PeriodRange(start=start, end=start + 144 * 3600)
            answer = await backfill_schedule(office.registrar, "hourly", span)
        assert answer["count"] == 144
        trail = RequestTrail(office.store, NAMESPACE)
        runs = await office.store.runs("service", "hourly", limit=200)
        await trail.follow(runs)
        assert [trail.request_of(run) for run in runs] == ["ticket"] * 144


async def test_so_many_runs_are_remembered_and_no_more() -> None:
    trail = RequestTrail(SqliteStore(), NAMESPACE, current_request_id)
    with acting_as(PROGRAM, "ticket"):
        trail.begin(a_run(str(number)) for number in range(MAX_KNOWN + 1))
    assert trail.request_of(a_run("0")) is None
    assert trail.request_of(a_run("1")) == trail.request_of(a_run(str(MAX_KNOWN))) == "ticket"
    assert trail.request_of(a_run("1")._replace(reason=Reason.DUE)) is None
