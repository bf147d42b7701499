"""Measures how late starts are while pages are live: `python -m tests.service.viewers 100`."""

import asyncio
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from tests.service.server import serving

SCHEDULES, SECONDS = 20, 20
STREAM = {"accept": "text/event-stream"}


async def watch(client: httpx.AsyncClient, until: float, fetched: list[str]) -> None:
    """View the page of the present: keep its stream, and request it at each event."""
    with suppress(httpx.HTTPError):
        async with client.stream("GET", "/ui/live", headers=STREAM) as events:
            assert events.status_code == 200, events.status_code
            async for line in events.aiter_lines():
                if line == "event: changed":
                    page = await client.get("/ui/now")
                    fetched.append(str(page.status_code))
                if time.monotonic() > until:
                    return


async def view(base: str, viewers: int, seconds: float) -> list[str]:
    """Let some viewers watch for a while, and return the status of each page they fetched."""
    fetched: list[str] = []
    until = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=2 * viewers + 10)
    async with httpx.AsyncClient(base_url=base, limits=limits, timeout=60, trust_env=False) as client:
        watching = [asyncio.create_task(watch(client, until, fetched)) for _ in range(viewers)]
        await asyncio.sleep(seconds)
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    return fetched


def lateness_ms(client: httpx.Client) -> list[float]:
    """Return how late each start of the last while was, sorted."""
    late = []
    for number in range(SCHEDULES):
        runs = client.get(f"/schedules/job{number}/runs", params={"limit": SECONDS - 2}).json()["runs"]
        times = [(run["started_at"], run["fire_at"]) for run in runs if run["started_at"]]
        late += [1000 * (_seconds(started) - _seconds(fire)) for started, fire in times]
    return sorted(late)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main(viewers: int) -> None:
    """Print the lateness of starts without viewers and with them."""
    with TemporaryDirectory() as name, serving(Path(name)) as (client, server):
        for number in range(SCHEDULES):
            document = {
                "schedule_id": f"job{number}", "cron_expr": "* * * * * *", "timezone": "UTC",
                "launcher": {"kind": "log", "message": "x"}, "overlap_policy": "allow",
            }  # fmt: skip
            client.post("/schedules/upsert", json=document).raise_for_status()
        for count in (0, viewers):
            before = server.processor_s
            fetched = asyncio.run(view(str(client.base_url), count, SECONDS))
            late = lateness_ms(client)
            share = 100 * (server.processor_s - before) / SECONDS
            most, slow = late[-1], late[int(0.99 * len(late))]
            sys.stdout.write(
                f"{count} viewers, {len(fetched)} pages: {len(late)} starts late by {median(late):.0f} ms "
                f"(p50), {slow:.0f} ms (p99), {most:.0f} ms (most); {share:.0f} % of a core\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
