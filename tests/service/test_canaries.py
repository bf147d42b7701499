"""Secrets wherever one may be given: none comes back in an answer, a page, a log, the store or a file.

Every secret is a text of its own, so that a failure names the place where it was given.
"""

import html
import json
import os
import re
import sqlite3
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from kron.fronts.service.auth.middleware import NEEDS
from kron.fronts.service.auth.token import make_token
from tests.service.auth.test_programs import program
from tests.service.executor import Executor, executing
from tests.service.server import KRON, NEW_KRON, Process, serving
from tests.service.web.test_actions import typed_in
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
NOBODY_LISTENS = "127.0.0.1:1"
FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
JSON = {"content-type": "application/json"}
# Routes that have nothing here: no workflow, no DAG, no worker of that name, no such file.
WITHOUT = frozenset(
    {
        "/static/{name}", "/workflows/{workflow_id}", "/workflows/{workflow_id}/versions/{version}", "/dags",
        "/dags/{dag_id}/runs", "/dag-runs/{run_id}", "/dag-runs/{run_id}/attempts", "/ui/dag", "/ui/dag/run",
        "/ui/dag/catchup", "/ui/workers/drain",
    }
)  # fmt: skip
# Schedules that start, and how their runs end.
RUN = {"sends": None, "refused": "launch_failed", "fails": "failed", "refers": "success"}


class Canaries:
    """Secrets by the place where each is given."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}

    def at(self, place: str) -> str:
        """Return the secret of a place, long enough for a key."""
        number = len(self._secrets)
        return self._secrets.setdefault(place, f"canary{number:03}-{os.urandom(16).hex()}")

    def found_in(self, outputs: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return each place whose secret is in an output, also encoded, with the name of the output."""
        forms = {
            place: {secret, b64encode(f"user:{secret}".encode()).decode()}
            for place, secret in self._secrets.items()
        }
        return [
            (place, name)
            for place, texts in forms.items()
            for name, output in outputs.items()
            if any(text in output for text in texts)
        ]


def settings(canaries: Canaries, folder: Path, sink: Executor) -> dict[str, str]:
    """Return settings with a secret in each that may have one."""
    at = canaries.at
    failing = program(folder / "bin", "fails", f"env > {folder}/env; exit 3")
    channels = {
        "hook": {"kind": "webhook", "url": f"{sink.url}/{at('channel url')}", "format": "json"},
        "mail": {
            "kind": "email",
            "server": f"smtp://{NOBODY_LISTENS}",
            "from": "kron@example.com",
            "to": ["a@example.com"],
            "user": "kron",
            "password": at("channel password"),
        },
    }
    executor = {"kind": "http", "url": f"http://{NOBODY_LISTENS}/", "headers": {"X": at("executor")}}
    return {
        "KRON_JWT_SECRET": at("jwt_secret"),
        "KRON_SIGNING_SECRET": at("signing_secret"),
        "KRON_SECRET_KEYS": at("secret_keys"),
        "KRON_LAUNCHER_SECRETS": json.dumps({"api": "env:API_TOKEN"}),
        "API_TOKEN": at("launcher_secrets"),
        "PGPASSWORD": at("PGPASSWORD"),
        "KRON_CHANNELS": json.dumps(channels),
        "KRON_NOTIFY": json.dumps({"to": ["hook", "mail"]}),
        "KRON_EXECUTOR": json.dumps(executor),
        "KRON_ALLOWED_COMMANDS": f"{failing},/bin/true",
        "KRON_NOTIFY_WAIT_MS": "0",
        "KRON_LOG_LEVEL": "debug",
        "KRON_DRAIN_MS": "0",
    }


def launchers(canaries: Canaries, executor: Executor) -> dict[str, dict[str, object]]:
    """Return a launcher for each schedule; those of closed ports and programs that fail quote nothing."""
    at = canaries.at
    place = executor.url.partition("//")[2]
    return {
        "sends": {
            "kind": "http",
            "url": f"http://user:{at('url password')}@{place}?token={at('url parameter')}",
            "headers": {"X-Api-Key": f"Bearer {at('header')}"},
        },
        "refused": {
            "kind": "http",
            "url": f"http://user:{at('closed password')}@{NOBODY_LISTENS}/?t={at('closed parameter')}",
            "headers": {"X-Token": at("closed header")},
        },
        "fails": {"kind": "process", "command": ["fails"], "env": {"KRON_VAR_TOKEN": at("variable")}},
        "refers": {
            "kind": "process",
            "command": ["/bin/true"],
            "env": {"KRON_VAR_TOKEN": "${secret:api}", "KRON_VAR_OTHER": at("other variable")},
        },
    }


