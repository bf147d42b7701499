"""The service part: a real `kron serve`, called over HTTP, that sends its starts to a receiver."""

import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, time

import httpx

from bench import service_share
from bench.goal import at_least, at_most, cost_of, detail_of
from bench.place import POSTGRES, SQLITE, postgres_server
from bench.receiver import receiving
from bench.row import Findings, Goal, Kind, Row, Say
from bench.service_load import MAX_S, WORK, TooSlowError, load, ready
from kron.core.time.instant import rfc3339
from kron.fronts.service.settings import Settings
from tests.service.server import serving

KRON = "kron serve"
UPSERT, BULK, IDLE = "schedules upserted over HTTP", "schedules loaded in bulk", "memory with idle schedules"
DUE, LATE, ASKED = "due at one instant, sent over HTTP", "lateness over HTTP", "answers while starts are sent"
STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
# 100,000 in ten seconds; half of the starts within 50 ms and all but one of a hundred within 250 ms.
LEAST_BULK, MOST_LATE, MOST_BYTES = 10_000, {"p50": 0.050, "p99": 0.250}, 300e6
# Starts per second of a burst, and the 99th percentile of the API's response time during it.
LEAST_SENT, MOST_ASKED = 2_000, 0.250
LOOK_S, LEAST_ANSWERS = 0.05, 2
# The default; tests poll more often.
TICK_MS = str(Settings().tick_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The workload."""

    upserts: int
    bulk: int
    due: int
    shared: int
    late: int
    late_s: float
    idle: int
    idle_s: float


FULL = Size(
    upserts=2_000, bulk=100_000, due=100_000, shared=30_000, late=50, late_s=20.0, idle=1_000_000, idle_s=10.0
)
QUICK = Size(upserts=300, bulk=10_000, due=2_000, shared=2_000, late=20, late_s=5.0, idle=20_000, idle_s=5.0)


def run(say: Say, *, quick: bool) -> Findings:
    """Measure the service."""
    return measure(say, QUICK if quick else FULL)


def measure(say: Say, size: Size) -> Findings:
    """Measure everything in a given size, each with a separate server and store."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    rows: list[Row] = []
    with postgres_server() as empty:
        for place, name in STORES.items():
            for title, part in (("upserts", _upserts), ("bulk", _bulk), ("due at once", _due)):
                say(f"{title}, {name}")
                rows += _tried(partial(_measured, part, place, size, empty), f"{title}, {name}")
        if size.shared:
            say("workers that share")
            rows += _tried(lambda: list(service_share.rows_of(empty, size.shared)), "workers that share")
    say("lateness")
    rows += _measured(_late, SQLITE, size, str)
    say("idle schedules")
    rows += _measured(_idle, SQLITE, size, str)
    return Findings(rows=tuple(rows), goals=tuple(goals(rows)))


Part = Callable[[httpx.Client, int, Size, str], list[Row]]


def _measured(part: Part, place: str, size: Size, empty: Callable[[], str]) -> list[Row]:
    url = empty() if place == POSTGRES else "sqlite:///kron.db"
    with (
        TemporaryDirectory() as folder,
        serving(Path(folder), KRON_STORE=url, KRON_TICK_MS=TICK_MS) as (client, server),
    ):
        return part(client, server.pid, size, f", {STORES[place]}")


def _tried(work: Callable[[], list[Row]], title: str) -> list[Row]:
    """Measure, or return why not, so that other rows remain without PostgreSQL."""
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


# --- starting ---


def _due(client: httpx.Client, _pid: int, size: Size, on: str) -> list[Row]:
    """Measure a burst, and the response times of the API during it."""
    with receiving() as receiver:
        instant = ready(client, size.due, receiver.url).timestamp()
        due = rfc3339(int(instant))
        sleep(max(instant - time(), 0))
        answers = list(_answers(client, lambda: receiver.number(due) >= size.due))
    came = sorted(at - instant for at, of in receiver.came if of == due)
    number, first, last = receiver.number(due), came[0], came[-1]
    details = {"first seconds": first, "last seconds": last, "sent twice": len(came) - number}
    note = (
        f"{number:,} of {size.due:,} schedules, the first after {1000 * first:.0f} ms, the last {last:.1f} s"
    )
    cost = last / number
    burst = Row(title=f"{DUE}{on}", contender=KRON, kind=Kind.RATE, cost=cost, note=note, details=details)
    return [burst, _spread(f"{ASKED}{on}", answers)]


def _answers(client: httpx.Client, have_all_come: Callable[[], bool]) -> Iterator[float]:
    """Request a schedule repeatedly until all starts have arrived; yield each response time."""
    until, number = perf_counter() + MAX_S, 0
    while number < LEAST_ANSWERS or (not have_all_come() and perf_counter() < until):
        begin, number = perf_counter(), number + 1
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
    """Return the processor time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare the rows with the goals."""
    for name in STORES.values():
        yield at_least(f"{BULK}, {name}", LEAST_BULK, cost_of(rows, f"{BULK}, {name}", KRON))
        yield at_least(f"{DUE}, {name}", LEAST_SENT, cost_of(rows, f"{DUE}, {name}", KRON))
        asked = detail_of(rows, f"{ASKED}, {name}", KRON, "p99 seconds")
        yield at_most(f"{ASKED}, {name}, p99", MOST_ASKED, asked)
    for part, most in MOST_LATE.items():
        title = f"{LATE}, {STORES[SQLITE]}"
        yield at_most(f"{title}, {part}", most, detail_of(rows, title, KRON, f"{part} seconds"))
    title = f"{IDLE}, {STORES[SQLITE]}"
    yield at_most(title, MOST_BYTES, cost_of(rows, title, KRON), kind=Kind.SIZE)
    yield from service_share.goals(rows)
