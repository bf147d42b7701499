"""Two tenants on one service, one of them hostile: what the other's starts and the machine show."""

import asyncio
import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from multiprocessing.queues import Queue
from pathlib import Path
from urllib.parse import quote

import httpx

from kron.fronts.service.auth.token import make_token
from tests.abuse.attacks import ATTACKS, CONNECTING, MANY, MIXED, Target, prepare
from tests.service.executor import Executor, executing
from tests.service.server import Process, serving
from tests.waiting import wait_for

SECRET = "a secret of the abuse experiment, long enough"
GOOD, HOSTILE = "ann", "mallory"
# Schedules of the neighbour, each due every second.
SCHEDULES = 10
# Schedules of the hostile tenant whose executor never answers.
HANGING = 150
# Schedules of the hostile tenant that are due in the same second, and how often.
FLOOD, EVERY_S, NEVER = 5_000, 5, "0 0 1 1 *"
FLOODS = {
    "5,000 schedules due at once": "log",
    "5,000 due at once, over HTTP": "http",
    "200 with 1,000 open windows": "windows",
}
# Schedules whose periods all wait for their times at once, and the fields that make them.
WINDOWED, WINDOWS = 200, {"cron_expr": "* * * * * *", "window": {"mode": "around", "duration": "1000s"}}
QUIET, HANGS, MIX = "nothing: the control", "150 starts that hang", "all of them, mixed"
LONG_QUIET = "nothing, for as long as that"
# Processes that attack at once, and the connections of each where a number of requests is required.
ATTACKERS, SENDERS = 2, 4


class Starts:
    """The starts of the neighbour that have arrived at its executor."""

    def __init__(self) -> None:
        self._arrived: dict[str, list[float]] = {}
        self.executor: Executor | None = None

    def note(self, key: str) -> None:
        """Note that a start has arrived now."""
        self._arrived.setdefault(key, []).append(time.time())

    def late(self, first: int, last: int) -> dict[tuple[str, int], list[float]]:
        """Return the lateness of each start with a nominal time in `[first, last)`, in seconds."""
        late: dict[tuple[str, int], list[float]] = {}
        for sent in list(self.executor.sent) if self.executor else ():
            document = sent.document
            at = int(datetime.fromisoformat(str(document["scheduled_for"])).timestamp())
            if first <= at < last:
                arrived = self._arrived[str(document["idempotency_key"])]
                late[str(document["identity"]), at] = [instant - at for instant in arrived]
        return late


@dataclass(frozen=True)
class Row:
    """The figures of one attack."""

    name: str
    answers: Counter[str]
    cpu_ms: float
    starts: int
    lost: int
    doubled: int
    late: list[float]
    api_mib: float
    worker_mib: float

    def late_ms(self, share: float) -> float:
        """Return a quantile of the lateness, in milliseconds."""
        ordered = sorted(self.late) or [0.0]
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def token_of(user: str, scope: str = "read write run") -> str:
    """Return a token of a tenant."""
    claims = {"sub": user, "aud": "kron", "scope": scope, "exp": int(time.time()) + 86_400}
    return make_token(claims, SECRET, "HS256")