def wrong_launchers(canaries: Canaries) -> list[object]:
    """Return launchers with a secret beside, or in, what is wrong with them."""
    at = canaries.at
    http = {"kind": "http", "url": "http://127.0.0.1/"}
    return [
        {**http, "headers": {"Authorization": f"Bearer {at('wrong header')}\r\nX: y"}},
        {**http, "headers": {"Authorization": {"Bearer": at("nested header")}}},
        {**http, "headers": [f"Authorization: {at('listed header')}"]},
        {**http, "headers": f"Authorization: {at('text of headers')}"},
        {**http, "hedaers": {"Authorization": at("mistyped headers")}},
        {**http, "password": at("unknown field")},
        {"kind": "http", "url": f"http://user:{at('wrong url')}@[::x/"},
        {"kind": "http", "url": f"http://user:{at('foreign url')}@10.0.0.1/?k={at('foreign parameter')}"},
        {"kind": "http", "url": f"ftp://user:{at('ftp url')}@host/"},
        {"kind": "process", "command": ["fails"], "env": {"LD_PRELOAD": at("refused variable")}},
        {"kind": "process", "command": ["fails"], "env": {"KRON_VAR_A": [at("listed variable")]}},
        {"kind": "process", "command": ["fails"], "env": [f"KRON_VAR_A={at('text of variables')}"]},
        {"kind": "hppt", "headers": {"A": at("unknown kind")}},
        {"kind": [at("listed kind")]},
        {"kind": 5, "headers": {"A": at("no kind")}},
        f"http://user:{at('text')}@host/",
        [at("list")],
    ]


def document(name: str, launcher: object, **fields: object) -> dict[str, object]:
    return {
        "schedule_id": f"ann/{name}",
        "cron_expr": "0 0 1 1 *",
        "timezone": "UTC",
        "launcher": launcher,
        **fields,
    }


def token(canaries: Canaries, scope: str) -> str:
    claims = {"sub": "ann", "aud": "kron", "scope": scope, "exp": int(time.time()) + 3_600}
    return make_token(claims, canaries.at("jwt_secret"), "HS256")


def operate(client: httpx.Client, canaries: Canaries, executor: Executor) -> Iterator[tuple[str, str]]:
    """Use the service well and badly, and yield every answer with a name."""
    at = canaries.at
    heartbeat = f"{executor.url}/{at('heartbeat')}"
    for name, launcher in launchers(canaries, executor).items():
        made = client.post(
            "/schedules/upsert", json=document(name, launcher, notify={"heartbeat": heartbeat})
        )
        assert made.status_code == 200, made.text
        yield f"upsert {name}", made.text
    for number, broken in enumerate(wrong_launchers(canaries)):
        wrong = document("wrong", broken)
        job = {"identity": "ann/wrong", "schedule": "@daily", "launcher": broken}
        for path, body in (
            ("/schedules/upsert", json.dumps(wrong)),
            ("/preview", json.dumps(wrong)),
            ("/schedules/bulk", json.dumps(wrong)),
            ("/definitions", json.dumps({"jobs": [job]})),
        ):
            answer = client.post(path, content=body, headers=JSON)
            assert answer.status_code in (200, 400), answer.text
            yield f"wrong launcher {number} {path}", answer.text
    for name, notify in (
        ("notify", {"to": f"https://10.0.0.1/{at('foreign webhook')}"}),
        ("notify", {"to": [f"nothing:{at('wrong webhook')}"]}),
        ("notify", {"heartbaet": f"https://host/{at('mistyped heartbeat')}"}),
        ("notify", f"https://host/{at('text of notify')}"),
        ("notify", {"heartbeat": f"ftp://host/{at('wrong heartbeat')}"}),
    ):
        answer = client.post("/schedules/upsert", json=document("wrong", {"kind": "log"}, **{name: notify}))
        assert answer.status_code == 400, answer.text
        yield "wrong notify", answer.text
    launcher = {"kind": "http", "url": f"x:{at('form')}"}
    fields = {"definition": json.dumps({"identity": "ann/sends", "schedule": "@daily", "launcher": launcher})}
    edit = client.post("/ui/schedule/edit", params={"id": "ann/sends"}, data=fields, headers=FORM)
    # The text that was sent comes back in its field; the explanation beside it has no part of it.
    assert edit.status_code == 400, edit.text
    yield "edit", re.sub("<textarea.*</textarea>", "", edit.text, flags=re.DOTALL)
    for field in ("token", "password"):
        yield (
            f"sign in {field}",
            client.post("/login", data={field: at(f"sign-in {field}")}, headers=FORM).text,
        )
    yield "wrong bearer", client.get("/schedules", headers={"authorization": f"Bearer {at('bearer')}"}).text
    yield "wrong scheme", client.get("/schedules", headers={"authorization": f"Basic {at('basic')}"}).text
    yield "cookie", client.get("/", headers={"cookie": f"kron_token={at('cookie')}"}).text
    run(client)
    client.post("/schedules/pause", json={"schedule_id": "ann/fails", "paused": True}).raise_for_status()
    client.post("/schedules/upsert", json=document("gone", {"kind": "log"})).raise_for_status()
    changed = launchers(canaries, executor)["sends"] | {"headers": {"X-Api-Key": at("changed header")}}
    client.post("/schedules/upsert", json=document("gone", changed)).raise_for_status()
    client.delete("/schedules/ann%2Fgone").raise_for_status()


