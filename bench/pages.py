"""The pages part: every page of a real `kron serve` over many schedules and a long history.

The schedules are loaded over HTTP. Their history is written as SQL, because a year of starts cannot be waited
for: it has the columns, the keys and the indexes of runs that were recorded.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, time
from typing import Any, TypeAlias

import httpx
import psycopg

from bench.goal import at_most
from bench.place import POSTGRES, SQLITE, url_of
from bench.row import Findings, Goal, Kind, Row, Say
from bench.service_load import LINES, MAX_S
from kron.core.plan.record import key_of
from kron.core.time.instant import DAY, rfc3339
from kron.fronts.service.web.now import SHARED_S
from kron.stores.sqlite.write import key_number
from tests.service.server import Process, serving

# A client, and the processes that answer it.
Served: TypeAlias = tuple[httpx.Client, Process]

STORES = {SQLITE: "SQLite", POSTGRES: "PostgreSQL"}
# Well under a second, and the size of a page in bytes.
MOST_S, MOST_BYTES = 0.75, 500_000
# Requests of each page after a first one, which is counted apart.
REQUESTS = 5
# Pages with a picture that viewers share, and the time after which it is made anew, in seconds.
SHARED, ANEW_S = ("/ui/now", "/ui/fleet"), SHARED_S + 0.2
# Longer than any window, in seconds.
OPEN_S = 900
# Connections that write the history.
WRITERS = 4
# Zones of one offset, so that the nominal times of all are those of UTC.
ZONES = ("UTC", "Etc/UTC", "Africa/Abidjan", "Atlantic/Reykjavik")
TAGS, USERS, HOURS, MINUTES = 50, 100, 24, 60
# The schedule with the longest history: it is due in every minute.
DENSE, DENSE_CRON = "p-dense", "* * * * *"
# By the remainder of a number: 4 of 100 runs failed, 3 were skipped, 2 missed, the others succeeded.
STATUSES = """
    CASE WHEN {n} % 100 < 4 THEN 'FAILED' WHEN {n} % 100 < 7 THEN 'SKIPPED' WHEN {n} % 100 < 9 THEN 'MISSED'
    ELSE 'SUCCESS' END"""
REASONS = """
    CASE WHEN {n} % 100 BETWEEN 4 AND 6 THEN 'active' WHEN {n} % 100 BETWEEN 7 AND 8 THEN 'deadline'
    ELSE 'due' END"""
RESULTS = """
    CASE WHEN {n} % 100 < 4 THEN 'failed' WHEN {n} % 100 < 9 THEN NULL ELSE 'success' END"""
COLUMNS = (
    "idempotency_key, schedule_id, nominal_time, fire_time, status, reason, made_at, epoch, is_open, kind, "
    "attempt, token, began_at, over_at, result, error, acked, changed_at"
)
# What every run has, from the columns name, number, kept (of a schedule) and at (a nominal time).
VALUES = f"""
    name, at, 1000 * at, {STATUSES}, {REASONS}, 1000 * at, kept, 0, 'period',
    CASE WHEN {{n}} % 100 BETWEEN 4 AND 8 THEN 0 ELSE 1 END, 1,
    CASE WHEN {{n}} % 100 BETWEEN 4 AND 8 THEN NULL ELSE 1000 * at + 20 END,
    CASE WHEN {{n}} % 100 BETWEEN 4 AND 8 THEN NULL ELSE 1000 * at + 20 + 100 * ({{n}} % 600) END,
    {RESULTS}, CASE WHEN {{n}} % 100 < 4 THEN 'exit code 1' END,
    CASE WHEN {{n}} % 100 BETWEEN 4 AND 8 THEN 0 ELSE 1 END, 1000 * at + 60020
