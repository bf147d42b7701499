"""`python -m tests.abuse.timing`: the cost of answers about others' resources and missing ones.

A stranger asks a real service for both in turn, in random order. The share is the chance that the answer for
the first costs more processor time than that for the second: one half, if the time tells nothing. The
latency, which a stranger can see, is beside it; on a busy machine it shows less than the processor time.
"""

import argparse
import json
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote, urlencode

import httpx

from kron.core.dag.plan import run_id_of
from kron.fronts.service.auth.token import make_token
from tests.abuse.experiment import SECRET
from tests.service.executor import executing
from tests.service.server import serving
from tests.waiting import wait_for

# The owner, and a stranger who asks.
OWNER, STRANGER = "ann", "mallory"
RUNS, TASKS = 900, 2_000
DAY = "2026-06-01T00:00:00Z"
SIGNING = "a signing secret of the timing experiment"
FORM = {"content-type": "application/x-www-form-urlencoded"}
# A share further from one half is a difference that a stranger can see.
MOST = 0.05
MAX_READS = 50


def _spent(pid: int) -> float:
    """Return the processor time that the threads of a process have used, in seconds."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def _settled(pid: int) -> float:
    """Return the processor time of a process once it has no work left."""
    spent = _spent(pid)
    for _ in range(MAX_READS):
        time.sleep(0.0005)
        before, spent = spent, _spent(pid)
        if spent == before:
            break
    return spent


class Asked(NamedTuple):
    """A request, as bytes; both of a pair have the same length."""

    message: bytes

    def cost(self, connection: socket.socket, pid: int) -> tuple[float, float, bytes]:
        """Return the processor time and the latency of its answer, in seconds, and its status."""
        before = _settled(pid)
        started = time.perf_counter()
        connection.sendall(self.message)
        head, _, body = b"", b"", b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65_536)
        took = time.perf_counter() - started
        head, _, body = head.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        while len(body) < length:
            body += connection.recv(65_536)
        return _settled(pid) - before, took, head.split(b" ", 2)[1]


def _token(user: str = STRANGER, secret: str = SECRET, **claims: object) -> str:
    values = {"sub": user, "aud": "kron", "scope": "read write run", "exp": 2_000_000_000, **claims}
    return make_token(values, secret, "HS256")


def _asked(method: str, path: str, body: bytes = b"", token: str | None = None, **headers: str) -> Asked:
    named = {
        "host": "localhost",
        "content-length": str(len(body)),
        "content-type": "application/json",
        **({} if token is None else {"authorization": f"Bearer {token}"}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items()), "", ""]
    return Asked("\r\n".join(lines).encode() + body)


def _sign_in(token: str) -> Asked:
    return _asked("POST", "/login", urlencode({"token": token}).encode(), content_type=FORM["content-type"])


class Pair(NamedTuple):
    """What is compared: a resource of another tenant, and a missing one."""

    title: str
    known: Asked
    unknown: Asked


DOCUMENT: dict[str, object] = {"cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}}
# What a stranger asks about a schedule of another.
OF_SCHEDULE: tuple[tuple[str, str, str, dict[str, object] | None], ...] = (
    ("a schedule", "GET", "/schedules/NAME", None),
    ("its runs", "GET", "/schedules/NAME/runs", None),
    ("its page", "GET", "/ui/schedule?id=NAME", None),
    ("why", "GET", f"/schedules/NAME/periods/{DAY}/why", None),
    ("runs of a period", "GET", f"/schedules/NAME/periods/{DAY}/runs", None),
    ("a manual run", "POST", "/schedules/NAME/run", {"request_id": "x"}),
    ("a backfill", "POST", "/schedules/NAME/backfill", {"from": DAY, "to": DAY, "dry_run": True}),
    ("a resume", "POST", "/schedules/NAME/resume-preview", None),
    ("a pause", "POST", "/schedules/pause", {"schedule_id": "RAW", "paused": True}),
    ("a deletion", "DELETE", "/schedules/NAME", None),
    ("an upsert", "POST", "/schedules/upsert", {**DOCUMENT, "schedule_id": "RAW"}),
    ("the audit log", "GET", "/audit?name=NAME", None),
)
OF_DAG = (
    ("a workflow", "/workflows/ann.NAME/versions/1"),
    ("its versions", "/workflows/ann.NAME"),
    ("runs of a DAG", "/dags/ann.NAME/runs"),
    ("the page of a DAG", "/ui/dag?id=ann.NAME"),
    ("a run of a DAG", "/dag-runs/ID"),
    ("attempts of a DAG", "/dag-runs/ID/attempts"),
)


def _pairs(key: str) -> Iterator[Pair]:
    mine, wrong = _token(), SECRET[::-1]
    tokens = (
        ("a user with schedules, a wrong signature", _token(OWNER, wrong), _token("xyz", wrong)),
        ("a user with schedules, an expired token", _token(OWNER, exp=1), _token("xyz", exp=1)),
        ("a signature wrong in its first byte, in its last", *_spoiled(mine)),
    )
    for title, one, other in tokens:
        yield Pair(f"sign-in: {title}", _sign_in(one), _sign_in(other))
        yield Pair(f"token: {title}", *(_asked("GET", "/schedules", token=each) for each in (one, other)))
    for title, method, path, body in OF_SCHEDULE:
        pair = (_of_schedule(method, path, body, mine, name) for name in ("busy", "none"))
        yield Pair(f"{title} of another", *pair)
    reports = (
        _asked("POST", f"/runs/{each}/status", b'{"status": "SUCCESS"}', mine)
        for each in (key, "0" * len(key))
    )
    yield Pair("a report on an open run of another", *reports)
    for title, path in OF_DAG:
        paths = (
            path.replace("NAME", name).replace("ID", run_id_of(f"ann.{name}:{DAY}"))
            for name in ("busy", "none")
        )
        yield Pair(f"{title} of another", *(_asked("GET", each, token=mine) for each in paths))


def _of_schedule(method: str, path: str, body: dict[str, object] | None, token: str, name: str) -> Asked:
    identity = f"{OWNER}/{name}"
    text = b"" if body is None else json.dumps(body).replace("RAW", identity).encode()
    return _asked(method, path.replace("NAME", quote(identity, safe="")), text, token)


def _spoiled(token: str) -> tuple[str, str]:
    """Return a token whose signature is wrong in its first character, and one wrong in its last but one."""
    head, _, signature = token.rpartition(".")

    def with_other(place: int) -> str:
        other = "A" if signature[place] != "A" else "B"
        return f"{head}.{signature[:place]}{other}{signature[place + 1 :]}"

    return with_other(0), with_other(len(signature) - 2)


def _prepared(client: httpx.Client, url: str) -> str:
    """Give the owner a schedule with open runs and a large DAG with a run; return the key of an open run."""
    headers = {"authorization": f"Bearer {_token(OWNER)}"}
    schedule = {
        "schedule_id": f"{OWNER}/busy",
        "cron_expr": "0 0 * * *",
        "timezone": "UTC",
        "overlap_policy": "allow",
        "launcher": {"kind": "http", "url": url, "reports": True},
    }
    client.post("/schedules/upsert", json=schedule, headers=headers).raise_for_status()
    period = {"from": "2024-01-01T00:00:00Z", "to": "2026-06-01T00:00:00Z", "only": "all", "request_id": "1"}
    client.post("/schedules/ann%2Fbusy/backfill", json=period, headers=headers).raise_for_status()
    nodes = [{"id": f"t{number}", "type": "log", "dependsOn": []} for number in range(TASKS)]
    dag = {"user_id": OWNER, "nodes": nodes, "triggers": []}
    client.put("/workflows/ann.busy/versions/1", json=dag, headers=headers).raise_for_status()
    client.post("/dags/ann.busy/pause", json={"paused": True}, headers=headers).raise_for_status()
    run = client.post("/dags/ann.busy/runs", json={"logical_date": DAY}, headers=headers).raise_for_status()
    assert run.json()["run_id"] == run_id_of(run.json()["run_key"]), run.text

    def begun() -> list[dict[str, str]]:
        runs = client.get("/schedules/ann%2Fbusy/runs", headers=headers).json()["runs"]
        return [each for each in runs if each["status"] == "ENQUEUED"]

    wait_for(begun)
    time.sleep(2)
    return str(begun()[0]["idempotency_key"])


class Costs(NamedTuple):
    """What the answers to one request cost: processor time and latency, in seconds."""

    processor: list[float]
    latency: list[float]


def compared(url: httpx.URL, pid: int, pair: Pair, count: int) -> tuple[Costs, Costs, set[bytes]]:
    """Return the costs of both requests, and the statuses."""
    costs = (Costs([], []), Costs([], []))
    statuses: set[bytes] = set()
    chance = random.Random(1)
    with socket.create_connection((url.host, url.port or 80), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(count + 20):
            order = [0, 1]
            chance.shuffle(order)
            for which in order:
                spent, took, status = (pair.known, pair.unknown)[which].cost(connection, pid)
                statuses.add(status)
                # The first ones fill the caches.
                if number >= 20:
                    costs[which].processor.append(spent)
                    costs[which].latency.append(took)
    return *costs, statuses


def _share(one: list[float], other: list[float]) -> float:
    """Return the chance that one of the first is greater than one of the second (Mann and Whitney's U)."""
    ranked = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks = sum(rank for rank, (_, which) in enumerate(ranked, 1) if which == 0)
    return (ranks - len(one) * (len(one) + 1) / 2) / (len(one) * len(other))


def _line(title: str, statuses: set[bytes], known: Costs, unknown: Costs) -> str:
    shown = ",".join(sorted(status.decode() for status in statuses))
    words = [f"{title:58} {shown:7}"]
    for name, one, other in zip(Costs._fields, known, unknown, strict=True):
        medians = f"{1e6 * median(one):.0f}, {1e6 * median(other):.0f} us"
        words.append(f"{name} {_share(one, other):.3f} ({medians})")
    return "  ".join(words)


def main() -> int:
    """Compare every pair; exit with 1 if the time of one tells something."""
    parser = argparse.ArgumentParser(prog="python -m tests.abuse.timing", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000, help="requests of each kind")
    parser.add_argument("--only", default="", help="pairs whose name contains a text")
    given = parser.parse_args()
    variables = {
        "KRON_JWT_SECRET": SECRET,
        "KRON_SIGNING_SECRET": SIGNING,
        "KRON_REQUESTS_PER_S": "0",
        "KRON_TICK_MS": "60000",
        "KRON_EXECUTOR": '{"kind": "dag"}',
        "KRON_DRAIN_MS": "0",
    }
    telling = []
    with (
        TemporaryDirectory(prefix="timing-") as folder,
        executing() as executor,
        serving(Path(folder), **variables) as (client, server),
    ):
        key = _prepared(client, executor.url)
        for pair in _pairs(key):
            if given.only not in pair.title:
                continue
            assert len(pair.known.message) == len(pair.unknown.message), pair.title
            known, unknown, statuses = compared(client.base_url, server.pid, pair, given.requests)
            share = _share(known.processor, unknown.processor)
            sys.stdout.write(f"{_line(pair.title, statuses, known, unknown)}\n")
            sys.stdout.flush()
            if abs(share - 0.5) > MOST or len(statuses) > 1:
                telling.append(pair.title)
    sys.stdout.write(
        f"the time tells something: {', '.join(telling)}\n" if telling else "the times tell nothing\n"
    )
    return int(bool(telling))


if __name__ == "__main__":
    sys.exit(main())
