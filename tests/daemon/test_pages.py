"""The pages of krond: read and act on a loopback address, for root and krond's own user alone."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import kron
from kron.cli.krond import run
from kron.fronts.daemon.pages import ONLY_LOOPBACK, listen, user_of_connection
from tests.daemon.krond import Krond
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

# Requests of another user; it imports nothing that this user could not read.
ASK = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[2:]:
    connection = socket.socket()
    connection.connect(("127.0.0.1", int(sys.argv[1])))
    head = f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n"
    connection.sendall(head.encode())
    answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\\r\\n\\r\\n")
    print(path, head.split()[1].decode(), body.decode() if b" 403 " in head[:20] else "")
"""


WINDOWED = {
    "identity": "windowed",
    "schedule": "*/3 * * * * *",
    "window": {"mode": "after", "duration": "2s"},
    "distribution": {"name": "skewLate"},
    "seed": {"strategy": "stable", "salt": "x"},
    "deadline": "1m",
    "command": "echo $KRON_PERIOD_ID $KRON_NOMINAL_TIME $KRON_CHOSEN_TIME",
}


class PagesClient:
    """Requests to the pages of a krond."""

    def __init__(self, krond: Krond) -> None:
        self._krond = krond

    @property
    def port(self) -> int:
        found = wait_for(lambda: re.findall(r"pages on http://127\.0\.0\.1:(\d+)", self._krond.log_text()))
        return int(found[-1])

    def send(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        text = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if text is not None:
            named["content-type"] = "application/json"
        connection.request(method, path, text, named)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def get(self, path: str) -> str:
        status, text = self.send("GET", path)
        assert status == 200, text
        return text

    def read(self, path: str) -> Any:
        return json.loads(self.get(path))


@pytest.fixture(scope="module")
def krond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krond]:
    krond = Krond(tmp_path_factory.mktemp("krond"), "--listen", "127.0.0.1:0", "--log-format", "json")
    krond.write("a.yaml", '{identity: a, schedule: "0 0 1 1 *", command: "echo well; echo done"}')
    krond.write("boot.yaml", '{identity: boot, schedule: "@reboot", command: "echo up"}')
    krond.write("windowed.json", json.dumps([WINDOWED]))
    krond.start()
    yield krond
    assert krond.stop() == 0, krond.log_text()


@pytest.fixture(scope="module")
def pages(krond: Krond) -> PagesClient:
    return PagesClient(krond)


def test_the_pages_show_the_jobs_of_the_files_and_act_on_them(krond: Krond, pages: PagesClient) -> None:
    assert pages.read("/readyz") == {"status": "ok", "worker": "running", "error": None}
    assert [each["schedule_id"] for each in pages.read("/schedules")["schedules"]] == [
        "a",
        "boot",
        "windowed",
    ]
    assert "0 0 1 1 *" in pages.get("/ui/schedule?id=a")
    status, text = pages.send("POST", "/schedules/a/run", {})
    assert status == 202, text
    assert krond.ended("a", json.loads(text)["idempotency_key"])["status"] == "SUCCESS"
    assert pages.send("POST", "/schedules/pause", {"schedule_id": "a", "paused": True})[0] == 200
    assert krond.call("schedule", "a")["paused"] is True
    audit = pages.read("/audit")["entries"]
    assert (audit[0]["action"], audit[0]["who"]) == ("pause", f"krond:{_user()}")


def test_a_job_at_boot_is_told_as_such_and_is_never_finished(pages: PagesClient) -> None:
    assert pages.read("/schedules/boot")["sentence"] == "At every boot of the host"
    for path in ("/", "/ui/schedule?id=boot"):
        page = pages.get(path)
        assert "At every boot of the host" in page
        assert "February" not in page
        assert "finished" not in page
    assert "It runs when the host has booted" in pages.get("/ui/schedule?id=boot")


def test_a_user_of_the_host_has_no_token_to_sign_out_with(pages: PagesClient) -> None:
    page = pages.get("/ui/now")
    assert f"krond:{_user()}" in page
    assert "Sign out" not in page
    assert "KRON_TOKEN" not in pages.get("/docs")


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def test_the_metrics_are_those_of_the_worker_too(pages: PagesClient) -> None:
    metrics = pages.get("/metrics")
    assert 'kron_engine_state{state="running"} 1.0' in metrics
    assert "kron_http_requests_total" in metrics


