"""Loading the service: schedules in one request, and schedules that are all due at one instant."""

import json
from datetime import UTC, datetime, timedelta
from time import perf_counter, time

import httpx

# The timeout for the last start or response, in seconds.
MAX_S = 600.0
MAX_TRIES = 4
LINES = {"content-type": "application/x-ndjson"}
WORK = {"workflow_id": "bench", "version": 1, "user_id": "bench", "timezone": "UTC"}


class TooSlowError(Exception):
    """The instant came before everything was loaded."""


def load(client: httpx.Client, count: int, **fields: object) -> float:
    """Load a number of schedules; return the seconds it took."""
    lines = "".join(json.dumps({**WORK, **fields, "schedule_id": f"b{n}"}) + "\n" for n in range(count))
    begin = perf_counter()
    client.post("/schedules/bulk", content=lines.encode(), headers=LINES, timeout=MAX_S).raise_for_status()
    return perf_counter() - begin


def ready(client: httpx.Client, count: int, url: str, *, spare_s: float = 0.5) -> datetime:
    """Load schedules that are due at one instant; if it came too early, retry with more time."""
    for number in range(MAX_TRIES):
        ahead = timedelta(seconds=spare_s + (2.5 + count / 5_000) * 2**number)
        instant = (datetime.now(UTC) + ahead).replace(microsecond=0)
        expression = f"{instant.second} {instant.minute} {instant.hour} {instant.day} {instant.month} *"
        load(client, count, cron_expr=expression, launcher={"kind": "http", "url": url})
        if time() < instant.timestamp() - spare_s:
            return instant
    raise TooSlowError