""".replace("{n}", "(7 * number + at / 60)")
POSTGRES_DAY = f"""
    INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
    SELECT 'service', shard, encode(sha256(convert_to(name || ':' || at, 'UTF8')), 'hex'), {VALUES}
    FROM (
        SELECT schedule_id AS name, shard, epoch AS kept, number,
            %(day)s + number % 24 * 3600 + number / 24 % 60 * 60 AS at
        FROM (SELECT *, substr(schedule_id, 2)::bigint AS number FROM schedules
              WHERE namespace = 'service' AND schedule_id ~ '^p[0-9]+$') AS numbered
    ) AS due WHERE at < %(now)s ORDER BY at
""".replace(" % ", " %% ")
POSTGRES_DENSE = f"""
    INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
    SELECT 'service', shard, encode(sha256(convert_to(name || ':' || at, 'UTF8')), 'hex'), {VALUES}
    FROM (
        SELECT schedule_id AS name, shard, epoch AS kept, 0 AS number, at
        FROM schedules, generate_series(%(first)s::bigint, %(now)s - 60, 60) AS at
        WHERE namespace = 'service' AND schedule_id = %(dense)s
    ) AS due
""".replace(" % ", " %% ")
SQLITE_DAY = f"""
    INSERT INTO runs (namespace, job, slot, key_number, {COLUMNS})
    SELECT namespace, job, 0, number_of(name, at), key_of(name, at), {VALUES}
    FROM (
        SELECT namespace, job, name, kept, number, :day + number % 24 * 3600 + number / 24 % 60 * 60 AS at
        FROM (SELECT namespace, number AS job, schedule_id AS name, epoch AS kept,
                CAST(substr(schedule_id, 2) AS INTEGER) AS number
              FROM jobs WHERE schedule_id GLOB 'p[0-9]*')
    ) WHERE at < :now ORDER BY at
"""
SQLITE_DENSE = f"""
    INSERT INTO runs (namespace, job, slot, key_number, {COLUMNS})
    WITH RECURSIVE times (at) AS (SELECT :first UNION ALL SELECT at + 60 FROM times WHERE at + 120 <= :now)
    SELECT namespace, job, 0, number_of(name, at), key_of(name, at), {VALUES}
    FROM (
        SELECT namespace, number AS job, schedule_id AS name, epoch AS kept, 0 AS number, at
        FROM jobs, times WHERE schedule_id = :dense
    )
"""
FAILING = "UPDATE {table} SET failures = 3, last_failure_at = changed_at - 3600000 WHERE {number} % 64 = 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many schedules there are, for how many days each has a run, and the runs of the dense one."""

    schedules: int
    days: int
    dense: int

    @property
    def runs(self) -> int:
        """Return about how many runs there are."""
        return self.schedules * self.days + self.dense


FULL = {
    SQLITE: Size(schedules=100_000, days=9, dense=150_000),
    POSTGRES: Size(schedules=100_000, days=96, dense=500_000),
}
QUICK = dict.fromkeys(STORES, Size(schedules=2_000, days=5, dense=5_000))


def run(say: Say, *, quick: bool) -> Findings:
    """Measure every page on both stores."""
    rows: list[Row] = []
    for place, name in STORES.items():
        with filled(place, (QUICK if quick else FULL)[place], say) as service:
            rows += [_row(title, path, name, service) for title, path in paths_of(int(time())).items()]
    return Findings(rows=tuple(rows), goals=tuple(_goals(rows, quick=quick)))


def _goals(rows: list[Row], *, quick: bool) -> Iterator[Goal]:
    for name in STORES.values():
        own = [row for row in rows if row.title.endswith(name)]
        slowest = max((row.cost or 0.0 for row in own), default=0.0)
        largest = max((float(row.details["bytes"]) for row in own), default=0.0)
        yield at_most(f"the slowest page, {name}", MOST_S, None if quick else slowest)
        yield at_most(f"the largest page, {name}", MOST_BYTES, largest, kind=Kind.SIZE)