def run(client: httpx.Client) -> None:
    """Run every schedule, and wait for the ends."""
    for name, result in RUN.items():
        path = f"/schedules/{quote(f'ann/{name}', safe='')}"
        client.post(f"{path}/run").raise_for_status()

        def has_ended(path: str = path, result: str | None = result) -> bool:
            (each,) = client.get(f"{path}/runs").json()["runs"]
            return bool(each["result"] if result else each["started_at"])

        wait_for(has_ended)
        (each,) = client.get(f"{path}/runs").json()["runs"]
        assert result is None or each["result"] == result, each


def planned(client: httpx.Client, name: str) -> str:
    """Return the plan of an edit that changes one field."""
    page = client.get("/ui/schedule/edit", params={"id": name}, headers=FORM)
    document = json.loads(typed_in(page)) | {"description": "edited"}
    (etag,) = re.findall(r'name="etag" value="([^"]*)"', page.text)
    fields = {"definition": json.dumps(document), "etag": html.unescape(etag), "do": "plan"}
    plan = client.post("/ui/schedule/edit", params={"id": name}, data=fields, headers=FORM)
    assert ">Save<" in plan.text, plan.text
    return plan.text


def shown(client: httpx.Client) -> Iterator[tuple[str, str]]:
    """Yield the answer of every route that reads, for every schedule where it has a name."""
    for name in RUN:
        run = client.get(f"/schedules/ann%2F{name}/runs").json()["runs"][0]
        period, key = run["run_at"], run["idempotency_key"]
        values = {"schedule_id": f"ann%2F{name}", "period_id": period, "workflow_id": "x", "version": "1"}
        filled = {"id": f"ann/{name}", "at": period, "key": key, "if": "timezone=UTC", "remedy": "hash"}
        for method, route in NEEDS:
            if method == "GET" and route != "/ui/live":
                path = route
                for word in re.findall(r"{(\w+)}", route):
                    path = path.replace(f"{{{word}}}", values.get(word, "x"))
                # The fleet's instant is a number.
                query = {} if route == "/ui/fleet" or "/ui/" not in path else filled
                answer = client.get(path, params=query, follow_redirects=True)
                # Each shows what it has: none of them is the page of an error.
                assert answer.status_code == 200 or route in WITHOUT, (route, name, answer.text)
                yield f"GET {path} of {name}", answer.text
        yield f"plan of an edit of {name}", planned(client, f"ann/{name}")
    with suppress(httpx.ReadTimeout), client.stream("GET", "/ui/live", timeout=3) as stream:
        yield "/ui/live", "".join(text for text, _ in zip(stream.iter_text(), range(3), strict=False))


