"""Workflows over real HTTP: deployed, started when due, and handed to executors (SPEC 3: 2, 4, 5, 12)."""

import json
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from kron.launchers.http.launcher import is_signed
from tests.service.flaky import Flaky, Sent, flaky
from tests.service.server import process, serving
from tests.service.test_http import problem_of
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

NODES = [{"id": "fetch", "type": "http", "url": "x"}, {"id": "mail", "type": "mail", "dependsOn": ["fetch"]}]
SECRET = "only both sides know this long secret"
START = {"workflow_id": "wf", "version": 1, "user_id": "ann", "scheduled_for": "2026-06-01T06:30:00Z"}


def dag(cron: str | None = "0 0 1 1 *", **fields: object) -> dict[str, object]:
    trigger = {"id": "t", "type": "schedule_based", "schedule": {"cron_expr": cron, **fields}}
    return {
        "user_id": "ann",
        "triggers": [trigger] if cron else [],
        "nodes": NODES,
        "odd": ["ü", 1.5, None],
    }


def put(client: httpx.Client, version: int = 1, document: object = None, name: str = "wf") -> httpx.Response:
    return client.put(f"/workflows/{name}/versions/{version}", json=dag() if document is None else document)


def runs_of(client: httpx.Client, name: str = "wf/t") -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get(f"/schedules/{name.replace('/', '%2F')}/runs").json()["runs"]
    return found


def executor_of(url: str, **fields: object) -> str:
    return json.dumps({"kind": "http", "url": url, "timeout": "2s", **fields})


@pytest.fixture(scope="module")
def executor() -> Iterator[Flaky]:
    with flaky() as executor:
        yield executor


@pytest.fixture(scope="module")
def client(executor: Flaky, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    variables = {
        "KRON_EXECUTOR": executor_of(executor.url),
        "KRON_SIGNING_SECRET": SECRET,
        "KRON_WORKFLOWS": "workflows",
    }
    with serving(tmp_path_factory.mktemp("workflows"), **variables) as (client, _):
        yield client


# --- deploying -------------------------------------------------------------------------------------


def test_a_version_is_deployed_and_given_back(client: httpx.Client) -> None:
    answer = put(client, name="given")
    assert (answer.status_code, answer.json()["newest_version"]) == (201, 1)
    (upserted,) = answer.json()["upserted"]
    assert upserted["schedule_id"] == "given/t"
    assert client.get("/schedules/given%2Ft").json()["next_run_at"] == upserted["next_run_at"]
    assert put(client, name="given").status_code == 200
    found = client.get("/workflows/given/versions/1").json()
    assert (found["dag"], found["user_id"], found["version"]) == (dag(), "ann", 1)
    assert put(client, 3, dag(cron=None), name="given").json()["retired"] == ["given/t"]
    problem_of(client.get("/schedules/given%2Ft"), 404, "unknown_schedule")
    assert [each["version"] for each in client.get("/workflows/given").json()["versions"]] == [3, 1]
    assert len(client.get("/workflows/given", params={"limit": 1}).json()["versions"]) == 1


def test_a_version_is_never_changed(client: httpx.Client) -> None:
    put(client, name="fixed")
    problem = problem_of(put(client, 1, dag("5 5 * * *"), name="fixed"), 409, "version_exists")
    assert "is immutable" in str(problem["detail"])
    assert client.get("/schedules/fixed%2Ft").json()["cron_expr"] == "0 0 1 1 *"


def test_a_dry_run_writes_nothing(client: httpx.Client) -> None:
    answer = client.put("/workflows/dry/versions/1", json=dag(), params={"dry_run": True})
    assert (answer.status_code, answer.json()["upserted"][0]["schedule_id"]) == (200, "dry/t")
    problem_of(client.get("/workflows/dry"), 404, "unknown_workflow")
    problem_of(client.get("/schedules/dry%2Ft"), 404, "unknown_schedule")


def test_the_user_stands_in_the_dag_or_in_the_request(client: httpx.Client) -> None:
    bare = {name: value for name, value in dag().items() if name != "user_id"}
    problem = problem_of(put(client, 1, bare, name="user"), 400, "invalid_workflow")
    assert "user_id" in str(problem["problems"])
    assert client.put("/workflows/user/versions/1", json=bare, params={"user_id": "bob"}).status_code == 201
    assert client.get("/workflows/user/versions/1").json()["user_id"] == "bob"
    both = client.put("/workflows/user/versions/2", json=dag(), params={"user_id": "bob"})
    problem_of(both, 400, "invalid_workflow")


@pytest.mark.parametrize(
    ("name", "document", "path"),
    [
        (
            "wrong",
            {"user_id": "ann", "nodes": [{"id": "a", "type": "t", "dependsOn": ["b"]}]},
            "nodes.0.dependsOn",
        ),
        ("wrong", dag("not cron"), "triggers.0.schedule.cron_expr"),
        ("..%2Fup", dag(), "workflow_id"),
        ("a%00b", dag(), "workflow_id"),
    ],
)
def test_what_is_wrong_is_a_problem_with_its_path(
    client: httpx.Client, name: str, document: object, path: str
) -> None:
    problem = problem_of(put(client, 1, document, name=name), 400, "invalid_workflow")
    problems = problem["problems"]
    assert isinstance(problems, list)
    assert [each["path"] for each in problems] == [path]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"7", b"[" * 10_000, b'{"nodes": NaN}', b"\xff"])
