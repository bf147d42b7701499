"""The service over real HTTP: `kron serve` as a process, asked by a client (SPEC 3: 4, 7, 9, 10)."""

import gzip
import json
import sqlite3
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator

from kron.fronts.service.url import cursor_of
from tests.service.executor import executing
from tests.service.server import serving
from tests.service.test_registrar import WRONG
from tests.waiting import wait_for

WORK = {"workflow_id": "wf", "version": 3, "user_id": "ann"}
YEARLY = {**WORK, "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
JSON = "application/json"
NDJSON = {"content-type": "application/x-ndjson"}
SECONDLY = {**WORK, "cron_expr": "* * * * * *", "timezone": "UTC"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("serve"), KRON_MAX_BODY="20000", KRON_MAX_PAGE="50") as (client, _):
        yield client


def upserted(client: httpx.Client, name: str, **fields: object) -> httpx.Response:
    answer = client.post("/schedules/upsert", json={**YEARLY, "schedule_id": name, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def problem_of(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """Check that an answer is a problem document, and return it."""
    document: dict[str, object] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, document["status"], document["code"]) == (status, status, code), document
    assert document["type"] == f"urn:kron:error:{code}"
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


def test_a_schedule_is_stored_and_given_back(client: httpx.Client) -> None:
    answer = upserted(client, "stored", start_at="2030-06-01T00:00:00Z", jitter_ms=5)
    assert answer.json()["next_run_at"] == "2031-01-01T00:00:00Z"
    found = client.get("/schedules/stored")
    assert found.headers["etag"] == answer.headers["etag"]
    document = found.json()
    assert {name: document[name] for name in YEARLY} == YEARLY
    assert (document["overlap_policy"], document["catchup_policy"], document["paused"]) == (
        "skip",
        "none",
        False,
    )
    assert (len(document["preview"]), document["start_at"]) == (5, "2030-06-01T00:00:00Z")


@pytest.mark.parametrize(("fields", "path"), WRONG)
def test_what_the_registrar_refuses_is_a_bad_request_with_its_path(
    client: httpx.Client, fields: dict[str, object], path: str
) -> None:
    asked = {**YEARLY, "schedule_id": "wrong", **fields}
    # Escaped, for the client would refuse half a character.
    answer = client.post("/schedules/upsert", content=json.dumps(asked), headers={"content-type": JSON})
    problems = problem_of(answer, 400, "invalid_schedule")["problems"]
    assert isinstance(problems, list)
    assert [problem["path"] for problem in problems] == [path]
    problem_of(client.get("/schedules/wrong"), 404, "unknown_schedule")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[1]", id="no object"),
        pytest.param(b'{"cron_expr": "\\ud800", "timezone": NaN, "workflow_id": 1e999}', id="odd values"),
        pytest.param(b"[" * 10_000, id="deep"),
        pytest.param(b'{"version": ' + b"9" * 5_000 + b"}", id="a long number"),
        pytest.param(b"\xff\xfe{}", id="not UTF-8"),
    ],
)
def test_whatever_is_sent_is_answered_with_a_problem(client: httpx.Client, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/schedules/upsert", content=content, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_request_that_is_too_large_is_refused(client: httpx.Client) -> None:
    answer = client.post("/schedules/upsert", json={**YEARLY, "schedule_id": "x" * 20_000})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_requests_have_ids_given_or_made(client: httpx.Client) -> None:
    given = client.get("/healthz", headers={"X-Request-Id": "mine-1"})
    assert given.headers.get_list("x-request-id") == ["mine-1"]
    assert client.get("/healthz", headers={"X-Request-Id": "x" * 200}).headers["x-request-id"] != "x" * 200


def test_what_is_unknown_is_not_found(client: httpx.Client) -> None:
    problem_of(client.get("/nothing"), 404, "not_found")
    problem_of(client.put("/schedules/upsert"), 405, "method_not_allowed")
    pause = {"schedule_id": "nobody", "paused": True}
    for answer in (
        client.post("/schedules/pause", json=pause),
        client.delete("/schedules/nobody"),
        client.get("/schedules/nobody"),
        client.get("/schedules/nobody/runs"),
        client.post("/schedules/nobody/run"),
        client.post("/schedules/nobody/resume-preview"),
        client.get("/schedules/nobody/periods/2026-01-01T00:00:00Z/why"),
    ):
        problem_of(answer, 404, "unknown_schedule")
    problem_of(client.get("/schedules/%00"), 404, "unknown_schedule")
    problem_of(client.get("/schedules/%ff"), 400, "invalid_option")
    problem_of(client.post("/runs/%00/status", json={"status": "SUCCESS"}), 404, "unknown_run")
    assert client.get("/schedules?search=%00").json()["schedules"] == []
    problem_of(client.post(f"/runs/{'f' * 64}/status", json={"status": "SUCCESS"}), 404, "unknown_run")


@pytest.mark.parametrize("name", ["prod/db-backup", "a b%2F?#&", "ünï/cøde 😀", "upsert", "x/runs", ".."])
def test_any_name_can_be_asked_for(client: httpx.Client, name: str) -> None:
    upserted(client, name)
    place = f"/schedules/{quote(name, safe='').replace('.', '%2E')}"
    assert client.get(place).json()["schedule_id"] == name
    assert client.get(f"{place}/runs").json()["runs"] == []
    assert client.delete(place).status_code == 204
    assert client.get(place).status_code == 404


def test_writes_can_be_made_to_depend_on_what_was_seen(client: httpx.Client) -> None:
    seen = upserted(client, "guarded").headers["etag"]
    document = {**YEARLY, "schedule_id": "guarded", "version": 4}
    again = client.post("/schedules/upsert", json=document, headers={"If-None-Match": "*"})
    problem_of(again, 412, "schedule_changed")
    newer = client.post("/schedules/upsert", json=document, headers={"If-Match": seen})
    assert newer.status_code == 200
    pause = {"schedule_id": "guarded", "paused": True}
    problem_of(
        client.post("/schedules/pause", json=pause, headers={"If-Match": seen}), 412, "schedule_changed"
    )
    problem_of(client.delete("/schedules/guarded", headers={"If-Match": seen}), 412, "schedule_changed")
    headers = {"If-Match": newer.headers["etag"]}
    assert client.delete("/schedules/guarded", headers=headers).status_code == 204


def test_schedules_are_listed_searched_and_paged(client: httpx.Client) -> None:
    for number in range(7):
        upserted(client, f"listed-{number}", user_id=f"user {number % 2}", paused=number == 3)
    found: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        page = client.get("/schedules", params={"search": "LISTED-", "limit": "2", **cursor}).json()
        found += [schedule["schedule_id"] for schedule in page["schedules"]]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
    assert found == [f"listed-{number}" for number in range(7)]
    assert not cursor
    odd = client.get("/schedules", params={"search": "listed", "user_id": "user 1", "paused": "false"}).json()
    assert [schedule["schedule_id"] for schedule in odd["schedules"]] == ["listed-1", "listed-5"]
    for params in ({"limit": "0"}, {"limit": "51"}):
        problem_of(client.get("/schedules", params=params), 400, "invalid_option")
    for params in ({"limit": "x"}, {"paused": "maybe"}):
        document = problem_of(client.get("/schedules", params=params), 400, "invalid_request")
        assert f'"value":"{next(iter(params.values()))}"' in json.dumps(document, separators=(",", ":"))
    for text in ("x", "é", "bnVsbA", "WzFd", "WzEsMl0", cursor_of(["\0"]), cursor_of(["\ud800"])):
        problem_of(client.get("/schedules", params={"cursor": text}), 400, "invalid_option")


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (b"", "application/json", "body: is missing; send a JSON object"),
        (b"{", "application/json", "body: is not JSON at character 1: Expecting property name"),
        (b"null", "application/json", "body: must be a JSON object"),
        (b"[]", "application/json", "body: must be a JSON object"),
        (b"[" * 20_000, "application/json", "body: cannot be parsed: send JSON"),
        (b"9" * 10_000, "application/json", "body: cannot be parsed: send JSON"),
        (gzip.compress(b"{}", mtime=0), "application/json", "body: cannot be parsed: send JSON in UTF-8"),
        (b'{"schedule_id":"x","start_at":"2026-01-01"}', "application/json", "use 2026-01-01T00:00:00Z"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_what_it_should_be(
    body: bytes, content_type: str, said: str, client: httpx.Client
) -> None:
    headers = {"content-type": content_type}
    answer = client.post("/schedules/upsert", content=body, headers=headers)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("value", [False, 1, 0.0])
def test_a_field_beside_the_launcher_and_in_it_must_be_the_same(client: httpx.Client, value: object) -> None:
    workflow = {"workflow_id": "wf", "version": 0, "user_id": "ann"}
    launcher = {"kind": "log", "version": value}
    spec = {"cron_expr": "0 3 * * *", "timezone": "UTC", **workflow, "launcher": launcher}
    problem = problem_of(client.post("/schedules/upsert", json=spec), 400, "invalid_schedule")
    expected = {
        "path": "version",
        "value": "0",
        "reason": "differs from launcher.version; use one of the two",
    }
    assert problem["problems"] == [expected]


def test_many_are_stored_line_by_line_and_a_wrong_line_is_named(client: httpx.Client) -> None:
    lines = [json.dumps({**YEARLY, "schedule_id": f"bulk-{number:04}"}) for number in range(2_500)]
    answer = client.post("/schedules/bulk", content="\n".join(lines) + "\n\n", headers=NDJSON)
    assert answer.json() == {"upserted": 2_500, "batches": 3}
    wrong = [*(line.replace("bulk-", "next-") for line in lines[:1_200])]
    wrong[1_100], wrong[1_150] = "{", wrong[1_150].replace("UTC", "Mars")
    refused = client.post("/schedules/bulk", content="\n".join(wrong), headers=NDJSON)
    document = problem_of(refused, 400, "invalid_lines")
    problems = document["problems"]
    assert isinstance(problems, list)
    assert [problem["line"] for problem in problems] == [1_101, 1_151]
    assert document["stored"] == 1_000
    assert client.get("/schedules/next-0999").status_code == 200
    assert client.get("/schedules/next-1000").status_code == 404
    assert client.post("/schedules/bulk", content="x" * 30_000, headers=NDJSON).status_code == 400


def test_a_schedule_that_is_not_stored_can_be_previewed(client: httpx.Client) -> None:
    asked = {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}
    document = client.post("/preview", params={"count": 50}, json=asked).json()
    assert len(document["times"]) == 50
    assert document["sentence"]
    problem_of(client.post("/preview", json={**asked, "cron_expr": "x"}), 400, "invalid_schedule")


def test_a_preview_lists_the_clock_changes_of_a_year_that_affect_the_schedule(client: httpx.Client) -> None:
    nightly = {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}
    spring = {**nightly, "start_at": "2040-03-23T00:00:00Z", "end_at": "2040-04-01T00:00:00Z"}
    document = client.post("/preview", params={"count": 50}, json=spring).json()
    assert [time["run_at"] for time in document["times"]] == [
        *(f"2040-03-{day}T01:30:00Z" for day in (23, 24)),
        *(f"2040-03-{day}T00:30:00Z" for day in range(26, 32)),
    ]
    assert [(note["at"], note["mark"]) for note in document["clock_changes"]] == [
        ("2040-03-25T01:00:00Z", "skipped")
    ]
    summer = {**nightly, "start_at": "2040-05-01T00:00:00Z", "remaining": 3}
    document = client.post("/preview", params={"count": 50}, json=summer).json()
    assert (len(document["times"]), document["clock_changes"]) == (3, [])
    document = client.post("/preview", json={**nightly, "start_at": "2040-05-01T00:00:00Z"}).json()
    assert [(note["at"][:10], note["mark"]) for note in document["clock_changes"]] == [
        ("2040-10-28", "first_of_two"),
        ("2040-10-28", "second_of_two"),
        ("2041-03-31", "skipped"),
    ]


def test_a_run_by_hand_is_asked_for_once(client: httpx.Client) -> None:
    upserted(client, "by-hand")
    first = client.post("/schedules/by-hand/run", json={"request_id": "one"})
    again = client.post("/schedules/by-hand/run", headers={"Idempotency-Key": "one"})
    other = client.post("/schedules/by-hand/run")
    assert [answer.status_code for answer in (first, again, other)] == [202] * 3
    assert first.json()["idempotency_key"] == again.json()["idempotency_key"]
    assert first.json()["idempotency_key"] == sha256(b"by-hand:manual:one").hexdigest()

    def ended() -> bool:
        runs = client.get("/schedules/by-hand/runs").json()["runs"]
        return len(runs) == 2 and all(run["status"] == "SUCCESS" for run in runs)

    wait_for(ended)


def test_a_backfill_is_counted_then_asked_for(client: httpx.Client) -> None:
    upserted(client, "filled")
    asked = {"from": "2020-01-01T00:00:00Z", "to": "2024-01-01T00:00:00Z", "dry_run": True}
    foreseen = client.post("/schedules/filled/backfill", json=asked).json()
    assert (foreseen["count"], foreseen["dry_run"]) == (4, True)
    done = client.post("/schedules/filled/backfill", json={**asked, "dry_run": False})
    assert (done.status_code, done.json()["count"]) == (202, 4)
    keys = [run["idempotency_key"] for run in done.json()["runs"]]
    assert keys[0] == sha256(b"filled:1577836800").hexdigest()
    for wrong in ({"from": "x"}, {"to": "2019-01-01T00:00:00Z"}, {"to": "2024-01-01"}):
        answer = client.post("/schedules/filled/backfill", json={**asked, **wrong})
        problem_of(answer, 400, "invalid_option")
    answer = client.post("/schedules/filled/backfill", json={**asked, "only": "some"})
    problem_of(answer, 400, "invalid_option")


def test_process_launchers_are_off_unless_the_settings_name_the_command(client: httpx.Client) -> None:
    launcher = {"kind": "process", "command": ["/bin/sh", "-c", "true"]}
    asked = {**YEARLY, "schedule_id": "process", "launcher": launcher}
    problem_of(client.post("/schedules/upsert", json=asked), 400, "invalid_schedule")


def test_the_description_has_every_route_with_examples_and_is_valid(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    assert {(method.upper(), path) for path, methods in document["paths"].items() for method in methods} == {
        ("POST", "/schedules/upsert"),
        ("POST", "/schedules/bulk"),
        ("POST", "/schedules/pause"),
        ("DELETE", "/schedules/{schedule_id}"),
        ("GET", "/schedules/{schedule_id}"),
        ("GET", "/schedules"),
        ("GET", "/definitions"),
        ("POST", "/definitions"),
        ("GET", "/schedules/{schedule_id}/runs"),
        ("GET", "/runs"),
        ("POST", "/schedules/{schedule_id}/run"),
        ("POST", "/schedules/{schedule_id}/backfill"),
        ("GET", "/schedules/{schedule_id}/periods/{period_id}/runs"),
        ("GET", "/schedules/{schedule_id}/periods/{period_id}/why"),
        ("GET", "/schedules/{schedule_id}/output"),
        ("POST", "/preview"),
        ("POST", "/schedules/{schedule_id}/resume-preview"),
        ("POST", "/runs/{idempotency_key}/status"),
        ("PUT", "/workflows/{workflow_id}/versions/{version}"),
        ("GET", "/workflows/{workflow_id}/versions/{version}"),
        ("GET", "/workflows/{workflow_id}"),
        ("POST", "/run-launcher/start"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/audit"),
        ("GET", "/workers"),
        ("POST", "/workers/drain"),
        ("GET", "/metrics"),
        ("GET", "/admin/log-level"),
        ("PUT", "/admin/log-level"),
    }
    upsert = document["paths"]["/schedules/upsert"]["post"]
    body = upsert["requestBody"]["content"]["application/json"]
    example = body["examples"]["report"]["value"]
    Draft202012Validator(body["schema"]).validate(example)
    assert client.post("/schedules/upsert", json=example).status_code == 200
    assert "422" not in upsert["responses"]
    assert client.get("/docs").status_code == 200


def test_it_is_healthy_and_ready(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    wait_for(lambda: client.get("/readyz").json()["worker"] == "running")
    assert client.get("/readyz").status_code == 200


def test_a_launch_that_is_refused_is_recorded_with_the_reason(client: httpx.Client) -> None:
    """Its executor is a path of this very service that does not exist, so no retry can help."""
    upserted(client, "refused", launcher={"kind": "http", "url": f"{client.base_url}/nowhere"})
    client.post("/schedules/refused/run")

    def ended() -> list[dict[str, object]]:
        runs: list[dict[str, object]] = client.get("/schedules/refused/runs").json()["runs"]
        return [run for run in runs if run["ended_at"] is not None]

    (run,) = wait_for(ended)
    assert (run["status"], run["outcome"], run["result"]) == ("FAILED", "executed", "launch_failed")
    assert "answered 404 Not Found" in str(run["error"])


def test_a_schedule_is_paused_and_resumed(client: httpx.Client) -> None:
    upserted(client, "paused")
    for paused in (True, True, False, False):
        answer = client.post("/schedules/pause", json={"schedule_id": "paused", "paused": paused})
        assert (answer.status_code, answer.json()["paused"]) == (200, paused)
        assert client.get("/schedules/paused").json()["paused"] is paused


def test_schedules_run_and_their_executor_reports(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, _):
        launcher = {"kind": "http", "url": executor.url, "reports": True}
        upserted(client, "fast", **{**SECONDLY, "launcher": launcher})
        wait_for(lambda: executor.sent)
        sent = executor.sent[0]
        assert {name: sent.document[name] for name in WORK} == WORK
        key = str(sent.document["idempotency_key"])
        assert sent.headers["idempotency-key"] == key
        wait_for(lambda: client.get("/runs", params={"status": "SKIPPED"}).json()["runs"])
        answer = client.post(f"/runs/{key}/status", json={"status": "SUCCESS", "run_id": "x-1"})
        assert (answer.json()["status"], answer.json()["run_id"]) == ("SUCCESS", "x-1")
        late = client.post(f"/runs/{key}/status", json={"status": "FAILED"})
        assert late.json()["status"] == "SUCCESS"
        wait_for(lambda: len(executor.sent) > 1)
        runs = client.get("/schedules/fast/runs").json()["runs"]
        first = runs[-1]
        assert first["idempotency_key"] == key
        why = client.get(f"/schedules/fast/periods/{first['run_at']}/why").json()
        assert (why["outcome"], why["code"]) == ("executed", "ended")
        assert client.post("/schedules/pause", json={"schedule_id": "fast", "paused": True}).json()["paused"]
        foreseen = client.post("/schedules/fast/resume-preview").json()
        assert foreseen["would_start"] == 0
        assert (
            client.post("/schedules/pause", json={"schedule_id": "fast", "paused": False}).status_code == 200
        )


def test_what_is_valid_at_the_wrong_moment_is_a_conflict(client: httpx.Client) -> None:
    upserted(client, "local")
    key = client.post("/schedules/local/run").json()["idempotency_key"]
    problem_of(client.post(f"/runs/{key}/status", json={"status": "SUCCESS"}), 409, "conflict")


@pytest.mark.slow
def test_a_store_that_cannot_be_used_is_said_and_the_service_goes_on_when_it_can(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _), sqlite3.connect(tmp_path / "kron.db") as database:
        upserted(client, "stored")
        database.execute("ALTER TABLE jobs RENAME TO jobs_away")
        database.commit()
        refused = client.get("/schedules/stored")
        problem_of(refused, 503, "store_error")
        assert refused.headers["Retry-After"] == "1"
        wait_for(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/healthz").status_code == 200
        database.execute("ALTER TABLE jobs_away RENAME TO jobs")
        database.commit()
        assert client.get("/schedules/stored").status_code == 200
        wait_for(lambda: client.get("/readyz").json() == {"status": "ok", "worker": "running", "error": None})
    database.close()


def test_a_response_has_exactly_the_fields_that_are_described(client: httpx.Client) -> None:
    upserted(client, "described", retry_delay="5m", window={"duration": "1h"}, remaining=3)
    client.post("/schedules/described/run")
    shapes = client.get("/openapi.json").json()["components"]["schemas"]
    responses = {
        "ScheduleWithPreview": client.get("/schedules/described").json(),
        "Schedule": client.get("/schedules", params={"search": "described"}).json()["schedules"][0],
        "RunView": client.get("/schedules/described/runs").json()["runs"][0],
    }
    for name, document in responses.items():
        assert set(shapes[name]["properties"]) == set(shapes[name]["required"]) == set(document), name
        Draft202012Validator({**shapes[name], "components": {"schemas": shapes}}).validate(document)
