"""The service part: a real `kron serve`, asked over HTTP, that sends its starts to a receiver beside it."""

import asyncio
import json
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, time

import httpx

from bench.goal import at_least, at_most, cost_of, detail_of
from bench.place import POSTGRES, SQLITE, postgres_server
from bench.row import Findings, Goal, Kind, Row, Say
from tests.service.server import serving

KRON = "kron serve"
UPSERT, BULK, IDLE = "schedules upserted over HTTP", "schedules loaded in bulk", "memory with idle schedules"
DUE, LATE, ASKED = "due at one instant, sent over HTTP", "lateness over HTTP", "answers while starts are sent"
STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
# 100,000 in ten seconds; half of the starts within 50 ms and all but one of a hundred within 250 ms.
LEAST_BULK, MOST_LATE, MOST_BYTES = 10_000, {"p50": 0.050, "p99": 0.250}, 300e6
# How long to wait for the last start, and how often to look.
MAX_S, LOOK_S = 600.0, 0.05
MAX_TRIES = 4
WORK = {"workflow_id": "bench", "version": 1, "user_id": "bench", "timezone": "UTC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is asked."""

    upserts: int
    bulk: int
    due: int
    late: int
    late_s: float
    idle: int
    idle_s: float


FULL = Size(upserts=2_000, bulk=100_000, due=100_000, late=50, late_s=20.0, idle=1_000_000, idle_s=10.0)
QUICK = Size(upserts=300, bulk=10_000, due=2_000, late=20, late_s=5.0, idle=20_000, idle_s=5.0)


class TooSlowError(Exception):
    """The instant came before everything was loaded."""


class Receiver:
    """Accepts every start, and notes when it came and for which time it was."""

    def __init__(self) -> None:
        self.came: list[tuple[float, str]] = []
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.came.append((time(), json.loads(body)["scheduled_for"]))
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()

    def run(self, ready: threading.Event) -> None:
        """Receive until stopped."""
        asyncio.run(self._receive(ready))

    async def _receive(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=4096)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/start"
        ready.set()
        await self._stopped.wait()
        server.close()
        # Those who still wait for a request let go of their connections.
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Stop receiving."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver in a thread of its own."""
    receiver, ready = Receiver(), threading.Event()
    thread = threading.Thread(target=receiver.run, args=(ready,), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield receiver
    finally:
        receiver.stop()
        thread.join()


def run(say: Say, *, quick: bool) -> Findings:
    """Measure everything the service does."""
    return measure(say, QUICK if quick else FULL)


def measure(say: Say, size: Size) -> Findings:
    """Measure everything in a given size, each with a server and a store of its own."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    rows: list[Row] = []
    with postgres_server() as empty:
        for place, name in STORES.items():
            for title, part in (("upserts", _upserts), ("bulk", _bulk), ("due at once", _due)):
                say(f"{title}, {name}")
                rows += _tried(partial(_measured, part, place, size, empty), f"{title}, {name}")
    say("lateness")
    rows += _measured(_late, SQLITE, size, str)
    say("idle schedules")
    rows += _measured(_idle, SQLITE, size, str)
    return Findings(rows=tuple(rows), goals=tuple(goals(rows)))


Part = Callable[[httpx.Client, int, Size, str], list[Row]]


def _measured(part: Part, place: str, size: Size, empty: Callable[[], str]) -> list[Row]:
    url = empty() if place == POSTGRES else "sqlite:///kron.db"
    with TemporaryDirectory() as folder, serving(Path(folder), KRON_STORE=url) as (client, server):
        return part(client, server.pid, size, f", {STORES[place]}")


def _tried(work: Callable[[], list[Row]], title: str) -> list[Row]:
    """Measure, or say why not: without PostgreSQL there are the other rows."""
    try:
        return work()
    except (ImportError, TooSlowError) as error:
        return [Row(title=title, contender=KRON, kind=Kind.RATE, note=repr(error))]


# --- writing ---


def _upserts(client: httpx.Client, _pid: int, size: Size, on: str) -> list[Row]:
    document = {**WORK, "cron_expr": "0 0 1 1 *"}
    begin = perf_counter()
    for number in range(size.upserts):
        client.post("/schedules/upsert", json={**document, "schedule_id": f"s{number}"}).raise_for_status()
    cost = (perf_counter() - begin) / size.upserts
    note = f"{size.upserts:,} one after the other"
    return [Row(title=f"{UPSERT}{on}", contender=KRON, kind=Kind.RATE, cost=cost, note=note)]


def _bulk(client: httpx.Client, _pid: int, size: Size, on: str) -> list[Row]:
    cost = load(client, size.bulk, cron_expr="0 0 1 1 *") / size.bulk
    note = f"{size.bulk:,} in one request"
    return [Row(title=f"{BULK}{on}", contender=KRON, kind=Kind.RATE, cost=cost, note=note)]


def load(client: httpx.Client, count: int, **fields: object) -> float:
    """Load so many schedules; return the seconds it took."""
    lines = "".join(json.dumps({**WORK, **fields, "schedule_id": f"b{n}"}) + "\n" for n in range(count))
    begin = perf_counter()
    client.post("/schedules/bulk", content=lines.encode(), timeout=MAX_S).raise_for_status()
    return perf_counter() - begin


# --- starting ---


def _due(client: httpx.Client, _pid: int, size: Size, on: str) -> list[Row]:
    """Measure a burst, and how the API answers meanwhile."""
    with receiving() as receiver:
        instant = _ready(client, size.due, receiver.url)
        sleep(max(instant.timestamp() - time(), 0))
        answers = list(_answers(client, receiver, size.due))
    last = max(came for came, _ in receiver.came) - instant.timestamp()
    first = min(came for came, _ in receiver.came) - instant.timestamp()
    details = {"first seconds": first, "last seconds": last}
    note = f"{len(receiver.came):,} of {size.due:,} schedules, the last after {last:.1f} s"
    cost = last / max(len(receiver.came), 1)
    burst = Row(title=f"{DUE}{on}", contender=KRON, kind=Kind.RATE, cost=cost, note=note, details=details)
    return [burst, _spread(f"{ASKED}{on}", answers)]


def _ready(client: httpx.Client, count: int, url: str) -> datetime:
    """Load schedules that are due at one instant; where it came too soon, once more with more time."""
    for number in range(MAX_TRIES):
        ahead = timedelta(seconds=(3 + count / 5_000) * 2**number)
        instant = (datetime.now(UTC) + ahead).replace(microsecond=0)
        expression = f"{instant.second} {instant.minute} {instant.hour} {instant.day} {instant.month} *"
        load(client, count, cron_expr=expression, launcher={"kind": "http", "url": url})
        if time() < instant.timestamp() - 0.5:
            return instant
    raise TooSlowError


def _answers(client: httpx.Client, receiver: Receiver, count: int) -> Iterator[float]:
    """Ask for a schedule again and again until all starts have come; yield what each answer took."""
    until = perf_counter() + MAX_S
    while len(receiver.came) < count and perf_counter() < until:
        begin = perf_counter()
        client.get("/schedules/b0").raise_for_status()
        yield perf_counter() - begin
        sleep(LOOK_S)


def _late(client: httpx.Client, _pid: int, size: Size, on: str) -> list[Row]:
    with receiving() as receiver:
        launcher = {"kind": "http", "url": receiver.url}
        load(client, size.late, cron_expr="* * * * * *", launcher=launcher, overlap_policy="allow")
        sleep(2)
        receiver.came.clear()
        sleep(size.late_s)
        late = [came - datetime.fromisoformat(due).timestamp() for came, due in list(receiver.came)]
    return [_spread(f"{LATE}{on}", late)]


def _spread(title: str, seconds: Sequence[float]) -> Row:
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else [0.0] * 99
    details = {"p50 seconds": cuts[49], "p99 seconds": cuts[98], "number": len(seconds)}
    note = f"one of a hundred takes longer than {1000 * cuts[98]:.1f} ms; {len(seconds):,} of them"
    return Row(title=title, contender=KRON, kind=Kind.TIME, cost=cuts[49], note=note, details=details)


# --- idle ---


def _idle(client: httpx.Client, pid: int, size: Size, on: str) -> list[Row]:
    load(client, size.idle, cron_expr="0 0 1 1 *")
    before, begin = _processor_s(pid), perf_counter()
    sleep(size.idle_s)
    share = (_processor_s(pid) - before) / (perf_counter() - begin)
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line]
    note = f"{size.idle:,} schedules; they take {100 * share:.2f} % of a processor"
    cost = 1024.0 * int(line.split()[1])
    details = {"share": share}
    return [Row(title=f"{IDLE}{on}", contender=KRON, kind=Kind.SIZE, cost=cost, note=note, details=details)]


def _processor_s(pid: int) -> float:
    """Return the seconds of processor time a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare the rows with the goals."""
    for name in STORES.values():
        yield at_least(f"{BULK}, {name}", LEAST_BULK, cost_of(rows, f"{BULK}, {name}", KRON))
    for part, most in MOST_LATE.items():
        title = f"{LATE}, {STORES[SQLITE]}"
        yield at_most(f"{title}, {part}", most, detail_of(rows, title, KRON, f"{part} seconds"))
    title = f"{IDLE}, {STORES[SQLITE]}"
    yield at_most(title, MOST_BYTES, cost_of(rows, title, KRON), kind=Kind.SIZE)