def test_whatever_is_sent_is_answered_with_a_problem(client: httpx.Client, content: bytes) -> None:
    for method, path in (("PUT", "/workflows/odd/versions/1"), ("POST", "/run-launcher/start")):
        answer = client.request(method, path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


def test_what_is_too_large_is_refused(client: httpx.Client) -> None:
    assert put(client, 1, {**dag(), "long": "x" * 1_100_000}, name="large").status_code == 413
    problem_of(put(client, 1, {**dag(), "long": "ü" * 300_000}, name="large"), 400, "invalid_workflow")


@pytest.mark.parametrize(
    "path",
    ["/workflows/nobody", "/workflows/nobody/versions/1", "/workflows/..%2Fx", "/workflows/..%2Fx/versions/1",
     "/workflows/given/versions/-1", "/workflows/given/versions/99999999999999", "/workflows/%00/versions/1"],
)  # fmt: skip
def test_what_is_unknown_is_not_found(client: httpx.Client, path: str) -> None:
    problem_of(client.get(path), 404, "unknown_workflow")


# --- the run launcher ------------------------------------------------------------------------------


def started(client: httpx.Client, key: str, **fields: object) -> httpx.Response:
    return client.post("/run-launcher/start", json={**START, "idempotency_key": key, **fields})


def sent_for(executor: Flaky, key: str) -> list[Sent]:
    return [sent for sent in executor.sent if sent.headers["idempotency-key"] == key]


def test_the_executor_gets_dag_and_meta_signed_and_a_repeated_start_is_made_once(
    client: httpx.Client, executor: Flaky
) -> None:
    put(client)
    first = started(client, "one")
    assert (first.status_code, first.json()) == (202, {"accepted": True, "run_id": "r-1", "repeated": False})
    again = started(client, "one")
    assert (again.status_code, again.json()["repeated"]) == (202, True)
    (sent,) = sent_for(executor, "one")
    assert sent.document == {
        "dag": dag(),
        "meta": {
            "source": "schedule",
            "user_id": "ann",
            "scheduled_for": "2026-06-01T06:30:00Z",
            "idempotency_key": "one",
            "workflow_id": "wf",
            "version": 1,
            "schedule_id": "wf",
            "attempt": 1,
            "fencing_token": 0,
            "data_interval_start": "2026-06-01T06:30:00Z",
            "data_interval_end": "2026-06-01T06:30:00Z",
        },
    }
    signed_at = int(sent.headers["kron-timestamp"])
    assert is_signed(SECRET.encode(), sent.headers, sent.body, now=signed_at)
    assert not is_signed(b"another secret", sent.headers, sent.body, now=signed_at)
    assert started(client, "one", attempt=2).json()["repeated"] is False
    assert len(sent_for(executor, "one")) == 2


def test_a_key_stands_for_one_version_only(client: httpx.Client) -> None:
    put(client)
    put(client, 2)
    assert started(client, "mine").status_code == 202
    problem_of(started(client, "mine", version=2), 409, "conflict")


def test_a_missing_dag_starts_nothing(client: httpx.Client, executor: Flaky) -> None:
    for fields in (
        {"version": 77},
        {"workflow_id": "nobody"},
        {"workflow_id": "../wf"},
    ):
        problem_of(started(client, "missing", **fields), 404, "unknown_workflow")
    problem_of(started(client, "missing", workflow_id="\0"), 400, "invalid_option")
    assert sent_for(executor, "missing") == []
    # Once it is there, the same key starts it.
    put(client)
    assert started(client, "missing").status_code == 202


@pytest.mark.parametrize(
    "fields",
    [
        {"idempotency_key": ""}, {"idempotency_key": "a/b"}, {"idempotency_key": "x" * 201}, {"version": "1"},
        {"version": True}, {"scheduled_for": "soon"}, {"attempt": 0}, {"attempt": 2**60},
        {"identity": "a\nb"}, {"user_id": None}, {"further": 1},
    ],
)  # fmt: skip
def test_a_wrong_start_is_refused(client: httpx.Client, fields: dict[str, object]) -> None:
    answer = client.post("/run-launcher/start", json={**START, "idempotency_key": "wrong", **fields})
    assert answer.status_code == 400, answer.text


def test_the_key_may_stand_in_the_header(client: httpx.Client, executor: Flaky) -> None:
    put(client)
    assert (
        client.post("/run-launcher/start", json=START, headers={"Idempotency-Key": "by-header"}).status_code
        == 202
    )
    assert len(sent_for(executor, "by-header")) == 1


@pytest.mark.parametrize(
    ("script", "status", "requests"),
    [
        pytest.param(["500", "503", "accept"], 202, 3, id="errors that pass"),
        pytest.param(["reset", "reset", "accept"], 202, 3, id="connections that break"),
        pytest.param(["hang", "accept"], 202, 2, id="no answer in time"),
        pytest.param(["garbage"], 202, 1, id="accepted in other words"),
        pytest.param(["redirect"], 502, 1, id="redirected"),
        pytest.param(["400"], 502, 1, id="refused"),
    ],
)
def test_an_executor_that_falters_is_asked_again_with_the_same_key(
    client: httpx.Client, executor: Flaky, script: list[str], status: int, requests: int
) -> None:
    put(client)
    executor.script = list(script)
    key = f"flaky-{script[0]}"
    assert started(client, key).status_code == status
    assert len(sent_for(executor, key)) == requests
    assert {(sent.path, sent.body) for sent in sent_for(executor, key)} == {("/run", executor.sent[-1].body)}
    assert executor.script == []
    if status != 202:
        # What was not accepted may be tried again, and is then made.
        assert started(client, key).status_code == 202


# --- schedules -------------------------------------------------------------------------------------


def test_a_due_workflow_reaches_its_executor_with_the_runs_meta(
    client: httpx.Client, executor: Flaky
) -> None:
    document = dag("* * * * * *", overlap_policy="allow")
    assert put(client, 5, document, name="due").status_code == 201
    wait_for(lambda: len([run for run in runs_of(client, "due/t") if run["run_id"]]) >= 2)
    assert put(client, 6, dag(cron=None), name="due").json()["retired"] == ["due/t"]
    runs = {str(run["idempotency_key"]): run for run in runs_of(client, "due/t") if run["run_id"]}
    for key, run in runs.items():
        (sent,) = sent_for(executor, key)
        assert sent.part("dag") == document
        meta = sent.part("meta")
        assert (meta["source"], meta["user_id"], meta["scheduled_for"]) == ("schedule", "ann", run["run_at"])
        assert (meta["workflow_id"], meta["version"], meta["schedule_id"]) == ("due", 5, "due/t")
        assert (meta["attempt"], sent.headers["kron-attempt"]) == (1, "1")
        assert int(str(meta["fencing_token"])) > 0
        assert (run["status"], run["run_id"]) == ("ENQUEUED", "r-1")


def test_an_executor_says_how_a_run_of_a_workflow_ended(client: httpx.Client) -> None:
    put(client, name="told")
    key = client.post("/schedules/told%2Ft/run").json()["idempotency_key"]
    wait_for(lambda: [run for run in runs_of(client, "told/t") if run["run_id"]])
    told = client.post(f"/runs/{key}/status", json={"status": "SUCCESS", "run_id": "r-1"})
    assert (told.status_code, told.json()["status"]) == (200, "SUCCESS"), told.text
    assert [run["status"] for run in runs_of(client, "told/t")] == ["SUCCESS"]


def test_a_schedule_of_a_version_that_is_missing_is_refused(client: httpx.Client) -> None:
    schedule = {**START, "schedule_id": "lost", "cron_expr": "0 0 1 1 *", "timezone": "UTC", "version": 42}
    del schedule["scheduled_for"]
    problem = problem_of(client.post("/schedules/upsert", json=schedule), 400, "invalid_schedule")
    assert 'of the workflow "wf" is not deployed here' in str(problem["detail"])


def test_a_schedule_that_says_nothing_of_what_to_run_is_refused(client: httpx.Client) -> None:
    answer = client.post("/schedules/upsert", json={"cron_expr": "0 0 1 1 *", "timezone": "UTC"})
    problem = problem_of(answer, 400, "invalid_schedule")
    assert "without a launcher a workflow is required" in str(problem["detail"])


# --- other executors, other processes --------------------------------------------------------------


READER = """
import json, os, pathlib, sys
given = json.load(sys.stdin)
named = {name: value for name, value in os.environ.items() if name.startswith("KRON_")}
pathlib.Path(os.environ["PLACE"]).write_text(json.dumps({"given": given, "named": named}))
sys.exit(3 if given["meta"]["user_id"] == "eve" else 0)
"""


def test_a_process_gets_the_dag_on_its_input_and_the_meta_in_its_environment(tmp_path: Path) -> None:
    place = tmp_path / "read.json"
    command = {"kind": "process", "command": [sys.executable, "-c", READER], "env": {"PLACE": str(place)}}
    # No caller may name a command over HTTP; the operator configures the executor.
    variables = {"KRON_EXECUTOR": json.dumps(command), "KRON_SIGNING_SECRET": SECRET}
    with serving(tmp_path, **variables) as (client, server):
        put(client)
        key = client.post("/schedules/wf%2Ft/run").json()["idempotency_key"]
        wait_for(lambda: [run for run in runs_of(client) if run["status"] == "SUCCESS"])
        read = json.loads(place.read_text())
        assert read["given"]["dag"] == dag()
        meta = read["given"]["meta"]
        assert (meta["idempotency_key"], meta["user_id"], meta["source"]) == (key, "ann", "schedule")
        named = {f"KRON_{name.upper()}": str(value) for name, value in meta.items()}
        assert named.items() <= read["named"].items()
        # What the owner's own settings say, a secret perhaps, is not among it.
        times = {"KRON_PERIOD_ID", "KRON_NOMINAL_TIME", "KRON_CHOSEN_TIME", "KRON_LAUNCHER_ID"}
        own = {"KRON_IDENTITY", "KRON_RUN_TOKEN", "KRON_REQUEST_ID", *times}
        assert read["named"].keys() - named.keys() == own
        put(client, 2, {**dag(), "user_id": "eve"})
        client.post("/schedules/wf%2Ft/run")
        wait_for(lambda: [run for run in runs_of(client) if run["status"] == "FAILED"])
        assert SECRET not in "".join(server.log)


@pytest.mark.slow
def test_worker_and_launcher_are_split_without_a_change_of_meaning(postgres_url: str, tmp_path: Path) -> None:
    """A worker elsewhere asks the service's run launcher, whose process executor ends; both know of it."""
    command = json.dumps(
        {"kind": "process", "command": ["/bin/sh", "-c", "cat >> got; echo >> got"], "cwd": str(tmp_path)}
    )
    with process("worker", "--store", postgres_url, folder=tmp_path, KRON_TICK_MS="50") as worker:
        worker.logged("lease acquired")
        with serving(tmp_path, KRON_STORE=postgres_url, KRON_EXECUTOR=command) as (client, server):
            put(client, 1, dag(cron=None))
            launcher = {"kind": "http", "url": f"{client.base_url}/run-launcher/start", "reports": True}
            schedule = {**START, "schedule_id": "split", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
            del schedule["scheduled_for"]
            client.post("/schedules/upsert", json={**schedule, "launcher": launcher})
            key = client.post("/schedules/split/run").json()["idempotency_key"]
            wait_for(lambda: [run for run in runs_of(client, "split") if run["status"] == "SUCCESS"])
            client.post("/schedules/upsert", json={**schedule, "version": 9, "launcher": launcher})
            client.post("/schedules/split/run")
            wait_for(lambda: [run for run in runs_of(client, "split") if run["status"] == "FAILED"])
            (failed,) = [run for run in runs_of(client, "split") if run["status"] == "FAILED"]
            assert failed["result"] == "launch_failed"
            assert "404" in str(failed["error"])
            assert "lease acquired" not in "".join(server.log)
    (line,) = (tmp_path / "got").read_text().splitlines()
    given = json.loads(line)
    assert given.keys() == {"dag", "meta"}
    assert (given["dag"], given["meta"]["idempotency_key"]) == (dag(cron=None), key)
    assert given["meta"]["schedule_id"] == "split"


@pytest.mark.slow
def test_a_start_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with flaky() as executor:
        for number in range(2):
            with serving(tmp_path, KRON_EXECUTOR=executor_of(executor.url)) as (client, server):
                put(client)
                assert started(client, "kept").json()["repeated"] is bool(number)
                server.signal(signal.SIGTERM)
                assert server.ended() == 0
        assert len(executor.sent) == 1


# --- what is allowed -------------------------------------------------------------------------------


def failed_runs(client: httpx.Client, name: str) -> list[dict[str, object]]:
    return [run for run in runs_of(client, name) if run["status"] == "FAILED"]


def http_schedule(url: str) -> dict[str, object]:
    return {
        "schedule_id": "h",
        "cron_expr": "0 0 1 1 *",
        "timezone": "UTC",
        "launcher": {"kind": "http", "url": url},
    }


@pytest.mark.slow
def test_hosts_and_commands_are_checked_when_a_schedule_is_stored_and_before_every_start(
    tmp_path: Path,
) -> None:
    command = {"kind": "process", "command": ["/bin/sh", "-c", "echo x >> ran"], "cwd": str(tmp_path)}
    process = {"schedule_id": "c", "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": command}
    allowed = {"KRON_ALLOWED_HOSTS": "127.0.0.1,example.com", "KRON_ALLOWED_COMMANDS": "/bin/sh"}
    with flaky() as executor:
        with serving(tmp_path, **allowed) as (client, _):
            for good in (http_schedule(executor.url), process):
                assert client.post("/schedules/upsert", json=good).status_code == 200
            for url in ("http://169.254.169.254/", "http://localhost:1/", "http://[::1]/"):
                problem_of(client.post("/schedules/upsert", json=http_schedule(url)), 400, "invalid_schedule")
        with serving(tmp_path, KRON_ALLOWED_HOSTS="example.com") as (client, _):
            for name, document, reason in (
                ("h", http_schedule(executor.url), "127.0.0.1 is not among the hosts the settings allow"),
                ("c", process, "allowed_commands"),
            ):
                problem_of(client.post("/schedules/upsert", json=document), 400, "invalid_schedule")
                client.post(f"/schedules/{name}/run")
                wait_for(partial(failed_runs, client, name))
                (run,) = runs_of(client, name)
                assert run["result"] == "launch_failed"
                assert reason in str(run["error"])
        assert executor.sent == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_the_default_launcher_is_the_operators_own_and_goes_where_it_says(tmp_path: Path) -> None:
    with flaky() as executor:
        default = executor_of(executor.url)
        variables = {"KRON_DEFAULT_LAUNCHER": default, "KRON_ALLOWED_HOSTS": "example.com"}
        with serving(tmp_path, **variables) as (client, _):
            schedule = {**START, "schedule_id": "d", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
            del schedule["scheduled_for"]
            assert client.post("/schedules/upsert", json=schedule).status_code == 200
            client.post("/schedules/d/run")
            wait_for(lambda: executor.sent)
            # A default launcher gets the start arguments, as any launcher does.
            assert executor.sent[0].document["workflow_id"] == "wf"