def paths_of(now: int) -> dict[str, str]:
    """Return the address of every page by its name; some pages have several."""
    day, minute = now // DAY * DAY, now // 60 * 60
    # p0 is due at midnight; its run of yesterday succeeded or failed, whatever its number says.
    at, dense = rfc3339(day - DAY), rfc3339(minute - 7200)
    key = key_of("p0", day - DAY)
    return {
        **{f"now, {zoom}": f"/ui/now?zoom={zoom}" for zoom in ("hour", "day", "week", "month")},
        "now, one tag": "/ui/now?tag=tag7",
        "now, a week ago": f"/ui/now?zoom=day&at={rfc3339(day - 7 * DAY)}",
        "schedules": "/",
        "schedules, searched": "/?search=p9999",
        "schedules, failing": "/?state=failing",
        "schedules, one tag": "/?tag=tag7",
        "schedules, one zone": "/?zone=Africa/Abidjan",
        "schedules, one owner": "/?owner=user7",
        "schedules, one launcher": "/?launcher=log",
        **{
            f"schedules, by {word}": f"/?owner=user7&sort={word}" for word in ("next", "failures", "duration")
        },
        **{f"all schedules, by {word}": f"/?sort={word}" for word in ("next", "failures", "duration")},
        "schedule": "/ui/schedule?id=p0",
        "schedule, dense": f"/ui/schedule?id={DENSE}",
        "schedule, dense, failed": f"/ui/schedule?id={DENSE}&status=FAILED",
        "schedule, dense, never": f"/ui/schedule?id={DENSE}&status=CANCELLED",
        "run now": "/ui/schedule/run?id=p0",
        "pause": "/ui/schedule/pause?id=p0",
        "resume": "/ui/schedule/resume?id=p0",
        "backfill": f"/ui/schedule/backfill?id=p0&from={rfc3339(day - 30 * DAY)}&to={at}",
        "edit": "/ui/schedule/edit?id=p0",
        "edit, with its plan": "/ui/schedule/edit?id=p0&window=10m",
        "period": f"/ui/period?id=p0&at={at}",
        "period, what if": f"/ui/period?id=p0&at={at}&changes=concurrency=allow",
        "period, dense": f"/ui/period?id={DENSE}&at={dense}",
        "run": f"/ui/run?key={key}",
        "runs": "/ui/runs",
        **{f"runs, {word}": f"/ui/runs?status={word}" for word in ("FAILED", "STARTED", "UNSCHEDULABLE")},
        "fleet": "/ui/fleet",
        "workers": "/ui/workers",
        "audit": "/ui/audit",
        "audit of one": "/ui/audit?name=p0",
        "DAGs": "/ui/dags",
        "playground": "/ui/playground?cron=0+9+*+*+1-5&zone=Europe/Berlin&window=30m",
        "API": "/docs",
    }


def _row(title: str, path: str, name: str, service: Served) -> Row:
    """Request a page several times; its cost is the median, after a first request that is told apart."""
    times, size = [], 0
    client, server = service
    before = server.processor_s
    for number in range(1 + REQUESTS):
        if number and path.startswith(SHARED):
            sleep(ANEW_S)
        begin = perf_counter()
        answer = client.get(path)
        times.append(perf_counter() - begin)
        answer.raise_for_status()
        size = max(size, len(answer.content))
    cost = median(times[1:])
    used = (server.processor_s - before) / len(times)
    note = (
        f"{size / 1000:.0f} kB, {1000 * max(times[1:]):.0f} ms at most, {1000 * times[0]:.0f} ms at first, "
        f"{1000 * used:.0f} ms of the processor"
    )
    details = {"bytes": size, "first": times[0], "most": max(times[1:]), "processor": used}
    return Row(
        title=f"{title}, {name}",
        contender="kron serve",
        kind=Kind.TIME,
        cost=cost,
        note=note,
        details=details,
    )


# --- the store -----------------------------------------------------------------------------------


