"""Secrets of launchers at rest, over real HTTP: encrypted with the operator's keys, or referenced by name."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from kron.app.settings import InvalidSettingsError
from kron.fronts.service.settings import read_settings
from kron.launchers.http.launcher import is_signed, signing_key_of
from tests.service.executor import Executor, executing
from tests.service.server import KRON, serving
from tests.waiting import wait_for

OLD, NEW = "the old key with at least 32 bytes", "the new key with at least 32 bytes"
SECRET = "hunter2-and-more"


def upsert(
    client: httpx.Client, launcher: Mapping[str, object], name: str = "job", **fields: object
) -> httpx.Response:
    document = {
        "schedule_id": name,
        "cron_expr": "0 0 1 1 *",
        "timezone": "UTC",
        "launcher": launcher,
        **fields,
    }
    return client.post("/schedules/upsert", json=document)


def started(client: httpx.Client, name: str = "job") -> str:
    """Run a schedule, and return the key of the run."""
    return str(client.post(f"/schedules/{name}/run").raise_for_status().json()["idempotency_key"])


def sent(executor: Executor, client: httpx.Client, name: str = "job") -> dict[str, str]:
    """Run a schedule, and return the headers that its executor gets."""
    key = started(client, name)
    return wait_for(lambda: next((each.headers for each in list(executor.sent) if each.key == key), None))


def ended(client: httpx.Client, name: str = "job") -> dict[str, object]:
    """Run a schedule, and return its run once it has ended."""
    key = started(client, name)

    def end() -> dict[str, object] | None:
        runs = client.get(f"/schedules/{name}/runs").json()["runs"]
        return next((run for run in runs if run["idempotency_key"] == key and run["result"]), None)

    return wait_for(end)


def calling(executor: Executor) -> dict[str, object]:
    url = f"{executor.url}?token={SECRET}"
    return {"kind": "http", "url": url, "headers": {"Authorization": f"Bearer {SECRET}"}}


def in_store(folder: Path) -> bytes:
    """Return every byte of the store."""
    with closing(sqlite3.connect(folder / "kron.db")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return b"".join(path.read_bytes() for path in folder.glob("kron.db*"))


def stored_launcher(folder: Path, name: str = "job") -> str:
    with closing(sqlite3.connect(folder / "kron.db")) as store:
        ((text,),) = store.execute("SELECT launcher FROM jobs WHERE schedule_id = ?", [name]).fetchall()
    return str(text)


def everything_shown(client: httpx.Client) -> str:
    """Return what the API and the pages show of a schedule and its changes."""
    paths = (
        "/schedules", "/schedules/job", "/schedules/job/runs", "/runs", "/audit", "/definitions", "/",
        "/ui/schedule?id=job", "/ui/runs", "/schedules/job/periods/2031-01-01T00:00:00Z/why",
    )  # fmt: skip
    return "".join(client.get(path).text for path in paths)


def test_secrets_are_encrypted_in_the_store_and_arrive_at_the_executor(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path, KRON_SECRET_KEYS=OLD) as (client, server):
        first = upsert(client, calling(executor))
        assert first.status_code == 200, first.text
        assert sent(executor, client)["authorization"] == f"Bearer {SECRET}"
        shown = everything_shown(client)
        assert '"Authorization":"***"' in shown.replace(" ", "")
        # The same definition again is no edit.
        assert upsert(client, calling(executor)).headers["etag"] == first.headers["etag"]
        assert client.get("/audit", params={"name": "job"}).text.count('"action":"create"') == 1
        assert '"action":"edit"' not in client.get("/audit", params={"name": "job"}).text
    log = "".join(server.log)
    for text in (in_store(tmp_path).decode("latin-1"), shown, log):
        assert SECRET not in text
        assert OLD not in text


def test_without_a_key_nothing_changes_and_old_stores_keep_working(tmp_path: Path) -> None:
    with executing() as executor:
        with serving(tmp_path) as (client, _):
            upsert(client, calling(executor)).raise_for_status()
        assert SECRET in stored_launcher(tmp_path)
        with serving(tmp_path, KRON_SECRET_KEYS=OLD) as (client, _):
            assert sent(executor, client)["authorization"] == f"Bearer {SECRET}"
            # The next upsert encrypts it.
            upsert(client, calling(executor)).raise_for_status()
            assert SECRET not in stored_launcher(tmp_path)
            assert sent(executor, client)["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "launcher: is encrypted, and the setting secret_keys is not set"),
        ({"KRON_SECRET_KEYS": NEW}, "no key of the setting secret_keys has the name "),
    ],
)
def test_nothing_starts_with_a_secret_that_cannot_be_decrypted(
    variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    with executing() as executor:
        with serving(tmp_path, KRON_SECRET_KEYS=OLD) as (client, _):
            upsert(client, calling(executor)).raise_for_status()
        with serving(tmp_path, **variables) as (client, _):
            run = ended(client)
            assert (run["result"], reason in str(run["error"])) == ("launch_failed", True), run
            # Reading needs no key.
            assert "***" in client.get("/schedules/job").text
        assert not executor.sent


def test_a_secret_that_was_moved_to_another_schedule_is_refused(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path, KRON_SECRET_KEYS=OLD) as (client, _):
        upsert(client, calling(executor)).raise_for_status()
        upsert(
            client, {"kind": "http", "url": executor.url, "headers": {"Authorization": "x"}}, "thief"
        ).raise_for_status()
        with closing(sqlite3.connect(tmp_path / "kron.db", isolation_level=None)) as store:
            store.execute(
                "UPDATE jobs SET launcher = (SELECT launcher FROM jobs WHERE schedule_id = 'job') "
                "WHERE schedule_id = 'thief'"
            )
        run = ended(client, "thief")
        assert (run["result"], "belongs to another schedule" in str(run["error"])) == ("launch_failed", True)
        assert not executor.sent


def reencrypt(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
    return subprocess.run(
        [*KRON, "reencrypt", "--store", "sqlite:///kron.db", *words],
        env={**environment, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_keys_are_rotated_with_a_list_and_a_command(tmp_path: Path) -> None:
    with executing() as executor:
        with serving(tmp_path) as (client, _):
            upsert(client, calling(executor), "plain").raise_for_status()
        with serving(tmp_path, KRON_SECRET_KEYS=OLD) as (client, _):
            upsert(client, calling(executor)).raise_for_status()
        (tmp_path / "keys.txt").write_text(f"{NEW}\n{OLD}\n")
        both = {"KRON_SECRET_KEYS_FILE": "keys.txt"}
        counted = reencrypt(tmp_path, "--dry-run", **both)
        assert counted.stdout == "would encrypt the secrets of 2 schedules\n", counted.stderr
        done = reencrypt(tmp_path, "--json", **both)
        assert json.loads(done.stdout) == {"dry_run": False, "schedules": 2}
        assert reencrypt(tmp_path, **both).stdout == "encrypted the secrets of 0 schedules\n"
        with serving(tmp_path, KRON_SECRET_KEYS=NEW) as (client, _):
            for name in ("job", "plain"):
                assert sent(executor, client, name)["authorization"] == f"Bearer {SECRET}"
    missing = reencrypt(tmp_path)
    assert (missing.returncode, "secret_keys" in missing.stderr) == (2, True)
    wrong = reencrypt(tmp_path, KRON_SECRET_KEYS=OLD)
    assert (wrong.returncode, "no key of the setting secret_keys has the name" in wrong.stderr) == (2, True)


def test_the_variables_of_a_process_are_encrypted_too(tmp_path: Path) -> None:
    variables = {"KRON_SECRET_KEYS": OLD, "KRON_ALLOWED_COMMANDS": "/bin/sh"}
    command = ["/bin/sh", "-c", f"printf %s $KRON_VAR_KEY > {tmp_path}/got"]
    launcher = {"kind": "process", "command": command, "env": {"KRON_VAR_KEY": SECRET}}
    with serving(tmp_path, **variables) as (client, _):
        upsert(client, launcher).raise_for_status()
        assert SECRET not in stored_launcher(tmp_path)
        ended(client)
        wait_for(lambda: (tmp_path / "got").exists() and (tmp_path / "got").read_text() == SECRET)


def test_headers_and_variables_refer_to_secrets_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "token.txt").write_text(f"{SECRET}\n")
    sources = {"api": "env:MY_TOKEN", "ann/own": f"file:{tmp_path}/token.txt", "gone": "env:NOT_SET"}
    variables = {"KRON_LAUNCHER_SECRETS": json.dumps(sources), "MY_TOKEN": "tok-en-of-mine"}
    with executing() as executor, serving(tmp_path, **variables) as (client, server):

        def sending(text: str, user: str) -> httpx.Response:
            launcher = {"kind": "http", "url": executor.url, "headers": {"X-Key": text}}
            return upsert(client, launcher, user_id=user, workflow_id="w", version=1)

        sending("Bearer ${secret:api}, ${secret:ann/own}", "ann").raise_for_status()
        assert sent(executor, client)["x-key"] == f"Bearer tok-en-of-mine, {SECRET}"
        # The store has the reference, and nothing shows more than that.
        assert "${secret:ann/own}" in stored_launcher(tmp_path)
        shown = everything_shown(client)
        for text in (in_store(tmp_path).decode("latin-1"), shown, "".join(server.log)):
            assert SECRET not in text
            assert "tok-en-of-mine" not in text
        # No user takes the secret of another, and no name reaches the service's environment or its files.
        for text in ("${secret:ann/own}", "${secret:PATH}", "${secret:env:MY_TOKEN}"):
            refused = sending(text, "bob")
            assert refused.status_code == 400
            assert "launcher_secrets does not have" in refused.json()["detail"]
        sending("${secret:gone}", "ann").raise_for_status()
        run = ended(client)
        assert run["result"] == "launch_failed"
        assert 'The secret "gone" of launcher_secrets cannot be read: the variable NOT_SET is not set' in str(
            run["error"]
        )
        assert len(executor.sent) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECRET_KEYS", "short"),
        ("SECRET_KEYS", f"{OLD},short"),
        ("LAUNCHER_SECRETS", '{"a": "b"}'),
        ("LAUNCHER_SECRETS", '{"a b": "env:B"}'),
        ("LAUNCHER_SECRETS", '{"a": "file:relative"}'),
        ("LAUNCHER_SECRETS", "[]"),
    ],
)
def test_a_wrong_setting_of_secrets_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSettingsError, match=f"KRON_{name}") as caught:
        read_settings({f"KRON_{name}": value}, {})
    assert "short" not in str(caught.value)


TASKS = {"KRON_EXECUTOR": '{"kind": "dag"}', "KRON_TICK_MS": "50"}


def dag_of(executor: Executor, **fields: object) -> dict[str, object]:
    called = {name: value for name, value in calling(executor).items() if name != "kind"}
    headers = {"Authorization": f"Bearer {SECRET}", "X-Named": "${secret:api}"}
    node = {"id": "call", "type": "http", "dependsOn": [], **called, "headers": headers, **fields}
    return {"user_id": "ann", "nodes": [node], "triggers": []}


def deployed(client: httpx.Client, dag: Mapping[str, object], version: int = 1) -> httpx.Response:
    return client.put(f"/workflows/etl/versions/{version}", json=dag)


def task_headers(client: httpx.Client, executor: Executor, day: int) -> dict[str, str]:
    """Start a DAG, and return the headers that the executor of its task gets."""
    before = len(executor.sent)
    date = f"2026-06-{day:02}T00:00:00Z"
    client.post("/dags/etl/runs", json={"logical_date": date}).raise_for_status()
    wait_for(lambda: len(executor.sent) > before)
    return executor.sent[-1].headers


def test_secrets_of_tasks_are_encrypted_and_never_shown_again(tmp_path: Path) -> None:
    named = {"API_TOKEN": "a token by name", "KRON_LAUNCHER_SECRETS": '{"api": "env:API_TOKEN"}'}
    with executing() as executor:
        dag = dag_of(executor)
        with serving(tmp_path, KRON_SECRET_KEYS=OLD, **TASKS, **named) as (client, server):
            assert deployed(client, dag).status_code == 201
            headers = task_headers(client, executor, 1)
            assert (headers["authorization"], headers["x-named"]) == (f"Bearer {SECRET}", "a token by name")
            # The same version again is no other one.
            assert deployed(client, dag).status_code == 200
            run = client.get("/dags/etl/runs").json()["runs"][0]["run_id"]
            paths = (
                "/workflows/etl/versions/1", f"/dag-runs/{run}", f"/dag-runs/{run}/attempts", "/audit",
                "/ui/dag?id=etl", f"/ui/dag/run?id={run}",
            )  # fmt: skip
            shown = "".join(client.get(path).raise_for_status().text for path in paths)
            assert '"headers":{"Authorization":"***"' in shown
            assert '"sealed"' not in shown
            for fields, path in (
                ({"headers": {"X": "${secret:bob/api}"}}, "nodes.0.headers.X"),
                ({"user_id": "bob", "headers": {"X": "${secret:bob/api}"}}, "nodes.0.headers.X"),
                ({"sealed": "v1.x.y"}, "nodes.0.sealed"),
            ):
                refused = deployed(client, dag_of(executor, **fields), 2)
                assert (refused.status_code, refused.json()["problems"][0]["path"]) == (400, path)
        stored = in_store(tmp_path).decode("latin-1")
        for text in (stored, shown, "".join(server.log)):
            assert SECRET not in text
            assert "a token by name" not in text
        with serving(tmp_path, KRON_SECRET_KEYS=f"{NEW},{OLD}", **TASKS, **named) as (client, _):
            # After a rotation the version is the same, and starts.
            assert deployed(client, dag).status_code == 200
            assert task_headers(client, executor, 2)["authorization"] == f"Bearer {SECRET}"
        with serving(tmp_path, KRON_SECRET_KEYS=NEW, **TASKS, **named) as (client, _):
            client.post("/dags/etl/runs", json={"logical_date": "2026-06-03T00:00:00Z"}).raise_for_status()

            def task() -> dict[str, str] | None:
                run = client.get("/dags/etl/runs").json()["runs"][0]
                tasks = client.get(f"/dag-runs/{run['run_id']}").json()["tasks"]
                return next((each for each in tasks if each["status"] == "failed"), None)

            assert "cannot be decrypted" in wait_for(task)["error"]


def test_without_a_key_secrets_of_tasks_are_still_not_shown(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path, **TASKS) as (client, _):
        dag = dag_of(executor)
        assert deployed(client, dag).status_code == 201
        assert SECRET not in client.get("/workflows/etl/versions/1").text
        assert deployed(client, dag).status_code == 200


def test_nodes_for_another_executor_are_compared_as_they_are(tmp_path: Path) -> None:
    """What they mean is theirs, also a field that in Kron's own tasks has the encrypted secrets."""
    path, key = "/workflows/theirs/versions/1", {"KRON_SECRET_KEYS": OLD}
    node = {"id": "a", "type": "container", "dependsOn": [], "sealed": "a secret of ann"}
    stored = {"user_id": "ann", "nodes": [node]}
    changed = {"user_id": "ann", "nodes": [{**node, "sealed": "another"}]}
    with serving(tmp_path, **key) as (client, _):
        client.put(path, json=stored).raise_for_status()
        answer = client.put(path, json=changed)
        assert (answer.status_code, answer.json()["code"]) == (409, "version_exists")
        assert client.put(path, json=stored).status_code == 200
        assert client.get(path).json()["dag"] == stored
    with serving(tmp_path, **key, KRON_EXECUTOR='{"kind": "dag"}') as (client, _):
        # Now they are Kron's: what is of no known kind is not shown.
        assert "a secret of ann" not in client.get(path).raise_for_status().text


def test_a_task_is_signed_with_the_key_of_its_owner(tmp_path: Path) -> None:
    secret = "a signing secret that is long enough"
    with executing() as executor, serving(tmp_path, KRON_SIGNING_SECRET=secret, **TASKS) as (client, _):
        # Whatever the task says.
        assert deployed(client, dag_of(executor, user_id="bob", headers={})).status_code == 201
        headers = task_headers(client, executor, 1)
        body, now = executor.sent[-1].body, int(headers["kron-timestamp"])
        keys = {name: signing_key_of(secret.encode(), name) for name in ("ann", "bob", None)}
        assert [name for name, key in keys.items() if is_signed(key, headers, body, now=now)] == ["ann"]