def commands(url: str, folder: Path, variables: Mapping[str, str], bearer: str) -> Iterator[tuple[str, str]]:
    """Yield the output of commands that an operator and a user run."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
    user = {**own, "KRON_SERVER": url, "KRON_TOKEN": bearer}
    for environment, words in (
        ({**own, **variables}, ["config"]),
        (user, ["export"]),
        (user, ["schedules"]),
        (user, ["runs", "ann/refused"]),
        (user, ["why", "ann/refused"]),
        (user, ["audit"]),
    ):
        done = subprocess.run(
            [*KRON, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        assert done.stdout, words
        yield f"kron {' '.join(words)}", done.stdout + done.stderr


def left_behind(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every file of the service's folder; those that an operator or a program wrote are not its own."""
    with closing(sqlite3.connect(folder / "kron.db")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "bin" and path.name != "env":
            yield str(path.relative_to(folder)), path.read_bytes().decode("latin-1")


def command_lines(server: Process) -> Iterator[tuple[str, str]]:
    """Yield the command lines of the service and of the processes below it, which every user can read."""
    waiting = [server.pid]
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            yield f"command line of {pid}", Path(f"/proc/{pid}/cmdline").read_text()
            waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def test_no_secret_comes_back_from_anywhere(tmp_path: Path) -> None:
    canaries, outputs = Canaries(), dict[str, str]()
    with executing() as executor, executing() as sink:
        sink.status = 500
        variables = settings(canaries, tmp_path, sink)
        with serving(tmp_path, program=NEW_KRON, **variables) as (client, server):
            bearer = token(canaries, "admin")
            client.headers["authorization"] = f"Bearer {bearer}"
            outputs |= operate(client, canaries, executor)
            # Messages were refused by both channels, and are tried again.
            wait_for(lambda: sink.sent)
            server.logged("mail")
            outputs |= shown(client)
            outputs |= commands(str(client.base_url), tmp_path, variables, bearer)
            outputs |= command_lines(server)
        outputs |= left_behind(tmp_path)
        outputs["log"] = "".join(server.log)
    arrived = " ".join(f"{sent.headers} {sent.document}" for sent in (*executor.sent, *sink.sent))
    assert canaries.at("header") in arrived
    assert len(outputs) > 150
    assert canaries.found_in(outputs) == []
    assert not [name for name, text in outputs.items() if bearer.rpartition(".")[2] in text]
    # The program got the variable of its schedule and no other secret.
    inherited = {"environment of a program": (tmp_path / "env").read_text()}
    assert canaries.found_in(inherited) == [("variable", "environment of a program")]


@pytest.mark.parametrize(
    "variables",
    [
        {"KRON_STORE": "postgresql://kron:{}@127.0.0.1:1/kron"},
        {"KRON_STORE": "postgresql://kron@127.0.0.1:1/kron?password={}"},
        {"KRON_STORE": "postgresql://kron:{}@[::x/kron"},
        {"KRON_STORE": "oracle://kron:{}@127.0.0.1/kron"},
        {"KRON_CHANNELS": '{{"a": {{"kind": "webhook", "url": "https://u:{}@h/", "format": "smoke"}}}}'},
        {"KRON_EXECUTOR": '{{"kind": "http", "url": "http://u:{}@h/", "headers": "x"}}'},
        {"KRON_LAUNCHER_SECRETS": '{{"api": "{}"}}'},
        {"KRON_SECRET_KEYS": "{}-but-the-next-is-short,x"},
        {"KRON_CELERY_BROKER": "redis://:{}@127.0.0.1:x/0"},
        {"KRON_JWT_SECRET": "{}", "KRON_PORT": "not a port"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_a_service_that_cannot_start_does_not_say_its_secrets(
    variables: dict[str, str], tmp_path: Path
) -> None:
    canaries = Canaries()
    given = {name: value.format(canaries.at(name)) for name, value in variables.items()}
    own = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
    for words in (["serve", "--port", "0"], ["config"]):
        with subprocess.Popen(
            [*KRON, *words],
            cwd=tmp_path,
            env={**own, "KRON_PORT": "0", "KRON_DEBUG": "1", **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as running:
            # One that keeps trying to reach its store does not end.
            says = _first_words(running) if words[0] == "serve" else running.communicate(timeout=60)[0]
        assert says or words[0] == "serve"
        assert canaries.found_in({" ".join(words): says}) == []


def _first_words(running: "subprocess.Popen[str]") -> str:
    """Return what a process says until it ends, or for some seconds."""
    try:
        return running.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        running.kill()
        return running.communicate()[0]