def test_every_period_shows_its_id_its_times_and_its_seed_in_status_log_and_page(
    krond: Krond, pages: PagesClient
) -> None:
    job = kron.Job.from_dict(WINDOWED)
    done = wait_for(lambda: [each for each in krond.runs("windowed") if each["status"] == "SUCCESS"])
    logged = {
        line["period_id"]: line["decision"]
        for line in map(json.loads, re.findall(r"^{.*}$", krond.log_text(), re.MULTILINE))
        if line.get("schedule_id") == "windowed" and "decision" in line
    }
    for each in done:
        period_id = each["run_at"]
        decision = kron.decide(job, datetime.fromisoformat(period_id)).to_dict()
        shown = [decision[name] for name in ("period_id", "nominal_time", "chosen_time")]
        assert krond.output("windowed", each["idempotency_key"]).split() == shown
        assert datetime.fromisoformat(each["fire_at"]) == datetime.fromisoformat(str(shown[2]))
        found = {name: logged[period_id][name] for name in decision}
        assert found == decision, "the log has the whole certificate"
        page = pages.get(f"/ui/period?id=windowed&at={period_id}")
        assert str(decision["seed_hash"]) in page
        assert period_id in page
        assert re.search(r"\d s of processor time · at most \d+\.\d MiB of memory", page)


@pytest.mark.parametrize(
    ("headers", "status", "sentence"),
    [
        pytest.param({"host": "example.com"}, 421, "does not answer for the host", id="a rebound name"),
        pytest.param({"origin": "https://example.com"}, 403, "a page of another site", id="another site"),
    ],
)
def test_pages_of_other_sites_neither_read_nor_write(
    pages: PagesClient, headers: dict[str, str], status: int, sentence: str
) -> None:
    found, text = pages.send("POST", "/schedules/a/run", {}, **headers)
    assert (found, sentence in text) == (status, True), text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_other_users_of_the_host_see_no_job(pages: PagesClient) -> None:
    paths = ["/", "/schedules", "/ui/schedule?id=a", "/metrics", "/healthz"]
    argv = [sys.executable, "-c", ASK, str(pages.port), *paths]
    asked = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[1] for line in asked if line.startswith("/")] == ["403", "403", "403", "200", "200"]
    assert "only root and the user of this krond may use it" in "\n".join(asked)


def test_a_forged_address_is_not_believed(pages: PagesClient) -> None:
    # The address is that of the connection; a header that claims another one changes nothing.
    assert pages.send("GET", "/schedules", x_forwarded_for="192.0.2.1")[0] == 200


def test_pages_whose_process_ended_come_back_and_end_with_krond(krond: Krond, pages: PagesClient) -> None:
    (child,) = _pages_of(krond)
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: [pid for pid in _pages_of(krond) if pid != child], krond.log_text)
    assert pages.read("/readyz")["worker"] == "running"
    (child,) = _pages_of(krond)
    krond.kill()
    wait_for(lambda: not os.path.exists(f"/proc/{child}"))
    krond.start()


def _pages_of(krond: Krond) -> list[int]:
    """Return the processes of a krond's pages."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--pages" in words and str(krond.state).encode() in words:
            found.append(int(place.parent.name))
    return found


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:80", "8080", "127.0.0.1:x", "example.com:80"])
def test_pages_listen_on_loopback_only(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--listen", address, "--state", str(tmp_path)]) == 2
    assert ONLY_LOOPBACK in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0"])
def test_the_user_of_a_connection_is_known_while_its_socket_is_open(address: str) -> None:
    import socket

    try:
        listening = listen(address)
    except Exception:  # noqa: BLE001
        pytest.skip("this host has no such address")
    with listening:
        client = socket.create_connection(listening.getsockname()[:2])
        accepted, peer = listening.accept()
        ends = peer[:2], listening.getsockname()[:2]
        assert user_of_connection(*ends) == os.geteuid()
        # What a closed socket shows is root's uid, whoever had it.
        client.close()
        assert user_of_connection(*ends) is None
        accepted.close()
