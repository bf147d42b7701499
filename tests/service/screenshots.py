"""Takes the pictures of the documentation from the demo: `make screenshots`."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx

from tests.service import dag_demo
from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import chromium
from tests.service.server import serving

ASSETS = Path(__file__).parents[2] / "docs" / "assets"
PLAYED = "/ui/playground?cron=30+2+*+*+mon-fri&zone=Europe%2FBerlin&window=2h&mode=around&distribution=normal"


class Shot(NamedTuple):
    """A picture: its file, the page's address, and its size."""

    file: str
    path: Callable[[httpx.Client], str]
    size: tuple[int, int]


def _retried(client: httpx.Client) -> str:
    """Return the page of a period that succeeded at its second attempt."""
    runs = client.get("/schedules/demo%2Fpartner-feed/runs", params={"limit": 100}).json()["runs"]
    run = next(run for run in runs if run["reason"] == "retry" and run["status"] == "SUCCESS")
    return f"/ui/period?id=demo%2Fpartner-feed&at={quote(run['run_at'])}"


SHOTS = (
    Shot("service-now.png", lambda _: "/ui/now", (1280, 960)),
    Shot("service-overview.png", lambda _: "/", (1280, 830)),
    Shot("service-schedule.png", lambda _: "/ui/schedule?id=demo%2Fnightly-literal", (1280, 900)),
    Shot("service-why.png", _retried, (1000, 900)),
    Shot("service-playground.png", lambda _: PLAYED, (1280, 900)),
)


# The failed run of the DAG with a past.
FAILED = 2


def _failed_run(client: httpx.Client) -> str:
    """Return the page of a run that failed after a retry."""
    return f"/ui/dag/run?id={dag_demo.seed(client)[FAILED]}"


DAG_SHOTS = (
    Shot("dag-run.png", _failed_run, (1280, 1180)),
    Shot("dag.png", lambda _: f"/ui/dag?id={dag_demo.NAME}", (1280, 720)),
)


def main() -> int:
    """Take every picture, and say which."""
    if CHROMIUM is None:
        sys.stderr.write(f"{MISSING}\n")
        return 1
    _take(SHOTS, "--demo", KRON_LOG_LEVEL="info")
    _take(DAG_SHOTS, **dag_demo.VARIABLES)
    return 0


def _take(shots: Sequence[Shot], *options: str, **variables: str) -> None:
    """Take pictures of a service of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder, *options, **variables) as (client, _), chromium(folder) as browser:
            base = str(client.base_url).rstrip("/")
            for shot in shots:
                browser.show(width=shot.size[0], height=shot.size[1])
                browser.open(base + shot.path(client))
                taken = browser.picture(ASSETS / shot.file)
                sys.stdout.write(f"docs/assets/{shot.file}: {len(taken):,} bytes\n")


if __name__ == "__main__":
    sys.exit(main())