class Experiment:
    """The service, the neighbour's schedules and the executors of both tenants."""

    def __init__(
        self, client: httpx.Client, server: Process, starts: Starts, *, hanging: str, quick: str
    ) -> None:
        self._url = str(client.base_url)
        self._server = server
        self._starts = starts
        self._hanging = hanging
        self._quick = quick

    def row(self, name: str, seconds: float, least: int = 0) -> Row:
        """Let the hostile tenant attack for some seconds, and return what the neighbour saw."""
        first, cpu = int(time.time()) + 1, self._server.processor_s
        answers = self._attacked(name, seconds, least)
        last = int(time.time())
        cpu = self._server.processor_s - cpu
        # A start that is late is not lost: it comes in the end.
        expected = {(f"{GOOD}/{number}", at) for number in range(SCHEDULES) for at in range(first, last)}
        seen = self._starts.late(first, last)
        for _ in range(100):
            if expected <= set(seen):
                break
            time.sleep(0.1)
            seen = self._starts.late(first, last)
        worker = self._server.children()[0]
        return Row(
            name,
            answers,
            1000 * cpu / max(1, answers.total()),
            len(seen),
            len(expected - set(seen)),
            sum(len(late) > 1 for late in seen.values()),
            [late[0] for late in seen.values()],
            _mib(self._server.pid),
            _mib(worker),
        )

    def _attacked(self, name: str, seconds: float, least: int) -> Counter[str]:
        if name == HANGS:
            return self._hang(seconds, max(HANGING, least))
        if name in FLOODS:
            return self._flood(seconds, FLOODS[name])
        if name in (QUIET, LONG_QUIET):
            time.sleep(seconds)
            return Counter()
        context = multiprocessing.get_context("spawn")
        queue: Queue[Counter[str]] = context.Queue()
        arguments = (name, self._url, token_of(HOSTILE), seconds, -(-least // ATTACKERS), queue)
        attackers = [
            context.Process(target=attack_in_process, args=arguments, daemon=True) for _ in range(ATTACKERS)
        ]
        for attacker in attackers:
            attacker.start()
        answers: Counter[str] = Counter()
        for _ in attackers:
            answers += queue.get()
        for attacker in attackers:
            attacker.join()
        return answers

    def _flood(self, seconds: float, kind: str) -> Counter[str]:
        """Let thousands of schedules be due in the same second, again and again."""
        launcher = {"kind": "http", "url": self._quick} if kind == "http" else {"kind": "log"}
        with _as_hostile(self._url) as client:
            if kind == "windows":
                answers = _flood_with(client, WINDOWS, launcher, WINDOWED)
                time.sleep(seconds)
                return answers + _flood_with(client, {"cron_expr": NEVER}, launcher, WINDOWED)
            answers = _flood_with(client, {"cron_expr": f"*/{EVERY_S} * * * * *"}, launcher)
            time.sleep(seconds)
            return answers + _flood_with(client, {"cron_expr": NEVER}, launcher)

    def _hang(self, seconds: float, requests: int) -> Counter[str]:
        answers: Counter[str] = Counter()
        with _as_hostile(self._url) as client:
            launcher = {"kind": "http", "url": self._hanging, "timeout": "1h"}
            body = {"schedule_id": f"{HOSTILE}/hangs", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
            schedule = {**body, "launcher": launcher}

            def is_stored() -> bool:
                """Say whether it is; the attack before may have used up the requests of its tenant."""
                answer = client.post("/schedules/upsert", json=schedule)
                return answer.status_code != HTTPStatus.TOO_MANY_REQUESTS and bool(answer.raise_for_status())

            wait_for(is_stored)
            ends_at = time.time() + seconds

            def send(number: int) -> str:
                document = {"request_id": f"{os.getpid()}-{time.time_ns()}-{number}"}
                path = f"/schedules/{quote(f'{HOSTILE}/hangs', safe='')}/run"
                time.sleep(0.011 if number < HANGING else 0)
                return str(client.post(path, json=document).status_code)

            with ThreadPoolExecutor(1 if requests <= HANGING else SENDERS) as pool:
                answers += Counter(pool.map(send, range(requests)))
            time.sleep(max(0.0, ends_at - time.time()))
        return answers


def _as_hostile(url: httpx.URL | str) -> httpx.Client:
    """Return a client of the hostile tenant."""
    headers = {"authorization": f"Bearer {token_of(HOSTILE)}"}
    return httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers)


def _flood_with(
    client: httpx.Client, fields: Mapping[str, object], launcher: dict[str, str], count: int = FLOOD
) -> Counter[str]:
    """Create or change the schedules of a flood, and return the answers."""
    answers: Counter[str] = Counter()
    document = {**fields, "timezone": "UTC", "launcher": launcher}
    headers = {"content-type": "application/x-ndjson"}
    for first in range(0, count, 1_000):
        names = (f"{HOSTILE}/flood {number}" for number in range(first, min(count, first + 1_000)))
        lines = "\n".join(json.dumps({**document, "schedule_id": name}) for name in names)
        answer = client.post("/schedules/bulk", content=lines.encode(), headers=headers)
        answers[str(answer.status_code)] += 1
    return answers


def _mib(pid: int) -> float:
    """Return the most memory that a process has used."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def attack_in_process(
    name: str, url: str, token: str, seconds: float, least: int, queue: "Queue[Counter[str]]"
) -> None:
    """Attack in a process of one's own, and put the answers into a queue."""
    senders = SENDERS if least and name not in CONNECTING else 1
    attack = MIXED if name == MIX else MANY.get(name, ATTACKS[name]) if least else ATTACKS[name]
    ends_at = time.time() + seconds
    targets = [Target(url, token, f"{HOSTILE}/", ends_at, -(-least // senders)) for _ in range(senders)]
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(attack, targets))
    queue.put(sum((target.answers for target in targets), Counter[str]()))


@contextmanager
def _accepting() -> Iterator[str]:
    """Run an executor in a process of its own that accepts every start at once; give its URL."""
    context = multiprocessing.get_context("spawn")
    ports: Queue[int] = context.Queue()
    process = context.Process(target=accept_starts, args=(ports,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=60)}/start"
    finally:
        process.kill()
        process.join()


def accept_starts(ports: "Queue[int]") -> None:
    """Accept the starts that come over any number of connections, and read nothing of them but their end."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
                )
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1_000)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def experimenting(
    folder: Path, store: str = "sqlite:///kron.db", *, is_limited: bool = True
) -> Iterator[Experiment]:
    """Serve two tenants, and start the neighbour's schedules; without limit no request is answered 429."""
    starts, released = Starts(), threading.Event()

    def hang(_: str) -> None:
        released.wait()

    variables = {
        "KRON_JWT_SECRET": SECRET,
        "KRON_SECRET_KEYS": "a key of the experiment that is long enough",
        "KRON_DRAIN_MS": "0",
        "KRON_PATIENCE_S": "5",
        "KRON_TICK_MS": "1000",
        "KRON_STORE": store,
        "KRON_EXECUTOR": '{"kind": "dag"}',
        **({} if is_limited else {"KRON_REQUESTS_PER_S": "0"}),
    }
    with (
        executing(hang) as hanging,
        _accepting() as quick,
        executing(starts.note) as executor,
        serving(folder, **variables) as (client, server),
    ):
        starts.executor = executor
        with _as_hostile(client.base_url) as hostile:
            # Before those of the neighbour: of those due together a store returns the oldest first.
            _flood_with(hostile, {"cron_expr": NEVER}, {"kind": "log"})
            prepare(hostile, f"{HOSTILE}/")
        good = {"authorization": f"Bearer {token_of(GOOD)}"}
        for number in range(SCHEDULES):
            document = {"schedule_id": f"{GOOD}/{number}", "cron_expr": "* * * * * *", "timezone": "UTC"}
            launcher = {"kind": "http", "url": executor.url}
            body = {**document, "launcher": launcher}
            client.post("/schedules/upsert", json=body, headers=good).raise_for_status()
        wait_for(lambda: executor.sent)
        try:
            yield Experiment(client, server, starts, hanging=hanging.url, quick=quick)
        finally:
            released.set()