@contextmanager
def filled(place: str, size: Size, say: Say) -> Iterator[Served]:
    """Serve a store with schedules and their history."""
    with ExitStack() as stack:
        url = stack.enter_context(url_of(place))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        # Windows that are open when a schedule is created are its own.
        began = int(time()) - OPEN_S
        say(f"{size.schedules:,} schedules, {STORES[place]}")
        with serving(folder, KRON_STORE=url) as (client, _):
            _load(client, size.schedules)
        say(f"about {size.runs:,} runs, {STORES[place]}")
        fill(url, size, began)
        yield stack.enter_context(serving(folder, KRON_STORE=url, KRON_TICK_MS="1000"))


def _load(client: httpx.Client, count: int) -> None:
    lines = [json.dumps(_document(number)) for number in range(count)]
    lines.append(json.dumps({**_document(0), "schedule_id": DENSE, "cron_expr": DENSE_CRON, "window": None}))
    answer = client.post("/schedules/bulk", content="\n".join(lines).encode(), headers=LINES, timeout=MAX_S)
    answer.raise_for_status()


def _document(number: int) -> Mapping[str, object]:
    """Return a schedule that is due once a day; one of ten has a window."""
    return {
        "schedule_id": f"p{number}",
        "cron_expr": f"{number // HOURS % MINUTES} {number % HOURS} * * *",
        "timezone": ZONES[number % len(ZONES)],
        "workflow_id": "bench",
        "version": 1,
        "user_id": f"user{number % USERS}",
        "launcher": {"kind": "log"},
        "tags": [f"tag{number % TAGS}"],
        "window": {"mode": "after", "duration": "10m"} if number % 10 == 5 else None,
    }


def fill(url: str, size: Size, now: int) -> None:
    """Write the runs of the past, the oldest first."""
    days = [now // DAY * DAY - DAY * number for number in reversed(range(size.days))]
    first = now // 60 * 60 - 60 * size.dense
    write = _fill_postgres if url.startswith("postgres") else _fill_sqlite
    write(url, days, {"now": now, "first": first, "dense": DENSE})


def _fill_postgres(url: str, days: list[int], values: Mapping[str, int | str]) -> None:
    """Write without indexes and by several connections, and then make the indexes again."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '512MB'")
        key, made = _indexes(connection)
        connection.execute(f"ALTER TABLE schedule_runs DROP CONSTRAINT {key[0]}")
        for name, _ in made:
            connection.execute(f"DROP INDEX {name}")
        work = [(POSTGRES_DENSE, values), *((POSTGRES_DAY, {**values, "day": day}) for day in days)]
        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(lambda each: _written(url, *each), work))
        connection.execute(f"ALTER TABLE schedule_runs ADD CONSTRAINT {key[0]} {key[1]}")
        for _, definition in made:
            connection.execute(definition)
        connection.execute(FAILING.format(table="schedules", number="shard"))
        connection.execute("VACUUM ANALYZE")


def _indexes(connection: psycopg.Connection[Any]) -> tuple[tuple[str, str], list[tuple[str, str]]]:
    """Return the primary key and the other indexes of runs, each with its definition."""
    table = "'schedule_runs'::regclass"
    (key,) = connection.execute(
        f"SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        f"WHERE conrelid = {table} AND contype = 'p'"
    ).fetchall()
    made = connection.execute(
        f"SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index "
        f"WHERE indrelid = {table} AND NOT indisprimary"
    ).fetchall()
    return key, made


def _written(url: str, statement: str, values: Mapping[str, int | str]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        # Every run belongs to a schedule that was just read: the check of each row would double the time.
        connection.execute("SET session_replication_role = replica")
        connection.execute("SET synchronous_commit = off")
        connection.execute(statement, values)


def _fill_sqlite(url: str, days: list[int], values: Mapping[str, int | str]) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=MAX_S)) as connection:
        connection.create_function("key_of", 2, key_of, deterministic=True)
        connection.create_function("number_of", 2, lambda name, at: key_number(key_of(name, at)))
        for statement, more in [(SQLITE_DENSE, {}), *((SQLITE_DAY, {"day": day}) for day in days)]:
            with connection:
                connection.execute(statement, {**values, **more})
        with connection:
            connection.execute(FAILING.format(table="jobs", number="number"))
