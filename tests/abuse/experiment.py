"""Two tenants on one service, one of them hostile: what the other's starts and the machine show."""

import asyncio
import json
import multiprocessing
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from multiprocessing.queues import Queue
from pathlib import Path
from urllib.parse import quote

import httpx

from kron.fronts.service.auth.token import make_token
from tests.abuse.attacks import MIXED, REQUESTS_OF, SENDING, Target, prepare
from tests.abuse.connections import CONNECTING, Place, Work
from tests.abuse.many import recorded, send_many
from tests.service.executor import Executor, executing
from tests.service.server import Process, serving
from tests.waiting import PATIENCE_S, wait_for

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
ATTACKS = (*SENDING, *CONNECTING)
# Processes that attack at once, and the hostile users of each where a number of requests is required.
ATTACKERS, USERS = 2, 4
# More connections than one attacker holds.
MAX_FILES = 4_096
# The answers that refuse a request without carrying it out.
REFUSALS = ("429", "503")


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
    # At the beginning; the others are the most since then.
    api_before_mib: float = 0.0
    worker_before_mib: float = 0.0

    @property
    def refused(self) -> int:
        """Return how many requests were answered without being carried out."""
        return sum(self.answers[status] for status in REFUSALS)

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
        worker = self._server.children()[0]
        before = [_forget_peak(pid) for pid in (self._server.pid, worker)]
        first, cpu = int(time.time()) + 1, self._server.processor_s
        answers = self._attacked(name, seconds, least)
        last = int(time.time())
        cpu = self._server.processor_s - cpu
        # A start that is late is not lost: it comes in the end.
        expected = {(f"{GOOD}/{number}", at) for number in range(SCHEDULES) for at in range(first, last)}
        seen = self._starts.late(first, last)
        give_up_at = time.monotonic() + PATIENCE_S
        while not expected <= set(seen) and time.monotonic() < give_up_at:
            time.sleep(0.1)
            seen = self._starts.late(first, last)
        return Row(
            name,
            answers,
            1000 * cpu / max(1, answers.total()),
            len(seen),
            len(expected - set(seen)),
            sum(len(late) > 1 for late in seen.values()),
            [late[0] for late in seen.values()],
            _mib(self._server.pid, "VmHWM"),
            _mib(worker, "VmHWM"),
            *before,
        )

    def _attacked(self, name: str, seconds: float, least: int) -> Counter[str]:
        if name == HANGS:
            return self._hang(seconds, max(HANGING, least))
        if name in FLOODS:
            return self._flood(max(seconds, (least // FLOOD + 1) * EVERY_S), FLOODS[name], least)
        if name in (QUIET, LONG_QUIET):
            time.sleep(seconds)
            return Counter()
        context = multiprocessing.get_context("spawn")
        queue: Queue[Counter[str]] = context.Queue()
        attackers = [
            context.Process(
                target=attack_in_process,
                args=(number, name, self._url, seconds, -(-least // ATTACKERS), queue),
                daemon=True,
            )
            for number in range(ATTACKERS)
        ]
        for attacker in attackers:
            attacker.start()
        answers: Counter[str] = Counter()
        for _ in attackers:
            answers += queue.get()
        for attacker in attackers:
            attacker.join()
        return answers

    def _flood(self, seconds: float, kind: str, least: int) -> Counter[str]:
        """Let thousands of schedules be due in the same second, again and again."""
        launcher = {"kind": "http", "url": self._quick} if kind == "http" else {"kind": "log"}
        with _client_of(self._url) as client:
            if kind == "windows":
                _flood_with(client, WINDOWS, launcher, WINDOWED)
                time.sleep(seconds)
                # Users take turns: planning this many windows takes some time.
                opened = wait_for(
                    lambda: count if (count := self._count("kron_runs_open")) >= least else None
                )
                answers = Counter({"windows open": opened})
                _flood_with(client, {"cron_expr": NEVER}, launcher, WINDOWED)
                return answers
            before, began = self._count("kron_outcomes_total"), time.time()
            _flood_with(client, {"cron_expr": f"*/{EVERY_S} * * * * *"}, launcher)
            time.sleep(seconds)
            # Those of the neighbour are not counted.
            started = self._count("kron_outcomes_total") - before - int(SCHEDULES * (time.time() - began))
            _flood_with(client, {"cron_expr": NEVER}, launcher)
            return Counter({"starts": max(0, started)})

    def _count(self, metric: str) -> int:
        """Return the sum of a metric of the worker."""
        headers = {"authorization": f"Bearer {token_of('operator', 'admin')}"}
        text = httpx.get(f"{self._url}/metrics", headers=headers, timeout=60, trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith(f"{metric}{{")]
        return int(sum(float(line.split()[-1]) for line in lines))

    def _hang(self, seconds: float, requests: int) -> Counter[str]:
        answers: Counter[str] = Counter()
        with _client_of(self._url) as client:
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
                # As fast as its rate limit lets it.
                time.sleep(0.011)
                return str(client.post(path, json=document).status_code)

            answers += Counter(map(send, range(requests)))
            time.sleep(max(0.0, ends_at - time.time()))
        return answers


def _client_of(url: httpx.URL | str, user: str = HOSTILE) -> httpx.Client:
    """Return a client of a hostile user."""
    headers = {"authorization": f"Bearer {token_of(user)}"}
    return httpx.Client(base_url=url, timeout=60, trust_env=False, headers=headers)


def _flood_with(
    client: httpx.Client, fields: Mapping[str, object], launcher: dict[str, str], count: int = FLOOD
) -> None:
    """Create or change the schedules of a flood."""
    document = {**fields, "timezone": "UTC", "launcher": launcher}
    headers = {"content-type": "application/x-ndjson"}
    for first in range(0, count, 1_000):
        names = (f"{HOSTILE}/flood {number}" for number in range(first, min(count, first + 1_000)))
        lines = "\n".join(json.dumps({**document, "schedule_id": name}) for name in names)
        client.post("/schedules/bulk", content=lines.encode(), headers=headers).raise_for_status()


def _mib(pid: int, what: str) -> float:
    """Return the memory of a process: that it uses (`VmRSS`), or the most that it has used (`VmHWM`)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def _forget_peak(pid: int) -> float:
    """Let the most memory that a process has used be what it uses now, and return that."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _mib(pid, "VmRSS")


def hostile_users(*, is_many: bool = True) -> list[str]:
    """Return the hostile users; the first is alone where no number of requests is required."""
    return [HOSTILE, *(f"{HOSTILE}{number}" for number in range(1, ATTACKERS * USERS if is_many else 1))]


def attack_in_process(
    number: int, name: str, url: str, seconds: float, least: int, queue: "Queue[Counter[str]]"
) -> None:
    """Attack in a process of one's own, and put the answers into a queue."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MAX_FILES), hard))
    ends_at = time.time() + seconds
    host, port = httpx.URL(url).host, httpx.URL(url).port or 80
    work = Work(least, ends_at)
    if name in CONNECTING:
        asyncio.run(CONNECTING[name](Place(host, port, token_of(HOSTILE)), work))
    elif least:
        users = hostile_users()[number * USERS : (number + 1) * USERS]
        messages = [recorded(url, token_of(user), f"{user}/", REQUESTS_OF[name]) for user in users]
        asyncio.run(send_many(Place(host, port, ""), messages, work))
    else:
        target = Target(url, token_of(HOSTILE), f"{HOSTILE}/", ends_at)
        (MIXED if name == MIX else SENDING[name])(target)
        work.answers.update(target.answers)
    queue.put(work.answers)


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
    folder: Path, store: str = "sqlite:///kron.db", *, is_many: bool = False
) -> Iterator[Experiment]:
    """Serve the neighbour and hostile users, with the default limits, and start the neighbour's schedules."""
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
    }
    with (
        executing(hang) as hanging,
        _accepting() as quick,
        executing(starts.note) as executor,
        serving(folder, **variables) as (client, server),
    ):
        starts.executor = executor
        with _client_of(client.base_url) as hostile:
            # Before those of the neighbour: of those due together a store returns the oldest first.
            _flood_with(hostile, {"cron_expr": NEVER}, {"kind": "log"})
        for user in hostile_users(is_many=is_many):
            with _client_of(client.base_url, user) as hostile:
                prepare(hostile, f"{user}/")
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
