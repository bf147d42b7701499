"""Workers that share one PostgreSQL: real `kron worker` processes that send over HTTP."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from signal import SIGTERM
from tempfile import TemporaryDirectory
from time import sleep, time

import psycopg

from bench.goal import cost_of
from bench.receiver import Receiver, receiving
from bench.row import Goal, Kind, Row
from bench.service_load import MAX_S, TooSlowError, ready
from kron.core.shard import SHARDS
from kron.core.time.instant import rfc3339
from tests.service.server import process, serving

ONE, TWO = "one kron worker", "two kron workers"
CREWS = {TWO: 2, ONE: 1}
LEAST_RATIO = 1.5
# The response times of executors. If they respond at once, the machine's processors are the limit.
DELAYS = {"executors that answer after 50 ms": 0.05, "executors that answer at once": 0.0}
# The lease TTL, and the time for the loading server to stop.
LEASE_MS, END_S = 3_000, 2.0
LOOK_S = 0.05
SHARES = "SELECT count(*) FROM leases WHERE owner IS NOT NULL GROUP BY namespace, owner"


def title_of(delay: str) -> str:
    """Return the title of a comparison."""
    return f"due at one instant, workers that share, {delay}"


def rows_of(empty: Callable[[], str], count: int, delays: Mapping[str, float] = DELAYS) -> Iterator[Row]:
    """Yield the rates of one and two workers for a burst."""
    for delay, after_s in delays.items():
        costs = {name: _cost(partial(_burst, empty(), crew, count, after_s)) for name, crew in CREWS.items()}
        for name, cost in costs.items():
            both = costs[TWO]
            ratio = None if cost is None or both is None else cost / both
            note = f"{count:,} schedules, PostgreSQL" if cost is not None else "too slow to be measured"
            yield Row(
                title=title_of(delay), contender=name, kind=Kind.RATE, cost=cost, ratio=ratio, note=note
            )


def _cost(work: Callable[[], float]) -> float | None:
    try:
        return work()
    except TooSlowError:
        return None


def _burst(url: str, crew: int, count: int, after_s: float) -> float:
    """Return the seconds per start: the time to the last start, divided by their number."""
    settings = {"KRON_STORE": url, "KRON_WORKERS": "shared", "KRON_LEASE_MS": str(LEASE_MS)}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        receiver = stack.enter_context(receiving(after_s))
        for _ in range(crew):
            stack.enter_context(process("worker", folder=folder, **settings))
        _wait_for_shares(url, crew)
        # A server that would own all shards gets none while others share them: it only loads.
        with serving(folder, **settings | {"KRON_WORKERS": "leader"}) as (client, server):
            instant = ready(client, count, receiver.url, spare_s=END_S).timestamp()
            server.signal(SIGTERM)
            server.ended()
        last = _last(receiver, rfc3339(int(instant)), count) - instant
    return last / count


def _wait_for_shares(url: str, crew: int) -> None:
    """Wait until each worker has an even share of the shards."""
    until = time() + MAX_S
    with psycopg.connect(url, autocommit=True) as connection:
        while sorted(_shares(connection)) != [SHARDS // crew] * crew:
            if time() > until:
                raise TooSlowError
            sleep(LOOK_S)


def _shares(connection: psycopg.Connection[tuple[int]]) -> list[int]:
    try:
        return [number for (number,) in connection.execute(SHARES)]
    except psycopg.errors.UndefinedTable:
        # No worker has started yet.
        return []


def _last(receiver: Receiver, due: str, count: int) -> float:
    """Return the time of the last start."""
    until = time() + MAX_S
    while receiver.number(due) < count:
        if time() > until:
            raise TooSlowError
        sleep(LOOK_S)
    return max(came for came, of in receiver.came if of == due)


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare two workers with one."""
    title = title_of(next(iter(DELAYS)))
    one, two = cost_of(rows, title, ONE), cost_of(rows, title, TWO)
    ratio = None if one is None or two is None else one / two
    yield Goal(
        what=title,
        wanted=f">= {LEAST_RATIO:g} x {ONE}",
        measured="not measured" if ratio is None else f"{ratio:.2f} x",
        met=None if ratio is None else ratio >= LEAST_RATIO,
    )
